"""The command line as a user types it, in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from archer.train.interrupt import EXIT_INTERRUPTED


def archer(*arguments: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [sys.executable, "-m", "archer.cli", *arguments], cwd=cwd, capture_output=True, text=True, timeout=240
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def recipe(tiny_model, tmp_path) -> Path:
    rows = [{"id": f"p{i}", "prompt": f"{i % 10} {i // 10}", "answer": str(i % 10)} for i in range(20)]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reward.py").write_text(
        "def score(problem, text):\n    return float(problem.answer in text.split())\n"
    )
    settings = {
        "name": "small",
        "output": str(tmp_path / "runs"),
        "policy": {"model": tiny_model()},
        "data": {"path": str(tmp_path / "problems.jsonl")},
        "reward": {"kind": "custom", "function": f"{tmp_path}/reward.py:score", "workers": 1},
        "rollout": {"group_size": 4, "max_prompt_tokens": 16, "max_response_tokens": 12, "max_batch": 16},
        "evaluation": {"k": 2, "data": {"path": str(tmp_path / "problems.jsonl"), "limit": 5}},
        "optimizer": {"learning_rate": 1e-3},
        "train": {
            "steps": 3,
            "prompts_per_step": 4,
            "mini_batch_prompts": 2,
            "eval_every": 2,
            "checkpoint_every": 2,
        },
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def test_train_evaluate_and_report(recipe, tmp_path):
    done = archer("train", str(recipe), "train.steps=2", cwd=tmp_path)
    assert "Held-out problems" in done.stdout
    assert "pass@2" in done.stdout
    assert "run directory" in done.stdout
    refused = archer("train", str(recipe), cwd=tmp_path, check=False)
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    assert "Traceback" not in refused.stderr
    checkpoint = tmp_path / "runs" / "small" / "checkpoints" / "step_000002"
    data = str(tmp_path / "problems.jsonl")
    shown = archer(
        *(
            "eval",
            str(checkpoint),
            "--data",
            data,
            "--k",
            "2",
            "--max-response-tokens",
            "8",
        ),
        cwd=tmp_path,
    )
    assert "avg@2" in shown.stdout
    stored = tmp_path / "evaluations" / checkpoint.name / Path(data).stem / "samples.jsonl"
    assert len(stored.read_text().splitlines()) == 40
    archer("report", str(tmp_path / "runs" / "small"), cwd=tmp_path)
    page = (tmp_path / "runs" / "small" / "report.html").read_text()
    assert "<html" in page
    assert "small" in archer("watch", str(tmp_path / "runs" / "small"), "--once", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "no-such-recipe"), "no recipe 'no-such-recipe'"),
        (("train", "demo", "train.stepz=3"), "did you mean steps?"),
        (("train", "demo", "policy.model=no/such/model"), "no/such/model"),
        (("eval", "no/such/model", "--data", "x.txt"), "x.txt"),
    ],
)
def test_mistakes_end_with_one_message_and_status_2(arguments, message, tmp_path):
    done = archer(*arguments, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_doctor(tmp_path):
    shown = archer("doctor", cwd=tmp_path).stdout
    assert "torch" in shown
    assert "cpu" in shown or "cuda" in shown


def start(recipe: Path, *extra: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "archer.cli", "train", str(recipe), "train.steps=200", *extra]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_step(folder: Path, step: int) -> None:
    path = folder / "metrics.jsonl"
    for _ in range(1200):
        if path.exists() and path.read_text().count("\n") > step:
            return
        time.sleep(0.1)
    raise AssertionError(f"step {step} was not reached")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_process_resumes(recipe, tmp_path, number):
    folder = tmp_path / "runs" / "small"
    process = start(recipe)
    wait_for_step(folder, 3)
    process.send_signal(number)
    status = process.wait(timeout=60)
    assert status == (EXIT_INTERRUPTED if number == signal.SIGTERM else -signal.SIGKILL)
    done = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = max(done) + 2
    archer("train", str(recipe), f"train.steps={steps}", "--resume", cwd=tmp_path)
    after = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert after == list(range(steps + 1))
    assert not list((folder / "checkpoints").glob("*.partial")) or number == signal.SIGKILL
    assert os.path.exists(folder / "checkpoints" / f"step_{steps:06d}" / "COMPLETE")
