"""Group-relative advantages."""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor

from archer.configs.objective_base import AdvantageConfig
from archer.errors import TensorError


def group_advantages(
    reward_B: Tensor, group_B: Tensor, config: AdvantageConfig, *, length_B: Tensor | None = None
) -> Tensor:
    """Advantage of each response within its group, float32 ``[B]``.

    Groups are found by id, so the order of rows does not matter. A reward that is NaN or infinite is
    unscorable: its advantage is 0 and it takes no part in its group's statistics. A group whose scorable
    rewards are all equal has advantage exactly 0. The statistics are computed in float64 from deviations
    (two passes), so they stay right for rewards that differ little.

    - ``std``: (R - mean) / (std + epsilon), with divisor n - ddof (GRPO, 2402.03300 section 4.1.2).
    - ``mean-only``: R - mean (Dr.GRPO, 2503.20783).
    - ``leave-one-out``: R - mean of the others (RLOO, 2402.14740), which needs no std and so stays bounded by
      the range of the rewards.

    Args:
        reward_B: float ``[B]``.
        group_B: int64 ``[B]``, any ids.
        length_B: int64 ``[B]``, trained tokens of each response; needed for weighting by token only.

    Raises:
        TensorError: when shapes or dtypes do not fit, or the lengths are missing.
    """
    check_rewards(reward_B, group_B)
    reward = reward_B.detach().double()
    scorable = reward.isfinite()
    reward = torch.where(scorable, reward, 0.0)
    ids, index = torch.unique(group_B, return_inverse=True)
    groups = ids.numel()
    if config.weighting == "token":
        if length_B is None or length_B.shape != reward_B.shape:
            found = None if length_B is None else list(length_B.shape)
            raise TensorError(f"expected length_B of shape {list(reward_B.shape)}, got {found}")
        advantage = _normalise(reward, scorable * length_B, index, groups, config)
        if config.fallback_limit is not None:
            by_response = _normalise(reward, scorable, index, groups, config.model_copy(update={"ddof": 1}))
            extreme = group_sum((advantage.abs() >= config.fallback_limit).double(), index, groups) > 0
            advantage = torch.where(extreme, by_response, advantage)
    else:
        advantage = _normalise(reward, scorable, index, groups, config)
    # A mean of equal rewards may differ from them by a rounding error, which a small std would blow up.
    advantage = torch.where(group_spread(reward, scorable, index, groups) > 0, advantage, 0.0)
    if config.singleton == "reward":
        alone = scorable & (group_sum(scorable.double(), index, groups) == 1)
        advantage = torch.where(alone, reward / (1 + config.epsilon), advantage)
    return advantage.float()


def _normalise(
    reward_B: Tensor, weight_B: Tensor, index_B: Tensor, groups: int, config: AdvantageConfig
) -> Tensor:
    """Advantages from the weighted statistics of each group; 0 where the weight is 0."""
    weight = weight_B.double()
    n = group_sum(weight, index_B, groups)
    mean = group_sum(weight * reward_B, index_B, groups) / n.clamp(min=1)
    deviation = torch.where(weight > 0, reward_B - mean, 0.0)
    match config.normalisation:
        case "std":
            square_sum = group_sum(weight * deviation.square(), index_B, groups)
            return deviation / ((square_sum / (n - config.ddof).clamp(min=1)).sqrt() + config.epsilon)
        case "mean-only":
            return deviation
        case "leave-one-out":
            return deviation * n / (n - 1).clamp(min=1)
        case _:
            assert_never(config.normalisation)


def group_sum(x_B: Tensor, index_B: Tensor, groups: int) -> Tensor:
    """Sum over each response's group, given back to the response, ``[B]``."""
    return x_B.new_zeros(groups).index_add(0, index_B, x_B)[index_B]


def group_spread(reward_B: Tensor, scorable_B: Tensor, index_B: Tensor, groups: int) -> Tensor:
    """Largest minus smallest scorable reward of each response's group, ``[B]``; -inf where there is none."""
    low = torch.full_like(reward_B[:1].expand(groups), torch.inf)
    high = torch.full_like(low, -torch.inf)
    low = low.scatter_reduce(0, index_B, torch.where(scorable_B, reward_B, torch.inf), "amin")
    high = high.scatter_reduce(0, index_B, torch.where(scorable_B, reward_B, -torch.inf), "amax")
    return (high - low)[index_B]


def check_rewards(reward_B: Tensor, group_B: Tensor) -> None:
    """Check shapes and dtypes; ``TensorError`` where they do not fit."""
    if reward_B.ndim != 1 or not reward_B.is_floating_point():
        raise TensorError(
            "expected reward_B of shape [B] and a floating dtype, "
            f"got {list(reward_B.shape)} {reward_B.dtype}"
        )
    if group_B.shape != reward_B.shape or group_B.dtype != torch.int64:
        raise TensorError(
            f"expected group_B of shape {list(reward_B.shape)} and dtype torch.int64, "
            f"got {list(group_B.shape)} {group_B.dtype}"
        )
