"""Configurations of the objectives, one class a method, joined in one union on ``method``.

Every default names its source: a paper by arXiv number and place, or the code that its authors released.
Importing this module loads no torch.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from archer.configs.objective_base import (
    AdvantageConfig,
    Aggregation,
    Clipped,
    ClipRange,
    DualClip,
    DualClipBound,
    DualToken,
    EntropyPool,
    LowerClipRange,
    Policy,
    Positive,
    Role,
    Roles,
    Scope,
    Share,
    UniformClip,
    UniformKL,
    Weight,
)

SeqMean = Literal["seq-mean-token-mean"]


class ArcherConfig(DualToken):
    """Archer as the paper states it (2507.15778 v2, Eqs. 2-5).

    Eq. 5 has no dual clip, which is the default here; Fig. 3 draws one at 3 and the released code passes 10.
    """

    method: Literal["archer"] = "archer"


class ArcherReleasedConfig(DualToken):
    """Archer as the authors' released code computes it.

    Roles come from the current policy in every forward, a tie is a knowledge token, each role's KL has its
    own mean, dual clip 10, KL estimates limited to 10. The authors ran one response a micro-batch with a
    token mean in each, which is ``seq-mean-token-mean``; ``token-mean`` gives their formula for larger
    micro-batches, which then depends on the split.
    """

    method: Literal["archer-released"] = "archer-released"
    aggregation: Aggregation = "seq-mean-token-mean"
    advantage: AdvantageConfig = AdvantageConfig(singleton="reward")
    entropy_from: Policy = "current"
    tie: Role = "knowledge"
    dual_clip: DualClipBound | None = 10.0
    """10 in the released training script."""
    kl_max: Positive | None = 10.0
    """10 in the released code."""
    eps_r_low: LowerClipRange | None = None
    """Lower clip range of reasoning tokens; unset, the code takes the upper one."""
    eps_k_high: ClipRange | None = None
    """Upper clip range of knowledge tokens; unset, the code takes the lower one."""


class ArcherSoftConfig(DualToken):
    """Archer with constraints that grow with the token's entropy rank instead of jumping at the threshold.

    Not from a paper: 2507.15778 names continuous constraints as future work. See
    ``archer.objectives.methods.archer_soft`` for the form and for what it conserves.
    """

    method: Literal["archer-soft"] = "archer-soft"
    softness: Share = 0.5
    """0 is Archer; 1 spreads the change over the whole range of ranks. Our choice, not tuned."""


class ArcherKConfig(EntropyPool, DualClip):
    """Archer with any number K of roles, from the lowest entropies to the highest. K = 2 is Archer.

    Not from a paper: 2507.15778 names finer token types as future work. The defaults put a middle role
    between Archer's two, halfway in both constraints; they are our choice, not tuned.
    """

    method: Literal["archer-k"] = "archer-k"
    thresholds: tuple[Share, ...] = (0.5, 0.8)
    """K - 1 rising quantiles of the entropy."""
    eps: tuple[LowerClipRange, ...] = (0.2, 0.35, 0.5)
    """K clip ranges."""
    beta: tuple[Weight, ...] = (0.001, 0.0005, 0.0)
    """K KL weights."""

    @model_validator(mode="after")
    def _one_range_and_weight_a_role(self) -> ArcherKConfig:
        roles = len(self.thresholds) + 1
        if len(self.eps) != roles or len(self.beta) != roles:
            raise ValueError(
                f"expected {roles} values in eps and in beta for {roles - 1} thresholds, "
                f"got {len(self.eps)} and {len(self.beta)}"
            )
        if any(a >= b for a, b in pairwise(self.thresholds)):
            raise ValueError(f"expected rising thresholds, got {self.thresholds}")
        return self


class GrpoConfig(Clipped):
    """GRPO (2402.03300 Eq. 3): uniform clip 0.2 / 0.2, mean over responses of the token mean."""

    method: Literal["grpo"] = "grpo"
    aggregation: Aggregation = "seq-mean-token-mean"
    beta: Weight = 0.04
    """2402.03300 section 4.2."""


class DapoConfig(Clipped):
    """DAPO's loss (2503.14476 Eq. 8): clip-higher and a token mean, no KL.

    Dynamic sampling and overlong shaping act on groups and rewards: see ``archer.objectives.sampling``.
    """

    method: Literal["dapo"] = "dapo"
    eps_high: ClipRange = 0.28
    """2503.14476 section 4.1."""
    dual_clip: DualClipBound | None = 10.0
    """10 in the released scripts; the paper's equation has none."""


class DrGrpoConfig(Clipped):
    """Dr.GRPO (2503.20783): advantages without a std, sums over a constant length instead of means."""

    method: Literal["dr-grpo"] = "dr-grpo"
    aggregation: Aggregation = "constant-length"
    constant_length: Annotated[int, Field(gt=0)] | None = 3000
    """Response limit of the released runs. It scales the loss; set it to the run's own limit."""
    advantage: AdvantageConfig = AdvantageConfig(normalisation="mean-only")


class GspoConfig(UniformClip):
    """GSPO (2507.18071): one ratio a response, the geometric mean of its tokens' ratios."""

    method: Literal["gspo"] = "gspo"
    aggregation: SeqMean = "seq-mean-token-mean"
    """The only one: a token mean would weigh responses by length."""
    eps_low: LowerClipRange = 3e-4
    """2507.18071 section 5.1."""
    eps_high: ClipRange = 4e-4
    """2507.18071 section 5.1."""


class CispoConfig(UniformKL):
    """CISPO (2506.13585): the policy gradient weighted with a clipped, constant ratio."""

    method: Literal["cispo"] = "cispo"
    eps_low: LowerClipRange | None = None
    """None: no lower bound, as in 2506.13585."""
    eps_high: ClipRange = 0.2
    """Upper bound 1 + eps_high of the weight. Unpublished; 0.2 in verl's example, 4.0 in TRL's."""


class GppoConfig(Clipped):
    """GPPO (2508.07629): clipped tokens keep a bounded gradient."""

    method: Literal["gppo"] = "gppo"


class CeGppoConfig(Clipped):
    """CE-GPPO (2509.20712 v5 Eq. 8): GPPO with a weight for the gradient on each side of the range."""

    method: Literal["ce-gppo"] = "ce-gppo"
    beta_1: Weight = 0.75
    """Weight where A < 0 and r < 1 - eps_low: 0.75 at 7B and 0.5 at 1.5B."""
    beta_2: Weight = 1.0
    """Weight where A > 0 and r > 1 + eps_high."""
    dual_clip: DualClipBound | None = 10.0
    """10 in the released scripts; the paper's equation has none."""


class EightyTwentyConfig(Roles, Clipped):
    """80/20 (2506.01939 v2 Eq. 6): only tokens at or above an entropy quantile are trained.

    The threshold pools the micro-batch under the current policy, so the result depends on the split;
    ``entropy_from`` = ``old`` pools the whole step and does not.
    """

    method: Literal["eighty-twenty"] = "eighty-twenty"
    rho: Share = 0.8
    """Quantile of the threshold; 0.8 is the paper's top 20 %."""
    scope: Scope = "batch"
    entropy_from: Policy = "current"
    eps_high: ClipRange = 0.28
    """2506.01939, as DAPO."""
    denominator: Literal["selected", "all"] = "selected"
    """Tokens that the mean counts: the trained ones (Eq. 6), or all of them (TRL)."""


class ArLoptiConfig(Clipped):
    """AR and Lopti (2505.12929): weigh advantages by probability; update rare tokens before frequent ones.

    AR alone: ``eta`` None. Lopti alone: ``alpha`` 0. The defaults are those of the combined script; for maths
    the paper recommends AR alone with ``alpha`` 0.1. Lopti takes two updates on the same data.
    """

    method: Literal["ar-lopti"] = "ar-lopti"
    alpha: Share = 0.3
    """Advantage reweighting: A (alpha pi + 1 - alpha)."""
    eta: Share | None = 0.5
    """Lopti's threshold on the probability: tokens below are trained in pass 0, the others in pass 1."""
    probability_from: Policy = "old"
    """``old`` in the released code, ``current`` in the paper."""
    tie: Literal["low", "high"] = "high"
    """Side of a token whose probability equals eta: ``high`` in the released code, ``low`` in the paper."""
    eps_high: ClipRange = 0.24
    """0.24 in the released scripts."""
    dual_clip: DualClipBound | None = 10.0
    """10 in the released scripts."""
    beta: Weight = 0.001
    """0.001 in the released scripts."""


class ClipCovConfig(UniformClip):
    """Clip-Cov (2505.22617): drop a few random tokens whose covariance lies in a window.

    The covariance is over the micro-batch, so the result depends on the split. Tokens are drawn with the
    generator that is given to ``token_losses``.
    """

    method: Literal["clip-cov"] = "clip-cov"
    share: Share = 2e-4
    """Tokens dropped, as a share of the micro-batch; at least one (2505.22617)."""
    window: tuple[float, float] = (1.0, 5.0)
    """Open interval of the covariance from which tokens are drawn (2505.22617)."""
    eps_low: LowerClipRange = 1.0
    """1 in the released scripts; Eq. 12 has no clip."""
    eps_high: ClipRange = 1.0
    """1 in the released scripts; Eq. 12 has no clip."""

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> ClipCovConfig:
        if self.window[0] >= self.window[1]:
            raise ValueError(f"expected a window (low, high) with low < high, got {self.window}")
        return self


class KLCovConfig(UniformKL):
    """KL-Cov (2505.22617): penalise the log-ratio of the tokens with the largest covariance; no clip.

    The covariance is over the micro-batch, so the result depends on the split.
    """

    method: Literal["kl-cov"] = "kl-cov"
    share: Share = 2e-3
    """Tokens penalised, as a share of the micro-batch, at least one: 2e-3 at 7B, 2e-4 at 32B."""
    penalty: Weight = 1.0
    """Weight of abs(log r) on those tokens (2505.22617)."""


class EntropyAdvantageConfig(Clipped):
    """Entropy-shaped advantage (2506.14758 v4): A + min(alpha H, abs(A) / kappa)."""

    method: Literal["entropy-advantage"] = "entropy-advantage"
    alpha: Weight = 0.4
    """0.4 with GRPO, 0.1 with PPO (2506.14758 section 4)."""
    kappa: Positive = 2.0
    """2506.14758 section 4. Above 1 the advantage keeps its sign."""
    eps_high: ClipRange = 0.28
    """2506.14758 appendix B."""


class AspoConfig(UniformClip):
    """ASPO (2510.06062 v2): positive advantages use the inverse ratio; the dual clip keeps a gradient."""

    method: Literal["aspo"] = "aspo"
    soft_dual_clip: DualClipBound = 3.0
    """Bound of the weight, for both signs (released code)."""
    beta: Weight = 0.001
    """2510.06062 appendix B."""


class AspoReleasedConfig(Roles, UniformKL):
    """ASPO as in the released Archer2.0 code, which has clip ranges by entropy role hard-coded."""

    method: Literal["aspo-released"] = "aspo-released"
    soft_dual_clip: DualClipBound = 3.0
    beta: Weight = 0.001
    eps_r: LowerClipRange = 0.4
    """0.4 in the code."""
    eps_k: LowerClipRange = 0.2
    """0.2 in the code."""
    entropy_from: Policy = "current"
    tie: Role = "knowledge"


class Hapo(Clipped):
    """HAPO (2509.16591): advantages and clip ranges by entropy score.

    Scores are over the micro-batch under the current policy, so the result depends on the split. The
    entropy-dependent rollout temperature belongs to the sampler and is not part of this objective.
    """

    quantile: Share = 0.8
    """Nearest quantile of log H that scores 0."""
    advantage: AdvantageConfig = AdvantageConfig(weighting="token", ddof=0, fallback_limit=5.0)
    dual_clip: DualClipBound | None = 10.0
    """10 in the released code."""


class HapoConfig(Hapo):
    """HAPO with entropy scores in [-1, 1], as the paper states their range."""

    method: Literal["hapo"] = "hapo"
    eps_high: ClipRange = 0.28
    """2509.16591."""


class HapoReleasedConfig(Hapo):
    """HAPO as in the released code, which divides negative scores by their signed minimum.

    All scores are then positive, so the branches for low entropy never apply.
    """

    method: Literal["hapo-released"] = "hapo-released"
    eps_high: ClipRange = 0.2
    """0.2 in the released code."""


class SteerConfig(Clipped):
    """STEER (2510.10150): tokens with a large estimated entropy change get a smaller loss.

    The largest change in the micro-batch sets the scale, so the result depends on the split (8 responses in
    the released code).
    """

    method: Literal["steer"] = "steer"
    lambda_min: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Weight of the token with the largest change: 0.7 in the paper, 0.8 in the released script."""
    eps_high: ClipRange = 0.28
    dual_clip: DualClipBound | None = 10.0
    """10 in the released code."""


class EspoConfig(Roles):
    """ESPO (2512.00499 v2): one ratio and one clip range for each of a response's two entropy groups."""

    method: Literal["espo"] = "espo"
    vocabulary_size: Annotated[int, Field(gt=1)]
    """Size of the vocabulary; its logarithm normalises the entropy."""
    aggregation: SeqMean = "seq-mean-token-mean"
    scope: Literal["response"] = "response"
    entropy_from: Literal["old"] = "old"
    alpha: Weight = 0.02
    """Clip range of a group with the entropy of a uniform distribution (2512.00499)."""


class PearConfig(Clipped):
    """PEAR (2510.08026): GRPO on rewards that fall with the entropy of the thinking part.

    The reward side is ``archer.objectives.shape_rewards``.
    """

    method: Literal["pear"] = "pear"
    aggregation: Aggregation = "seq-mean-token-mean"
    ceiling: float = 1.0
    """s: reward of a right answer before the entropy penalty."""
    alpha: Weight = 1.0
    """Weight of the answer's entropy, taken off the penalty."""


ObjectiveConfig: TypeAlias = Annotated[
    ArcherConfig
    | ArcherReleasedConfig
    | ArcherSoftConfig
    | ArcherKConfig
    | GrpoConfig
    | DapoConfig
    | DrGrpoConfig
    | GspoConfig
    | CispoConfig
    | GppoConfig
    | CeGppoConfig
    | EightyTwentyConfig
    | ArLoptiConfig
    | ClipCovConfig
    | KLCovConfig
    | EntropyAdvantageConfig
    | AspoConfig
    | AspoReleasedConfig
    | HapoConfig
    | HapoReleasedConfig
    | SteerConfig
    | EspoConfig
    | PearConfig,
    Field(discriminator="method"),
]
"""Any objective; pydantic picks the class by ``method``."""
