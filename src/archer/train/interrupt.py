"""Termination signals become a checkpoint instead of lost work."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_INTERRUPTED = 75
"""Exit status of a run that stopped on a signal and can be resumed (EX_TEMPFAIL)."""


class Interrupted(BaseException):
    """Raised in the main thread where it is safe to stop.

    A ``BaseException``, so that no handler for ordinary errors swallows it.
    """


class Interrupt:
    """Turns SIGTERM and SIGINT into ``Interrupted`` at places where the training state is whole.

    While sampling, scoring or evaluating nothing has changed since the last finished step, so the signal raises at
    once. During an update or a save it is remembered and raised at the next ``check``; further signals change
    nothing, so a save is never cut short.
    """

    def __init__(self) -> None:
        self.requested = False
        self._allowed = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals within the block (main thread only), then put the old handlers back."""
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self._handle) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """The block may be left at any point."""
        self.check()
        self._allowed = True
        try:
            yield
        finally:
            self._allowed = False

    def check(self) -> None:
        """Raise if a signal came while it could not be acted on."""
        if self.requested:
            raise Interrupted

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first, self.requested = not self.requested, True
        if first and self._allowed:
            raise Interrupted
