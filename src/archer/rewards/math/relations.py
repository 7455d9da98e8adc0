"""Equations: labels before a value, chains of equal values, approximations, and whole equations."""

from __future__ import annotations

from dataclasses import dataclass

from archer.rewards.math.exact import is_literal, rational
from archer.rewards.math.leaf import is_rounding, same_value
from archer.rewards.math.match import Match, all_of
from archer.rewards.math.names import is_name
from archer.rewards.math.numeric import proportional, same_function
from archer.rewards.math.syntax import Node

# What may be attached to both sides of an approximation.
_MARKS = ("unit", "percent", "degrees")


@dataclass(frozen=True, slots=True)
class Labelled:
    """An answer taken apart: ``name = value``; without a name the value is the node itself.

    ``relation``: it is an equation or inequality that gives no value.
    """

    name: Node | None
    value: Node
    relation: bool = False


def labelled(node: Node) -> Labelled | Match:
    """The name and value of an answer, or a ``Match`` that says why a chain of values contradicts itself."""
    if node.op != "relation":
        return Labelled(None, node)
    if set(node.text.split()) != {"="}:
        return Labelled(None, node, relation=True)
    first, *rest = node.args
    if is_name(rest[-1]) and not is_name(first):
        first, *rest = reversed(node.args)
    name, values = (first, rest) if is_name(first) else (None, list(node.args))
    if name is not None and name.op == "symbol" and any(name.symbols() & value.symbols() for value in values):
        return Labelled(None, node, relation=True)
    if name is None and any(value.symbols() for value in values):
        return Labelled(None, node, relation=True)
    last = values[-1]
    if not all(value == last or same_function(value, last) for value in values[:-1]):
        return Match(False, "contradiction")
    literals = [value for value in values if is_literal(value)]
    return Labelled(name, literals[-1] if literals else last)


def approximation(pred: Node, gold: Node) -> Node | Match | None:
    """For ``exact \\approx decimal``: what to grade; ``None`` where ``pred`` approximates nothing.

    The exact side counts, and the decimal must be a rounding of it. A gold answer that is itself a decimal
    may match the decimal side.
    """
    operators = pred.text.split() if pred.op == "relation" else []
    if "~" not in operators or set(operators) - {"~", "="}:
        return None
    split = operators.index("~")
    exact = pred.args[0] if split == 0 else Node("relation", pred.args[: split + 1], " ".join(["="] * split))
    value = labelled(exact)
    if isinstance(value, Match):
        return value
    for rounded in pred.args[split + 1 :]:
        if not _is_rounding(rounded, value.value):
            # "x \\approx 3.14": the name is no value that could be rounded.
            if value.name is None and is_name(value.value):
                return rounded
            return Match(False, "not_rounded")
        if rational(rounded) == rational(gold) is not None and "." in gold.text:
            return rounded
    return exact


def _is_rounding(rounded: Node, value: Node) -> bool:
    decimal, value = (node.args[0] if node.op in _MARKS else node for node in (rounded, value))
    exact = rational(decimal)
    digits = (decimal.args[0] if decimal.op == "neg" else decimal).text
    return exact is not None and is_rounding(exact, len(digits.partition(".")[2]), value, rational(value))


def same_equation(gold: Node, pred: Node) -> Match:
    """Equivalence of whole relations: the same up to a factor, which is positive for inequalities."""
    gold_operators, pred_operators = gold.text.split(), pred.text.split()
    if gold.symbols() != pred.symbols():
        return Match(False, "symbols")
    if len(gold_operators) != len(pred_operators) or {"in", "~"} & {*gold_operators, *pred_operators}:
        return Match(False, "relation")
    links = zip(_links(gold, gold_operators), _links(pred, pred_operators), strict=True)
    return all_of((_same_link(*link) for link in links), "equation")


def _links(node: Node, operators: list[str]) -> list[tuple[str, Node, Node]]:
    """Each link as ``left = right``, ``left != right``, ``left < right`` or ``left <= right``."""
    found = []
    for left, operator, right in zip(node.args, operators, node.args[1:], strict=False):
        flipped = operator in (">", ">=")
        found.append((operator.replace(">", "<"), *((right, left) if flipped else (left, right))))
    return found


def _same_link(gold: tuple[str, Node, Node], pred: tuple[str, Node, Node]) -> Match:
    if gold[0] != pred[0]:
        return Match(False, "relation")
    sides = [same_value(gold[1], pred[1]), same_value(gold[2], pred[2])]
    if all(side.equal for side in sides):
        return Match(True, "equation")
    differences = [Node("add", (left, Node("neg", (right,)))) for _, left, right in (gold, pred)]
    same = proportional(*differences, positive=gold[0] in ("<", "<="))
    # A factor that is no constant may still be harmless, as between y=1/x and xy=1.
    if same is False and any(_divides_by_symbol(difference) for difference in differences):
        same = None
    return Match(same, "equation")


def _divides_by_symbol(node: Node) -> bool:
    return any(part.op in ("div", "inv") and part.args[-1].symbols() for part in node.walk())
