"""What a config needs, and the one match that runs its method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, assert_never

from archer.configs.objective import (
    Aggregation,
    ArcherConfig,
    ArcherReleasedConfig,
    DapoConfig,
    DualToken,
    GrpoConfig,
    ObjectiveConfig,
    Roles,
    UniformKL,
)
from archer.objectives.aggregation import Counts, response_count
from archer.objectives.checks import check, clean, require
from archer.objectives.methods.archer import archer, archer_released
from archer.objectives.methods.ppo import clipped_policy
from archer.objectives.roles import reasoning_roles
from archer.types import LossTerms, TokenBatch

Statistic = Literal["token", "response", "group", "micro-batch", "batch"]


@dataclass(frozen=True, slots=True)
class Needs:
    """What the caller has to compute for a method.

    Attributes:
        reference: ``ref_logp_BT`` is needed.
        old_entropy: ``old_entropy_BT`` is needed by ``prepare``.
        current_entropy: ``entropy_BT`` is needed in every forward.
        statistic: the widest set of tokens that a token's loss depends on. For all but ``"micro-batch"`` any
            split of a prepared batch gives the same gradient.
        passes: updates over the same data; call ``token_losses`` with ``pass_index`` 0 ... passes - 1.
        aggregation: how ``aggregate`` divides.
    """

    reference: bool
    old_entropy: bool
    current_entropy: bool
    statistic: Statistic
    passes: int
    aggregation: Aggregation


def needs(config: ObjectiveConfig) -> Needs:
    """What the loop has to compute for this config."""
    old_roles = isinstance(config, Roles) and config.entropy_from == "old"
    current_roles = isinstance(config, Roles) and config.entropy_from == "current"
    return Needs(
        reference=_kl_weight(config) > 0,
        old_entropy=old_roles,
        current_entropy=current_roles,
        statistic=_statistic(config),
        passes=1,
        aggregation=config.aggregation,
    )


def _kl_weight(config: ObjectiveConfig) -> float:
    if isinstance(config, DualToken):
        return max(config.beta_r, config.beta_k)
    return config.beta if isinstance(config, UniformKL) else 0.0


def _statistic(config: ObjectiveConfig) -> Statistic:
    if not isinstance(config, Roles):
        return "token"
    if config.entropy_from == "old":
        return config.scope
    # the released code divides by the tokens of the micro-batch
    own_means = isinstance(config, ArcherReleasedConfig) and config.aggregation == "token-mean"
    return "micro-batch" if own_means or config.scope != "response" else "response"


def prepare(batch: TokenBatch, config: ObjectiveConfig) -> TokenBatch:
    """Fill in what comes from old-policy statistics. Call once on all rows of a step or rollout batch.

    Any later split into micro-batches then gives the same gradient. A method without such statistics gives
    the batch back unchanged.

    Raises:
        TensorError: when a tensor that the method needs is missing or does not fit.
    """
    check(batch)
    if isinstance(config, Roles) and config.entropy_from == "old":
        entropy = require(batch.old_entropy_BT, "old_entropy_BT", "roles come from the old policy's entropy")
        roles = reasoning_roles(
            entropy,
            batch.mask_BT,
            rho=config.rho,
            scope=config.scope,
            tie=config.tie,
            group_B=batch.group_B,
        )
        return replace(batch, reasoning_BT=roles)
    return batch


def token_losses(batch: TokenBatch, config: ObjectiveConfig, *, pass_index: int = 0) -> LossTerms:
    """Undivided per-token losses and metrics of a prepared batch, or of any of its rows.

    Pure: no state, no randomness, no host synchronisation beyond what group scope needs.

    Raises:
        TensorError: when a tensor that the method needs is missing or does not fit.
    """
    batch = clean(batch)
    match config:
        case ArcherConfig():
            return archer(batch, config)
        case ArcherReleasedConfig():
            return archer_released(batch, config)
        case GrpoConfig() | DapoConfig():
            return clipped_policy(batch, config)
        case _:
            assert_never(config)


def count(batch: TokenBatch, config: ObjectiveConfig, *, pass_index: int = 0) -> Counts:
    """Denominators of a whole optimiser step, for ``aggregate``. Needs no forward pass.

    A part whose tokens are chosen by the current policy has no count before the forward; see ``Counts``.
    """
    check(batch)
    tokens = batch.mask_BT.sum()
    responses = response_count(batch.mask_BT)
    if not isinstance(config, ArcherReleasedConfig):
        return Counts({"policy": tokens}, responses)
    if config.entropy_from == "current":
        # as the released code, each micro-batch divides by its own tokens, the policy part included
        return Counts(dict.fromkeys(("policy", "kl_reasoning", "kl_knowledge")), responses)
    reasoning = require(batch.reasoning_BT, "reasoning_BT", "call prepare on the whole step first")
    by_role = {
        "kl_reasoning": (batch.mask_BT & reasoning).sum(),
        "kl_knowledge": (batch.mask_BT & ~reasoning).sum(),
    }
    return Counts({"policy": tokens, **by_role}, responses)
