"""Sets of real numbers: intervals, unions, inequalities in one variable, all but a few points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from archer.rewards.math.match import Compare, Match, all_of
from archer.rewards.math.names import is_name
from archer.rewards.math.syntax import INFINITY, MINUS_INFINITY, Node

_MAX_PIECES = 60


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval, or a point where both ends are the same node."""

    low: Node
    high: Node
    low_closed: bool
    high_closed: bool


_LINE = Piece(MINUS_INFINITY, INFINITY, False, False)


def is_region(node: Node) -> bool:
    """True where ``node`` can only be a set of reals, not a point or a list of values."""
    match node.op:
        case "union" | "minus_set" | "reals":
            return True
        case "brackets":
            return node.text in ("(]", "[)") or (len(node.args) == 2 and any(map(_infinite, node.args)))
        case "relation":
            return _inequality(node) is not None
        case "list":
            return all(is_region(item) for item in node.args) and any(i.op == "relation" for i in node.args)
    return False


def region(node: Node) -> list[Piece] | None:
    """The pieces of a set, or ``None`` where ``node`` is no set."""
    match node.op:
        case "reals":
            return [_LINE]
        case "brackets" if node.text == "{}":
            return [Piece(item, item, True, True) for item in node.args]
        case "brackets" if len(node.args) == 2 and node.text != "<>":
            low, high = node.args
            return [
                Piece(
                    low,
                    high,
                    node.text[0] == "[" and not _infinite(low),
                    node.text[1] == "]" and not _infinite(high),
                )
            ]
        case "union" | "list":
            parts = [region(item) for item in node.args]
            return (
                [piece for part in parts if part for piece in part]
                if all(p is not None for p in parts)
                else None
            )
        case "minus_set":
            return _without(node.args[0], node.args[1])
        case "relation":
            return _inequality(node)
    return None


def same_region(gold: Sequence[Piece], pred: Sequence[Piece], compare: Compare) -> Match:
    """Equality of sets given as pieces, in any order."""
    if len(gold) != len(pred) or len(gold) > _MAX_PIECES:
        return Match(False, "pieces")
    left = list(pred)
    undecided = False
    for piece in gold:
        matches = [_same_piece(piece, other, compare) for other in left]
        found = next((i for i, match in enumerate(matches) if match.equal), None)
        if found is not None:
            del left[found]
        elif any(match.equal is None for match in matches):
            undecided = True
        else:
            return Match(False, "pieces")
    return Match(None if undecided else True, "set")


def _same_piece(gold: Piece, pred: Piece, compare: Compare) -> Match:
    if (gold.low_closed, gold.high_closed) != (pred.low_closed, pred.high_closed):
        return Match(False, "ends")
    return all_of((compare(gold.low, pred.low), compare(gold.high, pred.high)), "interval")


def _infinite(node: Node) -> bool:
    return node in (INFINITY, MINUS_INFINITY)


def _inequality(node: Node) -> list[Piece] | None:
    """The pieces of ``a < x``, ``a < x <= b`` or ``x != a``, for a single name ``x``."""
    operators = node.text.split()
    sides = list(node.args)
    if operators == ["!="] and is_name(sides[0]):
        return _cut(sides[1])
    if operators and all(op in (">", ">=") for op in operators):
        operators = [op.replace(">", "<") for op in reversed(operators)]
        sides.reverse()
    if not operators or any(op not in ("<", "<=") for op in operators):
        return None
    closed = [op == "<=" for op in operators]
    if len(sides) == 3 and is_name(sides[1]) and not _free(sides[1], sides[0], sides[2]):
        return [Piece(sides[0], sides[2], closed[0], closed[1])]
    if len(sides) == 2 and is_name(sides[0]) and not _free(sides[0], sides[1]):
        return [Piece(MINUS_INFINITY, sides[1], False, closed[0])]
    if len(sides) == 2 and is_name(sides[1]) and not _free(sides[1], sides[0]):
        return [Piece(sides[0], INFINITY, closed[0], False)]
    return None


def _free(name: Node, *others: Node) -> bool:
    """True if a bound depends on the variable itself."""
    return any(name.symbols() & other.symbols() for other in others)


def _cut(point: Node) -> list[Piece]:
    return [Piece(MINUS_INFINITY, point, False, False), Piece(point, INFINITY, False, False)]


def _without(whole: Node, points: Node) -> list[Piece] | None:
    """The line without finitely many points, which must be written in rising order."""
    if region(whole) != [_LINE] or points.op != "brackets" or points.text != "{}" or not points.args:
        return None
    ends = [MINUS_INFINITY, *points.args, INFINITY]
    return [Piece(low, high, False, False) for low, high in pairwise(ends)]
