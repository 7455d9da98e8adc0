"""Handler of a maths worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from archer.rewards.boundary import encode
from archer.rewards.math.extract import extract, well_formed
from archer.types import Problem, Verdict


def make_handler(unboxed: bool, require_thinking: bool) -> Callable[[tuple[Problem, str]], Any]:
    """Handler of one worker."""
    from math_verify import parse, verify

    def handle(request: tuple[Problem, str]) -> Any:
        problem, text = request
        if require_thinking and not well_formed(text):
            return encode(Verdict("incorrect", 0.0, reason="bad_format"))
        found = extract(text, unboxed=unboxed)
        if found.answer is None:
            return encode(Verdict("incorrect", 0.0, reason=found.reason))
        gold = parse(rf"$\boxed{{{problem.answer}}}$", parsing_timeout=None)
        if not gold:
            return encode(Verdict("unscorable", None, found.answer, "gold_unparsable"))
        right = verify(
            gold, parse(rf"$\boxed{{{found.answer}}}$", parsing_timeout=None), timeout_seconds=None
        )
        return encode(Verdict("correct" if right else "incorrect", float(right), found.answer, "math_verify"))

    return handle
