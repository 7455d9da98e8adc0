"""What the tests of stages and builds share."""

import pytest

from archer.configs.data_recipe import DataRecipe
from archer.data.outcomes import StageContext
from archer.data.records import ProblemFile, dumps, to_json
from archer.data.stages import STAGES


@pytest.fixture
def problem_file(tmp_path):
    """Writes problems to a file that stages can read."""

    def write(problems, name="problems.jsonl"):
        path = tmp_path / name
        path.write_bytes(b"".join(dumps(to_json(problem)) for problem in problems))
        return ProblemFile(path)

    return write


@pytest.fixture
def run_stage(tmp_path, problem_file):
    """Runs one stage on problems and returns its outcomes."""

    def run(stage, problems, make_sampler=lambda config: None, benchmarks=None):
        sources = {"s": {"form": "archer", "path": "s.jsonl"}}
        recipe = DataRecipe.model_validate(
            {"name": "r", "sources": sources, "benchmarks": benchmarks or {}, "stages": {}}
        )
        context = StageContext(recipe, tmp_path, tmp_path / "cache", make_sampler)
        return list(STAGES[stage.kind](problem_file(problems), stage, context))

    return run
