"""A run configuration carried out by TRL: ``archer train CONFIG --engine trl``."""

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase, TrainerCallback

from archer.adapters.trl.config import ArcherConfig
from archer.adapters.trl.trainer import ArcherTrainer
from archer.configs.engine import VllmConfig
from archer.configs.loading import dump_config
from archer.configs.run import RunConfig
from archer.errors import ConfigError
from archer.objectives import needs, overlong_penalty
from archer.rewards import Scorer, build_scorer
from archer.types import Problem

NAMES: Mapping[str, str] = {
    "loss": "optim/loss",
    "grad_norm": "optim/grad_norm",
    "learning_rate": "optim/lr",
    "reward": "reward/mean",
    "frac_reward_zero_std": "reward/zero_variance_share",
    "completions/mean_length": "response/length_mean",
    "completions/max_length": "response/length_max",
    "completions/clipped_ratio": "response/truncated_share",
    "eval_completions/clipped_ratio": "eval/truncated_share",
    "eval_completions/mean_length": "eval/length_mean",
    "eval_reward/unscorable_share": "eval/unscorable_share",
}
"""TRL's names of metrics to those of docs/RUN_DIRECTORY.md; others keep theirs."""

Reward = Callable[..., list[float | None]]


def settings(config: RunConfig, processes: int) -> dict[str, Any]:
    """The run as arguments of ``ArcherConfig`` for that many processes.

    Raises:
        ConfigError: a field that TRL can't honour, by its name.
    """
    _refuse(config, processes)
    train, rollout, optimizer = config.train, config.rollout, config.optimizer
    updates = train.prompts_per_step // train.mini_batch_prompts
    per_step = updates * train.epochs
    rows, accumulation = _split(config, processes)
    values: dict[str, Any] = {
        "output_dir": str(Path(config.output) / config.name),
        "run_name": config.name,
        "objective": config.objective.model_dump(mode="json"),
        "num_generations": rollout.group_size,
        "max_completion_length": rollout.max_response_tokens,
        "temperature": rollout.temperature,
        **_vllm(config),
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation * updates,
        "num_iterations": train.epochs,
        "max_steps": train.steps * per_step,
        "mask_truncated_completions": train.mask_truncated,
        "learning_rate": optimizer.learning_rate,
        "weight_decay": optimizer.weight_decay,
        "adam_beta1": optimizer.betas[0],
        "adam_beta2": optimizer.betas[1],
        "adam_epsilon": optimizer.epsilon,
        "warmup_steps": optimizer.warmup_updates,
        "lr_scheduler_type": {"constant": "constant_with_warmup"}.get(optimizer.schedule, optimizer.schedule),
        "max_grad_norm": optimizer.max_grad_norm,
        "logging_steps": per_step,
        "log_completions": bool(train.rollout_log_every),
        "num_completions_to_print": 0,
        "save_strategy": "steps" if train.checkpoint_every else "no",
        "save_total_limit": train.keep_checkpoints,
        "seed": train.seed,
        "report_to": list(config.trackers) or "none",
        "gradient_checkpointing": config.policy.gradient_checkpointing,
        "use_cpu": config.policy.device == "cpu",
        **_precision(config),
    }
    if train.checkpoint_every:
        values["save_steps"] = train.checkpoint_every * per_step
    if train.eval_every:
        k = config.evaluation.k
        values |= {
            "eval_strategy": "steps",
            "eval_steps": train.eval_every * per_step,
            "eval_on_start": True,
            "num_generations_eval": k,
            "per_device_eval_batch_size": k * max(1, rollout.max_batch // k),
        }
    return values


def train(
    config: RunConfig,
    *,
    model: str,
    tokenizer: PreTrainedTokenizerBase,
    chat: bool,
    problems: Sequence[Problem],
    held_out: Sequence[Problem],
    resume: bool,
) -> Path:
    """Train by TRL, under ``accelerate launch`` with any number of processes.

    Args:
        config: the run.
        model: hub name or folder, resolved.
        tokenizer: the model's.
        chat: whether prompts go through the model's chat template.
        problems: training problems.
        held_out: problems of the evaluations; may be empty where there are none.
        resume: continue from the newest checkpoint of the run directory.

    Returns:
        The run directory; the trained model (with LoRA: its adapter) lies in ``final``.

    Raises:
        ConfigError: a field that TRL can't honour.
        RewardError: the scorer can't start.
    """
    values = settings(config, int(os.environ.get("WORLD_SIZE", "1")))
    folder = Path(values["output_dir"])
    known = {f"{part}/{p.id}": p for part, ps in (("train", problems), ("eval", held_out)) for p in ps}
    with build_scorer(config.reward) as scorer:
        trainer = ArcherTrainer(
            model,
            reward_function(scorer, known, config, tokenizer),
            ArcherConfig(**values),
            train_dataset=_dataset("train", problems, chat),
            eval_dataset=_dataset("eval", held_out, chat) if config.train.eval_every else None,
            processing_class=tokenizer,
            callbacks=[RunDirectory(folder, config)],
            peft_config=_lora(config),
        )
        trainer.train(resume_from_checkpoint=resume or None)
        trainer.save_model(str(folder / "final"))
    return folder


def reward_function(
    scorer: Scorer, known: Mapping[str, Problem], config: RunConfig, tokenizer: PreTrainedTokenizerBase
) -> Reward:
    """A reward function of TRL's form over our scorer; ``None`` for what can't be scored."""

    def score(
        completion_ids: Sequence[Sequence[int]],
        problem: Sequence[str],
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> list[float | None]:
        texts = tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        scores = [v.score for v in scorer.score([known[name] for name in problem], texts)]
        log_metric("reward/unscorable_share", sum(s is None for s in scores) / len(scores))
        if config.train.overlong_buffer is None or problem[0].startswith("eval/"):
            return scores
        penalty_B = overlong_penalty(
            torch.tensor([len(ids) for ids in completion_ids]),
            limit=config.rollout.max_response_tokens,
            buffer=config.train.overlong_buffer,
            factor=config.train.overlong_factor,
        )
        return [None if s is None else s + float(p) for s, p in zip(scores, penalty_B, strict=True)]

    return score


class RunDirectory(TrainerCallback):  # type: ignore[misc]
    """Writes ``config.yaml`` and, one line a step, ``metrics.jsonl`` as the local engine does."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder, self.config = folder, config
        self.line: dict[str, Any] = {}
        train = config.train
        self.updates = train.prompts_per_step // train.mini_batch_prompts * train.epochs

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "config.yaml").write_text(dump_config(self.config))
        path = self.folder / "metrics.jsonl"
        if state.global_step and path.exists():
            done = state.global_step // self.updates
            lines = [line for line in path.read_text().splitlines() if json.loads(line)["step"] <= done]
            path.write_text("".join(line + "\n" for line in lines))

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **_: Any) -> None:
        # The last log of a run sums it up and belongs to no step.
        if not state.is_world_process_zero or "train_runtime" in logs:
            return
        step = state.global_step // self.updates
        if self.line and self.line["step"] != step:
            self._write()
        names = {**NAMES, "eval_reward": f"eval/avg@{self.config.evaluation.k}"}
        self.line |= {"step": step, "time": time.time()}
        for name, value in logs.items():
            if isinstance(value, int | float):
                self.line[names.get(name, name)] = value if math.isfinite(value) else None

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._write()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._write()

    def _write(self) -> None:
        if self.line:
            with (self.folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(self.line) + "\n")
            self.line = {}


def _refuse(config: RunConfig, processes: int) -> None:
    train, rollout, evaluation = config.train, config.rollout, config.evaluation
    at_once = train.prompts_per_step * rollout.group_size // processes
    limit = evaluation.max_response_tokens or rollout.max_response_tokens
    reference = needs(config.objective).reference
    faults = {
        "policy.gguf_file": (config.policy.gguf_file is not None, "TRL loads no GGUF weights here"),
        "policy.device": (
            config.policy.device not in ("auto", "cpu", "cuda"),
            "accelerate places the model; use auto or cpu",
        ),
        "policy.attention": (config.policy.attention == "packed", "TRL computes padded rows; use auto"),
        "train.zero_variance": (train.zero_variance != "keep", "TRL trains every group; use keep"),
        "train.old_logps": (train.old_logps == "sampler", "TRL computes them itself; use auto"),
        "train.track_kl": (
            train.track_kl and not reference,
            "TRL loads a reference only for an objective with a KL weight; use false",
        ),
        "train.importance_limit": (
            train.importance_limit is not None and rollout.engine == "local",
            "TRL corrects for vLLM only; use null, or rollout.engine: vllm",
        ),
        "rollout.vllm": (
            rollout.vllm is not None
            and (rollout.vllm.dtype, rollout.vllm.cache_gb, rollout.vllm.eager) != ("auto", None, False),
            "TRL sets no dtype, cache_gb or eager; leave these at their defaults",
        ),
        "rollout.max_batch": (
            rollout.engine == "local" and at_once > rollout.max_batch,
            f"TRL decodes a step's {at_once} responses of a process at once; raise it to {at_once} or use more "
            "processes",
        ),
        "evaluation": (
            bool(train.eval_every)
            and (evaluation.temperature, evaluation.top_p, evaluation.top_k, limit)
            != (rollout.temperature, 1.0, 0, rollout.max_response_tokens),
            "TRL evaluates with the sampling of the training; give temperature, top_p, top_k and "
            "max_response_tokens the values of rollout, or set train.eval_every=0",
        ),
        "train.mini_batch_prompts": (
            bool(train.mini_batch_prompts * rollout.group_size % processes),
            f"its {train.mini_batch_prompts * rollout.group_size} responses do not divide over {processes} processes",
        ),
    }
    found = [f"{name}: {action}" for name, (wrong, action) in faults.items() if wrong]
    if found:
        raise ConfigError(f"engine trl can't honour these fields: {'; '.join(found)}")


def _vllm(config: RunConfig) -> dict[str, Any]:
    """TRL's settings of vLLM within the trainer's process."""
    if config.rollout.engine != "vllm":
        return {}
    engine, limit = config.rollout.vllm or VllmConfig(), config.train.importance_limit
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": engine.memory_share,
        "vllm_max_model_length": engine.max_tokens,
        "vllm_importance_sampling_correction": limit is not None,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": limit or 1.0,
    }


def _split(config: RunConfig, processes: int) -> tuple[int, int]:
    """Rows of one forward pass, within ``train.micro_batch_tokens`` padded tokens, and passes of one update."""
    rollout = config.rollout
    update = config.train.mini_batch_prompts * rollout.group_size // processes
    most = max(
        1, config.train.micro_batch_tokens // (rollout.max_prompt_tokens + rollout.max_response_tokens)
    )
    rows = max(n for n in range(1, update + 1) if update % n == 0 and n <= most)
    return rows, update // rows


def _precision(config: RunConfig) -> dict[str, Any]:
    """Weights stay in float32, since an update of AdamW is lost on a bfloat16 weight; bfloat16 is for computing."""
    dtype = config.policy.dtype
    if dtype == "auto":
        dtype = "bfloat16" if torch.cuda.is_available() and config.policy.device != "cpu" else "float32"
    weights = "float32" if dtype == "bfloat16" else dtype
    return {
        "bf16": dtype == "bfloat16",
        "model_init_kwargs": {"dtype": weights, "revision": config.policy.revision},
    }


def _dataset(part: str, problems: Sequence[Problem], chat: bool) -> Dataset:
    def prompt(problem: Problem) -> Any:
        if not chat:
            return problem.prompt
        if isinstance(problem.prompt, str):
            return [{"role": "user", "content": problem.prompt}]
        return [dict(message) for message in problem.prompt]

    return Dataset.from_dict(
        {"prompt": [prompt(p) for p in problems], "problem": [f"{part}/{p.id}" for p in problems]}
    )


def _lora(config: RunConfig) -> Any:
    lora = config.policy.lora
    if lora is None:
        return None
    import peft

    return peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=0.0,
        target_modules=lora.target_modules,
    )
