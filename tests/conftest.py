"""Shared fixtures."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Path of a real data file by name; skips the test where the file is not on this machine."""
    folder = Path(os.environ.get("ARCHER_SHARED_DATA", ROOT.parent / "shared" / "data"))

    def path_of(name: str) -> Path:
        path = folder / name
        if not path.exists():
            pytest.skip(f"real data file {name} is not on this machine (set ARCHER_SHARED_DATA)")
        return path

    return path_of
