"""Numeric values at high precision, and the test whether two expressions are the same function.

Two expressions are equal if they agree wherever both have a real value: at sample points of both signs and of
several sizes, at two precisions. A difference that is real keeps its size when the precision grows; one that
is rounding shrinks with it. That needs no absolute tolerance, so numbers of any size are told apart.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import mpmath  # type: ignore[import-untyped]

from archer.rewards.math.exact import rational
from archer.rewards.math.syntax import Node

_CONSTANT_DIGITS = (60, 300)
_FUNCTION_DIGITS = (40, 90)
_MAX_NODES = 3000
_MAX_MAGNITUDE = 2_000_000
_MAX_ANGLE_BITS = 4000
_MAX_GAMMA = 20_000
_ENOUGH_POINTS = 5
# Numerators over 64. Odd, so that no point is a special value; sizes and signs vary from row to row.
_POINTS = (
    (27, 45, 19, 37, 11, 53),
    (183, 107, 241, 75, 311, 149),
    (-27, -45, -19, -37, -11, -53),
    (459, 1483, 769, 2211, 1019, 305),
    (-183, 107, -241, 75, -311, 149),
    (119, -213, 51, -403, 87, -59),
    (6411, 9763, 12345, 8191, 7177, 10007),
    (-6411, -9763, -12345, -8191, -7177, -10007),
    (33, 1027, 61, 2053, 17, 4099),
    (1501, 29, 2999, 57, 4507, 13),
)


class Undefined(Exception):
    """No value here: a pole, a root or logarithm outside its domain, or a size beyond all use."""


_local = threading.local()


def _context(digits: int) -> Any:
    """A working context of its own for each thread and precision, because contexts hold mutable state."""
    contexts: dict[int, Any] = _local.__dict__.setdefault("contexts", {})
    if digits not in contexts:
        contexts[digits] = mpmath.mp.clone()
        contexts[digits].dps = digits
    return contexts[digits]


def same_function(first: Node, second: Node) -> bool | None:
    """Whether two expressions are equal; ``None`` where too few points could be tried."""
    symbols = sorted(first.symbols() | second.symbols())
    if sum(1 for tree in (first, second) for _ in tree.walk()) > _MAX_NODES or len(symbols) > len(_POINTS[0]):
        return None
    if not symbols:
        return _same_at(first, second, {}, _CONSTANT_DIGITS)
    agreed = 0
    for row in _POINTS:
        point = {name: (row[i], 64) for i, name in enumerate(symbols)}
        same = _same_at(first, second, point, _FUNCTION_DIGITS)
        if same is False:
            return False
        agreed += same is True
        if agreed == _ENOUGH_POINTS:
            return True
    return None if agreed < 2 else True


def proportional(first: Node, second: Node, *, positive: bool) -> bool | None:
    """Whether ``first`` is a constant multiple of ``second``, by a positive constant if ``positive``.

    Decides equations and inequalities in the form ``expression ? 0``.
    """
    symbols = sorted(first.symbols() | second.symbols())
    context = _context(_FUNCTION_DIGITS[1])
    ratios: list[Any] = []
    for row in _POINTS:
        point = {name: (row[i % len(row)], 64) for i, name in enumerate(symbols)}
        try:
            a, b = (_Evaluator(_FUNCTION_DIGITS[1], point, real=True).value(side) for side in (first, second))
        except Undefined:
            continue
        if a == 0 or b == 0:
            continue
        ratios.append(a / b)
        if abs(ratios[-1] - ratios[0]) > abs(ratios[0]) * context.mpf(10) ** -_FUNCTION_DIGITS[0]:
            return False
        if positive and ratios[-1] < 0:
            return False
    return None if len(ratios) < 2 else True


def approximate(node: Node) -> Any | None:
    """The real value of a constant expression to many digits, or ``None``."""
    try:
        return _Evaluator(_CONSTANT_DIGITS[0], {}, real=True).value(node)
    except Undefined:
        return None


def _same_at(
    first: Node, second: Node, point: Mapping[str, tuple[int, int]], digits: tuple[int, int]
) -> bool | None:
    for real in (True, False):
        try:
            gaps = []
            for precision in digits:
                evaluator = _Evaluator(precision, point, real)
                a, b = evaluator.value(first), evaluator.value(second)
                gaps.append((abs(a - b), max(abs(a), abs(b))))
        except Undefined:
            # A point outside the real domain counts only for expressions that are complex everywhere.
            if point and not _is_complex(first) and not _is_complex(second):
                return None
            continue
        return _vanishes(gaps, digits)
    return None


def _is_complex(node: Node) -> bool:
    return any(part.op == "constant" and part.text == "i" for part in node.walk())


def _vanishes(gaps: list[tuple[Any, Any]], digits: tuple[int, int]) -> bool:
    (coarse, _), (fine, size) = gaps
    if fine == 0:
        return True
    context = _context(digits[1])
    slack = context.mpf(10) ** -(digits[1] - 10)
    shrunk = context.mpf(10) ** -((digits[1] - digits[0]) // 2)
    return bool(fine <= size * slack or (coarse != 0 and fine <= coarse * shrunk))


class _Evaluator:
    """Values at one point and precision. ``real`` refuses everything outside the real numbers."""

    def __init__(self, digits: int, point: Mapping[str, tuple[int, int]], real: bool) -> None:
        self._context = _context(digits)
        self._point = point
        self._real = real

    def value(self, node: Node) -> Any:
        """The value of ``node``.

        Raises:
            Undefined: there is none.
        """
        try:
            return self._checked(self._compute(node))
        except (ArithmeticError, ValueError, TypeError, mpmath.libmp.ComplexResult) as error:
            raise Undefined(str(error)) from None

    def _checked(self, value: Any) -> Any:
        context = self._context
        if self._real and isinstance(value, context.mpc):
            raise Undefined("complex")
        if not context.isfinite(value):
            raise Undefined("infinite")
        if value != 0 and abs(context.mag(value)) > _MAX_MAGNITUDE:
            raise Undefined("too large")
        return value

    def _compute(self, node: Node) -> Any:
        context = self._context
        match node.op:
            case "number" | "repeating" | "based":
                exact = rational(node)
                if exact is None:
                    raise Undefined("digits")
                return context.mpf(exact.numerator) / exact.denominator
            case "symbol":
                top, bottom = self._point[node.text]
                return context.mpf(top) / bottom
            case "constant":
                return self._constant(node.text)
            case "add":
                return context.fsum(self.value(arg) for arg in node.args)
            case "mul":
                return self._product(node)
            case "call":
                return self._unknown(node)
            case "function":
                return _function(context, node.text, [self.value(arg) for arg in node.args])
        rule = _RULES.get(node.op)
        if rule is None:
            raise Undefined(node.op)
        return rule(self._context, *[self.value(arg) for arg in node.args])

    def _constant(self, name: str) -> Any:
        context = self._context
        match name:
            case "pi":
                return +context.pi
            case "e":
                return +context.e
            case "i" if not self._real:
                return context.mpc(0, 1)
        raise Undefined(name)

    def _product(self, node: Node) -> Any:
        result = self._context.mpf(1)
        for arg in node.args:
            result = self._checked(result * self.value(arg))
        return result

    def _unknown(self, node: Node) -> Any:
        """An unknown function: a smooth one drawn from its name, so that only identities that hold for every
        function hold for it."""
        seed = hashlib.sha256(node.text.encode()).digest()
        phase = self._context.mpf(seed[0] + 1) / 64
        for weight, arg in zip(seed[1:], node.args, strict=False):
            phase += (weight + 1) * self.value(arg) / 97
        return self._context.cos(phase)


def _power(context: Any, base: Any, exponent: Any) -> Any:
    moderate = base == 0 or exponent == 0 or context.mag(exponent) <= 64
    if not moderate or (base != 0 and abs(context.mag(base) * exponent) > _MAX_MAGNITUDE):
        raise Undefined("too large")
    return context.power(base, exponent)


def _root(context: Any, radicand: Any, degree: Any) -> Any:
    if context.isint(degree) and degree % 2 and not isinstance(radicand, context.mpc) and radicand < 0:
        return -context.power(-radicand, 1 / degree)
    return context.sqrt(radicand) if degree == 2 else context.power(radicand, 1 / degree)


def _gamma(context: Any, *arguments: Any) -> None:
    if any(abs(argument) > _MAX_GAMMA for argument in arguments):
        raise Undefined("too large")


def _factorial(context: Any, value: Any) -> Any:
    _gamma(context, value)
    return context.factorial(value)


def _binomial(context: Any, top: Any, bottom: Any) -> Any:
    _gamma(context, top, bottom)
    return context.binomial(top, bottom)


def _function(context: Any, name: str, arguments: list[Any]) -> Any:
    argument = arguments[0]
    if argument != 0 and context.mag(argument) > _MAX_ANGLE_BITS:
        raise Undefined("too large")
    if name == "log":
        return context.log(argument) / context.log(arguments[1])
    return _FUNCTIONS[name](context, argument)


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "ln": lambda context, x: context.log(x),
    "sin": lambda context, x: context.sin(x),
    "cos": lambda context, x: context.cos(x),
    "tan": lambda context, x: context.tan(x),
    "cot": lambda context, x: context.cot(x),
    "sec": lambda context, x: context.sec(x),
    "csc": lambda context, x: context.csc(x),
    "asin": lambda context, x: context.asin(x),
    "acos": lambda context, x: context.acos(x),
    "atan": lambda context, x: context.atan(x),
    "sinh": lambda context, x: context.sinh(x),
    "cosh": lambda context, x: context.cosh(x),
    "tanh": lambda context, x: context.tanh(x),
}
_RULES: dict[str, Callable[..., Any]] = {
    "neg": lambda context, value: -value,
    "inv": lambda context, value: 1 / value,
    "div": lambda context, top, bottom: top / bottom,
    "mixed": lambda context, whole, part: whole + part,
    "percent": lambda context, value: value / 100,
    "degrees": lambda context, value: value * context.pi / 180,
    "abs": lambda context, value: abs(value),
    "floor": lambda context, value: context.floor(value),
    "ceil": lambda context, value: context.ceil(value),
    # A bracketed single value, and a short word read as a product.
    "brackets": lambda context, value: value,
    "text": lambda context, value: value,
    "pow": _power,
    "root": _root,
    "factorial": _factorial,
    "binomial": _binomial,
}
