"""The loop as a whole: what it writes, what it computes, and that it resumes exactly."""

import json
import math
import os
import signal
from pathlib import Path
from typing import get_args

import pytest
import torch
import yaml
from safetensors.torch import load_file

from archer.configs.objective import ObjectiveConfig
from archer.errors import CheckpointError, ConfigError
from archer.train.checkpoint import checkpoint_path
from archer.train.loop import Trainer
from archer.train.setup import train


def lines_of(folder: Path, name: str = "metrics.jsonl") -> list[dict]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def timeless(lines: list[dict]) -> list[dict]:
    return [{k: v for k, v in line.items() if not k.startswith(("time", "speed"))} for line in lines]


def weights_of(folder: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(checkpoint_path(folder, step) / "model.safetensors")


def run(config, resume=False):
    return train(config, resume=resume, report=lambda line: None)


METHODS = list(get_args(get_args(ObjectiveConfig)[0]))


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.model_fields["method"].default)
def test_every_method_trains(run_config, scorer, kind):
    method = kind.model_fields["method"].default
    extra = {"objective__vocabulary_size": 40} if "vocabulary_size" in kind.model_fields else {}
    folder, _ = run(run_config(objective__method=method, train__steps=1, train__eval_every=0, **extra))
    (line,) = lines_of(folder)
    assert line["optim/skipped"] == 0
    assert line["ratio/first_mismatch"] < 1e-5
    assert line["optim/grad_norm"] > 0
    assert all(math.isfinite(v) for v in line.values())


def test_overlong_shaping_gives_an_all_wrong_group_advantages(run_config, scorer):
    scorer.judge = lambda problem, text: 0.0
    settings = {"train__steps": 1, "train__eval_every": 0, "train__rollout_log_every": 1}
    folder, _ = run(run_config(**settings, train__overlong_buffer=8))
    records = lines_of(folder, "rollouts/step_000001.jsonl")
    for record in records:
        same = [r for r in records if r["group"] == record["group"]]
        longest = max(len(r["token_ids"]) for r in same)
        if len({max(0, len(r["token_ids"]) - 4) for r in same}) > 1 and len(record["token_ids"]) == longest:
            assert record["advantage"] < 0
    assert any(r["advantage"] > 0 for r in records)


@pytest.mark.parametrize("method", ["archer", "archer-released", "grpo", "dapo"])
def test_a_run_writes_what_the_run_directory_promises(run_config, scorer, method):
    folder, finished = run(run_config(objective__method=method))
    assert finished
    lines = lines_of(folder)
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    assert {k for k in lines[0] if k.startswith("eval/pass")} == {"eval/pass@1", "eval/pass@2"}
    for line in lines[1:]:
        assert line["optim/updates"] == 2
        assert line["ratio/first_mismatch"] < 1e-5
        assert line["tokens/sampled"] == line["tokens/trained"]
        assert 0 < line["entropy/mean"] < math.log(40)
        assert all(math.isfinite(v) for v in line.values())
        if method.startswith("archer"):
            assert 0.1 < line["role/reasoning_share"] < 0.4
            assert line["entropy/reasoning"] > line["entropy/knowledge"]
        if method != "dapo":
            assert line["kl/mean"] >= 0
    assert yaml.safe_load((folder / "config.yaml").read_text())["objective"]["method"] == method
    assert json.loads((folder / "environment.json").read_text())["first_prompt"] == "0 0 0"


def test_rollout_records_agree_with_the_metrics(run_config, scorer):
    folder, _ = run(run_config(train__steps=1))
    records = lines_of(folder, "rollouts/step_000001.jsonl")
    line = lines_of(folder)[1]
    assert len(records) == 16
    for record in records:
        lengths = {
            len(record[key])
            for key in ("tokens", "token_ids", "logp", "entropy", "reasoning", "ratio", "ref_logp")
        }
        assert len(lengths) == 1
    assert sum(len(r["token_ids"]) for r in records) == line["tokens/sampled"]
    assert sum(r["reward"] for r in records) / 16 == pytest.approx(line["reward/mean"])
    entropy = [e for r in records for e in r["entropy"]]
    assert sum(entropy) / len(entropy) == pytest.approx(line["entropy/mean"], abs=1e-4)
    roles = [x for r in records for x in r["reasoning"]]
    assert sum(roles) / len(roles) == pytest.approx(line["role/reasoning_share"], abs=1e-6)
    for group in range(4):
        advantages = [r["advantage"] for r in records if r["group"] == group]
        assert sum(advantages) == pytest.approx(0, abs=1e-3)
    held_out = lines_of(folder, "evaluation/step_000001.jsonl")
    assert len(held_out) == 10
    assert sum(r["reward"] for r in held_out) / 10 == pytest.approx(line["eval/avg@2"])


def test_the_first_mini_batch_sees_a_ratio_of_one_and_later_ones_do_not(run_config, scorer):
    folder, _ = run(run_config(optimizer__learning_rate=3e-2, optimizer__warmup_updates=0, train__steps=1))
    line = lines_of(folder)[1]
    assert line["ratio/first_mismatch"] < 1e-5
    assert line["ratio/max"] > 1.01


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_resume_continues_bit_for_bit(run_config, scorer, dtype):
    whole, _ = run(run_config(name="whole", policy__dtype=dtype))
    run(run_config(name="parts", train__steps=2, policy__dtype=dtype))
    parts, _ = run(run_config(name="parts", train__steps=4, policy__dtype=dtype), resume=True)
    # the shorter run also evaluated at its end, as the longer one does every second step
    assert timeless(lines_of(parts)) == timeless(lines_of(whole))
    first, second = weights_of(whole, 4), weights_of(parts, 4)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    rollouts = "rollouts/step_000004.jsonl"
    assert (whole / rollouts).read_text() == (parts / rollouts).read_text()


def test_the_split_into_micro_batches_does_not_matter(run_config, scorer):
    small, _ = run(run_config(name="small", train__micro_batch_tokens=16))
    large, _ = run(run_config(name="large", train__micro_batch_tokens=10_000))
    for ours, theirs in zip(lines_of(small), lines_of(large), strict=True):
        if "optim/grad_norm" in ours:
            assert ours["optim/grad_norm"] == pytest.approx(theirs["optim/grad_norm"], rel=1e-3)
            assert ours["optim/loss"] == pytest.approx(theirs["optim/loss"], abs=1e-5)


def test_training_learns_the_digit(run_config, scorer):
    folder, _ = run(
        run_config(
            train__steps=30,
            train__prompts_per_step=8,
            train__mini_batch_prompts=8,
            train__eval_every=0,
            rollout__group_size=8,
            optimizer__learning_rate=1e-2,
        )
    )
    rewards = [line["reward/mean"] for line in lines_of(folder)]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.15


def test_unscorable_responses_are_left_out_and_counted(run_config, scorer):
    # The second sample of each prompt has no verdict; with the rest equal, nothing teaches.
    numbers = iter(range(10**6))
    scorer.judge = lambda problem, text: None if next(numbers) % 2 else 1.0
    folder, _ = run(run_config(train__steps=1, train__eval_every=0, train__rollout_log_every=1))
    line = lines_of(folder)[0]
    assert line["reward/unscorable_share"] == 0.5
    assert line["reward/mean"] == 1.0
    assert line["reward/zero_variance_share"] == 1.0
    records = lines_of(folder, "rollouts/step_000001.jsonl")
    trained = sum(len(r["token_ids"]) for r in records if r["reward"] is not None)
    assert line["tokens/trained"] == trained < line["tokens/sampled"]
    assert all(r["advantage"] == 0 for r in records)


@pytest.mark.parametrize(("policy", "trained"), [("keep", True), ("drop", False), ("refill", False)])
def test_groups_without_variance(run_config, scorer, policy, trained):
    scorer.judge = lambda problem, text: 0.0
    folder, _ = run(
        run_config(train__zero_variance=policy, train__steps=1, train__eval_every=0, train__max_refills=2)
    )
    line = lines_of(folder)[0]
    assert line["reward/zero_variance_share"] == line["reward/all_wrong_share"] == 1.0
    assert (line["optim/updates"] > 0) == trained
    # 4 prompts of 4 responses, at most 1 + max_refills times
    assert scorer.seen == (16 if policy != "refill" else 48)
    events = (folder / "events.jsonl").read_text() if (folder / "events.jsonl").exists() else ""
    assert ("nothing was trained" in events) == (not trained)


def test_refill_reaches_the_full_batch(run_config, scorer):
    scorer.judge = lambda problem, text: (
        float(len(text) % 2) if problem.id in {"p1", "p5", "p9", "p13"} else 0.0
    )
    folder, _ = run(
        run_config(
            train__zero_variance="refill",
            train__steps=1,
            train__eval_every=0,
            train__max_refills=20,
            train__rollout_log_every=1,
        )
    )
    records = lines_of(folder, "rollouts/step_000001.jsonl")
    assert {r["problem_id"] for r in records} <= {"p1", "p5", "p9", "p13"}


def test_sigterm_while_sampling_saves_and_the_resumed_run_is_the_same(run_config, scorer):
    whole, _ = run(run_config(name="whole"))
    # 4 prompts x 4 responses a step and 5 x 2 an evaluation; call 40 lies in the sampling of step 2
    calls = iter(range(1, 10**6))
    plain = scorer.judge

    def judge(problem, text):
        if next(calls) == 40:
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(problem, text)

    scorer.judge = judge
    folder, finished = run(run_config(name="stopped"))
    assert not finished
    assert [line["step"] for line in lines_of(folder)] == [0, 1]
    assert checkpoint_path(folder, 1).exists()
    scorer.judge = plain
    folder, finished = run(run_config(name="stopped"), resume=True)
    assert finished
    assert timeless(lines_of(folder)) == timeless(lines_of(whole))
    first, second = weights_of(whole, 4), weights_of(folder, 4)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("call", [3, 46])
def test_sigterm_while_evaluating_loses_no_line(run_config, scorer, call):
    # 10 calls belong to the first evaluation, 2 x 16 to two steps; calls 43 to 52 are the evaluation of step 2
    whole, _ = run(run_config(name="whole"))
    calls = iter(range(1, 10**6))
    plain = scorer.judge

    def judge(problem, text):
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(problem, text)

    scorer.judge = judge
    folder, finished = run(run_config(name="stopped"))
    assert not finished
    scorer.judge = plain
    run(run_config(name="stopped"), resume=True)
    assert timeless(lines_of(folder)) == timeless(lines_of(whole))


def test_sigterm_during_the_update_waits_for_it(run_config, scorer, monkeypatch):
    update = Trainer.update

    def interrupted(self, number, data, meter):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        return update(self, number, data, meter)

    monkeypatch.setattr(Trainer, "update", interrupted)
    folder, finished = run(run_config())
    assert not finished
    assert [line["step"] for line in lines_of(folder)] == [0, 1]
    assert checkpoint_path(folder, 1).exists()


def test_an_incomplete_newest_checkpoint_is_passed_over(run_config, scorer):
    folder, _ = run(run_config())
    (checkpoint_path(folder, 4) / "state.pt").write_bytes(b"half")
    run(run_config(), resume=True)
    events = [e["message"] for e in lines_of(folder, "events.jsonl")]
    assert "step_000004 passed over: state.pt is missing or cut short" in events
    assert "resumed from step_000002" in events
    assert [line["step"] for line in lines_of(folder)] == [0, 1, 2, 3, 4]


def test_only_the_newest_checkpoints_are_kept(run_config, scorer):
    folder, _ = run(run_config(train__steps=6, train__keep_checkpoints=2))
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["step_000004", "step_000006"]


def test_resume_is_refused_when_the_computation_changed(run_config, scorer):
    run(run_config())
    with pytest.raises(CheckpointError, match=r"objective.rho \(0.8 before, 0.7 now\)"):
        run(run_config(objective__rho=0.7), resume=True)
    with pytest.raises(CheckpointError, match=r"train\.seed"):
        run(run_config(train__seed=5), resume=True)
    run(run_config(train__steps=5, train__eval_every=5), resume=True)


def test_resume_is_refused_when_the_data_changed(run_config, scorer):
    config = run_config()
    run(config)
    path = Path(str(config.data.path))
    path.write_text(path.read_text().replace('"answer": "3"', '"answer": "4"'))
    with pytest.raises(CheckpointError, match="training problems changed"):
        run(config, resume=True)


def test_a_run_is_never_overwritten(run_config, scorer):
    run(run_config(train__steps=1))
    with pytest.raises(ConfigError, match="--resume"):
        run(run_config(train__steps=1))
    with pytest.raises(CheckpointError, match="nothing to resume"):
        run(run_config(name="other"), resume=True)


def test_a_metrics_line_torn_by_a_crash_is_dropped_on_resume(run_config, scorer):
    folder, _ = run(run_config(train__steps=2))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "rew')
    run(run_config(), resume=True)
    assert [line["step"] for line in lines_of(folder)] == [0, 1, 2, 3, 4]


def test_sequences_longer_than_the_model_are_refused_at_the_start(run_config, scorer):
    with pytest.raises(ConfigError, match="128 positions"):
        run(run_config(rollout__max_response_tokens=120))


def test_old_logps_are_recomputed_when_asked(run_config, scorer):
    trusted, _ = run(run_config(name="trusted", train__steps=1))
    recomputed, _ = run(run_config(name="recomputed", train__steps=1, train__old_logps="recompute"))
    ours, theirs = lines_of(trusted)[1], lines_of(recomputed)[1]
    assert "time/old" in theirs
    assert "time/old" not in ours
    assert theirs["ratio/first_mismatch"] < 1e-6
    assert ours["optim/grad_norm"] == pytest.approx(theirs["optim/grad_norm"], rel=1e-3)
