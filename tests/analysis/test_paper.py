"""The paper's figures as data, against the records and against the real objective."""

import json

import numpy as np
import pytest
import torch

from archer.analysis.dynamics import CHARTS, dynamics_figure, series
from archer.analysis.paper import (
    RATIO_GRID,
    ablation_figure,
    dynamics_overview,
    entropy_figure,
    region_figure,
    token_figure,
)
from archer.analysis.scan import scan_run
from archer.analysis.settings import group_runs
from archer.analysis.statistics import smooth
from archer.analysis.transfer import transfer_figure
from archer.configs.objective import ArcherConfig, ArcherReleasedConfig, DapoConfig, GrpoConfig
from archer.objectives import prepare, token_losses
from archer.types import TokenBatch


def gradient_of(config):
    """The gradient of a method's per-token loss, from the objective itself; the policy is its reference."""

    def gradient(ratio, sign, reasoning):
        # Five tokens a response, the last of the highest entropy: at rho 0.8 it alone is a reasoning token.
        size = (len(ratio), 5)
        logp = (torch.as_tensor(ratio).log() - 5).unsqueeze(1).expand(size).clone().requires_grad_()
        entropy = torch.tensor([0.1, 0.1, 0.1, 0.1, 2.0], dtype=torch.float64).expand(size)
        batch = TokenBatch(
            logp_BT=logp,
            old_logp_BT=torch.full(size, -5.0, dtype=torch.float64),
            mask_BT=torch.ones(size, dtype=torch.bool),
            advantage_BT=torch.full(size, float(sign), dtype=torch.float64),
            old_entropy_BT=entropy,
            entropy_BT=entropy,
            ref_logp_BT=logp.detach(),
            group_B=torch.arange(len(ratio)),
            response_B=torch.arange(len(ratio)),
        )
        terms = token_losses(prepare(batch, config), config)
        terms.parts["policy"].loss_BT.sum().backward()
        return logp.grad[:, -1 if reasoning else 0].numpy()

    return gradient


def spans(panel):
    return {
        (mark.colour, round(mark.x[0], 2), round(mark.x[1], 2))
        for mark in panel.marks
        if mark.kind == "vspan"
    }


@pytest.mark.parametrize(
    ("config", "above", "below"),
    [
        (ArcherConfig(), {("reasoning", 1.2, 1.5)}, {("reasoning", 0.5, 0.8)}),
        (ArcherReleasedConfig(), {("reasoning", 1.2, 1.5)}, {("reasoning", 0.5, 0.8)}),
        (ArcherConfig(eps_r=0.1, eps_k=0.3), {("knowledge", 1.1, 1.3)}, {("knowledge", 0.7, 0.9)}),
        (GrpoConfig(), set(), set()),
        (DapoConfig(), set(), set()),
    ],
    ids=["archer", "archer-released", "ranges swapped", "grpo", "dapo"],
)
def test_regions_come_from_the_gradient_of_the_real_objective(make_run, config, above, below):
    scan = scan_run(make_run(steps=10, every=10, groups=2, size=2))
    positive, negative = region_figure(gradient_of(config), scan, config.method).panels
    assert spans(positive) == above
    assert spans(negative) == below


def test_region_lines_are_the_gradient_and_end_at_the_dual_clip(make_run):
    scan = scan_run(make_run(steps=10, every=10))
    figure = region_figure(gradient_of(ArcherConfig(dual_clip=3.0)), scan, "archer")
    line = next(mark for mark in figure.panels[1].marks if mark.name == "Reasoning tokens, pull")
    assert len(line.x) > 500
    assert (line.x[0], line.x[-1]) == pytest.approx((0.25, 4.0), rel=0.01)
    learns = (line.x >= 0.5) & (line.x <= 3.0)
    np.testing.assert_allclose(line.y, np.where(learns, -line.x, 0.0), atol=1e-12)


def test_regions_reach_as_far_as_the_objective_changes(make_run):
    scan = scan_run(make_run(steps=10, every=10))
    _, negative = region_figure(gradient_of(ArcherConfig(dual_clip=10.0)), scan, "archer").panels
    assert negative.x_range == (RATIO_GRID[0], RATIO_GRID[-1])


def test_region_density_is_the_spread_of_the_runs_own_tokens(make_run, gradient):
    run = make_run(steps=20, every=10)
    scan = scan_run(run)
    figure = region_figure(gradient, scan, "archer")
    areas = {mark.colour: mark for mark in figure.panels[0].marks if mark.kind == "area"}
    ratios = {True: [], False: []}
    for _, file in run.rollout_files():
        for row in map(json.loads, file.read_text().splitlines()):
            if row["ratio"] and row["advantage"] > 0:
                for ratio, role in zip(row["ratio"], row["reasoning"], strict=True):
                    ratios[role].append(np.log(ratio))
    for role, colour in ((True, "reasoning"), (False, "knowledge")):
        expected = np.histogram(ratios[role], scan.settings.ratio_edges)[0] / len(ratios[role])
        np.testing.assert_allclose(areas[colour].y, expected)


def test_density_of_a_sequence_method_is_that_of_the_ratio_it_clips(make_run, gradient):
    run = make_run(objective={"method": "gspo", "eps_low": 3e-4, "eps_high": 4e-4}, steps=10, every=10)
    scan = scan_run(run)
    edges = scan.settings.ratio_edges
    assert (edges[0], edges[-1]) == pytest.approx((-4e-3, 4e-3))
    expected = np.zeros(len(edges) - 1)
    for row in map(json.loads, run.rollout_files()[0][1].read_text().splitlines()):
        if row["ratio"] and row["advantage"] > 0:
            place = np.clip(np.mean(np.log(row["ratio"])), edges[0], edges[-1])
            expected += len(row["ratio"]) * np.histogram(place, edges)[0]
    np.testing.assert_array_equal(scan.density[1, True] + scan.density[1, False], expected)
    figure = region_figure(gradient, scan, "gspo")
    assert figure.panels[0].x_range == pytest.approx((np.exp(-4e-3), np.exp(4e-3)))
    assert "whole response" in figure.caption


def test_captions_name_thin_lines_and_bands(make_run):
    reward = next(chart for chart in CHARTS if chart.id == "reward")
    evaluation = next(chart for chart in CHARTS if chart.id == "evaluation")
    alone, more = [make_run("a", steps=30)], [make_run(str(i), seed=i, steps=30) for i in range(2)]
    assert dynamics_figure(reward, group_runs(alone)).caption.endswith("Thin: each step; thick: smoothed.")
    assert dynamics_figure(reward, group_runs(more)).caption.endswith("Band: lowest to highest of 2 seeds.")
    for line in (json.loads(text) for text in (alone[0].path / "metrics.jsonl").open()):
        alone[0].metrics[line["step"]].update({k + "_interval": 0.1 for k in line if k == "eval/avg@8"})
    assert dynamics_figure(evaluation, group_runs(alone)).caption.endswith("Band: 95 % interval.")


def test_seeds_that_share_a_curve_are_counted_in_its_name(make_run):
    (experiment,) = group_runs([make_run(str(i), seed=i, steps=3) for i in range(3)])
    assert experiment.label == "0 (3 seeds)"


def test_a_log_axis_is_used_only_where_it_has_ticks(make_run):
    run = make_run(steps=5)
    chart = next(chart for chart in CHARTS if chart.id == "ratio")
    assert dynamics_figure(chart, group_runs([run])).panels[0].y_log
    for row in run.metrics[1:]:
        row.update({"ratio/max": 1.2, "ratio/min": 0.9})
    assert not dynamics_figure(chart, group_runs([run])).panels[0].y_log


def test_gain_and_accuracy_before_come_from_the_same_samples(make_run):
    run = make_run(steps=10)
    records = run.evaluations()
    points = transfer_figure(group_runs([run])).panels[1].marks[1]
    odd, after = {}, {}
    for row in records[0]:
        if row["sample"] % 2:
            odd.setdefault(row["problem_id"], []).append(row["reward"])
    for row in records[10]:
        after.setdefault(row["problem_id"], []).append(row["reward"])
    even = {
        p: np.mean([r["reward"] for r in records[0] if r["problem_id"] == p and r["sample"] % 2 == 0])
        for p in odd
    }
    hard = [p for p in odd if even[p] < 0.125]
    assert points.x[0] == pytest.approx(np.mean([np.mean(odd[p]) for p in hard]))
    assert points.x[0] + points.y[0] == pytest.approx(np.mean([np.mean(after[p]) for p in hard]))
    assert all(x + y <= 1 for x, y in zip(points.x, points.y, strict=True)), "no accuracy above 1"


def test_token_figure_agrees_with_a_plain_count(make_run):
    run = make_run(steps=20, every=10)
    entropy = {}
    for _, file in run.rollout_files():
        for row in map(json.loads, file.read_text().splitlines()):
            for token, value in zip(row["tokens"], row["entropy"], strict=True):
                entropy.setdefault(token, []).append(value)
    figure = token_figure(scan_run(run), min_count=30, size=5)
    ranked = sorted((t for t, v in entropy.items() if len(v) >= 30), key=lambda t: -np.mean(entropy[t]))
    assert [row.text for row in figure.high] == ranked[:5]
    assert [row.text for row in figure.low] == ranked[::-1][:5]
    assert figure.high[0].entropy == pytest.approx(np.mean(entropy[ranked[0]]))
    assert figure.high[0].count == len(entropy[ranked[0]])
    assert "lower the minimum count" in token_figure(scan_run(run), min_count=10**6).caption


def test_entropy_figure_agrees_with_the_last_stored_batch(make_run):
    run = make_run(steps=20, every=10, groups=5, size=3)
    rows = [json.loads(line) for line in run.rollout_files()[-1][1].read_text().splitlines()]
    prompts, within, share, _ = entropy_figure(scan_run(run)).panels
    means = {}
    for row in rows:
        means.setdefault(row["group"], []).append(np.mean(row["entropy"]))
    expected = sorted(np.mean(values) for values in means.values())
    np.testing.assert_allclose(prompts.marks[0].y, expected)
    np.testing.assert_allclose(prompts.marks[1].y, [np.mean([np.mean(row["entropy"]) for row in rows])])
    assert sorted(within.marks[0].y) == pytest.approx(sorted(v for values in means.values() for v in values))
    threshold = np.quantile(np.concatenate([row["entropy"] for row in rows]), 0.8)
    by_batch = sorted(np.mean(np.array(row["entropy"]) >= threshold) for row in rows)
    line = next(mark for mark in share.marks if "per batch" in mark.name)
    np.testing.assert_allclose(line.y, by_batch)
    assert f"makes {by_batch[0]:.2%} to {by_batch[-1]:.2%} of" in entropy_figure(scan_run(run)).caption


def test_a_run_without_roles_or_reference_has_its_token_figures(make_run, gradient):
    run = make_run(steps=10, every=10, reference=False)
    file = run.rollout_files()[0][1]
    rows = [json.loads(line) | {"reasoning": None} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scan = scan_run(run)
    assert not scan.roles_recorded
    figure = region_figure(gradient, scan, "grpo")
    assert "no roles; its tokens are split at the 0.8-quantile" in figure.caption
    share = sum(counts.sum() for (_, role), counts in scan.density.items() if role) / sum(
        counts.sum() for counts in scan.density.values()
    )
    assert 0.19 < share < 0.23


def test_dynamics_of_one_run_are_its_rows(make_run):
    run = make_run(steps=30)
    experiments = group_runs([run])
    figures = {chart.id: dynamics_figure(chart, experiments) for chart in CHARTS}
    line = figures["reward"].panels[0].marks[0]
    assert list(line.x) == list(range(1, 31))
    assert list(line.y) == [row["reward/mean"] for row in run.metrics[1:]]
    np.testing.assert_array_equal(line.smooth[10], smooth(np.array(line.y), 10))
    assert [mark.name for mark in figures["clip"].panels[0].marks] == [
        "Reasoning, above",
        "Reasoning, below",
        "Knowledge, above",
        "Knowledge, below",
    ]
    assert [m.name for m in figures["evaluation"].panels[0].marks] == [
        "avg@8",
        "pass@2",
        "pass@4",
        "pass@8",
    ]
    assert len(dynamics_overview(experiments).panels) == 4
    assert ablation_figure(experiments) is None


def test_metrics_that_are_null_or_absent_are_left_out(make_run):
    run = make_run(steps=5, reference=False)
    run.metrics[2]["reward/mean"] = None
    run.metrics[3]["reward/mean"] = float("nan")
    steps, values = series(run, "reward/mean")
    assert steps.tolist() == [1, 4, 5]
    assert np.isfinite(values).all()
    chart = next(chart for chart in CHARTS if chart.id == "kl")
    assert dynamics_figure(chart, group_runs([run])) is None


def test_seeds_share_a_curve_and_settings_do_not(make_run):
    runs = [make_run(f"a{seed}", seed=seed, steps=10) for seed in range(3)]
    runs += [make_run(f"b{seed}", seed=seed, steps=10, objective={"eps_r": 0.4}) for seed in range(2)]
    experiments = group_runs(runs)
    assert [(e.label, len(e.runs)) for e in experiments] == [("eps_r=0.5", 3), ("eps_r=0.4", 2)]
    reward = next(chart for chart in CHARTS if chart.id == "reward")
    first = dynamics_figure(reward, experiments).panels[0].marks[0]
    table = np.array([[row["reward/mean"] for row in run.metrics[1:]] for run in runs[:3]])
    np.testing.assert_allclose(first.y, table.mean(axis=0))
    np.testing.assert_allclose(first.low, table.min(axis=0))
    np.testing.assert_allclose(first.high, table.max(axis=0))
    final = ablation_figure(experiments).panels[0]
    assert final.tick_names() == ["eps_r=0.5", "eps_r=0.4"]
    np.testing.assert_allclose(final.marks[0].y, [0.5, 0.5])


def test_methods_are_named_where_they_tell_experiments_apart(make_run):
    settings = [{}, {}, {"method": "grpo", "eps_low": 0.2, "eps_high": 0.2, "dual_clip": None}]
    runs = [make_run(str(i), seed=i, steps=3, objective=o) for i, o in enumerate(settings)]
    assert [(e.label, len(e.runs)) for e in group_runs(runs)] == [("archer", 2), ("grpo", 1)]
    wider = make_run("3", steps=3, objective={"eps_r": 0.9})
    assert "archer" not in [e.label for e in group_runs([*runs, wider])], "two experiments share the method"


def test_runs_of_one_configuration_without_seeds_are_told_apart_by_name(make_run):
    runs = [make_run("one", steps=5), make_run("two", steps=5)]
    for run in runs:
        (run.path / "config.yaml").unlink()
    runs = [type(run)(run.path, run.name, run.metrics, run.events, {}, {}, []) for run in runs]
    assert [e.label for e in group_runs(runs)] == ["one", "two"]


def test_transfer_shows_accuracy_and_gain_by_domain(make_run):
    run = make_run(steps=10, domains=("math", "code"))
    figure = transfer_figure(group_runs([run]))
    assert [panel.title for panel in figure.panels] == [
        "code: accuracy",
        "code: gain by difficulty",
        "math: accuracy",
        "math: gain by difficulty",
    ]
    records = run.evaluations()
    for place, domain in ((0, "code"), (2, "math")):
        expected = [
            np.mean([row["reward"] for row in records[step] if row["domain"] == domain]) for step in (0, 10)
        ]
        np.testing.assert_allclose(figure.panels[place].marks[0].y, expected)


def test_transfer_needs_two_evaluations(make_run):
    run = make_run(steps=10)
    (run.path / "evaluation" / "step_000010.jsonl").unlink()
    assert transfer_figure(group_runs([run])) is None
