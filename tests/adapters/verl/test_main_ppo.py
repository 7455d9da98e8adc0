"""``python -m verl.trainer.main_ppo`` as a user runs it: Ray, FSDP2, rollout, reward, update, weight sync."""

import json
import math
import os
import shutil
import subprocess
import sys

import pytest
from verl_worker import MODEL

from archer.adapters.verl.launch import write_data
from archer.adapters.verl.overrides import Files, hydra_overrides
from archer.configs.loading import load_config
from archer.configs.run import RunConfig

STEPS = 1
SMALL = [
    "policy.device=auto",
    "policy.dtype=float32",
    "rollout.group_size=4",
    "train.prompts_per_step=4",
    "train.mini_batch_prompts=2",
    f"train.steps={STEPS}",
    "train.eval_every=0",
    "train.checkpoint_every=0",
    "train.micro_batch_tokens=512",
    "optimizer.warmup_updates=0",
    "optimizer.learning_rate=1e-3",
    "data.size=32",
]


def cpu_overrides(ranks):
    """What verl needs beyond a user's command to stand on two cores without a GPU."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return [
        "trainer.device=cpu",
        "trainer.logger=[console,file]",
        "trainer.resume_mode=disable",
        "data.dataloader_num_workers=0",
        "actor_rollout_ref.model.use_remove_padding=False",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        f"{actor}.use_torch_compile=False",
        f"{actor}.fsdp_config.use_torch_compile=False",
        "actor_rollout_ref.ref.fsdp_config.use_torch_compile=False",
        f"{rollout}.name=hf_cpu",
        f"{rollout}.free_cache_engine=False",
        f"{rollout}.agent.num_workers=1",
        "reward.num_workers=1",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "transfer_queue.backend.SimpleStorage.total_storage_size=1000",
        "ray_kwargs.ray_init.num_cpus=16",
        f"+ray_kwargs.ray_init.num_gpus={ranks}",
        "+ray_kwargs.ray_init.include_dashboard=False",
        "+ray_kwargs.ray_init.object_store_memory=300000000",
    ]


def demo_model(folder):
    """The demo model with a token that verl's agent loop wants of every Qwen3 tokenizer; it is never used."""
    from transformers import AutoTokenizer

    copy = shutil.copytree(MODEL, folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(copy)
    tokenizer.add_tokens("<|im_end|>", special_tokens=True)
    tokenizer.save_pretrained(copy)
    return copy


def run_main_ppo(folder, ranks, support):
    config = load_config(
        RunConfig, "demo", [*SMALL, f"output={folder}", f"policy.model={demo_model(folder)}"]
    )
    files = Files(folder, folder / "train/verl.parquet", folder / "held_out/verl.parquet", plain_prompts=True)
    write_data(config, files)
    machines = {"trainer.nnodes": 1, "trainer.n_gpus_per_node": ranks}
    command = [*hydra_overrides(config, files, machines, None), *cpu_overrides(ranks)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(support), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "VERL_CPU_WEIGHT_LOG": str(folder / "weights.jsonl"),
        "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
    }
    with (folder / "log.txt").open("w") as log:
        done = subprocess.run(
            [sys.executable, "-m", "verl.trainer.main_ppo", *command],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            timeout=800,
            check=False,
        )
    assert done.returncode == 0, (folder / "log.txt").read_text()[-6000:]
    return [json.loads(line)["data"] for line in (folder / "metrics.jsonl").open()], [
        json.loads(line) for line in (folder / "weights.jsonl").open()
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_train_and_the_rollout_gets_the_new_weights(verl_on_cpu, tmp_path, ranks, request):
    metrics, weights = run_main_ppo(tmp_path, ranks, request.path.parent / "support")
    steps = [line for line in metrics if "actor/grad_norm" in line]
    assert len(steps) == STEPS
    for line in steps:
        assert math.isfinite(line["actor/grad_norm"])
        assert line["actor/grad_norm"] > 0
        # Long responses: each has at most one token above a fifth.
        assert 0.2 <= line["actor/archer/role/reasoning_share"] <= 0.25
        assert line["archer/unscorable"] == 0
    updates = [line["change"] for line in weights]
    assert len(updates) == ranks * (STEPS + 1)
    assert all(change < 1e-3 for change in updates[:ranks])
    assert all(change > 1e-3 for change in updates[ranks:])
