"""A run's configuration as a verl command."""

import importlib.util
import os
import shlex
import subprocess
import sys

import pyarrow.parquet
import pytest

from archer.adapters.verl.launch import launch, write_data
from archer.adapters.verl.overrides import Files, hydra_overrides
from archer.configs.loading import load_config
from archer.configs.run import RunConfig
from archer.data import load_problems
from archer.errors import ConfigError

VERL_CAN = ["policy.device=auto", "train.micro_batch_tokens=512"]


def config_of(*overrides):
    return load_config(RunConfig, "demo", [*VERL_CAN, *overrides])


def printed(capsys, config, address=None):
    launch(config, dry_run=True, ray_address=address)
    return [word for word in shlex.split(capsys.readouterr().out, comments=True) if word.strip()]


def test_a_dry_run_prints_the_command_and_writes_nothing(capsys, tmp_path):
    words = printed(capsys, config_of(f"output={tmp_path}", "objective.rho=0.7"))
    assert words[:3] == [sys.executable, "-m", "verl.trainer.main_ppo"]
    settings = dict(word.split("=", 1) for word in words[3:])
    assert settings["trainer.v1.trainer_mode"] == "archer_sync"
    assert settings["+archer.objective.rho"] == "0.7"
    assert settings["actor_rollout_ref.actor.use_kl_loss"] == "True"
    assert settings["data.train_batch_size"] == "32"
    assert settings["actor_rollout_ref.actor.ppo_mini_batch_size"] == "16"
    # 6 updates of warm-up at 2 updates a step
    assert settings["actor_rollout_ref.actor.optim.lr_warmup_steps"] == "3"
    assert settings["+reward.custom_reward_function.reward_kwargs.kind"] == "procedural"
    assert not list(tmp_path.iterdir())


def test_a_ray_address_goes_to_verl(capsys):
    words = printed(capsys, config_of(), "10.0.0.1:6379")
    assert "+ray_kwargs.ray_init.address=10.0.0.1:6379" in [word.replace("'", "") for word in words]
    assert not any(word.startswith("trainer.nnodes") for word in words)


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("policy.device=cpu", "policy.device"),
        ("policy.revision=abc", "policy.revision"),
        ("policy.dtype=float64", "policy.dtype"),
        ("train.zero_variance=refill", "train.zero_variance"),
        ("train.overlong_buffer=16", "train.overlong_buffer"),
        ("train.mask_truncated=true", "train.mask_truncated"),
        ("train.importance_limit=2", "train.importance_limit"),
        ("train.old_logps=sampler", "train.old_logps"),
        ("evaluation.max_response_tokens=32", "evaluation.max_response_tokens"),
        ("optimizer.schedule=linear", "optimizer.schedule"),
        ("optimizer.warmup_updates=5", "optimizer.warmup_updates"),
        ("train.micro_batch_tokens=100", "train.micro_batch_tokens"),
        ("objective.method=ar-lopti", "objective"),
    ],
)
def test_what_verl_cannot_honour_is_an_error_that_names_the_field(override, field):
    with pytest.raises(ConfigError, match=field):
        launch(config_of(override), dry_run=True, ray_address=None)


def test_the_rows_hold_the_problems(tmp_path):
    config = config_of("data.size=12", "evaluation.data.size=5")
    files = Files(tmp_path, tmp_path / "a/verl.parquet", tmp_path / "b/verl.parquet", plain_prompts=True)
    write_data(config, files)
    rows = pyarrow.parquet.read_table(files.train).to_pylist()
    assert [row["prompt"][0]["content"] for row in rows] == [p.prompt for p in load_problems(config.data)]
    assert pyarrow.parquet.read_table(files.held_out).num_rows == 5


def test_verl_reads_the_command_and_the_trainer_accepts_it(verl_on_cpu, tmp_path):
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    from archer.adapters.verl.settings import read_objective

    config = config_of(f"output={tmp_path}", "objective.dual_clip=3")
    files = Files(tmp_path, tmp_path / "a.parquet", tmp_path / "b.parquet", plain_prompts=True)
    words = hydra_overrides(config, files, {"trainer.nnodes": 1}, None)
    with initialize_config_module("verl.trainer.config", version_base=None):
        composed = compose("ppo_trainer", overrides=words)
    assert composed.actor_rollout_ref.model.custom_chat_template.startswith("{% for message")
    assert read_objective(OmegaConf.to_container(composed, resolve=True)) == config.objective


def test_verl_check_finds_the_plugin_or_says_why_not():
    # Other tests of this session make verl load the CPU platform, which a process of its own would not find.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")}
    done = subprocess.run(
        [sys.executable, "-m", "archer.cli", "verl-check"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if importlib.util.find_spec("verl") is None:
        assert done.returncode == 1
        assert "verl is not installed" in done.stdout
    else:
        assert done.returncode == 0, done.stdout
        assert "archer_sync" in done.stdout
