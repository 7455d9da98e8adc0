"""Raw sets to problems, through the adapter of their row form."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from archer.configs.data import DataConfig
from archer.configs.data_recipe import SourceConfig
from archer.data.adapters import ADAPTERS, Adapter
from archer.data.loading import problem_from_row
from archer.data.records import sha256_of
from archer.data.rows import Row, read_rows
from archer.errors import DataError
from archer.types import Problem


def read_source(name: str, config: SourceConfig) -> Iterator[Problem | DataError]:
    """One problem a row, or the error that says why the row can't be used.

    Ids are ``NAME/ROW``, so that they are unique and lead back to the row; ``meta.origin_id`` keeps the id
    that the row carried.

    Raises:
        DataError: the file or data set can't be read.
    """
    adapter = ADAPTERS[config.form] if config.form != "archer" else _own_form(config)
    for row in itertools.islice(read_rows(config), config.limit):
        try:
            yield _named(adapter(row), name, row)
        except DataError as error:
            yield error


def origin_of(name: str, config: SourceConfig) -> dict[str, str | None]:
    """What identifies the content of a source: the sha256 of a file, or the revision of a hub set."""
    if config.path is not None:
        if not config.path.is_file():
            raise DataError(f"{name}: expected a data file at {config.path}, found none; check the path")
        return {"path": config.path.name, "sha256": sha256_of(config.path)}
    return {
        "hub": config.hub,
        "config": config.hub_config,
        "split": config.split,
        "revision": config.revision,
    }


def _named(problem: Problem, name: str, row: Row) -> Problem:
    origin = {"origin_id": problem.id} if problem.id else {}
    return replace(problem, id=f"{name}/{row.number}", source=name, meta={**origin, **problem.meta})


def _own_form(config: SourceConfig) -> Adapter:
    kind = {"path": config.path} if config.path is not None else {"source": "hub", "hub": config.hub}
    reading = DataConfig.model_validate({**kind, "columns": config.columns, "domain": config.domain})
    return lambda row: problem_from_row(row, reading)
