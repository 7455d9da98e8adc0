"""Problems that stand in a benchmark are dropped; those that differ from one in numbers only are listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from archer.configs.data_recipe import DecontaminateStage, NgramTest
from archer.data.fields import prompt_text
from archer.data.outcomes import Outcome, StageContext, StageResult
from archer.data.records import ProblemFile
from archer.data.sources import read_source
from archer.data.text import Gram, grams, needed, tokens
from archer.errors import DataError
from archer.types import Problem


def decontaminate(problems: ProblemFile, stage: DecontaminateStage, context: StageContext) -> StageResult:
    """Drop what passes the N-gram test against a benchmark problem; note near matches.

    Benchmarks are small, so their N-grams are held as they are and every verdict is exact.

    Raises:
        DataError: a benchmark can't be read, or one of its rows can't be used.
    """
    wanted = stage.benchmarks or list(context.recipe.benchmarks)
    exact = _Benchmark(stage.test)
    masked_by = stage.test.normalise.model_copy(update={"numbers": "mask"})
    masked = _Benchmark(
        stage.test.model_copy(update={"normalise": masked_by, "threshold": stage.near_threshold})
    )
    for name in wanted:
        for problem in read_source(name, context.recipe.benchmarks[name]):
            if isinstance(problem, DataError):
                raise problem
            exact.add(problem)
            masked.add(problem)
    for problem in problems:
        if hit := exact.best(problem):
            shared = f"{hit['share']:.2f} of the {stage.test.n}-grams shared with {hit['id']}"
            yield Outcome(problem, f"in {hit['benchmark']}", shared)
            continue
        near = masked.best(problem) if stage.near != "off" else None
        if near is None:
            yield Outcome(problem)
        elif stage.near == "drop":
            yield Outcome(problem, f"near {near['benchmark']}", f"{near['id']} with other numbers")
        else:
            yield Outcome(problem, notes=[{"kind": f"near {near['benchmark']}", **near}])


@dataclass(slots=True)
class _Benchmark:
    """The N-grams of all benchmark problems."""

    test: NgramTest
    problems: list[tuple[Problem, int]] = field(default_factory=list)
    index: dict[Gram, list[int]] = field(default_factory=dict)

    def add(self, problem: Problem) -> None:
        found = self._grams(problem)
        for gram in found:
            self.index.setdefault(gram, []).append(len(self.problems))
        self.problems.append((problem, len(found)))

    def best(self, problem: Problem) -> Mapping[str, Any] | None:
        """The benchmark problem that shares the largest part, where one passes the test."""
        mine = self._grams(problem)
        common = Counter(number for gram in mine for number in self.index.get(gram, ()))
        passing = [
            (count / min(len(mine), self.problems[number][1]), number)
            for number, count in common.items()
            if count >= needed(self.test, len(mine), self.problems[number][1])
        ]
        if not passing:
            return None
        share, number = max(passing, key=lambda item: (item[0], -item[1]))
        other = self.problems[number][0]
        return {
            "benchmark": other.source,
            "id": other.id,
            "share": round(share, 4),
            "benchmark_prompt": prompt_text(other.prompt),
        }

    def _grams(self, problem: Problem) -> set[Gram]:
        return grams(tokens(prompt_text(problem.prompt), self.test.normalise), self.test.n)
