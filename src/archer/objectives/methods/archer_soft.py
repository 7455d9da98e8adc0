"""Archer with graded roles: ``archer-soft`` (continuous in the entropy rank) and ``archer-k`` (K roles).

2507.15778 names continuous constraints and finer token types as future work; neither form below is its own.

What the soft form should conserve
----------------------------------
Archer gives a token of its response either (eps_r, beta_r) or (eps_k, beta_k). A soft form gives

    eps = eps_k + w (eps_r - eps_k),    beta = beta_k + w (beta_r - beta_k),    0 <= w <= 1,

with a weight w that rises with the token's entropy. Were w free, a change of softness would also change how
much movement a response is allowed and how strongly it is tied to the reference on average, and these two
are what Tables 4 and 5 show the result to depend on. A comparison with Archer would then mix the shape of
the constraint with its total. Both constraints are affine in w, so one condition conserves both: **the sum
of w over a response is the number of its reasoning tokens under Archer**. The mean clip range and the mean
KL weight of every response are then Archer's, at any softness, and softness only decides how they are
spread. (The KL weight is conserved, not the KL itself, which depends on where the policy moves.)

The form
--------
Let w(u) be the probability that a random threshold lies below the rank u in [0, 1]: a distribution function
F. It is monotone and continuous by construction, and its integral over [0, 1] is 1 minus the threshold's
mean. So any spread of the threshold around a fixed mean conserves the sum, and all of it in one point is
Archer. We take the two-sided power distribution (van Dorp and Kotz, 2002) with mode m and power n,

    F(u) = m (u / m)^n below m,    1 - (1 - m) ((1 - u) / (1 - m))^n above,    mean ((n - 1) m + 1) / (n + 1),

because it has support [0, 1], a closed form, and every spread: n -> infinity is a point, and the smallest n
that still has the mean c is max(c, 1 - c) / min(c, 1 - c), where one side vanishes (for c = 0.8, F = u^4).
Softness s gives n = that smallest n / s, and m follows from the mean.

Finite responses
----------------
The token at positions first ... last of N sorted entropies (several where entropies are equal) takes the
mean of F over [first / N, (last + 1) / N]. The sum over tokens is then N times the integral exactly, ties
included. The mean c is 1 - K / N, with K the number of reasoning tokens under Archer with the same rho and
tie rule. That is a boundary between tokens, so the sharp limit s -> 0 gives exactly Archer's 0 and 1, not
one token in between.

Ranks rather than entropies make w independent of the scale of the entropy, which differs between responses
and falls in training; it is the reason for Archer's own choice of quantiles over fixed thresholds.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from archer.configs.objective import ArcherKConfig, ArcherSoftConfig
from archer.objectives.checks import require
from archer.objectives.metrics import share, token_report
from archer.objectives.ratios import importance_ratio
from archer.objectives.roles import above, entropy_rank, pool_entropy, pool_positions, pool_sum, rank_of
from archer.objectives.surrogates import clipped_surrogate
from archer.objectives.terms import loss_terms, reference_kl, weighted
from archer.types import LossTerms, TokenBatch

SHARPEST = 1e-12
"""Bounds the power of the threshold's distribution, so that the mode can be computed from it."""


def soft_weights(batch: TokenBatch, config: ArcherSoftConfig) -> Tensor:
    """Weight of the reasoning role in [0, 1], float64 ``[B, T]``; 0 at masked positions.

    Rises with the entropy, equal for equal entropies. Its sum over each pool is the pool's number of
    reasoning tokens under Archer. ``softness`` 0 gives Archer's roles as 0 and 1.

    Raises:
        TensorError: when the entropies that the config names are missing.
    """
    positions = pool_positions(pool_entropy(batch, config), batch.mask_BT, config.scope, batch.group_B)
    reasoning = above(rank_of(positions, config.tie), config.rho, config.tie) & batch.mask_BT
    if config.softness == 0:
        return reasoning.double()
    size = positions.size_BT.clamp(min=1).double()
    mean = 1 - pool_sum(reasoning.double(), config.scope, batch.group_B) / size
    start, end = positions.first_BT / size, (positions.last_BT + 1) / size
    # where all tokens of a pool have one role there is no threshold to spread
    inner = (mean > 0) & (mean < 1)
    centre = torch.where(inner, mean, 0.5)
    smallest = torch.maximum(centre, 1 - centre) / torch.minimum(centre, 1 - centre)
    power = (smallest / max(config.softness, SHARPEST)).clamp(max=1 / SHARPEST)
    area = threshold_integral(end, centre, power) - threshold_integral(start, centre, power)
    soft = (area / torch.where(batch.mask_BT, end - start, 1.0)).clamp(0.0, 1.0)
    return torch.where(batch.mask_BT, torch.where(inner, soft, reasoning.double()), 0.0)


def threshold_integral(u: Tensor, mean: Tensor, power: Tensor) -> Tensor:
    """Integral over [0, u] of the two-sided power distribution function with this mean and power, float64."""
    # power 1 has every mode only for mean 1/2, where the middle is as good as any
    mode = torch.where(power > 1, ((power + 1) * mean - 1) / (power - 1).clamp(min=1e-300), 0.5).clamp(
        0.0, 1.0
    )
    side = 1 - mode
    left = (torch.minimum(u, mode) / mode.clamp(min=1e-300)).pow(power + 1)
    right = ((1 - torch.maximum(u, mode)) / side.clamp(min=1e-300)).pow(power + 1)
    below = mode.square() * left
    beyond = side.square() * torch.where(u > mode, 1 - right, 0.0)
    return (below - beyond) / (power + 1) + (u - mode).clamp(min=0)


def role_numbers(batch: TokenBatch, config: ArcherKConfig) -> Tensor:
    """Number of thresholds that each token's entropy reaches, from 0, as float64 ``[B, T]``.

    Raises:
        TensorError: when the entropies that the config names are missing.
    """
    entropy = pool_entropy(batch, config)
    rank = entropy_rank(entropy, batch.mask_BT, config.scope, config.tie, batch.group_B)
    number = torch.zeros_like(rank)
    for threshold in config.thresholds:
        number = number + above(rank, threshold, config.tie)
    return number


def grades_of(batch: TokenBatch, config: ArcherSoftConfig | ArcherKConfig) -> Tensor:
    """Grades that ``prepare`` filled in, or those of the current policy's entropy at the rows at hand.

    Raises:
        TensorError: when the source is missing.
    """
    if config.entropy_from == "old":
        return require(batch.grade_BT, "grade_BT", "call prepare on the whole step")
    return compute_grades(batch, config)


def compute_grades(batch: TokenBatch, config: ArcherSoftConfig | ArcherKConfig) -> Tensor:
    """``soft_weights`` or ``role_numbers`` over the rows at hand."""
    if isinstance(config, ArcherSoftConfig):
        return soft_weights(batch, config)
    return role_numbers(batch, config)


def archer_soft(batch: TokenBatch, config: ArcherSoftConfig) -> LossTerms:
    """Archer's loss with clip range and KL weight between those of the two roles, by ``soft_weights``.

    In the metrics a token counts as a reasoning token where its weight is at least 1/2.
    """
    weight = grades_of(batch, config).to(batch.logp_BT.dtype)

    def mix(reasoning: float, knowledge: float) -> Tensor:
        # lerp is exact at weights 0 and 1
        return torch.lerp(weight.new_full((), knowledge), weight.new_full((), reasoning), weight)

    eps, beta = mix(config.eps_r, config.eps_k), mix(config.beta_r, config.beta_k)
    return _graded_terms(batch, config, eps, beta, max(config.beta_r, config.beta_k), weight >= 0.5)


def archer_k(batch: TokenBatch, config: ArcherKConfig) -> LossTerms:
    """Archer's loss with the clip range and KL weight of each token's role, by ``role_numbers``.

    In the metrics the highest role counts as reasoning and all others as knowledge; ``role/share_0`` ... give
    the share of each.
    """
    number = grades_of(batch, config)
    eps = torch.zeros_like(batch.logp_BT)
    beta = torch.zeros_like(batch.logp_BT)
    shares = {}
    for role, (role_eps, role_beta) in enumerate(zip(config.eps, config.beta, strict=True)):
        here = number == role
        eps = torch.where(here, role_eps, eps)
        beta = torch.where(here, role_beta, beta)
        shares[f"role/share_{role}"] = share(here, batch.mask_BT)
    terms = _graded_terms(batch, config, eps, beta, max(config.beta), number == len(config.thresholds))
    return replace(terms, metrics={**terms.metrics, **shares})


def _graded_terms(
    batch: TokenBatch,
    config: ArcherSoftConfig | ArcherKConfig,
    eps_BT: Tensor,
    beta_BT: Tensor,
    largest_beta: float,
    reasoning_BT: Tensor,
) -> LossTerms:
    ratio = importance_ratio(batch.logp_BT, batch.old_logp_BT)
    kl = reference_kl(batch, config, largest_beta)
    loss = weighted(batch, clipped_surrogate(ratio, batch.advantage_BT, eps_BT, eps_BT, config.dual_clip))
    if kl is not None:
        loss = loss + beta_BT * kl
    report = token_report(
        batch, ratio, eps_low=eps_BT, eps_high=eps_BT, kl_BT=kl, reasoning_BT=reasoning_BT & batch.mask_BT
    )
    return loss_terms(batch, loss, report)
