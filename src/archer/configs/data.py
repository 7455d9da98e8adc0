"""What to load: a file, a hub data set or procedural tasks, and which columns hold what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from archer.configs.base import Config

FILE_SUFFIXES = (".jsonl", ".json", ".parquet")
PROMPT_SLOT = "{prompt}"


def _names_to_settings(value: object) -> object:
    """Read ``chain_sum`` and ``[chain_sum, gcd]`` as tasks with their default settings."""
    if isinstance(value, str):
        return {value: {}}
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return {name: {} for name in value}
    return value


class Columns(Config):
    """The column that holds each field. ``null`` says that the rows have no such column.

    ``prompt`` must exist in every row. ``answer`` must exist in rows without tests, unless it is ``null``;
    the other columns are optional. Columns not named here are kept in ``Problem.meta``.
    """

    prompt: str = "prompt"
    answer: str | None = "answer"
    tests: str | None = "tests"
    id: str | None = "id"
    domain: str | None = "domain"
    source: str | None = "source"


class RowsConfig(Config):
    """Where rows come from: exactly one of a local file and a hub data set.

    Attributes:
        path: a ``.jsonl``, ``.json`` (one array of objects) or ``.parquet`` file.
        hub: a data set id (or a local data set folder) for the ``datasets`` package.
        hub_config: configuration name of the hub data set.
        revision: commit or tag of the hub data set; pin it where a run must repeat.
        split: split of the hub data set.
    """

    path: Path | None = None
    hub: str | None = None
    hub_config: str | None = None
    revision: str | None = None
    split: str = "train"

    @model_validator(mode="after")
    def _suffix_is_known(self) -> Self:
        if self.path is not None and self.path.suffix not in FILE_SUFFIXES:
            raise ValueError(
                f"path: expected a file that ends in {' or '.join(FILE_SUFFIXES)}, got {self.path}"
            )
        return self


class DataConfig(RowsConfig):
    """A set of problems.

    Attributes:
        source: ``file`` needs ``path``, ``hub`` needs ``hub``, ``procedural`` needs ``tasks``.
        columns: the column of each field.
        domain: domain of rows that carry none.
        system_prompt: put before every prompt as a system message, which makes every prompt a chat.
        template: text that replaces each prompt (in a chat, its last user message); must hold ``{prompt}``.
        chat: turn text prompts into a chat with one user message.
        shuffle_seed: shuffle before ``limit`` applies; ``null`` keeps the order of the file.
        limit: keep at most this many problems.
        duplicates: rows whose prompts are equal up to blanks: ``report`` warns, ``drop`` keeps the first
            of each, ``refuse`` raises.
        tasks: reasoning-gym tasks and their settings; a name or a list of names means default settings.
        size: number of procedural problems, spread evenly over the tasks.
        seed: seed of the procedural problems. Different seeds give unrelated problems.
        distinct: never give one procedural prompt twice.
    """

    source: Literal["file", "hub", "procedural"] = "file"
    columns: Columns = Columns()
    domain: str = "math"
    system_prompt: str | None = None
    template: str | None = None
    chat: bool = False
    shuffle_seed: int | None = None
    limit: Annotated[int, Field(gt=0)] | None = None
    duplicates: Literal["report", "drop", "refuse"] = "report"
    tasks: Annotated[Mapping[str, Mapping[str, Any]], BeforeValidator(_names_to_settings)] = {}
    size: Annotated[int, Field(gt=0)] = 1000
    seed: int = 0
    distinct: bool = True

    @model_validator(mode="after")
    def _source_is_complete(self) -> Self:
        given = {"file": self.path is not None, "hub": self.hub is not None, "procedural": bool(self.tasks)}
        needs = {"file": "path", "hub": "hub", "procedural": "tasks"}
        if not given[self.source]:
            raise ValueError(f"{needs[self.source]}: needed by source: {self.source}, got nothing")
        for other in given:
            if other != self.source and given[other]:
                raise ValueError(
                    f"{needs[other]}: not used by source: {self.source}; remove it or set source: {other}"
                )
        return self

    @model_validator(mode="after")
    def _template_has_a_slot(self) -> Self:
        if self.template is not None and PROMPT_SLOT not in self.template:
            raise ValueError(f"template: expected text that holds {PROMPT_SLOT}, got {self.template!r}")
        return self
