"""Word clouds: how a token is written, and where it is placed."""

from __future__ import annotations

import numpy as np

from archer.analysis.records import FloatArray

NAMED = {"\n": "⏎", "\t": "⇥", "\r": "␍", " ": "␣"}
SPIRAL_STEP = 0.1
"""Radians between two tries along the spiral."""


def visible(text: str) -> str:
    """A token's text with its white space and control characters made visible, at most 40 characters."""
    shown = "".join(NAMED.get(c, c if c.isprintable() else f"\\x{ord(c):02x}") for c in text) or "(empty)"
    return shown if len(shown) <= 40 else shown[:39] + "…"


def rank_sizes(count: int, largest: float, smallest: float) -> FloatArray:
    """Font sizes ``[count]`` that fall linearly with rank."""
    return np.linspace(largest, smallest, count)


def place_words(widths: FloatArray, heights: FloatArray, aspect: float) -> FloatArray:
    """Centres of boxes packed around the origin without overlap, the first at the centre.

    Each box takes the first free place on an elliptical spiral.

    Args:
        widths, heights: ``[N]`` sizes of the boxes, in one unit.
        aspect: width of the spiral divided by its height.

    Returns:
        ``[N, 2]`` centres, in the same unit.
    """
    centres = np.zeros((len(widths), 2))
    pitch = float(np.mean(heights)) / 25 if len(heights) else 0.0
    for i in range(1, len(widths)):
        turn = 0.0
        while True:
            centre = pitch * turn * np.array([np.cos(turn) * aspect, np.sin(turn)])
            gap = np.abs(centres[:i] - centre)
            touches = (gap[:, 0] < (widths[:i] + widths[i]) / 2) & (
                gap[:, 1] < (heights[:i] + heights[i]) / 2
            )
            if not touches.any():
                centres[i] = centre
                break
            turn += SPIRAL_STEP
    return centres
