"""Graders and scorers: from a response's text to a verdict.

Importing this package loads neither a framework nor a computer algebra system: those live in worker
processes.
"""

from archer.rewards.scorer import Scorer, build_scorer

__all__ = ["Scorer", "build_scorer"]
