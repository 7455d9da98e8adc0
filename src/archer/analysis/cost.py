"""What a training run cost (the paper's Table 6), from its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from archer.analysis.dynamics import series
from archer.analysis.records import Run


@dataclass(frozen=True, slots=True)
class Cost:
    """One run, or the sum of the runs that are stages of one training.

    Attributes:
        steps: finished steps.
        stages: runs.
        device: what it ran on.
        step_hours: time in steps; evaluation and checkpoints aside.
        evaluation_hours: time in evaluations.
        sampled, trained: tokens.
    """

    name: str
    steps: int
    stages: int
    device: str
    step_hours: float
    evaluation_hours: float
    sampled: float
    trained: float

    @property
    def device_hours(self) -> float:
        """Hours of one device, evaluation included."""
        return self.step_hours + self.evaluation_hours


def cost_of(run: Run) -> Cost:
    """The cost of one run. A step that was repeated after a kill counts once, as it stands in the metrics."""

    def total(key: str) -> float:
        return float(series(run, key)[1].sum())

    device = run.environment.get("cuda") or f"CPU, {run.environment.get('cores', '?')} cores"
    return Cost(
        name=run.name,
        steps=sum(row["step"] > 0 for row in run.metrics),
        stages=1,
        device=str(device),
        step_hours=total("time/step") / 3600,
        evaluation_hours=total("time/evaluate") / 3600,
        sampled=total("tokens/sampled"),
        trained=total("tokens/trained"),
    )


def cost_table(runs: Sequence[Run]) -> str:
    """A markdown table with a row a run, and their sum where there are several."""
    rows = [cost_of(run) for run in runs]
    if len(rows) > 1:
        rows.append(
            Cost(
                "all stages",
                sum(r.steps for r in rows),
                len(rows),
                ", ".join(dict.fromkeys(r.device for r in rows)),
                sum(r.step_hours for r in rows),
                sum(r.evaluation_hours for r in rows),
                sum(r.sampled for r in rows),
                sum(r.trained for r in rows),
            )
        )
    lines = [
        "| run | steps | stages | device | device hours | of which evaluation | tokens sampled | tokens trained |",
        "|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for r in rows:
        lines.append(
            f"| {r.name} | {r.steps} | {r.stages} | {r.device} | {r.device_hours:.3g} | {r.evaluation_hours:.2g} | "
            f"{r.sampled:,.0f} | {r.trained:,.0f} |"
        )
    return "\n".join(lines) + "\n"
