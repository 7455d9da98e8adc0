"""Clip-Cov and KL-Cov: act on the few tokens whose log-probability and advantage covary most (2505.22617)."""

from __future__ import annotations

import torch
from torch import Tensor

from archer.configs.objective import ClipCovConfig, KLCovConfig
from archer.errors import TensorError
from archer.objectives.ratios import importance_ratio, log_ratio
from archer.objectives.surrogates import clipped_surrogate
from archer.objectives.terms import uniform_terms
from archer.types import LossTerms, TokenBatch


def covariance(batch: TokenBatch) -> Tensor:
    """(log pi - mean)(A - mean) of each token, means over the micro-batch's tokens; ``[B, T]``, detached."""
    n = batch.mask_BT.sum().clamp(min=1)
    logp = batch.logp_BT.detach()
    return (logp - logp.sum() / n) * (batch.advantage_BT - batch.advantage_BT.sum() / n)


def largest(score_BT: Tensor, candidate_BT: Tensor, k: Tensor) -> Tensor:
    """True at the ``k`` candidates with the largest scores, at all of them where there are fewer."""
    score = torch.where(candidate_BT, score_BT, -torch.inf).flatten()
    order = score.argsort(descending=True, stable=True)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
    return (place < k).view_as(candidate_BT) & candidate_BT


def quota(mask_BT: Tensor, share: float) -> Tensor:
    """max(int(share * tokens), 1), int64 scalar."""
    return (mask_BT.sum().double() * share).long().clamp(min=1)


def clip_cov(batch: TokenBatch, config: ClipCovConfig, generator: torch.Generator | None) -> LossTerms:
    """The clipped loss without a few tokens, drawn uniformly from those with covariance in the open window.

    max(int(share N), 1) tokens of the micro-batch are drawn, or all candidates where there are fewer. Tokens
    that PPO's clip already stops are no candidates. Dropped tokens have loss 0 and still count in the mean.

    The draw takes one uniform number for each position of the batch from ``generator`` and hands them to the
    trained tokens in row order, so padding does not change it; row order and split do.

    Raises:
        TensorError: without a generator.
    """
    if generator is None:
        raise TensorError(f"expected a torch.Generator, got None: {config.method!r} draws tokens at random")
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    loss = clipped_surrogate(ratio, batch.advantage_BT, config.eps_low, config.eps_high)
    above = (batch.advantage_BT > 0) & (ratio > 1 + config.eps_high)
    below = (batch.advantage_BT < 0) & (ratio < 1 - config.eps_low)
    value = covariance(batch)
    inside = (value > config.window[0]) & (value < config.window[1])
    candidate = batch.mask_BT & inside & ~above & ~below
    mask = batch.mask_BT.flatten()
    uniform = torch.rand(mask.numel(), generator=generator, device=generator.device).to(mask.device)
    drawn = uniform[(mask.cumsum(0) - 1).clamp(min=0)].view_as(candidate)
    dropped = largest(drawn, candidate, quota(batch.mask_BT, config.share))
    return uniform_terms(
        batch, config, loss, ratio, eps_low=config.eps_low, eps_high=config.eps_high, keep_BT=~dropped
    )


def kl_cov(batch: TokenBatch, config: KLCovConfig) -> LossTerms:
    """-A r, plus penalty abs(log r) on the max(int(share N), 1) tokens with the largest covariance.

    The penalty is abs(k1), not a KL, and its gradient is 0 at r = 1. Equal covariances are taken in row
    order.
    """
    log_r = log_ratio(batch.logp_BT, batch.old_logp_BT)
    chosen = largest(covariance(batch), batch.mask_BT, quota(batch.mask_BT, config.share))
    loss = -batch.advantage_BT * log_r.exp() + torch.where(chosen, config.penalty * log_r.abs(), 0.0)
    return uniform_terms(batch, config, loss, log_r.exp())
