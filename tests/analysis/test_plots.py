"""Figures as files."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from archer.analysis import write_figures
from archer.analysis.charts import PALETTE
from archer.analysis.cloud import place_words, visible
from archer.analysis.dynamics import CHARTS, dynamics_figure
from archer.analysis.plots import FORMATS, save_figure
from archer.analysis.settings import group_runs

STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@given(
    arrays(np.float64, st.integers(0, 12), elements=st.floats(1, 80)),
    st.floats(0.5, 3),
)
def test_placed_words_never_overlap(widths, aspect):
    heights = widths / 3 + 1
    centres = place_words(widths, heights, aspect)
    for i in range(len(widths)):
        for j in range(i):
            gap = np.abs(centres[i] - centres[j])
            assert gap[0] >= (widths[i] + widths[j]) / 2 or gap[1] >= (heights[i] + heights[j]) / 2


def test_white_space_and_control_characters_are_made_visible():
    assert visible(" the\n") == "␣the⏎"
    assert visible("\x07") == "\\x07"
    assert visible("") == "(empty)"
    assert len(visible("x" * 500)) == 40


def test_a_figure_is_written_in_each_format(make_run, tmp_path):
    reward = next(chart for chart in CHARTS if chart.id == "reward")
    figure = dynamics_figure(reward, group_runs([make_run(steps=10)]))
    files = save_figure(figure, tmp_path / "figures")
    assert [file.suffix for file in files] == [f".{name}" for name in FORMATS]
    for file in files:
        assert file.read_bytes().startswith(STARTS[file.suffix[1:]])
    again = save_figure(figure, tmp_path / "again", ["png"])
    assert again[0].read_bytes() == files[0].read_bytes()


def test_an_unknown_format_is_refused(make_run, tmp_path):
    with pytest.raises(ValueError, match="png, svg, pdf, got gif"):
        write_figures([make_run(steps=5)], tmp_path / "figures", formats=["gif"])


def test_every_figure_is_written_whatever_the_tokens_hold(make_run, tmp_path, gradient):
    run = make_run("$name_with_$signs", steps=10, every=10)
    with warnings.catch_warnings(record=True) as caught:
        files = write_figures(
            [run], tmp_path / "figures", formats=["png"], gradient_of=lambda _: gradient, min_count=5
        )
    assert [str(w.message) for w in caught] == []
    names = {file.stem for file in files}
    assert names >= {"fig01_token_cloud", "fig01_token_ranking", "fig02_entropy_levels", "fig03_regions"}
    assert names >= {"fig04_05_dynamics", "fig10_12_transfer", "reward", "kl", "clip"}


def test_figures_of_several_experiments_lie_in_folders_of_their_own(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr("archer.analysis.figures.CHARTS", CHARTS[:2])
    monkeypatch.setattr("archer.analysis.paper.CHARTS", CHARTS[:2])
    runs = [make_run("a", steps=4, every=4), make_run("b", steps=4, every=4, objective={"eps_r": 0.4})]
    files = write_figures(runs, tmp_path / "figures", formats=["svg"], min_count=5)
    folders = {file.parent.name for file in files if file.stem == "fig02_entropy_levels"}
    assert folders == {"01_a", "02_b"}
    assert "fig07_09_ablation" in {file.stem for file in files}


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", PALETTE)
def test_every_colour_is_readable_on_both_grounds(name):
    for colour, ground in zip(PALETTE[name], ("#f5f6f8", "#1d2128"), strict=True):
        light, dark = sorted((luminance(colour), luminance(ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5
