"""Settings that the objectives share. ``archer.configs.objective`` holds the methods."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from archer.configs.base import Config

Aggregation = Literal["token-mean", "seq-mean-token-mean", "constant-length"]
KLEstimator = Literal["k1", "k2", "k3"]
Scope = Literal["response", "group", "batch"]
Policy = Literal["old", "current"]
Role = Literal["reasoning", "knowledge"]

Share = Annotated[float, Field(ge=0, le=1)]
ClipRange = Annotated[float, Field(ge=0)]
LowerClipRange = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
DualClipBound = Annotated[float, Field(gt=1)]


class AdvantageConfig(Config):
    """How the rewards of a group become advantages."""

    normalisation: Literal["std", "mean-only", "leave-one-out"] = "std"
    """``std``: (R - mean) / (std + epsilon), GRPO, 2402.03300 section 4.1.2. ``mean-only``: R - mean,
    Dr.GRPO, 2503.20783. ``leave-one-out``: R minus the mean of the group's other rewards, without a std,
    2402.14740."""
    weighting: Literal["response", "token"] = "response"
    """``token``: mean and std over all tokens of the group (HAPO, 2509.16591)."""
    ddof: Literal[0, 1] = 1
    """Divisor n - ddof of the variance. 1 in verl, TRL and the code of Archer; papers say only "std"."""
    epsilon: Positive = 1e-6
    """Added to the std. 1e-6 in verl and the code of Archer; TRL uses 1e-4."""
    singleton: Literal["zero", "reward"] = "zero"
    """Advantage of a group with one scorable response: 0, or the reward itself over 1 + epsilon (verl)."""
    fallback_limit: Positive | None = None
    """A group in which token weighting gives any abs(advantage) of this or more is weighted by response, with
    ddof 1. HAPO's code uses 5."""

    @model_validator(mode="after")
    def _fallback_leaves_token_weighting(self) -> AdvantageConfig:
        if self.fallback_limit is not None and self.weighting != "token":
            raise ValueError(
                f"expected weighting 'token' with fallback_limit, got weighting {self.weighting!r}"
            )
        if self.weighting == "token" and self.normalisation == "leave-one-out":
            raise ValueError("expected normalisation 'std' or 'mean-only' with weighting 'token'")
        return self


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
    kl_max: Positive | None = None
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


class UniformClip(UniformKL):
    """A method with one clip range for every token."""

    eps_low: LowerClipRange = 0.2
    """Lower clip range: 1 - eps_low (1707.06347 section 6.1)."""
    eps_high: ClipRange = 0.2
    """Upper clip range: 1 + eps_high (1707.06347 section 6.1)."""


class DualClip(ObjectiveBase):
    """A method that can bound the loss of negative advantages from above."""

    dual_clip: DualClipBound | None = None
    """For A < 0 the loss is at most -A * dual_clip and has no gradient beyond (1912.09729)."""


class Clipped(UniformClip, DualClip):
    """One clip range for every token, and a dual clip."""


class EntropyPool(ObjectiveBase):
    """A method that ranks tokens by entropy."""

    scope: Scope = "response"
    """Tokens ranked together. ``response`` in Archer, 2507.15778 Eq. 2; the others are compared in Fig. 2."""
    entropy_from: Policy = "old"
    """``old``: the sampling policy, once before the update (2507.15778 Algorithm 1). ``current``: every
    forward pass."""
    tie: Role = "reasoning"
    """Role of a token whose entropy equals the threshold; ``reasoning`` in 2507.15778 Eq. 2. It decides the
    role of every token where all entropies are equal."""


class Roles(EntropyPool):
    """A method that splits tokens in two by entropy."""

    rho: Share = 0.8
    """Quantile of the entropy that is the threshold (Archer, 2507.15778 section 5.1 and Table 3)."""


class DualToken(Roles, DualClip):
    """Archer's constraints by role."""

    eps_r: LowerClipRange = 0.5
    """Clip range of reasoning tokens (2507.15778 section 5.1, Table 5)."""
    eps_k: LowerClipRange = 0.2
    """Clip range of knowledge tokens (2507.15778 section 5.1, Table 5)."""
    beta_r: Weight = 0.0
    """KL weight of reasoning tokens (2507.15778 section 5.1)."""
    beta_k: Weight = 0.001
    """KL weight of knowledge tokens (2507.15778 section 5.1, Table 4)."""
