"""JSONL files that a process may be writing, or was killed while writing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from archer.errors import DataError

Row = dict[str, Any]

OBJECT_STARTS = ('{"step"', '{"time"')
"""How the rows of the files that are appended to begin."""


def read_metrics(file: Path) -> tuple[list[Row], list[str]]:
    """The rows of metrics.jsonl in step order, and notes; a later row replaces an earlier one of its step.

    A torn line is skipped when it is the last, or when the next row starts again at or before the step that
    it would have held: a kill followed by a resume leaves that.

    Raises:
        DataError: a line is damaged in any other way, or a row has no step.
    """
    latest: dict[int, Row] = {}
    notes: list[str] = []
    previous, pending, replaced = -1, "", 0
    for line, row, problem in scan_lines(file):
        pending = pending or problem
        if problem:
            notes.append(skipped(file, line))
        if row is None:
            continue
        step = need(row, "step", file, line)
        if not isinstance(step, int):
            raise DataError(f"{file}:{line}: expected an integer in field 'step', found {step!r}")
        if pending and step > previous + 1:
            raise damaged(file, line - (not problem), pending)
        replaced += step in latest
        latest[step] = row
        previous, pending = step, ""
    if len(notes) > 1 and not latest:
        raise damaged(file, 1, pending)
    if replaced:
        notes.append(
            f"{file.name}: {replaced} rows repeat a step (a resumed run); the last row of each step is used"
        )
    return [latest[step] for step in sorted(latest)], notes


def read_events(file: Path) -> tuple[list[Row], list[str]]:
    """The rows of events.jsonl in the order written, and notes on torn lines; none without the file."""
    if not file.exists():
        return [], []
    lines = list(scan_lines(file))
    notes = [skipped(file, line) for line, _, problem in lines if problem]
    return [row for _, row, _ in lines if row is not None], notes


def stream_rows(file: Path, notes: list[str]) -> Iterator[tuple[int, Row]]:
    """(line number, row) pairs of a file that one process writes, one at a time.

    A torn last line is skipped and told in ``notes``.

    Raises:
        DataError: a line before the last is damaged.
    """
    torn: tuple[int, str] | None = None
    for line, row, problem in scan_lines(file):
        if torn:
            raise damaged(file, *torn)
        if row is not None and not problem:
            yield line, row
        else:
            torn = (line, problem)
    if torn:
        notes.append(skipped(file, torn[0]))


def scan_lines(file: Path) -> Iterator[tuple[int, Row | None, str]]:
    """(line number, its row, what is wrong with it) of every line that is not blank.

    Both a row and a problem come from a line in which a whole object follows a torn one.
    """
    with file.open(encoding="utf-8", errors="replace") as handle:
        for line, text in enumerate(handle, start=1):
            if text.strip():
                yield line, *parse_line(text)


def parse_line(text: str) -> tuple[Row | None, str]:
    """The row in a line, and what is wrong with the line."""
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        glued = max(text.rfind(start) for start in OBJECT_STARTS)
        row = parse_line(text[glued:])[0] if glued > 0 else None
        return row, error.msg
    return (row, "") if isinstance(row, dict) else (None, f"a JSON {type(row).__name__}")


def damaged(file: Path, line: int, problem: str) -> DataError:
    """The error for a line that no interruption explains."""
    return DataError(
        f"{file}:{line}: expected one JSON object a line, found a damaged line ({problem}); "
        "repair or delete that line"
    )


def skipped(file: Path, line: int) -> str:
    """The note on a line that an interruption left torn."""
    return f"{file.name}: line {line} is incomplete (an interrupted write); it was skipped"


def need(row: Row, name: str, file: Path, line: int) -> Any:
    """The value of a required field."""
    if name not in row:
        raise DataError(f"{file}:{line}: expected field '{name}', found {', '.join(sorted(row)) or 'none'}")
    return row[name]
