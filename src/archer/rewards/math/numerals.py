"""Numbers as answers write them: decimals, mixed and repeating numbers, numbers in a base."""

from __future__ import annotations

from abc import ABC, abstractmethod

from archer.rewards.math.cursor import Cursor
from archer.rewards.math.syntax import Node, ParseError, number

_BASES = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
    "ten": "10", "eleven": "11", "twelve": "12", "sixteen": "16",
}  # fmt: skip


class Numerals(Cursor, ABC):
    """The grammar of one number."""

    @abstractmethod
    def group(self, digits: bool = False) -> Node:
        """What a TeX command takes."""

    def number_from(self, text: str) -> Node:
        """The number that begins with the literal ``text``: plain, in a base, repeating or mixed."""
        following = self.peek()
        if following.text == "_":
            self.take()
            return Node("based", text=f"{text}|{self.base()}")
        if following.text in (r"\overline", r"\bar", r"\dot") and "." in text:
            self.take()
            digits = self.group()
            if digits.op != "number" or not digits.text.isdigit():
                raise ParseError("number")
            return Node("repeating", text=f"{text}|{digits.text}")
        if following.text == r"\frac" and text.isdigit():
            return self._mixed(text)
        if following.kind == "number" and following.spaced and self.peek(1).text == "/":
            whole, over = self.take().text, self.peek(1).text
            if self.peek(1).kind == "number" and self.peek(2).text != "!":
                self.take()
                self.take()
                return Node("mixed", (number(text), Node("div", (number(whole), number(over)))))
            raise ParseError("number")
        return number(text)

    def _mixed(self, whole: str) -> Node:
        """``2\\frac{1}{3}`` is a mixed number where the fraction is proper and of plain numbers."""
        self.take()
        fraction = Node("div", (self.group(digits=True), self.group(digits=True)))
        plain = all(part.op == "number" and part.text.isdigit() for part in fraction.args)
        if plain and _size(fraction.args[0].text) < _size(fraction.args[1].text):
            return Node("mixed", (number(whole), fraction))
        return Node("mul", (number(whole), fraction))

    def base(self) -> str:
        """A number base from 2 to 36, in digits or in words."""
        base = self.raw_group().strip("()").lower()
        base = _BASES.get(base, base)
        if not base.isdigit() or len(base) > 2 or not 2 <= int(base) <= 36:
            raise ParseError("base")
        return base


def _size(digits: str) -> tuple[int, str]:
    """A key that orders whole numbers, whatever their length."""
    digits = digits.lstrip("0")
    return len(digits), digits
