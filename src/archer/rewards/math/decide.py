"""The decision on one answer by the rules alone, from the two texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from archer.rewards.math.cleaning import clean
from archer.rewards.math.compare import compare
from archer.rewards.math.exact import is_literal
from archer.rewards.math.extract import unbox
from archer.rewards.math.match import Match
from archer.rewards.math.parser import parse
from archer.rewards.math.syntax import Node, ParseError, words

_CHOICE = re.compile(r"^(?:\\text[a-z]*\s*\{)?\s*\(([A-J])\)\s*\}?[\s:.]\s*(\S.*)$", re.DOTALL)
_LETTER = re.compile(r"^(?:\\text[a-z]*\s*\{)?\s*\(?([A-J])[).]?\s*\}?$")
_SIMPLE = words("text brackets list symbol unit")


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold answer, parsed once. Without a ``node``, ``problem`` says why."""

    text: str
    node: Node | None
    problem: str = ""

    @property
    def simple(self) -> bool:
        """True where a prediction that the grammar does not know can only be wrong."""
        return self.node is not None and all(is_literal(n) or n.op in _SIMPLE for n in _leaves(self.node))


@lru_cache(maxsize=8192)
def prepare(gold: str) -> Gold:
    """Parse a gold answer. ``problem`` is ``gold_empty``, ``gold_unparsable`` or, for the grammar, a
    label."""
    text = clean(unbox(gold.strip()))
    if not text:
        return Gold("", None, "gold_empty")
    if not any(char.isalnum() for char in text) and not re.search(r"\\(?:infty|emptyset|varnothing)", text):
        return Gold(text, None, "gold_unparsable")
    try:
        return Gold(text, parse(text))
    except ParseError as error:
        return Gold(text, None, str(error))


def decide(gold: Gold, answer: str) -> Match:
    """Whether ``answer`` is the gold answer; ``equal=None`` where only computer algebra could tell."""
    answer, text = _without_choice(gold, answer)
    if text and _squeezed(text) == _squeezed(gold.text):
        return Match(True, "identical")
    if gold.node is None:
        return Match(None, "grammar")
    try:
        node = parse(answer)
    except ParseError as error:
        bounded = str(error) in ("too_long", "too_deep", "empty")
        return Match(False if bounded or gold.simple else None, f"unparsed: {error}")
    return compare(gold.node, node)


def _without_choice(gold: Gold, answer: str) -> tuple[str, str]:
    """``(C) 42`` is the letter where the gold answer is one, and else the value."""
    answer = unbox(answer.strip())
    if choice := _CHOICE.match(answer):
        answer = choice[1] if _LETTER.match(gold.text) else choice[2]
    elif letter := _LETTER.match(answer):
        answer = letter[1]
    return answer, clean(answer)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _leaves(node: Node) -> list[Node]:
    if is_literal(node) or node.op not in ("brackets", "list", "unit"):
        return [node]
    return [leaf for arg in node.args for leaf in _leaves(arg)]
