"""The paper's comparison: DeepScaleR's strings OR its sympy step OR Math-Verify."""

import pytest

from archer.configs.reward import RewardConfig
from archer.rewards import build_scorer
from archer.rewards.math.paper import math_string, paper_rule
from archer.types import Problem


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (r"\dfrac 12", r"\frac{1}{2}"),
        (r"\frac12", r"\frac{1}{2}"),
        (r"\frac1{12}", r"\frac{1}{12}"),
        ("1/2", r"\frac{1}{2}"),
        ("0.5", r"\frac{1}{2}"),
        (".25", "0.25"),
        (r"\sqrt3", r"\sqrt{3}"),
        ("x = 7", "7"),
        (r"\left(1, 2\right)", "(1,2)"),
        (r"90^\circ", "90"),
        (r"\$18", "18"),
        (r"12\text{ cm}", "12"),
        (r"\text{even}", "even"),
    ],
)
def test_normal_form_of_the_math_data_set(text, normal):
    assert math_string(text) == normal


@pytest.mark.parametrize(
    ("gold", "answer", "rule"),
    [
        (r"\frac{1}{2}", r"\dfrac12", "strings"),
        ("1,234", "1234", "sympy"),
        ("12 cm", "12", "sympy"),
        ("x+1", "1+x", "sympy"),
        ("(1, x+1)", "(1, 1+x)", "sympy"),
        # Not by sympy, where an unreduced fraction is refused, but by Math-Verify.
        (r"\frac{1}{2}", r"\frac{2}{4}", "math_verify"),
        # The call whose result the released code drops.
        (r"\{1,4\}", r"\{4,1\}", "math_verify"),
        ("(1,4)", "(4,1)", None),
        ("[1,4)", "(1,4)", None),
        ("7", "8", None),
        ("7", r"\sqrt{50}", None),
    ],
)
def test_which_of_the_three_accepts(gold, answer, rule):
    assert paper_rule(gold, answer) == rule


def test_known_weakness_that_the_default_grader_does_not_share():
    assert paper_rule("37", "x=36=37") == "math_verify"
    assert paper_rule("0.0000003", "0.0000004") == "math_verify"


def test_as_a_scorer():
    cases = [
        ("7", r"<think>\boxed{6}</think> \boxed{7}", 1.0),
        ("7", r"<think>\boxed{7}", 1.0),
        ("7", r"\boxed{8}", 0.0),
        ("7", "seven", 0.0),
        ("???", r"\boxed{7}", None),
        ("", r"\boxed{7}", None),
    ]
    problems = [Problem(str(i), "", answer=gold) for i, (gold, _, _) in enumerate(cases)]
    with build_scorer(RewardConfig(kind="paper")) as scorer:
        verdicts = scorer.score(problems, [text for _, text, _ in cases])
    assert [v.score for v in verdicts] == [score for _, _, score in cases]
