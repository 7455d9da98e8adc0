"""The report as a file: self-contained, safe, and with the numbers of the records."""

import base64
import hashlib
import json
import re
import sys

import numpy as np
import pytest

from archer.analysis import write_report
from archer.analysis.report import embed
from archer.errors import MissingDependencyError


def data_of(page):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1)
    )


@pytest.fixture
def report(make_run, tmp_path, gradient):
    run = make_run(steps=20, every=10)
    page = write_report(
        [run], tmp_path / "out" / "r.html", gradient_of=lambda _: gradient, min_count=20
    ).read_text()
    return run, page


def test_numbers_in_the_page_are_those_of_the_records(report):
    run, page = report
    data = data_of(page)
    line = data["figures"]["entropy"][0]["marks"][1]
    assert line["name"] == "Reasoning tokens"
    assert line["x"] == list(range(1, 21))
    np.testing.assert_allclose(line["y"], [row["entropy/reasoning"] for row in run.metrics[1:]], rtol=1e-5)
    rows = [json.loads(text) for _, file in run.rollout_files() for text in file.read_text().splitlines()]
    viewer = {tuple(row[2:5]): row for row in data["viewers"][0]["rows"]}
    assert len(viewer) == len(rows)
    for row in rows:
        shown = viewer[row["step"], row["group"], row["sample"]]
        assert shown[5:10] == [
            row["problem_id"],
            row["reward"],
            row["status"],
            row["finish_reason"] == "length",
            len(row["tokens"]),
        ]
        np.testing.assert_allclose(
            shown[10:12], [np.mean(row["entropy"]), np.mean(row["reasoning"])], rtol=1e-5
        )
        d = np.array(row["logp"]) - row["ref_logp"]
        kl = np.exp(-d) + d - 1
        np.testing.assert_allclose(shown[13:15], [kl.mean(), kl.max()], rtol=1e-4)
    tokens = data["tokens"]["fig01_tokens-0"]
    assert tokens["min_count"] == 20
    assert sum(count for _, count, _ in tokens["rows"]) == sum(len(row["tokens"]) for row in rows)


def test_before_and_after_are_the_first_and_last_evaluation(make_run, tmp_path):
    run = make_run(steps=6)
    run.metrics[0]["eval/avg@8_interval"] = 0.051
    page = write_report([run], tmp_path / "r.html").read_text()
    row = re.search(r'<th scope="row">avg@8</th><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td>', page).groups()
    assert row == ("0.2 ± 0.051", "0.5", "+0.3")


def test_the_overview_adds_up_tokens_and_minutes(make_run, tmp_path):
    run = make_run(steps=60, every=60)
    rows = run.metrics[1:]
    run.metrics[-1]["time/evaluate"] = 90.0
    page = write_report([run], tmp_path / "r.html").read_text()
    facts = dict(re.findall(r'<tr><th scope="row">([^<]*)</th><td>([^<]*)</td></tr>', page))
    assert facts["Tokens sampled"] == f"{sum(row['tokens/sampled'] for row in rows):,}"
    for name, key in (("Time in steps", "step"), ("… sample", "sample"), ("… update", "update")):
        assert facts[name] == f"{sum(row[f'time/{key}'] for row in rows) / 60:.1f} min"
    assert facts["Time in evaluations"] == "1.5 min"
    assert "… old" not in facts, "a phase that took no time is left out"


def test_bands_of_seeds_reach_the_page(make_run, tmp_path):
    runs = [make_run(str(seed), seed=seed, steps=6) for seed in range(3)]
    data = data_of(write_report(runs, tmp_path / "r.html").read_text())
    (mark,) = data["figures"]["reward"][0]["marks"]
    table = np.array([[row["reward/mean"] for row in run.metrics[1:]] for run in runs])
    for name, values in (("low", table.min(0)), ("y", table.mean(0)), ("high", table.max(0))):
        np.testing.assert_allclose(mark[name], values, rtol=1e-5)


def test_the_page_needs_nothing_from_outside_and_runs_only_its_own_scripts(report):
    _, page = report
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(scripts) == 3
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page).group(1)
    assert policy.startswith("default-src 'none'; script-src " + "".join(f"'sha256-{h}' " for h in hashes))
    own = page.replace(scripts[0], "")
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", own)
    assert "connect-src" not in policy, "nothing may be fetched"


def test_hostile_text_stands_in_the_page_only_escaped(report):
    _, page = report
    assert "window.hacked" in page
    assert "<script>window.hacked" not in page
    assert "<img src=x" not in page


def test_embedded_json_survives_any_text():
    value = {"text": "</script><!-- & \u2028 \U0001f600 ü", "none": None}
    assert json.loads(embed(value)) == value
    assert not set("<>&\u2028") & set(embed(value))
    with pytest.raises(ValueError, match="JSON"):
        embed(float("nan"))


def test_runs_in_progress_and_old_runs_have_a_report(make_run, tmp_path):
    started = tmp_path / "started"
    started.mkdir()
    (started / "metrics.jsonl").write_text("")
    from archer.analysis import load_run

    page = write_report([load_run(started)], tmp_path).read_text()
    assert "No step has finished yet" in page
    assert "No rollouts are stored in this run" in page
    torn = make_run("torn", steps=5)
    with (torn.path / "metrics.jsonl").open("a") as file:
        file.write('{"st')
    for name in ("config.yaml", "environment.json", "events.jsonl"):
        (torn.path / name).unlink()
    page = write_report([load_run(torn.path)], tmp_path).read_text()
    assert "line 7 is incomplete" in page
    assert "config.yaml is absent" in page


def test_responses_without_tokens_and_empty_batches_have_a_report(make_run, tmp_path, gradient):
    run = make_run(steps=6, every=2, groups=2, size=2)
    first, second, _ = (file for _, file in run.rollout_files())
    rows = [json.loads(line) for line in first.read_text().splitlines()]
    for name in ("tokens", "token_ids", "logp", "entropy", "reasoning", "ratio", "clip", "ref_logp"):
        rows[0][name] = []
    rows[0]["text"] = ""
    first.write_text("".join(json.dumps(row) + "\n" for row in rows))
    second.write_text("")
    page = write_report([run], tmp_path, gradient_of=lambda _: gradient).read_text()
    shown = {tuple(row[2:5]): row for row in data_of(page)["viewers"][0]["rows"]}
    assert len(shown) == 8
    assert shown[2, 0, 0][9:12] == [0, None, None]


def test_several_runs_share_one_page(make_run, tmp_path):
    runs = [make_run("a", steps=6, every=3), make_run("b", seed=1, steps=6, every=3)]
    runs.append(make_run("c", steps=6, every=3, objective={"eps_r": 0.4}))
    page = write_report(runs, tmp_path / "r.html", max_viewer_tokens=3000).read_text()
    data = data_of(page)
    assert [viewer["run"] for viewer in data["viewers"]] == ["a", "b", "c"]
    assert all("stored responses" in viewer["sampling"] for viewer in data["viewers"])
    marks = data["figures"]["reward"][0]["marks"]
    assert [mark["name"] for mark in marks] == ["eps_r=0.5", "eps_r=0.4"]
    assert "low" in marks[0]
    assert "low" not in marks[1]
    assert {"fig02_entropy_levels-0", "fig02_entropy_levels-1"} <= data["figures"].keys()
    for viewer in data["viewers"]:
        for row in viewer["rows"]:
            assert f'id="{row[0]}"' in page


def test_a_report_needs_runs_and_plotly(make_run, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="at least one run"):
        write_report([], tmp_path)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(MissingDependencyError, match=r"archer-rl\[report\]"):
        write_report([make_run(steps=2)], tmp_path)
