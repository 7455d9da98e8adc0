"""The ``archer`` command: parse, build, call. One module a family of commands."""

from archer.cli import data, doctor, evaluating, reporting, training
from archer.cli.app import run

__all__ = ["data", "doctor", "evaluating", "main", "reporting", "training"]


def main() -> None:
    """Entry point of the ``archer`` command."""
    run()
