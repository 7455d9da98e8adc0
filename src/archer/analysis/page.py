"""What the page of the report holds, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from archer.analysis.charts import Figure, Mark, Numbers, Panel
from archer.analysis.cloud import visible
from archer.analysis.dynamics import INTERVAL, STEP_LABEL, natural, series, shown, with_interval
from archer.analysis.figures import FigureSet
from archer.analysis.jsonl import Row
from archer.analysis.paper import TokenFigure
from archer.analysis.records import Run, flatten
from archer.analysis.scan import Scan, Summary
from archer.analysis.tokens import ViewerData

Data = dict[str, Any]

TOKEN_LIMIT = 20_000
"""Most tokens that the page holds for Figure 1, the most frequent first."""
PHASES = ("sample", "old", "reference", "update", "push")
EVALUATION_NAMES = {
    "length_mean": "Length (tokens)",
    "tokens": "Tokens sampled",
    "distinct_share": "Distinct (share)",
    "finished_score": "Score if finished",
    "truncated_share": "Truncated (share)",
    "unscorable_share": "Unscorable (share)",
    "repetition": "Repetition (share)",
}
HIGH_REPETITION = 0.1


def compact(value: float) -> float | None:
    """A number at six significant digits; ``None`` when it is not finite."""
    return float(f"{value:.6g}") if isfinite(value) else None


def numbers(values: Numbers) -> list[float | None]:
    """Numbers at six significant digits."""
    return [compact(float(value)) for value in values]


def figure_items(figures: FigureSet) -> dict[str, list[Data]]:
    """Section of the page to its figures, each with a key that is unique in the page."""
    tokens = [
        item(figure, f"{figure_id(figure)}-{place}", run.name if len(figures.by_run) > 1 else "")
        for place, (run, own) in enumerate(figures.by_run)
        for figure in own
    ]
    return {
        "tokens": tokens,
        "across": [item(figure, figure.id) for figure in figures.across],
        "dynamics": [item(figure, figure.id) for figure in figures.dynamics],
    }


def figure_id(figure: Figure | TokenFigure) -> str:
    """The stable name of a figure."""
    return figure.id if isinstance(figure, Figure) else "fig01_tokens"


def item(figure: Figure | TokenFigure, key: str, run: str = "") -> Data:
    """What the template needs of one figure."""
    if isinstance(figure, TokenFigure):
        title = "Tokens of highest and of lowest mean entropy"
        return {"key": key, "title": title, "run": run, "paper": "1", "caption": figure.caption, "panels": []}
    titles = [panel.title for panel in figure.panels]
    return {
        "key": key,
        "title": figure.title,
        "run": run,
        "paper": figure.paper,
        "caption": figure.caption,
        "panels": titles,
    }


def figure_data(figures: FigureSet) -> dict[str, list[Data]]:
    """Key of each figure made of panels to the data of its panels."""
    keyed = [(f"{figure_id(f)}-{place}", f) for place, (_, own) in enumerate(figures.by_run) for f in own]
    keyed += [(figure.id, figure) for figure in [*figures.across, *figures.dynamics]]
    return {key: [panel_data(panel) for panel in f.panels] for key, f in keyed if isinstance(f, Figure)}


def panel_data(panel: Panel) -> Data:
    """One pair of axes."""
    return {
        "title": panel.title,
        "x": {
            "label": panel.x_label,
            "log": panel.x_log,
            "steps": panel.x_label == STEP_LABEL,
            "range": numbers(panel.x_range) if panel.x_range else None,
            "ticks": list(panel.ticks),
            "tick_labels": panel.tick_names(),
        },
        "y": {
            "label": panel.y_label,
            "log": panel.y_log,
            "range": numbers(panel.y_range) if panel.y_range else None,
        },
        "y2": {"label": panel.y2_label} if panel.y2_label else None,
        "marks": [mark_data(mark) for mark in panel.marks],
    }


def mark_data(mark: Mark) -> Data:
    """One mark, without what it does not have."""
    data = {
        "kind": mark.kind,
        "name": mark.name,
        "colour": mark.colour,
        "x": numbers(mark.x),
        "y": numbers(mark.y),
        "low": numbers(mark.low),
        "high": numbers(mark.high),
        "smooth": {str(window): numbers(values) for window, values in mark.smooth.items()},
        "dash": mark.dash,
        "secondary": mark.secondary,
        "label": list(mark.label),
    }
    return {key: value for key, value in data.items() if value not in ([], {}, False)}


def token_data(figures: FigureSet, scans: Mapping[Path, Scan], min_count: int) -> dict[str, Data]:
    """Key of each Figure 1 to the tokens that it can show: [text, count, mean entropy], by entropy."""
    result: dict[str, Data] = {}
    for place, (run, own) in enumerate(figures.by_run):
        if any(isinstance(figure, TokenFigure) for figure in own):
            means = scans[run.path].tokens.means()
            often = {row.token_id for row in sorted(means, key=lambda row: -row.count)[:TOKEN_LIMIT]}
            rows = [
                [visible(row.text), row.count, compact(row.entropy)] for row in means if row.token_id in often
            ]
            result[f"fig01_tokens-{place}"] = {"rows": rows, "min_count": min_count}
    return result


def viewer_data(run: Run, viewer: ViewerData, number: int) -> Data:
    """The index of one run's embedded responses; the tokens themselves lie in chunks of their own."""
    columns = [
        [f"chunk-{number}-{chunk}", place, *summary_columns(summary)]
        for chunk, group in enumerate(viewer.groups)
        for place, summary in enumerate(group.summaries)
    ]
    return {
        "run": run.name,
        "sampling": viewer.sampling(),
        "scales": {name: compact(value) for name, value in viewer.scales().items()},
        "rows": columns,
        "high_repetition": HIGH_REPETITION,
    }


def summary_columns(summary: Summary) -> list[Any]:
    """The columns of a response in the index, in the order that the viewer reads."""
    return [
        summary.step,
        summary.group,
        summary.sample,
        summary.problem_id,
        summary.reward,
        summary.status,
        summary.truncated,
        summary.length,
        compact(summary.entropy),
        compact(summary.reasoning_share),
        compact(summary.repetition),
        compact(summary.kl_mean),
        compact(summary.kl_max),
        compact(summary.outward_share),
        summary.extracted,
        summary.reason,
    ]


def total(run: Run, key: str) -> float:
    """Sum of a metric over the steps that have it."""
    return float(np.sum(series(run, key)[1]))


def overview(run: Run, scan: Scan) -> Data:
    """What the overview says of one run."""
    times = [row["time"] for row in run.metrics if "time" in row]
    phases = {phase: total(run, f"time/{phase}") for phase in PHASES}
    steps, evaluations = total(run, "time/step"), total(run, "time/evaluate")
    return {
        "name": run.name,
        "path": str(run.path),
        "method": scan.settings.method,
        "facts": [
            ("Steps", f"{run.metrics[-1]['step']:,}" if run.metrics else "0"),
            ("Last written", f"{moment(times[-1])} UTC" if times else "–"),
            ("Tokens sampled", f"{total(run, 'tokens/sampled'):,.0f}"),
            ("Time in steps", f"{steps / 60:,.1f} min"),
            *(
                (f"… {phase}", f"{seconds / 60:,.1f} min")
                for phase, seconds in phases.items()
                if seconds > 0.005 * steps
            ),
            *([("Time in evaluations", f"{evaluations / 60:,.1f} min")] if evaluations else []),
        ],
        "evaluation": before_after(run),
        "config": [(key, str(value)) for key, value in flatten(run.config).items()],
        "environment": [(key, str(value)) for key, value in flatten(run.environment).items()],
        "events": [event_row(event) for event in run.events],
        "notes": [*run.notes, *scan.notes],
    }


def before_after(run: Run) -> Data | None:
    """The first and the last evaluation of a run; ``None`` when it has none."""
    evaluated = [row for row in run.metrics if any(key.startswith("eval/") for key in row)]
    if not evaluated:
        return None
    first, last = evaluated[0], evaluated[-1]
    shared = first.keys() & last.keys()
    both = [key for key in shared if key.startswith("eval/") and not key.endswith(INTERVAL)]
    return {
        "steps": (first["step"], last["step"]),
        "rows": [
            {
                "name": evaluation_name(key),
                "before": with_interval(first, key),
                "after": with_interval(last, key),
                "change": shown(last[key] - first[key], sign="+"),
            }
            for key in sorted(both, key=natural)
            if isinstance(first[key], int | float) and isinstance(last[key], int | float)
        ],
    }


def evaluation_name(key: str) -> str:
    """An evaluation metric in words; a benchmark's name stays in front."""
    *where, name = key.removeprefix("eval/").split("/")
    return "/".join([*where, EVALUATION_NAMES.get(name, name)])


def event_row(event: Row) -> Data:
    """One line of the log."""
    when = event.get("time")
    return {
        "time": moment(when) if when else "",
        "step": event.get("step", ""),
        "level": event.get("level", ""),
        "message": event.get("message", ""),
    }


def moment(time: float) -> str:
    """A Unix time as a date and a time of day in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")
