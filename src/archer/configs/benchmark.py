"""Benchmarks: where their problems come from, how they are asked, graded and sampled."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from archer.configs.base import Config
from archer.configs.data import Columns
from archer.configs.data_recipe import Form
from archer.configs.reward import RewardConfig
from archer.configs.rollout import SamplingConfig

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]


class HubSource(Config):
    """A hub data set in the row form that it has there."""

    id: str
    config: str | None = None
    revision: str | None = None
    split: str = "test"
    form: Form = "archer"
    columns: Columns = Columns()


class BenchmarkConfig(Config):
    """One benchmark.

    Attributes:
        title: its name in tables.
        file: name of a local file with the columns ``id``, ``prompt`` and ``answer`` or ``tests``; used where the
            folder of local files has it.
        hub: used otherwise.
        domain: decides the grader together with ``reward``.
        prompt_is_code: the prompt holds the head of the function ``meta.entry_point``; what stands before it is put
            before every program.
        window: first and last day of ``meta.contest_date``, for benchmarks that grow.
        template: text around each prompt, with ``{prompt}`` in it.
        k: samples a problem.
        sampling: temperature, top-p and length limit.
        reward: the grader.
        limit: use only the first problems; for trying things out, never for a number to publish.
    """

    title: str
    file: str | None = None
    path: Path | None = None
    hub: HubSource | None = None
    domain: Literal["math", "code"] = "math"
    prompt_is_code: bool = False
    window: tuple[date, date] | None = None
    template: str | None = None
    k: PositiveInt = 4
    sampling: SamplingConfig = SamplingConfig(temperature=0.8, top_p=1.0, max_response_tokens=32768)
    reward: RewardConfig = RewardConfig()
    limit: PositiveInt | None = None

    @model_validator(mode="after")
    def _has_a_source(self) -> Self:
        if self.file is None and self.path is None and self.hub is None:
            raise ValueError("expected one of file, path and hub, got none of them")
        if self.window is not None and self.window[0] > self.window[1]:
            raise ValueError(f"window: expected the first day before the last, got {self.window}")
        return self


class BenchmarksConfig(Config):
    """A list of benchmarks and named suites of them (``recipes/benchmarks.yaml`` ships with Archer)."""

    benchmarks: dict[Name, BenchmarkConfig]
    suites: dict[Name, tuple[Name, ...]] = Field(default={})

    @model_validator(mode="after")
    def _suites_name_benchmarks(self) -> Self:
        for suite, members in self.suites.items():
            for member in members:
                if member not in self.benchmarks:
                    raise ValueError(
                        f"suites.{suite}: expected names of benchmarks ({', '.join(self.benchmarks)}), got {member!r}"
                    )
        return self
