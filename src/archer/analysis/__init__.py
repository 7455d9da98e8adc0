"""Figures and the report, drawn from a run directory alone."""

from archer.analysis.figures import write_figures
from archer.analysis.records import Run, load_run
from archer.analysis.report import write_report
from archer.analysis.statistics import repetition
from archer.analysis.terminal import watch

__all__ = ["Run", "load_run", "repetition", "watch", "write_figures", "write_report"]
