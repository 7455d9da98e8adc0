"""Exact rational values, of any size that can be handled in bounded time."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from archer.rewards.math.syntax import Node

# Results above this size are left to the numeric comparison.
MAX_BITS = 20_000
_MAX_FACTORIAL = 2000
_MAX_ROOT = 64
_MAX_ROOT_BITS = 5000
_CHUNK = 4000

Value = Fraction | None


def rational(node: Node) -> Value:
    """The exact value of an expression, or ``None`` where it is not rational or not known to be."""
    match node.op:
        case "number":
            return literal(node.text)
        case "repeating":
            return _repeating(node.text)
        case "based":
            return _based(node.text)
    rule = _RULES.get(node.op)
    if rule is None:
        return None
    values = [rational(arg) for arg in node.args]
    exact = [value for value in values if value is not None]
    if len(exact) != len(values):
        return None
    # A sign can't make a number larger, so literals of any size keep theirs.
    return -exact[0] if node.op == "neg" else _bounded(rule(*exact))


def literal(text: str) -> Fraction:
    """The value of a decimal literal such as ``"3."``, ``".5"`` or one with a million digits."""
    whole, _, decimals = text.partition(".")
    return Fraction(integer(whole + decimals), 10 ** len(decimals))


def integer(digits: str) -> int:
    """``int(digits)`` without the interpreter's limit on the number of digits."""
    if len(digits) <= _CHUNK:
        return int(digits or "0")
    half = len(digits) // 2
    shift: int = 10 ** (len(digits) - half)
    return integer(digits[:half]) * shift + integer(digits[half:])


def _repeating(text: str) -> Fraction:
    start, _, period = text.partition("|")
    decimals = len(start.partition(".")[2])
    return literal(start) + Fraction(integer(period), (10 ** len(period) - 1) * 10**decimals)


def _based(text: str) -> Value:
    digits, _, base = text.partition("|")
    try:
        return Fraction(int(digits, int(base)))
    except ValueError:
        return None


def _bounded(value: Value) -> Value:
    if value is None or value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        return None
    return value


def _total(*terms: Fraction) -> Fraction:
    return sum(terms, Fraction(0))


def _product(*factors: Fraction) -> Value:
    result = Fraction(1)
    for factor in factors:
        result *= factor
        if _bounded(result) is None:
            return None
    return result


def _power(base: Fraction, exponent: Fraction) -> Value:
    if exponent.denominator != 1:
        root = _root(base, Fraction(exponent.denominator))
        return None if root is None or base < 0 else _power(root, Fraction(exponent.numerator))
    power = exponent.numerator
    if base == 0 and power <= 0:
        return None
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) != 1 and base != 0 and (bits - 1) * abs(power) > MAX_BITS:
        return None
    if abs(base) == 1:
        return base if power % 2 else Fraction(1)
    return Fraction(base**power)


def _root(radicand: Fraction, degree: Fraction) -> Value:
    """The real root, where it is rational."""
    if degree.denominator != 1 or not 2 <= degree <= _MAX_ROOT:
        return None
    n = int(degree)
    if radicand < 0:
        positive = _root(-radicand, degree) if n % 2 else None
        return None if positive is None else -positive
    if max(radicand.numerator.bit_length(), radicand.denominator.bit_length()) > _MAX_ROOT_BITS:
        return None
    top, bottom = _whole_root(radicand.numerator, n), _whole_root(radicand.denominator, n)
    return None if top is None or bottom is None else Fraction(top, bottom)


def _whole_root(value: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(value)
    else:
        low, high = 0, 1 << (value.bit_length() // degree + 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
        root = low
    return root if root**degree == value else None


def _divide(top: Fraction, bottom: Fraction) -> Value:
    return top / bottom if bottom else None


def _factorial(value: Fraction) -> Value:
    if value.denominator != 1 or not 0 <= value <= _MAX_FACTORIAL:
        return None
    return Fraction(math.factorial(int(value)))


def _binomial(top: Fraction, bottom: Fraction) -> Value:
    if top.denominator != 1 or bottom.denominator != 1 or not 0 <= bottom <= top <= _MAX_FACTORIAL:
        return None
    return Fraction(math.comb(int(top), int(bottom)))


_RULES: dict[str, Callable[..., Value]] = {
    "add": _total,
    "neg": lambda value: -value,
    "mul": _product,
    "inv": lambda value: _divide(Fraction(1), value),
    "div": _divide,
    "mixed": lambda whole, part: whole + part,
    "pow": _power,
    "root": _root,
    "factorial": _factorial,
    "binomial": _binomial,
    "abs": abs,
    "floor": lambda value: Fraction(math.floor(value)),
    "ceil": lambda value: Fraction(math.ceil(value)),
    "percent": lambda value: value / 100,
}


def is_literal(node: Node) -> bool:
    """True for a number as an answer is written: evaluated, whatever its notation.

    Whole, decimal, repeating, mixed and negative numbers, numbers in a base, fractions of these, percent,
    scientific notation and powers of ten. ``38-1``, ``2^{10}`` and ``\\sqrt{25}`` are not literals.
    """
    match node.op:
        case "number" | "repeating" | "based" | "mixed":
            return True
        case "neg" | "percent" | "degrees":
            return node.args[0].op != "neg" and is_literal(node.args[0])
        case "div":
            return all(_is_signed_number(arg) for arg in node.args)
        case "mul":
            return len(node.args) == 2 and _is_signed_number(node.args[0]) and _is_power_of_ten(node.args[1])
    return _is_power_of_ten(node)


def _is_signed_number(node: Node) -> bool:
    return (node.args[0] if node.op == "neg" else node).op == "number"


def _is_power_of_ten(node: Node) -> bool:
    return node.op == "pow" and node.args[0] == Node("number", text="10") and _is_signed_number(node.args[1])


def decimal_of(node: Node) -> tuple[int, int] | None:
    """Significant digits and decimal places of a plain decimal literal such as ``-0.0425`` (3 and 4)."""
    if node.op == "neg":
        node = node.args[0]
    if node.op != "number" or "." not in node.text:
        return None
    whole, _, decimals = node.text.partition(".")
    return len((whole + decimals).lstrip("0")), len(decimals)


def terminates(value: Fraction) -> bool:
    """True where the value has a finite decimal expansion."""
    rest = value.denominator
    if rest.bit_length() > MAX_BITS:
        return False
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1
