"""Methods that bound a clipped token's gradient instead of dropping it: CISPO, GPPO, CE-GPPO, ASPO."""

from __future__ import annotations

import torch
from torch import Tensor

from archer.configs.objective import (
    AspoConfig,
    AspoReleasedConfig,
    CeGppoConfig,
    CispoConfig,
    GppoConfig,
)
from archer.objectives.ratios import importance_ratio
from archer.objectives.roles import by_role, roles_of
from archer.objectives.terms import uniform_terms
from archer.types import LossTerms, TokenBatch


def cispo(batch: TokenBatch, config: CispoConfig) -> LossTerms:
    """-clip(r, 1 - eps_low, 1 + eps_high) A log pi, the weight a constant (2506.13585).

    The value depends on log pi and means little; the gradient is -A times the weight.
    """
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    low = 0.0 if config.eps_low is None else 1 - config.eps_low
    weight = ratio.detach().clamp(low, 1 + config.eps_high)
    loss = -weight * batch.advantage_BT * batch.logp_BT
    return uniform_terms(batch, config, loss, ratio, eps_low=config.eps_low, eps_high=config.eps_high)


def gppo(batch: TokenBatch, config: GppoConfig | CeGppoConfig) -> LossTerms:
    """-A r within the range; outside, a constant weight times the score function (2509.20712 v5 Eq. 8).

    For A < 0 and r < 1 - eps_low the weight is beta_1 (1 - eps_low), for A > 0 and r > 1 + eps_high it is
    beta_2 (1 + eps_high). GPPO (2508.07629) has both betas 1. The gradient with respect to log pi is -A times
    the weight, where PPO has 0. With betas 0 the gradient is PPO's, though not the value.
    """
    beta_1, beta_2 = (1.0, 1.0) if isinstance(config, GppoConfig) else (config.beta_1, config.beta_2)
    advantage = batch.advantage_BT
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    unit = torch.exp(batch.logp_BT - batch.logp_BT.detach())
    low, high = 1 - config.eps_low, 1 + config.eps_high
    weight = torch.where((advantage < 0) & (ratio < low), beta_1 * low * unit, ratio)
    weight = torch.where((advantage > 0) & (ratio > high), beta_2 * high * unit, weight)
    if config.dual_clip is not None:
        weight = torch.where((advantage < 0) & (ratio > config.dual_clip), config.dual_clip, weight)
    loss = -advantage * weight
    return uniform_terms(batch, config, loss, ratio, eps_low=config.eps_low, eps_high=config.eps_high)


def aspo(batch: TokenBatch, config: AspoConfig) -> LossTerms:
    """The asymmetric loss of ``aspo_surrogate`` with one clip range (2510.06062 v2)."""
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    loss = aspo_surrogate(batch, ratio, config.eps_low, config.eps_high, config.soft_dual_clip)
    return uniform_terms(batch, config, loss, ratio, eps_low=config.eps_low, eps_high=config.eps_high)


def aspo_released(batch: TokenBatch, config: AspoReleasedConfig) -> LossTerms:
    """``aspo_surrogate`` with clip ranges by entropy role, as the released Archer2.0 code sets them."""
    reasoning = roles_of(batch, config)
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    eps = by_role(reasoning, config.eps_r, config.eps_k, ratio.dtype)
    loss = aspo_surrogate(batch, ratio, eps, eps, config.soft_dual_clip)
    return uniform_terms(batch, config, loss, ratio, eps_low=eps, eps_high=eps, reasoning_BT=reasoning)


def aspo_surrogate(
    batch: TokenBatch, ratio_BT: Tensor, eps_low: float | Tensor, eps_high: float | Tensor, bound: float
) -> Tensor:
    """PPO's mask, with the weight 1 / r in place of r for A > 0, per token (2510.06062 v2).

    - A > 0: value -A / min(r, 1 + eps_high), gradient -A / r with respect to log pi, 0 for r > 1 + eps_high.
    - A < 0: as PPO.
    - Where the weight exceeds ``bound`` c: -A c log pi, so the gradient stays -A c. The value jumps there.
    """
    advantage, logp = batch.advantage_BT, batch.logp_BT
    upper = torch.where(ratio_BT > 1 + eps_high, 1 + eps_high, ratio_BT)
    lower = torch.where(ratio_BT < 1 - eps_low, 1 - eps_low, ratio_BT)
    inside = (ratio_BT <= 1 + eps_high).to(logp.dtype)
    inverse = (1 / upper).detach() * torch.exp(inside * (logp - logp.detach()))
    weight = torch.where(advantage > 0, inverse, lower)
    return -advantage * torch.where(weight > bound, bound * logp, weight)
