"""The order in which training sees the problems."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from archer.errors import CheckpointError, DataError
from archer.types import Problem


class PromptStream:
    """Endless problems, every epoch in a new order that depends on the seed and the epoch alone.

    No problem stands twice in one ``next`` call: where a call runs over the end of an epoch, a problem that
    it already holds waits for the following call.

    Args:
        problems: the problems; the stream keeps no copy.
        seed: decides every order. No global random state is read or changed.
    """

    def __init__(self, problems: Sequence[Problem], seed: int) -> None:
        if not problems:
            raise DataError("expected at least one problem to stream, found none")
        self._problems = problems
        self._seed = seed
        self._epoch = 0
        self._position = 0
        self._waiting: deque[int] = deque()
        self._order = self._order_of(0)

    @property
    def epoch(self) -> int:
        """Number of complete passes so far."""
        return self._epoch

    def next(self, count: int) -> list[Problem]:
        """The next ``count`` different problems.

        Raises:
            DataError: ``count`` is not between 1 and the number of problems.
        """
        if not 1 <= count <= len(self._problems):
            raise DataError(
                f"expected between 1 and {len(self._problems)} prompts a step (the size of the data set), "
                f"found {count}; lower the number of prompts a step or add problems"
            )
        chosen: dict[int, None] = {}
        waiting: list[int] = []
        while len(chosen) < count:
            index = self._waiting.popleft() if self._waiting else self._advance()
            if index in chosen:
                waiting.append(index)
            else:
                chosen[index] = None
        self._waiting.extend(waiting)
        return [self._problems[index] for index in chosen]

    def state(self) -> dict[str, Any]:
        """The place in the stream as JSON types."""
        return {
            "seed": self._seed,
            "size": len(self._problems),
            "epoch": self._epoch,
            "position": self._position,
            "waiting": list(self._waiting),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was taken.

        Raises:
            CheckpointError: the state is of another seed or of a data set of another size.
        """
        for name, own in (("seed", self._seed), ("size", len(self._problems))):
            if state[name] != own:
                raise CheckpointError(
                    f"expected the prompt order of {name} {own}, found one of {name} {state[name]} in the "
                    "checkpoint; resume with the data and seed that the run began with"
                )
        self._epoch, self._position = state["epoch"], state["position"]
        self._waiting = deque(state["waiting"])
        self._order = self._order_of(self._epoch)

    def _advance(self) -> int:
        if self._position == len(self._order):
            self._epoch += 1
            self._position = 0
            self._order = self._order_of(self._epoch)
        self._position += 1
        return self._order[self._position - 1]

    def _order_of(self, epoch: int) -> list[int]:
        # Sorting by a hash gives the same order under every Python version, which shuffle() doesn't promise.
        def key(index: int) -> bytes:
            return hashlib.blake2b(f"{self._seed}/{epoch}/{index}".encode(), digest_size=16).digest()

        return sorted(range(len(self._problems)), key=key)
