"""Metrics as (sum, count) pairs, which reduce over micro-batches by addition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from archer.types import TokenBatch

Metric = tuple[Tensor, Tensor]


def share(value_BT: Tensor, mask_BT: Tensor) -> Metric:
    """Sum of a bool or float quantity over the masked tokens, and their number; float64 scalars."""
    value = torch.where(mask_BT, value_BT.detach().double(), 0.0)
    return value.sum(), mask_BT.sum().double()


def _extreme(value_BT: Tensor, mask_BT: Tensor, sign: float) -> Metric:
    # The appended -inf is the neutral element, so that a batch without tokens has a value too.
    value = torch.where(mask_BT, sign * value_BT.detach().double(), -torch.inf).flatten()
    return sign * torch.cat((value, value.new_full((1,), -torch.inf))).amax(), mask_BT.sum().double()


@dataclass(frozen=True, slots=True)
class TokenReport:
    """What a method tells about its tokens.

    Attributes:
        metrics: see ``token_report``.
        clip_BT: int8, -1 where the ratio lies below its clip range, 1 above, 0 inside; None for methods that
            have no range.
    """

    metrics: Mapping[str, Metric]
    clip_BT: Tensor | None


def token_report(
    batch: TokenBatch,
    ratio_BT: Tensor,
    *,
    eps_low: float | Tensor | None = None,
    eps_high: float | Tensor | None = None,
    kl_BT: Tensor | None = None,
    reasoning_BT: Tensor | None = None,
) -> TokenReport:
    """What every method reports of its trained tokens.

    ``ratio/mean``, ``ratio/value_max``, ``ratio/value_min`` (infinite for a batch without tokens);
    ``clip/above`` and ``clip/below``, the shares of tokens whose ratio lies outside the clip range, whatever
    the sign of their advantage; ``kl/mean``; ``entropy/mean`` of the old policy, or of the current one where
    only that is known. With roles, clip shares, KL and entropy are reported by role as well, and
    ``role/reasoning_share`` is added.
    """
    mask = batch.mask_BT
    metrics = {
        "ratio/mean": share(ratio_BT, mask),
        "ratio/value_max": _extreme(ratio_BT, mask, 1.0),
        "ratio/value_min": _extreme(ratio_BT, mask, -1.0),
    }
    entropy = batch.old_entropy_BT if batch.old_entropy_BT is not None else batch.entropy_BT
    for name, value in (("kl", kl_BT), ("entropy", entropy)):
        if value is not None:
            metrics[f"{name}/mean"] = share(value, mask)
    if reasoning_BT is not None:
        metrics["role/reasoning_share"] = share(reasoning_BT, mask)
    above = None if eps_high is None else ratio_BT.detach() > 1 + eps_high
    below = None if eps_low is None else ratio_BT.detach() < 1 - eps_low
    for suffix, role in _by_role(mask, reasoning_BT).items():
        for name, outside in (("above", above), ("below", below)):
            if outside is not None:
                metrics[f"clip/{name}{suffix}"] = share(outside, role)
        for name, value in (("kl", kl_BT), ("entropy", entropy)):
            if value is not None and suffix:
                metrics[f"{name}/{suffix.removeprefix('_')}"] = share(value, role)
    return TokenReport(metrics, _clip_state(above, below, mask))


def _clip_state(above_BT: Tensor | None, below_BT: Tensor | None, mask_BT: Tensor) -> Tensor | None:
    if above_BT is None and below_BT is None:
        return None
    state = torch.zeros_like(mask_BT, dtype=torch.int8)
    for outside, sign in ((above_BT, 1), (below_BT, -1)):
        if outside is not None:
            state = torch.where(outside & mask_BT, sign, state)
    return state.to(torch.int8)


def _by_role(mask_BT: Tensor, reasoning_BT: Tensor | None) -> Mapping[str, Tensor]:
    if reasoning_BT is None:
        return {"": mask_BT}
    return {"_reasoning": mask_BT & reasoning_BT, "_knowledge": mask_BT & ~reasoning_BT}
