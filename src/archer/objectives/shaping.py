"""Rewards that depend on entropy: PEAR (2510.08026)."""

from __future__ import annotations

import torch
from torch import Tensor

from archer.configs.objective import ObjectiveConfig, PearConfig
from archer.errors import TensorError
from archer.objectives.checks import require


def shape_rewards(
    reward_B: Tensor,
    config: ObjectiveConfig,
    *,
    entropy_BT: Tensor | None = None,
    mask_BT: Tensor | None = None,
    think_end_B: Tensor | None = None,
) -> Tensor:
    """Rewards as the method wants them, before ``group_advantages``; unchanged for all methods but PEAR.

    PEAR gives a right answer (reward 1) min(1, s - max(0, H_think - alpha H_answer)), with the mean entropies
    of the tokens before and after the closing tag of the thinking part. Without a tag all tokens are thinking
    and H_answer is 0. Other responses keep their reward, which is the paper's format reward for them, and an
    unscorable one stays unscorable.

    Args:
        reward_B: float ``[B]``.
        entropy_BT: the sampling policy's entropy in nats, ``[B, T]``.
        mask_BT: bool ``[B, T]``.
        think_end_B: int64 ``[B]``, index of the closing tag's token in its row, which belongs to neither
            part; -1 where there is none.

    Raises:
        TensorError: when PEAR lacks one of these, or its shape does not fit.
    """
    if not isinstance(config, PearConfig):
        return reward_B
    entropy = require(entropy_BT, "entropy_BT", "PEAR shapes rewards by entropy")
    mask = require(mask_BT, "mask_BT", "PEAR shapes rewards by entropy")
    think_end = require(think_end_B, "think_end_B", "PEAR compares thinking and answer")
    if entropy.shape != mask.shape or reward_B.shape != mask.shape[:1] or think_end.shape != reward_B.shape:
        raise TensorError(
            "expected entropy_BT and mask_BT of one shape [B, T], reward_B and think_end_B of shape [B], "
            f"got {[list(x.shape) for x in (entropy, mask, reward_B, think_end)]}"
        )
    position = torch.arange(mask.shape[1], device=mask.device)[None]
    end = torch.where(think_end < 0, mask.shape[1], think_end)[:, None]
    thinking = _mean(entropy, mask & (position < end))
    answer = _mean(entropy, mask & (position > end))
    shaped = (config.ceiling - (thinking - config.alpha * answer).clamp(min=0)).clamp(max=1)
    return torch.where(reward_B >= 1, shaped.to(reward_B.dtype), reward_B)


def _mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    total = torch.where(mask_BT, value_BT.double(), 0.0).sum(dim=1)
    return total / mask_BT.sum(dim=1).clamp(min=1)
