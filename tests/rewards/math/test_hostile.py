"""Degenerate and malicious responses: bounded, never an exception, never a point."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from archer.configs.reward import RewardConfig
from archer.rewards import build_scorer
from archer.rewards.math import grade, grade_answer
from archer.types import Problem

LONG = {
    "text": r"\text{ a" * 8000,
    "ones": "1," * 30000,
    "brackets": "(" * 400 + "7" + ")" * 400,
    "sum": "+".join(["1"] * 6000),
    "symbol sum": "+".join(["x"] * 6000),
    "braces": "{" * 30000,
    "fractions": r"\frac{1}{" * 3000 + "2" + "}" * 3000,
    "boxes": r"\boxed{" * 9000,
    "digits": "7" * 60000,
    "number with exponent": "1" * 15000 + "e",
    "harmonic sum": "+".join(f"1/{n}" for n in range(2, 3000)),
    "huge fractions": "+".join(f"1/{n}^{{900}}" for n in range(3, 1200)),
    "powers": "+".join(["3^{9999}"] * 1500),
    "tower": "9^{9^{9^{9^{9^9}}}}",
    "factorials": "9!!!!!!",
    "sine": r"\sin(10^{100000})",
    "root": r"\sqrt[3]{" + "7" * 4000 + "}",
    "bars": "|" * 9001,
    "product": "(" + ")(".join(f"x+{i}" for i in range(600)) + ")",
    "signs": "-" * 15001 + "8",
    "thinking": "<think>" * 9000,
    "matrix": r"\begin{pmatrix}" + "1&" * 6000 + r"1\end{pmatrix}",
    "surrogates": "\ud800" * 100,
    "zero bytes": "\0" * 1000,
    "sum to a billion": r"\sum_{k=1}^{10^9} k^{k}",
    "integral": r"\int_0^1 e^{x^2}\sin(x^{x}) dx",
}
GOLDS = ["7", r"\frac{\sqrt{3}}{3}", "x^2+1", "1,2,3", "y=2x+1", r"[1,2)\cup(3,4]"]


@pytest.mark.parametrize("name", LONG)
@pytest.mark.timeout(60)
def test_degenerate_text_scores_zero_in_bounded_time(name):
    for gold in GOLDS:
        for text in (rf"\boxed{{{LONG[name]}}}", LONG[name]):
            assert grade(gold=gold, prediction=text).score == 0.0


@pytest.mark.timeout(60)
def test_an_answer_over_the_cpu_limit_scores_zero_and_does_not_delay_others():
    spin = Problem("spin", "", answer=r"\int_0^1 x\,dx")
    quick = Problem("quick", "", answer="7")
    with build_scorer(RewardConfig(workers=1, cpu_seconds=0.3)) as scorer:
        verdicts = scorer.score([spin, quick] * 3, [r"\boxed{9^{9^{9^{9^9}}}}", r"\boxed{7}"] * 3)
    assert [v.score for v in verdicts] == [0.0, 1.0] * 3
    assert all(v.reason.startswith("cpu_time") for v in verdicts[::2])


ATTACKS = [
    r"\pi and open('{file}','w')",
    "open('{file}','w')",
    "__import__('os').system('touch {file}')",
    r"\operatorname{{__import__}}('os').system('touch {file}')",
    r"\text{{__import__('os').system('touch {file}')}}",
    "[c for c in ().__class__.__base__.__subclasses__()]",
    "x=__import__('os').system('touch {file}')",
    r"\frac{{open('{file}','w')}}{{1}}",
]


@pytest.mark.parametrize("kind", ["math", "paper"])
def test_no_answer_is_ever_run(tmp_path, kind):
    file = Path(tmp_path / "owned")
    texts = [rf"\boxed{{{attack.format(file=file)}}}" for attack in ATTACKS]
    golds = ["7", r"\int_0^1 x\,dx", "x+1"]
    problems = [Problem(f"{gold}-{i}", "", answer=gold) for gold in golds for i in range(len(texts))]
    with build_scorer(RewardConfig(kind=kind)) as scorer:
        verdicts = scorer.score(problems, texts * len(golds))
        after = scorer.score([Problem("after", "", answer="7")], [r"\boxed{8}"])
    assert {v.score for v in [*verdicts, *after]} == {0.0}
    assert not file.exists()


def test_threads_and_asyncio_get_the_verdict_of_the_main_thread():
    pair = {"gold": r"\int_0^1 x\,dx", "answer": r"\frac12"}
    assert grade_answer(**pair).status == "correct"
    with ThreadPoolExecutor(2) as threads:
        assert {f.result().status for f in [threads.submit(grade_answer, **pair) for _ in range(4)]} == {
            "correct"
        }

    async def main():
        return await asyncio.to_thread(grade_answer, **pair)

    assert asyncio.run(main()).status == "correct"
