"""Batching, schedules, records and trackers by themselves."""

import copy
import json
import math
import threading

import pytest
import torch

from archer.configs.train import OptimizerConfig
from archer.train.batching import assemble, micro_batches, mini_batches, select, think_end
from archer.train.optimizer import Optimizer, learning_rate
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
    optimizer = Optimizer([weight], OptimizerConfig())
    weight.grad = torch.tensor([1.0, bad])
    norm, taken = optimizer.step(0.1)
    assert not taken
    assert not math.isfinite(norm)
    assert weight.tolist() == [1.0, 1.0]
    assert weight.grad is None


def run_updates(dtype, gradients, rate=1e-6):
    weight = torch.nn.Parameter(torch.linspace(0.02, 0.5, 8, dtype=torch.bfloat16).to(dtype))
    optimizer = Optimizer([weight], OptimizerConfig(weight_decay=0.1))
    for gradient in gradients:
        for part in gradient:
            (weight * part.to(dtype)).sum().backward()
        optimizer.step(rate)
    return weight, optimizer


def test_bfloat16_weights_follow_the_float32_ones():
    torch.manual_seed(0)
    gradients = (torch.randn(100, 1, 8) + 1).bfloat16().float()
    exact, _ = run_updates(torch.float32, gradients)
    weight, optimizer = run_updates(torch.bfloat16, gradients)
    start = torch.linspace(0.02, 0.5, 8, dtype=torch.bfloat16)
    assert torch.equal(optimizer.masters[0], exact)
    assert torch.equal(weight, exact.bfloat16())
    assert (exact - start).abs().min() > 1e-5
    # The fault that masters are there for: AdamW on the half-precision weights themselves does not move them.
    plain = torch.nn.Parameter(start.clone())
    adamw = torch.optim.AdamW([plain], lr=1e-6)
    for (gradient,) in gradients:
        plain.grad = gradient.bfloat16()
        adamw.step()
    assert torch.equal(plain, start)


def test_gradients_of_many_micro_batches_are_summed_in_float32():
    # In bfloat16, 256 + 1 is 256.
    parts = torch.cat([torch.full((1, 8), 256.0), torch.ones(255, 8)])
    weight = torch.nn.Parameter(torch.zeros(8, dtype=torch.bfloat16))
    optimizer = Optimizer([weight], OptimizerConfig())
    for part in parts:
        (weight * part.bfloat16()).sum().backward()
    norm, taken = optimizer.step(1e-6)
    assert taken
    assert norm == pytest.approx(511 * math.sqrt(8))


def test_the_optimizer_continues_from_its_state():
    torch.manual_seed(0)
    gradients = torch.randn(6, 2, 8)
    for dtype in (torch.bfloat16, torch.float32):
        whole, _ = run_updates(dtype, gradients, rate=1e-4)
        weight, optimizer = run_updates(dtype, gradients[:3], rate=1e-4)
        fresh = torch.nn.Parameter(weight.detach().clone())
        other = Optimizer([fresh], OptimizerConfig(weight_decay=0.1))
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for gradient in gradients[3:]:
            for part in gradient:
                (fresh * part.to(dtype)).sum().backward()
            other.step(1e-4)
        assert torch.equal(fresh, whole)
        assert fresh.grad is None


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
