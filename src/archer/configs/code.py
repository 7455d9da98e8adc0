"""Settings of the code runner."""

from typing import Literal

from pydantic import Field, model_validator

from archer.configs.base import Config

Isolation = Literal["auto", "bubblewrap", "rlimits"]


class CodeConfig(Config):
    """How programs are run against tests, and what a result is worth; ``docs/SANDBOX.md`` says it at length.

    Attributes:
        isolation: ``"bubblewrap"`` and ``"rlimits"`` are used or refused; ``"auto"`` takes the first of them
            that this machine offers and warns where it isn't the first.
        workers: programs run at a time; ``None``: one for each CPU that this process may use.
        reward: ``"all"``: 1 where every test passes, else 0, and the first failure ends the sample;
            ``"fraction"``: passed tests over all tests.
        cpu_seconds: CPU time for one test.
        sample_cpu_seconds: CPU time for all tests of one sample together.
        wall_factor: wall time allowed is ``wall_seconds + wall_factor`` x the CPU time allowed, for a test and
            for a sample; generous, so that a busy machine changes no verdict.
        wall_seconds: see ``wall_factor``.
        memory_mb: MiB that a program may map on top of the bare interpreter.
        output_mb: MiB that a program may print, or return.
        file_mb: MiB for the files in a program's private /tmp.
        open_files: file descriptors of a program.
        threads: threads of a program, where the user it runs as allows counting them.
        float_tolerance: allowed difference, absolute and relative, where the expected number is written as a
            float; a ``tolerance`` in the test or in the problem's ``meta`` overrides it, for integers too.
        prelude: give stdin and function programs the imports and the recursion limit that LiveCodeBench gives.
        packages: third-party packages that programs may import, of those installed beside this one.
        retries: further tries after a fault of the harness, before a sample is unscorable.
        canary_every: samples between two runs of programs whose results are known.
    """

    isolation: Isolation = "auto"
    workers: int | None = Field(default=None, ge=1)
    reward: Literal["all", "fraction"] = "all"
    cpu_seconds: float = Field(default=10.0, gt=0)
    sample_cpu_seconds: float = Field(default=60.0, gt=0)
    wall_factor: float = Field(default=3.0, ge=1)
    wall_seconds: float = Field(default=10.0, ge=0)
    memory_mb: int = Field(default=1024, ge=16)
    output_mb: float = Field(default=16.0, gt=0)
    file_mb: int = Field(default=16, ge=1)
    open_files: int = Field(default=64, ge=16)
    threads: int = Field(default=64, ge=1)
    float_tolerance: float = Field(default=1e-6, ge=0)
    prelude: bool = True
    packages: tuple[str, ...] = ("numpy",)
    retries: int = Field(default=2, ge=0)
    canary_every: int = Field(default=1000, ge=1)

    @model_validator(mode="after")
    def _sample_covers_a_test(self) -> "CodeConfig":
        if self.sample_cpu_seconds < self.cpu_seconds:
            raise ValueError(
                f"expected sample_cpu_seconds of at least cpu_seconds ({self.cpu_seconds}), "
                f"got {self.sample_cpu_seconds}; raise one or lower the other"
            )
        return self
