"""Procedural problems, scored by the rule of the generator that made them, in worker processes.

A problem names its rule in ``meta``: ``{"scorer": "exact"}`` compares with ``answer``;
``{"task": name, "settings": ..., "entry": ...}`` asks the scorer of that reasoning-gym task.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from archer.rewards.boundary import encode
from archer.rewards.math.extract import final_text
from archer.types import Problem, Verdict

# Scorers of these reasoning-gym tasks run eval() on the answer, or sympy's parse_expr, which does the same.
EVALUATING_TASKS = frozenset(
    {
        "binary_matrix",
        "countdown",
        "intermediate_integration",
        "n_queens",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
        "spiral_matrix",
        "string_insertion",
    }
)
_MAX_EVALUATED = 2000
_MAX_EXPONENT = 64
_INTEGER = re.compile(r"[+-]?\d+")
_LITERAL = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Load, ast.UnaryOp, ast.USub, ast.UAdd
)  # fmt: skip
_ARITHMETIC = (
    ast.Expression, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow,
    ast.USub, ast.UAdd,
)  # fmt: skip
_FUNCTIONS = {"sin", "cos", "tan", "exp", "log", "ln", "sqrt", "asin", "acos", "atan", "sinh", "cosh", "tanh"}


def make_handler() -> Callable[[tuple[Problem, str]], Any]:
    """Handler of one worker."""
    tasks: dict[str, Any] = {}

    def handle(request: tuple[Problem, str]) -> Any:
        problem, text = request
        answer = final_text(text)
        if answer is None:
            return encode(Verdict("incorrect", 0.0, reason="no_answer"))
        if problem.meta.get("scorer") == "exact":
            right = exact_match(problem.answer or "", answer)
            return encode(Verdict("correct" if right else "incorrect", float(right), answer, "exact"))
        return _generator_score(problem, answer, tasks)

    return handle


def exact_match(gold: str, answer: str) -> bool:
    """Equal up to surrounding and repeated blanks; whole numbers up to leading zeros and a plus sign."""
    gold, answer = " ".join(gold.split()), " ".join(answer.split())
    if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(answer):
        return _canonical(gold) == _canonical(answer)
    return gold == answer


def _canonical(integer: str) -> str:
    digits = integer.lstrip("+-").lstrip("0") or "0"
    return f"-{digits}" if integer.startswith("-") and digits != "0" else digits


def _generator_score(problem: Problem, answer: str, tasks: dict[str, Any]) -> Any:
    name, settings = problem.meta.get("task"), problem.meta.get("settings", {})
    if not isinstance(name, str):
        raise ValueError(
            f"expected meta with scorer: exact or a reasoning-gym task, found keys {sorted(problem.meta)}"
        )
    if name in EVALUATING_TASKS and not is_plain_expression(answer):
        return encode(Verdict("incorrect", 0.0, answer, "refused: the answer is no plain expression"))
    key = json.dumps([name, settings], sort_keys=True, default=str)
    if key not in tasks:
        tasks[key] = _make_task(name, settings)
    score = tasks[key].score_answer(answer=answer, entry=dict(problem.meta["entry"]))
    return encode(Verdict("correct" if score >= 1 else "incorrect", float(score), answer, name))


def _make_task(name: str, settings: Mapping[str, Any]) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, **{**settings, "seed": 0, "size": 1})


def is_plain_expression(text: str) -> bool:
    """True where evaluating the text could only make literals or do bounded arithmetic.

    Refused: attributes, indices, calls of anything but elementary functions, text inside arithmetic (a
    function would evaluate it again) and towers of powers. Text that Python can't parse passes only if it has
    no brackets at all, so no rewriting of it could make a call.
    """
    if len(text) > _MAX_EVALUATED:
        return False
    try:
        tree = ast.parse(text.strip().replace("^", "**"), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return re.fullmatch(r"[\w\s,.+*/=-]*", text) is not None
    nodes = list(ast.walk(tree))
    return all(isinstance(node, _LITERAL) for node in nodes) or all(_is_arithmetic(node) for node in nodes)


def _is_arithmetic(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return name in _FUNCTIONS
        case ast.BinOp(op=ast.Pow(), right=power):
            return all(_is_small(part) for part in ast.walk(power))
        case ast.Constant(value=value):
            return isinstance(value, (int, float))
    return isinstance(node, _ARITHMETIC)


def _is_small(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) and abs(node.value) <= _MAX_EXPONENT
    return not isinstance(node, ast.Pow)
