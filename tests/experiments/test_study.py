"""Studies: what is planned, what is read back, and which differences are called noise."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from archer.configs.loading import dump_config, load_config
from archer.configs.study import StudyConfig
from archer.errors import ConfigError
from archer.evaluation.statistics import seed_interval
from archer.experiments import collect, plan, run_study, write_study

STUDIES = ["ablate-tiny", "ablate-math-1.5b", "ablate-code-1.5b"]
SMALL = (
    "train.steps=2",
    "train.prompts_per_step=2",
    "train.mini_batch_prompts=1",
    "train.eval_every=2",
    "train.checkpoint_every=1",
    "train.rollout_log_every=0",
    "rollout.group_size=2",
    "rollout.max_response_tokens=8",
    "evaluation.data.size=2",
    "evaluation.k=2",
)


def small_study(folder, **changes):
    values = {
        "name": "small",
        "output": str(folder),
        "base": "demo",
        "overrides": SMALL,
        "variants": {"archer": [], "grpo": ["objective.method=grpo"]},
        "baseline": "archer",
        "seeds": [0, 1, 2],
    }
    return StudyConfig.model_validate({**values, **changes})


def write_run(run, final, *, entropy=(0.5, 0.5), finished=True):
    """A run directory as training leaves it, with chosen numbers."""
    run.folder.mkdir(parents=True)
    (run.folder / "config.yaml").write_text(dump_config(run.config))
    lines = [
        {"step": 1, "time": 1.0, "entropy/mean": entropy[0], "kl/base": 0.1},
        {
            "step": 2,
            "time": 2.0,
            "entropy/mean": entropy[1],
            "kl/base": 0.3,
            "eval/avg@2": final,
            "eval/pass@2": 1.0,
        },
    ]
    (run.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if finished:
        checkpoint = run.folder / "checkpoints" / "step_000002"
        checkpoint.mkdir(parents=True)
        (checkpoint / "COMPLETE").write_text("{}")


def test_student_interval_of_known_values():
    mean, half = seed_interval([1.0, 2.0, 3.0])
    # t(0.975, 2) = 4.302653; the standard error is 1 / sqrt(3).
    assert (mean, round(half, 6)) == (2.0, round(4.30265273 / math.sqrt(3), 6))
    assert math.isnan(seed_interval([1.0])[1])


def test_plan_pairs_variants_by_seed_and_measures_kl_for_all(tmp_path):
    runs = plan(small_study(tmp_path))
    assert [(r.variant, r.seed) for r in runs] == [(v, s) for s in (0, 1, 2) for v in ("archer", "grpo")]
    for run in runs:
        assert run.config.train.seed == run.seed
        assert run.config.train.track_kl
        assert run.config.objective.method == run.variant
        assert run.folder == tmp_path / "small" / f"{run.variant}-seed{run.seed}"
    assert len({(r.config.data.model_dump_json(), r.config.policy.model_dump_json()) for r in runs}) == 1


@pytest.mark.parametrize("name", STUDIES)
def test_shipped_studies_can_be_planned(name):
    study = load_config(StudyConfig, name)
    runs = plan(study)
    assert len(runs) == len(study.variants) * len(study.seeds)
    assert len({run.config.objective.model_dump_json() for run in runs}) == len(study.variants)


def test_differences_are_paired_and_noise_is_named(tmp_path):
    study = small_study(
        tmp_path,
        variants={"archer": [], "grpo": ["objective.method=grpo"], "dapo": ["objective.method=dapo"]},
    )
    runs = plan(study)
    base = {0: 0.2, 1: 0.5, 2: 0.8}
    # grpo: seeds vary far more than the difference, which is nearly constant; dapo: the difference itself varies.
    shift = {"archer": (0, 0, 0), "grpo": (0.10, 0.11, 0.12), "dapo": (0.3, -0.3, 0.1)}
    for run in runs:
        write_run(run, base[run.seed] + shift[run.variant][run.seed], entropy=(0.2, 0.4))
    result = collect(study, runs)
    name = "avg@2 (%)"
    grpo, dapo, archer = (result.cells[v][name] for v in ("grpo", "dapo", "archer"))
    assert archer.mean == pytest.approx(50.0)
    assert archer.verdict == "baseline"
    assert grpo.difference == pytest.approx(11.0)
    assert grpo.difference_half == pytest.approx(4.30265273 * 1.0 / math.sqrt(3))
    assert grpo.verdict == "higher"
    assert grpo.half > 50
    assert dapo.difference == pytest.approx(10 / 3)
    assert dapo.verdict == "within noise"
    assert result.cells["grpo"]["entropy (nats)"].mean == pytest.approx(0.3)
    text = result.markdown()
    assert "+11.00 ± 2.48" in text
    assert "(noise)" in text


def test_tail_averages_only_the_last_steps(tmp_path):
    study = small_study(tmp_path, seeds=[0], tail=1, variants={"archer": []})
    runs = plan(study)
    write_run(runs[0], 0.5, entropy=(0.2, 0.4))
    cell = collect(study, runs).cells["archer"]["entropy (nats)"]
    assert cell.mean == pytest.approx(0.4)
    assert math.isnan(cell.half)


def test_unfinished_runs_are_left_out_and_named(tmp_path):
    study = small_study(tmp_path, seeds=[0, 1])
    runs = plan(study)
    for run in runs:
        write_run(run, 0.5, finished=not (run.variant == "grpo" and run.seed == 1))
    result = collect(study, runs)
    assert list(result.cells["grpo"]["avg@2 (%)"].values) == [0]
    assert result.cells["grpo"]["avg@2 (%)"].verdict == "one seed"
    assert "left out: grpo seed 1" in result.markdown()


def test_a_variant_with_another_budget_is_called_unlike(tmp_path):
    study = small_study(tmp_path, seeds=[0], variants={"archer": [], "longer": ["rollout.group_size=4"]})
    result = collect(study, plan(study))
    assert result.unlike == {"longer": ["rollout.group_size"]}
    assert "longer differs from archer in more than the objective: rollout.group_size" in result.markdown()


def test_files_hold_the_same_numbers_as_the_table(tmp_path):
    study = small_study(tmp_path, seeds=[0, 1], groups={"all of them": ["archer", "grpo"]})
    runs = plan(study)
    for run in runs:
        write_run(run, 0.25 if run.variant == "archer" else 0.75)
    files = write_study(collect(study, runs), runs, tmp_path / "small")
    assert {f.name for f in files} >= {
        "table.md",
        "table.csv",
        "result.json",
        "fig07_09_ablation.png",
        "report.html",
    }
    saved = json.loads((tmp_path / "small" / "result.json").read_text())
    assert saved["cells"]["grpo"]["avg@2 (%)"]["values"] == {"0": 75.0, "1": 75.0}
    assert saved["cells"]["grpo"]["avg@2 (%)"]["difference"] == 50.0
    rows = (tmp_path / "small" / "table.csv").read_text().splitlines()
    assert "all of them,grpo,avg@2 (%),2,75.0,0.0,50.0,0.0,higher" in rows


def test_other_settings_in_the_folder_are_refused(tmp_path):
    runs = plan(small_study(tmp_path, seeds=[0]))
    write_run(runs[0], 0.5)
    changed = plan(
        small_study(tmp_path, seeds=[0], overrides=[*SMALL, "objective.rho=0.7"], variants={"archer": []})
    )
    with pytest.raises(ConfigError, match=r"other settings \(objective.rho\)"):
        changed[0].state()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"baseline": "nobody"}, "baseline: expected one of the variants archer, grpo; got 'nobody'"),
        (
            {"groups": {"t": ["nobody"]}},
            r"groups.t: expected names of variants \(archer, grpo\); got 'nobody'",
        ),
        ({"seeds": [1, 1]}, "seeds: each may stand once"),
    ],
)
def test_wrong_studies_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        small_study(tmp_path, **changes)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_study_continues_and_keeps_finished_runs(tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(
        json.dumps({**small_study("studies").model_dump(mode="json"), "seeds": [0], "baseline": "archer"})
    )
    command = [sys.executable, "-m", "archer.cli", "compare", str(study)]
    first = tmp_path / "studies" / "small" / "archer-seed0"
    second = tmp_path / "studies" / "small" / "grpo-seed0"
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 240
    while not second.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)
    before = (first / "metrics.jsonl").read_bytes()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "archer, seed 0: finished before" in done.stdout
    assert (first / "metrics.jsonl").read_bytes() == before
    assert [json.loads(line)["step"] for line in (second / "metrics.jsonl").open()] == [0, 1, 2]
    assert "Difference to archer" in done.stdout
    assert Path(tmp_path / "studies" / "small" / "report.html").stat().st_size > 0


@pytest.mark.slow
def test_a_failing_run_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    study = small_study(tmp_path, seeds=[0], variants={"broken": ["policy.model=/nonexistent"], "archer": []})
    messages = []
    failed = run_study(plan(study), report=lambda run, message: messages.append((run.variant, message)))
    assert [run.variant for run in failed] == ["broken"]
    assert any(v == "broken" and "see" in m for v, m in messages)
    assert collect(study, plan(study)).cells.keys() == {"archer"}
