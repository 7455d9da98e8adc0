"""Handler of a maths worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from archer.rewards.boundary import encode
from archer.rewards.child import CpuTimeExceeded
from archer.rewards.math.judge import as_verdict, found_answer, incorrect, judge, prepare
from archer.rewards.math.match import Match
from archer.types import Problem, Verdict


def make_handler(unboxed: bool, require_thinking: bool) -> Callable[[tuple[Problem, str]], Any]:
    """Handler of one worker; a request is a problem and a whole response."""
    from archer.rewards.math import symbolic

    readable = lru_cache(maxsize=8192)(symbolic.readable)

    def verdict(problem: Problem, text: str) -> Verdict:
        answer = found_answer(text, unboxed=unboxed, require_thinking=require_thinking)
        gold = prepare(problem.answer or "")
        if isinstance(answer, Verdict):
            # A bad gold answer stays unscorable whatever the response says.
            checked = judge(gold, gold.text)
            return checked if isinstance(checked, Verdict) and checked.score is None else answer
        result = judge(gold, answer)
        if isinstance(result, Verdict):
            return result
        if gold.node is None and not readable(gold.text):
            return Verdict("unscorable", None, answer, "gold_unparsable")
        try:
            equal = symbolic.equivalent(gold.text, answer)
        except CpuTimeExceeded:
            return incorrect(answer, "cpu_time")
        if equal is None:
            return incorrect(answer, f"not_comparable: {result.reason}")
        return as_verdict(Match(equal, "symbolic"), answer)

    return lambda request: encode(verdict(*request))
