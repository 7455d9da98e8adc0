"""Benchmarks: what ships, what is loaded, what is refused."""

import json
from concurrent.futures import wait

import pytest

from archer.configs.benchmark import BenchmarkConfig, BenchmarksConfig
from archer.configs.loading import load_config
from archer.data.adapters import ADAPTERS
from archer.data.rows import Row
from archer.errors import DataError
from archer.evaluation.benchmarks import load_benchmark
from archer.rewards import build_scorer

SHIPPED = load_config(BenchmarksConfig, "benchmarks")
PAPER_K = {"aime24": 64, "aime25": 64, "amc23": 64, "math500": 4, "olympiadbench": 4, "minerva": 8} | {
    "lcb-v5": 8,
    "lcb-v6": 16,
}
ROWS = {"aime24": 30, "aime25": 30, "amc23": 40, "math500": 500, "olympiadbench": 675, "gsm8k": 1319} | {
    "humaneval": 164,
    "mbpp": 427,
}


def test_the_paper_decides_k_and_sampling():
    suites = [name for suite in ("paper-math", "paper-code") for name in SHIPPED.suites[suite]]
    assert set(suites) == set(PAPER_K)
    for name in suites:
        benchmark = SHIPPED.benchmarks[name]
        assert benchmark.k == PAPER_K[name]
        sampling = benchmark.sampling
        assert (sampling.temperature, sampling.top_p, sampling.max_response_tokens) == (0.8, 1.0, 32768)


@pytest.mark.parametrize("name", ROWS)
def test_every_row_of_a_real_benchmark_is_loaded_and_asked_with_the_template(name, shared_data):
    benchmark = SHIPPED.benchmarks[name]
    folder = shared_data(benchmark.file).parent
    problems = load_benchmark(name, benchmark, folder)
    assert len(problems) == ROWS[name]
    assert len({problem.id for problem in problems}) == ROWS[name]
    before, after = benchmark.template.split("{prompt}")
    assert all(p.prompt.startswith(before) and p.prompt.endswith(after) for p in problems)


@pytest.mark.parametrize("name", ["aime24", "amc23", "gsm8k"])
def test_gold_answers_of_a_real_benchmark_grade_correct(name, shared_data):
    benchmark = SHIPPED.benchmarks[name]
    problems = load_benchmark(name, benchmark, shared_data(benchmark.file).parent)[:30]
    with build_scorer(benchmark.reward) as scorer:
        futures = [scorer.submit(p, f"So the answer is \\boxed{{{p.answer}}}.") for p in problems]
        wait(futures)
        assert {future.result().status for future in futures} == {"correct"}


def test_humaneval_programs_may_leave_out_what_the_prompt_holds(shared_data):
    benchmark = SHIPPED.benchmarks["humaneval"]
    problems = {p.id: p for p in load_benchmark("humaneval", benchmark, shared_data(benchmark.file).parent)}
    typed, helper = problems["HumanEval/0"], problems["HumanEval/38"]
    assert typed.tests[0]["setup"] == "from typing import List\n\n\n"
    assert "def encode_cyclic" in helper.tests[0]["setup"]
    assert "def decode_cyclic" not in helper.tests[0]["setup"]
    function = typed.meta["reference"].split("from typing import List")[1]
    with build_scorer(benchmark.reward) as scorer:
        verdict = scorer.submit(typed, f"```python\n{function}\n```").result()
    assert verdict.status == "correct", verdict.reason


def lcb_file(tmp_path, days):
    rows = [
        {"id": f"p{i}", "prompt": "Add.", "tests": [{"type": "stdin", "input": "1", "output": "1"}],
         "meta": {"contest_date": day}}
        for i, day in enumerate(days)
    ]  # fmt: skip
    path = tmp_path / "livecodebench.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_windows_by_contest_date_include_their_ends(tmp_path):
    lcb_file(
        tmp_path,
        ["2024-07-31", "2024-08-01T08:00:00", "2025-02-01", "2025-02-02", "2025-05-01", "2025-05-02"],
    )
    ids = {
        name: [p.id for p in load_benchmark(name, SHIPPED.benchmarks[name], tmp_path)]
        for name in ("lcb-v5", "lcb-v6")
    }
    assert ids == {"lcb-v5": ["p1", "p2"], "lcb-v6": ["p2", "p3", "p4"]}


def test_a_problem_without_a_date_and_an_empty_window_are_errors(tmp_path):
    lcb_file(tmp_path, [""])
    with pytest.raises(
        DataError, match=r"problem p0: expected a day such as 2024-08-01 in meta\.contest_date, found ''"
    ):
        load_benchmark("lcb-v5", SHIPPED.benchmarks["lcb-v5"], tmp_path)
    lcb_file(tmp_path, ["2020-01-01"])
    with pytest.raises(DataError, match="between 2024-08-01 and 2025-02-01, found none"):
        load_benchmark("lcb-v5", SHIPPED.benchmarks["lcb-v5"], tmp_path)


def test_a_missing_file_without_a_hub_says_where_it_was_looked_for(tmp_path):
    own = BenchmarkConfig(title="Own", file="own.jsonl")
    with pytest.raises(DataError, match=r"own.jsonl, found none; give its folder with --data-folder"):
        load_benchmark("own", own, tmp_path)
    with pytest.raises(ValueError, match="one of file, path and hub"):
        BenchmarkConfig(title="Nothing")


def test_hub_rows_of_humaneval_and_mbpp():
    humaneval = ADAPTERS["humaneval"](
        Row(
            {
                "task_id": "HumanEval/1",
                "prompt": "import math\n\ndef f(x):\n    '''Doubles.'''\n",
                "entry_point": "f",
                "test": "def check(candidate):\n    assert candidate(2) == 4\n",
            },
            1,
            "row 1",
        )
    )
    (test,) = humaneval.tests
    assert humaneval.id == "HumanEval/1"
    assert test["setup"] == "import math\n\n"
    assert test["code"].endswith("check(f)\n")
    mbpp = ADAPTERS["mbpp"](
        Row(
            {
                "task_id": 2,
                "prompt": "Double it.",
                "test_list": ["assert f(1) == 2"],
                "test_imports": ["import re"],
            },
            1,
            "row 1",
        )
    )
    assert mbpp.tests == ({"type": "assert", "setup": "import re", "code": "assert f(1) == 2"},)
    assert mbpp.prompt.endswith("Your code should pass these tests:\n\nassert f(1) == 2")
