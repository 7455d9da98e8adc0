"""What every sampling engine offers."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from archer.configs.rollout import SamplingConfig
from archer.types import Rollout


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One prompt and how many responses to sample from it.

    Attributes:
        key: names the random streams, together with the seed and the sample's number. Two requests of one call
            that should differ need different keys.
        prompt_ids: token ids, not empty.
        n: number of responses.
    """

    key: str
    prompt_ids: tuple[int, ...]
    n: int = 1


OnFinish = Callable[[int, Rollout], None]
"""Called with the request's index as soon as one of its responses is finished, so that scoring can begin."""


class Sampler(Protocol):
    """An engine that samples responses.

    ``policy_version`` is the number of weight updates that the engine's weights have seen; every ``Rollout``
    carries the version that sampled it.
    """

    policy_version: int

    def sync(self, version: int) -> None:
        """Take the trained policy's present weights, which have seen ``version`` updates.

        Raises:
            EngineError: the engine can't take them, or holds others afterwards.
        """

    def sample(
        self,
        requests: Sequence[SampleRequest],
        config: SamplingConfig,
        *,
        seed: int,
        on_finish: OnFinish | None = None,
    ) -> list[list[Rollout]]:
        """Sample ``request.n`` responses for each request, in the order of the requests.

        The random stream of a response depends on ``(seed, key, sample)`` alone, never on what else is in the
        batch. An engine without entropies leaves ``Rollout.entropy`` empty.
        """


def stream_seed(seed: int, key: str, sample: int) -> int:
    """A 63-bit seed for one response's random stream."""
    digest = hashlib.sha256(f"{seed}\0{key}\0{sample}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
