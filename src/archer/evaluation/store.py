"""One model on one benchmark as a folder: what was asked for, the problems, every response, the numbers.

Responses are appended as they are scored and forced to disk, so that a killed evaluation continues without
sampling again what is there, and verdicts can be given anew without a model.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from archer.configs.rollout import SamplingConfig
from archer.errors import ConfigError, DataError
from archer.evaluation.evaluate import (
    Record,
    by_problem,
    record_of,
    sample_and_score,
    summarise,
    verdict_fields,
)
from archer.policy.tokenizer import PromptRenderer
from archer.rewards import Scorer
from archer.rollout.sampler import Sampler
from archer.types import Problem, Rollout, Verdict

SETTINGS, PROBLEMS, SAMPLES, METRICS = "settings.json", "problems.jsonl", "samples.jsonl", "metrics.json"


class SampleStore:
    """The folder of one model and one benchmark.

    Args:
        folder: made if it is absent.
        settings: everything that the responses depend on, and K.
        problems: the benchmark.

    Raises:
        ConfigError: the folder holds responses to other settings; the message names them.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], problems: Sequence[Problem]) -> None:
        self.folder = folder
        self.problems = list(problems)
        self.settings = json.loads(json.dumps(settings))
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / SETTINGS).exists():
            self._check_settings()
        else:
            (folder / PROBLEMS).write_text("".join(_line(asdict(p)) for p in problems), encoding="utf-8")
            _write_whole(folder / SETTINGS, json.dumps(self.settings, indent=1) + "\n")
        self.records = _read_samples(folder / SAMPLES)
        self._known = {(r["problem_id"], r["sample"]) for r in self.records}

    @classmethod
    def open(cls, folder: Path) -> "SampleStore":
        """A store that exists.

        Raises:
            DataError: the folder is none.
        """
        if not (folder / SETTINGS).is_file():
            raise DataError(
                f"{folder}: expected a folder of one model and one benchmark with {SETTINGS}, found none; give a "
                "folder that `archer eval` wrote, such as evaluations/MODEL/BENCHMARK"
            )
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        rows = (folder / PROBLEMS).read_text(encoding="utf-8").splitlines()
        return cls(folder, settings, [Problem(**json.loads(row)) for row in rows])

    @property
    def k(self) -> int:
        """Samples a problem."""
        return int(self.settings["k"])

    def missing(self) -> list[Problem]:
        """Problems with fewer than K stored responses."""
        counts = {key: len(group) for key, group in by_problem(self.records).items()}
        return [problem for problem in self.problems if counts.get(problem.id, 0) < self.k]

    def add(self, record: Record) -> None:
        """Append one response, on disk before this returns; one that is there already is left alone."""
        key = (record["problem_id"], record["sample"])
        if key in self._known:
            return
        with (self.folder / SAMPLES).open("a", encoding="utf-8") as file:
            file.write(_line(record))
            file.flush()
            os.fsync(file.fileno())
        self._known.add(key)
        self.records.append(dict(record))

    def metrics(self) -> dict[str, float]:
        """The numbers of all stored responses, written to ``metrics.json`` as well."""
        values = summarise(self.ordered(), self.k)
        finite = {name: value if value == value else None for name, value in values.items()}
        _write_whole(self.folder / METRICS, json.dumps(finite, indent=1) + "\n")
        return values

    def ordered(self) -> list[Record]:
        """Responses in the order of the problems and samples, however they were finished."""
        place = {problem.id: i for i, problem in enumerate(self.problems)}
        return sorted(self.records, key=lambda r: (place[r["problem_id"]], r["sample"]))

    def _check_settings(self) -> None:
        stored = json.loads((self.folder / SETTINGS).read_text(encoding="utf-8"))
        changed = [
            f"{name} ({stored.get(name)!r} before, {self.settings.get(name)!r} now)"
            for name in dict.fromkeys([*stored, *self.settings])
            if stored.get(name) != self.settings.get(name)
        ]
        if changed:
            raise ConfigError(
                f"{self.folder} holds responses to other settings: {', '.join(changed)}. Choose another --output, or "
                "put the old settings back"
            )


def read_evaluations(folder: Path) -> dict[str, SampleStore]:
    """The stores of one model by benchmark.

    Raises:
        DataError: the folder holds none.
    """
    found = {
        path.name: SampleStore.open(path) for path in sorted(folder.glob("*")) if (path / SETTINGS).is_file()
    }
    if not found:
        raise DataError(
            f"{folder}: expected a folder of one model that `archer eval` wrote (evaluations/LABEL), found no "
            "benchmark in it"
        )
    return found


def fill(
    store: SampleStore,
    renderer: PromptRenderer,
    sampler: Sampler,
    scorer: Scorer,
    sampling: SamplingConfig,
    *,
    seed: int,
    on_response: Callable[[], None] | None = None,
) -> None:
    """Sample and score what the store lacks.

    A problem of which some samples are stored is sampled again as a whole, from the same random streams; the stored
    ones stay.
    """

    def keep(problem: Problem, rollout: Rollout, verdict: Verdict) -> None:
        store.add(record_of(problem, renderer.text(problem.prompt), rollout, verdict))

    sample_and_score(
        store.missing(),
        renderer,
        sampler,
        scorer,
        sampling,
        n=store.k,
        seed=seed,
        on_response=on_response,
        on_verdict=keep,
    )


def regrade(
    store: SampleStore, target: Path, scorer: Scorer, reward: Mapping[str, Any]
) -> tuple[SampleStore, int]:
    """Give the stored responses new verdicts, in a store of their own; needs no model.

    Args:
        store: stays as it is.
        target: folder of the new store.
        scorer: the grader.
        reward: its settings, which are recorded.

    Returns:
        The new store, and how many verdicts differ from the old ones.
    """
    problems = {problem.id: problem for problem in store.problems}
    fresh = SampleStore(target, {**store.settings, "reward": reward}, store.problems)
    records = store.ordered()
    verdicts = scorer.score([problems[r["problem_id"]] for r in records], [r["text"] for r in records])
    for record, verdict in zip(records, verdicts, strict=True):
        fresh.add({**record, **verdict_fields(verdict)})
    changed = sum(r["status"] != v.status for r, v in zip(records, verdicts, strict=True))
    return fresh, changed


def _read_samples(path: Path) -> list[dict[str, Any]]:
    """Stored responses; a last line torn by a kill is cut off, so that the next one starts on its own line."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    records = []
    for number, line in enumerate(whole.decode("utf-8").splitlines(), 1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path}, line {number}: expected one JSON object, found {error.msg}; remove the line"
            ) from None
    return records


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) + "\n"


def _write_whole(path: Path, text: str) -> None:
    aside = path.with_name(path.name + ".tmp")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
