"""Sample K responses to each held-out problem and score them."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archer.configs.rollout import SamplingConfig
from archer.evaluation.statistics import avg_at_k, mean_interval, pass_at_k
from archer.policy.tokenizer import PromptRenderer
from archer.rewards import Scorer
from archer.rollout.sampler import Sampler, SampleRequest
from archer.types import Group, Problem, Rollout, Verdict


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Groups of K responses with their verdicts, and the numbers drawn from them."""

    groups: Sequence[Group]
    k: int

    def scores(self) -> list[list[float]]:
        """Scores of each problem's scorable responses."""
        return [[v.score for v in group.verdicts if v.score is not None] for group in self.groups]

    def metrics(self) -> dict[str, float]:
        """avg@K with its 95 % interval over problems, pass@k for all k up to K, truncation, length, unscorable share.

        pass@k counts a response as right when its verdict is ``correct``, and is taken over the problems with at
        least k scorable responses.
        """
        rollouts = [r for group in self.groups for r in group.rollouts]
        scores = self.scores()
        _, half = mean_interval([sum(row) / len(row) for row in scores if row])
        values = {f"eval/avg@{self.k}": avg_at_k(scores), f"eval/avg@{self.k}_interval": half}
        counts = [
            (
                sum(v.status != "unscorable" for v in g.verdicts),
                sum(v.status == "correct" for v in g.verdicts),
            )
            for g in self.groups
        ]
        for k in range(1, self.k + 1):
            each = [pass_at_k(n, c, k) for n, c in counts if n >= k]
            if each:
                values[f"eval/pass@{k}"] = sum(each) / len(each)
        values["eval/truncated_share"] = sum(r.finish_reason == "length" for r in rollouts) / len(rollouts)
        values["eval/length_mean"] = sum(len(r.token_ids) for r in rollouts) / len(rollouts)
        values["eval/unscorable_share"] = 1 - sum(n for n, _ in counts) / len(rollouts)
        values["eval/distinct_share"] = _distinct_share(self.groups)
        return values

    def write(self, path: Path, prompts: Sequence[str]) -> None:
        """One JSON object a response (see docs/RUN_DIRECTORY.md); ``prompts`` are the rendered texts."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            for group, prompt in zip(self.groups, prompts, strict=True):
                for rollout, verdict in zip(group.rollouts, group.verdicts, strict=True):
                    file.write(
                        json.dumps(_record(group.problem, prompt, rollout, verdict), ensure_ascii=False)
                        + "\n"
                    )


def _distinct_share(groups: Sequence[Group]) -> float:
    """Share of different responses within each problem's K, averaged: 1 / K tells of one shared random stream."""
    shares = [len({r.token_ids for r in group.rollouts}) / len(group.rollouts) for group in groups]
    return sum(shares) / len(shares)


def _record(problem: Problem, prompt: str, rollout: Rollout, verdict: Verdict) -> dict[str, Any]:
    return {
        "problem_id": problem.id,
        "domain": problem.domain,
        "sample": rollout.sample,
        "prompt": prompt,
        "text": rollout.text,
        "reward": verdict.score,
        "status": verdict.status,
        "extracted": verdict.extracted,
        "reason": verdict.reason,
        "length": len(rollout.token_ids),
        "finish_reason": rollout.finish_reason,
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
) -> list[Group]:
    """Sample ``n`` responses to each problem; each is handed to the scorer as soon as it is finished.

    Used by training and evaluation alike. A problem's random streams depend on ``seed`` and its id.
    """
    requests = [SampleRequest(problem.id, renderer.ids(problem.prompt), n) for problem in problems]
    futures: dict[tuple[int, int], Future[Verdict]] = {}

    def submit(index: int, rollout: Rollout) -> None:
        futures[index, rollout.sample] = scorer.submit(problems[index], rollout.text)
        if on_response is not None:
            on_response()

    sampled = sampler.sample(requests, config, seed=seed, on_finish=submit)
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
    return EvaluationResult(groups, k)
