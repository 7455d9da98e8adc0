"""The program in a response."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Possessive where two parts could share a long run of blanks: the time must grow with the length only.
_FENCE = re.compile(r"^[ \t]*+(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^`\n]*+)$")
_PYTHON = re.compile(r"\{?\.?(?:python|py|pypy|cpython)(?:\d[\d.]*)?\b", re.IGNORECASE)
_CODE_LINE = re.compile(
    r"^[ \t]*+(?:@\w+|(?:async[ ]+def|def|class)[ ]+\w[^\n]*:|import[ ]+\w[\w., ]*+|from[ ]+[\w.]+[ ]+import\b[^\n]*"
    r"|(?:for|while|if|with|try)\b[^\n]*:|print[ ]*\([^\n]*|[A-Za-z_][\w.,\[\] ]*[-+*/%|&]?=[^=\n][^\n]*)[ \t]*$",
    re.MULTILINE,
)
_END_OF_THINKING = "</think>"


@dataclass(slots=True)
class _Block:
    language: str
    fence: str
    indent: int
    lines: list[str]
    complete: bool = False

    @property
    def text(self) -> str:
        lines = [line[self.indent :] if not line[: self.indent].strip() else line for line in self.lines]
        return "\n".join(lines).strip("\n")

    @property
    def is_python(self) -> bool:
        return bool(_PYTHON.match(self.language))


def extract_program(text: str) -> str | None:
    """The program of a response, ``None`` where there is none.

    Only what follows the last ``</think>`` counts. Of that, the first of these that is there and not empty:

    1. the last complete block that is marked as Python;
    2. the last complete block that is not marked;
    3. the last block that is marked as Python and never closed;
    4. of the two sides of a single unmarked fence, the one with more lines that look like code;
    5. without any fence, the whole, if a line of it looks like code.

    Text between two blocks is never part of a program, and blocks of other languages are none.
    """
    text = text.replace("\r\n", "\n").rpartition(_END_OF_THINKING)[2]
    outside, blocks = _split(text)
    filled = [block for block in blocks if block.text.strip()]
    closed = [block for block in filled if block.complete]
    for found in (
        [block for block in closed if block.is_python],
        [block for block in closed if not block.language],
        [block for block in filled if not block.complete and block.is_python],
    ):
        if found:
            return found[-1].text
    rest = "\n".join(outside).strip("\n")
    if blocks and not blocks[-1].complete and not blocks[-1].language:
        rest = max(rest, blocks[-1].text, key=_lines_of_code)
    elif blocks:
        return None
    return rest if _lines_of_code(rest) else None


def _lines_of_code(text: str) -> int:
    return sum(1 for _ in _CODE_LINE.finditer(text))


def _split(text: str) -> tuple[list[str], list[_Block]]:
    """The lines outside of fenced blocks, and the blocks; one that is never closed is not complete."""
    outside: list[str] = []
    blocks: list[_Block] = []
    current: _Block | None = None
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        info = fence["info"].strip() if fence else ""
        if fence is None:
            (current.lines if current else outside).append(line)
        elif current and not info and fence["fence"].startswith(current.fence):
            current.complete = True
            current = None
        elif current and not (fence["fence"][0] == current.fence[0] and _PYTHON.match(info)):
            current.lines.append(line)
        else:
            # Inside a block, an opening of another means that the closing fence was forgotten.
            indent = len(line) - len(line.lstrip(" \t"))
            current = _Block(info, fence["fence"], indent, [])
            blocks.append(current)
    return outside, blocks
