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
    r"^[\s>*#`-]*(?:explanation|example|sample|note|constraint|hint|follow|time limit|memory limit)s?\b",
    re.IGNORECASE,
)
_ARGUMENT_NAME = re.compile(r"(?:^|,)\s*[A-Za-z_]\w*\s*=(?!=)\s*")
_BLANKS = re.compile(r"\s+")


def shown_tests(statement: str, tests: Sequence[Mapping[str, Any]]) -> list[bool]:
    """For each test, whether the statement has its input in an example (of an assert: its code).

    The output is not compared: statements round numbers, and show one of several right answers.
    """
    examples = set(_example_inputs(statement))
    squeezed = _BLANKS.sub("", statement)
    return [_is_shown(test, examples, squeezed) for test in tests]


def _is_shown(test: Mapping[str, Any], examples: set[str], squeezed: str) -> bool:
    if test["type"] == "assert":
        _, word, rest = test["code"].partition("assert")
        return bool(word) and _BLANKS.sub("", word + rest) in squeezed
    if test["type"] == "functional":
        return _BLANKS.sub("", ",".join(test["input"].splitlines())) in examples
    return " ".join(test["input"].split()) in examples


def _example_inputs(statement: str) -> Iterator[str]:
    """Input of each example, as words (programs) and as arguments without blanks (functions)."""
    for (kind, given), (following, _) in pairwise(_blocks(statement.splitlines())):
        if kind == "input" and following == "output" and given.strip():
            yield " ".join(given.split())
            yield _BLANKS.sub("", _ARGUMENT_NAME.sub(",", given).lstrip(","))


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
