"""How responses are scored."""

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from archer.configs.base import Config
from archer.configs.code import CodeConfig

RewardKind = Literal["math", "paper", "procedural", "code", "custom"]


class RewardConfig(Config):
    """One scorer.

    A problem goes to the grader of its own domain (``code``, ``procedural``, ``math``), so one data set may
    mix them; ``kind`` decides between the maths graders, takes the domains that have none, and is checked
    at the start. ``custom`` takes every problem.

    Attributes:
        kind: ``math`` follows docs/GRADING.md; ``paper`` is the comparison that the paper evaluates with;
            ``procedural`` scores by the generator's own rule; ``code`` runs tests; ``custom`` calls
            ``function``.
        function: ``path.py:name`` of the user's function, sync or async. Called as
            ``name(problem, text)``, or ``name(problems, texts)`` where ``batched``.
        batched: the function takes lists and returns a list of the same length.
        workers: worker processes; also the number of calls of a user's function at once.
        cpu_seconds: CPU time for one response: maths, and procedural problems with at least 5 s.
        wall_seconds: wall time for one response, or for one batch of a batched function.
        memory_mb: address space of one maths or procedural worker.
        queue_size: responses that may wait; ``submit`` blocks beyond it.
        retries: how often a response is tried again on a fresh worker after a fault of the harness.
        on_error: what happens when a scorer fails on a response: ``mask`` makes it unscorable, ``stop``
            ends the run. Either way the response is named.
        partial_credit: keep scores between 0 and 1 of procedural scorers; otherwise anything below 1 is 0, as
            in the paper. Programs have ``code.reward`` for that.
        unboxed: whether ``Answer: 7`` or ``#### 7`` counts where a response has no box.
        require_thinking: a maths response must be ``<think>...</think>`` and then the answer.
        canary_every: responses to one grader between two checks of it with known answers; 0 checks at the
            start only.
        code: limits of the code scorer.
    """

    kind: RewardKind = "math"
    function: str | None = Field(default=None, pattern=r"^.+\.py:[A-Za-z_]\w*$")
    batched: bool = False
    workers: PositiveInt = 2
    cpu_seconds: PositiveFloat = 0.8
    wall_seconds: PositiveFloat = 10.0
    memory_mb: PositiveInt = 2048
    queue_size: PositiveInt = 16384
    retries: NonNegativeInt = 1
    on_error: Literal["mask", "stop"] = "mask"
    partial_credit: bool = False
    unboxed: Literal["reject", "accept"] = "reject"
    require_thinking: bool = False
    canary_every: NonNegativeInt = 2000
    code: CodeConfig = CodeConfig()

    @model_validator(mode="after")
    def _function_belongs_to_custom(self) -> Self:
        if self.kind == "custom" and self.function is None:
            raise ValueError("function: needed by kind: custom, as path.py:name; got nothing")
        if self.kind != "custom" and (self.function is not None or self.batched):
            raise ValueError(f"function and batched belong to kind: custom; got kind: {self.kind}")
        return self
