"""The statistics: golden values from the sources, and properties that hold for any input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from archer.analysis import repetition
from archer.analysis.statistics import (
    SCOPES,
    TokenTable,
    accuracy_by_problem,
    bootstrap_interval,
    gain_by_difficulty,
    kl_to_reference,
    log_ratio_counts,
    roles,
    smooth,
    top_tokens,
)

FINITE = st.floats(0, 5, allow_nan=False, width=32)
ENTROPY = arrays(np.float64, st.integers(1, 30), elements=FINITE)
WORDS = st.lists(st.sampled_from(["a", "B", "b", "so,", "so"]), max_size=60).map(" ".join)


# ---- repetition ----


def test_repetition_golden_values():
    assert repetition("a b a b a b", 2) == pytest.approx(0.6)
    assert repetition("a b c d e " * 8, 20) == pytest.approx(0.761905, abs=1e-6)
    assert repetition("nineteen " * 19) == 0.0
    assert repetition("A a a A", 2) == pytest.approx(2 / 3), "case does not count"
    assert repetition("a a. a a", 2) == 0.0, "punctuation does"


@given(WORDS, st.integers(1, 25))
def test_repetition_is_a_share_and_saying_it_twice_never_lowers_it(text, n):
    value = repetition(text, n)
    assert 0 <= value < 1
    words = text.split()
    if len(words) >= n:
        distinct = {tuple(w.lower() for w in words[i : i + n]) for i in range(len(words) - n + 1)}
        assert value == pytest.approx(1 - len(distinct) / (len(words) - n + 1))


def test_repetition_refuses_an_empty_window():
    with pytest.raises(ValueError, match="at least 1 word"):
        repetition("a b", 0)


# ---- roles ----


def test_roles_of_the_golden_fixture():
    entropy = [np.array([0.30, 1.20, 0.05]), np.array([0.60, 1.50])]
    by_response = roles(entropy, [0, 0], 0.8, "response")
    assert [r.tolist() for r in by_response] == [[False, True, False], [False, True]]
    by_batch = roles(entropy, [0, 0], 0.8, "batch")
    assert [r.tolist() for r in by_batch] == [[False, False, False], [False, True]]


def test_a_tie_goes_to_the_side_that_is_asked_for():
    entropy = [np.arange(1, 7) / 10]
    assert roles(entropy, [0], 0.8, "response")[0].sum() == 2
    assert roles(entropy, [0], 0.8, "response", tie_is_reasoning=False)[0].sum() == 1
    constant = [np.full(4, 0.5)]
    assert roles(constant, [0], 0.8, "response")[0].all()
    assert not roles(constant, [0], 0.8, "response", tie_is_reasoning=False)[0].any()


@given(st.lists(ENTROPY, min_size=1, max_size=6), st.floats(0, 1), st.sampled_from(SCOPES))
def test_roles_split_every_pool_at_its_quantile(entropy, rho, scope):
    group = [i // 2 for i in range(len(entropy))]
    marked = roles(entropy, group, rho, scope)
    keys = {"response": list(range(len(entropy))), "group": group, "batch": [0] * len(entropy)}[scope]
    for key in set(keys):
        values = np.concatenate([e for e, k in zip(entropy, keys, strict=True) if k == key])
        chosen = np.concatenate([m for m, k in zip(marked, keys, strict=True) if k == key])
        assert chosen.any(), "the highest entropy always reaches the threshold"
        assert chosen.sum() >= math.floor((1 - rho) * (len(values) - 1)), (
            "at least the share above the quantile"
        )
        if not chosen.all():
            assert values[chosen].min() > values[~chosen].max(), "no knowledge token above a reasoning token"


@given(st.lists(ENTROPY, min_size=2, max_size=6), st.floats(0, 1))
def test_roles_by_response_do_not_depend_on_the_others(entropy, rho):
    together = roles(entropy, list(range(len(entropy))), rho, "response")
    alone = [roles([e], [0], rho, "response")[0] for e in entropy]
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_array_equal(a, b)


def test_roles_under_a_batch_threshold_starve_low_entropy_responses():
    low, high = np.linspace(0, 0.5, 100), np.linspace(0.5, 3, 100)
    by_batch = roles([low, high], [0, 1], 0.8, "batch")
    by_response = roles([low, high], [0, 1], 0.8, "response")
    assert by_batch[0].mean() == 0
    assert by_batch[1].mean() == 0.4
    assert [r.mean() for r in by_response] == [0.2, 0.2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([np.ones(2)], [0], 1.2, "response"), "rho in"),
        (([np.ones(2)], [0], 0.8, "token"), "scope among"),
        (([np.ones(2)], [0, 1], 0.8, "batch"), "1 responses and 2 groups"),
    ],
)
def test_roles_refuse_what_they_cannot_use(arguments, message):
    with pytest.raises(ValueError, match=message):
        roles(*arguments)


# ---- ratios and KL ----


def test_kl_of_the_golden_fixture():
    policy = np.log([0.55, 0.32, 0.20, 0.28, 0.70])
    reference = np.log([0.45, 0.25, 0.60, 0.35, 0.30])
    np.testing.assert_allclose(
        kl_to_reference(policy, reference), [0.018853, 0.028110, 0.901388, 0.026856, 0.275869], atol=1e-6
    )


@given(arrays(np.float64, 10, elements=st.floats(-60, 0)), arrays(np.float64, 10, elements=st.floats(-60, 0)))
def test_kl_is_finite_and_never_negative_and_zero_for_equal_policies(a, b):
    values = kl_to_reference(a, b)
    assert np.isfinite(values).all()
    assert (values >= 0).all()
    assert (kl_to_reference(a, a) == 0).all()


@given(arrays(np.float64, st.integers(0, 50), elements=st.floats(-4, 4)))
def test_ratio_counts_hold_every_token_once(log_ratio):
    edges = np.linspace(-1, 1, 11)
    counts = log_ratio_counts(np.append(log_ratio, np.nan), edges)
    assert counts.sum() == log_ratio.size
    assert counts[0] >= (log_ratio < -1).sum()
    assert counts[-1] >= (log_ratio > 1).sum()


# ---- tokens ----


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 8), FINITE), min_size=1, max_size=12), min_size=1, max_size=6)
)
def test_token_table_counts_and_averages_as_a_plain_loop(responses):
    table = TokenTable()
    plain: dict[int, list[float]] = {}
    for response in responses:
        ids, entropy = zip(*response, strict=True)
        table.add(np.array(ids), [f"t{i}" for i in ids], np.array(entropy))
        for i, e in response:
            plain.setdefault(i, []).append(e)
    means = table.means()
    assert {row.token_id: row.count for row in means} == {i: len(v) for i, v in plain.items()}
    for row in means:
        assert row.text == f"t{row.token_id}"
        assert row.entropy == pytest.approx(np.mean(plain[row.token_id]), abs=1e-9)
    assert [row.entropy for row in means] == sorted((row.entropy for row in means), reverse=True)
    assert {row.token_id for row in table.means(3)} == {i for i, v in plain.items() if len(v) >= 3}


@given(st.integers(0, 30), st.integers(1, 12))
def test_top_tokens_are_the_two_ends_and_never_share_a_token(count, size):
    table = TokenTable()
    table.add(np.arange(count), [str(i) for i in range(count)], np.arange(count) / 10)
    high, low = top_tokens(table.means(), size)
    assert len(high) == len(low) == min(size, count // 2)
    assert [row.token_id for row in high] == list(range(count - 1, count - 1 - len(high), -1))
    assert [row.token_id for row in low] == list(range(len(low)))


# ---- curves and intervals ----


@given(
    arrays(np.float64, st.integers(1, 40), elements=st.floats(-10, 10)),
    st.floats(-1, 1),
    st.floats(-1, 1),
    st.integers(2, 40),
)
def test_smoothing_keeps_straight_lines_and_the_range_and_has_no_direction(values, start, slope, window):
    line = start + slope * np.arange(len(values))
    np.testing.assert_allclose(smooth(line, window), line, atol=1e-6)
    assert (smooth(values, window) >= values.min()).all()
    assert (smooth(values, window) <= values.max()).all()
    np.testing.assert_allclose(smooth(values[::-1], window), smooth(values, window)[::-1], atol=1e-6)
    np.testing.assert_array_equal(smooth(values, 1), values)


def test_smoothing_agrees_with_a_weighted_fit_at_each_step_and_skips_gaps():
    rng = np.random.default_rng(0)
    values = rng.normal(size=12)
    values[[3, 7]] = np.nan
    known = ~np.isnan(values)
    place = np.arange(12)
    smoothed = smooth(values, 8)
    for i in range(12):
        if not known[i]:
            assert np.isnan(smoothed[i])
            continue
        weight = np.exp(-0.25 * ((place[known] - i) / 2) ** 2)
        fit = np.polyfit(place[known], values[known], 1, w=weight)
        assert smoothed[i] == pytest.approx(np.polyval(fit, i), abs=1e-9)


def test_smoothing_reduces_noise():
    noise = np.random.default_rng(0).normal(size=400)
    assert smooth(noise, 20).std() < 0.45 * noise.std()


@settings(max_examples=20)
@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1)))
def test_bootstrap_interval_is_ordered_repeatable_and_within_the_values(values):
    low, high = bootstrap_interval(values)
    assert values.min() - 1e-9 <= low <= high <= values.max() + 1e-9
    assert (low, high) == bootstrap_interval(values)


def test_bootstrap_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        low, high = bootstrap_interval(rng.normal(0.5, 0.2, 60), draws=300)
        inside += low <= 0.5 <= high
    assert 0.88 <= inside / 200 <= 0.99


def test_accuracy_leaves_unscorable_samples_out():
    rows = [
        {"problem_id": "a", "reward": 1.0},
        {"problem_id": "a", "reward": None},
        {"problem_id": "a", "reward": 0.0},
        {"problem_id": "b", "reward": None},
    ]
    assert accuracy_by_problem(rows) == {"a": 0.5}


def test_gain_by_difficulty_bins_by_the_first_and_subtracts_the_second():
    place = {"a": 0.0, "b": 0.5, "c": 1.0, "d": 0.1}
    before = {"a": 0.2, "b": 0.5, "c": 0.9}
    after = {"a": 0.5, "b": 0.75, "c": 0.8, "d": 1.0}
    bins = gain_by_difficulty(place, before, after, (0.0, 0.5, 1.0))
    assert [bin[:2] for bin in bins] == [(0.0, 0.5), (0.5, 1.0)]
    np.testing.assert_allclose(bins[0][2], [0.2])
    np.testing.assert_allclose(bins[0][3], [0.3])
    np.testing.assert_allclose(bins[1][2], [0.5, 0.9])
    np.testing.assert_allclose(bins[1][3], [0.25, -0.1])


def test_gain_by_difficulty_shows_no_gain_where_there_is_none():
    rng = np.random.default_rng(0)
    chance = rng.random(2000)
    draw = lambda: {str(i): rng.binomial(4, c) / 4 for i, c in enumerate(chance)}  # noqa: E731
    place, before, after = draw(), draw(), draw()
    edges = (0.0, 0.125, 0.375, 0.625, 0.875, 1.0)
    honest = [float(gain.mean()) for *_, gain in gain_by_difficulty(place, before, after, edges)]
    naive = [float(gain.mean()) for *_, gain in gain_by_difficulty(place, place, after, edges)]
    assert max(map(abs, honest)) < 0.05
    assert naive[0] > 0.05, "sorting by the accuracy that is subtracted invents gains"
