"""Equality of two single values: exact first, then numeric."""

from __future__ import annotations

from fractions import Fraction

from archer.rewards.math.exact import decimal_of, is_literal, rational, terminates
from archer.rewards.math.match import Match
from archer.rewards.math.numeric import approximate, same_function
from archer.rewards.math.syntax import Node

# A decimal may stand for a value that no decimal can give exactly if it shows at least this many digits.
MIN_DIGITS = 6


def same_value(gold: Node, pred: Node) -> Match:
    """Whether the predicted value is the gold value, in a form that counts as an answer.

    Where the gold value is written as a plain number, the prediction must be one too: ``38-1`` restates the
    task and is not the answer 37.
    """
    if gold == pred:
        return Match(True, "identical")
    if any(part.text == "infinity" for side in (gold, pred) for part in side.walk()):
        return Match(False, "infinity")
    if is_literal(gold) and not _evaluated(gold, pred):
        return Match(False, "unevaluated")
    exact_gold, exact_pred = rational(gold), rational(pred)
    if exact_gold is not None and exact_pred is not None:
        if exact_gold == exact_pred:
            return Match(True, "exact")
        return _rounded(gold, exact_gold, pred, exact_pred)
    if exact_gold is not None or exact_pred is not None:
        close = _rounded(gold, exact_gold, pred, exact_pred)
        if close.equal:
            return close
    return Match(same_function(gold, pred), "numeric")


def _evaluated(gold: Node, pred: Node) -> bool:
    if not is_literal(pred):
        return False
    whole = rational(gold)
    divided = (pred.args[0] if pred.op == "neg" else pred).op == "div"
    return not (divided and whole is not None and whole.denominator == 1)


def _rounded(gold: Node, exact_gold: Fraction | None, pred: Node, exact_pred: Fraction | None) -> Match:
    """Whether one side is a long enough decimal of the other, which has no finite decimal."""
    for decimal, exact_decimal, other, exact_other in (
        (pred, exact_pred, gold, exact_gold),
        (gold, exact_gold, pred, exact_pred),
    ):
        digits = decimal_of(decimal)
        if digits is None or exact_decimal is None or digits[0] < MIN_DIGITS or decimal_of(other) is not None:
            continue
        if within_last_digit(exact_decimal, digits[1], other, exact_other):
            return Match(True, "rounded")
    return Match(False, "different")


def within_last_digit(decimal: Fraction, places: int, other: Node, exact: Fraction | None) -> bool:
    """Whether ``decimal``, written with so many places, is ``other`` rounded or cut off."""
    unit = Fraction(1, 10**places)
    if exact is not None:
        return not terminates(exact) and abs(decimal - exact) < unit
    value = approximate(other)
    if value is None:
        return False
    context = value.context
    gap = abs(context.mpf(decimal.numerator) / decimal.denominator - value)
    return bool(gap < context.mpf(1) / 10**places)
