"""A small run that takes a second, and a scorer without processes."""

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from archer.configs.loading import build_config
from archer.configs.run import RunConfig
from archer.types import Problem, Verdict


class DigitScorer:
    """Right when the response holds the digit that the problem asks for; texts in ``unscorable`` get no score."""

    def __init__(self, judge: Callable[[Problem, str], float | None] | None = None) -> None:
        self.judge = judge or (lambda problem, text: float((problem.answer or "") in text.split()))
        self.seen = 0

    def submit(self, problem: Problem, text: str) -> "Future[Verdict]":
        self.seen += 1
        score = self.judge(problem, text)
        status = "unscorable" if score is None else "correct" if score == 1 else "incorrect"
        future: Future[Verdict] = Future()
        future.set_result(Verdict(status, score, text, "digit"))
        return future

    def close(self) -> None:
        """Nothing to close."""

    def __enter__(self) -> "DigitScorer":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


@pytest.fixture
def run_config(tiny_model: Callable[..., str], tmp_path: Path) -> Callable[..., RunConfig]:
    """Maker of small configurations; keyword arguments are dotted settings with ``__`` for the dots."""
    data = tmp_path / "problems.jsonl"
    rows = [
        {"id": f"p{i}", "prompt": f"{i % 10} {i // 10} {i % 7}", "answer": str(i % 10)} for i in range(24)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(**settings: Any) -> RunConfig:
        values: dict[str, Any] = {
            "name": "small",
            "output": str(tmp_path / "runs"),
            "policy": {"model": tiny_model()},
            "data": {"path": str(data)},
            "rollout": {"group_size": 4, "max_prompt_tokens": 16, "max_response_tokens": 12, "max_batch": 16},
            "evaluation": {"k": 2, "data": {"path": str(data), "limit": 5}},
            "optimizer": {"learning_rate": 1e-3, "warmup_updates": 2},
            "train": {
                "steps": 4,
                "prompts_per_step": 4,
                "mini_batch_prompts": 2,
                "eval_every": 2,
                "checkpoint_every": 2,
                "micro_batch_tokens": 64,
                "rollout_log_every": 2,
            },
        }
        for name, value in settings.items():
            *parents, last = name.split("__")
            place = values
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
        return build_config(RunConfig, values, where="test")

    return make


@pytest.fixture
def scorer(monkeypatch: pytest.MonkeyPatch) -> DigitScorer:
    """Put a ``DigitScorer`` in the place of the configured one; its ``judge`` can be changed."""
    made = DigitScorer()
    monkeypatch.setattr("archer.train.setup.build_scorer", lambda config: made)
    return made
