"""DAPO's helpers on rewards and groups (2503.14476), usable with every method."""

from __future__ import annotations

import torch
from torch import Tensor

from archer.errors import TensorError
from archer.objectives.advantages import check_rewards, group_spread


def overlong_penalty(
    length_B: Tensor, *, limit: int, buffer: int, factor: float = 1.0, floor: bool = True
) -> Tensor:
    """Soft penalty on the last ``buffer`` tokens before the length limit, to be added to the reward (Eq. 13).

    0 up to ``limit - buffer`` tokens, then falling by a straight line to ``-factor`` at ``limit``. Longer
    responses get ``-factor`` as in the paper, or less without ``floor``, as in verl. float32 ``[B]``. Shaped
    rewards enter the group statistics, so a group that is all wrong can then have advantages.

    Raises:
        TensorError: unless 0 < buffer <= limit.
    """
    if not 0 < buffer <= limit:
        raise TensorError(f"expected 0 < buffer <= limit, got buffer={buffer} and limit={limit}")
    excess = (length_B - (limit - buffer)).clamp(min=0).double() / buffer
    return (-factor * (excess.clamp(max=1) if floor else excess)).float()


def overlong_filter(mask_BT: Tensor, truncated_B: Tensor) -> Tensor:
    """The mask without responses that the length limit cut off; they then count in no denominator."""
    return mask_BT & ~truncated_B[:, None]


def mixed_groups(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """True at the rows that dynamic sampling keeps: those of groups with different scorable rewards (Eq. 8).

    bool ``[B]``. Give the rewards before any shaping. NaN and infinite rewards are unscorable and ignored, so
    a group with fewer than two scorable rewards is not mixed.

    Raises:
        TensorError: when shapes or dtypes do not fit.
    """
    check_rewards(reward_B, group_B)
    reward = reward_B.double()
    scorable = reward.isfinite()
    ids, index = torch.unique(group_B, return_inverse=True)
    return group_spread(torch.where(scorable, reward, 0.0), scorable, index, ids.numel()) > 0
