"""Curves over the steps of one or several experiments, from metrics.jsonl."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from archer.analysis.charts import SERIES, SMOOTHING_WINDOWS, Figure, Mark, Panel
from archer.analysis.jsonl import Row
from archer.analysis.records import FloatArray, Run
from archer.analysis.settings import Experiment
from archer.analysis.statistics import smooth

STEP_LABEL = "Training step"
EVALUATION_KEY = r"eval/(.*/)?(avg@\d+|pass@(2|4|8|16|32|64|128))"
"""Evaluation metrics that are drawn; pass@k for powers of two, as its other values lie between; pass@1 is avg@K."""
LOG_SPAN = 3.0
"""A log axis is used where the values span at least this factor; below it would have one tick."""
INTERVAL = "_interval"
"""Ending of the key that holds the half-width of a metric's 95 % interval."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric of a chart: its key in metrics.jsonl (or a pattern of keys), its name and its colour."""

    key: str
    name: str
    colour: str
    dash: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """What one chart of the training dynamics shows."""

    id: str
    title: str
    y_label: str
    curves: Sequence[Curve]
    caption: str
    y_log: bool = False
    paper: str = ""


CHARTS: Sequence[Chart] = (
    Chart(
        "reward",
        "Training reward",
        "Mean reward (0 to 1)",
        [Curve("reward/mean", "Reward", "series0")],
        "A rising curve means that more sampled responses are right; a plateau near 0 or 1 leaves nothing to "
        "learn from.",
        paper="4, 5",
    ),
    Chart(
        "evaluation",
        "Held-out accuracy",
        "Accuracy (0 to 1)",
        [Curve(EVALUATION_KEY, "", "series0")],
        "avg@K is the accuracy of one sample, pass@K the chance that at least one of K is right: avg rising "
        "while pass stands still means sharper answers, not new ones.",
        paper="6",
    ),
    Chart(
        "entropy",
        "Token entropy",
        "Mean entropy (nats)",
        [
            Curve("entropy/mean", "All tokens", "neutral"),
            Curve("entropy/reasoning", "Reasoning tokens", "reasoning"),
            Curve("entropy/knowledge", "Knowledge tokens", "knowledge", dash=True),
        ],
        "A fast fall towards 0 is collapse: the policy stops exploring; the reasoning tokens should stay "
        "well above the knowledge tokens.",
        paper="4, 5",
    ),
    Chart(
        "repetition",
        "Repetition",
        "Repeated 20-word windows (share)",
        [Curve("response/repetition", "Repetition", "series1")],
        "Repetition that rises while entropy falls is the sign of collapse that the paper reports for "
        "training without the KL anchor.",
        paper="4, 5",
    ),
    Chart(
        "length",
        "Response length",
        "Tokens",
        [
            Curve("response/length_mean", "Mean", "series0"),
            Curve("response/length_max", "Longest", "neutral", dash=True),
        ],
        "Lengths that grow until the longest sits at the limit cut answers off; compare the truncated share.",
        paper="4, 5",
    ),
    Chart(
        "truncated",
        "Truncated responses",
        "Share of responses",
        [
            Curve("response/truncated_share", "Training", "series0"),
            Curve("eval/truncated_share", "Evaluation", "series1", dash=True),
        ],
        "The share that the length limit stopped; when it is high, the reward measures brevity as much as "
        "skill.",
    ),
    Chart(
        "clip",
        "Clipped tokens by role",
        "Share of tokens (of the role)",
        [
            Curve("clip/above", "All tokens, above", "neutral"),
            Curve("clip/below", "All tokens, below", "neutral", dash=True),
            Curve("clip/above_reasoning", "Reasoning, above", "reasoning"),
            Curve("clip/below_reasoning", "Reasoning, below", "reasoning", dash=True),
            Curve("clip/above_knowledge", "Knowledge, above", "knowledge"),
            Curve("clip/below_knowledge", "Knowledge, below", "knowledge", dash=True),
        ],
        "How often each role leaves its clip range; the wider range of the reasoning tokens shows as fewer "
        "clipped tokens at the same movement.",
    ),
    Chart(
        "kl",
        "KL to the reference",
        "KL (nats per token)",
        [
            Curve("kl/mean", "All tokens", "neutral"),
            Curve("kl/reasoning", "Reasoning tokens", "reasoning"),
            Curve("kl/knowledge", "Knowledge tokens", "knowledge", dash=True),
            Curve("kl/base", "Sampling policy, before the updates", "series2", dash=True),
        ],
        "How far the policy has moved from its start; the anchored knowledge tokens should move less than "
        "the reasoning tokens.",
    ),
    Chart(
        "role",
        "Share of reasoning tokens",
        "Share of trained tokens",
        [Curve("role/reasoning_share", "Reasoning tokens", "reasoning")],
        "With a threshold per response the share stays at 1 - rho (or a little above, by ties and short "
        "responses).",
    ),
    Chart(
        "ratio",
        "Extremes of the importance ratio",
        "Ratio to the sampling policy",
        [
            Curve("ratio/max", "Largest", "series1"),
            Curve("ratio/mean", "Mean", "neutral"),
            Curve("ratio/min", "Smallest", "series0", dash=True),
        ],
        "Ratios far from 1 are tokens whose probability changed much within one step; a growing spread warns "
        "of unstable updates.",
        y_log=True,
    ),
    Chart(
        "mismatch",
        "Sampler against trainer",
        "Largest |ratio - 1|",
        [Curve("ratio/first_mismatch", "Mismatch", "series3")],
        "Before the first update the ratio should be 1 up to rounding; a large value means that sampler and "
        "trainer disagree on probabilities.",
    ),
    Chart(
        "grad_norm",
        "Gradient norm",
        "Norm before clipping",
        [Curve("optim/grad_norm", "Gradient norm", "series2")],
        "Spikes are batches that pull hard; a norm near 0 means that no group had both right and wrong "
        "responses.",
    ),
    Chart(
        "loss",
        "Loss",
        "Loss of the objective",
        [Curve("optim/loss", "Loss", "series0")],
        "Its level follows from which responses are long and from their advantages, so it is no measure of "
        "progress; look for jumps.",
    ),
    Chart(
        "groups",
        "What the groups teach",
        "Share",
        [
            Curve("reward/zero_variance_share", "All rewards equal (groups)", "neutral"),
            Curve("reward/all_right_share", "All right (groups)", "series2"),
            Curve("reward/all_wrong_share", "All wrong (groups)", "series1", dash=True),
            Curve("reward/unscorable_share", "Unscorable (responses)", "series3", dash=True),
        ],
        "Groups whose rewards are all equal teach nothing, as their advantages are 0; too many all-right ones "
        "mean that the problems have become too easy, all-wrong ones that they are too hard.",
    ),
    Chart(
        "phases",
        "Time by phase",
        "Seconds per step",
        [
            Curve("time/sample", "Sample", "series0"),
            Curve("time/old", "Old policy", "neutral", dash=True),
            Curve("time/reference", "Reference", "series2"),
            Curve("time/update", "Update", "series3"),
            Curve("time/evaluate", "Evaluate", "series4", dash=True),
            Curve("time/push", "Push weights", "series5", dash=True),
        ],
        "The highest line is the phase worth making faster; an evaluation takes its time only at its steps. "
        "Rewards are computed while sampling goes on.",
    ),
    Chart(
        "speed",
        "Sampling speed",
        "Tokens per second",
        [Curve("speed/sampled_tokens_per_second", "Sampled tokens", "series2")],
        "Sampling speed alone; it falls when responses grow or when few long ones hold up a batch.",
    ),
)


def series(run: Run, key: str) -> tuple[FloatArray, FloatArray]:
    """(steps, values) of the rows that hold a finite number at ``key``."""
    points = [
        (float(row["step"]), float(row[key]))
        for row in run.metrics
        if isinstance(row.get(key), int | float) and np.isfinite(row[key])
    ]
    table = np.asarray(points, np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def shown(value: float, sign: str = "") -> str:
    """A number as text: four significant digits, whole from 1,000."""
    return f"{value:{sign},.0f}" if abs(value) >= 1000 else f"{value:{sign}.4g}"


def with_interval(row: Row, key: str) -> str:
    """A metric of one step as text, with the half-width of its 95 % interval where the run recorded one."""
    half = row.get(key + INTERVAL)
    return shown(row[key]) + (f" ± {half:.2g}" if isinstance(half, int | float) else "")


def across_seeds(runs: Sequence[Run], key: str) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """(steps, mean, lowest, highest) of a metric over the runs that have it at each step."""
    values: dict[float, list[float]] = {}
    for run in runs:
        for step, value in zip(*series(run, key), strict=True):
            values.setdefault(float(step), []).append(float(value))
    steps = sorted(values)
    table = [(np.mean(values[s]), np.min(values[s]), np.max(values[s])) for s in steps]
    columns = np.asarray(table, np.float64).reshape(-1, 3)
    return np.asarray(steps, np.float64), columns[:, 0], columns[:, 1], columns[:, 2]


def curve_mark(experiment: Experiment, key: str, name: str, colour: str, *, dash: bool) -> Mark | None:
    """The line of one metric of one experiment, with a band over its seeds; ``None`` without data."""
    steps, mean, low, high = across_seeds(experiment.runs, key)
    if not steps.size:
        return None
    banded = seeds = len(experiment.runs) > 1
    half_steps, half = series(experiment.runs[0], key + INTERVAL)
    if not banded and np.array_equal(half_steps, steps):
        banded, low, high = True, mean - half, mean + half
    return Mark(
        "line",
        name,
        colour,
        x=steps,
        y=mean,
        low=low if banded else (),
        high=high if banded else (),
        band=(f"Band: lowest to highest of {len(experiment.runs)} seeds" if seeds else "Band: 95 % interval")
        if banded
        else "",
        smooth={window: smooth(mean, window) for window in SMOOTHING_WINDOWS if 2 * window <= len(mean)},
        dash=dash,
    )


def expand(curves: Sequence[Curve], experiments: Sequence[Experiment]) -> list[Curve]:
    """Curves whose key is a pattern, replaced by one curve for each key that the runs hold."""
    keys = sorted(
        {key for e in experiments for run in e.runs for row in run.metrics for key in row}, key=natural
    )
    result: list[Curve] = []
    for curve in curves:
        matches = [key for key in keys if re.fullmatch(curve.key, key)]
        if curve.name:
            result += [curve] if matches else []
        else:
            result += [
                Curve(key, key.removeprefix("eval/"), SERIES[i % len(SERIES)], dash=i % 2 == 1)
                for i, key in enumerate(matches)
            ]
    return result


def natural(key: str) -> list[tuple[int, str]]:
    """Sort key that orders pass@2 before pass@16."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", key)]


def dynamics_figure(chart: Chart, experiments: Sequence[Experiment]) -> Figure | None:
    """One chart over the steps: one panel for one experiment, else one panel a metric with the experiments
    overlaid.

    Returns:
        The figure, or ``None`` when no run has any of its metrics.
    """
    curves = expand(chart.curves, experiments)
    panels: list[Panel] = []
    if len(experiments) == 1:
        marks = [curve_mark(experiments[0], c.key, c.name, c.colour, dash=c.dash) for c in curves]
        panels.append(step_panel(chart, chart.title, marks))
    else:
        for curve in curves:
            marks = [
                curve_mark(e, curve.key, e.label, SERIES[i % len(SERIES)], dash=i >= len(SERIES))
                for i, e in enumerate(experiments)
            ]
            title = chart.title if len(curves) == 1 else f"{chart.title}: {curve.name}"
            panels.append(step_panel(chart, title, marks))
    panels = [panel for panel in panels if panel.marks]
    if not panels:
        return None
    return Figure(chart.id, chart.title, chart.caption + line_notes(panels), panels, chart.paper)


def line_notes(panels: Sequence[Panel]) -> str:
    """What thin lines and bands are, for the end of a caption; empty where there are none."""
    marks = [mark for panel in panels for mark in panel.marks if mark.kind == "line"]
    notes = [" Thin: each step; thick: smoothed."] if any(mark.smooth for mark in marks) else []
    notes += sorted({f" {mark.band}." for mark in marks if mark.band})
    return "".join(notes)


def step_panel(chart: Chart, title: str, found: Sequence[Mark | None]) -> Panel:
    """A panel with the training step on the x axis."""
    marks = [mark for mark in found if mark is not None]
    values = [float(value) for mark in marks for value in (*mark.y, *mark.low, *mark.high)]
    y_log = chart.y_log and min(values, default=0) > 0 and max(values) >= LOG_SPAN * min(values)
    return Panel(
        title,
        STEP_LABEL,
        chart.y_label,
        marks,
        y_log=y_log,
        y_range=None if y_log else range_of_constant(marks),
    )


def range_of_constant(marks: Sequence[Mark]) -> tuple[float, float] | None:
    """A range that starts or ends at 0 for marks that all have one value; else ``None``, for an automatic one."""
    values = {float(value) for mark in marks for value in (*mark.y, *mark.low, *mark.high)}
    if len(values) != 1:
        return None
    value = values.pop()
    return (-0.05, 1.0) if value == 0 else (min(0.0, 2 * value), max(0.0, 2 * value))
