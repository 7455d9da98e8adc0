"""Tokens, the N-gram test, and the index against the obvious quadratic search."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archer.configs.data_recipe import ExactStage, NgramStage, NgramTest, Normalisation
from archer.data import ngrams
from archer.data.ngrams import GramStore
from archer.data.text import GramHasher, grams, needed, text_hash, tokens
from archer.types import Problem


def test_tokens_follow_the_settings():
    text = r"Let $x_1=\dfrac{3.5}{4}$,\; and  \left(Ab\right)!"
    symbols = r"let x _ 1 = \ frac { 3.5 } { 4 } , and ( ab ) !"
    assert tokens(text, Normalisation()) == symbols.split()
    words = ["let", "x", "1", "frac", "3.5", "4", "and", "ab"]
    assert tokens(text, Normalisation(punctuation="drop")) == words
    masked = ["let", "x", "0", "frac", "0", "0", "and", "ab"]
    assert tokens(text, Normalisation(punctuation="drop", numbers="mask")) == masked
    assert tokens("Ab", Normalisation(case="keep")) == ["Ab"]
    assert tokens("\\left(a", Normalisation(latex=False)) == ["\\", "left", "(", "a"]
    assert tokens("ﬁne １２", Normalisation()) == ["fine", "12"]


def test_a_sign_or_number_makes_prompts_different():
    assert tokens("x+1", Normalisation()) != tokens("x-1", Normalisation())
    assert tokens("1.5 m", Normalisation()) != tokens("15 m", Normalisation())


def test_grams():
    assert grams("abcab", 2) == {("a", "b"), ("b", "c"), ("c", "a")}
    assert grams("ab", 3) == {("a", "b")}
    assert grams("", 3) == set()


@pytest.mark.parametrize(
    ("threshold", "direction", "later", "earlier", "expected"),
    [
        (0.8, "either", 5, 100, 4),
        (0.8, "later", 5, 100, 4),
        (0.8, "later", 100, 5, 80),
        (0.8, "either", 100, 5, 4),
        (0.1, "later", 30, 30, 3),
        (0.5, "later", 3, 3, 2),
        (0.01, "later", 3, 3, 1),
        (1.0, "later", 7, 7, 7),
    ],
)
def test_needed(threshold, direction, later, earlier, expected):
    assert needed(NgramTest(n=3, threshold=threshold, direction=direction), later, earlier) == expected


def test_hashes_are_the_distinct_grams_and_stable():
    words = ["a", "b", "a", "b", "a"]
    assert len(GramHasher(2)(words)) == len(grams(words, 2)) == 2
    assert GramHasher(2)(words).tolist() == sorted(GramHasher(2)(words).tolist())
    assert text_hash(["a", "b"]) == 18429100309458631331
    assert text_hash(["a", "b"]) != text_hash(["ab"])


def kept_ids(outcomes):
    return [outcome.problem.id for outcome in outcomes if not outcome.reason]


def quadratic(problems, test):
    """Ids kept by comparing every problem with every kept one."""
    kept = []
    for problem in problems:
        mine = grams(tokens(problem.prompt, test.normalise), test.n)
        if not any(len(mine & theirs) >= needed(test, len(mine), len(theirs)) for _, theirs in kept):
            kept.append((problem.id, mine))
    return [name for name, _ in kept]


WORDS = st.lists(st.sampled_from("abcd"), max_size=14).map(" ".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prompts=st.lists(WORDS, min_size=1, max_size=14),
    n=st.integers(1, 4),
    threshold=st.sampled_from([0.1, 0.34, 0.5, 0.8, 1.0]),
    min_shared=st.integers(1, 3),
    direction=st.sampled_from(["either", "later"]),
)
def test_the_index_finds_exactly_what_the_quadratic_search_finds(
    run_stage, prompts, n, threshold, min_shared, direction
):
    test = NgramTest(n=n, threshold=threshold, min_shared=min_shared, direction=direction)
    problems = [Problem(str(i), prompt) for i, prompt in enumerate(prompts)]
    assert kept_ids(run_stage(NgramStage(test=test), problems)) == quadratic(problems, test)


def test_the_index_on_long_prompts_with_common_parts(run_stage, monkeypatch):
    monkeypatch.setattr(ngrams, "_BLOCK_ROWS", 7)
    rng = random.Random(0)
    vocabulary = [f"w{i}" for i in range(300)]
    problems = []
    for i in range(400):
        body = rng.choices(vocabulary, k=rng.randint(10, 40))
        if i > 50 and rng.random() < 0.5:
            body = rng.choice(problems[-50:]).prompt.split()[12:]
            for _ in range(rng.randint(0, 4)):
                body[rng.randrange(len(body))] = rng.choice(vocabulary)
        problems.append(Problem(str(i), " ".join(["read", "this", "with", "care"] * 3 + body)))
    for direction in ("either", "later"):
        test = NgramTest(n=5, threshold=0.6, direction=direction)
        kept = kept_ids(run_stage(NgramStage(test=test), problems))
        assert kept == quadratic(problems, test)
        assert 150 < len(kept) < 380


def test_counting_in_ranges_gives_the_same_repeats(tmp_path, monkeypatch):
    rng = random.Random(1)
    rows = [rng.choices("abcdefgh", k=20) for _ in range(60)]
    whole = GramStore(tmp_path / "a", rows, 3).repeated()
    monkeypatch.setattr(ngrams, "PARTITION_SIZE", 37)
    monkeypatch.setattr(ngrams, "_READ_SIZE", 11)
    parts = GramStore(tmp_path / "b", rows, 3).repeated()
    assert [a.tolist() for a in whole] == [a.tolist() for a in parts]
    assert len(whole[0]) > 100
    assert whole[1].min() == 2


def test_a_hash_collision_changes_no_verdict(run_stage, monkeypatch):
    monkeypatch.setattr("archer.data.text.text_hash", lambda words: 7)
    problems = [Problem(str(i), f"one two three four {i} five six") for i in range(4)]
    test = NgramTest(n=3, threshold=0.5)
    assert kept_ids(run_stage(NgramStage(test=test), problems)) == ["0", "1", "2", "3"]


def test_ngram_outcomes_say_which_and_how_much(run_stage):
    problems = [Problem("a", "one two three four five"), Problem("b", "zero one two three four five")]
    stage = NgramStage(test=NgramTest(n=2, threshold=0.5))
    _, dropped = run_stage(stage, problems)
    assert (dropped.reason, dropped.detail) == ("n-gram duplicate", "1.00 of the 2-grams shared with a")


@pytest.mark.parametrize("conflicts", ["drop", "keep-first"])
def test_exact_duplicates_and_conflicts(run_stage, conflicts):
    problems = [
        Problem("a", "What is  1+1?", "2"),
        Problem("b", "what is $1+1$?", "2"),
        Problem("c", "Other", r"\frac{1}{2}"),
        Problem("d", "Other ", r" \dfrac{1}{2}"),
        Problem("e", "Third", "1,000"),
        Problem("f", "third", "1000"),
        Problem("g", "Odd", "3"),
        Problem("h", "odd", "4"),
        Problem("i", "odd", "3"),
    ]
    outcomes = run_stage(ExactStage(conflicts=conflicts), problems)
    reasons = {o.problem.id: o.reason for o in outcomes}
    first_of_odd = "conflicting answers" if conflicts == "drop" else ""
    later_odd = "conflicting answers" if conflicts == "drop" else "exact duplicate"
    assert reasons == {
        "a": "", "b": "exact duplicate", "c": "", "d": "exact duplicate", "e": "", "f": "exact duplicate",
        "g": first_of_odd, "h": later_odd, "i": later_odd,
    }  # fmt: skip
    assert outcomes[1].detail == "of a"


def test_rows_are_read_back_one_at_a_time(problem_file):
    problems = [
        Problem(str(i), "p" * i + "ü\ud800", "1", ({"type": "assert", "code": "x"},), meta={"k": i})
        for i in range(5)
    ]
    file = problem_file(problems)
    assert list(file) == problems
    assert [file.row(i) for i in (3, 0, 4)] == [problems[3], problems[0], problems[4]]
    assert json.loads(file.path.read_text("utf-8").splitlines()[1])["prompt"] == "pü\ud800"
