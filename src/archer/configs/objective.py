"""Configurations of the objectives, one class a method, joined in one union on ``method``.

Every default names its source: a paper by arXiv number and place, or the code that its authors released.
Importing this module loads no torch.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from archer.configs.base import Config

Aggregation = Literal["token-mean", "seq-mean-token-mean", "constant-length"]
KLEstimator = Literal["k1", "k2", "k3"]
Scope = Literal["response", "group", "batch"]
Policy = Literal["old", "current"]
Role = Literal["reasoning", "knowledge"]

Share = Annotated[float, Field(ge=0, le=1)]
Range = Annotated[float, Field(ge=0)]
Weight = Annotated[float, Field(ge=0)]


class AdvantageConfig(Config):
    """How the rewards of a group become advantages."""

    normalisation: Literal["std", "mean-only", "leave-one-out"] = "std"
    """``std``: (R - mean) / (std + epsilon), GRPO, 2402.03300 section 4.1.2. ``mean-only``: R - mean,
    Dr.GRPO, 2503.20783. ``leave-one-out``: R minus the mean of the group's other rewards, without a std,
    2402.14740."""
    ddof: Literal[0, 1] = 1
    """Divisor n - ddof of the variance. 1 in verl, TRL and the code of Archer; papers say only "std"."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    """Added to the std. 1e-6 in verl and the code of Archer; TRL uses 1e-4."""
    singleton: Literal["zero", "reward"] = "zero"
    """Advantage of a group with one scorable response: 0, or the reward itself over 1 + epsilon (verl)."""


class ObjectiveBase(Config):
    """Settings that every method has."""

    method: str
    aggregation: Aggregation = "token-mean"
    """``token-mean``: sum over the step's trained tokens / their number, DAPO, 2503.14476 Eq. 8.
    ``seq-mean-token-mean``: mean over responses of the mean over tokens, GRPO, 2402.03300 Eq. 3.
    ``constant-length``: sum / (responses * constant_length), Dr.GRPO, 2503.20783."""
    constant_length: Annotated[int, Field(gt=0)] | None = None
    """L of ``constant-length``; 1 gives the (1/G) sum sum form of the Dr.GRPO paper."""
    advantage: AdvantageConfig = AdvantageConfig()
    kl_estimator: KLEstimator = "k3"
    """Estimator of KL(policy || reference) at the sampled token; k3 in 2402.03300 Eq. 4 and Archer's code."""
    kl_max: Annotated[float, Field(gt=0)] | None = None
    """Upper limit of one token's KL estimate; its gradient is 0 beyond. verl and Archer's code use 10."""

    @model_validator(mode="after")
    def _constant_length_goes_with_its_aggregation(self) -> ObjectiveBase:
        if (self.aggregation == "constant-length") != (self.constant_length is not None):
            raise ValueError(
                "expected constant_length exactly when aggregation is 'constant-length', "
                f"got aggregation={self.aggregation!r} and constant_length={self.constant_length}"
            )
        return self


class UniformKL(ObjectiveBase):
    """A method whose KL weight is the same for every token."""

    beta: Weight = 0.0
    """Weight of the KL to the reference, added to each token's loss."""


class DualClip(ObjectiveBase):
    """A method that can bound the loss of negative advantages from above."""

    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """For A < 0 the loss is at most -A * dual_clip and has no gradient beyond (1912.09729 Eq. 5)."""


class Clipped(UniformKL, DualClip):
    """A method with one clip range for every token."""

    eps_low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Lower clip range: 1 - eps_low (1707.06347 section 6.1)."""
    eps_high: Range = 0.2
    """Upper clip range: 1 + eps_high (1707.06347 section 6.1)."""


class Roles(ObjectiveBase):
    """A method that splits tokens by entropy."""

    rho: Share = 0.8
    """Quantile of the entropy that is the threshold (Archer, 2507.15778 section 5.1 and Table 3)."""
    scope: Scope = "response"
    """Tokens pooled for one threshold. ``response`` in Archer, Eq. 2; the others are compared in Fig. 2."""
    entropy_from: Policy = "old"
    """``old``: the sampling policy, once before the update (Algorithm 1). ``current``: every forward pass."""
    tie: Role = "reasoning"
    """Role of a token whose entropy equals the threshold; ``reasoning`` in Eq. 2. It decides the role of
    every token where all entropies are equal."""


class DualToken(Roles, DualClip):
    """Archer's constraints by role."""

    eps_r: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Clip range of reasoning tokens (2507.15778 section 5.1, Table 5)."""
    eps_k: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Clip range of knowledge tokens (2507.15778 section 5.1, Table 5)."""
    beta_r: Weight = 0.0
    """KL weight of reasoning tokens (2507.15778 section 5.1)."""
    beta_k: Weight = 0.001
    """KL weight of knowledge tokens (2507.15778 section 5.1, Table 4)."""


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
    micro-batches.
    """

    method: Literal["archer-released"] = "archer-released"
    aggregation: Aggregation = "seq-mean-token-mean"
    advantage: AdvantageConfig = AdvantageConfig(singleton="reward")
    entropy_from: Policy = "current"
    tie: Role = "knowledge"
    dual_clip: Annotated[float, Field(gt=1)] | None = 10.0
    """10 in the released training script."""
    kl_max: Annotated[float, Field(gt=0)] | None = 10.0
    eps_r_low: Annotated[float, Field(ge=0, le=1)] | None = None
    """Lower clip range of reasoning tokens; unset, the code takes the upper one."""
    eps_k_high: Range | None = None
    """Upper clip range of knowledge tokens; unset, the code takes the lower one."""


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
    eps_high: Range = 0.28
    """2503.14476 section 4.1."""
    dual_clip: Annotated[float, Field(gt=1)] | None = 10.0
    """10 in the released scripts; the paper's equation has none."""


ObjectiveConfig: TypeAlias = Annotated[
    ArcherConfig | ArcherReleasedConfig | GrpoConfig | DapoConfig,
    Field(discriminator="method"),
]
"""Any objective; pydantic picks the class by ``method``."""
