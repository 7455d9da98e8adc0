"""Gold answers of real data sets: each is its own right answer, and no other row's answer is."""

import json
import random

import pytest

from archer.rewards.math import check_gold, grade
from archer.rewards.math.decide import decide, prepare

# Rows of the source whose gold answer is damaged or prose; they are unscorable.
UNREADABLE = {
    "t(0,4]",
    "$f(x)=a x+b$, where $b$ is an arbitrary integer, and $a$ is an arbitrary positive integer with "
    r"$\mho(a)=0$",
}
FILES = {
    "gsm8k_train": 1500,
    "gsm8k_test": None,
    "svamp": None,
    "aime24": None,
    "aime25": None,
    "amc23": None,
    "math500": None,
    "math_train": None,
    "olympiadbench": None,
}


@pytest.fixture(params=FILES)
def golds(request, shared_data):
    lines = shared_data(f"{request.param}.jsonl").read_text().splitlines()[: FILES[request.param]]
    return [json.loads(line)["answer"] for line in lines]


def test_each_gold_answer_can_be_read_and_grades_itself_correct(golds):
    for gold in golds:
        problem = check_gold(gold)
        if gold in UNREADABLE:
            assert problem is not None
        else:
            assert problem is None, gold
            verdict = grade(gold=gold, prediction=rf"So it is $\boxed{{{gold}}}$.")
            assert verdict.status == "correct", (gold, verdict)


def equal_by_value(first, second):
    """An independent judgement by Math-Verify of the few pairs of different text that are accepted."""
    from math_verify import parse, verify

    return verify(parse(f"${first}$", parsing_timeout=None), parse(f"${second}$", parsing_timeout=None))


def test_answers_of_other_rows_grade_incorrect(golds):
    rng = random.Random(7)
    readable = [gold for gold in golds if gold not in UNREADABLE]
    accepted = 0
    for gold in readable:
        other = rng.choice(readable)
        match = decide(prepare(gold), other)
        assert match.equal is not None, (gold, other)
        if match.equal and gold.strip() != other.strip():
            accepted += 1
            assert equal_by_value(gold, other), (gold, other)
    assert accepted <= max(2, len(readable) // 500)
