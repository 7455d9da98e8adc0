"""Reading a run directory, as ``docs/RUN_DIRECTORY.md`` describes it.

A run may still be in progress (a torn last line) or have been killed and resumed (steps that repeat); both
are read, and what was skipped or superseded is kept in ``Run.notes``. Anything else that is broken is a
``DataError`` that names the file, the line and the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from archer.analysis.jsonl import Row, need, read_events, read_metrics, stream_rows
from archer.errors import DataError

FloatArray = NDArray[np.float64]

STEP_FILE = re.compile(r"step_(\d+)\.jsonl$")
TOKEN_FIELDS = ("tokens", "token_ids", "logp", "entropy")
OPTIONAL_TOKEN_FIELDS = ("reasoning", "ratio", "clip", "ref_logp")


@dataclass(frozen=True, slots=True)
class Response:
    """One stored training response. All per-token arrays have shape ``[T]``.

    Attributes:
        logp: log-probability of each token under the policy that sampled it (nats).
        entropy: that policy's entropy at each token (nats).
        reasoning: True at reasoning tokens; ``None`` when the run did not record roles for this response.
        ratio: importance ratio at the token's last visit in the update; ``None`` when it was not trained.
        clip: then, -1 below the objective's clip range, 1 above, 0 inside; ``None`` where there is no range.
        ref_logp: log-probability under the reference policy; ``None`` without a reference.
        reward: ``None`` when the response could not be scored.
    """

    step: int
    group: int
    sample: int
    problem_id: str
    prompt: str
    text: str
    tokens: Sequence[str]
    token_ids: NDArray[np.int64]
    logp: FloatArray
    entropy: FloatArray
    reasoning: NDArray[np.bool_] | None
    ratio: FloatArray | None
    clip: NDArray[np.int8] | None
    ref_logp: FloatArray | None
    advantage: float | None
    reward: float | None
    status: str
    extracted: str | None
    reason: str
    finish_reason: str
    earlier: Mapping[str, FloatArray] = field(default_factory=dict)

    @property
    def truncated(self) -> bool:
        """True when the length limit stopped the response."""
        return self.finish_reason == "length"


@dataclass(frozen=True, slots=True)
class Run:
    """What a run wrote. Rollouts and evaluations stay on disk until asked for.

    Attributes:
        metrics: one row a step, in step order; of a repeated step, the row written last.
        notes: what the reader skipped or replaced, in words.
    """

    path: Path
    name: str
    metrics: Sequence[Row]
    events: Sequence[Row]
    config: Row
    environment: Row
    notes: Sequence[str]

    def rollout_files(self) -> list[tuple[int, Path]]:
        """(step, file) of every stored batch, in step order."""
        return step_files(self.path / "rollouts")

    def responses(self, file: Path) -> tuple[list[Response], list[str]]:
        """The responses of one stored batch by (group, sample), of a repeated one the last, and notes."""
        notes: list[str] = []
        earlier = read_rescored(self.path, file.name, notes)
        pool: dict[str, str] = {}
        found: dict[tuple[int, int], Response] = {}
        for line, row in stream_rows(file, notes):
            response = parse_response(row, file, line, pool, earlier)
            found[response.group, response.sample] = response
        return [found[key] for key in sorted(found)], notes

    def evaluations(self) -> dict[int, list[Row]]:
        """Step to its evaluation records, for every evaluation that was stored."""
        result: dict[int, list[Row]] = {}
        for step, file in step_files(self.path / "evaluation"):
            latest: dict[tuple[str, int], Row] = {}
            for line, row in stream_rows(file, []):
                key = (str(need(row, "problem_id", file, line)), int(need(row, "sample", file, line)))
                need(row, "reward", file, line)
                latest[key] = row
            result[step] = [latest[key] for key in sorted(latest)]
        return result

    def setting(self, *keys: str) -> Any:
        """The first of the dotted configuration keys that is set, else ``None``."""
        flat = flatten(self.config)
        return next((flat[key] for key in keys if flat.get(key) is not None), None)


def load_run(path: str | Path) -> Run:
    """Reads a run directory, finished or in progress.

    Args:
        path: the run directory.

    Returns:
        The run; token data is read later, one stored batch at a time.

    Raises:
        DataError: not a run directory, or a record is damaged in a way that an interruption can't explain.
    """
    folder = Path(path)
    file = folder / "metrics.jsonl"
    if not file.is_file():
        raise DataError(
            f"expected a run directory with metrics.jsonl, found {describe(folder)} at {folder}; "
            "give the folder that `archer train` printed, such as runs/NAME"
        )
    metrics, notes = read_metrics(file)
    events, event_notes = read_events(folder / "events.jsonl")
    return Run(
        path=folder,
        name=folder.resolve().name,
        metrics=metrics,
        events=events,
        config=read_mapping(folder / "config.yaml", yaml.safe_load, yaml.YAMLError),
        environment=read_mapping(folder / "environment.json", json.loads, json.JSONDecodeError),
        notes=[*notes, *event_notes],
    )


def describe(path: Path) -> str:
    """What lies at a path, in words, for an error message."""
    if not path.exists():
        return "nothing"
    if path.is_file():
        return "a file"
    names = sorted(p.name for p in path.iterdir())
    return f"a folder holding {', '.join(names[:6]) or 'nothing'}{' …' if len(names) > 6 else ''}"


def read_mapping(file: Path, parse: Any, error_type: type[Exception]) -> Row:
    """A file that holds one mapping; an absent file gives an empty one."""
    if not file.exists():
        return {}
    try:
        content = parse(file.read_text(encoding="utf-8"))
    except error_type as error:
        raise DataError(f"{file}: can't be parsed: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{file}: expected a mapping, found {type(content).__name__}")
    return content


def step_files(folder: Path) -> list[tuple[int, Path]]:
    """(step, file) of the step_*.jsonl files in a folder, in step order; none when the folder is absent."""
    found = [(int(m.group(1)), p) for p in folder.glob("step_*.jsonl") if (m := STEP_FILE.search(p.name))]
    return sorted(found)


def count_tokens(file: Path) -> int:
    """The number of response tokens in a stored batch, counted without parsing the rows.

    Inside a JSON string every quote is escaped, so the key can match nowhere but at the key itself.
    """
    total = 0
    with file.open("rb") as handle:
        for line in handle:
            start = line.find(b'"token_ids":')
            end = line.find(b"]", start)
            if start >= 0 and end >= 0:
                total += line.count(b",", start, end) + bool(line[line.find(b"[", start) + 1 : end].strip())
    return total


def parse_response(
    row: Row,
    file: Path,
    line: int,
    pool: dict[str, str],
    earlier: Mapping[str, Mapping[tuple[int, int], FloatArray]],
) -> Response:
    """One rollout record as a ``Response``; ``pool`` makes equal token texts share memory."""
    lists = {name: need(row, name, file, line) for name in TOKEN_FIELDS}
    lists |= {name: row.get(name) for name in OPTIONAL_TOKEN_FIELDS}
    length = len(lists["tokens"])
    for name, values in lists.items():
        if values is not None and len(values) != length:
            raise DataError(
                f"{file}:{line}: expected {length} values in field '{name}', as in 'tokens', found "
                f"{len(values)}"
            )
    key = (int(need(row, "group", file, line)), int(need(row, "sample", file, line)))
    scored = {
        name: values[key] for name, values in earlier.items() if key in values and len(values[key]) == length
    }
    return Response(
        step=int(need(row, "step", file, line)),
        group=key[0],
        sample=key[1],
        problem_id=str(row.get("problem_id", "")),
        prompt=str(row.get("prompt", "")),
        text=str(need(row, "text", file, line)),
        tokens=[pool.setdefault(token, token) for token in lists["tokens"]],
        token_ids=np.asarray(lists["token_ids"], np.int64),
        logp=to_floats(lists["logp"], "logp", file, line),
        entropy=to_floats(lists["entropy"], "entropy", file, line),
        reasoning=None if lists["reasoning"] is None else np.asarray(lists["reasoning"], np.bool_),
        ratio=None if lists["ratio"] is None else to_floats(lists["ratio"], "ratio", file, line),
        clip=None if lists["clip"] is None else np.asarray(lists["clip"], np.int8),
        ref_logp=None if lists["ref_logp"] is None else to_floats(lists["ref_logp"], "ref_logp", file, line),
        advantage=finite(row.get("advantage")),
        reward=row.get("reward"),
        status=str(row.get("status", "")),
        extracted=row.get("extracted"),
        reason=str(row.get("reason") or ""),
        finish_reason=str(row.get("finish_reason", "")),
        earlier=scored,
    )


def read_rescored(folder: Path, name: str, notes: list[str]) -> dict[str, dict[tuple[int, int], FloatArray]]:
    """Log-probabilities of one stored batch under other checkpoints: label -> (group, sample) -> ``[T]``.

    They lie in ``rescored/LABEL/step_*.jsonl``, one object a response: ``step``, ``group``, ``sample``,
    ``logp``.
    """
    result: dict[str, dict[tuple[int, int], FloatArray]] = {}
    for file in sorted((folder / "rescored").glob(f"*/{name}")):
        result[file.parent.name] = {
            (int(need(row, "group", file, line)), int(need(row, "sample", file, line))): to_floats(
                need(row, "logp", file, line), "logp", file, line
            )
            for line, row in stream_rows(file, notes)
        }
    return result


def to_floats(values: Sequence[float | None], name: str, file: Path, line: int) -> FloatArray:
    """A list of numbers as float64; null becomes NaN."""
    try:
        return np.asarray([np.nan if value is None else value for value in values], np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{file}:{line}: expected a list of numbers in field '{name}': {error}") from error


def finite(value: float | None) -> float | None:
    """A number, or ``None`` for NaN: an unscorable response has no advantage."""
    return None if value is None or value != value else float(value)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping as dotted keys to leaf values."""
    return dict(walk(config, prefix))


def walk(config: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """(dotted key, leaf) pairs of a nested mapping, in order."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from walk(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
