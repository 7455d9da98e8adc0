"""Programs whose results are known. A runner that gets one wrong is broken, whatever else it says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from archer.rewards.code.judging import Label


@dataclass(frozen=True, slots=True)
class Sample:
    """A program, a test, and the label that it must get."""

    name: str
    program: str
    test: Mapping[str, Any]
    label: Label


_ADD = {"type": "stdin", "input": "2 3\n", "output": "5\n"}
_DOUBLE = {"type": "functional", "fn_name": "double", "input": "[1, 2]", "output": "[2, 4]"}
_SQUARE = {"type": "assert", "code": "assert square(3) == 9"}
_SOLUTION = "class Solution:\n    def double(self, x: List[int]) -> List[int]:\n        return {}\n"

SAMPLES = (
    Sample("an honest program", "a, b = map(int, input().split())\nprint(a + b)", _ADD, "passed"),
    Sample("a program that prints something else", "print(6)", _ADD, "wrong_answer"),
    Sample("a program that fails", "raise ValueError", _ADD, "runtime_error"),
    Sample("an honest function", _SOLUTION.format("[2 * n for n in x]"), _DOUBLE, "passed"),
    Sample("a function that returns something else", _SOLUTION.format("x"), _DOUBLE, "wrong_answer"),
    Sample("an honest definition", "def square(x): return x * x", _SQUARE, "passed"),
    Sample("a definition of something else", "def square(x): return x + x", _SQUARE, "wrong_answer"),
)
