"""The scorer of code problems: from a response to a verdict, several at a time."""

from __future__ import annotations

import ast
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from archer.configs.code import CodeConfig
from archer.rewards.code.extract import extract_program
from archer.rewards.code.runner import CodeResult, CodeRunner
from archer.types import Problem, Verdict


class CodeScorer:
    """Scores responses to problems with tests. A context manager; ``submit`` may be called from any thread.

    Raises:
        IsolationError, RewardError: as ``CodeRunner``.
    """

    def __init__(self, config: CodeConfig) -> None:
        self._config = config
        self.runner = CodeRunner(config)
        self._threads = ThreadPoolExecutor(self.runner.workers, thread_name_prefix="code-scorer")

    def submit(self, problem: Problem, text: str) -> Future[Verdict]:
        """A future of the verdict on one response.

        Its exception is ``RewardError`` where a canary has failed: then no verdict can be trusted.
        """
        return self._threads.submit(self._score, problem, text)

    def close(self) -> None:
        """Drop what has not begun, wait for the rest, end all sandboxes."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self.runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _score(self, problem: Problem, text: str) -> Verdict:
        started = time.monotonic()
        program = extract_program(text)
        if not problem.tests:
            return Verdict("unscorable", None, program, "no_tests: the problem has none")
        if program is None:
            return Verdict("incorrect", 0.0, None, "no_code", time.monotonic() - started)
        result = self.runner.run(
            program, problem.tests, setup=_helpers(problem), tolerance=problem.meta.get("tolerance")
        )
        return _verdict(result, self._config, program, time.monotonic() - started)


def build_code_scorer(config: CodeConfig) -> CodeScorer:
    """A scorer of code problems.

    Raises:
        IsolationError: the isolation asked for isn't there.
        ConfigError: a package of ``config.packages`` isn't installed.
        RewardError: the sandbox starts, but gets a program with a known result wrong.
    """
    return CodeScorer(config)


def _verdict(result: CodeResult, config: CodeConfig, program: str, seconds: float) -> Verdict:
    if not result.scorable:
        return Verdict("unscorable", None, program, f"harness_error: {result.tests[-1].detail}", seconds)
    failure = result.first_failure
    if failure is None:
        return Verdict("correct", 1.0, program, f"passed: {result.total} tests", seconds)
    number, first = failure
    score = result.fraction if config.reward == "fraction" else 0.0
    reason = f"{first.label}: test {number + 1} of {result.total}: {first.detail}"
    return Verdict("incorrect", score, program, reason, seconds)


def _helpers(problem: Problem) -> str:
    """Setup code from a prompt that is the beginning of a program, as in HumanEval.

    What the prompt defines in full beside the function asked for is what the tests then use, whatever the
    response makes of the same name.
    """
    name = problem.meta.get("entry_point")
    if (
        not isinstance(problem.prompt, str)
        or not isinstance(name, str)
        or f"def {name}(" not in problem.prompt
    ):
        return ""
    try:
        tree = ast.parse(problem.prompt)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    tree.body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == name)]
    defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body)
    return ast.unparse(tree) if defines else ""
