"""What the page of the report holds, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from archer.analysis.charts import Figure, Mark, Numbers, Panel
from archer.analysis.cloud import visible
from archer.analysis.dynamics import natural
from archer.analysis.figures import FigureSet
from archer.analysis.paper import TokenFigure
from archer.analysis.records import Row, Run, flatten
from archer.analysis.scan import Scan, Summary
from archer.analysis.settings import read_settings
from archer.analysis.statistics import accuracy_by_problem, bootstrap_interval
from archer.analysis.tokens import ViewerData

Data = dict[str, Any]

TOKEN_LIMIT = 20_000
"""Most tokens that the page holds for Figure 1, the most frequent first."""
PHASES = ("sample", "score", "reference", "update", "evaluate", "checkpoint")
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
        "clipping": read_settings(run).ranges is not None,
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
        compact(summary.blocked_share),
        summary.extracted,
        summary.reason,
    ]


def overview(run: Run, scan: Scan) -> Data:
    """What the overview says of one run."""
    times = [row["time"] for row in run.metrics if "time" in row]
    totals = {phase: sum(row.get(f"time/{phase}", 0.0) for row in run.metrics) for phase in PHASES}
    return {
        "name": run.name,
        "path": str(run.path),
        "method": scan.settings.method,
        "facts": [
            ("Steps", f"{run.metrics[-1]['step']:,}" if run.metrics else "0"),
            (
                "Last written",
                datetime.fromtimestamp(times[-1], UTC).strftime("%Y-%m-%d %H:%M UTC") if times else "–",
            ),
            ("Tokens sampled", f"{sum(row.get('tokens/sampled', 0) for row in run.metrics):,}"),
            ("Time in steps", f"{sum(row.get('time/step', 0.0) for row in run.metrics) / 3600:,.2f} h"),
            *((f"… {phase}", f"{seconds / 3600:,.2f} h") for phase, seconds in totals.items() if seconds),
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
    keys = sorted((k for k in first.keys() & last.keys() if k.startswith("eval/")), key=natural)
    records = run.evaluations()
    rows = [
        {
            "name": key.removeprefix("eval/"),
            "before": f"{first[key]:.4g}",
            "after": f"{last[key]:.4g}",
            "change": f"{last[key] - first[key]:+.4g}",
        }
        for key in keys
        if isinstance(first[key], int | float) and isinstance(last[key], int | float)
    ]
    ends = [interval_words(records.get(row["step"])) for row in (first, last)]
    return {"steps": (first["step"], last["step"]), "rows": rows, "intervals": ends if all(ends) else None}


def interval_words(records: Sequence[Row] | None) -> str:
    """Mean accuracy of evaluation records with its interval over problems; empty without records."""
    accuracy = np.asarray(list(accuracy_by_problem(records or ()).values()), np.float64)
    if not accuracy.size:
        return ""
    low, high = bootstrap_interval(accuracy)
    return f"{accuracy.mean():.4g} [{low:.3g}, {high:.3g}], {accuracy.size} problems"


def event_row(event: Row) -> Data:
    """One line of the log."""
    when = event.get("time")
    return {
        "time": datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M:%S") if when else "",
        "step": event.get("step", ""),
        "level": event.get("level", ""),
        "message": event.get("message", ""),
    }
