"""From responses to verdicts, and the real data sets."""

import asyncio
import json
import threading

import pytest

from archer.configs.code import CodeConfig
from archer.errors import RewardError
from archer.rewards.code import build_code_scorer, canary, runner
from archer.rewards.code.bay import SandboxFault
from archer.types import Problem

pytestmark = pytest.mark.filterwarnings("ignore:programs of the model run")
THREE = tuple({"type": "stdin", "input": str(n), "output": str(n % 2)} for n in range(3))
SUM = Problem(id="sum", prompt="Echo.", domain="code", tests=THREE)
RIGHT = "```python\nprint(int(input()) % 2)\n```"
HALF = "```python\nprint(input())\n```"


def verdict(problem, text, **settings):
    with build_code_scorer(CodeConfig(workers=1, **settings)) as scorer:
        return scorer.submit(problem, text).result()


def test_all_or_nothing_stops_at_the_first_failure():
    right, half = verdict(SUM, RIGHT), verdict(SUM, HALF)
    assert (right.status, right.score, right.reason) == ("correct", 1.0, "passed: 3 tests")
    assert right.extracted == "print(int(input()) % 2)"
    assert (half.status, half.score) == ("incorrect", 0.0)
    assert half.reason == "wrong_answer: test 3 of 3: line 1: expected '0', got '2'"
    assert half.seconds > 0


def test_fraction_is_of_all_tests():
    half = verdict(SUM, HALF, reward="fraction")
    assert (half.status, half.score) == ("incorrect", pytest.approx(2 / 3))
    assert verdict(SUM, RIGHT, reward="fraction").score == 1.0


def test_responses_without_a_program_and_problems_without_tests():
    none = verdict(SUM, "I don't know.")
    assert (none.status, none.score, none.extracted, none.reason) == ("incorrect", 0.0, None, "no_code")
    untested = verdict(Problem(id="x", prompt="", domain="code"), RIGHT)
    assert (untested.status, untested.score) == ("unscorable", None)
    assert untested.reason.startswith("no_tests")


def test_a_bad_test_makes_the_response_unscorable():
    problem = Problem(id="x", prompt="", domain="code", tests=({"type": "stdin", "input": 5},))
    bad = verdict(problem, RIGHT)
    assert (bad.status, bad.score) == ("unscorable", None)
    assert "'input': expected text, got int" in bad.reason


def test_a_declared_tolerance_is_used():
    test = {"type": "stdin", "input": "", "output": "3"}
    text = "```python\nprint(3.0000001)\n```"
    strict = Problem(id="x", prompt="", domain="code", tests=(test,))
    loose = Problem(id="x", prompt="", domain="code", tests=(test,), meta={"tolerance": 1e-6})
    assert verdict(strict, text).score == 0.0
    assert verdict(loose, text).score == 1.0


def test_helpers_of_the_prompt_can_not_be_replaced():
    prompt = (
        "import math\n\ndef poly(xs, x):\n    return sum(c * x ** n for n, c in enumerate(xs))\n\n"
        'def root(xs):\n    """ Find x with poly(xs, x) == 0. """\n'
    )
    test = {
        "type": "assert",
        "code": "def check(candidate):\n    assert abs(poly([-2, 1], candidate([-2, 1]))) < 1e-4\ncheck(root)",
    }
    problem = Problem(id="x", prompt=prompt, domain="code", tests=(test,), meta={"entry_point": "root"})
    honest = f"```python\n{prompt}    return -xs[0] / xs[1]\n```"
    forged = "```python\ndef poly(xs, x): return 0\ndef root(xs): return 5\n```"
    assert verdict(problem, honest).score == 1.0
    assert verdict(problem, forged).score == 0.0


def test_futures_from_threads_and_asyncio():
    with build_code_scorer(CodeConfig(workers=2)) as scorer:
        futures = []
        threads = [
            threading.Thread(target=lambda: futures.append(scorer.submit(SUM, RIGHT))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        async def gather():
            waiting = [asyncio.wrap_future(scorer.submit(SUM, text)) for text in (RIGHT, HALF)]
            return [one.score for one in await asyncio.gather(*waiting)]

        assert asyncio.run(gather()) == [1.0, 0.0]
        assert [future.result().score for future in futures] == [1.0] * 4


def test_harness_faults_are_unscorable_and_a_failed_canary_is_an_error(monkeypatch):
    def fail(*_):
        raise SandboxFault("gone")

    with build_code_scorer(CodeConfig(workers=1, canary_every=2)) as scorer:
        with monkeypatch.context() as patch:
            patch.setattr(runner, "judge", fail)
            masked = scorer.submit(SUM, RIGHT).result()
        assert (masked.status, masked.score) == ("unscorable", None)
        assert masked.reason.startswith("harness_error: gone (tried 3 times)")
        monkeypatch.setattr(canary, "SAMPLES", (canary.Sample("it", "print(6)", THREE[0], "passed"),))
        with pytest.raises(RewardError, match="broken"):
            scorer.submit(SUM, RIGHT).result()


CORRUPT = """
def corrupted(value):
    if isinstance(value, bool): return not value
    if isinstance(value, (int, float, complex)): return value * 2 + 1
    if isinstance(value, str): return value + 'x'
    if isinstance(value, dict): return {**value, 'x': 0}
    if isinstance(value, (list, tuple)): return [*value, 'x']
    if isinstance(value, set): return value | {'x'}
    return 0 if value is None else None
def wrapped(function):
    def outer(*a, **k):
        global depth
        depth += 1
        try:
            value = function(*a, **k)
        finally:
            depth -= 1
        return value if depth else corrupted(value)
    return outer
depth = 0
"""


def problems(path):
    for line in path.read_text().splitlines():
        row = json.loads(line)
        yield Problem(id=row["id"], prompt=row["prompt"], tests=row["tests"], domain="code", meta=row["meta"])


def scores(scorer, pairs):
    futures = [(problem, scorer.submit(problem, f"```python\n{program}\n```")) for problem, program in pairs]
    return [(problem, future.result()) for problem, future in futures]


def check_data_set(path, every):
    chosen = list(problems(path))[::every]
    with build_code_scorer(CodeConfig(workers=2)) as scorer:
        for problem, verdict in scores(scorer, [(one, one.meta["reference"]) for one in chosen]):
            assert verdict.score == 1.0, (problem.id, verdict)
        others = chosen[1:] + chosen[:1]
        broken = [(one, other.meta["reference"]) for one, other in zip(chosen, others, strict=True)]
        broken += [(one, one.meta["reference"] + corruption(one)) for one in chosen]
        for problem, verdict in scores(scorer, broken):
            assert verdict.score == 0.0, (problem.id, verdict)
            assert verdict.status == "incorrect"


def corruption(problem):
    """Code that makes each function of a reference return something else, or each program print more."""
    test = problem.tests[0]
    if test["type"] == "stdin":
        return "\nprint('x')"
    if test["type"] == "functional":
        name = test["fn_name"]
        return f"\n{CORRUPT}\nSolution.{name} = wrapped(Solution.{name})"
    return (
        f"\nimport types\n{CORRUPT}\nfor key, value in list(globals().items()):\n"
        "    if isinstance(value, types.FunctionType) and key not in ('corrupted', 'wrapped'):\n"
        "        globals()[key] = wrapped(value)"
    )


@pytest.mark.parametrize(
    ("name", "every"), [("humaneval", 20), ("mbpp_sanitized", 40), ("livecodebench_fewshot", 1)]
)
def test_references_pass_and_broken_ones_fail(shared_data, name, every):
    check_data_set(shared_data(f"{name}.jsonl"), every)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["humaneval", "mbpp_sanitized"])
def test_all_references_pass_and_all_broken_ones_fail(shared_data, name):
    check_data_set(shared_data(f"{name}.jsonl"), 1)
