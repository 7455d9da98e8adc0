"""Methods that scale losses, advantages or ranges by entropy over the micro-batch: HAPO and STEER."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from archer.configs.objective import HapoConfig, HapoReleasedConfig, SteerConfig
from archer.objectives.checks import require
from archer.objectives.ratios import importance_ratio
from archer.objectives.surrogates import clipped_surrogate
from archer.objectives.terms import uniform_terms
from archer.types import LossTerms, TokenBatch

SMALLEST_ENTROPY = 1e-8
"""Entropies are raised to this many nats before the logarithm: a certain token has log entropy -18.4."""
SMALLEST_CHANGE = 0.02
"""STEER's scale is at least this, as in the released code."""


def entropy_scores(entropy_BT: Tensor, mask_BT: Tensor, quantile: float, *, signed_minimum: bool) -> Tensor:
    """Distance of log H from its nearest ``quantile`` over the micro-batch, scaled to [-1, 1]; ``[B, T]``.

    Positive distances are divided by the largest, negative ones by the size of the smallest. The division by
    a std about the quantile that comes first in the paper cancels. With ``signed_minimum`` negative distances
    are divided by the smallest itself and become positive, as in the released code.
    """
    log_h = torch.where(mask_BT, entropy_BT.clamp(min=SMALLEST_ENTROPY).log(), torch.inf)
    # the appended value lets a batch without tokens have a quantile
    ordered = torch.cat((log_h.flatten(), log_h.new_full((1,), torch.inf))).sort().values
    position = ((mask_BT.sum() - 1).clamp(min=0).double() * quantile).round().long()
    distance = torch.where(mask_BT, log_h - ordered[position], 0.0)
    with_zero = torch.cat((distance.flatten(), distance.new_zeros(1)))
    smallest, largest = with_zero.min(), with_zero.max()
    negative_scale = smallest if signed_minimum else smallest.abs()
    negative = distance / torch.where(smallest < 0, negative_scale, 1.0)
    return torch.where(distance > 0, distance / torch.where(largest > 0, largest, 1.0), negative)


def hapo(batch: TokenBatch, config: HapoConfig | HapoReleasedConfig) -> LossTerms:
    """The clipped loss with advantages and ranges by entropy score h (2509.16591).

    For h > 0 the upper range is eps_high (1 + h), for h <= 0 the lower one is eps_low (1 - h). With these, a
    token is near the old policy when its ratio lies within half the range on both sides. The advantage is
    A (1 + h) for a token with h > 0 that is not near and for one with h <= 0 that is, else A.

    Raises:
        TensorError: without the current policy's entropy.
    """
    entropy = require(batch.entropy_BT, "entropy_BT", "scores come from the current policy's entropy")
    score = entropy_scores(
        entropy, batch.mask_BT, config.quantile, signed_minimum=isinstance(config, HapoReleasedConfig)
    )
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    eps_low = config.eps_low * (1 - score.clamp(max=0))
    eps_high = config.eps_high * (1 + score.clamp(min=0))
    near = (ratio >= 1 - eps_low / 2) & (ratio <= 1 + eps_high / 2)
    scaled = torch.where(score > 0, ~near, near)
    advantage = torch.where(scaled, batch.advantage_BT * (1 + score), batch.advantage_BT)
    loss = clipped_surrogate(ratio, advantage, eps_low, eps_high, config.dual_clip)
    return uniform_terms(batch, config, loss, ratio, eps_low=eps_low, eps_high=eps_high)


def steer(batch: TokenBatch, config: SteerConfig) -> LossTerms:
    """The clipped loss times exp(-k abs(change)) with the token's estimated entropy change (2510.10150).

    change = A r (1 - pi)(log pi + H) with the sampling policy's entropy H; k makes the weight of the largest
    change in the micro-batch lambda_min. The weight is a constant in the gradient.

    Raises:
        TensorError: without the old policy's entropy.
    """
    entropy = require(batch.old_entropy_BT, "old_entropy_BT", "weights use the sampling policy's entropy")
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    logp = batch.logp_BT.detach()
    change = (batch.advantage_BT * ratio.detach() * (1 - logp.exp()) * (logp + entropy)).abs()
    change = torch.where(batch.mask_BT, change, 0.0)
    largest = torch.cat((change.flatten(), change.new_zeros(1))).max()
    k = -math.log(config.lambda_min) / largest.clamp(min=SMALLEST_CHANGE)
    weight = torch.exp(-k * change).clamp(config.lambda_min, 1.0)
    loss = weight * clipped_surrogate(
        ratio, batch.advantage_BT, config.eps_low, config.eps_high, config.dual_clip
    )
    return uniform_terms(batch, config, loss, ratio, eps_low=config.eps_low, eps_high=config.eps_high)
