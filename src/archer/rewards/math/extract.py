"""Finding the answer in a response. Reward and evaluation share these functions.

Rules, decided in docs/GRADING.md: the thinking part is cut away; the answer is the last box; boxes joined by
commas or "and" are one list; an unclosed box is no answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_UNBRACED = re.compile(r"[+-]?[0-9A-Za-z][0-9A-Za-z.,/]*")
# What may stand between two boxes that belong to one answer; at least one separator is needed.
_GAP = re.compile(
    r"(?:[\s$&]|\\[,;:!() \\\[\]]|\\q?quad"
    r"|(?P<separator>[,;]|\band\b|\bor\b|\\text\{\s*,?\s*(?:and|or)\s*\}))*"
)
_MAX_GAP = 60
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_HASHES = re.compile(r"####[ \t]*(\S[^\n]*)")
_MARKED = re.compile(r"(?i)\banswer\b[*_\s]*(?:is\b|:|=)[*_:\s]*([^\s*_:][^\n]*)")


@dataclass(frozen=True, slots=True)
class Extraction:
    """The answer found, or why there is none (``no_answer``, ``unclosed_box``, ``unclosed_thinking``)."""

    answer: str | None
    reason: str = ""


def answer_part(text: str) -> str | None:
    """The text after the thinking part; ``None`` where the thinking part never ends.

    Without any tag the whole text counts. Otherwise it is the segment after the first ``</think>``, up to the
    next tag of either kind, as in the released Archer code.
    """
    _, closed, rest = text.partition(CLOSE)
    if not closed:
        return None if OPEN in text else text
    return re.split(f"{OPEN}|{CLOSE}", rest, maxsplit=1)[0]


def well_formed(text: str) -> bool:
    """True for one thinking part at the start, closed once, with something after it."""
    stripped = text.strip()
    return (
        stripped.startswith(OPEN)
        and stripped.count(OPEN) == 1
        and stripped.count(CLOSE) == 1
        and bool(stripped.partition(CLOSE)[2].strip())
    )


def extract(text: str, *, unboxed: bool = False) -> Extraction:
    """The graded answer of a response.

    Args:
        text: the whole response.
        unboxed: where there is no box at all, take ``<answer>…</answer>``, ``#### …`` or ``Answer: …``.
    """
    part = answer_part(text)
    if part is None:
        return Extraction(None, "unclosed_thinking")
    boxes = _boxes(part)
    if not boxes:
        marked = _marked(part) if unboxed else None
        return Extraction(marked, "" if marked else "no_answer")
    contents = _last_run(part, boxes)
    if contents[-1] is None:
        return Extraction(None, "unclosed_box")
    answer = ", ".join(dict.fromkeys(filter(None, contents)))
    return Extraction(answer, "") if answer else Extraction(None, "no_answer")


def final_text(text: str) -> str | None:
    """The answer of a procedural problem: tagged, boxed, marked, or else all that follows the thinking."""
    part = answer_part(text)
    if part is None:
        return None
    if tagged := _TAGGED.findall(part):
        return str(tagged[-1]).strip() or None
    if _BOX.search(part):
        return extract(part).answer
    return _marked(part) or part.strip() or None


def unbox(answer: str) -> str:
    """Peel boxes that are the whole of ``answer``."""
    while True:
        boxes = _boxes(answer)
        if len(boxes) != 1 or boxes[0].content is None:
            return answer
        if answer[: boxes[0].start].strip() or answer[boxes[0].end :].strip():
            return answer
        answer = boxes[0].content


@dataclass(frozen=True, slots=True)
class _Box:
    start: int
    end: int
    content: str | None


def _boxes(text: str) -> list[_Box]:
    """Boxes that do not lie inside another one, left to right. One pass over the braces, so linear."""
    found = list(_BOX.finditer(text))
    if not found:
        return []
    closing = _matching_braces(text, found[0].start())
    boxes: list[_Box] = []
    for match in found:
        start, after = match.span()
        if boxes and start < boxes[-1].end:
            continue
        if text[after : after + 1] == "{":
            end = closing.get(after)
            boxes.append(
                _Box(start, after + 1, None) if end is None else _Box(start, end + 1, text[after + 1 : end])
            )
        elif unbraced := _UNBRACED.match(text, after):
            content = unbraced[0].rstrip(".,")
            boxes.append(_Box(start, after + len(content), content))
    return boxes


def _matching_braces(text: str, start: int) -> dict[int, int]:
    opened: list[int] = []
    closing: dict[int, int] = {}
    for match in _BRACE.finditer(text, start):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            closing[opened.pop()] = match.start()
    return closing


def _last_run(text: str, boxes: list[_Box]) -> list[str | None]:
    """Contents of the last box and of those before it that are joined to it by separators only."""
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        gap = text[box.end : run[0].start]
        match = _GAP.fullmatch(gap) if len(gap) <= _MAX_GAP else None
        if match is None or match["separator"] is None or box.content is None:
            break
        run.insert(0, box)
    return [None if box.content is None else unbox(box.content).strip() for box in run]


def _marked(text: str) -> str | None:
    for pattern in (_TAGGED, _HASHES, _MARKED):
        if found := pattern.findall(text):
            sentence = re.split(r"\.\s", found[-1].strip(), maxsplit=1)[0]
            return sentence.strip().strip("*_ ").rstrip(".").strip("*_$ ") or None
    return None
