"""Comparisons of methods and settings over several seeds."""

from archer.experiments.running import Run, plan, run_study
from archer.experiments.tables import StudyResult, collect, write_study

__all__ = ["Run", "StudyResult", "collect", "plan", "run_study", "write_study"]
