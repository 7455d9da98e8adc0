"""The maths grader."""
