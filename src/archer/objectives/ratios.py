"""Importance ratios and estimators of the KL to the reference policy."""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor

from archer.configs.objective_base import KLEstimator

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to +-20 nats before ``exp``, as in verl and the code of Archer."""


def log_ratio(logp_BT: Tensor, old_logp_BT: Tensor) -> Tensor:
    """logp - old_logp clamped to +-20 nats; the gradient is 0 beyond."""
    return (logp_BT - old_logp_BT).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def importance_ratio(logp_BT: Tensor, old_logp_BT: Tensor) -> Tensor:
    """exp(logp - old_logp), with the difference clamped to +-20 nats; the gradient is 0 beyond.

    Shapes: any, equal. Log-probabilities in nats.
    """
    return log_ratio(logp_BT, old_logp_BT).exp()


def kl_estimate(
    logp_BT: Tensor, ref_logp_BT: Tensor, estimator: KLEstimator, limit: float | None = None
) -> Tensor:
    """Per-token estimate of KL(policy || reference) in nats, with d = logp - ref_logp.

    ``k1`` = d, ``k2`` = d^2 / 2, ``k3`` = exp(-d) + d - 1 (http://joschu.net/blog/kl-approx.html; k3 is
    GRPO's, 2402.03300 Eq. 4). k3 clamps d to +-20 nats before ``exp``, so its gradient is 0 beyond.
    ``limit`` bounds the estimate to [-limit, limit], again with gradient 0 beyond.
    """
    d = logp_BT - ref_logp_BT
    match estimator:
        case "k1":
            kl = d
        case "k2":
            kl = d.square() / 2
        case "k3":
            d = d.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
            # expm1 keeps the precision that exp(-d) - 1 loses where the two policies nearly agree
            kl = torch.expm1(-d) + d
        case _:
            assert_never(estimator)
    return kl if limit is None else kl.clamp(-limit, limit)
