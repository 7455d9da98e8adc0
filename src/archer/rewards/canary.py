"""Responses with known scores: a scorer that gets one wrong is broken, however normal the rest looks."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from archer.errors import RewardError
from archer.types import Problem, Verdict


@dataclass(frozen=True, slots=True)
class Canary:
    """A response and the score that it must get."""

    problem: Problem
    text: str
    expected: float

    def check(self, kind: str, done: Future[Verdict]) -> None:
        """Compare a finished verdict.

        Raises:
            RewardError: another score, or none.
        """
        error = done.exception()
        if isinstance(error, RewardError):
            raise error
        verdict = None if error is not None else done.result()
        if verdict is None or verdict.score != self.expected:
            raise RewardError(
                f"{kind} scorer is broken: canary {self.problem.id!r} must score {self.expected}, got "
                f"{error if verdict is None else f'{verdict.score} ({verdict.reason})'}; no score since the "
                "last check can be trusted"
            )


def _pair(problem: Problem, right: str, wrong: str) -> tuple[Canary, Canary]:
    return Canary(problem, right, 1.0), Canary(problem, wrong, 0.0)


# Neither of these maths answers is decided without computer algebra, so they try the whole path.
_MATHS = _pair(
    Problem(id="canary-math", prompt="", answer=r"\frac{\sqrt{3}}{3}"),
    r"\boxed{\frac{1}{\sqrt{3}}}",
    r"\boxed{\frac{1}{\sqrt{2}}}",
)
_PROCEDURAL = _pair(
    Problem(id="canary-procedural", prompt="", answer="12", domain="procedural", meta={"scorer": "exact"}),
    "<answer>12</answer>",
    "<answer>13</answer>",
)
_CODE = _pair(
    Problem(
        id="canary-code",
        prompt="",
        domain="code",
        tests=({"type": "stdin", "input": "2 3\n", "output": "5\n"},),
    ),
    "```python\na, b = map(int, input().split())\nprint(a + b)\n```",
    "```python\nprint(6)\n```",
)
# A user's function has no known answers; whether it loads is checked when its worker starts.
_BY_KIND = {"math": _MATHS, "paper": _MATHS, "procedural": _PROCEDURAL, "code": _CODE, "custom": ()}


def canaries_of(kind: str) -> tuple[Canary, ...]:
    """The canaries of one kind of scorer; empty for a user's function."""
    return _BY_KIND[kind]
