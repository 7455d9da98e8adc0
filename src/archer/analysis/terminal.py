"""The terminal view of a run, finished or in progress, from its metrics.jsonl alone."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from archer.analysis.dynamics import EVALUATION_KEY, natural, with_interval
from archer.analysis.jsonl import Row, read_metrics
from archer.analysis.records import FloatArray, describe
from archer.analysis.statistics import smooth
from archer.errors import DataError

BLOCKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 24
ROWS: Sequence[tuple[str, str, str]] = (
    ("Reward", "reward/mean", "{:.3f}"),
    ("Entropy (nats)", "entropy/mean", "{:.3f}"),
    ("  reasoning", "entropy/reasoning", "{:.3f}"),
    ("  knowledge", "entropy/knowledge", "{:.3f}"),
    ("Reasoning share", "role/reasoning_share", "{:.1%}"),
    ("Clip above", "clip/above", "{:.2%}"),
    ("Clip below", "clip/below", "{:.2%}"),
    ("Clip above, reasoning", "clip/above_reasoning", "{:.2%}"),
    ("Clip below, reasoning", "clip/below_reasoning", "{:.2%}"),
    ("Clip above, knowledge", "clip/above_knowledge", "{:.2%}"),
    ("Clip below, knowledge", "clip/below_knowledge", "{:.2%}"),
    ("KL (nats)", "kl/mean", "{:.4f}"),
    ("KL reasoning (nats)", "kl/reasoning", "{:.4f}"),
    ("KL knowledge (nats)", "kl/knowledge", "{:.4f}"),
    ("Largest ratio", "ratio/max", "{:.2f}"),
    ("Gradient norm", "optim/grad_norm", "{:.3f}"),
    ("Equal-reward groups", "reward/zero_variance_share", "{:.1%}"),
    ("Length (tokens)", "response/length_mean", "{:.0f}"),
    ("Truncated", "response/truncated_share", "{:.1%}"),
    ("Repetition", "response/repetition", "{:.2%}"),
    ("Sampled tokens/s", "speed/sampled_tokens_per_second", "{:,.0f}"),
    ("Step (s)", "time/step", "{:.1f}"),
)


def watch(
    path: str | Path,
    *,
    once: bool = False,
    interval: float = 2.0,
    smoothing: int = 5,
    console: Console | None = None,
) -> None:
    """Shows a run in the terminal until interrupted, reading metrics.jsonl alone.

    Args:
        path: the run directory, or its metrics.jsonl.
        once: print the present state and return.
        interval: seconds between two looks at the file.
        smoothing: span in steps of the sparklines; 1 for raw values.
        console: where to print; the standard output by default.

    Raises:
        DataError: there is no metrics.jsonl at the path, or it is damaged.
    """
    file = Path(path)
    file = file / "metrics.jsonl" if file.is_dir() else file
    if not file.is_file():
        raise DataError(
            f"expected a run directory or its metrics.jsonl, found {describe(Path(path))} at {path}"
        )
    console = console or Console()
    if once:
        console.print(view(file, smoothing, time.time()))
        return
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(view(file, smoothing, time.time()), refresh=True)
                time.sleep(interval)
        except KeyboardInterrupt:
            return


def view(file: Path, smoothing: int, now: float) -> Group:
    """What ``watch`` shows at the Unix time ``now``."""
    rows, notes = read_metrics(file)
    title = Text(f"{file.resolve().parent.name}", style="bold")
    if not rows:
        return Group(title, Text("no step has finished yet"))
    title.append(f"   step {rows[-1]['step']}", style="bold cyan")
    if "time" in rows[-1]:
        title.append(f"   written {duration(now - rows[-1]['time'])} ago", style="dim")
    # A terminal that is too low cuts off the end, so the evaluation comes first.
    evaluation = evaluation_table(rows)
    parts: list[Text | Table] = [title, *([evaluation] if evaluation else []), metrics_table(rows, smoothing)]
    return Group(*parts, *(Text(note, style="yellow") for note in notes))


def metrics_table(rows: Sequence[Row], smoothing: int) -> Table:
    """The last value, the range and the course of each metric that the run has."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("last", justify="right", no_wrap=True)
    table.add_column(f"course (smoothed over {smoothing})" if smoothing > 1 else "course", no_wrap=True)
    table.add_column("lowest", justify="right", style="dim", no_wrap=True)
    table.add_column("highest", justify="right", style="dim", no_wrap=True)
    for name, key, form in ROWS:
        values = np.asarray([row[key] for row in rows if isinstance(row.get(key), int | float)], np.float64)
        values = values[np.isfinite(values)]
        if values.size:
            table.add_row(
                name,
                form.format(values[-1]),
                Text(sparkline(smooth(values, smoothing)), style="cyan"),
                form.format(values.min()),
                form.format(values.max()),
            )
    return table


def evaluation_table(rows: Sequence[Row]) -> Table | None:
    """First and last evaluation; ``None`` before there is one."""
    evaluated = [row for row in rows if any(key.startswith("eval/") for key in row)]
    if not evaluated:
        return None
    shown = evaluated[:1] if len(evaluated) == 1 else [evaluated[0], evaluated[-1]]
    table = Table(box=None, pad_edge=False)
    table.add_column("held-out", no_wrap=True)
    for row in shown:
        table.add_column(f"step {row['step']}", justify="right", no_wrap=True)
    for key in sorted(shown[-1], key=natural):
        if re.fullmatch(EVALUATION_KEY, key) or key == "eval/truncated_share":
            cells = [with_interval(row, key) if row.get(key) is not None else "" for row in shown]
            table.add_row(key.removeprefix("eval/"), *cells)
    return table


def sparkline(values: FloatArray, width: int = SPARK_WIDTH) -> str:
    """Values as a line of blocks, averaged into at most ``width`` of them; a flat line for equal values."""
    parts = np.array_split(values, min(width, len(values)))
    means = np.asarray([part.mean() for part in parts])
    span = float(means.max() - means.min())
    heights = (means - means.min()) / span * (len(BLOCKS) - 1) if span > 0 else np.zeros(len(means))
    return "".join(BLOCKS[round(float(height))] for height in heights)


def duration(seconds: float) -> str:
    """Seconds in words with the largest fitting unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(seconds, 0):.0f} s"
