"""Per-token surrogate losses on an importance ratio."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate(
    ratio_BT: Tensor,
    advantage_BT: Tensor,
    eps_low: float | Tensor,
    eps_high: float | Tensor,
    dual_clip: float | None = None,
) -> Tensor:
    """The clipped loss max(-A r, -A clip(r, 1 - eps_low, 1 + eps_high)) of PPO (1707.06347 Eq. 7).

    The ranges may be numbers or tensors of the ratio's shape. The gradient with respect to the ratio is -A,
    or 0 where A > 0 and r > 1 + eps_high, or A < 0 and r < 1 - eps_low. With ``dual_clip`` c, the loss for
    A < 0 is at most -A c and has no gradient where r > c (1912.09729).
    """
    # Limiting the ratio by the sign of A says the same as the maximum, without its halved gradient at ties.
    upper = torch.where(ratio_BT > 1 + eps_high, 1 + eps_high, ratio_BT)
    lower = torch.where(ratio_BT < 1 - eps_low, 1 - eps_low, ratio_BT)
    if dual_clip is not None:
        lower = torch.where(lower > dual_clip, dual_clip, lower)
    return -advantage_BT * torch.where(advantage_BT > 0, upper, lower)
