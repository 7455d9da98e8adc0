"""The comparison that the paper evaluates maths with (2507.15778, section 5.1): DeepScaleR's grader OR
Math-Verify.

DeepScaleR's grader is itself an OR of two comparisons on normalised text: equal strings in the style of the
MATH data set, and element-wise equality under sympy. It is kept for comparison with published numbers;
``math`` is the grader to train with. Two points differ from the released code on purpose:

- its final call of Math-Verify's ``verify`` lacks a ``return``, so it never counts there; here it does, as
the
  paper says;
- its sympy step evaluates the answer's text as Python; here Math-Verify's LaTeX parser reads it.

Runs in worker processes only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from archer.rewards.boundary import encode
from archer.rewards.child import CpuTimeExceeded
from archer.rewards.math.extract import CLOSE, extract
from archer.rewards.math.symbolic import parsed
from archer.types import Problem, Verdict

_UNITS = (
    "degree|cm|centimeter|meter|mile|second|minute|hour|day|week|month|year|foot|feet|inch|yard|point|unit"
    "|square|cubic|dollar|cent"
)
_UNIT_WORD = re.compile(rf"\b(?:{_UNITS})(?:es|s)?\b(?:\^\d+)?")
_MILLIONS = {"million": "*10^6", "billion": "*10^9", "trillion": "*10^12"}
_MAX_LETTERS = 2


def make_handler() -> Callable[[tuple[Problem, str]], Any]:
    """Handler of one worker; a request is a problem and a whole response."""

    def verdict(problem: Problem, text: str) -> Verdict:
        gold = problem.answer or ""
        if not any(char.isalnum() for char in gold):
            return Verdict("unscorable", None, reason="gold_unparsable" if gold.strip() else "gold_empty")
        # Without a closing tag the whole response counts, as in the released code.
        answer = extract(text if CLOSE in text else text.replace("<think>", "")).answer
        if answer is None:
            return Verdict("incorrect", 0.0, reason="no_answer")
        try:
            rule = paper_rule(gold, answer)
        except CpuTimeExceeded:
            return Verdict("incorrect", 0.0, answer, "cpu_time")
        return Verdict("correct" if rule else "incorrect", float(bool(rule)), answer, rule or "different")

    return lambda request: encode(verdict(*request))


def paper_rule(gold: str, answer: str) -> str | None:
    """The first of the three comparisons that accepts the answer (``strings``, ``sympy``,
    ``math_verify``)."""
    if math_string(gold) == math_string(answer):
        return "strings"
    if _same_under_sympy(gold, answer):
        return "sympy"
    from math_verify import verify

    gold_values, values = parsed(rf"\boxed{{{gold}}}"), parsed(rf"\boxed{{{answer}}}")
    return (
        "math_verify"
        if gold_values and values and verify(gold_values, values, timeout_seconds=None)
        else None
    )


# ---------------------------------------------------------------------- strings


def math_string(text: str) -> str:
    """The normal form of the MATH data set: one spelling of fractions, roots and decimals, no units or
    blanks."""
    text = re.sub(r"\\text\s*\{(.+?)\}$", _drop_unit, text.strip(), count=1)
    for old, new in (
        ("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"), ("\\left", ""),
        ("\\right", ""), ("^{\\circ}", ""), ("^\\circ", ""), ("\\$", ""), ("\\%", ""), ("%", ""),
        (" .", " 0."), ("{.", "{0."),
    ):  # fmt: skip
        text = text.replace(old, new)
    text = "0" + text if text.startswith(".") else text
    name, equals, value = text.partition("=")
    if equals and "=" not in value and len(name.strip()) <= 2:
        text = value
    text = re.sub(r"\\sqrt\s*([^{\s\[])", r"\\sqrt{\1}", text).replace(" ", "")
    text = re.sub(r"\\frac([^{])(?:([^{])|(?=\{))", _brace_fraction, text)
    if text == "0.5":
        return r"\frac{1}{2}"
    return re.sub(r"^(-?\d+)/(-?\d+)$", r"\\frac{\1}{\2}", text)


def _drop_unit(match: re.Match[str]) -> str:
    """A text at the end is a unit, unless it is the whole answer."""
    return match[1] if match.start() == 0 else ""


def _brace_fraction(match: re.Match[str]) -> str:
    return rf"\frac{{{match[1]}}}" + (f"{{{match[2]}}}" if match[2] else "")


# ---------------------------------------------------------------------- sympy


def _same_under_sympy(gold: str, answer: str) -> bool:
    gold, answer = _sympy_string(gold), _sympy_string(answer)
    if gold == answer:
        return True
    golds, answers = _elements(gold), _elements(answer)
    if not answer or len(golds) != len(answers):
        return False
    if len(golds) > 1 and (gold[0], gold[-1]) != (answer[0], answer[-1]):
        return False
    return all(_same_element(g, a) for g, a in zip(golds, answers, strict=True))


def _sympy_string(text: str) -> str:
    if whole := re.fullmatch(r"\\text\{(.+)\}", text.strip()):
        text = whole[1]
    for old, new in (("\\%", "%"), ("\\$", "$"), ("$", ""), ("%", ""), (" or ", " , "), (" and ", " , ")):
        text = text.replace(old, new)
    for word, factor in _MILLIONS.items():
        text = text.replace(word, factor)
    text = _UNIT_WORD.sub("", text)
    text = re.sub(r"\^\s*\\circ|\^\{\\circ\}", "", text).strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = re.sub(r",\\!\s*", "", text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text) if not text.startswith(("(", "[")) else text
    if re.fullmatch(r"-?\d+\.0+", text):
        text = text.partition(".")[0]
    return re.sub(r"\s+", " ", text.replace("\\left", "").replace("\\right", "")).strip().lower()


def _elements(text: str) -> list[str]:
    """The elements of a bracketed tuple, or of a list; one element if neither."""
    if len(text) > 2 and text[0] in "([" and text[-1] in ")]" and not set(text[1:-1]) & set("()[]"):
        text = text[1:-1]
    elif text[:1] in "([":
        return [text]
    return [part.strip() for part in text.split(",")]


def _same_element(gold: str, answer: str) -> bool:
    if gold == answer:
        return True
    fraction = re.compile(r"-?\d+/0*[1-9]\d*|-?\\frac\{\d+\}\{\d+\}")
    # An unreduced fraction is no answer, and an integer must be given as one.
    if fraction.fullmatch(gold) and fraction.fullmatch(answer):
        return False
    if _is_integer(gold) != _is_integer(answer) or _is_integer(gold):
        return _is_integer(gold) and _is_integer(answer) and float(gold) == float(answer)
    if len(set(re.findall(r"[a-z]", re.sub(r"\\[a-z]+", "", answer)))) > _MAX_LETTERS:
        return False
    return _difference_is_zero(gold, answer)


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"-?\d{1,300}", text) is not None


def _difference_is_zero(gold: str, answer: str) -> bool:
    import sympy

    gold_values, values = parsed(gold), parsed(answer)
    if not gold_values or not values:
        return False
    try:
        return bool(sympy.simplify(gold_values[0] - values[0]) == 0)
    except (TypeError, ValueError, AttributeError, ArithmeticError, NotImplementedError, RecursionError):
        return False
