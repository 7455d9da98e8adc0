"""A cursor over tokens, with a bound on nesting."""

from __future__ import annotations

from archer.rewards.math.syntax import ParseError
from archer.rewards.math.tokens import END, Token

MAX_DEPTH = 40
CLOSING = {")": ")", "]": "]", r"\}": "}", r"\rangle": ">", r"\rbrack": "]"}


class Cursor:
    """The position of a parser in its tokens."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def peek(self, ahead: int = 0) -> Token:
        """The token ``ahead`` of the cursor; ``END`` outside the text."""
        at = self._at + ahead
        return self._tokens[at] if 0 <= at < len(self._tokens) else END

    def take(self) -> Token:
        """Consume one token."""
        token = self.peek()
        self._at += 1
        return token

    def back(self) -> None:
        """Undo one ``take``."""
        self._at -= 1

    def replace(self, token: Token) -> None:
        """Put another token in the place of the one at hand."""
        self._tokens[self._at] = token

    def expect(self, text: str) -> None:
        """Consume one token, which must be ``text``."""
        if self.take().text != text:
            raise ParseError("brackets")

    def enter(self) -> None:
        """One level deeper; bounded, so that no input exhausts the stack."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ParseError("too_deep")

    def leave(self) -> None:
        """One level back."""
        self._depth -= 1

    def at_end(self) -> bool:
        """At the end of the answer, or of the innermost brackets."""
        token = self.peek()
        return token is END or token.text == "}" or token.text in CLOSING

    def raw_group(self) -> str:
        """The text of a braced group or of one token, for names."""
        first = self.take()
        if first is END:
            raise ParseError("operand")
        if first.text != "{":
            return first.text
        parts: list[str] = []
        depth = 1
        while depth:
            token = self.take()
            if token is END:
                raise ParseError("brackets")
            depth += (token.text == "{") - (token.text == "}")
            parts.append(token.text)
        return "".join(parts[:-1])
