"""From cleaned text to tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass

from archer.rewards.math.syntax import ParseError, words
from archer.rewards.math.units import is_unit_word, unit_of

FUNCTIONS = words("sin cos tan cot sec csc arcsin arccos arctan asin acos atan sinh cosh tanh ln log lg exp")
_NAMED = FUNCTIONS | {"sqrt", "pi", "infty", "infinity"}
_TEXT = words("text mbox hbox textbf textit textrm textnormal texttt textsf emph")
_FONTS = words("mathrm mathbf mathit mathsf mathtt mathcal mathbb mathfrak boldsymbol bm operatorname")
_SWITCHES = words("rm bf it sf tt")
_SETS = {"R": "reals"}
_JOINING = {"and", "or", "&"}

_PIECE = re.compile(
    r"(?P<blank>\s+)"
    r"|(?P<based>(?:\d+[A-F]|[A-F]+\d)[0-9A-F]*(?=_\{?1[1-6]\b))"
    r"|(?P<number>\d+(?:\.(?!\.)\d*)?|\.\d+)"
    r"|(?P<command>\\(?:[A-Za-z]+|.))"
    r"|(?P<letters>[A-Za-z]+)"
    r"|(?P<other>[<>!=]=|.)",
    re.DOTALL,
)
# Two letters in one text after a value, as in \\text{m/s}.
_LETTERS = re.compile(r"[A-Za-z][^A-Za-z\\]*[A-Za-z]")
# A bare word after a value has at least so many letters; shorter ones are products of symbols.
_WORD_LETTERS = 4
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
# A whole run of digits and commas: 54,108 inside 27,54,108 is two elements of a list.
_THOUSANDS = re.compile(r"(?<!,)\d{1,3}(?:,\d{3})+(?!,?\d)(?:\.\d+)?")
_SCIENTIFIC = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))[eE]([+-]?\d{1,6})")
_INLINE = re.compile(r"[\d\s.,:;()\[\]{}+\-*/=%^]*(?:[A-Za-z](?![A-Za-z])[\d\s.,:;()\[\]{}+\-*/=%^]*)*")


@dataclass(frozen=True, slots=True)
class Token:
    """``kind`` is ``number``, ``letter``, ``command`` (``text`` with its backslash), ``word``, ``joiner``
    (and, or), ``other`` or ``end``."""

    kind: str
    text: str
    spaced: bool = False


END = Token("end", "")


def tokenize(text: str) -> list[Token]:
    """Tokens of a cleaned answer.

    Raises:
        ParseError: unbalanced braces after a text or font command.
    """
    if scientific := _SCIENTIFIC.fullmatch(text):
        text = rf"{scientific[1]} \times 10^{{{scientific[2]}}}"
    return _Tokenizer(text).run()


class _Tokenizer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._spaced = False
        self._tokens: list[Token] = []

    def run(self) -> list[Token]:
        while self._at < len(self._text):
            match = _PIECE.match(self._text, self._at)
            assert match is not None, "every character is a piece"
            kind, piece = str(match.lastgroup), match[0]
            if kind == "blank":
                self._at, self._spaced = match.end(), True
                continue
            if kind == "number" and self._depth == 0 and (grouped := _THOUSANDS.match(self._text, self._at)):
                piece = grouped[0]
            self._at += len(piece)
            self._add(kind, piece)
            self._spaced = False
        return self._tokens

    def _add(self, kind: str, piece: str) -> None:
        match kind:
            case "number":
                self._push("number", piece.replace(",", ""))
            case "based":
                self._push("word", piece)
            case "letters":
                self._letters(piece)
            case "command":
                self._command(piece)
            case _:
                self._depth += (piece in "([") - (piece in ")]")
                self._push("other", piece)

    def _push(self, kind: str, text: str) -> None:
        self._tokens.append(Token(kind, text, self._spaced))

    def _letters(self, run: str) -> None:
        if run in _JOINING:
            self._push("joiner", run)
        elif run in _NAMED:
            self._push("command", "\\" + run)
        elif self._follows_value() and self._is_word(run):
            self._push("word", run)
        else:
            for letter in run:
                self._push("letter", letter)
                self._spaced = False

    def _follows_value(self) -> bool:
        return bool(self._tokens) and (
            self._tokens[-1].kind in ("number", "word") or self._tokens[-1].text in (")", "}", "%")
        )

    def _is_word(self, run: str) -> bool:
        if self._spaced and len(run) >= _WORD_LETTERS:
            return True
        return len(run) >= 2 and is_unit_word(run)

    def _command(self, command: str) -> None:
        name = command[1:]
        if name in _TEXT or name in _FONTS:
            self._styled(self._group(), is_text=name in _TEXT)
        elif name not in _SWITCHES:
            self._depth += (name == "{") - (name == "}")
            self._push("command", command)

    def _group(self) -> str:
        """The braced group or single character that follows, consumed."""
        text = self._text
        while self._at < len(text) and text[self._at].isspace():
            self._at += 1
        if self._at >= len(text):
            raise ParseError("braces")
        if text[self._at] != "{":
            self._at += 1
            return text[self._at - 1]
        depth, start = 0, self._at + 1
        for brace in _BRACE.finditer(text, self._at):
            depth += (brace[0] == "{") - (brace[0] == "}")
            if depth == 0:
                end = brace.start()
                self._at = end + 1
                return text[start:end]
        raise ParseError("braces")

    def _styled(self, content: str, is_text: bool) -> None:
        stripped = content.strip()
        joiner = stripped.strip(" ,")
        if joiner in _JOINING:
            self._push("joiner", joiner)
        elif stripped in _NAMED:
            self._push("command", "\\" + stripped)
        elif self._follows_value() and (unit_of(stripped) is not None or _LETTERS.search(stripped)):
            self._push("word", stripped)
        elif not is_text and stripped in _SETS:
            self._push("command", "\\" + _SETS[stripped])
        elif stripped.isalnum() and self._text.startswith("_", self._at):
            self._push("word", stripped)
        elif _INLINE.fullmatch(stripped) or (not is_text and "\\" in stripped):
            self._inline(stripped)
        else:
            self._push("word", stripped)

    def _inline(self, content: str) -> None:
        inner = _Tokenizer(content)
        inner._depth = self._depth
        self._tokens.extend(inner.run())
