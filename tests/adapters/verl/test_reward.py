"""Archer's graders behind verl's reward function."""

import json
import math

import pyarrow.parquet
import pytest

from archer.adapters.verl import reward
from archer.configs.data import DataConfig
from archer.data import load_problems
from archer.data.export import export
from archer.data.records import dumps, to_json
from archer.errors import ConfigError, DataError


@pytest.fixture(autouse=True, scope="module")
def closed_scorers():
    yield
    for scorer in reward._scorers.values():
        scorer.close()
    reward._scorers.clear()


def test_a_row_of_ones_own_is_graded_as_maths():
    right = reward.compute_score(
        "mine", r"so \boxed{\frac{1}{2}}", "0.5", {"index": 3}, kind="math", workers=1
    )
    wrong = reward.compute_score("mine", r"so \boxed{3}", "0.5", None, kind="math", workers=1)
    assert right == {"score": 1.0, "acc": 1.0, "unscorable": 0.0}
    assert wrong["score"] == 0.0


def test_what_cannot_be_graded_is_not_zero():
    found = reward.compute_score("mine", r"\boxed{1}", r"\frac{", None, kind="math", workers=1)
    assert math.isnan(found["score"])
    assert found["unscorable"] == 1.0


def test_code_runs_in_the_sandbox():
    tests = json.dumps([{"type": "stdin", "input": "2\n", "output": "4\n"}])
    program = "```python\nprint(int(input()) * 2)\n```"
    settings = {"kind": "code", "workers": 1, "code": {"isolation": "auto"}}
    assert reward.compute_score("c", program, tests, {"domain": "code"}, **settings)["score"] == 1.0
    broken = program.replace("* 2", "* 3")
    assert reward.compute_score("c", broken, tests, {"domain": "code"}, **settings)["score"] == 0.0
    with pytest.raises(DataError, match="ground_truth"):
        reward.compute_score("c", program, "no tests", {"domain": "code"}, **settings)


def test_exported_rows_hold_what_their_grader_needs(tmp_path):
    config = DataConfig(source="procedural", tasks={"chain_sum": {"min_terms": 2, "max_terms": 2}}, size=3)
    problems = load_problems(config)
    rows = pyarrow.parquet.read_table(export(problems, "verl", tmp_path)).to_pylist()
    for row, problem in zip(rows, problems, strict=True):
        truth = row["reward_model"]["ground_truth"]
        found = reward.problem_of(row["data_source"], truth, row["extra_info"])
        assert dumps(to_json(found)) == dumps(to_json(problem))
    first = rows[0]
    found = reward.compute_score(
        first["data_source"],
        f"<answer>{problems[0].answer}</answer>",
        first["reward_model"]["ground_truth"],
        first["extra_info"],
        kind="procedural",
        workers=1,
    )
    assert found["score"] == 1.0


def test_a_wrong_setting_is_named():
    with pytest.raises(ConfigError, match="worker"):
        reward.compute_score("mine", "", "1", None, worker=3)
