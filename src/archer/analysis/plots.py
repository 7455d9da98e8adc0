"""Figures as files (png, svg, pdf) through matplotlib."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from archer.analysis.charts import PALETTE, Figure, Mark, Panel
from archer.analysis.cloud import place_words, rank_sizes, visible
from archer.analysis.dynamics import STEP_LABEL
from archer.analysis.paper import TokenFigure
from archer.analysis.statistics import TokenMean
from archer.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

FORMATS = ("png", "svg", "pdf")
MARKER_LIMIT = 40
"""Lines of at most this many points also show the points, unless they are smoothed."""
FALLBACK_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "PingFang SC",
    "Microsoft YaHei",
    "WenQuanYi Zen Hei",
    "Noto Sans Symbols2",
)
"""Fonts that are asked for characters that DejaVu Sans lacks, where they are installed."""
STYLE: dict[str, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.dpi": 120,
    "font.size": 9,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "savefig.bbox": "tight",
    "svg.hashsalt": "archer",
}


def save_figure(figure: Figure | TokenFigure, output: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Writes one figure in each format.

    Args:
        figure: its data.
        output: the folder; it is made if it is absent.
        formats: any of png, svg, pdf.

    Returns:
        The files written.

    Raises:
        MissingDependencyError: matplotlib is not installed.
        ValueError: an unknown format.
    """
    unknown = set(formats) - set(FORMATS)
    if unknown:
        raise ValueError(f"expected formats among {', '.join(FORMATS)}, got {', '.join(sorted(unknown))}")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingDependencyError(
            "figures need matplotlib; run: pip install 'archer-rl[report]'"
        ) from error
    output.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with mpl.rc_context({**STYLE, "font.family": fonts()}), warnings.catch_warnings():
        # A token in a script without a font is drawn as a box, which says as much as the warning.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        for name, canvas in draw(figure):
            for extension in formats:
                path = output / f"{name}.{extension}"
                canvas.savefig(path, metadata={"Date": None} if extension == "svg" else None)
                written.append(path)
    return written


def fonts() -> list[str]:
    """Font families to draw with, in the order in which a character is looked up."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return ["DejaVu Sans", *(name for name in FALLBACK_FONTS if name in installed)]


def draw(figure: Figure | TokenFigure) -> Iterator[tuple[str, Canvas]]:
    """(file name, drawing) of each picture of a figure."""
    if isinstance(figure, Figure):
        yield figure.id, draw_panels(figure)
    elif figure.high:
        yield "fig01_token_cloud", draw_clouds(figure)
        yield "fig01_token_ranking", draw_rankings(figure)


def draw_panels(figure: Figure) -> Canvas:
    """The panels of a figure in a grid, its caption below."""
    columns = min(len(figure.panels), 2 if len(figure.panels) in (2, 4) else 3)
    rows = ceil(len(figure.panels) / columns)
    canvas = new_canvas(5.4 * columns, 4.3 * rows, figure.title, figure.caption)
    for i, panel in enumerate(figure.panels, 1):
        title = panel.title if len(figure.panels) > 1 or panel.title != figure.title else ""
        draw_panel(canvas.add_subplot(rows, columns, i), panel, title)
    return canvas


def new_canvas(width: float, height: float, title: str, caption: str) -> Canvas:
    """An empty drawing, in inches, with room for its title and caption."""
    from matplotlib.figure import Figure as MatplotlibFigure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(wspace=0.06, hspace=0.04)
    canvas = MatplotlibFigure(figsize=(width, height), layout=layout)
    canvas.suptitle(plain(title), fontsize=13)
    canvas.supxlabel(plain(textwrap.fill(caption, int(15 * width))), fontsize=9, color=PALETTE["neutral"][0])
    return canvas


def draw_panel(axes: Axes, panel: Panel, title: str) -> None:
    """One pair of axes."""
    from matplotlib.ticker import MaxNLocator, NullFormatter, ScalarFormatter

    right = axes.twinx() if panel.y2_label else None
    axes.set(title=plain(title), xlabel=plain(panel.x_label), ylabel=plain(panel.y_label))
    if panel.x_log:
        axes.set_xscale("log")
    elif not panel.ticks and panel.x_label == STEP_LABEL:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.y_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ScalarFormatter())
    if panel.ticks:
        axes.set_xticks(list(panel.ticks), labels=[plain(name) for name in panel.tick_names()])
        axes.minorticks_off()
    if panel.x_range:
        axes.set_xlim(*panel.x_range)
    if panel.y_range:
        axes.set_ylim(*panel.y_range)
    if right is not None:
        right.set(ylabel=plain(panel.y2_label), yscale="log")
        right.yaxis.set_minor_formatter(NullFormatter())
        right.grid(visible=False)
        axes.set_zorder(right.get_zorder() + 1)
        axes.patch.set_visible(False)
    for mark in panel.marks:
        draw_mark(right if mark.secondary and right is not None else axes, mark)
    handles, labels = axes.get_legend_handles_labels()
    if right is not None:
        extra = right.get_legend_handles_labels()
        handles, labels = handles + extra[0], labels + extra[1]
    if labels:
        axes.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8)


def draw_mark(axes: Axes, mark: Mark) -> None:
    """One mark, in the colours for a light ground."""
    colour = PALETTE[mark.colour][0]
    name = plain(mark.name) or None
    line = "--" if mark.dash else "-"
    x, y = np.asarray(mark.x, np.float64), np.asarray(mark.y, np.float64)
    if mark.kind == "line":
        if len(mark.low):
            axes.fill_between(
                x, np.asarray(mark.low), np.asarray(mark.high), color=colour, alpha=0.15, linewidth=0
            )
        smoothed = mark.smooth[max(mark.smooth)] if mark.smooth else None
        marker = "o" if len(x) <= MARKER_LIMIT and smoothed is None else ""
        raw = {"alpha": 0.55, "linewidth": 0.9} if smoothed is not None else {"label": name, "linewidth": 1.6}
        axes.plot(x, y, line, color=colour, marker=marker, markersize=3, **raw)
        if smoothed is not None:
            axes.plot(x, np.asarray(smoothed), line, color=colour, linewidth=1.8, label=name)
    elif mark.kind == "points":
        spread = [y - np.asarray(mark.low), np.asarray(mark.high) - y] if len(mark.low) else None
        axes.errorbar(x, y, yerr=spread, fmt="o", color=colour, markersize=4, elinewidth=1, label=name)
    elif mark.kind == "area":
        axes.stairs(y, x, fill=True, color=colour, alpha=0.3, label=name)
    elif mark.kind == "hline":
        axes.axhline(y[0], color=colour, linestyle=line, linewidth=1, label=name)
    elif mark.kind == "vspan":
        axes.axvspan(x[0], x[1], color=colour, alpha=0.12, linewidth=0, label=name)


def draw_clouds(figure: TokenFigure) -> Canvas:
    """Figure 1 as two word clouds, the largest word the most extreme."""
    canvas = new_canvas(13, 6, "Tokens of highest and of lowest mean entropy", figure.caption)
    for i, (title, tokens, colour) in enumerate(sides(figure), 1):
        axes = canvas.add_subplot(1, 2, i)
        axes.set_title(title)
        axes.set_axis_off()
        draw_cloud(axes, tokens, PALETTE[colour][0])
    return canvas


def draw_cloud(axes: Axes, tokens: Sequence[TokenMean], colour: str) -> None:
    """One word cloud, in points, scaled to fill its axes."""
    from matplotlib.patches import PathPatch
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    words = [visible(token.text.strip(" ") or token.text) for token in tokens]
    paths = [
        TextPath((0, 0), plain(word), size=size)
        for word, size in zip(words, rank_sizes(len(words), 30, 8), strict=True)
    ]
    boxes = [path.get_extents() for path in paths]
    centres = place_words(
        np.array([box.width + 5 for box in boxes]), np.array([box.height + 4 for box in boxes]), aspect=1.3
    )
    for path, box, centre in zip(paths, boxes, centres, strict=True):
        shift = Affine2D().translate(centre[0] - box.x0 - box.width / 2, centre[1] - box.y0 - box.height / 2)
        axes.add_patch(PathPatch(path.transformed(shift), facecolor=colour, edgecolor="none"))
    axes.autoscale_view()
    axes.set_aspect("equal", anchor="N")


def draw_rankings(figure: TokenFigure) -> Canvas:
    """Figure 1 as two rankings with one bar a token."""
    rows = len(figure.high)
    canvas = new_canvas(11, 1.6 + 0.15 * rows, "Tokens by mean entropy", figure.caption)
    for i, (title, tokens, colour) in enumerate(sides(figure), 1):
        axes = canvas.add_subplot(1, 2, i)
        places = np.arange(len(tokens))
        axes.barh(places, [token.entropy for token in tokens], color=PALETTE[colour][0])
        axes.set_yticks(
            places, labels=[visible(token.text) for token in tokens], parse_math=False, fontsize=7
        )
        axes.set(title=title, xlabel="Mean entropy (nats)", ylim=(len(tokens) - 0.4, -0.6))
        axes.grid(visible=False, axis="y")
    return canvas


def sides(figure: TokenFigure) -> Sequence[tuple[str, Sequence[TokenMean], str]]:
    """(title, tokens, colour) of the two halves of Figure 1."""
    return (
        (f"{len(figure.high)} of highest entropy", figure.high, "reasoning"),
        (f"{len(figure.low)} of lowest entropy", figure.low, "knowledge"),
    )


def plain(text: str) -> str:
    """Text that matplotlib does not read as a formula."""
    return text.replace("$", r"\$")
