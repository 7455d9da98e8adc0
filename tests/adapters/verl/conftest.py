"""verl on this machine's CPU. Its tests run where verl is installed, which is an environment of its own."""

import importlib.util
import os
import socket
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
sys.path.insert(0, str(SUPPORT))
WITHOUT_VERL = (
    "verl is not installed in this environment; make its own with tests/adapters/verl/make_env.sh FOLDER "
    "and run FOLDER/bin/python -m pytest tests/adapters/verl"
)
CPU_ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "verl_cpu",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "GLOO_SOCKET_IFNAME": "lo",
}


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@pytest.fixture(scope="session")
def verl_on_cpu():
    """verl imported with the CPU as its platform; skips where it is not installed."""
    if importlib.util.find_spec("verl") is None:
        pytest.skip(WITHOUT_VERL)
    os.environ.update(CPU_ENVIRONMENT)
    import verl

    return verl


@pytest.fixture(scope="session")
def one_process(verl_on_cpu):
    """A process group of this process alone."""
    os.environ.update(
        WORLD_SIZE="1",
        RANK="0",
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="1",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()),
    )
    return verl_on_cpu
