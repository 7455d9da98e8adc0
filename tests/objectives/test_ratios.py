"""Importance ratios, KL estimates and the clipped surrogate, one token at a time."""

import math

import pytest
import torch

from archer.objectives import importance_ratio, kl_estimate
from archer.objectives.surrogates import clipped_surrogate

F_LOGP = [math.log(p) for p in (0.55, 0.32, 0.20, 0.28, 0.70)]
F_REF = [math.log(p) for p in (0.45, 0.25, 0.60, 0.35, 0.30)]


def value_and_slope(function, x):
    """f(x) and f'(x) for each element of a list."""
    point = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    value = function(point)
    (slope,) = torch.autograd.grad(value.sum(), point)
    return value.tolist(), slope.tolist()


def test_ratio_is_clamped_at_20_nats():
    value, slope = value_and_slope(lambda x: importance_ratio(x, torch.zeros(4)), [0.5, 20.0, 20.1, -300.0])
    assert value == pytest.approx([math.exp(0.5), math.exp(20), math.exp(20), math.exp(-20)])
    assert slope == pytest.approx([math.exp(0.5), math.exp(20), 0, 0])


@pytest.mark.parametrize(
    ("estimator", "values"),
    [
        ("k1", [0.200671, 0.246860, -1.098612, -0.223144, 0.847298]),
        ("k2", [0.020134, 0.030470, 0.603474, 0.024897, 0.358957]),
        ("k3", [0.018853, 0.028110, 0.901388, 0.026856, 0.275869]),
    ],
)
def test_kl_values_and_gradients_on_f(estimator, values):
    reference = torch.tensor(F_REF, dtype=torch.float64)
    value, slope = value_and_slope(lambda x: kl_estimate(x, reference, estimator), F_LOGP)
    assert value == pytest.approx(values, abs=1e-6)
    d = [a - b for a, b in zip(F_LOGP, F_REF, strict=True)]
    expected = {"k1": [1.0] * 5, "k2": d, "k3": [1 - math.exp(-x) for x in d]}[estimator]
    assert slope == pytest.approx(expected)


def test_k3_is_exact_where_the_policies_nearly_agree():
    """exp(-d) - 1 + d would lose every digit of d^2 / 2 in float32."""
    kl = kl_estimate(torch.tensor([1e-4]), torch.zeros(1), "k3")
    assert kl.item() == pytest.approx(5e-9, rel=1e-2)


@pytest.mark.parametrize("d", [21.0, 400.0, -21.0, -400.0])
def test_k3_is_finite_and_flat_beyond_the_clamp(d):
    value, slope = value_and_slope(lambda x: kl_estimate(x, torch.zeros(1), "k3"), [d])
    edge = math.copysign(20, d)
    assert value == pytest.approx([math.exp(-edge) + edge - 1])
    assert slope == [0]


def test_kl_limit_stops_the_gradient():
    """k3 at d = -2.8 is 12.6: limited to 10."""
    value, slope = value_and_slope(lambda x: kl_estimate(x, torch.zeros(2), "k3", 10), [-2.8, -1.0])
    assert value == pytest.approx([10, math.e - 2])
    assert slope == pytest.approx([0, 1 - math.e])


A_POSITIVE = [(0.1, -0.1, -1), (0.8, -0.8, -1), (1.4, -1.4, -1), (1.41, -1.4, 0), (5.0, -1.4, 0)]
A_NEGATIVE = [(0.1, 0.7, 0), (0.69, 0.7, 0), (0.7, 0.7, 1), (1.4, 1.4, 1), (5.0, 5.0, 1)]


@pytest.mark.parametrize(("sign", "table"), [(1.0, A_POSITIVE), (-1.0, A_NEGATIVE)])
@pytest.mark.parametrize("per_token", [False, True])
def test_clip_regions(sign, table, per_token):
    """Ranges .3 below and .4 above: value and slope in the ratio, the edges included."""
    low, high = (torch.tensor(0.3, dtype=torch.float64), torch.tensor(0.4, dtype=torch.float64))
    if not per_token:
        low, high = 0.3, 0.4
    advantage = torch.tensor(sign, dtype=torch.float64)
    ratios = [r for r, _, _ in table]
    value, slope = value_and_slope(lambda r: clipped_surrogate(r, advantage, low, high), ratios)
    assert value == pytest.approx([v for _, v, _ in table])
    assert slope == [s for _, _, s in table]


def test_dual_clip_bounds_negative_advantages_only():
    ratio = [2.9, 3.0, 3.1]
    value, slope = value_and_slope(lambda r: clipped_surrogate(r, torch.tensor(-2.0), 0.2, 9.0, 3.0), ratio)
    assert value == pytest.approx([5.8, 6.0, 6.0])
    assert slope == [2, 2, 0]
    value, slope = value_and_slope(lambda r: clipped_surrogate(r, torch.tensor(2.0), 0.2, 9.0, 3.0), ratio)
    assert value == pytest.approx([-5.8, -6.0, -6.2])
    assert slope == [-2, -2, -2]


def test_no_advantage_no_gradient():
    value, slope = value_and_slope(
        lambda r: clipped_surrogate(r, torch.tensor(0.0), 0.2, 0.2), [0.1, 1.0, 9.0]
    )
    assert value == [0, 0, 0]
    assert slope == [0, 0, 0]
