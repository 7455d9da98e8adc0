"""What a stage is: a function from a file of problems to one outcome a problem, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from archer.configs.data_recipe import DataRecipe, SamplerConfig
from archer.types import Problem


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a stage decided about one problem.

    Attributes:
        problem: as it goes on to the next stage.
        reason: why it was dropped, a short label; empty where it is kept.
        detail: what the label leaves open, for a reader.
        notes: findings that do not drop it, each with a ``kind``.
    """

    problem: Problem
    reason: str = ""
    detail: str = ""
    notes: Sequence[Mapping[str, Any]] = field(default=())


class ScoredSampler(Protocol):
    """A model with a grader, as the caller provides it for the difficulty filters."""

    @property
    def fingerprint(self) -> str:
        """A hash of everything that changes the scores: weights, sampling settings, template, grader."""

    def sample_and_score(
        self, problems: Sequence[Problem], samples: int, seed: int
    ) -> Sequence[Sequence[float | None]]:
        """Scores in [0, 1], ``samples`` a problem, in order; ``None`` where nothing can be said."""


MakeSampler = Callable[[SamplerConfig], ScoredSampler]


@dataclass(frozen=True, slots=True)
class StageContext:
    """What a stage may use beside its input.

    Attributes:
        recipe: the whole recipe, for its benchmarks.
        work: an empty folder for temporary files, removed afterwards.
        cache: a folder whose files outlive the build.
        make_sampler: builds the sampler of a difficulty stage.
    """

    recipe: DataRecipe
    work: Path
    cache: Path
    make_sampler: MakeSampler


StageResult = Iterator[Outcome]
