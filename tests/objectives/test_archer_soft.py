"""archer-soft and archer-k: what they conserve, and where they are Archer itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from archer.configs.objective import ArcherConfig, ArcherKConfig, ArcherSoftConfig
from archer.objectives import prepare, reasoning_roles, token_losses
from archer.objectives.methods.archer_soft import threshold_integral
from archer.types import TokenBatch

CONSTRAINTS = {"eps_r": 0.47, "eps_k": 0.13, "beta_r": 0.07, "beta_k": 0.3}


def weights_of(batch, **settings):
    return prepare(batch, ArcherSoftConfig(**settings)).grade_BT


def number(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("scope", ["response", "group", "batch"])
@pytest.mark.parametrize("entropy_from", ["old", "current"])
@pytest.mark.parametrize("tie", ["reasoning", "knowledge"])
@pytest.mark.parametrize("seed", range(3))
def test_the_sharp_limit_is_archer_to_the_last_bit(scope, entropy_from, tie, seed, random_batch, evaluate):
    batch = random_batch(seed, ties=True)
    shared = {"scope": scope, "entropy_from": entropy_from, "tie": tie, **CONSTRAINTS}
    archer = evaluate(batch, ArcherConfig(**shared))
    sharp = evaluate(batch, ArcherSoftConfig(softness=0, **shared))
    assert sharp.loss == archer.loss
    assert torch.equal(sharp.grad, archer.grad)
    assert sharp.terms.metrics.keys() == archer.terms.metrics.keys()
    for name, pair in archer.terms.metrics.items():
        assert torch.equal(torch.stack(sharp.terms.metrics[name]), torch.stack(pair)), name


def test_the_limit_is_approached(random_batch, evaluate):
    """The distance to Archer's weights falls to nothing as the softness does, ties or not."""
    batch = random_batch(1, ties=True)
    sharp = weights_of(batch, softness=0)
    distance = [
        (weights_of(batch, softness=s) - sharp).abs().max().item() for s in (1, 0.1, 0.01, 1e-4, 1e-8, 5e-324)
    ]
    assert distance == sorted(distance, reverse=True)
    assert distance[0] > 0.1
    assert distance[-1] < 1e-6


@pytest.mark.parametrize("scope", ["response", "group", "batch"])
@pytest.mark.parametrize("softness", [1e-3, 0.3, 1.0])
@pytest.mark.parametrize("rho", [0.0, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("tie", ["reasoning", "knowledge"])
def test_each_pool_keeps_archers_mean_range_and_weight(scope, softness, rho, tie, random_batch):
    for seed in range(3):
        batch = random_batch(seed, ties=seed == 1)
        roles = {"rho": rho, "scope": scope, "tie": tie}
        archer = reasoning_roles(batch.old_entropy_BT, batch.mask_BT, group_B=batch.group_B, **roles)
        weight = weights_of(batch, softness=softness, **roles)
        assert ((weight >= 0) & (weight <= 1)).all()
        assert (weight[~batch.mask_BT] == 0).all()
        pools = {
            "response": [[i] for i in range(6)],
            "group": [[0, 2, 4], [1, 3, 5]],
            "batch": [[0, 1, 2, 3, 4, 5]],
        }[scope]
        for rows in pools:
            assert weight[rows].sum().item() == pytest.approx(archer[rows].sum().item(), abs=1e-9)


entropies = st.lists(st.one_of(st.integers(0, 5), st.floats(0, 8, width=32)), min_size=1, max_size=60)


@settings(deadline=None, derandomize=True)
@given(entropies, st.floats(0, 1), st.floats(0, 1), st.sampled_from(["reasoning", "knowledge"]))
def test_weights_rise_with_entropy_and_conserve_the_number_of_reasoning_tokens(values, rho, softness, tie):
    entropy = torch.tensor([values], dtype=torch.float64)
    mask = torch.ones_like(entropy, dtype=torch.bool)
    batch = TokenBatch(entropy, entropy, mask, entropy, old_entropy_BT=entropy)
    weight = weights_of(batch, rho=rho, softness=softness, tie=tie)
    archer = reasoning_roles(entropy, mask, rho=rho, tie=tie)
    assert weight.sum().item() == pytest.approx(archer.sum().item(), abs=1e-8)
    order = entropy[0].argsort(stable=True)
    steps = weight[0][order].diff()
    assert (steps >= -1e-9).all()
    assert (steps[entropy[0][order].diff() == 0] == 0).all()


def test_the_widest_spread_at_rho_four_fifths_is_the_fourth_power():
    """F(u) = u^4 has mean threshold .8, so its integral is u^5 / 5."""
    u = torch.linspace(0, 1, 11, dtype=torch.float64)
    assert torch.allclose(threshold_integral(u, number(0.8), number(4.0)), u**5 / 5, atol=1e-14)


@pytest.mark.parametrize(
    ("mean", "power"), [(0.5, 1.0), (0.5, 3.0), (0.8, 4.0), (0.8, 9.0), (0.2, 4.0), (0.65, 50)]
)
def test_the_integral_is_that_of_the_distribution_function(mean, power):
    """Slope between 0 and 1 and rising; 0 at 0 and 1 - mean at 1; F is 0 at 0 and 1 at 1."""
    u = torch.linspace(0, 1, 4001, dtype=torch.float64)
    area = threshold_integral(u, number(mean), number(float(power)))
    slope = area.diff() * 4000
    assert area[0] == 0
    assert area[-1].item() == pytest.approx(1 - mean)
    assert (slope.diff() >= -1e-9).all()
    assert slope[0].item() == pytest.approx(0, abs=0.03)
    assert slope[-1].item() == pytest.approx(1, abs=0.03)
    # the centre of mass of the threshold is the mean: 1 - area at 1, seen from the slope
    threshold_density = slope.diff()
    middle = (u[1:-1] * threshold_density).sum() / threshold_density.sum()
    assert middle.item() == pytest.approx(mean, abs=2e-3)


@pytest.mark.parametrize("tie", ["reasoning", "knowledge"])
@pytest.mark.parametrize("seed", range(3))
def test_two_roles_are_archer_to_the_last_bit(tie, seed, random_batch, evaluate):
    batch = random_batch(seed, ties=True)
    archer = evaluate(batch, ArcherConfig(tie=tie, **CONSTRAINTS))
    two = evaluate(batch, ArcherKConfig(tie=tie, thresholds=(0.8,), eps=(0.13, 0.47), beta=(0.3, 0.07)))
    assert two.loss == archer.loss
    assert torch.equal(two.grad, archer.grad)


def test_roles_of_archer_k():
    """Eleven tokens of rising entropy, ranks 0, .1 ... 1."""
    entropy = torch.arange(11, dtype=torch.float64)[None]
    mask = torch.ones_like(entropy, dtype=torch.bool)
    batch = TokenBatch(entropy, entropy, mask, entropy, old_entropy_BT=entropy)
    config = ArcherKConfig(thresholds=(0.3, 0.8), beta=(0, 0, 0))
    step = prepare(batch, config)
    assert step.grade_BT.tolist() == [[0] * 3 + [1] * 5 + [2] * 3]
    metrics = token_losses(step, config).metrics
    shares = [metrics[f"role/share_{k}"] for k in range(3)]
    assert [(s.item(), n.item()) for s, n in shares] == [(3, 11), (5, 11), (3, 11)]
    assert metrics["role/reasoning_share"][0] == 3
    with pytest.raises(ValueError, match="expected grade_BT, got None: call prepare"):
        token_losses(batch, config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eps": (0.1, 0.2)}, "expected 3 values in eps and in beta for 2 thresholds, got 2 and 3"),
        ({"beta": ()}, "got 3 and 0"),
        ({"thresholds": (0.8, 0.5)}, "expected rising thresholds"),
    ],
)
def test_archer_k_needs_a_range_and_weight_for_each_role(settings, message):
    with pytest.raises(ValidationError, match=message):
        ArcherKConfig(**settings)
