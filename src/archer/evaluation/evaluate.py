"""Sample K responses to each held-out problem and score them."""

import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archer.analysis.statistics import repetition
from archer.configs.rollout import SamplingConfig
from archer.evaluation.statistics import avg_at_k, mean_interval, pass_at_k
from archer.policy.tokenizer import PromptRenderer
from archer.rewards import Scorer
from archer.rollout.sampler import Sampler, SampleRequest
from archer.types import Group, Problem, Rollout, Verdict

Record = Mapping[str, Any]
"""One sampled response with its verdict, as it is stored (docs/RUN_DIRECTORY.md)."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The records of K responses to each problem, and the numbers drawn from them."""

    records: Sequence[Record]
    k: int

    def metrics(self) -> dict[str, float]:
        """See ``summarise``, with ``eval/`` before each name."""
        return {f"eval/{name}": value for name, value in summarise(self.records, self.k).items()}

    def write(self, path: Path) -> None:
        """One JSON object a response."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in self.records)


def summarise(records: Sequence[Record], k: int) -> dict[str, float]:
    """The numbers of one benchmark.

    ``avg@K`` is the mean over problems of the mean score, ``avg@K_interval`` the half-width of its 95 % interval over
    problems. ``pass@1`` to ``pass@K`` count a response as right when its verdict is ``correct``, each over the
    problems with that many scorable responses. ``truncated_share``, ``finished_score`` (mean score of the responses
    that were not truncated), ``length_mean`` and ``tokens`` (sampled tokens), ``repetition`` (mean share of repeated
    20-word windows), ``unscorable_share``, ``distinct_share`` (different texts within a problem's K, averaged: 1 / K
    tells of one shared random stream).

    Raises:
        ValueError: no records.
    """
    if not records:
        raise ValueError("expected at least one record, got none")
    groups = list(by_problem(records).values())
    scores = [[r["reward"] for r in group if r["reward"] is not None] for group in groups]
    _, half = mean_interval([sum(row) / len(row) for row in scores if row])
    values = {f"avg@{k}": avg_at_k(scores), f"avg@{k}_interval": half}
    counts = [
        (
            sum(r["status"] != "unscorable" for r in group),
            sum(r["status"] == "correct" for r in group),
        )
        for group in groups
    ]
    for tries in range(1, k + 1):
        each = [pass_at_k(n, c, tries) for n, c in counts if n >= tries]
        if each:
            values[f"pass@{tries}"] = sum(each) / len(each)
    finished = [r["reward"] for r in records if r["finish_reason"] != "length" and r["reward"] is not None]
    size = len(records)
    return {
        **values,
        "truncated_share": sum(r["finish_reason"] == "length" for r in records) / size,
        "finished_score": sum(finished) / len(finished) if finished else math.nan,
        "length_mean": sum(r["length"] for r in records) / size,
        "tokens": float(sum(r["length"] for r in records)),
        "repetition": sum(repetition(r["text"]) for r in records) / size,
        "unscorable_share": sum(r["reward"] is None for r in records) / size,
        "distinct_share": sum(len({r["text"] for r in group}) / len(group) for group in groups) / len(groups),
    }


def by_problem(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Problem id to its records, in the order in which problems first appear."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["problem_id"], []).append(record)
    return groups


def record_of(problem: Problem, prompt: str, rollout: Rollout, verdict: Verdict) -> dict[str, Any]:
    """What is stored of one response; ``prompt`` is the rendered text."""
    return {
        "problem_id": problem.id,
        "domain": problem.domain,
        "sample": rollout.sample,
        "prompt": prompt,
        "text": rollout.text,
        **verdict_fields(verdict),
        "length": len(rollout.token_ids),
        "finish_reason": rollout.finish_reason,
    }


def verdict_fields(verdict: Verdict) -> dict[str, Any]:
    """The part of a record that grading decides."""
    return {
        "reward": verdict.score,
        "status": verdict.status,
        "extracted": verdict.extracted,
        "reason": verdict.reason,
    }


def sample_and_score(
    problems: Sequence[Problem],
    renderer: PromptRenderer,
    sampler: Sampler,
    scorer: Scorer,
    config: SamplingConfig,
    *,
    n: int,
    seed: int,
    on_response: Callable[[], None] | None = None,
    on_verdict: Callable[[Problem, Rollout, Verdict], None] | None = None,
) -> list[Group]:
    """Sample ``n`` responses to each problem; each is handed to the scorer as soon as it is finished.

    Used by training and evaluation alike. A problem's random streams depend on ``seed`` and its id.

    Args:
        on_response: called when a response is finished.
        on_verdict: called, in the calling thread and in the order of the responses' ends, soon after a verdict.
    """
    requests = [SampleRequest(problem.id, renderer.ids(problem.prompt), n) for problem in problems]
    futures: dict[tuple[int, int], Future[Verdict]] = {}
    untold: deque[tuple[int, Rollout]] = deque()

    def submit(index: int, rollout: Rollout) -> None:
        futures[index, rollout.sample] = scorer.submit(problems[index], rollout.text)
        untold.append((index, rollout))
        if on_response is not None:
            on_response()
        tell(wait=False)

    def tell(*, wait: bool) -> None:
        while on_verdict is not None and untold:
            index, rollout = untold[0]
            future = futures[index, rollout.sample]
            if not (wait or future.done()):
                return
            on_verdict(problems[index], rollout, future.result())
            untold.popleft()

    sampled = sampler.sample(requests, config, seed=seed, on_finish=submit)
    tell(wait=True)
    return [
        Group(problem, rollouts, [futures[index, rollout.sample].result() for rollout in rollouts])
        for index, (problem, rollouts) in enumerate(zip(problems, sampled, strict=True))
    ]


def evaluate(
    problems: Sequence[Problem],
    renderer: PromptRenderer,
    sampler: Sampler,
    scorer: Scorer,
    config: SamplingConfig,
    *,
    k: int,
    seed: int,
    on_response: Callable[[], None] | None = None,
) -> EvaluationResult:
    """avg@K and pass@k of the sampler's present weights; equal calls give equal results on a CPU."""
    groups = sample_and_score(
        problems, renderer, sampler, scorer, config, n=k, seed=seed, on_response=on_response
    )
    records = [
        record_of(group.problem, renderer.text(group.problem.prompt), rollout, verdict)
        for group in groups
        for rollout, verdict in zip(group.rollouts, group.verdicts, strict=True)
    ]
    return EvaluationResult(records, k)
