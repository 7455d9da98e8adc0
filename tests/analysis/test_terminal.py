"""The terminal view."""

import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rich.console import Console

from archer.analysis import watch
from archer.analysis.terminal import BLOCKS, duration, sparkline
from archer.errors import DataError


def shown(path, width=110):
    out = io.StringIO()
    watch(path, once=True, console=Console(file=out, width=width))
    return out.getvalue()


def test_watch_needs_metrics_alone(make_run, tmp_path):
    run = make_run(steps=30)
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "metrics.jsonl").write_bytes((run.path / "metrics.jsonl").read_bytes())
    text = shown(tmp_path / "alone")
    assert "step 30" in text
    last = run.metrics[-1]
    assert f"{last['reward/mean']:.3f}" in text
    assert f"{last['entropy/reasoning']:.3f}" in text
    assert re.search(r"avg@8\s+0\.2\s+0\.5", text), "first and last evaluation"
    assert shown(tmp_path / "alone" / "metrics.jsonl").splitlines()[1:] == text.splitlines()[1:]


def test_watch_fits_a_terminal_of_80_columns(make_run):
    text = shown(make_run(steps=30).path, width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_watch_leaves_out_what_the_run_does_not_have(make_run):
    assert "KL reasoning" not in shown(make_run(steps=5, reference=False).path)


def test_watch_of_a_run_that_is_being_written(make_run, tmp_path):
    run = make_run(steps=5)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "rew')
    assert "line 7 is incomplete" in shown(run.path)
    (tmp_path / "metrics.jsonl").write_text("")
    assert "no step has finished yet" in shown(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "ti')
    assert "no step has finished yet" in shown(tmp_path)


def test_watch_of_nothing_says_what_was_expected(tmp_path):
    with pytest.raises(DataError, match=r"expected a run directory or its metrics\.jsonl, found a folder"):
        watch(tmp_path, once=True)


def test_watch_follows_until_interrupted(make_run, monkeypatch):
    run = make_run(steps=5)
    out = io.StringIO()
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 1:
            with (run.path / "metrics.jsonl").open("a") as file:
                file.write('{"step": 6, "reward/mean": 0.123}\n')
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("archer.analysis.terminal.time.sleep", pause)
    watch(run.path, interval=7, console=Console(file=out, width=100, force_terminal=True))
    assert pauses == [7, 7]
    assert "0.123" in out.getvalue()


@given(arrays(np.float64, st.integers(1, 200), elements=st.floats(-1e6, 1e6)))
def test_sparkline_spans_the_blocks_and_fits(values):
    line = sparkline(values, 32)
    assert len(line) == min(32, len(values))
    assert set(line) <= set(BLOCKS)
    if len(values) <= 32 and np.ptp(values) > 0:
        assert line[int(np.argmax(values))] == BLOCKS[-1]
        assert line[int(np.argmin(values))] == BLOCKS[0]


def test_durations_in_words():
    assert [duration(s) for s in (-1, 59, 90, 7200, 200000)] == ["0 s", "59 s", "1.5 min", "2.0 h", "2.3 d"]
