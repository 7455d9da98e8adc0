"""ArcherTrainer inside TRL: settings, metrics, learning, several processes, resume, LoRA, one YAML."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed")

from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig

from archer.adapters.trl import ArcherConfig, ArcherTrainer
from archer.adapters.trl.config import REFUSED
from archer.adapters.trl.engine import settings
from archer.configs.loading import load_config
from archer.configs.policy import PolicyConfig
from archer.configs.run import RunConfig
from archer.errors import ConfigError
from archer.policy.tokenizer import model_place

STEP = Path(__file__).with_name("trl_step.py")
_spec = importlib.util.spec_from_file_location("archer_trl_step_2", STEP)
trl_step = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(trl_step)
batch = trl_step.batch
PLACE = model_place(PolicyConfig(model=batch.MODEL))

OTHER_VALUES = {
    "loss_type": "grpo",
    "epsilon": 0.3,
    "epsilon_high": 0.28,
    "delta": 4.0,
    "importance_sampling_level": "sequence",
    "scale_rewards": "none",
    "multi_objective_aggregation": "normalize_then_sum",
    "top_entropy_quantile": 0.2,
    "use_adaptive_entropy": True,
    "use_bias_correction_kl": False,
    "use_liger_kernel": True,
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_settings_that_would_change_the_objective_are_refused(name, tmp_path):
    with pytest.raises(ConfigError, match=name):
        ArcherConfig(str(tmp_path), use_cpu=True, **{name: OTHER_VALUES.get(name, 0.5)})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"beta": 0.04}, "beta_k"),
        ({"generation_kwargs": {"top_p": 0.9}}, "top_p"),
        ({"objective": "ar-lopti"}, "eta"),
        ({"objective": {"rhoo": 0.5}}, "rho"),
        ({"objective": "nothing"}, "archer"),
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 2}, "steps_per_generation"),
    ],
)
def test_what_cannot_be_served_is_refused(options, match, tmp_path):
    with pytest.raises(ConfigError, match=match):
        ArcherConfig(str(tmp_path), use_cpu=True, **options)


def test_methods_of_the_micro_batch_are_refused_under_several_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(GRPOConfig, "world_size", 2)
    ArcherConfig(str(tmp_path), use_cpu=True, objective={"scope": "batch"})
    for objective in ("clip-cov", {"scope": "batch", "entropy_from": "current"}):
        with pytest.raises(ConfigError, match="micro-batch"):
            ArcherConfig(str(tmp_path), use_cpu=True, objective=objective)


def test_settings_follow_the_objective_and_are_plain_data(tmp_path):
    with_kl = ArcherConfig(str(tmp_path), use_cpu=True, objective={"rho": 0.7, "beta_k": 0.01})
    without = ArcherConfig(str(tmp_path), use_cpu=True, objective={"beta_k": 0.0})
    assert (with_kl.beta, without.beta) == (1.0, 0.0)
    saved = json.loads(with_kl.to_json_string())
    assert saved["objective"]["rho"] == 0.7
    assert (
        ArcherConfig(str(tmp_path), use_cpu=True, objective=saved["objective"], beta=saved["beta"]).beta
        == 1.0
    )
    assert ArcherConfig(str(tmp_path), use_cpu=True, objective='{"rho": 0.6}').objective["rho"] == 0.6


def test_the_trainer_wants_its_own_configuration(tmp_path):
    with pytest.raises(ConfigError, match="ArcherConfig"):
        ArcherTrainer(PLACE, lambda **_: [], GRPOConfig(str(tmp_path), use_cpu=True))


def test_metrics_are_those_of_the_objective(tmp_path):
    _, _, line = trl_step.one_step(tmp_path, PLACE, batch.OBJECTIVES["archer"], rows=6, accumulation=2)
    assert 0.15 < line["role/reasoning_share"] < 0.35
    assert line["entropy/reasoning"] > line["entropy/knowledge"] > 0
    assert line["kl/mean"] == line["kl"] > 0
    assert 0 < line["clip/above_knowledge"] < 1
    assert line["ratio/min"] < 1 < line["ratio/max"]


def small_run(folder, *, peft_config=None, resume=False, max_steps=4):
    """A real run with generation; responses whose ids have an odd sum are rewarded."""
    args = ArcherConfig(
        str(folder),
        objective={"beta_k": 0.01},
        num_generations=4,
        max_completion_length=8,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        max_steps=max_steps,
        logging_steps=1,
        save_steps=2,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
    )
    trainer = ArcherTrainer(
        PLACE,
        lambda completion_ids, **_: [float(sum(ids) % 2) for ids in completion_ids],
        args,
        train_dataset=Dataset.from_dict({"prompt": [f"{i}+{i}\n" for i in range(8)]}),
        peft_config=peft_config,
    )
    trainer.train(resume_from_checkpoint=resume or None)
    return trainer


def test_lora_trains_the_adapter_alone_against_the_model_without_it(tmp_path):
    trainer = small_run(
        tmp_path, peft_config=LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear")
    )
    assert trainer.ref_model is None
    line = trainer.state.log_history[3]
    assert line["kl/mean"] > 0
    moved = [p for n, p in trainer.model.named_parameters() if "lora_B" in n and float(p.abs().max()) > 0]
    assert moved
    assert (tmp_path / "checkpoint-4" / "adapter_model.safetensors").exists()


def test_resume_continues_the_steps_and_the_optimizer(tmp_path):
    small_run(tmp_path, max_steps=2)
    trainer = small_run(tmp_path, resume=True, max_steps=4)
    steps = [line["step"] for line in trainer.state.log_history if "loss" in line]
    assert steps == [1, 2, 3, 4]
    states = trainer.optimizer.state_dict()["state"].values()
    assert {int(state["step"]) for state in states} == {4}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["archer", "archer-group"])
def test_two_processes_have_the_gradient_of_one(name, tmp_path):
    alone = trl_step.one_step(tmp_path / "one", PLACE, batch.OBJECTIVES[name])
    out = tmp_path / "two.pt"
    wanted = {
        "folder": str(tmp_path / "two"),
        "model": PLACE,
        "objective": batch.OBJECTIVES[name],
        "rows": 3,
        "accumulation": 2,
        "out": str(out),
    }
    # accelerate launch starts several processes without a GPU only through MPI; torchrun starts the same ones.
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
               "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(STEP), json.dumps(wanted)]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    loss, gradient, line = torch.load(out)
    assert abs(loss - alone[0]) < batch.TOLERANCE
    for parameter, value in alone[1].items():
        assert float((value - gradient[parameter]).abs().max()) < batch.TOLERANCE, parameter
    assert line["ratio/max"] == pytest.approx(alone[2]["ratio/max"], rel=1e-4)
    assert line["role/reasoning_share"] == pytest.approx(alone[2]["role/reasoning_share"])


@pytest.mark.slow
def test_the_demo_learns_by_the_trl_engine(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "archer.cli", "train", "demo", "--engine", "trl", f"output={tmp_path}",
         "train.steps=14", "train.eval_every=14", "train.checkpoint_every=14", "train.mini_batch_prompts=8",
         "evaluation.data.size=40", "train.rollout_log_every=0"],
        capture_output=True, text=True, timeout=290, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "demo" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(15))
    assert lines[-1]["eval/avg@8"] > lines[0]["eval/avg@8"] + 0.05
    assert load_config(RunConfig, tmp_path / "demo" / "config.yaml").train.steps == 14
    assert (tmp_path / "demo" / "final" / "model.safetensors").exists()


def test_one_yaml_becomes_arguments_of_trl():
    config = load_config(RunConfig, "demo")
    values = settings(config, 2)
    assert values["max_steps"] == 60 * 2
    assert values["num_iterations"] == 1
    rows, accumulation = values["per_device_train_batch_size"], values["gradient_accumulation_steps"]
    assert rows * accumulation * 2 == 16 * 8
    assert rows * (64 + 96) <= 8192
    assert values["steps_per_generation"] == 2 * accumulation
    assert values["eval_steps"] == 15 * 2


@pytest.mark.parametrize(
    ("dtype", "computes_in_bfloat16", "weights"),
    [("float32", False, "float32"), ("bfloat16", True, "float32"), ("float64", False, "float64")],
)
def test_weights_that_adamw_updates_are_never_bfloat16(dtype, computes_in_bfloat16, weights):
    values = settings(load_config(RunConfig, "demo", [f"policy.dtype={dtype}"]), 1)
    assert values["bf16"] is computes_in_bfloat16
    assert values["model_init_kwargs"]["dtype"] == weights


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("train.zero_variance=refill", "train.zero_variance"),
        ("train.old_logps=sampler", "train.old_logps"),
        ("policy.attention=packed", "policy.attention"),
        ("policy.device=cuda:1", "policy.device"),
        ("rollout={engine: vllm, vllm: {eager: true}}", "rollout.vllm"),
        ("rollout.max_batch=64", "rollout.max_batch"),
        ("evaluation.temperature=0.5", "evaluation"),
        ("evaluation.max_response_tokens=50", "evaluation"),
    ],
)
def test_what_trl_cannot_honour_is_named(override, field):
    with pytest.raises(ConfigError, match=field):
        settings(load_config(RunConfig, "demo", [override]), 1)
