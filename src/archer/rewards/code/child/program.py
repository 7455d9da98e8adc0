"""Runs source text and says what became of it."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

_LONGEST_DETAIL = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a program ended early.

    Attributes:
        stage: ``"compile"``, ``"run"``, or ``"result"`` where what it returned can't be compared.
        error: name of the exception's type.
        detail: its text, cut.
    """

    stage: str
    error: str
    detail: str

    def to_json(self) -> list[str]:
        """As a message."""
        return list(astuple(self))


def describe(stage: str, error: BaseException) -> Failure:
    """The failure that an exception means; holds no reference to it, so its frames can go."""
    try:
        # A program's own exception may do anything when it is asked for its text.
        detail = str(error)[:_LONGEST_DETAIL]
    except BaseException:  # noqa: BLE001
        detail = ""
    name = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
    return Failure(stage, str(name), detail)


def run_code(source: str, namespace: dict[str, Any]) -> tuple[Failure | None, int]:
    """Execute ``source`` in ``namespace``: the failure if there was one, and the exit code."""
    try:
        code = compile(source, "solution.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        # All of them are the parser's word on the text: NUL bytes, lone surrogates, too deep, too long.
        return Failure("compile", type(error).__name__, str(error)[:_LONGEST_DETAIL]), 1
    try:
        exec(code, namespace)
    except SystemExit as stop:
        return None, _exit_code(stop.code)
    except BaseException as error:  # noqa: BLE001  whatever a program raises is a result
        return describe("run", error), 1
    return None, 0


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1
