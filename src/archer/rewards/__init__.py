"""Verdicts: the maths grader, the code runner, procedural tasks, custom functions."""
