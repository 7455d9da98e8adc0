"""Procedural problems: the generators' own scorers, and their eval() kept away from model text."""

import inspect
from pathlib import Path

import pytest
import reasoning_gym
from reasoning_gym.factory import DATASETS

from archer.configs.reward import RewardConfig
from archer.rewards import build_scorer
from archer.rewards.procedural import EVALUATING_TASKS, exact_match, is_plain_expression
from archer.types import Problem


def problems_of(task, n=2, **settings):
    data = reasoning_gym.create_dataset(task, seed=3, size=n, **settings)
    return [
        Problem(
            f"{task}-{i}",
            data[i]["question"],
            answer=data[i]["answer"],
            domain="procedural",
            meta={"task": task, "settings": settings, "entry": dict(data[i])},
        )
        for i in range(n)
    ]


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        ("12", "012", True),
        ("12", "+12", True),
        ("-0", "0", True),
        ("-12", "12", False),
        ("12", "12.0", False),
        ("12", "112", False),
        ("a b", " a  b ", True),
        ("ab", "a b", False),
        ("9" * 5000, "0" + "9" * 5000, True),
    ],
)
def test_exact_match(gold, answer, same):
    assert exact_match(gold, answer) is same


def test_the_generators_score_their_own_answers_1_and_others_0():
    problems = [
        *problems_of("chain_sum"),
        *problems_of("countdown"),
        *problems_of("spiral_matrix"),
        *problems_of("leg_counting"),
    ]
    answers = [
        p.answer if p.meta["task"] != "countdown" else p.meta["entry"]["metadata"]["expression"]
        for p in problems
    ]
    with build_scorer(RewardConfig(kind="procedural")) as scorer:
        right = scorer.score(problems, [f"<think>x</think><answer>{a}</answer>" for a in answers])
        wrong = scorer.score(problems, ["<answer>-77777</answer>"] * len(problems))
    assert [v.score for v in right] == [1.0] * len(problems)
    assert [v.score for v in wrong] == [0.0] * len(problems)


def test_partial_credit_is_kept_only_on_request():
    problem = problems_of("leg_counting", 1)[0]
    text = f"<answer>{problem.answer} legs</answer>"
    scores = []
    for partial in (True, False):
        with build_scorer(RewardConfig(kind="procedural", partial_credit=partial)) as scorer:
            scores.append(scorer.score([problem], [text])[0].score)
    assert 0 < scores[0] < 1
    assert scores[1] == 0


def test_a_problem_without_a_rule_is_masked_and_named(caplog):
    bare = Problem("bare", "", answer="1", domain="procedural")
    with build_scorer(RewardConfig(kind="procedural")) as scorer:
        assert scorer.score([bare], ["1"])[0].status == "unscorable"
    assert any("'bare'" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "text",
    [
        "94*4 - 61 - 6",
        "x**2/2 + sin(x) + C",
        "-x**(3/2) + 2*exp(x)",
        "[[1, 0], [0, -1]]",
        "['a', 'b']",
        "1 2 3\n4 5 6",
        "A B _ C",
    ],
)
def test_honest_answers_may_be_evaluated(text):
    assert is_plain_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('/tmp/x', 'w')",
        "().__class__",
        "sin('open(1)')",
        "x*'open(1)'",
        "[open(1)]",
        "[x for x in [1]]",
        "(lambda: 1)()",
        "9**9**9",
        "2**(9**9)",
        "2**1000000",
        "exec",
        "1, open(1)",
        "f(x",
        "[" * 500,
        "1+" * 3000 + "1",
    ],
)
def test_text_that_could_do_anything_else_is_not(text):
    plain = is_plain_expression(text)
    # A bare name is harmless: evaluated, it is a symbol or a function that nothing calls.
    assert not plain or text == "exec"


def test_every_scorer_that_evaluates_is_known():
    found = set()
    for name, (cls, _) in DATASETS.items():
        source = Path(inspect.getsourcefile(cls)).read_text()
        scorer = source.partition("def score_answer")[2].partition("\n    def ")[0]
        if "eval(answer" in scorer or "parse_expr(answer" in scorer or "sympify(answer" in scorer:
            found.add(name)
    assert found == EVALUATING_TASKS
