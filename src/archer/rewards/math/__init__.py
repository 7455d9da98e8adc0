"""The maths grader. ``docs/GRADING.md`` states its rules."""

from archer.rewards.math.extract import Extraction, extract, well_formed
from archer.rewards.math.grade import check_gold, grade, grade_answer

__all__ = ["Extraction", "check_gold", "extract", "grade", "grade_answer", "well_formed"]
