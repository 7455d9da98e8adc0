"""Group advantages: numbers worked out by hand, numerically hard groups, and invariances."""

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from archer.configs.objective import AdvantageConfig
from archer.objectives import group_advantages

NAN = float("nan")
STD, MEAN, LOO = (AdvantageConfig(normalisation=name) for name in ("std", "mean-only", "leave-one-out"))


def advantages(reward, config=STD, group=None):
    reward = torch.tensor(reward, dtype=torch.float32)
    group = torch.zeros(len(reward), dtype=torch.int64) if group is None else torch.tensor(group)
    out = group_advantages(reward, group, config)
    assert out.dtype == torch.float32
    assert out.shape == reward.shape
    return out.tolist()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # mean .25; variance (9 + 3) / 16 / (4 - ddof): std .5 and .433013
        (STD, [1.499997, -0.499999, -0.499999, -0.499999]),
        (AdvantageConfig(ddof=0), [1.732047, -0.577349, -0.577349, -0.577349]),
        (AdvantageConfig(epsilon=0.5), [0.75, -0.25, -0.25, -0.25]),
        (MEAN, [0.75, -0.25, -0.25, -0.25]),
        (LOO, [1.0, -1 / 3, -1 / 3, -1 / 3]),
    ],
)
def test_normalisations_on_one_right_of_four(config, expected):
    assert advantages([1, 0, 0, 0], config) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("config", [STD, MEAN, LOO])
@pytest.mark.parametrize("reward", [[0.3] * 6, [0.1] * 3, [1.0] * 8, [0.0, 0.0], [0.7], [-1e6] * 5])
def test_a_constant_group_has_advantage_exactly_zero(config, reward):
    """In float64 the mean of three tenths is not a tenth."""
    assert advantages(reward, config) == [0.0] * len(reward)
    exact = torch.tensor(reward, dtype=torch.float64)
    group = torch.zeros(len(reward), dtype=torch.int64)
    assert group_advantages(exact, group, config).tolist() == [0.0] * len(reward)


@pytest.mark.parametrize("rest", [0.35, 0.4])
def test_one_outlier_among_equal_rewards_stays_bounded(rest):
    """The std of the other seven is a rounding residue, so nothing may be divided by it."""
    assert advantages([1.0] + [rest] * 7, LOO) == pytest.approx([1 - rest] + [(rest - 1) / 7] * 7, abs=1e-6)
    # for any such group the z-scores are (n - 1) / sqrt(n) and -1 / sqrt(n)
    assert advantages([1.0] + [rest] * 7) == pytest.approx(
        [7 / math.sqrt(8)] + [-1 / math.sqrt(8)] * 7, abs=1e-4
    )


def test_a_small_spread_is_kept_as_signal():
    low, high = advantages([1.00000, 1.00001], AdvantageConfig(epsilon=1e-9))
    assert (low, high) == pytest.approx((-math.sqrt(0.5), math.sqrt(0.5)), abs=1e-3)


@pytest.mark.parametrize("bad", [NAN, float("inf"), -float("inf")])
def test_unscorable_rewards_are_excluded(bad):
    scorable = advantages([1, 0, 1])
    assert advantages([1, bad, 0, 1]) == pytest.approx([scorable[0], 0, scorable[1], scorable[2]])
    assert advantages([bad, bad, bad, 1]) == [0, 0, 0, 0]
    assert advantages([bad, bad]) == [0, 0]


def test_a_group_of_one_is_zero_or_its_reward():
    assert advantages([1.0]) == [0.0]
    as_verl = AdvantageConfig(singleton="reward")
    assert advantages([1.0], as_verl) == pytest.approx([1 / (1 + 1e-6)])
    assert advantages([1.0, NAN], as_verl) == pytest.approx([1.0, 0.0], abs=1e-5)
    assert advantages([1.0, 1.0], as_verl) == [0.0, 0.0]


def test_groups_go_by_id_not_by_position():
    """Two prompts interleaved: the first answers always right, the second half the time."""
    out = advantages([1, 0, 1, 1], MEAN, group=[10, -3, 10, -3])
    assert out == [0, -0.5, 0, 0.5]


def test_no_rows():
    assert advantages([]) == []


@pytest.mark.parametrize(
    ("reward", "group", "message"),
    [
        (torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64), "expected reward_B of shape"),
        (torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), "got .* torch.int64"),
        (torch.zeros(3), torch.zeros(2, dtype=torch.int64), r"expected group_B of shape \[3\]"),
        (torch.zeros(2), torch.zeros(2), "got .* torch.float32"),
    ],
)
def test_wrong_inputs_are_named(reward, group, message):
    with pytest.raises(ValueError, match=message):
        group_advantages(reward, group, STD)


rewards = st.lists(st.one_of(st.floats(-2, 2, width=32), st.just(NAN)), min_size=1, max_size=12)


@settings(deadline=None, derandomize=True)
@given(rewards, st.randoms(use_true_random=False), st.sampled_from([STD, MEAN, LOO]))
def test_row_order_and_other_groups_do_not_matter(reward, random, config):
    group = [random.choice([4, 9]) for _ in reward]
    order = random.sample(range(len(reward)), len(reward))
    whole = advantages(reward, config, group)
    shuffled = advantages([reward[i] for i in order], config, [group[i] for i in order])
    assert [whole[i] for i in order] == pytest.approx(shuffled, abs=1e-5)
    alone = advantages([r for r, g in zip(reward, group, strict=True) if g == 4], config)
    assert alone == pytest.approx([a for a, g in zip(whole, group, strict=True) if g == 4], abs=1e-5)


@settings(deadline=None, derandomize=True)
@given(rewards, st.sampled_from([0, 1]))
def test_standard_scores_agree_with_the_statistics_module(reward, ddof):
    out = advantages(reward, AdvantageConfig(ddof=ddof))
    known = [r for r in reward if not math.isnan(r)]
    assert all(math.isfinite(a) for a in out)
    if len(set(known)) < 2:
        assert out == [0.0] * len(reward)
        return
    std = statistics.stdev(known) if ddof else statistics.pstdev(known)
    mean = statistics.mean(known)
    expected = [0.0 if math.isnan(r) else (r - mean) / (std + 1e-6) for r in reward]
    assert out == pytest.approx(expected, rel=1e-5, abs=1e-6)
