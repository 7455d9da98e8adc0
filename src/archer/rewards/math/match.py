"""Results of comparisons, and how they combine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from archer.rewards.math.exact import rational
from archer.rewards.math.syntax import Node

_MAX_SEARCH = 150


@dataclass(frozen=True, slots=True)
class Match:
    """``equal`` is ``None`` where the rules can't decide; ``reason`` is a short label."""

    equal: bool | None
    reason: str

    def or_else(self, other: Callable[[], Match]) -> Match:
        """This, unless it is undecided or unequal and ``other`` finds equality."""
        if self.equal:
            return self
        second = other()
        return second if second.equal or self.equal is not None else self


Compare = Callable[[Node, Node], Match]


def all_of(matches: Iterable[Match], reason: str) -> Match:
    """Equal if all are; unequal as soon as one is."""
    undecided: Match | None = None
    for match in matches:
        if match.equal is False:
            return match
        if match.equal is None:
            undecided = undecided or match
    return undecided or Match(True, reason)


def in_order(golds: Sequence[Node], preds: Sequence[Node], compare: Compare, reason: str) -> Match:
    """Pairwise equality."""
    if len(golds) != len(preds):
        return Match(False, "count")
    return all_of((compare(gold, pred) for gold, pred in zip(golds, preds, strict=True)), reason)


def in_any_order(golds: Sequence[Node], preds: Sequence[Node], compare: Compare, reason: str) -> Match:
    """Equality as multisets: a repeated element counts as often as it stands there."""
    if len(golds) != len(preds):
        return Match(False, "count")
    golds, preds = _without_common(golds, preds)
    if len(golds) > _MAX_SEARCH:
        return Match(None, "too_many")
    left = list(preds)
    undecided = False
    for gold in golds:
        matches = [compare(gold, pred) for pred in left]
        found = next((i for i, match in enumerate(matches) if match.equal), None)
        if found is not None:
            del left[found]
        elif any(match.equal is None for match in matches):
            undecided = True
        else:
            return Match(False, "element")
    return Match(None if undecided else True, reason)


def _without_common(golds: Sequence[Node], preds: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Both without the plainly equal elements, so that long lists of numbers need no search."""
    waiting: dict[object, list[Node]] = {}
    for pred in preds:
        waiting.setdefault(_key(pred), []).append(pred)
    rest = []
    for gold in golds:
        same = waiting.get(_key(gold))
        if same:
            same.pop()
        else:
            rest.append(gold)
    return rest, [pred for group in waiting.values() for pred in group]


def _key(node: Node) -> object:
    plain = node.op == "number" or (node.op == "neg" and node.args[0].op == "number")
    return rational(node) if plain else node
