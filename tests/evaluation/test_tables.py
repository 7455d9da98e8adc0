"""Models side by side."""

import csv
import io
import json
import math

import pytest

from archer.analysis.transfer import cross_domain_figure
from archer.errors import DataError
from archer.evaluation.tables import BenchmarkScore, BenchmarkTable, paired_difference


def score(average, accuracy, k=4):
    metrics = {f"avg@{k}": average, f"avg@{k}_interval": 0.05, f"pass@{k}": 0.9, "truncated_share": 0.25,
               "finished_score": 0.75, "length_mean": 100.0, "repetition": 0.01, "unscorable_share": 0.0,
               "tokens": 12345.0}  # fmt: skip
    return BenchmarkScore(k, metrics, accuracy)


BASE = {"p1": 0.0, "p2": 0.5, "p3": 1.0, "p4": 0.5}
BETTER = {"p1": 0.25, "p2": 0.75, "p3": 1.0, "p4": 1.0}


def test_paired_difference_of_known_values():
    found = paired_difference(BASE, {**BETTER, "other": 1.0})
    # Differences 0.25, 0.25, 0, 0.5: mean 0.25, standard deviation sqrt(0.125 / 3).
    assert found.mean == pytest.approx(0.25)
    assert found.half == pytest.approx(1.959964 * math.sqrt(0.125 / 3) / 2, rel=1e-6)
    assert found.problems == 4
    assert not found.within_noise
    assert paired_difference(BASE, {"p1": 1.0, "p3": 0.0}).within_noise
    assert paired_difference(BASE, {"p1": 1.0}).within_noise, "one problem has no interval"


def table():
    return BenchmarkTable(
        {"math500": "MATH-500", "gsm8k": "GSM8K"},
        {
            "base": {"math500": score(0.5, BASE), "gsm8k": score(0.3, BASE)},
            "tuned": {"math500": score(0.75, BETTER), "gsm8k": score(0.3, BASE)},
            "half": {"math500": score(0.4, BASE)},
        },
    )


def test_markdown_holds_scores_means_and_differences():
    text = table().markdown()
    assert "| model | MATH-500 avg@4 (pass@4) | GSM8K avg@4 (pass@4) | mean avg |" in text
    assert "| base | 50.0 ± 5.0 (90.0) | 30.0 ± 5.0 (90.0) | 40.0 |" in text
    assert "| half | 40.0 ± 5.0 (90.0) |  |  |" in text, "no mean over an incomplete row"
    assert "| tuned | +25.0 ± 20.0 | +0.0 ± 0.0 (noise) |" in text
    assert "| tuned | MATH-500 | 4 | 25.0 | 75.0 | 100 | 1.00 | 0.0 | 12,345 |" in text


def test_csv_and_json_hold_the_same():
    rows = list(csv.DictReader(io.StringIO(table().csv())))
    assert {"model": "tuned", "benchmark": "math500", "metric": "avg@4", "value": "0.75"} in rows
    content = json.loads(table().json())
    assert content["tuned"]["math500"]["difference"]["mean"] == pytest.approx(0.25)
    assert content["base"]["math500"]["difference"] is None
    assert content["half"]["math500"]["difference"]["problems"] == 4


def rows(scores):
    return [
        {"problem_id": f"p{i}", "sample": j, "reward": float(value)}
        for i, row in enumerate(scores)
        for j, value in enumerate(row)
    ]


def test_cross_domain_gain_by_difficulty():
    base = {"math": rows([[0, 0, 0, 0], [1, 1, 1, 1]]), "code": rows([[0, 1, 0, 1]])}
    trained = {"math-rl": {"math": rows([[1, 1, 1, 1], [1, 1, 0, 0]]), "code": rows([[0, 1, 1, 1]])}}
    figure = cross_domain_figure(base, trained)
    by_title = {panel.title: panel for panel in figure.panels}
    gains = by_title["math: gain by difficulty"].marks[1]
    assert list(gains.y) == [1.0, -0.5], "hard problem gained all, easy one lost half"
    # Sample 0 and 2 say accuracy 0, samples 1 and 3 say 1: the gain is taken from the second half.
    assert list(by_title["code: gain by difficulty"].marks[1].y) == [-0.25]
    with pytest.raises(DataError, match="at least 2 samples"):
        cross_domain_figure({"math": rows([[0], [1]])}, trained)
    with pytest.raises(DataError, match="share, found none"):
        cross_domain_figure({"other": rows([[0, 1]])}, trained)
