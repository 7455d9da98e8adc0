"""The grammar of answers: lists, relations, sets and units, around expressions.

A hand-written descent over tokens. It never evaluates anything, its depth is bounded, and its time is linear
in the number of tokens.
"""

from __future__ import annotations

import re

from archer.rewards.math.cleaning import clean
from archer.rewards.math.expressions import Expressions
from archer.rewards.math.syntax import Node, ParseError, words
from archer.rewards.math.tokens import END, FUNCTIONS, tokenize
from archer.rewards.math.units import is_description, is_unit_word

MAX_CHARACTERS = 20000
_PLAIN_WORDS = re.compile(r"[A-Za-z][A-Za-z'\-]*(?: [A-Za-z'\-]+){0,7}")
_LEAD_IN = re.compile(
    r"(?:so |thus |hence |therefore |and )?(?:the |my |our )?(?:final |correct )?answer(?: is)?[ :=]*"
)
_RELATIONS = {
    "=": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", "==": "=", r"\le": "<=", r"\leq": "<=",
    r"\leqslant": "<=", r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", r"\lt": "<", r"\gt": ">",
    r"\ne": "!=", r"\neq": "!=", r"\approx": "~", r"\simeq": "~", r"\sim": "~", r"\doteq": "~", r"\in": "in",
    r"\coloneqq": "=",
}  # fmt: skip
_ARITHMETIC = words(
    "add neg mul inv div pow root factorial abs floor ceil binomial function percent degrees plusminus"
)
_STRUCTURES = words("list relation ratio union minus_set matrix dots text unit reals")
_SET_OPERATIONS = {r"\cup": "union", r"\setminus": "minus_set", r"\backslash": "minus_set"}


def parse(answer: str) -> Node:
    """The tree of one answer (the text inside a box, or a gold answer).

    Raises:
        ParseError: no answer that the grammar knows; the label says why.
    """
    if len(answer) > MAX_CHARACTERS:
        raise ParseError("too_long")
    text = clean(answer)
    if not text:
        raise ParseError("empty")
    node = _as_words(text) or _Answers(tokenize(text)).answer()
    _check_structure(node)
    return node


def _check_structure(node: Node) -> None:
    """Refuse arithmetic on lists, intervals, relations or words: such text is damaged."""
    for part in node.walk():
        if part.op in _ARITHMETIC and any(
            arg.op in _STRUCTURES or (arg.op == "brackets" and (len(arg.args) != 1 or arg.text == "{}"))
            for arg in part.args
        ):
            raise ParseError("structure")


def _as_words(text: str) -> Node | None:
    """A node for an answer in plain words. One short word may also be a product of letters."""
    words = text.split()
    if not _PLAIN_WORDS.fullmatch(text) or is_unit_word(text) or {"or", "and", *FUNCTIONS} & set(words):
        return None
    if not any(len(word) >= 3 for word in words):
        return None
    if len(words) == 1 and len(text) <= 4 and text.isalpha():
        return Node("text", (Node("mul", tuple(Node("symbol", text=letter) for letter in text)),), text)
    return Node("text", text=text)


class _Answers(Expressions):
    def answer(self) -> Node:
        self._skip_lead_in()
        node = self.items()
        if self.peek() is not END:
            raise ParseError("rest")
        return node

    def items(self) -> Node:
        """One item, or a ``list`` of several. Separators may repeat (``, and``) and may end the list."""
        items = [self._item()]
        word = ""
        while self._at_separator():
            while self._at_separator():
                joiner = self.take()
                word = "or" if joiner.text == "or" else word
            if self.at_end():
                break
            items.append(self._item())
        return items[0] if len(items) == 1 else Node("list", tuple(items), word)

    def _item(self) -> Node:
        """A chain of relations, or one value."""
        self.enter()
        if self.peek().text == r"\approx":
            self.take()
        values = [self._value()]
        operators: list[str] = []
        while operator := _RELATIONS.get(self.peek().text):
            self.take()
            operators.append(operator)
            values.append(self._value())
        self.leave()
        return Node("relation", tuple(values), " ".join(operators)) if operators else values[0]

    def _value(self) -> Node:
        node = self._ratio()
        while op := _SET_OPERATIONS.get(self.peek().text):
            self.take()
            right = self._ratio()
            node = Node(op, (*node.args, right) if node.op == op == "union" else (node, right))
        return self._with_unit(node)

    def _ratio(self) -> Node:
        parts = [self.expression()]
        while self.peek().text in (":", r"\colon"):
            self.take()
            parts.append(self.expression())
        return parts[0] if len(parts) == 1 else Node("ratio", tuple(parts))

    def _with_unit(self, node: Node) -> Node:
        words: list[str] = []
        while self.peek().kind == "word" or (words and self.peek().text in ("^", "/")):
            words.append(self.take().text)
            if words[-1] == "^":
                words.append(self._unit_power())
        if not words:
            return node
        if not is_description(" ".join(word for word in words if word not in ("2", "3"))):
            raise ParseError("words")
        return Node("unit", (node,), " ".join(words))

    def _unit_power(self) -> str:
        braced = self.peek().text == "{"
        if braced:
            self.take()
        power = self.take().text
        if braced:
            self.expect("}")
        if power not in ("2", "3"):
            raise ParseError("unit")
        return power

    def _at_separator(self) -> bool:
        return self.peek().kind == "joiner" or self.peek().text in (",", ";")

    def _skip_lead_in(self) -> None:
        first = self.peek()
        if first.kind == "word" and _LEAD_IN.fullmatch(first.text.lower().strip()):
            self.take()
            if self.peek().text in (":", "="):
                self.take()
