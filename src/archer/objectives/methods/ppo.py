"""Methods that clip every token's ratio to one range, as PPO does (1707.06347)."""

from __future__ import annotations

import torch

from archer.configs.objective import ArLoptiConfig, EightyTwentyConfig, EntropyAdvantageConfig
from archer.configs.objective_base import Clipped
from archer.objectives.checks import require
from archer.objectives.ratios import importance_ratio
from archer.objectives.roles import roles_of
from archer.objectives.surrogates import clipped_surrogate
from archer.objectives.terms import uniform_terms
from archer.types import LossTerms, TokenBatch


def clipped_policy(batch: TokenBatch, config: Clipped) -> LossTerms:
    """max(-A r, -A clip(r, 1 - eps_low, 1 + eps_high)) + beta KL.

    GRPO (2402.03300 Eq. 3), DAPO (2503.14476 Eq. 8), Dr.GRPO (2503.20783) and PEAR (2510.08026) differ in
    ranges, advantages or rewards, aggregation and KL weight only.
    """
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    loss = clipped_surrogate(ratio, batch.advantage_BT, config.eps_low, config.eps_high, config.dual_clip)
    return uniform_terms(batch, config, loss, ratio, eps_low=config.eps_low, eps_high=config.eps_high)


def eighty_twenty(batch: TokenBatch, config: EightyTwentyConfig) -> LossTerms:
    """The clipped loss of tokens with entropy at or above the threshold (2506.01939 v2 Eq. 6).

    The mean counts the selected tokens, or all of them with ``denominator`` = ``all``.
    """
    selected = roles_of(batch, config)
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    loss = clipped_surrogate(ratio, batch.advantage_BT, config.eps_low, config.eps_high, config.dual_clip)
    return uniform_terms(
        batch,
        config,
        loss,
        ratio,
        eps_low=config.eps_low,
        eps_high=config.eps_high,
        reasoning_BT=selected,
        keep_BT=selected,
        mask_BT=selected if config.denominator == "selected" else None,
    )


def ar_lopti(batch: TokenBatch, config: ArLoptiConfig, pass_index: int) -> LossTerms:
    """AR: advantages times alpha pi + 1 - alpha. Lopti: low probabilities in pass 0, high in pass 1.

    2505.12929. Tokens of the other pass have loss 0, KL included, and both passes divide by all tokens. The
    old probabilities do not change between the passes, so with them each token is trained exactly once.
    """
    source = batch.old_logp_BT if config.probability_from == "old" else batch.logp_BT.detach()
    probability = source.exp()
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    advantage = batch.advantage_BT * (config.alpha * probability + 1 - config.alpha)
    loss = clipped_surrogate(ratio, advantage, config.eps_low, config.eps_high, config.dual_clip)
    keep = None
    if config.eta is not None:
        low = probability <= config.eta if config.tie == "low" else probability < config.eta
        keep = low if pass_index == 0 else ~low
    return uniform_terms(
        batch, config, loss, ratio, eps_low=config.eps_low, eps_high=config.eps_high, keep_BT=keep
    )


def entropy_advantage(batch: TokenBatch, config: EntropyAdvantageConfig) -> LossTerms:
    """The clipped loss with A + min(alpha H, abs(A) / kappa), H the current policy's (2506.14758 v4).

    H is a constant in the gradient. A = 0 stays 0; for A < 0 the term weakens the penalty.
    """
    entropy = require(batch.entropy_BT, "entropy_BT", "advantages are shaped by the current policy's entropy")
    advantage = batch.advantage_BT + torch.minimum(
        config.alpha * entropy, batch.advantage_BT.abs() / config.kappa
    )
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    loss = clipped_surrogate(ratio, advantage, config.eps_low, config.eps_high, config.dual_clip)
    return uniform_terms(batch, config, loss, ratio, eps_low=config.eps_low, eps_high=config.eps_high)
