"""Finding the answer in a response."""

import pytest

from archer.rewards.math import extract, grade, well_formed
from archer.rewards.math.extract import final_text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{2} ... wait, \boxed{3}", "3"),
        (r"\boxed{4} and so, after checking, \boxed{4}", "4"),
        (r"$\boxed{3}, \boxed{5}, \boxed{7}$", "3, 5, 7"),
        (r"$\boxed{3}$, $\boxed{5}$ and $\boxed{7}$.", "3, 5, 7"),
        (r"\boxed{3} \text{ or } \boxed{5}", "3, 5"),
        (r"\boxed{3}, \boxed{3}", "3"),
        (r"\boxed{3} \boxed{5}", "5"),
        (r"\boxed{3}. Then, by symmetry and so on, \boxed{5}", "5"),
        (r"\boxed{\frac{1}{\sqrt{1+\frac{2}{3}}}}", r"\frac{1}{\sqrt{1+\frac{2}{3}}}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\left\{x\right.}", r"\left\{x\right."),
        (r"\boxed{2 and then \boxed{3}", "3"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed 42$", "42"),
        (r"\boxed{a \} b}", r"a \} b"),
        (r"\fbox{8}", "8"),
        (r"\boxedfoo{8}", None),
        (r"\boxed{}", None),
        (r"\boxed{3} but \boxed{7", None),
        ("no box", None),
        ("", None),
        ("<think>a \\boxed{5}</think> \\boxed{6}", "6"),
        ("a \\boxed{5}</think> \\boxed{6}", "6"),
        ("<think>\\boxed{5}", None),
        ("<think>a</think> \\boxed{6} <think>b</think> \\boxed{7}", "6"),
        ("<think>a</think> \\boxed{6} </think> \\boxed{7}", "6"),
        ("<think>a</think><think>\\boxed{5}</think>", None),
    ],
)
def test_extraction(text, answer):
    assert extract(text).answer == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Left: 122 + 294 + 489 = 905. Final Answer: **73**", "73"),
        ("Answer: $7$", "7"),
        ("5 + 2 = 7\n#### 7", "7"),
        ("<answer> 7 </answer>", "7"),
        ("**Answer:** 6. [Note 2024]", "6"),
        ("The answer is 12. I am sure.", "12"),
        ("The answer is 0.5.", "0.5"),
        ("Answer: 3\nOn reflection, the answer is 4.", "4"),
        (r"Answer: 3, or better \boxed{4}", "4"),
        (r"Answer: 3, but \boxed{4", None),
        ("There is no such mark: 12", None),
    ],
)
def test_unboxed_answers_where_they_are_accepted(text, answer):
    assert extract(text, unboxed=True).answer == answer
    assert grade(gold="73", prediction=text).status == "incorrect"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("<think>a\nb\nc</think>\n\\boxed{1}", True),
        ("  <think>a</think> x", True),
        ("<think>a</think><think>b</think><answer>c</answer>", False),
        ("<think>a", False),
        ("<think>a</think>", False),
        ("x <think>a</think> y", False),
        ("a</think> b", False),
    ],
)
def test_form_of_a_thinking_response(text, right):
    assert well_formed(text) is right


def test_a_right_answer_in_the_wrong_form_is_refused_only_on_request():
    text = "no tags, \\boxed{7}"
    assert grade(gold="7", prediction=text).status == "correct"
    verdict = grade(gold="7", prediction=text, require_thinking=True)
    assert (verdict.status, verdict.reason) == ("incorrect", "bad_format")
    assert grade(gold="7", prediction="<think>a</think>\\boxed{7}", require_thinking=True).score == 1


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>3</answer> no, <answer>4</answer>", "4"),
        ("so \\boxed{4}", "4"),
        ("so \\boxed{4", None),
        ("#### 4", "4"),
        ("<think>5</think> 4 ", "4"),
        ("<think>5", None),
        ("  ", None),
    ],
)
def test_final_text_of_procedural_answers(text, answer):
    assert final_text(text) == answer


def test_a_bad_gold_answer_is_unscorable_even_without_an_answer():
    assert grade(gold="???", prediction="no box").status == "unscorable"
    assert grade(gold="7", prediction="no box").reason == "no_answer"
    assert grade(gold="7", prediction="\\boxed{7").reason == "unclosed_box"
