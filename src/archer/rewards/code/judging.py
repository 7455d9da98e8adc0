"""One test, run once in a bay: its processes, and the label that they earn."""

from __future__ import annotations

import json
import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from archer.configs.code import CodeConfig
from archer.errors import DataError
from archer.rewards.code.bay import Bay
from archer.rewards.code.child import confine, plain
from archer.rewards.code.compare import compare_output, compare_values
from archer.rewards.code.execution import SHORT_REPORT, Ended, Execution, Process, peers, started

Label = Literal[
    "passed",
    "wrong_answer",
    "runtime_error",
    "time_limit",
    "memory_limit",
    "output_limit",
    "syntax_error",
    "harness_error",
]
_MIB = 1 << 20
_CHECKER_LABELS: tuple[Label, ...] = ("passed", "wrong_answer", "runtime_error", "memory_limit")
# The most that a value can be longer in a message than in JSON: a list in a list of lists.
_RESULT_FACTOR = 16


@dataclass(frozen=True, slots=True)
class TestResult:
    """What became of one test.

    Attributes:
        label: ``"passed"``, or why not; ``"harness_error"`` says nothing about the program.
        detail: for a reader.
        cpu_seconds: of the program and, for an assert test, of the test.
        wall_seconds: from start to end.
    """

    __test__ = False  # not a test case, whatever pytest makes of the name

    label: Label
    detail: str
    cpu_seconds: float
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one test may use.

    Attributes:
        cpu_seconds: CPU time.
        wall_seconds: wall time.
        tolerance: declared by the task, ``None`` without.
    """

    cpu_seconds: float
    wall_seconds: float
    tolerance: float | None


@dataclass(frozen=True, slots=True)
class _Case:
    bay: Bay
    config: CodeConfig
    program: str
    setup: str
    test: Mapping[str, Any]
    allowance: Allowance

    @property
    def limits(self) -> confine.Limits:
        config = self.config
        return confine.Limits(
            cpu_seconds=self.allowance.cpu_seconds,
            wall_seconds=self.allowance.wall_seconds,
            memory=config.memory_mb * _MIB,
            file_bytes=config.file_mb * _MIB,
            open_files=config.open_files,
            threads=config.threads,
        )

    @property
    def output_limit(self) -> int:
        return int(self.config.output_mb * _MIB)


def judge(
    bay: Bay, config: CodeConfig, program: str, setup: str, test: Mapping[str, Any], allowance: Allowance
) -> TestResult:
    """Run one test and label it.

    Args:
        bay: where.
        config: limits and rules.
        program: source text.
        setup: source that an assert test has in common with others of its problem.
        test: ``{"type": "stdin" | "functional" | "assert", ...}``.
        allowance: time.

    Raises:
        SandboxFault: the harness failed.
        DataError: the test isn't one.
    """
    case = _Case(bay, config, program, setup, test, allowance)
    runs = {"stdin": _run_stdin, "functional": _run_functional, "assert": _run_assert}
    kind = test.get("type")
    if kind not in runs:
        raise DataError(
            f"test field 'type': expected one of {', '.join(runs)}, got {kind!r}; convert the test"
        )
    return runs[kind](case)


def _run_stdin(case: _Case) -> TestResult:
    given, expected = _text(case.test, "input"), _text(case.test, "output")
    job = {"program": case.program, "prelude": case.config.prelude}
    with Execution(case.bay) as execution:
        data = given.encode("utf-8", "replace")
        process = execution.start("stdin", job, case.limits, output_limit=case.output_limit, given=data)
        ended = _follow(execution, process, case.allowance)
    failure = _failure(process, ended, case.allowance)
    if failure is None:
        printed = process.output.decode("utf-8", "replace")
        failure = _verdict(compare_output(expected, printed, *_tolerances(case)))
    return _result(*failure, ended)


def _run_functional(case: _Case) -> TestResult:
    name, given = _text(case.test, "fn_name"), _text(case.test, "input")
    lines = [line for line in given.split("\n") if line.strip()]
    arguments = [_json(line, "input") for line in lines]
    expected = _json(_text(case.test, "output"), "output")
    job = {
        "program": case.program,
        "prelude": case.config.prelude,
        "fn_name": name,
        "arguments": arguments,
    }
    with Execution(case.bay) as execution:
        most = min(case.output_limit, SHORT_REPORT + _RESULT_FACTOR * len(case.test["output"]))
        process = execution.start("functional", job, case.limits, report_limit=most)
        ended = _follow(execution, process, case.allowance)
    failure = _failure(process, ended, case.allowance) or _returned(process, expected, case)
    return _result(*failure, ended)


def _returned(process: Process, expected: Any, case: _Case) -> tuple[Label, str]:
    sent = [message["result"] for message in process.messages if "result" in message]
    if not sent:
        return "runtime_error", "the program ended before the function returned"
    try:
        (value,), _ = plain.decode(sent[0])
    except ValueError as error:
        return "wrong_answer", f"no plain value: {error}"
    return _verdict(compare_values(expected, value, *_tolerances(case)))


def _run_assert(case: _Case) -> TestResult:
    token = secrets.token_hex(16)
    setup = case.test.get("setup") or case.setup
    limits = case.limits
    with Execution(case.bay) as execution:
        ours, theirs = peers()
        program = execution.start("serve", {"program": case.program, "setup": setup}, limits, peer=ours)
        job = {"setup": setup, "code": _text(case.test, "code"), "token": token}
        checker = execution.start("check", job, limits, peer=theirs)
        for process in execution.events(case.allowance.wall_seconds):
            if process is checker:
                program.abort()
    started([program, checker])
    assert program.ended is not None
    assert checker.ended is not None
    label, detail = _assert_label(program, program.ended, checker, checker.ended, token, case.allowance)
    both = program.ended.cpu + checker.ended.cpu
    return TestResult(label, detail, both, max(program.ended.wall, checker.ended.wall))


def _assert_label(
    program: Process, ended: Ended, checker: Process, checked: Ended, token: str, allowance: Allowance
) -> tuple[Label, str]:
    said = [message for message in checker.messages if message.get("token") == token]
    if said and said[0]["label"] == "bad_test":
        raise DataError(f"test field 'code' or 'setup': {said[0]['detail']}; repair or drop the test")
    failure = _failure(program, ended, allowance)
    if failure is not None:
        return failure
    failure = _failure(checker, checked, allowance)
    if failure is not None:
        return failure[0], f"in the test: {failure[1]}"
    label = said[0]["label"] if said else None
    if label not in _CHECKER_LABELS:
        return "runtime_error", "the test ended without a result"
    return label, str(said[0]["detail"])


def _follow(execution: Execution, process: Process, allowance: Allowance) -> Ended:
    for _ in execution.events(allowance.wall_seconds):
        pass
    started([process])
    assert process.ended is not None
    return process.ended


def _failure(process: Process, ended: Ended, allowance: Allowance) -> tuple[Label, str] | None:
    """The label of a process that didn't come to a good end, ``None`` if it did.

    The supervisor's word comes first; what the process itself reported only names the kind of failure.
    """
    if process.over:
        return "output_limit", f"more than {process.over} bytes"
    if ended.killed == "cpu" or ended.cpu > allowance.cpu_seconds or ended.signal == signal.SIGXCPU:
        return "time_limit", f"{ended.cpu:.2f} s of CPU time, {allowance.cpu_seconds:g} s allowed"
    if ended.killed == "wall":
        return "time_limit", f"{ended.wall:.2f} s of wall time, {allowance.wall_seconds:g} s allowed"
    if ended.killed == "abort":
        return None
    if ended.signal == signal.SIGKILL:
        return "memory_limit", "killed by the system"
    if ended.signal is not None:
        return "runtime_error", f"signal {_signal_name(ended.signal)}"
    failed = next((message["failed"] for message in process.messages if "failed" in message), None)
    if isinstance(failed, list) and len(failed) == 3:
        stage, error, detail = map(str, failed)
        if stage == "compile":
            return "syntax_error", f"{error}: {detail}"
        if stage == "result":
            return "wrong_answer", detail
        return "memory_limit" if error == "MemoryError" else "runtime_error", f"{error}: {detail}"
    if ended.exit:
        return "runtime_error", f"exit code {ended.exit}"
    return None


def _verdict(difference: str) -> tuple[Label, str]:
    return ("wrong_answer", difference) if difference else ("passed", "")


def _result(label: Label, detail: str, ended: Ended) -> TestResult:
    return TestResult(label, detail, ended.cpu, ended.wall)


def _tolerances(case: _Case) -> tuple[float | None, float]:
    declared = case.test.get("tolerance", case.allowance.tolerance)
    return declared, case.config.float_tolerance


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _text(test: Mapping[str, Any], name: str) -> str:
    value = test.get(name)
    if not isinstance(value, str):
        raise DataError(f"test field {name!r}: expected text, got {type(value).__name__}; convert the test")
    return value


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise DataError(
            f"test field {name!r}: expected JSON on each line, got {text[:80]!r}; convert it"
        ) from None
