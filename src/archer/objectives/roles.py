"""Token roles from entropy: where a token stands among the entropies of its response, group or batch.

A threshold at the rho-quantile with linear interpolation and a token's rank say the same. With n entropies
sorted from 0 to n - 1, the quantile lies at position rho (n - 1), so H >= quantile exactly where the token's
position / (n - 1) >= rho. Ranks are used because they need no interpolation: ties stay ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor

from archer.configs.objective_base import EntropyPool, Role, Roles, Scope
from archer.objectives.advantages import group_sum
from archer.objectives.checks import require
from archer.types import TokenBatch


@dataclass(frozen=True, slots=True)
class Positions:
    """Where each token stands in its sorted pool, counted from 0.

    Attributes:
        first_BT: int64, position of the first entropy that equals the token's.
        last_BT: int64, position of the last one.
        size_BT: int64, number of entropies in the pool.
    """

    first_BT: Tensor
    last_BT: Tensor
    size_BT: Tensor


def pool_positions(
    entropy_BT: Tensor, mask_BT: Tensor, scope: Scope, group_B: Tensor | None = None
) -> Positions:
    """Sort the masked entropies of each pool and find every token in it; masked positions hold no meaning.

    Args:
        entropy_BT: float, nats.
        mask_BT: bool.
        scope: the tokens pooled: the response's (Archer, 2507.15778 Eq. 2), the group's, or all of them.
        group_B: int64 ``[B]``, for scope ``"group"``.

    Raises:
        TensorError: when the scope is ``"group"`` without group ids.
    """
    value = torch.where(mask_BT, entropy_BT.detach(), torch.inf)
    match scope:
        case "response":
            return Positions(*_positions_in_rows(value, mask_BT))
        case "batch":
            found = _positions_in_rows(value.reshape(1, -1), mask_BT.reshape(1, -1))
            return Positions(*(x.view_as(mask_BT) for x in found))
        case "group":
            groups = require(group_B, "group_B", "roles pool the tokens of a group")
            pooled = [torch.zeros(mask_BT.shape, dtype=torch.int64, device=mask_BT.device) for _ in range(3)]
            for group in torch.unique(groups):
                rows = groups == group
                found = _positions_in_rows(value[rows].reshape(1, -1), mask_BT[rows].reshape(1, -1))
                for whole, part in zip(pooled, found, strict=True):
                    whole[rows] = part.view_as(mask_BT[rows])
            return Positions(*pooled)
        case _:
            assert_never(scope)


def _positions_in_rows(value_RN: Tensor, mask_RN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """First and last position of each value among its row's, and the row's size; masked values are inf."""
    ordered = value_RN.sort(dim=1).values
    first = torch.searchsorted(ordered, value_RN)
    last = torch.searchsorted(ordered, value_RN, right=True) - 1
    return first, last, mask_RN.sum(dim=1, keepdim=True).expand_as(first)


def entropy_rank(
    entropy_BT: Tensor, mask_BT: Tensor, scope: Scope, tie: Role, group_B: Tensor | None = None
) -> Tensor:
    """Rank in [0, 1] of each token's entropy among those it is pooled with, float64 ``[B, T]``.

    0 is the smallest of n entropies and 1 the largest, in steps of 1 / (n - 1). Equal entropies share one
    rank: the highest of theirs when ``tie`` is ``"reasoning"``, the lowest when it is ``"knowledge"``. So
    where all are equal, and where n = 1, the rank is 1 or 0 by ``tie``. Masked positions have rank 0.

    Args and errors as ``pool_positions``.
    """
    return torch.where(mask_BT, rank_of(pool_positions(entropy_BT, mask_BT, scope, group_B), tie), 0.0)


def rank_of(positions: Positions, tie: Role) -> Tensor:
    """Ranks from positions, as ``entropy_rank``; masked positions hold no meaning."""
    position = positions.last_BT if tie == "reasoning" else positions.first_BT
    end = positions.size_BT - 1
    return torch.where(end > 0, position.double() / end.clamp(min=1), 1.0 if tie == "reasoning" else 0.0)


def pool_sum(value_BT: Tensor, scope: Scope, group_B: Tensor | None) -> Tensor:
    """Sum over each token's pool, given back to the token, ``[B, T]``. Errors as ``pool_positions``."""
    row_B = value_BT.sum(dim=1)
    if scope == "batch":
        row_B = row_B.sum().expand_as(row_B)
    elif scope == "group":
        groups = require(group_B, "group_B", "roles pool the tokens of a group")
        ids, index = torch.unique(groups, return_inverse=True)
        row_B = group_sum(row_B, index, ids.numel())
    return row_B[:, None].expand_as(value_BT)


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


def pool_entropy(batch: TokenBatch, config: EntropyPool) -> Tensor:
    """The entropies that the config ranks tokens by.

    Raises:
        TensorError: when they are missing.
    """
    if config.entropy_from == "old":
        return require(batch.old_entropy_BT, "old_entropy_BT", "roles come from the old policy's entropy")
    return require(batch.entropy_BT, "entropy_BT", "roles come from the current policy's entropy")


def roles_of(batch: TokenBatch, config: Roles) -> Tensor:
    """Roles that ``prepare`` filled in, or those of the current policy where the config asks for them.

    Roles of the current policy are computed from the rows at hand, so scopes other than ``response`` then
    mean the micro-batch.

    Raises:
        TensorError: when the source is missing.
    """
    if config.entropy_from == "old":
        return require(batch.reasoning_BT, "reasoning_BT", "call prepare on the whole step") & batch.mask_BT
    return compute_roles(batch, config)


def compute_roles(batch: TokenBatch, config: Roles) -> Tensor:
    """Roles over the rows at hand, from the entropies that the config names; bool ``[B, T]``."""
    return reasoning_roles(
        pool_entropy(batch, config),
        batch.mask_BT,
        rho=config.rho,
        scope=config.scope,
        tie=config.tie,
        group_B=batch.group_B,
    )
