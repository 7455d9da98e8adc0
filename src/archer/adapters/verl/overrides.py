"""From a run's configuration to Hydra overrides of verl, and what has no counterpart there."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archer.adapters.verl.settings import TRAINER_MODE, method_problems
from archer.configs.run import RunConfig
from archer.configs.train import TrainConfig
from archer.errors import ConfigError
from archer.objectives import needs

PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""A chat template that gives the text alone, for models that are prompted without one."""

_ACTOR, _REF = "actor_rollout_ref.actor", "actor_rollout_ref.ref"
_ROLLOUT, _MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"


@dataclass(frozen=True, slots=True)
class Files:
    """Where a launched run reads and writes.

    Attributes:
        folder: the run directory.
        train: training rows in verl's form.
        held_out: evaluation rows; the training rows where there are none (verl wants a file).
        plain_prompts: the model is prompted without a chat template.
    """

    folder: Path
    train: Path
    held_out: Path
    plain_prompts: bool


def model_path(model: str) -> str:
    """Hub name or folder, with ``package:NAME/FOLDER`` resolved.

    Raises:
        ConfigError: the package is not installed.
    """
    prefix, _, place = model.partition("package:")
    if prefix or not place:
        return model
    name, _, inside = place.partition("/")
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise ConfigError(f"policy.model: the Python package {name!r} is not installed")
    return str(Path(found.submodule_search_locations[0]) / inside)


def check_supported(config: RunConfig) -> None:
    """Refuse what verl can't honour.

    Raises:
        ConfigError: the fields, all of them in one message.
    """
    problems = [*_unsupported(config), *(f"objective: {text}" for text in method_problems(config.objective))]
    if problems:
        raise ConfigError("--engine verl can't honour this configuration:\n- " + "\n- ".join(problems))


def hydra_overrides(
    config: RunConfig, files: Files, machines: Mapping[str, Any], ray_address: str | None
) -> list[str]:
    """Arguments of ``python -m verl.trainer.main_ppo``.

    Args:
        config: the run.
        files: paths.
        machines: ``trainer.nnodes`` and ``trainer.n_gpus_per_node``.
        ray_address: address of a running Ray cluster, or None.

    Raises:
        ConfigError: as ``check_supported``.
    """
    check_supported(config)
    settings = {
        **_algorithm(config),
        **_model(config, files),
        **_rollout(config),
        **_optimizer(config),
        **_data(config, files),
        **_loop(config, files),
        **machines,
    }
    if ray_address is not None:
        settings["+ray_kwargs.ray_init.address"] = ray_address
    objective = config.objective.model_dump(mode="json")
    settings |= _flat("+archer.objective", objective)
    reward = config.reward.model_dump(mode="json", exclude_defaults=True) | {"kind": config.reward.kind}
    settings |= _flat("+reward.custom_reward_function.reward_kwargs", reward)
    return [f"{key}={_literal(value)}" for key, value in settings.items()]


def _unsupported(config: RunConfig) -> Iterator[str]:
    policy, train, evaluation = config.policy, config.train, config.evaluation
    checks: Sequence[tuple[bool, str, Any, str]] = (
        (
            policy.gguf_file is not None,
            "policy.gguf_file",
            policy.gguf_file,
            "null: convert the weights first",
        ),
        (
            policy.revision is not None,
            "policy.revision",
            policy.revision,
            "null: give a folder of that revision",
        ),
        (policy.dtype == "float64", "policy.dtype", policy.dtype, "float32, bfloat16 or auto"),
        (policy.device not in ("auto", "cuda"), "policy.device", policy.device, "auto or cuda"),
        (
            policy.attention != "auto",
            "policy.attention",
            policy.attention,
            "auto: verl has its own attention",
        ),
        (train.zero_variance != "keep", "train.zero_variance", train.zero_variance, "keep"),
        (train.overlong_buffer is not None, "train.overlong_buffer", train.overlong_buffer, "null"),
        (train.mask_truncated, "train.mask_truncated", True, "false"),
        (train.importance_limit is not None, "train.importance_limit", train.importance_limit, "null"),
        (
            train.old_logps == "sampler",
            "train.old_logps",
            train.old_logps,
            "recompute or auto, verl recomputes",
        ),
        (
            evaluation.max_response_tokens not in (None, config.rollout.max_response_tokens),
            "evaluation.max_response_tokens",
            evaluation.max_response_tokens,
            "null or the training limit, verl has one limit",
        ),
        (config.optimizer.schedule == "linear", "optimizer.schedule", "linear", "constant or cosine"),
        (
            config.optimizer.warmup_updates % _updates(train) != 0,
            "optimizer.warmup_updates",
            config.optimizer.warmup_updates,
            f"a multiple of {_updates(train)}, the updates of a step: verl's rate changes once a step",
        ),
        (
            train.micro_batch_tokens < config.rollout.max_prompt_tokens + config.rollout.max_response_tokens,
            "train.micro_batch_tokens",
            train.micro_batch_tokens,
            "at least rollout.max_prompt_tokens + max_response_tokens",
        ),
    )
    for wrong, field, found, expected in checks:
        if wrong:
            yield f"{field}: expected {expected}; got {found}"


def _updates(train: TrainConfig) -> int:
    return train.epochs * (train.prompts_per_step // train.mini_batch_prompts)


def _algorithm(config: RunConfig) -> dict[str, Any]:
    needed = needs(config.objective)
    return {
        "trainer.v1.trainer_mode": TRAINER_MODE,
        "algorithm.adv_estimator": "grpo",
        "algorithm.use_kl_in_reward": False,
        f"{_ACTOR}.use_kl_loss": needed.reference or config.train.track_kl,
        f"{_ACTOR}.calculate_entropy": needed.current_entropy,
        f"{_ACTOR}.entropy_coeff": 0,
        "reward.custom_reward_function.path": "pkg://archer.adapters.verl.reward",
        "reward.custom_reward_function.name": "compute_score",
    }


def _model(config: RunConfig, files: Files) -> dict[str, Any]:
    policy = config.policy
    settings: dict[str, Any] = {
        f"{_MODEL}.path": model_path(policy.model),
        f"{_MODEL}.enable_gradient_checkpointing": policy.gradient_checkpointing,
    }
    if files.plain_prompts:
        settings[f"{_MODEL}.custom_chat_template"] = PLAIN_TEMPLATE
    if policy.dtype == "float32":
        full = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
        settings[f"+{_ACTOR}.fsdp_config.mixed_precision"] = full
        settings[f"+{_REF}.fsdp_config.mixed_precision"] = full
        settings[f"{_ROLLOUT}.dtype"] = "float32"
    if policy.lora is not None:
        settings[f"{_MODEL}.lora_rank"] = policy.lora.rank
        settings[f"{_MODEL}.lora_alpha"] = policy.lora.alpha
        settings[f"{_MODEL}.target_modules"] = policy.lora.target_modules
    return settings


def _rollout(config: RunConfig) -> dict[str, Any]:
    rollout, evaluation = config.rollout, config.evaluation
    return {
        f"{_ROLLOUT}.name": "vllm",
        f"{_ROLLOUT}.n": rollout.group_size,
        f"{_ROLLOUT}.temperature": rollout.temperature,
        f"{_ROLLOUT}.max_num_seqs": rollout.max_batch,
        f"{_ROLLOUT}.tensor_model_parallel_size": 1,
        f"{_ROLLOUT}.val_kwargs.n": evaluation.k,
        f"{_ROLLOUT}.val_kwargs.temperature": evaluation.temperature,
        f"{_ROLLOUT}.val_kwargs.top_p": evaluation.top_p,
        f"{_ROLLOUT}.val_kwargs.top_k": evaluation.top_k or -1,
        f"{_ROLLOUT}.val_kwargs.do_sample": evaluation.temperature > 0,
    }


def _optimizer(config: RunConfig) -> dict[str, Any]:
    optimizer = config.optimizer
    return {
        f"{_ACTOR}.strategy": "fsdp2",
        f"{_ACTOR}.optim.lr": optimizer.learning_rate,
        f"{_ACTOR}.optim.weight_decay": optimizer.weight_decay,
        f"{_ACTOR}.optim.betas": list(optimizer.betas),
        f"{_ACTOR}.optim.override_optimizer_config": {"eps": optimizer.epsilon},
        f"{_ACTOR}.optim.lr_warmup_steps": optimizer.warmup_updates // _updates(config.train),
        f"{_ACTOR}.optim.lr_scheduler_type": optimizer.schedule,
        f"{_ACTOR}.optim.clip_grad": optimizer.max_grad_norm,
        f"{_ACTOR}.grad_clip": optimizer.max_grad_norm,
    }


def _data(config: RunConfig, files: Files) -> dict[str, Any]:
    rollout = config.rollout
    return {
        "data.train_files": str(files.train),
        "data.val_files": str(files.held_out),
        "data.train_batch_size": config.train.prompts_per_step,
        "data.max_prompt_length": rollout.max_prompt_tokens,
        "data.max_response_length": rollout.max_response_tokens,
        "data.filter_overlong_prompts": rollout.overlong_prompts == "drop",
        "data.truncation": "error",
        "data.seed": config.train.seed,
    }


def _loop(config: RunConfig, files: Files) -> dict[str, Any]:
    train = config.train
    return {
        f"{_ACTOR}.ppo_mini_batch_size": train.mini_batch_prompts,
        f"{_ACTOR}.ppo_epochs": train.epochs,
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": train.micro_batch_tokens,
        "trainer.total_training_steps": train.steps,
        # verl stops at whichever comes first; this one never does.
        "trainer.total_epochs": train.steps,
        "trainer.val_before_train": train.eval_every > 0,
        "trainer.test_freq": train.eval_every or -1,
        "trainer.save_freq": train.checkpoint_every or -1,
        "trainer.max_actor_ckpt_to_keep": train.keep_checkpoints,
        "trainer.default_local_dir": str(files.folder / "checkpoints"),
        "trainer.project_name": "archer",
        "trainer.experiment_name": config.name,
        "trainer.logger": ["console", *config.trackers],
    }


def _flat(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(f"{prefix}.{key}", value) if isinstance(value, Mapping) else {f"{prefix}.{key}": value}
    return flat


def _literal(value: Any) -> str:
    """A value in Hydra's override grammar."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_literal, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"expected a finite number, got {value}")
    if isinstance(value, str):
        plain = value and all(c.isalnum() or c in "-_./:" for c in value) and ":" not in value.split("//")[0]
        return value if plain else "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value)
