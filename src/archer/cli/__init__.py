"""The ``archer`` command: parse, build, call. One module a family of commands."""

from archer.cli import comparing, data, doctor, evaluating, reporting, training, verl
from archer.cli.app import run

__all__ = ["comparing", "data", "doctor", "evaluating", "main", "reporting", "training", "verl"]


def main() -> None:
    """Entry point of the ``archer`` command."""
    run()
