"""What ``archer.*`` in a verl command holds, and which of verl's own settings it can't live with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from archer.configs.loading import build_config
from archer.configs.objective import (
    ArcherReleasedConfig,
    EightyTwentyConfig,
    ObjectiveConfig,
)
from archer.configs.objective_base import EntropyPool
from archer.configs.verl import VerlConfig
from archer.errors import ConfigError
from archer.objectives import needs

TRAINER_MODE = "archer_sync"
PLUGIN = "archer"
"""Name of the entry point in the group ``verl.plugins``."""


def read_objective(config: Mapping[str, Any]) -> ObjectiveConfig:
    """The objective of a verl configuration, after every check.

    Args:
        config: verl's whole configuration as plain containers, interpolations resolved.

    Raises:
        ConfigError: a field of ``archer`` is wrong, the method needs what verl can't give, or one of verl's own
            settings would change the objective without a word. All of these are listed in one message.
    """
    objective = build_config(VerlConfig, config.get("archer") or {}, where="archer").objective
    problems = [*method_problems(objective), *_setting_problems(config, objective)]
    if problems:
        raise ConfigError("this verl configuration can't train Archer:\n- " + "\n- ".join(problems))
    return objective


def method_problems(objective: ObjectiveConfig) -> Iterator[str]:
    """Why verl's data can't give this method what it needs; nothing where it can."""
    needed = needs(objective)
    if needed.passes > 1:
        yield (
            f"archer.objective: {objective.method!r} takes {needed.passes} updates on the same data, verl takes one; "
            "set archer.objective.eta=null"
        )
    if isinstance(objective, EntropyPool) and (objective.scope, objective.entropy_from) == (
        "group",
        "current",
    ):
        yield (
            "archer.objective.scope: 'group' with entropy_from 'current' needs a group's responses in one micro-batch, "
            "and verl spreads them; use entropy_from=old, or scope=response"
        )
    by_role = (isinstance(objective, ArcherReleasedConfig) and objective.aggregation == "token-mean") or (
        isinstance(objective, EightyTwentyConfig)
        and objective.aggregation == "token-mean"
        and objective.denominator == "selected"
    )
    if by_role and isinstance(objective, EntropyPool) and objective.entropy_from == "old":
        yield (
            f"archer.objective: {objective.method!r} divides by the tokens of each role in the whole mini-batch, which "
            "verl does not count; use aggregation=seq-mean-token-mean or entropy_from=current"
        )


def _setting_problems(config: Mapping[str, Any], objective: ObjectiveConfig) -> Iterator[str]:
    actor, needed = config["actor_rollout_ref"]["actor"], needs(objective)
    place = "actor_rollout_ref.actor"
    if needed.reference and not actor["use_kl_loss"]:
        yield (
            f"{place}.use_kl_loss=False: no reference log-probabilities would be computed, but {objective.method!r} "
            f"has a KL weight above 0; set {place}.use_kl_loss=True, or the weights of archer.objective to 0"
        )
    if needed.current_entropy and not actor["calculate_entropy"]:
        yield (
            f"{place}.calculate_entropy=False: {objective.method!r} needs the current policy's entropy; set it to True"
        )
    if actor["entropy_coeff"] != 0:
        yield f"{place}.entropy_coeff={actor['entropy_coeff']}: expected 0, Archer has no entropy bonus"
    if actor["strategy"] not in ("fsdp", "fsdp2"):
        yield f"{place}.strategy={actor['strategy']}: expected fsdp or fsdp2; others are not tested"
    yield from _ignored_settings(actor, place)
    yield from _algorithm_problems(config)
    rollout = config["actor_rollout_ref"]["rollout"]
    if rollout["top_p"] != 1 or rollout["top_k"] not in (-1, 0):
        yield (
            "actor_rollout_ref.rollout: expected top_p=1 and top_k=-1, because the importance ratio is taken over the "
            f"whole vocabulary; got top_p={rollout['top_p']}, top_k={rollout['top_k']}"
        )


_IGNORED: Mapping[str, tuple[Any, str]] = {
    "clip_ratio": (0.2, "eps_r and eps_k (or eps_low and eps_high)"),
    "clip_ratio_low": (0.2, "eps_r and eps_k (or eps_low)"),
    "clip_ratio_high": (0.2, "eps_r and eps_k (or eps_high)"),
    "clip_ratio_c": (3.0, "dual_clip"),
    "loss_agg_mode": ("token-mean", "aggregation"),
    "loss_scale_factor": (None, "constant_length"),
    "kl_loss_type": ("low_var_kl", "kl_estimator"),
}
"""Settings of verl's own loss: their default there, and what replaces them in ``archer.objective``."""


def _ignored_settings(actor: Mapping[str, Any], place: str) -> Iterator[str]:
    for name, (default, ours) in _IGNORED.items():
        if actor[name] != default:
            yield (
                f"{place}.{name}={actor[name]}: verl's own loss is not in use, so this would do nothing; remove it and "
                f"set archer.objective: {ours}"
            )
    if actor["policy_loss"]["loss_mode"] != "vanilla":
        yield (
            f"{place}.policy_loss.loss_mode={actor['policy_loss']['loss_mode']}: would do nothing; remove it and set "
            "archer.objective.method"
        )


def _algorithm_problems(config: Mapping[str, Any]) -> Iterator[str]:
    algorithm = config["algorithm"]
    if algorithm["adv_estimator"] != "grpo":
        yield f"algorithm.adv_estimator={algorithm['adv_estimator']}: expected grpo"
    if not algorithm["norm_adv_by_std_in_grpo"]:
        yield (
            "algorithm.norm_adv_by_std_in_grpo=False: remove it and set "
            "archer.objective.advantage.normalisation=mean-only"
        )
    if algorithm["use_kl_in_reward"]:
        yield "algorithm.use_kl_in_reward=True: expected False, the KL belongs to the loss here"
    correction = algorithm.get("rollout_correction") or {}
    if correction.get("bypass_mode"):
        yield (
            "algorithm.rollout_correction.bypass_mode=True: the old policy's entropy would not be computed; "
            "set it to False"
        )
    for name in ("rollout_is", "rollout_rs"):
        if correction.get(name) is not None:
            yield f"algorithm.rollout_correction.{name}={correction[name]}: expected null, Archer does not apply it"
    if (config.get("distillation") or {}).get("enabled"):
        yield "distillation.enabled=True: expected False, distillation has a loss of its own"
