"""Equality of two single values: exact first, then numeric."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

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
    exact_gold, exact_pred = rational(gold), rational(pred)
    if is_literal(gold) and not _evaluated(gold, pred):
        if exact_pred is None and _rounded(gold, exact_gold, pred, None).equal:
            return Match(True, "rounded")
        return Match(False, "unevaluated")
    if is_literal(gold) and exact_pred is None:
        return Match(False, "undefined")
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
        endless = exact_other is None or not terminates(exact_other)
        if endless and is_rounding(exact_decimal, digits[1], other, exact_other):
            return Match(True, "rounded")
    return Match(False, "different")


def is_rounding(decimal: Fraction, places: int, other: Node, exact: Fraction | None) -> bool:
    """Whether ``decimal``, with so many places, is ``other`` (``exact`` if rational) rounded or cut off."""
    value: Any = approximate(other) if exact is None else exact
    if value is None:
        return False
    if exact is None:
        decimal = value.context.mpf(decimal.numerator) / decimal.denominator
    gap = (abs(value) - abs(decimal)) * 10**places
    # Half a unit either way, or cut off towards zero.
    return decimal * value >= 0 and bool(2 * gap >= -1 and gap < 1)
