"""Checkpoints that are whole or absent, and resume that continues exactly.

A checkpoint is written to a folder aside, every file is fsynced, a marker with the sizes of all files is
written last, and the folder is renamed into place. No global random state is used anywhere in training, so the
state is the weights, the optimiser, two counters and the place in the prompt stream.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from archer.configs.run import RunConfig
from archer.errors import CheckpointError
from archer.policy.model import Policy

MARKER = "COMPLETE"

MAY_CHANGE = frozenset(
    {"name", "output", "trackers", "evaluation", "rollout.max_batch"}
    | {
        f"train.{f}"
        for f in ("steps", "eval_every", "checkpoint_every", "keep_checkpoints", "rollout_log_every")
    }
)
"""Settings that a resumed run may change, because they don't touch what is computed."""


@dataclass(frozen=True, slots=True)
class TrainState:
    """Everything besides the weights that a run needs to continue.

    Attributes:
        step: number of finished steps.
        updates: number of optimiser updates so far.
        stream: place in the prompt stream.
        optimizer: the optimiser's state dict.
        settings: the configuration, as plain values.
        data: fingerprint of the training problems.
        template: fingerprint of the prompt template.
        recompute: whether old log-probabilities are recomputed by the trainer.
        pending: metrics of the step if a signal came during its evaluation, which is then made up for on resume.
    """

    step: int
    updates: int
    stream: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    settings: Mapping[str, Any]
    data: str
    template: str
    recompute: bool
    pending: Mapping[str, float] | None


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / "checkpoints" / f"step_{step:06d}"


def save_checkpoint(folder: Path, policy: Policy, state: TrainState, keep: int) -> Path:
    """Write the checkpoint of ``state.step`` and delete all but the newest ``keep``."""
    target = checkpoint_path(folder, state.step)
    aside = target.with_name(target.name + ".partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    policy.save(aside)
    torch.save({name: getattr(state, name) for name in TrainState.__slots__}, aside / "state.pt")
    sizes = {path.name: path.stat().st_size for path in sorted(aside.iterdir())}
    for path in aside.iterdir():
        _fsync(path)
    (aside / MARKER).write_text(json.dumps(sizes))
    _fsync(aside / MARKER)
    _fsync(aside)
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)
    _fsync(target.parent)
    for old in _complete_checkpoints(folder)[keep:]:
        shutil.rmtree(old)
    return target


def newest_checkpoint(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest whole checkpoint, and a notice about each newer one that was passed over."""
    notices: list[str] = []
    for path in sorted((folder / "checkpoints").glob("step_*"), reverse=True):
        problem = _damage(path)
        if problem is None:
            return path, notices
        notices.append(f"{path.name} passed over: {problem}")
    return None, notices


def load_state(path: Path, config: RunConfig, data: str, template: str) -> TrainState:
    """Read ``state.pt`` and refuse it where it belongs to another configuration, data set or prompt template.

    Raises:
        CheckpointError: the state is of a run that computes something else; the message names the fields.
    """
    state = TrainState(**torch.load(path / "state.pt", map_location="cpu", weights_only=True))
    changed = sorted(_differences(state.settings, settings_of(config)))
    steps = state.settings["train"]["steps"]
    if config.optimizer.schedule != "constant" and steps != config.train.steps:
        changed.append(
            f"train.steps ({steps} before, {config.train.steps} now), which shapes the learning rate"
        )
    if changed:
        raise CheckpointError(
            f"{path}: the configuration changed in what the run computes: {', '.join(changed)}. Put the old values "
            "back, or start a new run under another name"
        )
    if state.data != data:
        raise CheckpointError(
            f"{path}: the training problems changed (fingerprint {state.data[:12]} before, {data[:12]} now). "
            "Restore the data, or start a new run under another name"
        )
    if state.template != template:
        raise CheckpointError(f"{path}: the prompt template changed; use the tokenizer the run began with")
    return state


def settings_of(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain values, for storage and comparison."""
    return config.model_dump(mode="json")


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key in old.keys() | new.keys():
        name = prefix + key
        before, after = old.get(key), new.get(key)
        if name in MAY_CHANGE or before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += _differences(before, after, name + ".")
        else:
            found.append(f"{name} ({before!r} before, {after!r} now)")
    return found


def _damage(path: Path) -> str | None:
    """Why a checkpoint can't be used, or None."""
    if path.suffix == ".partial":
        return "it was not finished"
    marker = path / MARKER
    if not marker.exists():
        return f"it has no {MARKER} marker"
    sizes = json.loads(marker.read_text())
    for name, size in sizes.items():
        file = path / name
        if not file.exists() or file.stat().st_size != size:
            return f"{name} is missing or cut short"
    return None


def _complete_checkpoints(folder: Path) -> list[Path]:
    return [p for p in sorted((folder / "checkpoints").glob("step_*"), reverse=True) if _damage(p) is None]


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
