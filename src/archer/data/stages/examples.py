"""Which tests a statement already shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

# "Input", "Sample Input 1:", "-----Input-----", "**Input:**", "Examples / Input": the label may share the
# line with the value (LeetCode) or stand alone (Codeforces).
_LABEL = re.compile(
    r"^[\s>*#`-]*(?:(?:sample|example)s?\s*)?(input|output)s?(?:\s+\d+)?[\s*`-]*(?::|$)[\s*`]*",
    re.IGNORECASE,
)
_END = re.compile(
    r"^[\s>*#`-]*(?:explanation|example|sample|note|constraint|copy|hint|follow)s?\b", re.IGNORECASE
)
_ARGUMENT_NAME = re.compile(r"(?:^|,)\s*[A-Za-z_]\w*\s*=(?!=)\s*")
_BLANKS = re.compile(r"\s+")


def shown_tests(statement: str, tests: Sequence[Mapping[str, Any]]) -> list[bool]:
    """For each test, whether the statement gives both its input and its output (of an assert: its code)."""
    examples = set(_examples(statement))
    squeezed = _BLANKS.sub("", statement)
    return [_is_shown(test, examples, squeezed) for test in tests]


def _is_shown(test: Mapping[str, Any], examples: set[tuple[str, str]], squeezed: str) -> bool:
    if test["type"] == "assert":
        return _BLANKS.sub("", test["code"]) in squeezed
    if test["type"] == "functional":
        given = ",".join(test["input"].splitlines())
        return (_BLANKS.sub("", given), _BLANKS.sub("", test["output"])) in examples
    return (_words(test["input"]), _words(test["output"])) in examples


def _examples(statement: str) -> Iterator[tuple[str, str]]:
    """Input and output of each example, as words (programs) and as arguments without blanks (functions)."""
    blocks = list(_blocks(statement.splitlines()))
    for (kind, given), (following, wanted) in pairwise(blocks):
        if kind == "input" and following == "output":
            yield _words(given), _words(wanted)
            arguments = _ARGUMENT_NAME.sub(",", given).lstrip(",")
            yield _BLANKS.sub("", arguments), _BLANKS.sub("", wanted)


def _blocks(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    kind = ""
    held: list[str] = []
    for line in lines:
        label = _LABEL.match(line)
        if label or (kind and _END.match(line)):
            if kind:
                yield kind, "\n".join(held)
            kind, held = (label[1].casefold(), [line[label.end() :]]) if label else ("", [])
        elif kind and not line.strip().startswith("```"):
            held.append(line)
    if kind:
        yield kind, "\n".join(held)


def _words(text: str) -> str:
    return " ".join(text.split())
