"""Each row form of the field becomes the one schema."""

import base64
import json
import os
import pickle
import zlib

import pytest

from archer.data.adapters import ADAPTERS
from archer.data.rows import Row
from archer.errors import DataError
from archer.types import Problem


def adapt(form, **values):
    return ADAPTERS[form](Row(values, 3, "rows.jsonl, line 3"))


def stdin(given, wanted):
    return {"type": "stdin", "input": given, "output": wanted}


def function(name, given, wanted):
    return {"type": "functional", "fn_name": name, "input": given, "output": wanted}


DAPO = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\nWhat is 1+1?\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)


def chat(text):
    return [{"role": "user", "content": text}]


MATHS = {
    "gsm8k": (
        {"question": "1000+1?", "answer": "Add <<1000+1=1001>>.\n#### 1,001"},
        Problem("", "1000+1?", "1001"),
    ),
    "math, solution only": (
        {
            "problem": "P",
            "solution": r"First \boxed{1}. Then it is $\boxed{\frac{1}{2}}$.",
            "level": "Level 5",
            "type": "Algebra",
        },
        Problem("", "P", r"\frac{1}{2}", meta={"level": "Level 5", "type": "Algebra"}),
    ),
    "math, answer": (
        {"problem": "P", "answer": "7", "solution": "", "unique_id": "u/1", "level": 2},
        Problem("u/1", "P", "7", meta={"level": 2}),
    ),
    "deepscaler": ({"problem": "P", "answer": "-3", "solution": "S"}, Problem("", "P", "-3")),
    "big-math": (
        {"problem": "P", "answer": "5", "source": "orca", "domain": ["Algebra"], "llama8b_solve_rate": 0.5},
        Problem("", "P", "5", meta={"origin": "orca", "domain": ["Algebra"], "llama8b_solve_rate": 0.5}),
    ),
    "dapo-math": (
        {
            "data_source": "math_dapo",
            "prompt": chat(DAPO),
            "ability": "MATH",
            "reward_model": {"ground_truth": "2", "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": "abc"},
        },
        Problem("abc", "What is 1+1?", "2", meta={"data_source": "math_dapo"}),
    ),
    "dapo-math, processed": (
        {"prompt": "What is 1+1?", "solution": "2", "data_source": "math_dapo"},
        Problem("", "What is 1+1?", "2", meta={"data_source": "math_dapo"}),
    ),
    "skywork-or1": (
        {
            "data_source": "train-math-x",
            "prompt": chat("What is 1+1?"),
            "ability": "math",
            "reward_model": {"ground_truth": '["2"]', "style": "rule"},
            "extra_info": {"index": 4, "model_difficulty": {"7B": 3}},
        },
        Problem(
            "4", "What is 1+1?", "2", meta={"data_source": "train-math-x", "model_difficulty": {"7B": 3}}
        ),
    ),
    "verl": (
        {
            "data_source": "s",
            "prompt": chat("P Let's think step by step and output the final answer within \\boxed{}."),
            "ability": "math",
            "reward_model": {"ground_truth": 4.0},
        },
        Problem("", "P", "4", meta={"data_source": "s"}),
    ),
    "trl": ({"prompt": chat("P"), "solution": r"so $\boxed{9}$"}, Problem("", "P", "9")),
    "trl, number": ({"prompt": "P", "answer": 42}, Problem("", "P", "42")),
}


@pytest.mark.parametrize("case", MATHS)
def test_maths_rows(case):
    row, problem = MATHS[case]
    assert adapt(case.split(",")[0], **row) == problem


def test_an_interval_is_no_list_of_answers():
    assert adapt("deepscaler", problem="P", answer="[1,2)").answer == "[1,2)"
    assert adapt("deepscaler", problem="P", answer=r"[\frac12, 3]").answer == r"[\frac12, 3]"


CODE = {
    "deepcoder, primeintellect": (
        {"problem": "P", "tests": json.dumps([{"type": "stdin_stdout", "input": "1\n", "output": "2\n"}])},
        [stdin("1\n", "2\n")],
    ),
    "deepcoder, function": (
        {
            "problem": "P",
            "tests": json.dumps(
                [{"type": "function_call", "fn_name": "f", "input": [[1], 2], "output": [[3]]}]
            ),
        },
        [function("f", "[1]\n2", "[3]")],
    ),
    "deepcoder, taco": (
        {"problem": "P", "tests": json.dumps({"inputs": ["1", ["2", "3"]], "outputs": ["4", ["5"]]})},
        [stdin("1", "4"), stdin("2\n3", "5")],
    ),
    "deepcoder, lcb": (
        {
            "problem": "P",
            "tests": json.dumps(
                [{"input": "[1]\n2", "output": "3", "testtype": "functional", "metadata": {"func_name": "g"}}]
            ),
        },
        [function("g", "[1]\n2", "3")],
    ),
    "code-contests": (
        {
            "name": "1_A. X",
            "description": "P",
            "public_tests": {"input": ["1"], "output": ["2"]},
            "private_tests": {"input": ["3"], "output": ["4"]},
            "generated_tests": {"input": [], "output": []},
            "input_file": "",
            "output_file": "",
        },
        [stdin("1", "2"), stdin("3", "4")],
    ),
    "apps": (
        {"question": "P", "input_output": json.dumps({"inputs": ["1"], "outputs": ["2"]}), "problem_id": 7},
        [stdin("1", "2")],
    ),
    "apps, function": (
        {
            "question": "P",
            "input_output": json.dumps(
                {"fn_name": "f", "inputs": [["a", 1], ["b", 2]], "outputs": [[True], [False]]}
            ),
        },
        [function("f", '"a"\n1', "true"), function("f", '"b"\n2', "false")],
    ),
    "apps, list outputs": (
        {
            "question": "P",
            "input_output": json.dumps({"fn_name": "f", "inputs": [[1], [2]], "outputs": [[1], [1, 2]]}),
        },
        [function("f", "1", "[1]"), function("f", "2", "[1, 2]")],
    ),
    "taco": (
        {
            "question": "P",
            "input_output": json.dumps({"inputs": ["1"], "outputs": ["2"]}),
            "picture_num": "1",
        },
        [stdin("1", "2")],
    ),
    "skywork-or1, stdin": (
        {
            "prompt": chat("P"),
            "ability": "code",
            "reward_model": {"ground_truth": json.dumps({"inputs": ["1"], "outputs": ["2"]})},
        },
        [stdin("1", "2")],
    ),
    "skywork-or1, asserts": (
        {
            "prompt": chat("P"),
            "ability": "code",
            "reward_model": {"ground_truth": json.dumps({"assert_case": ["assert f(1) == 2"]})},
        },
        [{"type": "assert", "code": "assert f(1) == 2"}],
    ),
    "leetcode": (
        {
            "task_id": "two-sum",
            "problem_description": "P",
            "prompt": "from typing import *\n",
            "entry_point": "Solution().twoSum",
            "test": "def check(candidate):\n    assert candidate(nums = [3,3],target = 6) == [0, 1]\n"
            "    assert candidate(nums = [2,7],target = 9) == [0, 1]\n",
        },
        [
            {
                "type": "assert",
                "setup": "from typing import *\n",
                "code": f"candidate = Solution().twoSum\nassert candidate(nums={n}, target={t}) == [0, 1]",
            }
            for n, t in (([3, 3], 6), ([2, 7], 9))
        ],
    ),
    "verl": (
        {
            "prompt": chat("P"),
            "ability": "coding",
            "reward_model": {"ground_truth": json.dumps([{"type": "stdin", "input": "1", "output": "2"}])},
        },
        [stdin("1", "2")],
    ),
    "trl": ({"prompt": "P", "tests": [{"input": "1", "output": "2"}]}, [stdin("1", "2")]),
}


@pytest.mark.parametrize("case", CODE)
def test_code_rows(case):
    row, tests = CODE[case]
    problem = adapt(case.split(",")[0], **row)
    assert (problem.prompt, problem.answer, problem.domain) == ("P", None, "code")
    assert list(problem.tests) == tests


def test_codeforces_statement_tests_and_marks():
    problem = adapt(
        "codeforces",
        id="1/A",
        description="D",
        input_format="I",
        output_format="O",
        note="N",
        examples=[{"input": "1", "output": "2"}],
        official_tests=[{"input": "1\n", "output": "2\n"}, {"input": "3\n", "output": "4\n"}],
        interaction_format=None,
        generated_checker="code",
        input_mode="stdio",
    )
    assert problem.prompt == "D\n\nInput\n\nI\n\nOutput\n\nO\n\nExample\n\nInput\n1\n\nOutput\n2\n\nNote\n\nN"
    assert list(problem.tests) == [stdin("1\n", "2\n"), stdin("3\n", "4\n")]
    assert (problem.id, problem.meta) == ("1/A", {"interactive": False, "many_answers": True})


def test_livecodebench_packed_tests():
    private = [{"input": "2", "output": "3", "testtype": "functional"}]
    packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(private)))).decode()
    row = {
        "question_content": "P",
        "question_id": "q1",
        "public_test_cases": json.dumps([{"input": "1", "output": "2", "testtype": "functional"}]),
        "metadata": json.dumps({"func_name": "f"}),
        "starter_code": "class Solution: ...",
        "contest_date": "2024-08-01T00:00:00",
    }
    for stored in (packed, json.dumps(private)):
        problem = adapt("livecodebench", private_test_cases=stored, **row)
        assert list(problem.tests) == [function("f", "1", "2"), function("f", "2", "3")]
    assert problem.meta == {"contest_date": "2024-08-01T00:00:00", "starter_code": "class Solution: ..."}


class _Bomb:
    def __reduce__(self):
        return (os.mkdir, ("bomb",))


def test_packed_tests_can_not_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packed = base64.b64encode(zlib.compress(pickle.dumps(_Bomb()))).decode()
    with pytest.raises(DataError, match="mkdir is not allowed here"):
        adapt("livecodebench", question_content="P", public_test_cases="[]", private_test_cases=packed)
    assert not (tmp_path / "bomb").exists()


@pytest.mark.parametrize(
    ("form", "row", "message"),
    [
        ("gsm8k", {"question": "P", "answer": "5"}, "line 3, field 'answer': expected an answer after ####"),
        ("math", {"problem": "P", "solution": "no box"}, r"expected an answer in \\boxed"),
        ("deepscaler", {"problem": "P"}, "field 'answer': expected a value .row has problem."),
        ("deepscaler", {"problem": "P", "answer": True}, "'answer': expected an answer as text or number"),
        ("deepscaler", {"problem": " ", "answer": "1"}, "field 'problem': expected text"),
        ("skywork-or1", {"prompt": "P", "reward_model": {"ground_truth": '["1", "2"]'}}, "one answer a row"),
        ("apps", {"question": "P", "input_output": '{"inputs": ["1"], "outputs": []}'}, "as many outputs as"),
        ("apps", {"question": "P", "input_output": "{"}, "field 'input_output': expected JSON"),
        ("apps", {"question": "P", "input_output": "[]"}, "expected at least one test"),
        ("apps", {"question": "P", "input_output": "3"}, "expected tests in a known shape"),
        ("trl", {"prompt": "P", "tests": [{"input": "1"}]}, r"'tests\[0\]': expected a test with input"),
        (
            "trl",
            {"prompt": "P", "tests": [{"type": "x", "input": "1", "output": "1"}]},
            "stdin or functional",
        ),
        ("code-contests", {"description": "P", "input_file": "in"}, "a program that reads standard input"),
        ("codeforces", {"description": "P", "input_mode": "file"}, "field 'input_mode': expected stdio"),
        ("leetcode", {"problem_description": "P", "test": "x = (", "entry_point": "f"}, "expected Python"),
        ("leetcode", {"problem_description": "P", "test": "x = 1", "entry_point": "f"}, "a function `check`"),
        (
            "dapo-math",
            {"prompt": chat(DAPO.replace("What is 1+1?", ""))},
            "a problem beside the instructions",
        ),
    ],
)
def test_rows_of_another_shape_are_refused(form, row, message):
    with pytest.raises(DataError, match=message):
        adapt(form, **row)


def test_a_check_with_state_stays_one_test():
    script = "def check(candidate):\n    x = 1\n    assert candidate(x) == 2\n"
    problem = adapt("leetcode", problem_description="P", test=script, entry_point="f")
    assert list(problem.tests) == [{"type": "assert", "code": script + "\ncheck(f)"}]
