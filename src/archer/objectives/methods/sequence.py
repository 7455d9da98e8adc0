"""Methods whose ratio is a geometric mean over a response or a part of it: GSPO and ESPO."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from archer.configs.objective import EspoConfig, GspoConfig
from archer.objectives.checks import require
from archer.objectives.metrics import token_report
from archer.objectives.roles import roles_of
from archer.objectives.surrogates import clipped_surrogate
from archer.objectives.terms import loss_terms, uniform_terms, weighted
from archer.types import LossPart, LossTerms, TokenBatch

LOG_SEQUENCE_RATIO_LIMIT = 10.0
"""Upper clamp in nats of a sequence's log-ratio before ``exp``, as in verl."""


def row_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean of each row's masked values, ``[B, 1]``; 0 for a row without any."""
    total = torch.where(mask_BT, value_BT, 0.0).sum(dim=1, keepdim=True)
    return total / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)


def sequence_ratio(batch: TokenBatch, mask_BT: Tensor) -> Tensor:
    """exp(mean of the log-ratios over ``mask_BT``), with each token's gradient to itself, ``[B, T]``.

    The value is the sequence's ratio s; token t has gradient s with respect to its own log-probability, so
    that a mean over the tokens has the gradient of s itself: GSPO-token, 2507.18071 Eq. 14.
    """
    constant = row_mean((batch.logp_BT - batch.old_logp_BT).detach(), mask_BT)
    own = batch.logp_BT - batch.logp_BT.detach()
    return torch.exp((constant + own).clamp(max=LOG_SEQUENCE_RATIO_LIMIT))


def gspo(batch: TokenBatch, config: GspoConfig) -> LossTerms:
    """The clipped loss on one ratio a response (2507.18071 Eq. 5)."""
    ratio = sequence_ratio(batch, batch.mask_BT)
    loss = clipped_surrogate(ratio, batch.advantage_BT, config.eps_low, config.eps_high)
    return uniform_terms(batch, config, loss, ratio, eps_low=config.eps_low, eps_high=config.eps_high)


def espo(batch: TokenBatch, config: EspoConfig) -> LossTerms:
    """The clipped loss on one ratio for each entropy group of a response (2512.00499 v2).

    (1/G) sum over responses of (1/K) sum over groups of the mean over the group's tokens, K the number of
    groups that have tokens. A group's range is alpha times its mean entropy over log(vocabulary size). Eq. 9
    detaches the old policy, which is constant anyway; the gradient here is that of the group's ratio, as in
    GSPO.
    """
    reasoning = roles_of(batch, config)
    entropy = require(batch.old_entropy_BT, "old_entropy_BT", "clip ranges follow the old policy's entropy")
    masks = {"policy": reasoning, "policy_knowledge": batch.mask_BT & ~reasoning}
    groups = torch.stack([mask.any(dim=1, keepdim=True) for mask in masks.values()]).sum(dim=0)
    parts, ratio, eps = {}, torch.zeros_like(entropy), torch.zeros_like(entropy)
    for name, mask in masks.items():
        group_ratio = sequence_ratio(batch, mask)
        group_eps = config.alpha / math.log(config.vocabulary_size) * row_mean(entropy, mask)
        loss = clipped_surrogate(group_ratio, batch.advantage_BT, group_eps, group_eps)
        parts[name] = LossPart(weighted(batch, loss) / groups.clamp(min=1), mask)
        ratio = torch.where(mask, group_ratio.detach(), ratio)
        eps = torch.where(mask, group_eps, eps)
    report = token_report(batch, ratio, eps_low=eps, eps_high=eps, reasoning_BT=reasoning)
    policy = parts.pop("policy")
    return loss_terms(batch, policy.loss_BT, report, mask_BT=policy.mask_BT, extra=parts)
