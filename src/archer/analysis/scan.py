"""One pass over the stored rollouts of a run: everything that the figures need from tokens, held small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from archer.analysis.records import FloatArray, Response, Run
from archer.analysis.settings import Settings, read_settings
from archer.analysis.statistics import (
    SCOPES,
    BoolArray,
    Scope,
    TokenTable,
    kl_to_reference,
    log_ratio_counts,
    repetition,
    roles,
)


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers of one response.

    Attributes:
        entropy: mean token entropy (nats).
        reasoning_share: share of tokens with the reasoning role, as recorded; NaN when roles were not.
        kl_mean, kl_max: k3 estimate against the reference over its tokens (nats); NaN without a reference.
        outward_share: share of tokens outside their clip range on the side that their advantage pushes to.
        share: share of reasoning tokens under each scope of the threshold, at the run's rho.
    """

    step: int
    group: int
    sample: int
    problem_id: str
    reward: float | None
    status: str
    truncated: bool
    length: int
    entropy: float
    reasoning_share: float
    repetition: float
    kl_mean: float
    kl_max: float
    outward_share: float
    extracted: str | None
    reason: str
    share: dict[Scope, float]


@dataclass(slots=True)
class Scan:
    """What one pass gathered.

    Attributes:
        density: (sign of the advantage, reasoning) to token counts per bin of ``settings.ratio_edges``.
        roles_recorded: every response carries the roles that training used.
        notes: what the reader skipped.
    """

    settings: Settings
    summaries: list[Summary] = field(default_factory=list)
    tokens: TokenTable = field(default_factory=TokenTable)
    density: dict[tuple[int, bool], FloatArray] = field(default_factory=dict)
    roles_recorded: bool = True
    notes: list[str] = field(default_factory=list)

    def last_step(self) -> list[Summary]:
        """The summaries of the last stored step."""
        last = max((s.step for s in self.summaries), default=-1)
        return [s for s in self.summaries if s.step == last]


Keep = Callable[[int, Sequence[Response], Sequence[Summary]], None]


def scan_run(run: Run, keep: Keep | None = None) -> Scan:
    """Reads every stored batch of a run once, the last step first.

    Args:
        run: the run.
        keep: called with (step, responses, their summaries) of each batch, so that a caller can hold on to
            some.

    Returns:
        The gathered numbers, summaries in step order.
    """
    scan = Scan(read_settings(run))
    for step, file in reversed(run.rollout_files()):
        responses, notes = run.responses(file)
        scan.notes += notes
        marked = roles_by_scope(responses, scan.settings)
        summaries: list[Summary] = []
        for i, response in enumerate(responses):
            share = {scope: mean(marked[scope][i]) for scope in SCOPES}
            summaries.append(summarise(response, share))
            scan.tokens.add(response.token_ids, response.tokens, response.entropy)
            count_ratios(scan.density, response, marked["response"][i], scan.settings)
            scan.roles_recorded &= response.reasoning is not None
        scan.summaries = summaries + scan.summaries
        if keep is not None:
            keep(step, responses, summaries)
    return scan


def roles_by_scope(responses: Sequence[Response], settings: Settings) -> dict[Scope, list[BoolArray]]:
    """Roles of the given batch under each scope of the threshold, at the run's rho."""
    entropy = [r.entropy for r in responses]
    groups = [r.group for r in responses]
    return {
        scope: roles(entropy, groups, settings.rho, scope, tie_is_reasoning=settings.tie_is_reasoning)
        for scope in SCOPES
    }


def summarise(response: Response, share: dict[Scope, float]) -> Summary:
    """The summary of one response."""
    kl = token_kl(response)
    clipping = token_clipping(response)
    return Summary(
        step=response.step,
        group=response.group,
        sample=response.sample,
        problem_id=response.problem_id,
        reward=response.reward,
        status=response.status,
        truncated=response.truncated,
        length=len(response.tokens),
        entropy=mean(response.entropy),
        reasoning_share=float("nan") if response.reasoning is None else mean(response.reasoning),
        repetition=repetition(response.text),
        kl_mean=float("nan") if kl is None else mean(kl),
        kl_max=float("nan") if kl is None or not kl.size else float(np.max(kl)),
        outward_share=float("nan") if clipping is None else mean(clipping[1]),
        extracted=response.extracted,
        reason=response.reason,
        share=share,
    )


def token_kl(response: Response) -> FloatArray | None:
    """KL of the sampling policy to the reference at each token; ``None`` without a reference."""
    return None if response.ref_logp is None else kl_to_reference(response.logp, response.ref_logp)


def token_clipping(response: Response) -> tuple[NDArray[np.int8], BoolArray] | None:
    """(clip state, pushed outward) of each token; ``None`` where the run recorded no clip state.

    A token is pushed outward when it lies above its range with a positive advantage, or below it with a
    negative one: hard clipping gives it no gradient.
    """
    if response.clip is None:
        return None
    return response.clip, response.clip * np.sign(response.advantage or 0.0) > 0


def count_ratios(
    density: dict[tuple[int, bool], FloatArray], response: Response, assigned: BoolArray, settings: Settings
) -> None:
    """Adds the response's tokens to the counts of log ratio by sign of the advantage and role.

    The ratio is the one that the objective clips: of GSPO the geometric mean over the response, of ESPO that over the
    role's tokens in it. ``assigned`` ``[T]`` are the roles used where the run recorded none.
    """
    if response.ratio is None or not response.advantage:
        return
    sign = 1 if response.advantage > 0 else -1
    roles_T = assigned if response.reasoning is None else response.reasoning
    with np.errstate(divide="ignore"):
        log_ratio = np.log(response.ratio)
    if settings.method == "gspo":
        log_ratio = np.full_like(log_ratio, mean(log_ratio))
    for reasoning in (True, False):
        own = log_ratio[roles_T == reasoning]
        if settings.method == "espo":
            own = np.full_like(own, mean(own))
        counts = log_ratio_counts(own, settings.ratio_edges)
        density[sign, reasoning] = density.get((sign, reasoning), 0.0) + counts


def by_group(responses: Sequence[Response]) -> list[tuple[int, list[int]]]:
    """(group, indices of its responses), for responses in group order."""
    order = groupby(range(len(responses)), key=lambda i: responses[i].group)
    return [(group, list(indices)) for group, indices in order]


def mean(values: FloatArray | BoolArray) -> float:
    """Mean as a float; NaN for no values."""
    return float(np.mean(values)) if values.size else float("nan")
