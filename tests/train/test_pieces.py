"""Batching, schedules, records and trackers by themselves."""

import json
import math
import threading

import pytest
import torch

from archer.configs.train import OptimizerConfig
from archer.train.batching import assemble, micro_batches, mini_batches, select, think_end
from archer.train.optimizer import apply_update, build_optimizer, learning_rate
from archer.train.records import Meter, RunRecords
from archer.train.trackers import Tracker, build_trackers
from archer.types import Group, Problem, Rollout, Verdict


def group_of(*lengths, scores=None, reasons=None):
    rollouts = [
        Rollout((1, 2, 3), tuple(range(n)), (-1.0,) * n, (0.5,) * n, reason, "", sample=i)
        for i, (n, reason) in enumerate(zip(lengths, reasons or ["stop"] * len(lengths), strict=True))
    ]
    scores = scores or [1.0] * len(lengths)
    verdicts = [Verdict("unscorable" if s is None else "correct", s) for s in scores]
    return Group(Problem("p", "q"), rollouts, verdicts)


def test_assemble_masks_padding_and_rows_without_a_verdict():
    data = assemble([group_of(3, 1, scores=[1.0, None]), group_of(2)], mask_truncated=False)
    assert data.batch.mask_BT.tolist() == [[True] * 3, [False] * 3, [True, True, False]]
    assert data.batch.group_B.tolist() == [0, 0, 1]
    assert data.rows[2] == ((1, 2, 3), (0, 1))


def test_truncated_rows_are_masked_on_request():
    groups = [group_of(2, 2, reasons=["length", "stop"])]
    for masked in (False, True):
        data = assemble(groups, mask_truncated=masked)
        assert data.batch.mask_BT[0].any().item() is not masked


def test_micro_batches_hold_every_row_once_within_the_budget():
    groups = [group_of(5, 2, 9), group_of(1, 1), group_of(30)]
    data = assemble(groups, mask_truncated=False)
    runs = micro_batches(data, range(6), 20)
    assert sorted(i for run in runs for i in run) == list(range(6))
    for run in runs:
        tokens = sum(len(data.rows[i][1]) for i in run) + 3 * len({data.group[i] for i in run})
        assert tokens <= 20 or len(run) == 1
    assert micro_batches(data, range(6), 10**6) == [[2, 0, 1, 3, 4, 5]]


def test_mini_batches_keep_groups_whole_and_depend_on_the_seed_alone():
    data = assemble([group_of(1, 1) for _ in range(6)], mask_truncated=False)
    batches = mini_batches(data, 4, seed=3)
    assert [len(b) for b in batches] == [8, 4]
    assert sorted(i for b in batches for i in b) == list(range(12))
    assert all(i ^ 1 in b for b in batches for i in b)
    assert batches == mini_batches(data, 4, seed=3)
    assert batches != mini_batches(data, 4, seed=4)


def test_select_cuts_to_the_longest_row():
    data = assemble([group_of(3, 1)], mask_truncated=False)
    assert select(data.batch, [1]).mask_BT.shape == (1, 1)
    assert select(data.batch, [1, 0]).old_logp_BT.tolist() == [[-1, 0, 0], [-1, -1, -1]]


def test_think_end():
    rollouts = [r for group in (group_of(5), group_of(2)) for r in group.rollouts]
    assert think_end(rollouts, 3).tolist() == [3, -1]
    assert think_end(rollouts, None).tolist() == [-1, -1]


def test_learning_rate():
    config = OptimizerConfig(learning_rate=1.0, warmup_updates=4)
    assert [learning_rate(config, u, 100) for u in (0, 1, 3, 4, 99)] == [0.25, 0.5, 1.0, 1.0, 1.0]
    linear = config.model_copy(update={"schedule": "linear"})
    assert learning_rate(linear, 52, 100) == pytest.approx(0.5)
    cosine = config.model_copy(update={"schedule": "cosine"})
    assert learning_rate(cosine, 52, 100) == pytest.approx(0.5)
    assert learning_rate(cosine, 200, 100) == pytest.approx(0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(bad):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = build_optimizer([weight], OptimizerConfig())
    weight.grad = torch.tensor([1.0, bad])
    norm, taken = apply_update(optimizer, [weight], 0.1, 1.0)
    assert not taken
    assert not math.isfinite(norm)
    assert weight.tolist() == [1.0, 1.0]
    assert weight.grad is None


def test_meter():
    meter = Meter()
    for total, count in ((1.0, 2.0), (5.0, 4.0), (9.0, 0.0)):
        meter.add({"a/mean": (torch.tensor(total), torch.tensor(count))})
        meter.add({"ratio/value_max": (torch.tensor(total), torch.tensor(count))})
        meter.add({"ratio/value_min": (torch.tensor(-total), torch.tensor(count))})
    assert meter.values() == {"a/mean": 1.0, "ratio/max": 5.0, "ratio/min": -5.0}


def test_metrics_that_are_not_finite_become_null(tmp_path):
    RunRecords(tmp_path).metrics(1, {"a": math.nan, "b": 1.0})
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert (line["a"], line["b"]) == (None, 1.0)


def test_tensorboard_receives_the_metrics(tmp_path):
    warnings = []
    (tracker,) = build_trackers(["tensorboard"], tmp_path, "run", {}, warnings.append)
    tracker({"step": 3, "time": 0.0, "reward/mean": 0.25, "gone": None})
    tracker.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("reward/mean")] == [(3, 0.25)]
    assert warnings == []


def test_a_failing_tracker_warns_once_and_never_raises():
    warnings = []

    def connect():
        raise OSError("no network")

    tracker = Tracker("wandb", connect, warnings.append)
    for step in range(5):
        tracker({"step": step})
    tracker.close()
    tracker._thread.join()
    assert len(warnings) == 1
    assert "no network" in warnings[0]


def test_a_hanging_tracker_blocks_neither_the_run_nor_its_end():
    warnings, hold = [], threading.Event()

    def connect():
        hold.wait()
        return lambda step, values: None, lambda: None

    tracker = Tracker("wandb", connect, warnings.append)
    for step in range(1500):
        tracker({"step": step})
    assert warnings == ["wandb stopped (its queue is full); metrics.jsonl stays complete"]
    slow = Tracker("trackio", connect, warnings.append)
    slow({"step": 1})
    slow.close(timeout=0.05)
    hold.set()
    assert warnings[1:] == ["trackio stopped (still busy after 0.05 s); metrics.jsonl stays complete"]
