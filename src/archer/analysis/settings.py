"""What the figures need to know of a run's configuration, and how runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from archer.analysis.records import FloatArray, Run, flatten

PAPER_RHO = 0.8
WIDE_SPAN = float(np.log(16))
NARROW = 0.02
NARROW_SPAN = 10.0
"""Of a clip range narrower than ``NARROW``, this many times its width is binned on either side of ratio 1."""
LABELS_ONLY = {"seed", "name", "output", "run_dir", "notes"}
"""Last parts of keys that tell runs apart without changing the experiment."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run that its figures depend on.

    Attributes:
        rho: quantile of the entropy threshold.
        tie_is_reasoning: role of a token at the threshold.
        ratio_edges: bin edges of the log importance ratio, an odd number of bins, so that ratio 1 lies in the middle
            of one; from 1/16 to 16, or near 1 where the clip range is as narrow as that of GSPO.
    """

    method: str
    rho: float
    tie_is_reasoning: bool
    ratio_edges: FloatArray


def read_settings(run: Run) -> Settings:
    """The settings of a run, from its resolved configuration; the paper's rho where it names none."""
    rho = run.setting("objective.rho")
    return Settings(
        method=str(run.setting("objective.method") or ""),
        rho=PAPER_RHO if rho is None else float(rho),
        tie_is_reasoning=run.setting("objective.tie") != "knowledge",
        ratio_edges=ratio_edges(run),
    )


def ratio_edges(run: Run) -> FloatArray:
    """Bin edges of the log importance ratio that suit the clip range of a run."""
    named = [run.setting(f"objective.{key}") for key in ("eps_low", "eps_high")]
    widest = max((float(eps) for eps in named if eps is not None), default=1.0)
    span = NARROW_SPAN * widest if widest < NARROW else WIDE_SPAN
    return np.linspace(-span, span, 160)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Runs of one configuration that differ in nothing but their seed."""

    label: str
    runs: Sequence[Run]
    varied: dict[str, Any]


def group_runs(runs: Sequence[Run]) -> list[Experiment]:
    """Runs gathered by configuration, seeds aside, in order of first appearance.

    A label names the settings in which the experiments differ, or the run itself where they tell nothing
    apart.
    """
    flat = [setting_values(run) for run in runs]
    gathered: dict[str, tuple[dict[str, Any], list[Run]]] = {}
    for run, config in zip(runs, flat, strict=True):
        key = repr(sorted(config.items(), key=lambda item: item[0])) if config else f"run {run.path}"
        gathered.setdefault(key, (config, []))[1].append(run)
    keys = varied_keys([config for config, _ in gathered.values()])
    result: list[Experiment] = []
    for config, members in gathered.values():
        varied = {key: config.get(key) for key in keys}
        label = ", ".join(
            f"{key.rsplit('.', 1)[-1]}={value}" for key, value in varied.items() if value is not None
        )
        method = varied.get("objective.method")
        if method is not None and len({c.get("objective.method") for c, _ in gathered.values()}) == len(
            gathered
        ):
            label = str(method)  # methods differ in many settings, which their name stands for
        elif not label or len(label) > 60:
            label = members[0].name + (f" ({len(members)} seeds)" if len(members) > 1 else "")
        if any(label == other.label for other in result):
            label = str(members[0].path)
        result.append(Experiment(label, members, varied))
    return result


def setting_values(run: Run) -> dict[str, Any]:
    """The settings of a run that make its experiment: dotted key to value, unset ones and labels left out."""
    return {
        key: value
        for key, value in flatten(run.config).items()
        if value is not None and key.rsplit(".", 1)[-1] not in LABELS_ONLY
    }


def varied_keys(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Dotted keys whose values are not the same in all configurations, in order of appearance."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if any(config.get(key) != configs[0].get(key) for config in configs[1:])]
