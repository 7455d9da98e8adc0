"""The stages that look at one problem at a time, decontamination and the difficulty filters."""

import json
from fractions import Fraction

import pytest

from archer.configs.data_recipe import (
    ChecksStage,
    DecontaminateStage,
    DifficultyStage,
    SamplerConfig,
    StandardiseStage,
)
from archer.data.records import dumps, to_json
from archer.data.stages.examples import shown_tests
from archer.errors import DataError
from archer.types import Problem

STDIN = [{"type": "stdin", "input": f"{i}\n", "output": f"{i + 1}\n"} for i in range(10, 20)]


def code(prompt="Add one.", tests=STDIN, **meta):
    return Problem("c", prompt, None, tuple(tests), "code", meta=meta)


def reason_of(outcomes):
    (outcome,) = outcomes
    return outcome.reason


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Problem("a", "What is 1+1?", "2"), ""),
        (Problem("a", "What is 1+1?", None), "unusable gold answer"),
        (Problem("a", "What is 1+1?", " "), "unusable gold answer"),
        (Problem("a", "Show that 1+1=2.", "See the proof."), "unusable gold answer"),
        (Problem("a", "How many are left?", "none"), ""),
        (Problem("a", "What\x07 is 1+1?", "2"), "control character"),
        (Problem("a", "What is 1+1?", "2\ufffd"), "control character"),
        (Problem("a", "What is\ud800 1+1?", "2"), "control character"),
        (Problem("a", "Tabs\tand\r\nlines", "2"), ""),
        (Problem("a", "In the diagram, find x.", "2"), "missing image"),
        (Problem("a", "Find x. ![](x.png)", "2"), "missing image"),
        (Problem("a", "The graph shown below crosses", "2"), "missing image"),
        (Problem("a", "In the diagram, [asy] draw(a); [/asy] find x.", "2"), ""),
        (Problem("a", "A line in the drawing of a map is 4 cm long", "2"), ""),
        (code(picture_num="2"), "missing image"),
        (code(picture_num="0"), ""),
        (code(tests=STDIN[:4]), "under 5 tests"),
        (code(tests=STDIN[:5]), ""),
    ],
)
def test_checks(run_stage, problem, reason):
    assert reason_of(run_stage(ChecksStage(), [problem])) == reason


def test_checks_can_flag_or_be_off(run_stage):
    problem = Problem("a", "In the diagram, find x.", "2")
    (flagged,) = run_stage(ChecksStage(missing_images="flag"), [problem])
    assert flagged.problem.meta["flags"] == ["missing image"]
    assert [note["kind"] for note in flagged.notes] == ["flagged: missing image"]
    (off,) = run_stage(ChecksStage(missing_images="off"), [problem])
    assert (off.problem, off.reason, list(off.notes)) == (problem, "", [])


@pytest.mark.parametrize(
    ("problem", "flags"),
    [
        (code("This is an interactive problem."), ["interactive"]),
        (code("Remember to flush the output."), ["interactive"]),
        (code(interactive=True), ["interactive"]),
        (code("If there are multiple answers, print any."), ["many answers"]),
        (code("Print the numbers in any order."), ["many answers"]),
        (code("You can swap them in any order. Print the sum."), None),
        (code(many_answers=True), ["many answers"]),
        (Problem("a", "If there are several solutions, add them.", "3"), None),
    ],
)
def test_interactive_and_many_answer_problems_are_flagged(run_stage, problem, flags):
    (outcome,) = run_stage(ChecksStage(), [problem])
    assert outcome.reason == ""
    assert outcome.problem.meta.get("flags") == flags


STATEMENTS = {
    "codeforces": (
        "Input\n\nOne number n.\n\nOutput\n\nn + 1\n\n"
        "Example\n\nInput\n\n\n11\n\n\nOutput\n\n\n12\n\nNote\n\nEasy.",
        1,
    ),
    "dashes": (
        "-----Input-----\nn\n-----Output-----\nm\n-----Examples-----\n"
        "Input\n10\n\nOutput\n11\n\nInput\n12\n\nOutput\n13\n",
        2,
    ),
    "sample": ("Sample Input 1:\n```\n13\n```\nSample Output 1:\n```\n14\n```\n", 1),
    "rounded output": ("Example\n\nInput\n14\n\nOutput\n15.000\n\nTime Limit: 2 seconds", 1),
    "none": ("Read 10 and print 11.", 0),
    "input without output": ("Input\n10\n", 0),
}


@pytest.mark.parametrize("form", STATEMENTS)
def test_shown_programs_are_found(form):
    statement, count = STATEMENTS[form]
    assert sum(shown_tests(statement, STDIN)) == count


def test_shown_functions_and_asserts_are_found():
    statement = "Example 1:\n\nInput: nums = [4, 4], target = 2\nOutput: 3\nExplanation: x\n\n"
    statement += 'Input: s = "a b"\nOutput: 1'
    tests = [
        {"type": "functional", "fn_name": "f", "input": "[4,4]\n2", "output": "3"},
        {"type": "functional", "fn_name": "f", "input": '"a b"', "output": "1"},
        {"type": "functional", "fn_name": "f", "input": "[4,4]\n3", "output": "3"},
    ]
    assert shown_tests(statement, tests) == [True, True, False]
    asserts = [{"type": "assert", "code": f"import math\nassert f({i}) == 1"} for i in (1, 2)]
    assert shown_tests("Pass these:\n\nassert f(1)  == 1", asserts) == [True, False]


def test_shown_tests_are_removed_before_tests_are_counted(run_stage):
    statement = "Example\n\nInput\n10\n\nOutput\n11\n"
    (outcome,) = run_stage(ChecksStage(min_tests=0), [code(statement)])
    assert [test["input"] for test in outcome.problem.tests] == [f"{i}\n" for i in range(11, 20)]
    assert outcome.notes == [{"kind": "shown tests removed", "removed": 1, "left": 9}]
    assert reason_of(run_stage(ChecksStage(), [code(statement, STDIN[:5])])) == "under 5 tests"
    assert reason_of(run_stage(ChecksStage(shown_tests="keep"), [code(statement, STDIN[:5])])) == ""


def test_tests_can_be_cut_to_a_number(run_stage):
    (outcome,) = run_stage(ChecksStage(max_tests=6), [code()])
    assert list(outcome.problem.tests) == STDIN[:6]
    assert outcome.notes == [{"kind": "tests cut", "removed": 4, "left": 6}]
    (whole,) = run_stage(ChecksStage(max_tests=10), [code()])
    assert (list(whole.problem.tests), list(whole.notes)) == (STDIN, [])


@pytest.fixture
def benchmark(tmp_path):
    problems = [
        Problem(
            "t1",
            "A train travels 270 miles in 3 hours. How far does it travel in 5 hours at that rate?",
            "450",
        ),
        Problem("t2", "Find x.", "1"),
    ]
    path = tmp_path / "bench.jsonl"
    path.write_bytes(b"".join(dumps(to_json(problem)) for problem in problems))
    return {"bench": {"form": "archer", "path": str(path)}}


@pytest.mark.parametrize(
    ("prompt", "reason", "near"),
    [
        (
            "A train travels 270 miles in 3 hours. How far does it travel in 5 hours at that rate?",
            "in bench",
            False,
        ),
        (
            "Tom rode. a TRAIN travels $270$ miles in 3 hours; how far does it travel in 5 hours",
            "in bench",
            False,
        ),
        ("A train travels 360 miles in 4 hours. How far does it travel in 7 hours at that rate?", "", True),
        (
            "A boat sails 270 miles in 3 hours. How long does it need for 90 miles with half the speed?",
            "",
            False,
        ),
        ("find x", "in bench", False),
        ("Find x. It is the sum of the roots of a polynomial of degree three.", "", False),
    ],
)
def test_decontamination(run_stage, benchmark, prompt, reason, near):
    (outcome,) = run_stage(DecontaminateStage(), [Problem("a", prompt, "1")], benchmarks=benchmark)
    assert outcome.reason == reason
    assert [note["kind"] for note in outcome.notes] == (["near bench"] if near else [])
    if near:
        assert (outcome.notes[0]["id"], outcome.notes[0]["share"]) == ("bench/1", 1.0)


def test_near_matches_can_be_dropped_or_ignored(run_stage, benchmark):
    near = Problem(
        "a", "A train travels 360 miles in 4 hours. How far does it travel in 7 hours at that rate?", "1"
    )
    (dropped,) = run_stage(DecontaminateStage(near="drop"), [near], benchmarks=benchmark)
    assert (dropped.reason, dropped.detail) == ("near bench", "bench/1 with other numbers")
    (ignored,) = run_stage(DecontaminateStage(near="off"), [near], benchmarks=benchmark)
    assert (ignored.reason, list(ignored.notes)) == ("", [])


def test_an_unusable_benchmark_row_stops_decontamination(run_stage, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt": "p", "answer": null}\n')
    bad = {"bad": {"form": "archer", "path": str(path)}}
    with pytest.raises(DataError, match="line 1, field 'answer'"):
        run_stage(DecontaminateStage(), [Problem("a", "p", "1")], benchmarks=bad)


def test_standardise_wraps_programs_and_functions(run_stage):
    stage = StandardiseStage(
        stdin_template="S: {prompt} .", function_template="{prompt}\n{fn_name}\n{starter_code}"
    )
    (program,) = run_stage(stage, [code("Add {braces}.")])
    assert (program.reason, program.problem.prompt) == ("", "S: Add {braces}. .")
    scripts = [f"candidate = Solution().add\nassert candidate(a=[{i}], b='x') == {i}" for i in range(5)]
    asserts = [{"type": "assert", "code": script} for script in scripts]
    (function,) = run_stage(stage, [code("Add.", asserts, starter_code="def add(a, b): ...")])
    assert function.problem.prompt == "Add.\nadd\ndef add(a, b): ..."
    assert function.problem.tests[3] == {
        "type": "functional",
        "fn_name": "add",
        "input": '[3]\n"x"',
        "output": "3",
    }
    (maths,) = run_stage(stage, [Problem("m", "1+1?", "2")])
    assert maths.problem == Problem("m", "1+1?", "2")


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        (["assert f(1) == 2", "assert f(2) == 3"], ""),
        (["assert f(1) == 2", "assert g(2) == 3"], "tests of several functions"),
        (["assert f(1) == 2", "assert f(x) == 3"], "assert tests"),
        (["assert f(1) == {1, 2}"], "assert tests"),
        (["assert f(1) == (1, 2)"], "assert tests"),
        (["assert f(1) == {1: 2}"], "assert tests"),
        (["assert f(1) is None"], "assert tests"),
        (["x = 1\nassert f(x) == 1"], "assert tests"),
        (["assert f("], "assert tests"),
    ],
)
def test_asserts_are_converted_only_where_nothing_is_lost(run_stage, tests, reason):
    problem = code(tests=[{"type": "assert", "code": test} for test in tests])
    assert reason_of(run_stage(StandardiseStage(), [problem])) == reason


def test_mixed_tests_are_dropped_and_asserts_can_be_kept(run_stage):
    mixed = [STDIN[0], {"type": "assert", "code": "assert f(x)"}]
    assert reason_of(run_stage(StandardiseStage(), [code(tests=mixed)])) == "tests of several forms"
    stage = StandardiseStage(forms=("assert",), convert_asserts=False)
    (kept,) = run_stage(stage, [code(tests=mixed[1:])])
    assert (kept.reason, kept.problem) == ("", code(tests=mixed[1:]))


class Sampler:
    """Solves problem k in a share of k/4 of its samples and counts what it is asked for."""

    def __init__(self, fingerprint="model-1"):
        self.fingerprint = fingerprint
        self.asked = []

    def sample_and_score(self, problems, samples, seed):
        self.asked.append([p.id for p in problems])
        return [self._scores(p, samples) for p in problems]

    def _scores(self, problem, samples):
        if problem.answer == "unscorable":
            return [None] * samples
        right = Fraction(problem.answer) * samples
        return [1.0 if i < right else 0.0 for i in range(samples)]


def problems_by_share(*shares):
    return [Problem(f"p{i}", f"prompt {i}", share) for i, share in enumerate(shares)]


def difficulty(**settings):
    return DifficultyStage(**{"sampler": SamplerConfig(model="m"), "drop": ["never", "always"]} | settings)


@pytest.mark.parametrize(
    ("drop", "expected"),
    [
        (["never", "always"], ["never solved", "", "", "always solved", "unscorable"]),
        (["never"], ["never solved", "", "", "", "unscorable"]),
    ],
)
def test_difficulty_drops_what_is_never_or_always_solved(run_stage, drop, expected):
    problems = problems_by_share("0", "1/8", "7/8", "1", "unscorable")
    outcomes = run_stage(difficulty(drop=drop), problems, lambda config: Sampler())
    assert [outcome.reason for outcome in outcomes] == expected
    assert outcomes[0].detail == "0 of 8 by m"


def test_scores_are_cached_by_problem_and_model(run_stage):
    problems = problems_by_share("0", "1/2", "1")
    first, again, other = Sampler(), Sampler(), Sampler("model-2")
    run_stage(difficulty(batch=2), problems[:2], lambda config: first)
    run_stage(difficulty(batch=2), problems, lambda config: again)
    run_stage(difficulty(batch=2), problems, lambda config: other)
    assert (first.asked, again.asked, other.asked) == ([["p0", "p1"]], [["p2"]], [["p0", "p1"], ["p2"]])
    run_stage(difficulty(batch=2, samples=4), problems, lambda config: again)
    run_stage(difficulty(batch=2, seed=1), problems, lambda config: again)
    assert again.asked[1:] == [["p0", "p1"], ["p2"]] * 2


def test_a_killed_difficulty_stage_continues_after_the_last_whole_line(run_stage, tmp_path):
    problems = problems_by_share("0", "1/2", "1")
    run_stage(difficulty(batch=1), problems, lambda config: Sampler())
    cache = tmp_path / "cache" / "scores.jsonl"
    lines = cache.read_bytes().splitlines(keepends=True)
    cache.write_bytes(b"".join(lines[:2]) + lines[2][:20])
    sampler = Sampler()
    outcomes = run_stage(difficulty(batch=1), problems, lambda config: sampler)
    assert sampler.asked == [["p2"]]
    assert [outcome.reason for outcome in outcomes] == ["never solved", "", "always solved"]
    assert [json.loads(line) for line in cache.read_bytes().splitlines()] == [
        json.loads(line) for line in lines
    ]


def test_a_sampler_that_returns_too_few_scores_is_refused(run_stage):
    class Short(Sampler):
        def sample_and_score(self, problems, samples, seed):
            return [[1.0]] * len(problems)

    with pytest.raises(DataError, match=r"expected 8 scores for each of 1 problems, found \[1\]"):
        run_stage(difficulty(), problems_by_share("1"), lambda config: Short())
