"""The figures of the Archer paper (arXiv 2507.15778), from a run's own records, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from archer.analysis.charts import Figure, Mark, Panel
from archer.analysis.dynamics import (
    CHARTS,
    STEP_LABEL,
    dynamics_figure,
    expand,
    line_notes,
    range_of_constant,
    series,
)
from archer.analysis.records import FloatArray
from archer.analysis.scan import Scan, Summary
from archer.analysis.settings import WIDE_SPAN, Experiment
from archer.analysis.statistics import (
    SCOPES,
    BoolArray,
    Scope,
    TokenMean,
    top_tokens,
)

Gradient = Callable[[FloatArray, int, bool], FloatArray]
"""(importance ratios ``[R]``, sign of the advantage, reasoning) -> derivative of the per-token loss by the
token's log-probability at an advantage of that sign and size 1, ``[R]``."""

RATIO_GRID: FloatArray = np.geomspace(0.1, 12.0, 1601)
RATIO_NEAR = (0.25, 4.0)
"""The ratios drawn, unless a region begins or ends outside."""
RATIO_TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
REGION_NOTES: Mapping[str, str] = {
    "archer-soft": "Ranges follow a token's entropy without a step; drawn are one token above the threshold and one "
    "below it.",
    "archer-k": "Shown are the two outer grades; the others lie between.",
    "gspo": "The ratio is that of the whole response, so both roles share one line; the outermost bars hold all "
    "tokens beyond.",
    "espo": "The ratio is that of the role's tokens in the response; ranges grow with their mean entropy and are "
    "drawn at 1 nat for reasoning, 0.1 nats for knowledge.",
    **dict.fromkeys(
        ("hapo", "hapo-released"),
        "Ranges follow a token's entropy: drawn at the threshold for reasoning and at the most certain token for "
        "knowledge; above the threshold the upper range is wider.",
    ),
}
SCOPE_STYLE: Mapping[Scope, tuple[str, str, bool]] = {
    "response": ("Threshold per response (Archer)", "series1", False),
    "group": ("Threshold per group", "series2", False),
    "batch": ("Threshold per batch", "series0", True),
}


@dataclass(frozen=True, slots=True)
class TokenFigure:
    """Figure 1: the tokens of highest and of lowest mean entropy, most extreme first."""

    high: Sequence[TokenMean]
    low: Sequence[TokenMean]
    min_count: int

    @property
    def caption(self) -> str:
        """What to see."""
        if not self.high:
            return f"No two tokens occurred {self.min_count:,} times; lower the minimum count to see any."
        return (
            f"The {len(self.high)} tokens of highest and of lowest mean entropy among those seen at least "
            f"{self.min_count:,} times, the largest word the most extreme. The paper finds connectors and decisions "
            "where the policy hesitates, word endings, numbers and formulas where it is sure."
        )


def token_figure(scan: Scan, min_count: int = 100, size: int = 100) -> TokenFigure:
    """Figure 1 over all stored responses of a run."""
    high, low = top_tokens(scan.tokens.means(min_count), size)
    return TokenFigure(high, low, min_count)


def entropy_figure(scan: Scan) -> Figure | None:
    """Figure 2: entropy of prompts against the batch and of responses within prompts, and what thresholds do.

    Entropies are those of the last stored step; the right-most panel spans all stored steps.
    """
    summaries = [s for s in scan.last_step() if s.length]
    if not summaries:
        return None
    share = 1 - scan.settings.rho
    by_scope = {scope: np.sort([s.share[scope] for s in summaries]) for scope in SCOPES}
    low, high = by_scope["batch"][[0, -1]]
    own_low, own_high = by_scope["response"][[0, -1]]
    caption = (
        "Prompts, and responses to one prompt, differ in mean entropy. One threshold for the whole batch makes "
        f"{low:.2%} to {high:.2%} of a response's tokens reasoning tokens; a threshold per response makes it "
        f"{own_low:.2%} to {own_high:.2%}."
    )
    panels = [
        prompt_panel(summaries),
        within_panel(summaries),
        share_panel(by_scope, share),
        extremes_panel(scan.summaries, share),
    ]
    return Figure("fig02_entropy_levels", f"Entropy by level, step {summaries[0].step}", caption, panels, "2")


def group_means(summaries: Sequence[Summary]) -> list[tuple[int, FloatArray]]:
    """(group, mean entropies of its responses), lowest mean first."""
    groups: dict[int, list[float]] = {}
    for s in summaries:
        groups.setdefault(s.group, []).append(s.entropy)
    return sorted(((g, np.asarray(v)) for g, v in groups.items()), key=lambda item: float(item[1].mean()))


def prompt_panel(summaries: Sequence[Summary]) -> Panel:
    """Mean entropy of each prompt's responses, with their range, against the mean of the batch."""
    groups = group_means(summaries)
    batch = float(np.mean([s.entropy for s in summaries]))
    marks = [
        Mark(
            "points",
            "Mean of a prompt (bar: its responses)",
            "series0",
            x=range(1, len(groups) + 1),
            y=[float(v.mean()) for _, v in groups],
            low=[float(v.min()) for _, v in groups],
            high=[float(v.max()) for _, v in groups],
            label=[f"group {g}" for g, _ in groups],
        ),
        Mark("hline", "Mean of the batch", "neutral", y=[batch], dash=True),
    ]
    return Panel("Prompts against the batch", "Prompt, by mean entropy", "Mean entropy (nats)", marks)


def within_panel(summaries: Sequence[Summary], most: int = 8) -> Panel:
    """Mean entropy of single responses, for prompts spread evenly over the range of prompt means."""
    groups = group_means(summaries)
    picks = sorted({round(i) for i in np.linspace(0, len(groups) - 1, min(most, len(groups)))})
    x = [float(place) for place, i in enumerate(picks, 1) for _ in groups[i][1]]
    marks = [
        Mark(
            "points",
            "One response",
            "series1",
            x=x,
            y=[float(v) for i in picks for v in groups[i][1]],
            label=[f"group {groups[i][0]}" for i in picks for _ in groups[i][1]],
        ),
    ]
    title = f"Responses within {len(picks)} prompts"
    return Panel(title, "Prompt, by mean entropy", "Mean entropy (nats)", marks)


def share_panel(by_scope: Mapping[Scope, FloatArray], share: float) -> Panel:
    """Share of reasoning tokens of every response, in rising order, under each scope of the threshold."""
    marks = [Mark("hline", f"1 - rho = {share:.2f}", "neutral", y=[share], dash=True)]
    for scope, (name, colour, dash) in SCOPE_STYLE.items():
        values = by_scope[scope]
        x = 100 * (np.arange(len(values)) + 0.5) / len(values)
        marks.append(Mark("line", name, colour, x=x, y=values, dash=dash))
    return Panel(
        "Share of reasoning tokens in a response",
        "Responses, from lowest to highest (%)",
        "Share of its tokens",
        marks,
    )


def extremes_panel(summaries: Sequence[Summary], share: float) -> Panel:
    """Lowest share of reasoning tokens that any response of a step gets, by scope, over the stored steps."""
    steps = sorted({s.step for s in summaries})
    marks = [Mark("hline", f"1 - rho = {share:.2f}", "neutral", y=[share], dash=True)]
    for scope, (name, colour, dash) in SCOPE_STYLE.items():
        lowest = dict.fromkeys(steps, 1.0)
        for s in summaries:
            if s.length:
                lowest[s.step] = min(lowest[s.step], s.share[scope])
        marks.append(Mark("line", name, colour, x=steps, y=list(lowest.values()), dash=dash))
    return Panel("Lowest share in any response", STEP_LABEL, "Share of its tokens", marks)


def region_figure(gradient: Gradient, scan: Scan, label: str) -> Figure:
    """Figure 3: where the objective moves a token, by ratio, role and sign of the advantage.

    Args:
        gradient: the gradient of the run's objective; nothing here knows its formula.
        scan: the run's tokens, drawn as a density over the regions.
        label: the run or method, for the title.
    """
    panels = [region_panel(gradient, scan, sign) for sign in (1, -1)]
    caption = (
        "The lines are the pull of the reward on a token's log-probability, from the objective's own gradient, "
        "the KL to the reference aside; where a line is at 0 the token no longer learns from its reward. Tinted: "
        "ratios at which only one role still learns. Filled: how the run's own tokens spread."
    )
    if scan.settings.method in REGION_NOTES:
        caption += f" {REGION_NOTES[scan.settings.method]}"
    if not scan.roles_recorded:
        caption += (
            f" The run has no roles; its tokens are split at the {scan.settings.rho}-quantile of entropy."
        )
    return Figure("fig03_regions", f"Optimisation regions, {label}", caption, panels, "3")


def region_panel(gradient: Gradient, scan: Scan, sign: int) -> Panel:
    """The panel of one sign of the advantage."""
    grid, edges = RATIO_GRID, np.exp(scan.settings.ratio_edges)
    narrow = edges[-1] < np.exp(WIDE_SPAN) * (1 - 1e-9)
    if narrow:
        grid = np.geomspace(edges[0], edges[-1], len(RATIO_GRID))
    pull = {role: -gradient(grid, sign, role) for role in (True, False)}
    shown = (float(grid[0]), float(grid[-1])) if narrow else window(pull)
    inside = (shown[0] <= grid) & (shown[1] >= grid)
    ratio = grid[inside]
    marks: list[Mark] = []
    for role, name, colour in (
        (True, "Only reasoning learns", "reasoning"),
        (False, "Only knowledge learns", "knowledge"),
    ):
        only = (pull[role] != 0) & (pull[not role] == 0)
        for number, (low, high) in enumerate(intervals(grid, only)):
            marks.append(Mark("vspan", "" if number else name, colour, x=[low, high]))
    for role, name, colour in (
        (True, "Reasoning tokens", "reasoning"),
        (False, "Knowledge tokens", "knowledge"),
    ):
        counts = scan.density.get((sign, role))
        if counts is not None and counts.sum():
            density = counts / counts.sum()
            marks.append(Mark("area", f"{name}, spread", colour, x=edges, y=density, secondary=True))
    marks.append(Mark("line", "Reasoning tokens, pull", "reasoning", x=ratio, y=pull[True][inside]))
    marks.append(
        Mark("line", "Knowledge tokens, pull", "knowledge", x=ratio, y=pull[False][inside], dash=True)
    )
    return Panel(
        f"Advantage A {'above' if sign > 0 else 'below'} 0",
        "Importance ratio (log scale)",
        "Pull on log-probability (per unit of A)",
        marks,
        x_log=True,
        x_range=shown,
        ticks=np.linspace(edges[0], edges[-1], 5).round(4).tolist() if narrow else RATIO_TICKS,
        y2_label="Share of tokens (log scale)",
    )


def window(pull: Mapping[bool, FloatArray]) -> tuple[float, float]:
    """The range of ratios to draw: ``RATIO_NEAR``, or all where the pull starts or stops outside it."""
    changes = np.concatenate([np.flatnonzero(np.diff(values != 0)) for values in pull.values()])
    near = (RATIO_GRID[changes] > RATIO_NEAR[0]) & (RATIO_GRID[changes] < RATIO_NEAR[1])
    return RATIO_NEAR if near.all() else (float(RATIO_GRID[0]), float(RATIO_GRID[-1]))


def intervals(grid: FloatArray, active: BoolArray) -> list[tuple[float, float]]:
    """Ratio intervals in which ``active`` ``[R]`` holds on ``grid`` ``[R]``, edges between grid points."""
    change = np.flatnonzero(np.diff(active.astype(np.int8), prepend=0, append=0))
    edges = np.concatenate([grid[:1], np.sqrt(grid[1:] * grid[:-1]), grid[-1:]])
    return [(float(edges[a]), float(edges[b])) for a, b in zip(change[::2], change[1::2], strict=True)]


def main_panels(ids: Sequence[str], experiments: Sequence[Experiment]) -> list[Panel]:
    """Panels of the charts with these ids; of several experiments the first curve of each alone."""
    charts = [chart for chart in CHARTS if chart.id in ids]
    if len(experiments) > 1:
        charts = [replace(c, curves=expand(c.curves, experiments)[:1]) for c in charts]
    figures = [dynamics_figure(chart, experiments) for chart in charts]
    return [panel for figure in figures if figure for panel in figure.panels]


def dynamics_overview(experiments: Sequence[Experiment]) -> Figure | None:
    """Figures 4 and 5: reward, entropy, repetition and response length, the runs overlaid."""
    panels = main_panels(("reward", "entropy", "repetition", "length"), experiments)
    caption = (
        "Reward should rise while entropy falls slowly and repetition stays low; a fast fall of entropy with "
        "rising repetition is collapse."
    )
    if not panels:
        return None
    return Figure("fig04_05_dynamics", "Training dynamics", caption + line_notes(panels), panels, "4, 5")


def ablation_figure(experiments: Sequence[Experiment]) -> Figure | None:
    """Figures 7 to 9: score, entropy and repetition under varied settings; ``None`` for one setting."""
    if len(experiments) < 2:
        return None
    panels = main_panels(("reward", "evaluation", "entropy", "repetition"), experiments)
    final = final_panel(experiments)
    keys = list(experiments[0].varied)
    names = ", ".join(keys[:4]) + (f" and {len(keys) - 4} more settings" if len(keys) > 4 else "")
    caption = (
        f"The runs differ in {names or 'nothing but their names'}. The best setting keeps entropy from falling "
        "early without holding the score back; whiskers span the seeds." + line_notes(panels)
    )
    return Figure(
        "fig07_09_ablation", "Settings compared", caption, [*([final] if final else []), *panels], "7, 8, 9"
    )


def final_panel(experiments: Sequence[Experiment]) -> Panel | None:
    """The last held-out avg@K (or last reward) of each experiment, with the range over its seeds."""
    evaluation = next(chart for chart in CHARTS if chart.id == "evaluation")
    keys = [c.key for c in expand(evaluation.curves, experiments) if "avg@" in c.key]
    key = keys[0] if keys else "reward/mean"
    ends = [
        [float(series(run, key)[1][-1]) for run in e.runs if series(run, key)[1].size] for e in experiments
    ]
    if not all(ends):
        return None
    name = key.removeprefix("eval/") if keys else "Reward"
    mark = Mark(
        "points",
        "Mean of the seeds (bar: their range)",
        "series0",
        x=range(1, len(ends) + 1),
        y=[float(np.mean(v)) for v in ends],
        low=[min(v) for v in ends],
        high=[max(v) for v in ends],
        label=[e.label for e in experiments],
    )
    labels = [experiment.label for experiment in experiments]
    edges = (0.5, len(ends) + 0.5)
    return Panel(
        f"Last {name}",
        "Setting",
        "Accuracy (0 to 1)",
        [mark],
        y_range=range_of_constant([mark]),
        x_range=edges,
        ticks=range(1, len(ends) + 1),
        tick_labels=labels,
    )
