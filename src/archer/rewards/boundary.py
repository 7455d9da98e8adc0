"""The one place where a scorer's failures and odd results are attributed.

Everything that a grader, a generator's scorer or a user's function produces passes through here, and leaves
as a ``Verdict`` or as a ``RewardError`` that names the sample. No other module of the reward layer turns an
exception into a verdict.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, Literal, TypeVar

from archer.errors import ArcherError, RewardError
from archer.rewards.process import Reply, WorkerFault
from archer.types import Problem, Verdict

log = logging.getLogger("archer.rewards")

T = TypeVar("T")
OnError = Literal["mask", "stop"]
# The scorer itself can't work: going on would mask every sample.
_ALWAYS_STOP = {"start", "closed"}


class Boundary:
    """Turns what a scorer returns or raises into verdicts.

    Args:
        scorer: name used in messages.
        on_error: ``mask`` makes a failed sample unscorable and logs it; ``stop`` raises.
        partial_credit: keep scores between 0 and 1; otherwise a score below 1 is 0.
        response_faults: kinds of failure that the response alone can have caused, such as an answer that
            takes for ever to check. They score 0: masking them would make such answers free.
    """

    def __init__(
        self,
        scorer: str,
        on_error: OnError,
        *,
        partial_credit: bool = True,
        response_faults: frozenset[str] = frozenset(),
    ) -> None:
        self._scorer = scorer
        self._on_error = on_error
        self._partial_credit = partial_credit
        self._response_faults = response_faults

    def attach(self, inner: Future[Reply], problem: Problem) -> Future[Verdict]:
        """A future of the verdict on ``problem``, from a future of the scorer's reply."""
        outer: Future[Verdict] = Future()

        inner.add_done_callback(lambda done: settle(outer, lambda: self.verdict(done.result, problem)))
        return outer

    def verdict(self, produce: Callable[[], Reply], problem: Problem) -> Verdict:
        """The verdict on ``problem`` from a call whose reply holds an encoded value (see ``encode``).

        Raises:
            RewardError: the call failed and the setting is ``stop``, or the scorer as a whole can't work.
        """
        try:
            reply = produce()
            return self._decode(reply.value, reply.seconds)
        except WorkerFault as fault:
            return self.failure(problem, fault.kind, fault.detail)
        except CancelledError:
            raise RewardError(
                f"{self._scorer} scorer was closed before problem {problem.id!r} was scored"
            ) from None
        except ArcherError:
            raise
        except Exception as error:  # noqa: BLE001 - this is the boundary: a scorer may raise anything
            return self.failure(problem, "raised", f"{type(error).__name__}: {error}")

    def failure(self, problem: Problem, kind: str, detail: str) -> Verdict:
        """What a failed sample becomes.

        Raises:
            RewardError: under ``stop``, or when the scorer as a whole can't work.
        """
        if kind in self._response_faults:
            return Verdict("incorrect", 0.0, reason=f"{kind}: {detail}")
        message = f"{self._scorer} scorer failed on problem {problem.id!r} ({kind}): {detail}"
        if kind in _ALWAYS_STOP:
            raise RewardError(message)
        if self._on_error == "stop":
            raise RewardError(
                f"{message}\nfix the scorer, or set reward.on_error: mask to leave such samples out"
            )
        log.warning("%s", message)
        short = detail.strip().splitlines()[-1] if detail.strip() else ""
        return Verdict("unscorable", None, reason=f"{kind}: {short}")

    def _decode(self, wire: Any, seconds: float) -> Verdict:
        match wire:
            case {"type": "none"}:
                return Verdict("unscorable", None, reason="abstained", seconds=seconds)
            case {"type": "number", "score": float() | int() as score}:
                return self._scored(float(score), None, "", seconds)
            case {"type": "dict", "score": None, "reason": str(reason)}:
                return Verdict("unscorable", None, reason=reason or "abstained", seconds=seconds)
            case {
                "type": "dict",
                "score": float() | int() as score,
                "extracted": extracted,
                "reason": str(reason),
            }:
                return self._scored(float(score), extracted, reason, seconds)
            case {"type": "bad", "found": found}:
                raise TypeError(
                    f"expected a number, a bool, a mapping with 'score', a Verdict or None, got {found}"
                )
        raise TypeError(f"expected a scorer's reply, got {wire!r:.200}")

    def _scored(self, score: float, extracted: str | None, reason: str, seconds: float) -> Verdict:
        if not math.isfinite(score) or not 0 <= score <= 1:
            raise ValueError(
                f"expected a score in [0, 1], got {score}; rescale it, or return None to abstain"
            )
        right = score == 1
        if not self._partial_credit:
            score = float(right)
        return Verdict("correct" if right else "incorrect", score, extracted, reason, seconds)


def settle(future: Future[T], produce: Callable[[], T]) -> None:
    """Complete ``future``, unless it was cancelled, with what ``produce`` returns or raises."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        verdict = produce()
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the future
        future.set_exception(error)
    else:
        future.set_result(verdict)


def encode(value: Any) -> dict[str, Any]:
    """A scorer's return value in the form that crosses the process border as JSON."""
    if value is None:
        return {"type": "none"}
    if isinstance(value, Verdict):
        return {"type": "dict", "score": value.score, "extracted": value.extracted, "reason": value.reason}
    if isinstance(value, Mapping):
        return _encode_mapping(value)
    number = _number(value)
    if number is None:
        return {"type": "bad", "found": f"{type(value).__name__} {value!r:.100}"}
    return {"type": "number", "score": number}


def _encode_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    if "score" not in value:
        return {"type": "bad", "found": f"a mapping without 'score' (keys {sorted(map(str, value))})"}
    score = None if value["score"] is None else _number(value["score"])
    if score is None and value["score"] is not None:
        return {"type": "bad", "found": f"score {value['score']!r:.100}"}
    extracted = value.get("extracted")
    # Verdict has no place for further metrics, so they stay readable in the reason.
    rest = [f"{k}={value[k]}" for k in sorted(value, key=str) if k not in ("score", "extracted", "reason")]
    reason = "; ".join(filter(None, [str(value.get("reason") or ""), ", ".join(rest)]))
    return {
        "type": "dict",
        "score": score,
        "extracted": None if extracted is None else str(extracted),
        "reason": reason,
    }


def _number(value: Any) -> float | None:
    """Any real scalar, those of array libraries included; ``None`` for anything else."""
    if isinstance(value, (str, bytes, bytearray)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None
