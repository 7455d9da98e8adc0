"""Archer's graders and sandbox as a reward function of verl.

``reward.custom_reward_function.path=pkg://archer.adapters.verl.reward name=compute_score``; the settings of
``RewardConfig`` go into ``reward_kwargs``.
"""

from __future__ import annotations

import atexit
import json
import math
import threading
from collections.abc import Mapping
from typing import Any

from archer.configs.loading import build_config
from archer.configs.reward import RewardConfig
from archer.data.records import from_json
from archer.errors import DataError
from archer.rewards import Scorer, build_scorer
from archer.types import Problem

_lock = threading.Lock()
_scorers: dict[str, Scorer] = {}


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, float]:
    """The score of one response, with verl's signature. Usable from any number of threads.

    Args:
        data_source: verl's word for the row's origin.
        solution_str: the response.
        ground_truth: the answer as text, or code tests as JSON text.
        extra_info: ``problem``, as Archer's export writes it, holds the rest of the row; rows without it are
            maths, or code where ``domain`` says so.
        settings: fields of ``RewardConfig``.

    Returns:
        ``score`` and ``acc``, NaN where the response can't be scored (the trainer mode ``archer_sync`` leaves
        such rows out), and ``unscorable``, 0 or 1.

    Raises:
        ConfigError: a setting is wrong.
        DataError: the row holds no problem that can be graded.
        RewardError: the scorer can't start, or failed under ``on_error: stop``.
    """
    problem = problem_of(data_source, ground_truth, extra_info or {})
    verdict = _scorer(_plain(settings)).score([problem], [solution_str])[0]
    score = math.nan if verdict.score is None else float(verdict.score)
    return {"score": score, "acc": score, "unscorable": float(verdict.score is None)}


def problem_of(data_source: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Problem:
    """The problem that a verl row holds.

    Raises:
        DataError: code tests that are no JSON list, or no answer.
    """
    record = json.loads(extra_info["problem"]) if extra_info.get("problem") else {}
    if ground_truth is None and not record:
        raise DataError(
            "reward_model.ground_truth: expected an answer or code tests, got nothing; drop the row"
        )
    domain = record.get("domain") or extra_info.get("domain") or "math"
    tests: list[Any] = []
    if domain == "code":
        tests = _tests(ground_truth)
    answer = None if tests else str(ground_truth)
    base: dict[str, Any] = {"id": "", "prompt": "", "source": data_source, "meta": {}, "answer": answer}
    return from_json(base | record | {"domain": domain, "tests": tests})


def _tests(ground_truth: Any) -> list[Any]:
    try:
        tests = json.loads(ground_truth)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"reward_model.ground_truth: expected code tests as JSON text, got {str(ground_truth)[:80]!r}"
        ) from error
    if not isinstance(tests, list) or not tests:
        raise DataError(f"reward_model.ground_truth: expected a list of code tests, got {str(tests)[:80]!r}")
    return tests


def _scorer(settings: dict[str, Any]) -> Scorer:
    key = json.dumps(settings, sort_keys=True)
    with _lock:
        if key not in _scorers:
            config = build_config(RewardConfig, settings, where="reward.custom_reward_function.reward_kwargs")
            _scorers[key] = build_scorer(config)
            atexit.register(_scorers[key].close)
        return _scorers[key]


def _plain(value: Any) -> Any:
    """Hydra's containers as plain ones."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple) or type(value).__name__ == "ListConfig":
        return [_plain(item) for item in value]
    return value
