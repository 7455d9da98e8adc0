"""Figures and the report, drawn from a run directory alone."""
