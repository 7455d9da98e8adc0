"""What a config needs, and the one match that runs its method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, assert_never

import torch
from torch import Tensor

from archer.configs.objective import (
    ArcherConfig,
    ArcherKConfig,
    ArcherReleasedConfig,
    ArcherSoftConfig,
    ArLoptiConfig,
    AspoConfig,
    AspoReleasedConfig,
    CeGppoConfig,
    CispoConfig,
    ClipCovConfig,
    DapoConfig,
    DrGrpoConfig,
    EightyTwentyConfig,
    EntropyAdvantageConfig,
    EspoConfig,
    GppoConfig,
    GrpoConfig,
    GspoConfig,
    HapoConfig,
    HapoReleasedConfig,
    KLCovConfig,
    ObjectiveConfig,
    PearConfig,
    SteerConfig,
)
from archer.configs.objective_base import Aggregation, DualToken, EntropyPool, Roles, UniformKL
from archer.errors import TensorError
from archer.objectives.aggregation import Counts, response_count
from archer.objectives.checks import check, clean, require
from archer.objectives.methods.archer import archer, archer_released
from archer.objectives.methods.archer_soft import archer_k, archer_soft, compute_grades
from archer.objectives.methods.covariance import clip_cov, kl_cov
from archer.objectives.methods.entropy_scaled import hapo, steer
from archer.objectives.methods.ppo import ar_lopti, clipped_policy, eighty_twenty, entropy_advantage
from archer.objectives.methods.sequence import espo, gspo
from archer.objectives.methods.soft_clip import aspo, aspo_released, cispo, gppo
from archer.objectives.roles import compute_roles
from archer.types import LossTerms, TokenBatch

Statistic = Literal["token", "response", "group", "micro-batch", "batch"]


@dataclass(frozen=True, slots=True)
class Needs:
    """What the caller has to compute for a method.

    Attributes:
        reference: ``ref_logp_BT`` is needed.
        old_entropy: ``old_entropy_BT`` is needed.
        current_entropy: ``entropy_BT`` is needed in every forward.
        statistic: the widest set of tokens that a token's loss depends on. For all but ``"micro-batch"`` any
            split of a prepared batch gives the same gradient.
        passes: updates over the same data; call ``token_losses`` with ``pass_index`` 0 ... passes - 1.
        aggregation: how ``aggregate`` divides.
        generator: ``token_losses`` needs a ``torch.Generator``, seeded by the caller for every call.
        shaped_reward: ``shape_rewards`` needs the old entropies and the end of the thinking part.
    """

    reference: bool
    old_entropy: bool
    current_entropy: bool
    statistic: Statistic
    passes: int
    aggregation: Aggregation
    generator: bool
    shaped_reward: bool


def needs(config: ObjectiveConfig) -> Needs:
    """What the loop has to compute for this config."""
    ranks_by = config.entropy_from if isinstance(config, EntropyPool) else None
    return Needs(
        reference=_largest_kl_weight(config) > 0,
        old_entropy=ranks_by == "old" or isinstance(config, SteerConfig | PearConfig),
        current_entropy=ranks_by == "current"
        or isinstance(config, EntropyAdvantageConfig | HapoConfig | HapoReleasedConfig),
        statistic=_statistic(config),
        passes=_passes(config),
        aggregation=config.aggregation,
        generator=isinstance(config, ClipCovConfig),
        shaped_reward=isinstance(config, PearConfig),
    )


def _largest_kl_weight(config: ObjectiveConfig) -> float:
    match config:
        case DualToken():
            return max(config.beta_r, config.beta_k)
        case ArcherKConfig():
            return max(config.beta)
        case UniformKL():
            return config.beta
        case _:
            return 0.0


def _passes(config: ObjectiveConfig) -> int:
    return 2 if isinstance(config, ArLoptiConfig) and config.eta is not None else 1


def _statistic(config: ObjectiveConfig) -> Statistic:
    match config:
        case ClipCovConfig() | KLCovConfig() | HapoConfig() | HapoReleasedConfig() | SteerConfig():
            return "micro-batch"
        case GspoConfig():
            return "response"
        case EntropyPool():
            if config.entropy_from == "old":
                return config.scope
            own_means = config.aggregation == "token-mean" and None in _parts(config).values()
            return "micro-batch" if own_means or config.scope != "response" else "response"
        case _:
            return "token"


def prepare(batch: TokenBatch, config: ObjectiveConfig) -> TokenBatch:
    """Fill in what comes from old-policy statistics. Call once on all rows of a step or rollout batch.

    Any later split into micro-batches then gives the same gradient. A method without such statistics gives
    the batch back unchanged.

    Raises:
        TensorError: when a tensor that the method needs is missing or does not fit.
    """
    check(batch)
    if not isinstance(config, EntropyPool) or config.entropy_from != "old":
        return batch
    if isinstance(config, ArcherSoftConfig | ArcherKConfig):
        return replace(batch, grade_BT=compute_grades(batch, config))
    assert isinstance(config, Roles)
    return replace(batch, reasoning_BT=compute_roles(batch, config))


def token_losses(
    batch: TokenBatch,
    config: ObjectiveConfig,
    *,
    pass_index: int = 0,
    generator: torch.Generator | None = None,
) -> LossTerms:
    """Undivided per-token losses and metrics of a prepared batch, or of any of its rows.

    Pure: no state, no randomness but the generator's, no host synchronisation beyond what group scope needs.

    Args:
        pass_index: which of the method's updates over the same data (``needs(config).passes``).
        generator: for the methods that draw tokens at random.

    Raises:
        TensorError: when a tensor that the method needs is missing or does not fit.
    """
    if not 0 <= pass_index < _passes(config):
        raise TensorError(
            f"expected 0 <= pass_index < {_passes(config)} for {config.method!r}, got {pass_index}"
        )
    batch = clean(batch)
    match config:
        case ArcherConfig():
            return archer(batch, config)
        case ArcherReleasedConfig():
            return archer_released(batch, config)
        case ArcherSoftConfig():
            return archer_soft(batch, config)
        case ArcherKConfig():
            return archer_k(batch, config)
        case GrpoConfig() | DapoConfig() | DrGrpoConfig() | PearConfig():
            return clipped_policy(batch, config)
        case GspoConfig():
            return gspo(batch, config)
        case CispoConfig():
            return cispo(batch, config)
        case GppoConfig() | CeGppoConfig():
            return gppo(batch, config)
        case EightyTwentyConfig():
            return eighty_twenty(batch, config)
        case ArLoptiConfig():
            return ar_lopti(batch, config, pass_index)
        case ClipCovConfig():
            return clip_cov(batch, config, generator)
        case KLCovConfig():
            return kl_cov(batch, config)
        case EntropyAdvantageConfig():
            return entropy_advantage(batch, config)
        case AspoConfig():
            return aspo(batch, config)
        case AspoReleasedConfig():
            return aspo_released(batch, config)
        case HapoConfig() | HapoReleasedConfig():
            return hapo(batch, config)
        case SteerConfig():
            return steer(batch, config)
        case EspoConfig():
            return espo(batch, config)
        case _:
            assert_never(config)


Selection = Literal["all", "reasoning", "knowledge"]


def _parts(config: ObjectiveConfig) -> dict[str, Selection | None]:
    """The tokens of each part of the loss; None where its number is known only after the forward."""
    parts: dict[str, Selection | None]
    match config:
        case ArcherReleasedConfig():
            parts = {"policy": "all", "kl_reasoning": "reasoning", "kl_knowledge": "knowledge"}
            # as in the released code, each micro-batch divides by its own tokens, the policy part included
            return parts if config.entropy_from == "old" else dict.fromkeys(parts)
        case EightyTwentyConfig() if config.denominator == "selected":
            return {"policy": "reasoning" if config.entropy_from == "old" else None}
        case EspoConfig():
            return {"policy": "reasoning", "policy_knowledge": "knowledge"}
        case _:
            return {"policy": "all"}


def count(batch: TokenBatch, config: ObjectiveConfig, *, pass_index: int = 0) -> Counts:
    """Denominators of a whole optimiser step, for ``aggregate``. Needs no forward pass.

    A part whose tokens are chosen by the current policy has no count before the forward; see ``Counts``. All
    passes of a method divide by the same counts.

    Raises:
        TensorError: when the roles that ``prepare`` fills in are missing.
    """
    check(batch)
    tokens = {name: _selected(batch, selection) for name, selection in _parts(config).items()}
    return Counts(tokens, response_count(batch.mask_BT))


def _selected(batch: TokenBatch, selection: Selection | None) -> Tensor | None:
    if selection is None:
        return None
    if selection == "all":
        return batch.mask_BT.sum()
    reasoning = require(batch.reasoning_BT, "reasoning_BT", "call prepare on the whole step")
    return (batch.mask_BT & (reasoning if selection == "reasoning" else ~reasoning)).sum()
