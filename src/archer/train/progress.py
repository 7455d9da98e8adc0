"""The terminal display of a running training run."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

ROWS = (
    ("reward", "reward/mean", "{:.3f}"),
    ("pass@1 held out", "eval/pass@1", "{:.3f}"),
    ("entropy (nats)", "entropy/mean", "{:.3f}"),
    ("high-entropy tokens", "role/reasoning_share", "{:.1%}"),
    ("clipped above, reasoning", "clip/above_reasoning", "{:.2%}"),
    ("clipped above, knowledge", "clip/above_knowledge", "{:.2%}"),
    ("KL to base (nats)", "kl/base", "{:.4f}"),
    ("sampled tokens/s", "speed/sampled_tokens_per_second", "{:,.0f}"),
)


class ProgressDisplay:
    """Shows the newest metrics and the time left; on a plain stream it prints one line a step."""

    def __init__(self, steps: int, console: Console) -> None:
        self._console, self._steps = console, steps
        self._values: dict[str, float] = {}
        self._first: dict[str, float] = {}
        self._bar = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
        )
        self._task = self._bar.add_task("train", total=steps)
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def __call__(self, line: dict[str, Any]) -> None:
        """Show one line of metrics."""
        fresh = {key: value for key, value in line.items() if isinstance(value, int | float)}
        for role in ("reasoning", "knowledge"):
            sides = [fresh[key] for side in ("above", "below") if (key := f"clip/{side}_{role}") in fresh]
            if sides:
                fresh[f"clip/{role}"] = sum(sides)
        self._values |= fresh
        self._first = {**fresh, **self._first}
        self._bar.update(self._task, completed=line["step"])
        if self._live is not None:
            self._live.update(Group(self._bar, self._table()))
        else:
            self._console.print(self._plain(int(line["step"])), highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 3))
        for label, key, form in ROWS:
            if key in self._values:
                table.add_row(
                    label, form.format(self._values[key]), f"[dim]first {form.format(self._first[key])}[/]"
                )
        return table

    def _plain(self, step: int) -> str:
        shown = [
            f"{label} {form.format(self._values[key])}" for label, key, form in ROWS if key in self._values
        ]
        return f"step {step}/{self._steps}  {time.monotonic() - self._started:.0f} s  " + "  ".join(shown)


def before_and_after(first: dict[str, Any], last: dict[str, Any]) -> Table:
    """avg@K and pass@k of the first and the last evaluation."""
    table = Table(title="Held-out problems", title_justify="left")
    for column in ("", "before", "after", "change (points)"):
        table.add_column(column, justify="right" if column else "left")
    shown: Sequence[str] = [
        key for key in first if key.startswith(("eval/avg@", "eval/pass@")) and "_interval" not in key
    ]
    for key in shown:
        before, after = first[key], last[key]
        table.add_row(
            key.removeprefix("eval/"), f"{before:.1%}", f"{after:.1%}", f"{100 * (after - before):+.1f}"
        )
    return table
