"""What a study found: values with intervals over seeds, paired differences, curves."""

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from archer.analysis import Run as RunRecord
from archer.analysis import load_run, write_report
from archer.analysis.dynamics import natural, series
from archer.analysis.figures import GradientOf
from archer.analysis.paper import ablation_figure, dynamics_overview
from archer.analysis.plots import save_figure
from archer.analysis.settings import Experiment, setting_values, varied_keys
from archer.configs.study import StudyConfig
from archer.evaluation.statistics import seed_interval
from archer.experiments.running import Run, differences

Verdict = Literal["baseline", "higher", "lower", "within noise", "one seed"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One column: its key in metrics.jsonl, its title with unit, and how it is printed."""

    key: str
    title: str
    scale: float = 1.0
    digits: int = 3
    last: bool = False


TAIL_MEASURES = (
    Measure("entropy/mean", "entropy (nats)"),
    Measure("response/repetition", "repetition (share)", digits=4),
    Measure("response/length_mean", "length (tokens)", digits=1),
    Measure("kl/base", "KL to base (nats)", digits=4),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One measure of one variant.

    Attributes:
        values: seed to value.
        mean, half: over the seeds, with the half-width of the 95 % interval (Student's t).
        difference, difference_half: mean of the seed-by-seed differences to the baseline, and its half-width.
        verdict: ``within noise`` where the interval of the difference contains 0.
    """

    values: Mapping[int, float]
    mean: float
    half: float
    difference: float
    difference_half: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Cells by variant and by title of the measure."""

    study: StudyConfig
    measures: Sequence[Measure]
    cells: Mapping[str, Mapping[str, Cell]]
    unlike: Mapping[str, Sequence[str]]
    missing: Sequence[Run]

    def markdown(self) -> str:
        """All tables of the study, each with its differences."""
        parts = [f"# {self.study.name}", ""]
        for title, variants in self.study.tables().items():
            shown = [v for v in variants if v in self.cells]
            parts += [f"## {title}", "", *self._table(shown, _value), ""]
            parts += [f"Difference to {self.study.baseline}, seed by seed:", ""]
            parts += [*self._table([v for v in shown if v != self.study.baseline], _difference), ""]
        return "\n".join([*parts, *self._notes()]) + "\n"

    def _table(self, variants: Sequence[str], text: "Callable[[Cell, Measure], str]") -> list[str]:
        lines = [
            "| variant | " + " | ".join(m.title for m in self.measures) + " | seeds |",
            "|---|" + "---:|" * (len(self.measures) + 1),
        ]
        for variant in variants:
            row = self.cells[variant]
            count = max(len(cell.values) for cell in row.values())
            cells = [text(row[m.title], m) if m.title in row else "" for m in self.measures]
            lines.append(f"| {variant} | " + " | ".join([*cells, str(count)]) + " |")
        return lines

    def _notes(self) -> list[str]:
        differences_shown = sum(
            c.verdict in ("higher", "lower", "within noise")
            for row in self.cells.values()
            for c in row.values()
        )
        notes = [
            "Mean over seeds ± half-width of its 95 % interval (Student's t). avg@K and pass@K are of the last "
            f"evaluation, the others of the last {self.study.tail} steps. KL: k3 estimate on sampled tokens. A "
            "difference is called noise when its interval contains 0. "
            f"Of the {differences_shown} differences here about {differences_shown / 20:.0f} would lie outside "
            "their interval by chance alone.",
        ]
        for variant, fields in self.unlike.items():
            notes.append(
                f"{variant} differs from {self.study.baseline} in more than the objective: {', '.join(fields)}."
            )
        if self.missing:
            names = ", ".join(f"{run.variant} seed {run.seed}" for run in self.missing)
            notes.append(f"Not finished, and left out: {names}.")
        return [line for note in notes for line in (note, "")]


def collect(study: StudyConfig, runs: Sequence[Run]) -> StudyResult:
    """Read the finished runs of a study.

    Args:
        study: what was compared.
        runs: from ``plan``; unfinished ones are left out and named.
    """
    finished = [run for run in runs if run.state() == "finished"]
    records = {(run.variant, run.seed): load_run(run.folder) for run in finished}
    measures = _measures(list(records.values()))
    values: dict[str, dict[str, dict[int, float]]] = {}
    for (variant, seed), record in records.items():
        for measure in measures:
            value = _value_of(record, measure, study.tail)
            if math.isfinite(value):
                values.setdefault(variant, {}).setdefault(measure.title, {})[seed] = value
    base = values.get(study.baseline, {})
    cells = {
        variant: {
            title: _cell(by_seed, None if variant == study.baseline else base.get(title, {}))
            for title, by_seed in row.items()
        }
        for variant, row in values.items()
    }
    return StudyResult(
        study, measures, cells, _unlike(study, runs), [run for run in runs if run not in finished]
    )


def write_study(
    result: StudyResult, runs: Sequence[Run], folder: Path, gradient_of: GradientOf | None = None
) -> list[Path]:
    """Write ``table.md``, ``table.csv``, ``result.json``, the curves as PNG and ``report.html``.

    Returns:
        The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "table.md", folder / "table.csv", folder / "result.json"]
    written[0].write_text(result.markdown(), encoding="utf-8")
    with written[1].open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(_rows(result))
    cells = {v: {title: asdict(cell) for title, cell in row.items()} for v, row in result.cells.items()}
    content = {"study": result.study.model_dump(mode="json"), "cells": cells}
    written[2].write_text(json.dumps(_without_nan(content), indent=1) + "\n", encoding="utf-8")
    records = {
        variant: [load_run(r.folder) for r in runs if r.variant == variant and r.state() == "finished"]
        for variant in result.cells
    }
    for title, variants in result.study.tables().items():
        shown = [v for v in variants if records.get(v)]
        settings = [setting_values(records[v][0]) for v in shown]
        keys = varied_keys(settings)
        experiments = [
            Experiment(v, records[v], {key: values.get(key) for key in keys})
            for v, values in zip(shown, settings, strict=True)
        ]
        for figure in (ablation_figure(experiments), dynamics_overview(experiments)):
            if figure is not None:
                place = folder / "figures" / title.replace("/", "-").replace(" ", "_")
                written += save_figure(figure, place, ("png",))
    every = [record for group in records.values() for record in group]
    if every:
        written.append(write_report(every, folder / "report.html", gradient_of=gradient_of))
    return written


def _measures(records: Sequence[RunRecord]) -> list[Measure]:
    """avg@K and pass@K with the largest K that the runs have, then the averages over the last steps."""
    keys = sorted({key for record in records for row in record.metrics for key in row}, key=natural)
    found = []
    for kind in ("avg@", "pass@"):
        matching = [k for k in keys if k.startswith(f"eval/{kind}") and k.rsplit("@", 1)[1].isdigit()]
        if matching:
            key = matching[-1]
            found.append(Measure(key, f"{key.removeprefix('eval/')} (%)", scale=100.0, digits=2, last=True))
    return [*found, *(m for m in TAIL_MEASURES if m.key in keys)]


def _value_of(record: RunRecord, measure: Measure, tail: int) -> float:
    _, values = series(record, measure.key)
    if not values.size:
        return math.nan
    chosen = values[-1:] if measure.last else values[-tail:]
    return float(chosen.mean()) * measure.scale


def _cell(values: Mapping[int, float], baseline: Mapping[int, float] | None) -> Cell:
    mean, half = seed_interval(list(values.values()))
    if baseline is None:
        return Cell(values, mean, half, 0.0, 0.0, "baseline")
    paired = [value - baseline[seed] for seed, value in values.items() if seed in baseline]
    difference, spread = seed_interval(paired)
    verdict: Verdict = "one seed"
    if len(paired) > 1:
        verdict = "within noise" if abs(difference) <= spread else "higher" if difference > 0 else "lower"
    return Cell(values, mean, half, difference, spread, verdict)


def _unlike(study: StudyConfig, runs: Sequence[Run]) -> dict[str, list[str]]:
    """Settings outside the objective in which a variant is unlike the baseline: no like-for-like comparison."""
    first = {run.variant: run for run in reversed(runs)}
    labels = {"name", "output"}
    found = {
        variant: [
            field
            for field in differences(first[study.baseline].config, run.config)
            if field not in labels and not field.startswith("objective.")
        ]
        for variant, run in first.items()
    }
    return {variant: fields for variant, fields in found.items() if fields}


def _value(cell: Cell, measure: Measure) -> str:
    spread = "" if math.isnan(cell.half) else f" ± {cell.half:.{measure.digits}f}"
    return f"{cell.mean:.{measure.digits}f}{spread}"


def _difference(cell: Cell, measure: Measure) -> str:
    if math.isnan(cell.difference):
        return "no pair"
    spread = "" if math.isnan(cell.difference_half) else f" ± {cell.difference_half:.{measure.digits}f}"
    note = {"within noise": " (noise)", "one seed": " (one seed)"}.get(cell.verdict, "")
    return f"{cell.difference:+.{measure.digits}f}{spread}{note}"


def _rows(result: StudyResult) -> list[list[object]]:
    header: list[object] = [
        *("table", "variant", "measure", "seeds", "mean", "half_width"),
        *("difference", "difference_half_width", "verdict"),
    ]
    return [header] + [
        [title, variant, name, len(c.values), c.mean, c.half, c.difference, c.difference_half, c.verdict]
        for title, variants in result.study.tables().items()
        for variant in variants
        for name, c in result.cells.get(variant, {}).items()
    ]


def _without_nan(value: object) -> object:
    """JSON has no NaN."""
    if isinstance(value, Mapping):
        return {str(key): _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value
