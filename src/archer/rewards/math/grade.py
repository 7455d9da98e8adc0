"""Grading for callers: one pair at a time, from any thread.

The rules run in the calling process: they evaluate no text, load no computer algebra system and take bounded
time. What they leave open goes to worker processes, which start when first needed and end with the
interpreter.
"""

from __future__ import annotations

import atexit
import threading
import time
from dataclasses import replace

from archer.rewards.backends import BUILDERS, Backend
from archer.rewards.math.judge import found_answer, judge, prepare
from archer.types import Problem, Verdict

_lock = threading.Lock()
_backend: Backend | None = None


def grade(*, gold: str, prediction: str, unboxed: bool = False, require_thinking: bool = False) -> Verdict:
    """The verdict on one response.

    Args:
        gold: the gold answer, without a box.
        prediction: the whole response; its answer is the last box after the thinking part.
        unboxed: where there is no box, take ``<answer>…</answer>``, ``#### …`` or ``Answer: …``.
        require_thinking: anything but ``<think>…</think>`` followed by the answer is incorrect.

    Returns:
        ``unscorable`` for a gold answer that can't be read, never an exception for odd text.
    """
    started = time.perf_counter()
    answer = found_answer(prediction, unboxed=unboxed, require_thinking=require_thinking)
    if isinstance(answer, Verdict):
        problem = check_gold(gold)
        verdict = answer if problem is None else Verdict("unscorable", None, reason=problem)
    else:
        verdict = grade_answer(gold=gold, answer=answer)
    return replace(verdict, seconds=time.perf_counter() - started)


def grade_answer(*, gold: str, answer: str) -> Verdict:
    """As ``grade``, for an answer that has been taken out of its response."""
    started = time.perf_counter()
    verdict = judge(prepare(gold), answer)
    if not isinstance(verdict, Verdict):
        problem = Problem(id="single pair", prompt="", answer=gold)
        verdict = _workers().submit(problem, rf"\boxed{{{answer}}}").result()
    return replace(verdict, seconds=time.perf_counter() - started)


def check_gold(answer: str) -> str | None:
    """Why ``answer`` can't serve as a gold answer; ``None`` if it can.

    Nearly all answers are checked in the calling process; the rest needs a worker.
    """
    if not isinstance(answer, str):
        return f"expected text, found {type(answer).__name__}"
    gold = prepare(answer)
    if gold.node is not None:
        return None
    verdict = grade_answer(gold=answer, answer=answer)
    return verdict.reason if verdict.score is None else None


def _workers() -> Backend:
    global _backend
    with _lock:
        if _backend is None:
            from archer.configs.reward import RewardConfig

            _backend = BUILDERS["math"](RewardConfig())
            atexit.register(_backend.close)
        return _backend
