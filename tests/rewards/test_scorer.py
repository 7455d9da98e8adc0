"""The scoring seam: routing, order, attribution of failures, canaries."""

import asyncio
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from pydantic import ValidationError

from archer.configs.reward import RewardConfig
from archer.errors import RewardError
from archer.rewards import build_scorer
from archer.rewards import canary as canary_module
from archer.types import Problem, Verdict

FUNCTIONS = """
import asyncio, os, time
from archer.types import Verdict

def by_id(problem, text):
    match problem.id:
        case "half": return 0.5
        case "true": return True
        case "dict": return {"score": 1, "acc": 0.25, "extracted": 7}
        case "verdict": return Verdict("incorrect", 0.0, "8", "wrong sign")
        case "none": return None
        case "none in dict": return {"score": None, "reason": "no idea"}
        case "raise": raise ZeroDivisionError("in user code")
        case "string": return "1.0"
        case "nan": return float("nan")
        case "two": return 2.0
        case "no score": return {"acc": 1}
        case "die": os._exit(9)
        case "hang": time.sleep(60)
    return 0.0

async def slowly(problem, text):
    await asyncio.sleep(0.01)
    return text == problem.answer

def in_batch(problems, texts):
    if any(p.id == "raise" for p in problems):
        raise ValueError("one is bad")
    return [t == p.answer for p, t in zip(problems, texts)]

def too_few(problems, texts):
    return [1.0] * (len(problems) - 1)
"""


@pytest.fixture
def custom(tmp_path):
    file = tmp_path / "my_reward.py"
    file.write_text(FUNCTIONS)

    def config(name, **settings):
        return RewardConfig(kind="custom", function=f"{file}:{name}", wall_seconds=1.0, **settings)

    return config


def problem(id_, answer="1", **fields):
    return Problem(id=id_, prompt="", answer=answer, **fields)


def test_accepted_returns_and_masked_failures_side_by_side(custom, caplog):
    expected = {
        "half": ("incorrect", 0.5),
        "true": ("correct", 1.0),
        "dict": ("correct", 1.0),
        "verdict": ("incorrect", 0.0),
        "none": ("unscorable", None),
        "none in dict": ("unscorable", None),
        "raise": ("unscorable", None),
        "string": ("unscorable", None),
        "nan": ("unscorable", None),
        "two": ("unscorable", None),
        "no score": ("unscorable", None),
        "die": ("unscorable", None),
        "hang": ("unscorable", None),
        "zero": ("incorrect", 0.0),
    }
    with build_scorer(custom("by_id", retries=0)) as scorer:
        verdicts = scorer.score([problem(name) for name in expected], ["text"] * len(expected))
    got = dict(zip(expected, verdicts, strict=True))
    assert {name: (v.status, v.score) for name, v in got.items()} == expected
    assert got["dict"].extracted == "7"
    assert "acc=0.25" in got["dict"].reason
    assert got["none in dict"].reason == "no idea"
    assert got["raise"].reason.startswith("raised: ZeroDivisionError")
    assert got["hang"].reason.startswith("wall_time")
    assert got["die"].reason.startswith("killed")
    named = [r.getMessage() for r in caplog.records]
    assert any("'raise'" in m and "in user code" in m for m in named)
    assert any("'two'" in m and "[0, 1]" in m for m in named)


def test_stop_raises_and_names_the_sample(custom):
    with (
        build_scorer(custom("by_id", on_error="stop")) as scorer,
        pytest.raises(RewardError, match=r"'raise'.*(?s:.*)in user code"),
    ):
        scorer.score([problem("zero"), problem("raise")], ["a", "b"])


def test_async_function_and_asyncio_caller(custom):
    async def gather(scorer):
        futures = [scorer.submit(problem(str(i), str(i % 2)), "1") for i in range(6)]
        return await asyncio.gather(*map(asyncio.wrap_future, futures))

    with build_scorer(custom("slowly")) as scorer:
        assert [v.score for v in asyncio.run(gather(scorer))] == [0, 1, 0, 1, 0, 1]


def test_batched_function_masks_only_the_sample_at_fault(custom):
    with build_scorer(custom("in_batch", batched=True)) as scorer:
        problems = [problem("a"), problem("raise"), problem("b")]
        assert [v.score for v in scorer.score(problems, ["1", "1", "0"])] == [1.0, None, 0.0]
        assert scorer.submit(problem("c"), "1").result(10).score == 1.0
        assert scorer.score([], []) == []


def test_a_list_of_the_wrong_length_is_always_an_error(custom):
    with (
        build_scorer(custom("too_few", batched=True)) as scorer,
        pytest.raises(RewardError, match=r"expected 8 scores.*got 7"),
    ):
        scorer.score([problem(str(i)) for i in range(8)], ["x"] * 8)


@pytest.mark.parametrize("reference", ["nowhere.py:f", "{file}:missing"])
def test_a_function_that_cannot_be_loaded_fails_at_once(tmp_path, reference):
    file = tmp_path / "empty.py"
    file.write_text("x = 1\n")
    with pytest.raises(RewardError, match="expected"):
        build_scorer(RewardConfig(kind="custom", function=reference.format(file=file)))


def test_mixed_domains_go_to_their_graders():
    problems = [
        problem("m", "7"),
        problem("p", "12", domain="procedural", meta={"scorer": "exact"}),
        problem("m2", "8"),
    ]
    with build_scorer(RewardConfig()) as scorer:
        verdicts = scorer.score(problems, [r"\boxed{7}", "<answer>012</answer>", r"\boxed{7}"])
        assert [v.score for v in verdicts] == [1.0, 1.0, 0.0]
        assert [v.extracted for v in verdicts] == ["7", "012", "7"]
        assert all(v.seconds < 5 for v in verdicts)


class FaultyRunner:
    """Stands in for the code scorer: canaries pass, anything else meets a fault of the harness."""

    def __init__(self, config):
        pass

    def submit(self, problem, text):
        done = Future()
        if problem.id == "canary-code":
            score = 0.0 if "print(6)" in text else 1.0
            done.set_result(Verdict("correct" if score else "incorrect", score, text, "passed", 0.5))
        else:
            done.set_result(Verdict("unscorable", None, text, "harness_error: sandbox gone"))
        return done

    def close(self):
        pass


def test_faults_of_the_code_runner_follow_the_setting(monkeypatch):
    monkeypatch.setattr("archer.rewards.code.build_code_scorer", FaultyRunner)
    program = problem("prog", None, domain="code", tests=({"type": "stdin", "input": "", "output": ""},))
    with build_scorer(RewardConfig()) as scorer:
        verdicts = scorer.score([program, problem("m", "7")], ["text", r"\boxed{7}"])
    assert [v.score for v in verdicts] == [None, 1.0]
    assert verdicts[0].reason == "harness_error: sandbox gone"
    with (
        build_scorer(RewardConfig(on_error="stop")) as scorer,
        pytest.raises(RewardError, match=r"'prog'.*sandbox gone"),
    ):
        scorer.score([program], ["text"])


def test_submitting_from_threads_gives_the_same_verdicts():
    with build_scorer(RewardConfig()) as scorer, ThreadPoolExecutor(4) as threads:
        futures = threads.map(lambda i: scorer.submit(problem(str(i), "7"), rf"\boxed{{{i}}}"), range(20))
        assert [f.result(30).score for f in futures] == [float(i == 7) for i in range(20)]


def test_lengths_must_agree():
    with (
        build_scorer(RewardConfig(kind="procedural")) as scorer,
        pytest.raises(ValueError, match="got 2 problems"),
    ):
        scorer.score([problem("a"), problem("b")], ["x"])


def test_a_closed_scorer_refuses_work():
    scorer = build_scorer(RewardConfig(kind="procedural"))
    scorer.close()
    with pytest.raises(RewardError, match="closed"):
        scorer.submit(problem("a"), "x")


def test_a_wrong_canary_stops_the_scorer_at_the_start(monkeypatch):
    wrong = canary_module.Canary(problem("c", "12", domain="procedural", meta={"scorer": "exact"}), "13", 1.0)
    monkeypatch.setitem(canary_module._BY_KIND, "procedural", (wrong,))
    with pytest.raises(RewardError, match=r"broken: canary .c. must score 1\.0, got 0\.0"):
        build_scorer(RewardConfig(kind="procedural"))


def test_a_canary_that_goes_wrong_later_stops_the_scorer(monkeypatch):
    exact = problem("c", "12", domain="procedural", meta={"scorer": "exact"})
    with build_scorer(RewardConfig(kind="procedural", canary_every=3, workers=1)) as scorer:
        monkeypatch.setitem(canary_module._BY_KIND, "procedural", (canary_module.Canary(exact, "13", 1.0),))
        futures = [scorer.submit(exact, "12") for _ in range(3)]
        assert [f.result(10) for f in futures] == [
            Verdict("correct", 1.0, "12", "exact", f.result().seconds) for f in futures
        ]
        with pytest.raises(RewardError, match="is broken"):
            scorer.submit(exact, "12")


def test_config_ties_function_to_custom():
    with pytest.raises(ValidationError, match=r"path\.py:name"):
        RewardConfig(kind="custom")
    with pytest.raises(ValidationError, match="belong to kind: custom"):
        RewardConfig(kind="math", function="a.py:f")


def test_importing_rewards_is_light():
    code = (
        "import sys, archer.rewards, archer.rewards.math; "
        "print([m for m in ('torch', 'sympy', 'math_verify', 'reasoning_gym') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
