"""Optional mirrors of metrics.jsonl: TensorBoard, Weights & Biases, trackio.

A tracker can never stop or slow a run: it works in a thread of its own from a bounded queue, and its first failure
ends it with one warning. ``metrics.jsonl`` is complete either way.
"""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Log = Callable[[int, Mapping[str, float]], None]
Finish = Callable[[], None]
Warn = Callable[[str], None]


class Tracker:
    """Feeds one service from a background thread."""

    def __init__(self, name: str, connect: Callable[[], tuple[Log, Finish]], warn: Warn) -> None:
        self.name = name
        self._warn = warn
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(maxsize=1000)
        self._failed = False
        self._thread = threading.Thread(
            target=self._work, args=(connect,), name=f"tracker-{name}", daemon=True
        )
        self._thread.start()

    def __call__(self, line: dict[str, Any]) -> None:
        """Queue one line of metrics; never blocks."""
        if not self._failed:
            try:
                self._queue.put_nowait(line)
            except queue.Full:
                self._fail("its queue is full")

    def close(self, timeout: float = 10.0) -> None:
        """Wait at most ``timeout`` seconds for what is queued."""
        if not self._failed:
            try:
                self._queue.put_nowait(None)
            except queue.Full:
                self._fail("its queue is full")
                return
            self._thread.join(timeout)
            if self._thread.is_alive():
                self._fail(f"still busy after {timeout:g} s")

    def _work(self, connect: Callable[[], tuple[Log, Finish]]) -> None:
        try:
            log, finish = connect()
            while (line := self._queue.get()) is not None:
                values = {
                    k: v for k, v in line.items() if isinstance(v, int | float) and k not in ("step", "time")
                }
                log(int(line["step"]), values)
            finish()
        except Exception as error:  # noqa: BLE001 - third-party code must not reach the run
            self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        self._failed = True
        self._warn(f"{self.name} stopped ({reason}); metrics.jsonl stays complete")


def build_trackers(
    names: Sequence[str], folder: Path, name: str, settings: Mapping[str, Any], warn: Warn
) -> list[Tracker]:
    """Trackers by name (``tensorboard``, ``wandb``, ``trackio``)."""
    connect = {
        "tensorboard": lambda: _tensorboard(folder),
        "wandb": lambda: _project_tracker("wandb", name, settings),
        "trackio": lambda: _project_tracker("trackio", name, settings),
    }
    return [Tracker(which, connect[which], warn) for which in names]


def _tensorboard(folder: Path) -> tuple[Log, Finish]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"))

    def log(step: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            writer.add_scalar(key, value, step)
        writer.flush()

    return log, writer.close


def _project_tracker(module: str, name: str, settings: Mapping[str, Any]) -> tuple[Log, Finish]:
    """wandb and trackio share one interface."""
    import importlib

    service = importlib.import_module(module)
    service.init(project="archer", name=name, config=dict(settings))
    return lambda step, values: service.log(dict(values), step=step), service.finish
