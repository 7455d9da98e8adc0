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
from archer.rewards.math.parser import MAX_CHARACTERS, parse
from archer.rewards.math.syntax import Node, ParseError, words

_CHOICE = re.compile(r"^(?:\\text[a-z]*\s*\{)?\s*\(([A-J])\)\s*\}?[\s:.]\s*(\S.*)$", re.DOTALL)
_LETTER = re.compile(r"^(?:\\text[a-z]*\s*\{)?\s*\(?([A-J])[).]?\s*\}?$")
_SIMPLE = words("text brackets list symbol unit")


# What Math-Verify is asked about; other text that the grammar does not know is damaged.
_SYMBOLIC = re.compile(
    r"\\(?:i?i?int|oint|sum|prod|lim|max|min|gcd|lcm|det|partial|[bp]?mod|equiv|inf|sup|begin\{cases\})(?![A-Za-z])"
)


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
    try:
        return Gold(text, parse(text))
    except ParseError as error:
        return Gold(text, None, str(error) if _SYMBOLIC.search(text) else "gold_unparsable")


def decide(gold: Gold, answer: str) -> Match:
    """Whether ``answer`` is the gold answer; ``equal=None`` where only computer algebra could tell."""
    if len(answer) > MAX_CHARACTERS:
        return Match(" ".join(answer.split()) == gold.text, "too_long")
    text = _without_choice(gold, answer)
    if text and text.split() == gold.text.split():
        return Match(True, "identical")
    if gold.node is None:
        return Match(None, "grammar")
    try:
        node = parse(text)
    except ParseError as error:
        hopeless = gold.simple or not _SYMBOLIC.search(text)
        return Match(False if hopeless else None, f"unparsed: {error}")
    return compare(gold.node, node)


def _without_choice(gold: Gold, answer: str) -> str:
    """``(C) 42`` is the letter where the gold answer is one, and else the value."""
    text = clean(unbox(answer.strip()))
    if choice := _CHOICE.match(text):
        return choice[1] if _LETTER.match(gold.text) else choice[2]
    letter = _LETTER.match(text)
    return letter[1] if letter else text


def _leaves(node: Node) -> list[Node]:
    if is_literal(node) or node.op not in ("brackets", "list", "unit"):
        return [node]
    return [leaf for arg in node.args for leaf in _leaves(arg)]
