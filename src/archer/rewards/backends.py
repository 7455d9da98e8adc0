"""One backend a domain: what scores maths, procedural tasks and a user's function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from archer.errors import RewardError
from archer.rewards.boundary import Boundary, encode, settle
from archer.rewards.process import Reply, WorkerFault, WorkerSpec
from archer.rewards.workers import WorkerPool
from archer.types import Problem, Verdict

if TYPE_CHECKING:
    from archer.configs.reward import RewardConfig


class Backend(Protocol):
    """Scores the problems of one domain."""

    def submit(self, problem: Problem, text: str) -> Future[Verdict]:
        """A future of the verdict, at once and from any thread. It raises ``RewardError`` under ``stop``."""
        ...

    def close(self) -> None:
        """Release processes and threads."""
        ...


class PoolBackend:
    """A backend whose work is done by a handler in worker processes."""

    def __init__(self, name: str, spec: WorkerSpec, config: RewardConfig) -> None:
        custom = config.kind == "custom"
        self._boundary = Boundary(
            name,
            config.on_error,
            # A user's score is theirs; only our own scorers are cut to 0 and 1.
            partial_credit=custom or config.partial_credit,
            # Our own scorers have checked the gold answer, so what remains is the response's doing.
            response_faults=frozenset() if custom else frozenset(("cpu_time", "memory")),
        )
        self._pool = WorkerPool(
            spec, workers=config.workers, queue_size=config.queue_size, retries=config.retries
        )
        try:
            self._pool.warm()
        except WorkerFault as fault:
            self._pool.close()
            raise RewardError(f"{name} scorer can't start: {fault.detail}") from None

    def submit(self, problem: Problem, text: str) -> Future[Verdict]:
        """A future of the verdict on one response."""
        return self._boundary.attach(self._request((problem, text)), problem)

    def close(self) -> None:
        """Kill the workers."""
        self._pool.close()

    def _request(self, request: object) -> Future[Reply]:
        """A future of the handler's reply; a request that can't be sent is a failure like any other."""
        try:
            return self._pool.submit(request)
        except Exception as error:  # noqa: BLE001 - handed to the boundary through the future
            failed: Future[Reply] = Future()
            failed.set_exception(error)
            return failed


class BatchBackend(PoolBackend):
    """A user's function that takes lists. One call scores a whole batch."""

    def submit(self, problem: Problem, text: str) -> Future[Verdict]:
        """A batch of one."""
        outer: Future[Verdict] = Future()
        self._request(([problem], [text])).add_done_callback(
            lambda done: settle(outer, lambda: self._verdicts(done, [problem])[0])
        )
        return outer

    def score(self, problems: Sequence[Problem], texts: Sequence[str]) -> list[Verdict]:
        """Verdicts in order. Where the call fails, each response is tried alone, to find the one at fault.

        Raises:
            RewardError: a list of the wrong length, or a failure under ``stop``.
        """
        done = self._request((list(problems), list(texts)))
        if isinstance(done.exception(), WorkerFault) and len(problems) > 1:
            futures = [self.submit(p, t) for p, t in zip(problems, texts, strict=True)]
            return [future.result() for future in futures]
        return self._verdicts(done, problems)

    def _verdicts(self, done: Future[Reply], problems: Sequence[Problem]) -> list[Verdict]:
        if done.exception() is not None:
            return [self._boundary.verdict(done.result, problem) for problem in problems]
        reply = done.result()
        # Anything but a list is refused sample by sample, like another wrong type.
        values = reply.value if isinstance(reply.value, list) else [reply.value] * len(problems)
        if len(values) != len(problems):
            raise RewardError(
                f"custom scorer: expected {len(problems)} scores for problems {problems[0].id!r} to "
                f"{problems[-1].id!r}, got {len(values)}; return one score a response, in order"
            )
        replies = [Reply(value, reply.seconds / len(values)) for value in values]
        return [
            self._boundary.verdict(lambda reply=reply: reply, problem)  # type: ignore[misc]
            for reply, problem in zip(replies, problems, strict=True)
        ]


class CodeBackend:
    """The code scorer behind the boundary, so that its faults follow ``on_error`` too."""

    def __init__(self, config: RewardConfig) -> None:
        from archer.rewards.code import build_code_scorer

        self._boundary = Boundary("code", config.on_error)
        self._scorer = build_code_scorer(config.code)

    def submit(self, problem: Problem, text: str) -> Future[Verdict]:
        """A future of the verdict on one response."""
        replied: Future[Reply] = Future()
        self._scorer.submit(problem, text).add_done_callback(
            lambda done: settle(replied, lambda: _reply_of(done.result()))
        )
        return self._boundary.attach(replied, problem)

    def close(self) -> None:
        """Close the sandboxes."""
        self._scorer.close()


def _reply_of(verdict: Verdict) -> Reply:
    label, _, detail = verdict.reason.partition(": ")
    if label == "harness_error":
        raise WorkerFault(label, detail)
    return Reply(encode(verdict), verdict.seconds)


def _maths(config: RewardConfig) -> Backend:
    return PoolBackend("math", _own("archer.rewards.math.handler:make_handler", config, {
        "unboxed": config.unboxed == "accept", "require_thinking": config.require_thinking,
    }), config)  # fmt: skip


def _paper(config: RewardConfig) -> Backend:
    return PoolBackend("paper", _own("archer.rewards.math.paper:make_handler", config, {}), config)


def _procedural(config: RewardConfig) -> Backend:
    spec = _own("archer.rewards.procedural:make_handler", config, {})
    # A worker loads its generators with the first problem that needs them.
    spec = replace(spec, cpu_seconds=max(config.cpu_seconds, 5.0))
    return PoolBackend("procedural", spec, config)


def _own(target: str, config: RewardConfig, settings: dict[str, Any]) -> WorkerSpec:
    return WorkerSpec(target, config.wall_seconds, settings, config.cpu_seconds, config.memory_mb)


def _custom(config: RewardConfig) -> Backend:
    settings = {"function": config.function, "batched": config.batched}
    spec = WorkerSpec(
        "archer.rewards.user_function:make_handler", config.wall_seconds, settings, show_output=True
    )
    return (BatchBackend if config.batched else PoolBackend)("custom", spec, config)


BUILDERS: dict[str, Callable[[RewardConfig], Backend]] = {
    "math": _maths,
    "paper": _paper,
    "procedural": _procedural,
    "custom": _custom,
    "code": CodeBackend,
}
