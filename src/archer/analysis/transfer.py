"""Figures 10 to 12 of the paper: where training helps, from the evaluation records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from archer.analysis.charts import SERIES, Figure, Mark, Panel
from archer.analysis.dynamics import STEP_LABEL
from archer.analysis.jsonl import Row
from archer.analysis.settings import Experiment
from archer.analysis.statistics import accuracy_by_problem, bootstrap_interval, gain_by_difficulty
from archer.errors import DataError

Rows = Sequence[Mapping[str, Any]]

DIFFICULTY_EDGES = (0.0, 0.125, 0.375, 0.625, 0.875, 1.0)


def transfer_figure(experiments: Sequence[Experiment]) -> Figure | None:
    """Figures 10 to 12: accuracy by domain over the steps, and the gain against how hard a problem was
    before.

    Drawn from the evaluation records; needs two evaluations.
    """
    records = [merged_evaluations(e) for e in experiments]
    domains = sorted({domain_of(row) for steps in records for rows in steps.values() for row in rows})
    panels: list[Panel] = []
    for domain in domains:
        curves: list[Mark] = []
        gains: list[Mark] = []
        for i, (experiment, steps) in enumerate(zip(experiments, records, strict=True)):
            chosen = {
                step: [row for row in steps[step] if domain_of(row) == domain] for step in sorted(steps)
            }
            chosen = {step: rows for step, rows in chosen.items() if accuracy_by_problem(rows)}
            if len(chosen) >= 2:
                colour = SERIES[i % len(SERIES)]
                curves.append(accuracy_mark(experiment.label, colour, chosen))
                first, last = chosen[min(chosen)], chosen[max(chosen)]
                gains.append(gain_mark(experiment.label, colour, first, last, i))
        panels += transfer_panels(domain or "Held-out problems", curves, [m for m in gains if len(m.y)])
    if not panels:
        return None
    caption = (
        "First, accuracy on the held-out problems of each domain; then what training changed for problems of "
        "each difficulty: half of the samples before training sort the problems into points, the other half "
        "give a point's accuracy before and its gain. Bands and whiskers are 95 % bootstrap intervals over "
        "problems: a whisker that crosses 0 may be chance."
    )
    return Figure("fig10_12_transfer", "Where training helps", caption, panels, "10, 11, 12")


def cross_domain_figure(base: Mapping[str, Rows], trained: Mapping[str, Mapping[str, Rows]]) -> Figure:
    """Figures 11 and 12: what training on one domain changed on each, by how hard a problem was for the base model.

    Args:
        base: benchmark to the base model's records, with an even number of samples a problem.
        trained: label of a trained model to its records by benchmark.

    Raises:
        DataError: the base shares no benchmark with a trained model, or has one sample a problem.
    """
    panels: list[Panel] = []
    for name, before in base.items():
        if not any(row["sample"] % 2 for row in before):
            raise DataError(f"{name}: expected at least 2 samples a problem of the base model, found 1")
        gains = [
            gain_mark(label, SERIES[i % len(SERIES)], before, records[name], i)
            for i, (label, records) in enumerate(trained.items())
            if name in records
        ]
        panels += transfer_panels(name, [], [mark for mark in gains if len(mark.y)])
    if not panels:
        raise DataError("expected a benchmark that the base and a trained model share, found none")
    caption = (
        "Gain over the base model by its accuracy on a problem: half of its samples sort the problems into points, "
        "the other half give a point's accuracy and its gain, so that chance in the first does not show as gain. "
        "Whiskers are 95 % bootstrap intervals over problems."
    )
    return Figure(
        "fig11_12_cross_domain", "What training on one domain does to each", caption, panels, "11, 12"
    )


def transfer_panels(name: str, curves: Sequence[Mark], gains: Sequence[Mark]) -> list[Panel]:
    """The panels of one domain; none without marks."""
    panels: list[Panel] = []
    if curves:
        panels.append(Panel(f"{name}: accuracy", STEP_LABEL, "Mean accuracy (0 to 1)", curves))
    if gains:
        zero = Mark("hline", "No change", "neutral", y=[0.0], dash=True)
        title = f"{name}: gain by difficulty"
        panels.append(
            Panel(
                title,
                "Accuracy before training (0 to 1)",
                "Gain in accuracy",
                [zero, *gains],
                x_range=(-0.05, 1.05),
            )
        )
    return panels


def domain_of(row: Row) -> str:
    """The domain that an evaluation record names, or empty."""
    return str(row.get("domain") or "")


def merged_evaluations(experiment: Experiment) -> dict[int, list[Row]]:
    """Step to the evaluation records of all seeds of an experiment."""
    merged: dict[int, list[Row]] = {}
    for run in experiment.runs:
        for step, rows in run.evaluations().items():
            merged.setdefault(step, []).extend(rows)
    return merged


def accuracy_mark(name: str, colour: str, evaluations: Mapping[int, Sequence[Row]]) -> Mark:
    """Mean accuracy over the steps, with its bootstrap band."""
    values = [np.asarray(list(accuracy_by_problem(rows).values())) for rows in evaluations.values()]
    bands = [bootstrap_interval(v) for v in values]
    return Mark(
        "line",
        name,
        colour,
        x=list(evaluations),
        y=[float(v.mean()) for v in values],
        low=[low for low, _ in bands],
        high=[high for _, high in bands],
    )


def gain_mark(name: str, colour: str, first: Rows, last: Rows, place: int) -> Mark:
    """Mean gain from the first to the last records by difficulty; ``place`` sets marks side by side."""
    even, odd = ([row for row in first if row["sample"] % 2 == parity] for parity in (0, 1))
    bins = gain_by_difficulty(
        accuracy_by_problem(even), accuracy_by_problem(odd), accuracy_by_problem(last), DIFFICULTY_EDGES
    )
    bands = [bootstrap_interval(gain) for *_, gain in bins]
    return Mark(
        "points",
        name,
        colour,
        x=[float(before.mean()) + 0.01 * place for _, _, before, _ in bins],
        y=[float(gain.mean()) for *_, gain in bins],
        low=[low for low, _ in bands],
        high=[high for _, high in bands],
        label=[f"{gain.size} problems, sorted in at {low:g} to {high:g}" for low, high, _, gain in bins],
    )
