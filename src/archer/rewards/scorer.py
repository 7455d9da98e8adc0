"""The scorer of a run: sends each problem to the grader of its domain and hands back futures of verdicts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, wait
from types import TracebackType
from typing import TYPE_CHECKING, Self

from archer.errors import RewardError
from archer.rewards.backends import BUILDERS, Backend, BatchBackend
from archer.rewards.canary import Canary, canaries_of
from archer.types import Problem, Verdict

if TYPE_CHECKING:
    from archer.configs.reward import RewardConfig


class Scorer:
    """Scores responses while others are still being sampled.

    A context manager, usable from any thread and, through ``asyncio.wrap_future``, from asyncio. Responses
    with known scores go through at the start and every ``canary_every`` responses; a scorer that gets one
    wrong refuses all further work.

    Raises:
        RewardError: the grader of ``config.kind`` can't start or fails its first check.
    """

    def __init__(self, config: RewardConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._backends: dict[str, Backend] = {}
        self._submitted: Counter[str] = Counter()
        self._broken: RewardError | None = None
        self._backend(config.kind)

    def submit(self, problem: Problem, text: str) -> Future[Verdict]:
        """A future of the verdict on one response.

        Raises:
            RewardError: the scorer is closed or broken, or the grader that the problem needs can't start.
        """
        kind = self._kind_of(problem)
        backend = self._backend(kind)
        self._check_again_when_due(kind, backend)
        return backend.submit(problem, text)

    def score(self, problems: Sequence[Problem], texts: Sequence[str]) -> list[Verdict]:
        """Verdicts in the order of the arguments; blocks until all are there.

        Raises:
            ValueError: the two lengths differ.
            RewardError: a response failed under ``on_error: stop``, or as for ``submit``.
        """
        if len(problems) != len(texts):
            raise ValueError(
                f"expected one text for each problem, got {len(problems)} problems and {len(texts)} texts"
            )
        backend = self._backend(self._config.kind)
        if isinstance(backend, BatchBackend):
            return backend.score(problems, texts) if problems else []
        futures = [self.submit(problem, text) for problem, text in zip(problems, texts, strict=True)]
        wait(futures)
        return [future.result() for future in futures]

    def close(self) -> None:
        """Kill the workers. Verdicts still pending become ``RewardError``."""
        with self._lock:
            backends = list(self._backends.values())
            self._backends.clear()
            self._broken = RewardError("the scorer is closed")
        for backend in backends:
            backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _kind_of(self, problem: Problem) -> str:
        kind = self._config.kind
        if kind == "custom":
            return kind
        if problem.domain in ("code", "procedural"):
            return problem.domain
        if problem.domain == "math":
            return "paper" if kind == "paper" else "math"
        return kind

    def _backend(self, kind: str) -> Backend:
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if kind not in self._backends:
                self._backends[kind] = self._started(kind)
            return self._backends[kind]

    def _started(self, kind: str) -> Backend:
        backend = BUILDERS[kind](self._config)
        try:
            for canary in canaries_of(kind):
                future = backend.submit(canary.problem, canary.text)
                wait([future])
                canary.check(kind, future)
        except BaseException:
            backend.close()
            raise
        return backend

    def _check_again_when_due(self, kind: str, backend: Backend) -> None:
        with self._lock:
            self._submitted[kind] += 1
            every = self._config.canary_every
            if not every or self._submitted[kind] % every:
                return
        for canary in canaries_of(kind):
            future = backend.submit(canary.problem, canary.text)
            future.add_done_callback(lambda done, canary=canary: self._note(kind, canary, done))  # type: ignore[misc]

    def _note(self, kind: str, canary: Canary, done: Future[Verdict]) -> None:
        try:
            canary.check(kind, done)
        except RewardError as error:
            with self._lock:
                self._broken = self._broken or error


def build_scorer(config: RewardConfig) -> Scorer:
    """The scorer that ``config`` describes, started and checked.

    Raises:
        RewardError: its grader can't start, or fails a response with a known score.
    """
    return Scorer(config)
