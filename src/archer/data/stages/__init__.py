"""The stages of a build: each a pure function from a file of problems to one outcome a problem."""

from collections.abc import Callable, Mapping

from archer.data.outcomes import StageResult
from archer.data.stages.checks import checks
from archer.data.stages.decontaminate import decontaminate
from archer.data.stages.difficulty import difficulty
from archer.data.stages.duplicates import exact_duplicates, ngram_duplicates
from archer.data.stages.standardise import standardise

STAGES: Mapping[str, Callable[..., StageResult]] = {
    "checks": checks,
    "exact-duplicates": exact_duplicates,
    "ngram-duplicates": ngram_duplicates,
    "decontaminate": decontaminate,
    "difficulty": difficulty,
    "standardise": standardise,
}
"""Kind of a stage configuration to the function that runs it."""

__all__ = ["STAGES"]
