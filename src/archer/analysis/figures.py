"""Every figure of one or several runs, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from archer.analysis.charts import Figure
from archer.analysis.dynamics import CHARTS, dynamics_figure
from archer.analysis.paper import (
    Gradient,
    TokenFigure,
    ablation_figure,
    dynamics_overview,
    entropy_figure,
    region_figure,
    token_figure,
)
from archer.analysis.plots import FORMATS, save_figure
from archer.analysis.records import Run
from archer.analysis.scan import Scan, scan_run
from archer.analysis.settings import Experiment, group_runs
from archer.analysis.transfer import transfer_figure

GradientOf = Callable[[Run], Gradient | None]


@dataclass(frozen=True, slots=True)
class FigureSet:
    """The figures of some runs.

    Attributes:
        by_run: (run, figures of its tokens: 1, 2 and 3), for one run of each experiment.
        across: figures that overlay the experiments: 4 to 12.
        dynamics: one figure for each chart of the training dynamics.
    """

    by_run: Sequence[tuple[Run, Sequence[Figure | TokenFigure]]] = field(default_factory=list)
    across: Sequence[Figure] = field(default_factory=list)
    dynamics: Sequence[Figure] = field(default_factory=list)


def write_figures(
    runs: Sequence[Run],
    output: str | Path,
    *,
    formats: Sequence[str] = FORMATS,
    gradient_of: GradientOf | None = None,
    min_count: int = 100,
) -> list[Path]:
    """Writes every figure that the runs' records allow as files.

    Args:
        runs: runs to overlay; those that differ in nothing but their seed share a curve with a band.
        output: folder for the files. Figures 1 to 3 lie in a folder a run when there are several experiments.
        formats: any of png, svg, pdf.
        gradient_of: gives the gradient of a run's objective, for Figure 3, or ``None`` for no Figure 3.
        min_count: how often a token must occur to stand in Figure 1.

    Returns:
        The files written.

    Raises:
        MissingDependencyError: matplotlib is not installed.
        ValueError: an unknown format.
        DataError: a record can't be read.
    """
    experiments = group_runs(runs)
    scans = {e.runs[0].path: scan_run(e.runs[0]) for e in experiments}
    figures = build_figures(experiments, scans, gradient_of, min_count)
    folder = Path(output)
    written: list[Path] = []
    for place, (run, own) in enumerate(figures.by_run, 1):
        inner = folder / f"{place:02d}_{run.name}" if len(figures.by_run) > 1 else folder
        for figure in own:
            written += save_figure(figure, inner, formats)
    for figure in [*figures.across, *figures.dynamics]:
        written += save_figure(figure, folder, formats)
    return written


def build_figures(
    experiments: Sequence[Experiment],
    scans: Mapping[Path, Scan],
    gradient_of: GradientOf | None,
    min_count: int,
) -> FigureSet:
    """Every figure that the records allow.

    Args:
        experiments: grouped runs.
        scans: path of each experiment's first run to its scan.
        gradient_of: gives the gradient of a run's objective, or ``None``.
        min_count: how often a token must occur to stand in Figure 1.
    """
    by_run: list[tuple[Run, Sequence[Figure | TokenFigure]]] = []
    for experiment in experiments:
        run = experiment.runs[0]
        own = run_figures(run, scans[run.path], gradient_of(run) if gradient_of else None, min_count)
        if own:
            by_run.append((run, own))
    across = [dynamics_overview(experiments), ablation_figure(experiments), transfer_figure(experiments)]
    dynamics = [dynamics_figure(chart, experiments) for chart in CHARTS]
    return FigureSet(by_run, [f for f in across if f], [f for f in dynamics if f])


def run_figures(
    run: Run, scan: Scan, gradient: Gradient | None, min_count: int
) -> list[Figure | TokenFigure]:
    """Figures 1 to 3 of one run; without stored rollouts only the regions, and those only with a gradient."""
    figures: list[Figure | TokenFigure] = []
    levels = entropy_figure(scan)
    if levels:
        figures += [token_figure(scan, min_count), levels]
    if gradient is not None:
        figures.append(region_figure(gradient, scan, scan.settings.method or run.name))
    return figures
