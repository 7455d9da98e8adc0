"""A figure as data. The page (plotly) and the files (matplotlib) draw the same ``Figure``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Numbers = Sequence[float] | NDArray[np.float64]
Kind = Literal["line", "points", "bar", "area", "hline", "vspan"]

SMOOTHING_WINDOWS = (10, 40)
"""Widths, in steps, at which every curve is also held smoothed."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One thing drawn in a panel.

    Attributes:
        kind: ``line``, ``points`` (with ``low``/``high`` as a bar around each), ``bar``, ``area`` (filled
            steps; ``x`` has one edge more than ``y``), ``hline`` (at ``y[0]``), ``vspan`` (from ``x[0]`` to
            ``x[1]``).
        name: legend entry; empty for none.
        colour: a name from ``PALETTE``.
        x, y: coordinates.
        low, high: band around a line, or whiskers of points.
        band: what the band is, in words.
        smooth: window to the smoothed ``y``.
        dash: drawn dashed, so that meaning never hangs on colour alone.
        secondary: drawn against the right axis.
        label: text for each point.
    """

    kind: Kind
    name: str
    colour: str
    x: Numbers = ()
    y: Numbers = ()
    low: Numbers = ()
    high: Numbers = ()
    band: str = ""
    smooth: Mapping[int, Numbers] = field(default_factory=dict)
    dash: bool = False
    secondary: bool = False
    label: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. Labels carry the unit; ``ticks`` fixes the x ticks, ``tick_labels`` their names."""

    title: str
    x_label: str
    y_label: str
    marks: Sequence[Mark]
    x_log: bool = False
    y_log: bool = False
    y_range: tuple[float, float] | None = None
    x_range: tuple[float, float] | None = None
    ticks: Sequence[float] = ()
    tick_labels: Sequence[str] = ()
    y2_label: str = ""

    def tick_names(self) -> list[str]:
        """What stands at each of ``ticks``."""
        return list(self.tick_labels) or [f"{tick:g}" for tick in self.ticks]


@dataclass(frozen=True, slots=True)
class Figure:
    """Panels that belong together, with one sentence that says what to see.

    Attributes:
        id: stable name, also the file name.
        paper: which figure of the paper this is, or empty.
    """

    id: str
    title: str
    caption: str
    panels: Sequence[Panel]
    paper: str = ""


PALETTE: Mapping[str, tuple[str, str]] = {
    "reasoning": ("#b84a08", "#ff9a52"),
    "knowledge": ("#0067a5", "#5eb3f2"),
    "neutral": ("#5a6270", "#a9b1bd"),
    "series0": ("#0067a5", "#5eb3f2"),
    "series1": ("#b84a08", "#ff9a52"),
    "series2": ("#00795a", "#3fc79b"),
    "series3": ("#a8487f", "#e596c2"),
    "series4": ("#8a6d00", "#e0c341"),
    "series5": ("#4d4d9f", "#a6a6f0"),
}
"""Colour name to (on a light ground, on a dark ground): Okabe and Ito's hues, darkened or lightened until
every one has a contrast of at least 4.5 with its ground."""

SERIES = tuple(name for name in PALETTE if name.startswith("series"))
