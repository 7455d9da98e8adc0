"""The form in which answers are compared: a small tree, free of any computer algebra system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


class ParseError(Exception):
    """The text is no answer that the grammar knows. Carries a short label such as ``"brackets"``."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    ``op`` is one of: ``number`` (``text`` the decimal literal), ``repeating`` (``text`` "0.1|6" for
    0.1666...), ``based`` (``text`` "1011|2"), ``mixed`` (whole, fraction), ``symbol``, ``constant`` (``pi``,
    ``e``, ``i``, ``infinity``), ``add``, ``neg``, ``mul``, ``inv`` (a divisor inside a product), ``div``,
    ``pow``, ``root`` (radicand, degree), ``factorial``, ``abs``, ``floor``, ``ceil``, ``binomial``,
    ``function`` (``text`` its name), ``call`` (an unknown function), ``percent``, ``degrees``, ``plusminus``
    (``text`` ``+-`` or ``-+``), ``unit`` (``text`` the words), ``ratio``, ``brackets`` (``text`` the pair),
    ``list`` (``text`` ``or`` where a word joined it), ``union``, ``minus_set``, ``reals``, ``matrix``
    (``text`` "rows|columns"), ``relation`` (``text`` the operators, blank-separated), ``text``, ``dots``.
    """

    op: str
    args: tuple[Node, ...] = ()
    text: str = ""

    def walk(self) -> Iterator[Node]:
        """This node and all below it. Without recursion, so any depth is safe."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.args)

    def has(self, *ops: str) -> bool:
        """True if any node has one of these ops."""
        return any(node.op in ops for node in self.walk())

    def symbols(self) -> set[str]:
        """Names of the free symbols."""
        return {node.text for node in self.walk() if node.op == "symbol"}


def number(text: str) -> Node:
    """A literal."""
    return Node("number", text=text)


TWO = number("2")
TEN = number("10")
HUNDRED = number("100")
INFINITY = Node("constant", text="infinity")
MINUS_INFINITY = Node("neg", (INFINITY,))


def brackets(pair: str, *items: Node) -> Node:
    """A bracketed tuple, interval or set; ``pair`` is the two brackets, ``"{}"`` for a set."""
    return Node("brackets", items, pair)


def words(text: str) -> frozenset[str]:
    """The blank-separated words of ``text``."""
    return frozenset(text.split())
