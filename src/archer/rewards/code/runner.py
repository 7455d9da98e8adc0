"""Runs programs against tests in a pool of bays."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from archer.configs.code import CodeConfig
from archer.errors import DataError, RewardError
from archer.rewards.code import canary
from archer.rewards.code.bay import Bay, Plan, SandboxFault
from archer.rewards.code.isolation import IsolationReport, choose_isolation
from archer.rewards.code.judging import Allowance, TestResult, judge


@dataclass(frozen=True, slots=True)
class CodeResult:
    """What became of a program.

    Attributes:
        tests: results in the order of the tests; fewer than ``total`` where a failure ended the run early.
        total: number of tests, run or not.
    """

    tests: tuple[TestResult, ...]
    total: int

    @property
    def passed(self) -> int:
        """Tests that passed; those that were not run didn't."""
        return sum(result.label == "passed" for result in self.tests)

    @property
    def fraction(self) -> float:
        """Passed tests over all tests."""
        return self.passed / self.total if self.total else 0.0

    @property
    def first_failure(self) -> tuple[int, TestResult] | None:
        """Place and result of the first test that didn't pass."""
        return next(((n, result) for n, result in enumerate(self.tests) if result.label != "passed"), None)

    @property
    def scorable(self) -> bool:
        """False where the harness failed, so that nothing can be said."""
        return all(result.label != "harness_error" for result in self.tests)


class CodeRunner:
    """Runs programs against tests; a context manager, usable from any number of threads.

    Raises:
        IsolationError: the isolation asked for isn't there.
        RewardError: a program with a known result gets another one.
    """

    def __init__(self, config: CodeConfig) -> None:
        self._config = config
        self._isolation = choose_isolation(config)
        self.workers = config.workers or _usable_cpus()
        self._owner = os.getpid()
        # A place of the pool: a bay that is free, or None where one has to be started.
        self._free: queue.SimpleQueue[Bay | None] = queue.SimpleQueue()
        for _ in range(self.workers):
            self._free.put(None)
        self._lock = threading.Lock()
        self._runs = 0
        self._broken = ""
        self._closed = False
        try:
            self._check_canaries()
        except RewardError:
            self.close()
            raise

    @property
    def isolation(self) -> IsolationReport:
        """What programs are kept from, and by what."""
        return self._isolation.report

    def run(
        self,
        program: str,
        tests: Sequence[Mapping[str, Any]],
        *,
        setup: str = "",
        tolerance: float | None = None,
        stop_at_failure: bool | None = None,
    ) -> CodeResult:
        """Run each test once, in order.

        Args:
            program: source text.
            tests: see ``Problem.tests``.
            setup: source that assert tests without a ``setup`` of their own are run with.
            tolerance: declared by the task: allowed difference of any number.
            stop_at_failure: ``None``: where the reward is all or nothing.

        Raises:
            RewardError: the runner is closed, or a canary has failed.
        """
        self._count_run()
        stop = self._config.reward == "all" if stop_at_failure is None else stop_at_failure
        return self._run(program, tests, setup, tolerance, stop)

    def close(self) -> None:
        """End all sandboxes; waits for those that are at work."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for _ in range(self.workers):
            bay = self._free.get()
            if bay is not None:
                bay.close()
        for _ in range(self.workers):
            self._free.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _count_run(self) -> None:
        with self._lock:
            if self._closed or self._broken:
                raise RewardError(self._broken or "the code runner is closed")
            if self._owner != os.getpid():
                raise RewardError("a code runner can't be used in a fork; make one in each process")
            self._runs += 1
            due = self._runs % self._config.canary_every == 0
        if due:
            self._check_canaries()

    def _check_canaries(self) -> None:
        for sample in canary.SAMPLES:
            result = self._run(sample.program, [sample.test], "", None, stop=True)
            if result.tests[0].label != sample.label:
                self._broken = (
                    f"the code runner is broken: {sample.name} must be {sample.label}, got "
                    f"{result.tests[0].label} ({result.tests[0].detail}); no verdict since the last check can be "
                    "trusted"
                )
                raise RewardError(self._broken)

    def _run(
        self,
        program: str,
        tests: Sequence[Mapping[str, Any]],
        setup: str,
        tolerance: float | None,
        stop: bool,
    ) -> CodeResult:
        config = self._config
        cpu_left = config.sample_cpu_seconds
        wall_left = config.wall_seconds + config.wall_factor * cpu_left
        results: list[TestResult] = []
        with self._place() as place:
            for test in tests:
                cpu = min(config.cpu_seconds, cpu_left)
                wall = min(config.wall_seconds + config.wall_factor * cpu, wall_left)
                if cpu <= 0 or wall <= 0:
                    result = TestResult("time_limit", "not run: the sample's time is used up", 0.0, 0.0)
                else:
                    result = self._try(place, program, setup, test, Allowance(cpu, wall, tolerance))
                results.append(result)
                cpu_left -= result.cpu_seconds
                wall_left -= result.wall_seconds
                if result.label == "harness_error" or (stop and result.label != "passed"):
                    break
        return CodeResult(tuple(results), len(tests))

    def _try(
        self, place: _Place, program: str, setup: str, test: Mapping[str, Any], allowance: Allowance
    ) -> TestResult:
        started = time.monotonic()
        for attempt in range(self._config.retries + 1):
            try:
                return judge(place.bay(), self._config, program, setup, test, allowance)
            except SandboxFault as fault:
                place.discard()
                detail = f"{fault} (tried {attempt + 1} times)"
            except DataError as error:
                detail = str(error)
                break
        return TestResult("harness_error", detail, 0.0, time.monotonic() - started)

    @contextmanager
    def _place(self) -> Iterator[_Place]:
        place = _Place(self._isolation.plan, self._free.get())
        try:
            if self._closed:
                raise RewardError("the code runner is closed")
            yield place
        except BaseException:
            # Whatever happened here, no process of this test may be left for the next.
            place.discard()
            raise
        finally:
            self._free.put(place.held)


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Place:
    def __init__(self, plan: Plan, held: Bay | None) -> None:
        self._plan = plan
        self.held = held

    def bay(self) -> Bay:
        if self.held is None:
            self.held = Bay(self._plan)
        return self.held

    def discard(self) -> None:
        if self.held is not None:
            self.held.close()
            self.held = None
