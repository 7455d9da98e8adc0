"""Problems to the files that trainers read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from archer.data.fields import prompt_json
from archer.data.records import dumps, to_json
from archer.types import Problem

_BATCH = 1000


def export(problems: Iterable[Problem], form: str, folder: Path) -> Path:
    """Write one export and return its path.

    Forms: ``jsonl`` and ``parquet`` hold all fields and load with the default ``Columns`` (in parquet,
    ``tests`` and ``meta`` are JSON text); ``verl`` holds verl rows as parquet, with the problem as JSON text in
    ``extra_info.problem`` for ``archer.adapters.verl.reward``; ``trl`` holds one row a line
    with ``prompt`` as messages and ``tests`` as JSON text.
    """
    suffix, write = _WRITERS[form]
    path = folder / f"{'problems' if form in ('jsonl', 'parquet') else form}{suffix}"
    write(problems, path)
    return path


def _write_jsonl(problems: Iterable[Problem], path: Path) -> None:
    with path.open("wb") as file:
        for problem in problems:
            file.write(dumps(to_json(problem)))


def _write_trl(problems: Iterable[Problem], path: Path) -> None:
    with path.open("wb") as file:
        for problem in problems:
            row = to_json(problem)
            del row["meta"]
            file.write(dumps(row | {"prompt": _messages(problem), "tests": _tests_text(problem)}))


def _write_parquet(problems: Iterable[Problem], path: Path) -> None:
    as_chat = any(not isinstance(problem.prompt, str) for problem in problems)

    def rows() -> Iterator[Mapping[str, Any]]:
        for problem in problems:
            row = to_json(problem)
            prompt = _messages(problem) if as_chat else problem.prompt
            yield row | {"prompt": prompt, "tests": _tests_text(problem), "meta": json.dumps(row["meta"])}

    _write_table(rows(), path, as_chat=as_chat)


def _write_verl(problems: Iterable[Problem], path: Path) -> None:
    def rows() -> Iterator[Mapping[str, Any]]:
        for index, problem in enumerate(problems):
            truth = _tests_text(problem) if problem.tests else problem.answer
            yield {
                "data_source": problem.source,
                "prompt": _messages(problem),
                "ability": problem.domain,
                "reward_model": {"style": "rule", "ground_truth": truth},
                "extra_info": {
                    "index": index,
                    "id": problem.id,
                    "split": "train",
                    "problem": _without_tests(problem),
                },
            }

    _write_table(rows(), path, as_chat=True, verl=True)


def _write_table(rows: Iterator[Mapping[str, Any]], path: Path, as_chat: bool, verl: bool = False) -> None:
    import pyarrow
    import pyarrow.parquet

    text = pyarrow.string()
    messages = pyarrow.list_(pyarrow.struct({"role": text, "content": text}))
    if verl:
        schema = pyarrow.schema(
            {
                "data_source": text,
                "prompt": messages,
                "ability": text,
                "reward_model": pyarrow.struct({"style": text, "ground_truth": text}),
                "extra_info": pyarrow.struct(
                    {"index": pyarrow.int64(), "id": text, "split": text, "problem": text}
                ),
            }
        )
    else:
        names = ("id", "prompt", "answer", "tests", "domain", "source", "meta")
        schema = pyarrow.schema(dict.fromkeys(names, text) | ({"prompt": messages} if as_chat else {}))
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while batch := list(islice(rows, _BATCH)):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))


def _messages(problem: Problem) -> list[dict[str, str]]:
    prompt = prompt_json(problem.prompt)
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def _without_tests(problem: Problem) -> str:
    """The row as JSON text for the graders, without the tests: those can be long, and are the ground truth."""
    row = to_json(problem)
    del row["tests"]
    return dumps(row).decode().strip()


def _tests_text(problem: Problem) -> str | None:
    return json.dumps([dict(test) for test in problem.tests]) if problem.tests else None


_WRITERS: Mapping[str, tuple[str, Callable[[Iterable[Problem], Path], None]]] = {
    "jsonl": (".jsonl", _write_jsonl),
    "parquet": (".parquet", _write_parquet),
    "verl": (".parquet", _write_verl),
    "trl": (".jsonl", _write_trl),
}
