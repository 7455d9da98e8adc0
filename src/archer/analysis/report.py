"""The report: one HTML file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from archer.analysis.charts import PALETTE, SMOOTHING_WINDOWS
from archer.analysis.figures import GradientOf, build_figures
from archer.analysis.page import figure_data, figure_items, overview, token_data, viewer_data
from archer.analysis.records import Run
from archer.analysis.settings import group_runs
from archer.analysis.tokens import collect
from archer.errors import MissingDependencyError

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("charts.js", "viewer.js")


def write_report(
    runs: Sequence[Run],
    output: str | Path,
    *,
    gradient_of: GradientOf | None = None,
    min_count: int = 100,
    max_viewer_tokens: int = 1_500_000,
) -> Path:
    """Writes the report of one or several runs as one self-contained HTML file.

    Args:
        runs: the runs; those that differ in nothing but their seed share a curve with a band.
        output: the file to write, or a folder for ``report.html``.
        gradient_of: gives the gradient of a run's objective, for Figure 3, or ``None`` for no Figure 3.
        min_count: how often a token must occur to stand in Figure 1; the page can change it.
        max_viewer_tokens: tokens embedded for the token viewer, shared evenly by the runs. Beyond it whole
            groups are sampled, and the page says so.

    Returns:
        The file written.

    Raises:
        DataError: a record can't be read.
        MissingDependencyError: plotly is not installed.
        ValueError: no runs.
    """
    if not runs:
        raise ValueError("expected at least one run, got none")
    scripts = [plotly_script(), *(TEMPLATES.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)]
    collected = [collect(run, max_viewer_tokens // len(runs)) for run in runs]
    scans = {run.path: scan for run, (scan, _) in zip(runs, collected, strict=True)}
    experiments = group_runs(runs)
    figures = build_figures(experiments, scans, gradient_of, min_count)
    data = {
        "palette": PALETTE,
        "windows": SMOOTHING_WINDOWS,
        "figures": figure_data(figures),
        "tokens": token_data(figures, scans, min_count),
        "viewers": [
            viewer_data(run, viewer, i)
            for i, (run, (_, viewer)) in enumerate(zip(runs, collected, strict=True))
        ],
    }
    page = render(
        title=", ".join(run.name for run in runs[:4]) + (" …" if len(runs) > 4 else ""),
        runs=[overview(run, scans[run.path]) for run in runs],
        experiments=experiments,
        sections=figure_items(figures),
        viewers=data["viewers"],
        chunks=[
            (f"chunk-{i}-{j}", group.chunk)
            for i, (_, viewer) in enumerate(collected)
            for j, group in enumerate(viewer.groups)
        ],
        data=data,
        scripts=scripts,
    )
    file = Path(output)
    file = file / "report.html" if file.is_dir() else file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page, encoding="utf-8", newline="\n")
    return file


def plotly_script() -> str:
    """The source of plotly.js."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingDependencyError(
            "the report needs plotly; run: pip install 'archer-rl[report]'"
        ) from error
    return str(get_plotlyjs())


def render(*, data: Mapping[str, Any], scripts: Sequence[str], **context: Any) -> str:
    """The page. Only the scripts given may run in it: its content security policy names their hashes."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html").render(
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=TEMPLATES.joinpath("report.css").read_text(encoding="utf-8"),
        scripts=scripts,
        hashes=[digest(script) for script in scripts],
        data=embed(data),
        **context,
    )


def embed(value: Any) -> str:
    """JSON that can stand inside a script element whatever text it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def digest(script: str) -> str:
    """The hash of an inline script in the form that a content security policy takes."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
