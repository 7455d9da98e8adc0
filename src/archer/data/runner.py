"""Runs one stage: outcomes to files, counts and samples, so that a finished stage is never run again."""

from __future__ import annotations

import bisect
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from archer.data.fields import prompt_text
from archer.data.outcomes import Outcome
from archer.data.records import ProblemFile, dumps, to_json

PROGRESS_EVERY = 1000
_EXCERPT = 300


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is.

    Attributes:
        stage: name of the stage that runs.
        number, stages: its place among all of them, from 1.
        done, total: problems it has decided, of how many (``None`` while sources are read).
        kept: problems it has kept.
    """

    stage: str
    number: int
    stages: int
    done: int
    total: int | None
    kept: int


@dataclass(slots=True)
class StageReport:
    """What a stage did; ``stage.json`` beside its output.

    ``dropped`` maps a reason and ``notes`` a kind to a count; ``sources`` maps a source to what came in and
    what was kept; ``samples`` holds a few problems a reason and kind, chosen by the hash of their id.
    """

    name: str
    kind: str
    key: str
    seen: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    sources: dict[str, dict[str, int]] = field(default_factory=dict)
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    bytes: int = 0
    seconds: float = 0.0


def finished(folder: Path, key: str) -> StageReport | None:
    """The report of a stage that already ran on the same input with the same settings; else ``None``."""
    path = folder / "stage.json"
    if not path.exists():
        return None
    report = StageReport(**json.loads(path.read_text()))
    kept = folder / "kept.jsonl"
    return report if report.key == key and kept.exists() and kept.stat().st_size == report.bytes else None


def run_stage(
    outcomes: Iterable[Outcome],
    folder: Path,
    report: StageReport,
    samples: int,
    tick: Callable[[int, int], None],
) -> StageReport:
    """Write what a stage yields: ``kept.jsonl``, ``dropped.jsonl``, ``notes.jsonl``, and ``stage.json`` last.

    Args:
        outcomes: one a problem, in order.
        folder: where to write; made where needed.
        report: name, kind and key; filled in.
        samples: problems shown a reason.
        tick: called with the numbers decided and kept, now and then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stage.json").unlink(missing_ok=True)
    started = time.monotonic()
    counter = _Counter(samples)
    names = ("kept", "dropped", "notes")
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.partial").open("wb")) for name in names}
        for outcome in outcomes:
            counter.add(outcome)
            if outcome.reason:
                files["dropped"].write(dumps(_summary(outcome, {"reason": outcome.reason})))
            else:
                files["kept"].write(dumps(to_json(outcome.problem)))
            for note in outcome.notes:
                files["notes"].write(dumps(_summary(outcome, note)))
            if counter.seen % PROGRESS_EVERY == 0:
                tick(counter.seen, counter.kept)
    for name in names:
        os.replace(folder / f"{name}.partial", folder / f"{name}.jsonl")
    tick(counter.seen, counter.kept)
    counter.fill(report)
    report.bytes = (folder / "kept.jsonl").stat().st_size
    report.seconds = round(time.monotonic() - started, 3)
    write_json(folder / "stage.json", asdict(report))
    return report


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON aside and rename it, so that the file is whole or absent."""
    aside = path.with_name(path.name + ".partial")
    aside.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    os.replace(aside, path)


def output_of(folder: Path) -> ProblemFile:
    """What a finished stage kept."""
    return ProblemFile(folder / "kept.jsonl")


class _Counter:
    def __init__(self, samples: int) -> None:
        self.seen = 0
        self.kept = 0
        self._samples = samples
        self._dropped: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()
        self._sources: dict[str, list[int]] = {}
        self._shown: dict[str, list[tuple[str, dict[str, Any]]]] = {}

    def add(self, outcome: Outcome) -> None:
        keep = not outcome.reason
        self.seen += 1
        self.kept += keep
        counts = self._sources.setdefault(outcome.problem.source, [0, 0])
        counts[0] += 1
        counts[1] += keep
        if outcome.reason:
            self._dropped[outcome.reason] += 1
            self._show(outcome.reason, outcome, {})
        for note in outcome.notes:
            self._notes[note["kind"]] += 1
            self._show(note["kind"], outcome, note)

    def fill(self, report: StageReport) -> None:
        report.seen, report.kept = self.seen, self.kept
        report.dropped, report.notes = dict(self._dropped.most_common()), dict(self._notes.most_common())
        report.sources = {name: {"in": seen, "kept": kept} for name, (seen, kept) in self._sources.items()}
        report.samples = {name: [entry for _, entry in shown] for name, shown in self._shown.items()}

    def _show(self, name: str, outcome: Outcome, note: Mapping[str, Any]) -> None:
        if not self._samples:
            return
        shown = self._shown.setdefault(name, [])
        place = hashlib.sha256((outcome.problem.id + outcome.detail).encode("utf-8", "replace")).hexdigest()
        if len(shown) < self._samples or place < shown[-1][0]:
            bisect.insort(shown, (place, _summary(outcome, note)), key=lambda item: item[0])
            del shown[self._samples :]


def _summary(outcome: Outcome, note: Mapping[str, Any]) -> dict[str, Any]:
    problem = outcome.problem
    summary = {"id": problem.id, "source": problem.source, "detail": outcome.detail}
    text = prompt_text(problem.prompt)
    summary["prompt"] = text if len(text) <= _EXCERPT else text[:_EXCERPT] + " ..."
    return {**summary, **{f"other_{key}" if key == "id" else key: value for key, value in note.items()}}
