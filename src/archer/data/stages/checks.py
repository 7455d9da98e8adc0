"""Checks that need one problem only."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from archer.configs.data_recipe import ChecksStage
from archer.data.fields import prompt_text
from archer.data.outcomes import Outcome, StageContext, StageResult
from archer.data.records import ProblemFile
from archer.data.stages.examples import shown_tests
from archer.rewards.math import check_gold
from archer.types import Problem

_KEPT_CONTROLS = "\t\n\r"
_IMAGE = re.compile(
    r"!\[[^\]]*\]\(|<image>|<img\b|\\includegraphics|\[image\]"
    r"|\b(?:figure|diagram|picture|image|graph|drawing)\s+(?:shown\s+)?(?:below|above|at\s+(?:the\s+)?right)"
    r"|\b(?:in|see|from)\s+the\s+(?:figure|diagram|picture|image)\b"
    r"|\bas\s+shown\s+(?:below|above|in\s+the\s+\w+)",
    re.IGNORECASE,
)
_DRAWN = re.compile(r"\[asy\]|\\begin\{(?:tikzpicture|asy|array|tabular)\}")
_NO_ANSWER = re.compile(
    r"(?:the\s+)?proof\.?|see\s+(?:the\s+)?(?:proof|solution|above|below)\.?|null|n/a|not\s+(?:found|provided)\.?",
    re.IGNORECASE,
)
_INTERACTIVE = re.compile(r"\binteractive\s+(?:problem|task)\b|\bflush\b|\binteractor\b", re.IGNORECASE)
_MANY_ANSWERS = re.compile(
    r"\b(?:if|when)\s+there\s+(?:are|is|exist)\s+(?:multiple|several|many|more\s+than\s+one)\b"
    r"|\b(?:print|output|return)\s+any\b|\b(?:any\s+of\s+them|any\s+valid|any\s+one\s+of)\b"
    r"|\b(?:print|output|return)\b[^.]*\bin\s+any\s+order\b"
    r"|\b(?:multiple|several)\s+(?:possible\s+)?(?:answers|solutions|outputs)\b",
    re.IGNORECASE,
)


def checks(problems: ProblemFile, stage: ChecksStage, context: StageContext) -> StageResult:
    """Drop or flag problems that can't be trained on as they are."""
    finders = (
        ("control character", stage.control_characters, _control_character),
        ("unusable gold answer", stage.gold, _bad_gold),
        ("missing image", stage.missing_images, _missing_image),
        ("interactive", stage.interactive, _interactive),
        ("many answers", stage.many_answers, _many_answers),
    )
    active = [(name, action, find) for name, action, find in finders if action != "off"]
    for problem in problems:
        yield _checked(problem, stage, active)


def _checked(
    problem: Problem, stage: ChecksStage, finders: Sequence[tuple[str, str, Callable[[Problem], str | None]]]
) -> Outcome:
    flags: list[dict[str, Any]] = []
    for name, action, find in finders:
        detail = find(problem)
        if detail is not None and action == "drop":
            return Outcome(problem, name, detail)
        if detail is not None:
            flags.append({"kind": f"flagged: {name}", "flag": name, "detail": detail})
    if stage.shown_tests == "remove":
        shown = shown_tests(prompt_text(problem.prompt), problem.tests)
        unseen = [test for test, hit in zip(problem.tests, shown, strict=True) if not hit]
        problem = _with_tests(problem, unseen, "shown tests removed", flags)
    if stage.max_tests is not None:
        problem = _with_tests(problem, problem.tests[: stage.max_tests], "tests cut", flags)
    if problem.domain == "code" and len(problem.tests) < stage.min_tests:
        return Outcome(problem, f"under {stage.min_tests} tests", f"{len(problem.tests)} left")
    found = [str(flag["flag"]) for flag in flags if "flag" in flag]
    if found:
        problem = replace(problem, meta={**problem.meta, "flags": found})
    return Outcome(problem, notes=flags)


def _with_tests(
    problem: Problem, tests: Sequence[Mapping[str, Any]], kind: str, notes: list[dict[str, Any]]
) -> Problem:
    removed = len(problem.tests) - len(tests)
    if not removed:
        return problem
    notes.append({"kind": kind, "removed": removed, "left": len(tests)})
    return replace(problem, tests=tuple(tests))


def _bad_gold(problem: Problem) -> str | None:
    if problem.domain != "math":
        return None
    if problem.answer is None or _NO_ANSWER.fullmatch(problem.answer.strip()):
        return f"no answer: {problem.answer}"
    return check_gold(problem.answer)


def _control_character(problem: Problem) -> str | None:
    for char in _characters(problem):
        if char == "\ufffd" or (unicodedata.category(char) in ("Cc", "Cs") and char not in _KEPT_CONTROLS):
            return f"U+{ord(char):04X}"
    return None


def _characters(problem: Problem) -> Iterator[str]:
    yield from prompt_text(problem.prompt)
    yield from problem.answer or ""


def _missing_image(problem: Problem) -> str | None:
    text = prompt_text(problem.prompt)
    if problem.meta.get("picture_num") not in (None, 0, "0"):
        return f"{problem.meta['picture_num']} pictures"
    found = _IMAGE.search(text)
    return found[0] if found and not _DRAWN.search(text) else None


def _interactive(problem: Problem) -> str | None:
    if problem.domain != "code":
        return None
    if problem.meta.get("interactive"):
        return "says its source"
    found = _INTERACTIVE.search(prompt_text(problem.prompt))
    return found[0] if found else None


def _many_answers(problem: Problem) -> str | None:
    if problem.domain != "code":
        return None
    if problem.meta.get("many_answers") or problem.meta.get("maybe_many_answers"):
        return "says its source"
    found = _MANY_ANSWERS.search(prompt_text(problem.prompt))
    return found[0] if found else None
