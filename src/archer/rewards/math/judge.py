"""From a response and a gold answer to a verdict, in the process that calls it."""

from __future__ import annotations

from archer.rewards.math.decide import Gold, decide, prepare
from archer.rewards.math.extract import extract, well_formed
from archer.rewards.math.match import Match
from archer.types import Verdict


def found_answer(text: str, *, unboxed: bool, require_thinking: bool) -> str | Verdict:
    """The graded answer of a response, or the verdict where there is none."""
    if require_thinking and not well_formed(text):
        return incorrect(None, "bad_format")
    found = extract(text, unboxed=unboxed)
    return incorrect(None, found.reason) if found.answer is None else found.answer


def judge(gold: Gold, answer: str) -> Verdict | Match:
    """The verdict by the rules, or the undecided match where they give none."""
    if gold.problem in ("gold_empty", "gold_unparsable"):
        return Verdict("unscorable", None, answer, gold.problem)
    match = decide(gold, answer)
    return match if match.equal is None else as_verdict(match, answer)


def as_verdict(match: Match, answer: str) -> Verdict:
    """A decided match as a verdict."""
    return Verdict("correct", 1.0, answer, match.reason) if match.equal else incorrect(answer, match.reason)


def incorrect(answer: str | None, reason: str) -> Verdict:
    """A verdict of 0."""
    return Verdict("incorrect", 0.0, answer, reason)


__all__ = ["as_verdict", "found_answer", "incorrect", "judge", "prepare"]
