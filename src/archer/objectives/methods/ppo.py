"""Methods with one clip range for every token: GRPO and DAPO."""

from __future__ import annotations

from archer.configs.objective import Clipped
from archer.objectives.aggregation import loss_terms
from archer.objectives.metrics import token_metrics
from archer.objectives.penalties import reference_kl
from archer.objectives.ratios import importance_ratio
from archer.objectives.surrogates import clipped_surrogate
from archer.types import LossTerms, TokenBatch


def clipped_policy(batch: TokenBatch, config: Clipped) -> LossTerms:
    """max(-A r, -A clip(r, 1 - eps_low, 1 + eps_high)) + beta KL.

    GRPO (2402.03300 Eq. 3) and DAPO (2503.14476 Eq. 8) differ in ranges, aggregation and KL weight only.
    """
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    kl = reference_kl(batch, config, config.beta)
    loss = clipped_surrogate(ratio, batch.advantage_BT, config.eps_low, config.eps_high, config.dual_clip)
    if kl is not None:
        loss = loss + config.beta * kl
    metrics = token_metrics(batch, ratio, eps_low=config.eps_low, eps_high=config.eps_high, kl_BT=kl)
    return loss_terms(batch, loss, metrics)
