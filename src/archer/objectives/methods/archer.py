"""Archer: clip range and KL weight by token role (2507.15778 v2)."""

from __future__ import annotations

from archer.configs.objective import ArcherConfig, ArcherReleasedConfig
from archer.objectives.metrics import token_report
from archer.objectives.ratios import importance_ratio
from archer.objectives.roles import by_role, roles_of
from archer.objectives.surrogates import clipped_surrogate
from archer.objectives.terms import loss_terms, reference_kl, weighted
from archer.types import LossPart, LossTerms, TokenBatch


def archer(batch: TokenBatch, config: ArcherConfig) -> LossTerms:
    """max(-A r, -A clip(r, 1 - eps, 1 + eps)) + beta KL, with eps and beta by role (Eqs. 3-5).

    All tokens are trained together in one mean. Needs roles (``prepare``, or the current entropy).
    """
    reasoning = roles_of(batch, config)
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    kl = reference_kl(batch, config, config.beta_r, config.beta_k)
    eps = by_role(reasoning, config.eps_r, config.eps_k, ratio.dtype)
    loss = weighted(batch, clipped_surrogate(ratio, batch.advantage_BT, eps, eps, config.dual_clip))
    if kl is not None:
        loss = loss + by_role(reasoning, config.beta_r, config.beta_k, kl.dtype) * kl
    report = token_report(batch, ratio, eps_low=eps, eps_high=eps, kl_BT=kl, reasoning_BT=reasoning)
    return loss_terms(batch, loss, report)


def archer_released(batch: TokenBatch, config: ArcherReleasedConfig) -> LossTerms:
    """Archer as in the authors' released code, where it differs from the paper.

    The KL of each role has its own mean over that role's tokens, so knowledge tokens weigh N / N_knowledge
    times more than in the paper. An unset clip value is taken from the role's other side.
    """
    reasoning = roles_of(batch, config)
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    kl = reference_kl(batch, config, config.beta_r, config.beta_k)
    r_low = config.eps_r if config.eps_r_low is None else config.eps_r_low
    k_high = config.eps_k if config.eps_k_high is None else config.eps_k_high
    low = by_role(reasoning, r_low, config.eps_k, ratio.dtype)
    high = by_role(reasoning, config.eps_r, k_high, ratio.dtype)
    loss = weighted(batch, clipped_surrogate(ratio, batch.advantage_BT, low, high, config.dual_clip))
    report = token_report(batch, ratio, eps_low=low, eps_high=high, kl_BT=kl, reasoning_BT=reasoning)
    if kl is None:
        return loss_terms(batch, loss, report)
    parts = {
        "kl_reasoning": LossPart(config.beta_r * kl, batch.mask_BT & reasoning),
        "kl_knowledge": LossPart(config.beta_k * kl, batch.mask_BT & ~reasoning),
    }
    return loss_terms(batch, loss, report, extra=parts)
