"""Structures that pass between the layers.

Shape suffixes used throughout: ``B`` responses, ``T`` response tokens, ``V`` vocabulary, ``G`` group size,
``N`` packed tokens, ``D`` hidden size. A name such as ``logp_BT`` has shape ``[B, T]``.
Log-probabilities and entropies are in nats, at the sampling temperature.

This module imports torch for annotations only, so graders and data tools can use it without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

Message = Mapping[str, str]
"""One chat message: ``{"role": ..., "content": ...}``."""

Status = Literal["correct", "incorrect", "unscorable"]
FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One verifiable problem.

    Attributes:
        id: unique within its data set.
        prompt: plain text, or a list of chat messages.
        answer: the gold answer as text; ``None`` where ``tests`` (or a procedural scorer) decides.
        tests: code tests, each ``{"type": "stdin" | "functional" | "assert", ...}``.
        domain: ``"math"``, ``"code"``, ``"procedural"`` or another word that the scorer understands.
        source: where the row came from.
        meta: anything else the row carried.
    """

    id: str
    prompt: str | Sequence[Message]
    answer: str | None = None
    tests: Sequence[Mapping[str, Any]] = ()
    domain: str = "math"
    source: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a scorer decided about one response.

    Attributes:
        status: ``"unscorable"`` means that nothing can be said (bad gold, harness fault); such a response is
            excluded from its group and counted, never treated as 0.
        score: reward in [0, 1]; ``None`` exactly when unscorable.
        extracted: the answer text that was graded, ``None`` when none was found.
        reason: a short machine-readable label, optionally followed by ``": detail"``.
        seconds: wall time spent on this verdict.
    """

    status: Status
    score: float | None
    extracted: str | None = None
    reason: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if (self.score is None) != (self.status == "unscorable"):
            raise ValueError(f"expected score None exactly when unscorable, got {self.status=} {self.score=}")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled response, exactly as the sampler produced it.

    ``token_ids`` are the sampled ids, the end-of-sequence id included when it was sampled; they are trained
    as they are, never decoded and encoded again. ``logp`` and ``entropy`` hold one value a token, under the
    policy and at the temperature that sampled them.

    Attributes:
        entropy: empty where the engine gives none.
        policy_version: number of weight updates that the sampling weights had seen.
        weights: checksum of the sampling weights; empty where the engine samples with the trainer's own.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logp: tuple[float, ...]
    entropy: tuple[float, ...]
    finish_reason: FinishReason
    text: str
    key: str = ""
    sample: int = 0
    policy_version: int = 0
    weights: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """The responses to one prompt, with their verdicts, in the same order."""

    problem: Problem
    rollouts: Sequence[Rollout]
    verdicts: Sequence[Verdict]


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """What an objective sees: any number of responses, padded on the right to a common length.

    ``logp_BT`` carries the gradient; everything else is a constant. Positions outside ``mask_BT`` may hold
    anything, NaN and infinity included, and never reach the loss or its gradient.

    Attributes:
        logp_BT: log-probability of each sampled token under the current policy, float.
        old_logp_BT: the same under the policy that sampled it.
        mask_BT: bool, True at tokens that are trained.
        advantage_BT: float, one value a token (constant along a response for most methods).
        old_entropy_BT: entropy of the old policy at each token; needed where roles come from it.
        entropy_BT: entropy of the current policy; needed where roles come from it.
        ref_logp_BT: log-probability under the reference policy; needed where a KL weight is above 0.
        group_B: int64 group (prompt) number of each response; needed for group scope.
        reasoning_BT: bool roles filled in by ``prepare``; True where the token is a reasoning token.
        grade_BT: float64 graded roles filled in by ``prepare``: how much of a reasoning token each one is, in
            [0, 1], or the number of its role.
        response_B: int64 number of each response within the whole step, stable under any split.
        weight_BT: factor of each token's policy loss, a constant, float; None is 1 everywhere. The KL to the
            reference is not weighted.
    """

    logp_BT: Tensor
    old_logp_BT: Tensor
    mask_BT: Tensor
    advantage_BT: Tensor
    old_entropy_BT: Tensor | None = None
    entropy_BT: Tensor | None = None
    ref_logp_BT: Tensor | None = None
    group_B: Tensor | None = None
    reasoning_BT: Tensor | None = None
    grade_BT: Tensor | None = None
    response_B: Tensor | None = None
    weight_BT: Tensor | None = None


@dataclass(frozen=True, slots=True)
class LossPart:
    """One sum that is divided by one count: ``sum(loss_BT[mask_BT]) / counts[name]``."""

    loss_BT: Tensor
    mask_BT: Tensor


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The undivided result of an objective.

    Attributes:
        parts: name to ``LossPart``; ``"policy"`` always exists. The only division happens in ``aggregate``.
        metrics: name to (sum, count) scalars, detached, which reduce over micro-batches by addition;
            names that end in ``_max`` or ``_min`` reduce by maximum or minimum of the first element.
        responses: int64 scalar, responses in this batch with at least one trained token.
        clip_BT: int8, where each trained token's ratio lies: -1 below its clip range, 1 above, 0 inside; None for
            methods without a range.
    """

    parts: Mapping[str, LossPart]
    metrics: Mapping[str, tuple[Tensor, Tensor]]
    responses: Tensor
    clip_BT: Tensor | None = None
