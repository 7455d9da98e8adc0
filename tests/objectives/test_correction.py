"""Truncated importance weights and the engine's distance, against numbers worked out by hand."""

import math

import pytest
import torch

from archer.configs.objective import ArcherConfig, DapoConfig, EspoConfig, GrpoConfig
from archer.errors import TensorError
from archer.objectives import aggregate, count, engine_gap, prepare, token_losses, truncated_importance
from archer.types import TokenBatch

OLD = torch.tensor([[-1.0, -2.0, -0.5], [-3.0, -1.0, math.nan]])
ENGINE = torch.tensor([[-1.0, -2.5, -0.25], [-4.5, -1.25, 7.0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])
# exp of 0, 0.5, -0.25, 1.5, 0.25
RATIOS = [1.0, 1.6487212707, 0.7788007831, 4.4816890703, 1.2840254167]


def test_weights_are_ratios_up_to_the_limit():
    weight = truncated_importance(OLD, ENGINE, MASK, 2.0)
    expected = [[RATIOS[0], RATIOS[1], RATIOS[2]], [2.0, RATIOS[4], 1.0]]
    torch.testing.assert_close(weight, torch.tensor(expected))


def test_gap():
    metrics = {name: (float(a), float(b)) for name, (a, b) in engine_gap(OLD, ENGINE, MASK, 2.0).items()}
    # k3 of KL(engine || trainer): ratio - 1 - log ratio
    kl = sum(r - 1 - math.log(r) for r in RATIOS)
    assert metrics["engine/logp_gap"] == pytest.approx((2.5, 5))
    assert metrics["engine/ratio_max"][0] == pytest.approx(RATIOS[3])
    assert metrics["engine/kl"] == pytest.approx((kl, 5), rel=1e-5)
    assert metrics["engine/truncated_share"] == (1, 5)
    assert "engine/truncated_share" not in engine_gap(OLD, ENGINE, MASK)


def test_gap_of_nothing_trained():
    metrics = engine_gap(OLD, ENGINE, torch.zeros_like(MASK))
    assert float(metrics["engine/ratio_max"][0]) == 1
    assert float(metrics["engine/kl"][1]) == 0


def test_correction_makes_the_expectation_that_of_the_old_policy():
    """Over all tokens of a vocabulary: sum of engine * weight * f is sum of old * f while nothing is cut."""
    old = torch.tensor([[0.5, 0.3, 0.2]]).log()
    engine = torch.tensor([[0.3, 0.3, 0.4]]).log()
    f = torch.tensor([[1.0, -2.0, 5.0]])
    weight = truncated_importance(old, engine, torch.ones(1, 3, dtype=torch.bool), 10.0)
    torch.testing.assert_close((engine.exp() * weight * f).sum(), (old.exp() * f).sum())


def batch(**changes):
    generator = torch.Generator().manual_seed(3)
    logp = -torch.rand(4, 6, generator=generator, dtype=torch.float64) - 0.1
    values = {
        "logp_BT": logp.clone().requires_grad_(),
        "old_logp_BT": logp + 0.1 * torch.randn(4, 6, generator=generator, dtype=torch.float64),
        "mask_BT": torch.arange(6) < torch.tensor([6, 4, 5, 1])[:, None],
        "advantage_BT": torch.tensor([1.0, -1.0, 0.5, -0.5], dtype=torch.float64)[:, None].expand(4, 6),
        "old_entropy_BT": torch.rand(4, 6, generator=generator, dtype=torch.float64),
        "ref_logp_BT": logp - 0.2,
        "group_B": torch.tensor([0, 0, 1, 1]),
    }
    return TokenBatch(**values | changes)


def gradient(config, **changes):
    rows = prepare(batch(**changes), config)
    aggregate(token_losses(rows, config), count(rows, config), config).backward()
    return rows.logp_BT.grad


@pytest.mark.parametrize(
    "config", [ArcherConfig(beta_k=0), GrpoConfig(beta=0), DapoConfig(), EspoConfig(vocabulary_size=40)]
)
def test_policy_gradient_is_multiplied_token_by_token(config):
    weight = torch.linspace(0.25, 2.0, 24, dtype=torch.float64).reshape(4, 6)
    plain, scaled = gradient(config), gradient(config, weight_BT=weight)
    assert plain.abs().sum() > 0
    torch.testing.assert_close(scaled, weight * plain)


@pytest.mark.parametrize("config", [ArcherConfig(beta_k=0.3, beta_r=0.2), GrpoConfig(beta=0.3)])
def test_kl_to_the_reference_is_not_weighted(config):
    zero = torch.zeros(4, 6, dtype=torch.float64)
    only_kl = gradient(config, advantage_BT=zero)
    assert only_kl.abs().sum() > 0
    torch.testing.assert_close(gradient(config, weight_BT=zero), only_kl)


def test_weights_outside_the_mask_never_matter():
    weight = torch.full((4, 6), 0.5, dtype=torch.float64)
    poisoned = torch.where(batch().mask_BT, weight, math.nan)
    torch.testing.assert_close(
        gradient(GrpoConfig(), weight_BT=poisoned), gradient(GrpoConfig(), weight_BT=weight)
    )


def test_wrong_shape_is_named():
    with pytest.raises(TensorError, match="weight_BT"):
        prepare(batch(weight_BT=torch.ones(4, 5)), GrpoConfig())
