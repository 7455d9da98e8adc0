"""Runs that the training loop itself wrote: what it records is what the report shows."""

import json
import re
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from archer.analysis import load_run, write_report
from archer.analysis.scan import scan_run
from archer.analysis.statistics import kl_to_reference
from archer.configs.loading import build_config
from archer.configs.run import RunConfig
from archer.train.setup import train
from archer.types import Verdict


def even_length(problem, text):
    """A verdict that a random model gets right about half the time."""
    future = Future()
    right = len(text.split()) % 2 == 0
    future.set_result(Verdict("correct" if right else "incorrect", float(right), text[:3], "parity"))
    return future


@pytest.fixture
def trained(tiny_model, tmp_path, monkeypatch):
    scorer = SimpleNamespace(submit=even_length, close=lambda: None)
    monkeypatch.setattr("archer.train.setup.build_scorer", lambda config: nullcontext(scorer))
    data = tmp_path / "problems.jsonl"
    data.write_text("".join(f'{{"id": "{i}", "prompt": "{i} {i + 1}", "answer": "0"}}\n' for i in range(9)))

    def run(method):
        values = {
            "name": method,
            "output": str(tmp_path),
            "policy": {"model": tiny_model()},
            "data": {"path": str(data)},
            "objective": {"method": method},
            "rollout": {"group_size": 4, "max_prompt_tokens": 8, "max_response_tokens": 12},
            "evaluation": {"k": 2, "data": {"path": str(data)}},
            "optimizer": {"learning_rate": 1e-2},
            "train": {"steps": 3, "prompts_per_step": 4, "mini_batch_prompts": 1, "eval_every": 3},
        }
        values["train"]["rollout_log_every"] = 1
        folder, _ = train(
            build_config(RunConfig, values, where="test"), resume=False, report=lambda line: None
        )
        return load_run(folder)

    return run


@pytest.mark.parametrize("method", ["archer", "archer-released", "grpo", "dapo"])
def test_recorded_metrics_follow_from_the_recorded_tokens(trained, method):
    run = trained(method)
    scan = scan_run(run)
    rows = {row["step"]: row for row in run.metrics}
    for step, file in run.rollout_files():
        responses, _ = run.responses(file)
        entropy = np.concatenate([r.entropy for r in responses])
        assert np.mean(entropy) == pytest.approx(rows[step]["entropy/mean"], rel=1e-3)
        ratio = np.concatenate([r.ratio for r in responses])
        assert ratio.max() == pytest.approx(rows[step]["ratio/max"], abs=1e-4)
        own = [s for s in scan.summaries if s.step == step]
        assert np.mean([s.repetition for s in own]) == pytest.approx(rows[step]["response/repetition"])
        assert np.mean([s.truncated for s in own]) == pytest.approx(rows[step]["response/truncated_share"])
        assert np.mean([s.reward for s in own]) == pytest.approx(rows[step]["reward/mean"])
        if method == "archer":
            roles = np.concatenate([r.reasoning for r in responses])
            assert roles.mean() == pytest.approx(rows[step]["role/reasoning_share"])
            assert entropy[roles].mean() == pytest.approx(rows[step]["entropy/reasoning"], rel=1e-3)
            for r, s in zip(responses, own, strict=True):
                assert s.share["response"] == pytest.approx(np.mean(r.reasoning)), "roles are found again"
        if step == 1 and method != "dapo":
            kl = np.concatenate([kl_to_reference(r.logp, r.ref_logp) for r in responses])
            assert kl.max() < 1e-6, "the first policy is its own reference"


@pytest.mark.parametrize("method", ["archer", "grpo"])
def test_recorded_clip_states_follow_from_the_recorded_ratios(trained, method):
    run = trained(method)
    outside = 0
    for row in run.metrics[1:]:
        responses, _ = run.responses(dict(run.rollout_files())[row["step"]])
        for r in responses:
            eps = 0.2 if method == "grpo" else np.where(r.reasoning, 0.5, 0.2)
            # Ratios are stored to five places, so those at the very edge may lie on either side.
            clear = np.minimum(np.abs(r.ratio - 1 - eps), np.abs(r.ratio - 1 + eps)) > 1e-4
            state = (r.ratio > 1 + eps).astype(int) - (r.ratio < 1 - eps)
            np.testing.assert_array_equal(r.clip[clear], state[clear])
            outside += int(np.abs(r.clip).sum())
    assert outside > 0, "a run in which nothing is clipped tests nothing"


def test_the_report_of_a_run_of_each_kind_compares_them(trained, tmp_path):
    runs = [trained("archer"), trained("grpo")]
    page = write_report(runs, tmp_path / "report.html", min_count=1).read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    names = [mark["name"] for mark in data["figures"]["reward"][0]["marks"]]
    assert names == ["archer", "grpo"]
    assert len(data["viewers"][1]["rows"]) == 3 * 16
