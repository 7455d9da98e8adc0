"""Token roles from entropy: where a token stands among the entropies of its response, group or batch.

A threshold at the rho-quantile with linear interpolation and a token's rank say the same. With n entropies
sorted from 0 to n - 1, the quantile lies at position rho (n - 1), so H >= quantile exactly where the token's
position / (n - 1) >= rho. Ranks are used because they need no interpolation: ties stay ties.
"""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor

from archer.configs.objective import Role, Roles, Scope
from archer.objectives.checks import require
from archer.types import TokenBatch


def entropy_rank(
    entropy_BT: Tensor, mask_BT: Tensor, scope: Scope, tie: Role, group_B: Tensor | None = None
) -> Tensor:
    """Rank in [0, 1] of each token's entropy among those it is pooled with, float64 ``[B, T]``.

    0 is the smallest of n entropies and 1 the largest, in steps of 1 / (n - 1). Equal entropies share one
    rank: the highest of theirs when ``tie`` is ``"reasoning"``, the lowest when it is ``"knowledge"``. So
    where all are equal, and where n = 1, the rank is 1 or 0 by ``tie``. Masked positions have rank 0 and take
    no part.

    Args:
        entropy_BT: float, nats.
        mask_BT: bool.
        scope: the tokens pooled: the response's (Archer, 2507.15778 Eq. 2), the group's, or all of them.
        group_B: int64 ``[B]``, for scope ``"group"``.

    Raises:
        TensorError: when the scope is ``"group"`` without group ids.
    """
    match scope:
        case "response":
            return _rank_rows(entropy_BT, mask_BT, tie)
        case "batch":
            return _rank_rows(entropy_BT.reshape(1, -1), mask_BT.reshape(1, -1), tie).view_as(entropy_BT)
        case "group":
            groups = require(group_B, "group_B", "roles pool the tokens of a group")
            rank = torch.zeros(entropy_BT.shape, dtype=torch.float64, device=entropy_BT.device)
            for group in torch.unique(groups):
                rows = groups == group
                pooled = _rank_rows(entropy_BT[rows].reshape(1, -1), mask_BT[rows].reshape(1, -1), tie)
                rank[rows] = pooled.view(-1, entropy_BT.shape[1])
            return rank
        case _:
            assert_never(scope)


def _rank_rows(value_RN: Tensor, mask_RN: Tensor, tie: Role) -> Tensor:
    value = torch.where(mask_RN, value_RN.detach(), torch.inf)
    ordered = value.sort(dim=1).values
    if tie == "reasoning":
        position = torch.searchsorted(ordered, value, right=True) - 1
        alone = 1.0
    else:
        position = torch.searchsorted(ordered, value)
        alone = 0.0
    last = mask_RN.sum(dim=1, keepdim=True) - 1
    rank = torch.where(last > 0, position.double() / last.clamp(min=1), alone)
    return torch.where(mask_RN, rank, 0.0)


def above(rank_BT: Tensor, rho: float, tie: Role) -> Tensor:
    """True where the entropy reaches its rho-quantile: H >= tau for tie ``"reasoning"``, else H > tau."""
    return rank_BT >= rho if tie == "reasoning" else rank_BT > rho


def reasoning_roles(
    entropy_BT: Tensor,
    mask_BT: Tensor,
    *,
    rho: float,
    scope: Scope = "response",
    tie: Role = "reasoning",
    group_B: Tensor | None = None,
) -> Tensor:
    """True at reasoning tokens: entropy at or above the rho-quantile of its pool (2507.15778 Eq. 2).

    bool ``[B, T]``, False at masked positions. See ``entropy_rank`` for the pools and for ties.
    """
    return above(entropy_rank(entropy_BT, mask_BT, scope, tie, group_B), rho, tie) & mask_BT


def by_role(reasoning_BT: Tensor, reasoning: float, knowledge: float, dtype: torch.dtype) -> Tensor:
    """One of two numbers by role, ``[B, T]`` in ``dtype``."""
    device = reasoning_BT.device
    return torch.where(
        reasoning_BT,
        torch.full((), reasoning, dtype=dtype, device=device),
        torch.full((), knowledge, dtype=dtype, device=device),
    )


def roles_of(batch: TokenBatch, config: Roles) -> Tensor:
    """Roles from the source that the config names: those filled in by ``prepare``, or the current policy's.

    Roles of the current policy are computed from the rows at hand, so scopes other than ``response`` then
    mean the micro-batch.

    Raises:
        TensorError: when the source is missing.
    """
    if config.entropy_from == "old":
        return (
            require(batch.reasoning_BT, "reasoning_BT", "call prepare on the whole step first")
            & batch.mask_BT
        )
    entropy = require(batch.entropy_BT, "entropy_BT", "roles come from the current policy's entropy")
    return reasoning_roles(
        entropy,
        batch.mask_BT,
        rho=config.rho,
        scope=config.scope,
        tie=config.tie,
        group_B=batch.group_B,
    )
