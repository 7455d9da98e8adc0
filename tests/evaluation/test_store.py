"""Stored evaluations: nothing is lost, nothing is sampled twice, nothing is mixed."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest

from archer.configs.policy import PolicyConfig
from archer.configs.reward import RewardConfig
from archer.configs.rollout import SamplingConfig
from archer.errors import ConfigError, DataError
from archer.evaluation.evaluate import summarise
from archer.evaluation.store import SampleStore, fill, read_evaluations, regrade
from archer.policy.model import Policy
from archer.policy.tokenizer import PromptRenderer
from archer.rewards import build_scorer
from archer.rollout.local import LocalSampler
from archer.types import Problem

PROBLEMS = [Problem(f"p{i}", f"{i} {i + 1}", str(i)) for i in range(6)]
SETTINGS = {"model": "tiny", "k": 3, "seed": 5}
SAMPLING = SamplingConfig(temperature=1.0, max_response_tokens=6)


@pytest.fixture
def parts(tiny_model):
    config = PolicyConfig(model=tiny_model())
    policy = Policy(config)
    with build_scorer(RewardConfig(workers=1)) as scorer:
        yield PromptRenderer(policy.tokenizer, config), LocalSampler(policy, max_batch=4), scorer


class Killed(Exception):
    """Stands for a kill."""


class Counting:
    """A sampler that remembers what it was asked for and dies after some responses."""

    def __init__(self, inner, after=math.inf):
        self.inner, self.after, self.asked, self.policy_version = inner, after, [], 0

    def sample(self, requests, config, *, seed, on_finish):
        self.asked += [request.key for request in requests]
        done = 0

        def finish(index, rollout):
            nonlocal done
            on_finish(index, rollout)
            done += 1
            if done >= self.after:
                time.sleep(0.5)  # the verdicts so far arrive
                on_finish(index, rollout)
                raise Killed

        return self.inner.sample(requests, config, seed=seed, on_finish=finish)


def test_an_interrupted_evaluation_continues_with_what_is_missing(parts, tmp_path):
    renderer, sampler, scorer = parts
    whole = SampleStore(tmp_path / "whole", SETTINGS, PROBLEMS)
    fill(whole, renderer, sampler, scorer, SAMPLING, seed=5)
    cut = SampleStore(tmp_path / "cut", SETTINGS, PROBLEMS)
    with pytest.raises(Killed):
        fill(cut, renderer, Counting(sampler, after=8), scorer, SAMPLING, seed=5)
    before = (tmp_path / "cut" / "samples.jsonl").read_text()
    assert before.count("\n") >= 4
    with (tmp_path / "cut" / "samples.jsonl").open("a") as file:
        file.write('{"problem_id": "p5", "samp')  # torn by the kill
    again = SampleStore(tmp_path / "cut", SETTINGS, PROBLEMS)
    complete = {p.id for p in PROBLEMS} - {p.id for p in again.missing()}
    counting = Counting(sampler)
    fill(again, renderer, counting, scorer, SAMPLING, seed=5)
    assert complete
    assert not complete & set(counting.asked), "a complete problem is not sampled again"
    assert (tmp_path / "cut" / "samples.jsonl").read_text().startswith(before)
    assert again.ordered() == whole.ordered()
    assert again.metrics() == pytest.approx(whole.metrics(), nan_ok=True)
    fill(again, renderer, counting, scorer, SAMPLING, seed=5)
    assert len(again.records) == 18


def test_other_settings_are_refused_by_name(tmp_path):
    SampleStore(tmp_path, SETTINGS, PROBLEMS)
    with pytest.raises(ConfigError, match=r"other settings: seed \(5 before, 6 now\)"):
        SampleStore(tmp_path, {**SETTINGS, "seed": 6}, PROBLEMS)


def record(problem, sample, text, status="incorrect", reward=0.0, finish="stop", length=3):
    return {"problem_id": problem, "sample": sample, "domain": "math", "prompt": "", "text": text, "reward": reward,
            "status": status, "extracted": None, "reason": "", "length": length, "finish_reason": finish}  # fmt: skip


def test_regrading_needs_no_model_and_keeps_the_old_verdicts(tmp_path):
    store = SampleStore(tmp_path / "old", {**SETTINGS, "k": 2}, PROBLEMS[:2])
    store.add(record("p0", 0, "\\boxed{0}"))
    store.add(record("p0", 1, "\\boxed{4}"))
    store.add(record("p1", 0, "\\boxed{1}", "correct", 1.0))
    store.add(record("p1", 1, "no box"))
    with build_scorer(RewardConfig(workers=1)) as scorer:
        fresh, changed = regrade(store, tmp_path / "new", scorer, {"kind": "math"})
        assert changed == 1
        _, again = regrade(fresh, tmp_path / "third", scorer, {"kind": "math"})
    assert again == 0
    assert [r["status"] for r in fresh.ordered()] == ["correct", "incorrect", "correct", "incorrect"]
    old = SampleStore.open(tmp_path / "old").ordered()
    assert [r["status"] for r in old] == ["incorrect", "incorrect", "correct", "incorrect"]


def test_numbers_of_known_records():
    records = [
        record("a", 0, "x", "correct", 1.0, length=10),
        record("a", 1, "x", "correct", 1.0, length=20),
        record("b", 0, "y", length=30, finish="length"),
        record("b", 1, "z", "correct", 1.0, length=40),
        record("c", 0, "q", "unscorable", None, length=0),
        record("c", 1, "q", length=50),
    ]
    values = summarise(records, 2)
    # Means of the problems: 1, 0.5 and 0 (one scorable sample): 0.5 on average, standard deviation 0.5.
    assert values["avg@2"] == pytest.approx(0.5)
    assert values["avg@2_interval"] == pytest.approx(1.959964 * 0.5 / math.sqrt(3), rel=1e-6)
    assert values["pass@1"] == pytest.approx(0.5)
    assert values["pass@2"] == pytest.approx(1.0), "of a and b; c has one scorable sample"
    assert values["truncated_share"] == pytest.approx(1 / 6)
    assert values["finished_score"] == pytest.approx(3 / 4)
    assert values["tokens"] == 150
    assert values["length_mean"] == 25
    assert values["unscorable_share"] == pytest.approx(1 / 6)
    assert values["distinct_share"] == pytest.approx((0.5 + 1 + 0.5) / 3)


def test_folders_that_are_none_are_named(tmp_path):
    with pytest.raises(DataError, match=r"settings.json, found none"):
        SampleStore.open(tmp_path)
    with pytest.raises(DataError, match="found no benchmark in it"):
        read_evaluations(tmp_path)


@pytest.mark.slow
def test_a_killed_command_continues(tmp_path):
    data = tmp_path / "sums.jsonl"
    rows = [
        {"id": f"s{i}", "prompt": f"State the final answer: {i} + 3 =\n", "answer": str(i + 3)}
        for i in range(40)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "archer.cli", "eval", "demo=package:archer/assets/demo-model", "--data", str(data),
               "--k", "8", "--max-batch", "8", "--max-response-tokens", "96"]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    stored = tmp_path / "evaluations" / "demo" / "sums" / "samples.jsonl"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and (not stored.exists() or stored.read_bytes().count(b"\n") < 20):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    data_before = stored.read_bytes()
    before = data_before[: data_before.rfind(b"\n") + 1]
    assert 20 <= before.count(b"\n") < 320
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert stored.read_bytes().startswith(before)
    assert stored.read_bytes().count(b"\n") == 320
    assert "avg@8" in done.stdout
