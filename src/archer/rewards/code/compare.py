"""Whether what a program gave is what was expected: the rules of LiveCodeBench, and a tolerance for floats."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

# A sign, digits, at most one point, an exponent of a size that arithmetic stays cheap with. Nothing is tried
# twice, so that the time for a word grows with its length.
_NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,6})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_SHOWN = 80


def compare_output(expected: str, got: str, tolerance: float | None, float_tolerance: float) -> str:
    """Compare printed text; an empty string where it is right, else what is wrong with it.

    Blanks around the text and around each line don't count. Lines are equal as text or, word by word, as
    decimal numbers.

    Args:
        expected, got: whole outputs.
        tolerance: declared by the task: allowed difference of any number, absolute or relative.
        float_tolerance: the same, for numbers that ``expected`` writes as floats.
    """
    expected, got = expected.strip(), got.strip()
    if expected == got:
        return ""
    wanted_count, count = expected.count("\n") + 1, got.count("\n") + 1
    if wanted_count != count:
        return f"expected {wanted_count} lines, got {count}: {_short(got)}"
    pairs = zip(expected.split("\n"), got.split("\n"), strict=True)
    for number, (wanted_line, line) in enumerate(pairs, start=1):
        wanted_line, line = wanted_line.strip(), line.strip()
        if wanted_line != line and not _equal_words(wanted_line, line, tolerance, float_tolerance):
            return f"line {number}: expected {_short(wanted_line)}, got {_short(line)}"
    return ""


def compare_values(expected: Any, got: Any, tolerance: float | None, float_tolerance: float) -> str:
    """Compare a returned value with a JSON value; an empty string where it is right.

    Tuples count as lists, ``True`` as 1 and 1.0 as 1, as ``==`` has it; floats within the tolerance.
    """
    try:
        right = _equal_values(expected, got, tolerance, float_tolerance)
        return "" if right else f"expected {_short(repr(expected))}, got {_short(repr(got))}"
    except (RecursionError, ArithmeticError):
        # Very deep, or a number (a signalling NaN) that refuses to be compared.
        return f"expected {_short(repr(expected))}, got something that can't be compared"
    except ValueError:
        # An integer too long to be written in decimal.
        return f"expected {_short(str(expected))}, got something very long"


def _equal_words(wanted: str, got: str, tolerance: float | None, float_tolerance: float) -> bool:
    wanted_words, words = wanted.split(), got.split()
    return len(wanted_words) == len(words) and all(
        _equal_numbers(one, other, tolerance, float_tolerance)
        for one, other in zip(wanted_words, words, strict=True)
    )


def _equal_numbers(wanted: str, got: str, tolerance: float | None, float_tolerance: float) -> bool:
    # LiveCodeBench turns the whole line into numbers: a line with a word in it has to be equal as text.
    if not _NUMBER.fullmatch(wanted) or not _NUMBER.fullmatch(got):
        return False
    try:
        one, other = Decimal(wanted), Decimal(got)
    except InvalidOperation:
        return False
    if one == other:
        return True
    allowed = tolerance if tolerance is not None else 0.0 if _INTEGER.fullmatch(wanted) else float_tolerance
    return _close(float(one), float(other), allowed)


def _close(wanted: float, got: float, allowed: float) -> bool:
    if not allowed or not math.isfinite(wanted) or not math.isfinite(got):
        return False
    return abs(wanted - got) <= allowed * max(1.0, abs(wanted))


def _equal_values(expected: Any, got: Any, tolerance: float | None, float_tolerance: float) -> bool:
    if isinstance(expected, list):
        return (
            isinstance(got, list | tuple)
            and len(expected) == len(got)
            and all(
                _equal_values(one, other, tolerance, float_tolerance)
                for one, other in zip(expected, got, strict=True)
            )
        )
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and expected.keys() == got.keys()
            and all(_equal_values(expected[key], got[key], tolerance, float_tolerance) for key in expected)
        )
    if isinstance(expected, int | float) and isinstance(got, int | float):
        allowed = (
            tolerance if tolerance is not None else float_tolerance if isinstance(expected, float) else 0.0
        )
        return expected == got or _close_numbers(expected, got, allowed)
    return bool(expected == got)


def _close_numbers(expected: float, got: float, allowed: float) -> bool:
    try:
        return _close(float(expected), float(got), allowed)
    except OverflowError:
        return False


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
