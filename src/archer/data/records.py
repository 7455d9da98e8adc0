"""Problems on disk: one JSON object a line, read in order or one at a time by row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from archer.data.fields import prompt_json
from archer.types import Problem


def to_json(problem: Problem) -> dict[str, Any]:
    """The problem as JSON types, with the keys that ``load_problems`` reads by default."""
    return {
        "id": problem.id,
        "prompt": prompt_json(problem.prompt),
        "answer": problem.answer,
        "tests": [dict(test) for test in problem.tests],
        "domain": problem.domain,
        "source": problem.source,
        "meta": dict(problem.meta),
    }


def from_json(values: Mapping[str, Any]) -> Problem:
    """The problem that ``to_json`` wrote."""
    prompt = values["prompt"]
    return Problem(
        id=values["id"],
        prompt=prompt if isinstance(prompt, str) else tuple(prompt),
        answer=values["answer"],
        tests=tuple(values["tests"]),
        domain=values["domain"],
        source=values["source"],
        meta=values["meta"],
    )


def dumps(values: Mapping[str, Any]) -> bytes:
    """One line of JSON, its newline included."""
    try:
        return json.dumps(values, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can escape and UTF-8 can't hold
        return json.dumps(values).encode() + b"\n"


class ProblemFile:
    """A file of problems that can be read many times; memory does not grow with its size.

    Row numbers count from 0. The first request for a single row builds a table of offsets (8 bytes a row).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets: np.ndarray[Any, np.dtype[np.int64]] | None = None

    def __iter__(self) -> Iterator[Problem]:
        with self.path.open("rb") as file:
            for line in file:
                yield from_json(json.loads(line))

    def row(self, index: int) -> Problem:
        """The problem at a row."""
        if self._offsets is None:
            with self.path.open("rb") as file:
                sizes = np.fromiter((len(line) for line in file), dtype=np.int64)
            self._offsets = np.concatenate(([0], np.cumsum(sizes)))
        with self.path.open("rb") as file:
            file.seek(int(self._offsets[index]))
            return from_json(json.loads(file.readline()))


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
