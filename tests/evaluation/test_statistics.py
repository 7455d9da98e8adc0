"""avg@K and pass@k against golden values and brute force."""

import itertools
import math

import pytest

from archer.evaluation.statistics import avg_at_k, mean_interval, pass_at_k


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (4, 2, 2, 0.8333333333),
        (16, 1, 8, 0.5),
        (8, 7, 2, 1.0),
        (5, 0, 3, 0.0),
        (5, 5, 1, 1.0),
        (3, 1, 3, 1.0),
    ],
)
def test_golden(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-9)


def test_pass_at_k_is_the_share_of_subsets_with_a_right_one():
    for n in range(1, 7):
        for c in range(n + 1):
            right = [i < c for i in range(n)]
            for k in range(1, n + 1):
                subsets = list(itertools.combinations(right, k))
                assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_pass_at_k_refuses_what_is_not_defined(n, c, k):
    with pytest.raises(ValueError, match="expected 0 <= c <= n"):
        pass_at_k(n, c, k)


def test_avg_at_k_leaves_out_problems_without_a_score():
    assert avg_at_k([[1, 0], [], [1, 1, 0, 0, 1]]) == pytest.approx((0.5 + 0.6) / 2)
    assert math.isnan(avg_at_k([[], []]))


def test_interval():
    mean, half = mean_interval([0.0, 1.0, 1.0, 0.0])
    assert mean == 0.5
    assert half == pytest.approx(1.959964 * math.sqrt(1 / 3) / 2)
    assert math.isnan(mean_interval([1.0])[1])
