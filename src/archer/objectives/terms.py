"""From per-token losses to undivided loss terms: the KL that a config asks for, the parts, the metrics."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from archer.configs.objective_base import ObjectiveBase, UniformKL
from archer.objectives.aggregation import response_count
from archer.objectives.checks import require
from archer.objectives.metrics import TokenReport, token_report
from archer.objectives.ratios import kl_estimate
from archer.types import LossPart, LossTerms, TokenBatch


def reference_kl(batch: TokenBatch, config: ObjectiveBase, *weights: float) -> Tensor | None:
    """Per-token KL estimate in nats, ``[B, T]``; None without a reference where no weight needs one.

    Raises:
        TensorError: when a weight is above 0 and ``ref_logp_BT`` is missing.
    """
    if batch.ref_logp_BT is None and max(weights) == 0:
        return None
    reference = require(
        batch.ref_logp_BT, "ref_logp_BT", f"the KL weights of {config.method!r} are {weights}"
    )
    return kl_estimate(batch.logp_BT, reference, config.kl_estimator, config.kl_max)


def weighted(batch: TokenBatch, loss_BT: Tensor) -> Tensor:
    """The policy loss times ``weight_BT``; call it before a KL to the reference is added."""
    return loss_BT if batch.weight_BT is None else batch.weight_BT * loss_BT


def loss_terms(
    batch: TokenBatch,
    loss_BT: Tensor,
    report: TokenReport,
    *,
    mask_BT: Tensor | None = None,
    extra: Mapping[str, LossPart] | None = None,
) -> LossTerms:
    """Terms with ``policy`` over ``mask_BT`` (default: all trained tokens) and any further parts."""
    policy = LossPart(loss_BT, batch.mask_BT if mask_BT is None else mask_BT)
    return LossTerms(
        {"policy": policy, **(extra or {})}, report.metrics, response_count(batch.mask_BT), report.clip_BT
    )


def uniform_terms(
    batch: TokenBatch,
    config: UniformKL,
    loss_BT: Tensor,
    ratio_BT: Tensor,
    *,
    eps_low: float | Tensor | None = None,
    eps_high: float | Tensor | None = None,
    reasoning_BT: Tensor | None = None,
    keep_BT: Tensor | None = None,
    mask_BT: Tensor | None = None,
) -> LossTerms:
    """Terms of a method with one KL weight: ``weight loss + beta KL`` and the usual metrics.

    Tokens outside ``keep_BT`` have loss 0 and still count; tokens outside ``mask_BT`` do not count.
    """
    loss_BT = weighted(batch, loss_BT)
    kl = reference_kl(batch, config, config.beta)
    if kl is not None:
        loss_BT = loss_BT + config.beta * kl
    if keep_BT is not None:
        loss_BT = torch.where(keep_BT, loss_BT, 0.0)
    report = token_report(
        batch, ratio_BT, eps_low=eps_low, eps_high=eps_high, kl_BT=kl, reasoning_BT=reasoning_BT
    )
    return loss_terms(batch, loss_BT, report, mask_BT=mask_BT)
