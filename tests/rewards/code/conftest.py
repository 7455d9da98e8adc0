"""Runners for the tests of the code sandbox, one an isolation level, shared by all tests of a session."""

import shutil
import warnings

import pytest

from archer.configs.code import CodeConfig
from archer.errors import IsolationError
from archer.rewards.code import CodeRunner

# Small limits: what these tests run must not be felt by anything else on the machine.
SETTINGS = {
    "workers": 2,
    "cpu_seconds": 1.0,
    "sample_cpu_seconds": 4.0,
    "wall_seconds": 1.0,
    "wall_factor": 3.0,
    "memory_mb": 256,
    "output_mb": 1.0,
    "file_mb": 4,
}


def make_runner(level, **changes):
    if level == "bubblewrap" and not shutil.which("bwrap"):
        pytest.skip("bwrap isn't installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return CodeRunner(CodeConfig(isolation=level, **{**SETTINGS, **changes}))
        except IsolationError as error:
            pytest.skip(f"this machine can't isolate with {level}: {error}")


@pytest.fixture(scope="session", params=["bubblewrap", "rlimits"])
def runner(request):
    with make_runner(request.param) as made:
        yield made


@pytest.fixture(scope="session")
def best_runner():
    with make_runner("auto") as made:
        yield made
