"""When another program sampled: how far its probabilities are from the trainer's, and a correction for it.

The engine and the trainer hold the same weights and still give other probabilities, because kernels and number
formats differ. Tokens then come from pi_engine while the loss takes them for samples of pi_old.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from archer.objectives.ratios import importance_ratio, kl_estimate


def truncated_importance(
    old_logp_BT: Tensor, engine_logp_BT: Tensor, mask_BT: Tensor, limit: float
) -> Tensor:
    """min(pi_old / pi_engine, limit) of each sampled token, 1 outside the mask; a constant.

    Truncated importance sampling (Ionides 2008; for engine and trainer: Yao et al. 2025, "Your Efficient RL
    Framework Secretly Brings You Off-Policy RL Training"). With ``limit`` infinite the expectation over tokens is
    that of pi_old; the limit bounds the variance and leaves a bias where pi_engine is too small.

    Args:
        old_logp_BT: log-probability in nats by the trainer, with the weights that sampled.
        engine_logp_BT: the same by the engine.
        mask_BT: bool, trained tokens.
        limit: above 0.
    """
    weight_BT = importance_ratio(old_logp_BT.detach(), engine_logp_BT.detach()).clamp(max=limit)
    return torch.where(mask_BT, weight_BT, 1.0)


def engine_gap(
    old_logp_BT: Tensor, engine_logp_BT: Tensor, mask_BT: Tensor, limit: float | None = None
) -> Mapping[str, tuple[Tensor, Tensor]]:
    """How far the engine's probabilities are from the trainer's, as (sum, count) over the trained tokens.

    Returns:
        ``engine/logp_gap``: mean abs(log pi_old - log pi_engine) in nats. ``engine/ratio_max``: largest
        pi_old / pi_engine. ``engine/kl``: KL(pi_engine || pi_old) in nats, the k3 estimate on the engine's own
        samples. ``engine/truncated_share``: share of tokens whose weight ``limit`` cuts.
    """
    old, engine = old_logp_BT[mask_BT], engine_logp_BT[mask_BT]
    count = mask_BT.sum()
    ratio = importance_ratio(old, engine)
    largest = ratio.max() if len(ratio) else ratio.new_ones(())
    metrics = {
        "engine/logp_gap": ((old - engine).abs().sum(), count),
        "engine/ratio_max": (largest, count),
        "engine/kl": (kl_estimate(engine, old, "k3").sum(), count),
    }
    if limit is not None:
        metrics["engine/truncated_share"] = ((ratio > limit).sum(), count)
    return metrics
