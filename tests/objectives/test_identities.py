"""What must be equal to what, between methods and at the sampling policy."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from archer.configs.objective import (
    AdvantageConfig,
    ArcherConfig,
    ArcherReleasedConfig,
    ArLoptiConfig,
    AspoConfig,
    CeGppoConfig,
    CispoConfig,
    ClipCovConfig,
    DapoConfig,
    DrGrpoConfig,
    EntropyAdvantageConfig,
    EspoConfig,
    GppoConfig,
    GrpoConfig,
    GspoConfig,
    HapoConfig,
    KLCovConfig,
    PearConfig,
    SteerConfig,
)
from archer.objectives import aggregate, count, group_advantages, needs, token_losses
from archer.types import TokenBatch

PPO_TYPE = [
    ArcherConfig(),
    ArcherReleasedConfig(),
    GrpoConfig(),
    DapoConfig(),
    DrGrpoConfig(),
    PearConfig(),
    CispoConfig(),
    GppoConfig(),
    CeGppoConfig(),
    ClipCovConfig(window=(98.0, 99.0)),
    KLCovConfig(),
    AspoConfig(),
]


def on_policy(batch):
    """No update yet, and a reference that has not been left."""
    return replace(batch, old_logp_BT=batch.logp_BT.clone(), ref_logp_BT=batch.logp_BT.clone())


@pytest.mark.parametrize("config", PPO_TYPE, ids=lambda c: c.method)
def test_before_the_first_update_the_gradient_is_minus_the_advantage(config, random_batch, evaluate):
    batch = on_policy(random_batch(0))
    outcome = evaluate(batch, config)
    mask = batch.mask_BT
    assert torch.allclose(outcome.token_grad[mask], -batch.advantage_BT[mask], atol=1e-12, rtol=0)
    ratio = outcome.terms.metrics
    assert ratio["ratio/mean"][0] == ratio["ratio/mean"][1]
    assert ratio["ratio/value_max"][0] == ratio["ratio/value_min"][0] == 1


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("seed", range(3))
def test_archer_with_equal_constraints_is_grpo_with_kl(aggregation, estimator, seed, random_batch, evaluate):
    batch = random_batch(seed)
    shared = {"aggregation": aggregation, "kl_estimator": estimator, "dual_clip": 3}
    grpo = evaluate(batch, GrpoConfig(eps_low=0.3, eps_high=0.3, beta=0.2, **shared))
    for rho in (0.0, 0.8, 1.0):
        equal = ArcherConfig(rho=rho, eps_r=0.3, eps_k=0.3, beta_r=0.2, beta_k=0.2, **shared)
        archer = evaluate(batch, equal)
        assert archer.loss == pytest.approx(grpo.loss, abs=1e-12)
        assert torch.allclose(archer.grad, grpo.grad, atol=1e-12, rtol=0)


def test_archer_with_a_threshold_at_the_bottom_has_one_role(random_batch, evaluate):
    batch = random_batch(3)
    archer = evaluate(batch, ArcherConfig(rho=0, eps_r=0.4, beta_r=0.1, aggregation="seq-mean-token-mean"))
    grpo = evaluate(batch, GrpoConfig(eps_low=0.4, eps_high=0.4, beta=0.1))
    assert torch.allclose(archer.grad, grpo.grad, atol=1e-12, rtol=0)
    share = archer.terms.metrics["role/reasoning_share"]
    assert share[0] == share[1]


def test_released_archer_is_the_papers_without_kl_and_with_the_papers_choices(random_batch, evaluate):
    batch = random_batch(2, ties=True)
    shared = {"beta_k": 0.0, "dual_clip": None, "aggregation": "token-mean", "entropy_from": "old"}
    paper = evaluate(batch, ArcherConfig(**shared))
    released = evaluate(batch, ArcherReleasedConfig(tie="reasoning", **shared))
    assert torch.allclose(released.grad, paper.grad, atol=1e-12, rtol=0)
    defaults = evaluate(batch, ArcherReleasedConfig(**shared))
    assert not torch.allclose(defaults.grad, paper.grad, atol=1e-6)


def test_released_archer_takes_unset_clip_values_from_the_other_side(random_batch, evaluate):
    batch = random_batch(4)
    unset = evaluate(batch, ArcherReleasedConfig())
    spelled = evaluate(batch, ArcherReleasedConfig(eps_r_low=0.5, eps_k_high=0.2))
    assert torch.equal(unset.grad, spelled.grad)
    other = evaluate(batch, ArcherReleasedConfig(eps_r_low=0.1, eps_k_high=0.9))
    assert not torch.allclose(other.grad, unset.grad, atol=1e-6)


def test_ce_gppo_without_its_gradients_has_the_gradient_of_ppo_but_not_its_value(random_batch, evaluate):
    batch = random_batch(1)
    nothing = evaluate(batch, CeGppoConfig(beta_1=0, beta_2=0))
    ppo = evaluate(batch, DapoConfig(eps_high=0.2))
    assert torch.allclose(nothing.grad, ppo.grad, atol=1e-12, rtol=0)
    assert nothing.loss != pytest.approx(ppo.loss, abs=1e-3)


def test_gppo_is_ce_gppo_with_both_weights_one(random_batch, evaluate):
    batch = random_batch(1)
    gppo, ce = (
        evaluate(batch, GppoConfig()),
        evaluate(batch, CeGppoConfig(beta_1=1, beta_2=1, dual_clip=None)),
    )
    assert torch.equal(gppo.grad, ce.grad)


@pytest.mark.parametrize("config", [GspoConfig(), GspoConfig(eps_low=0.3, eps_high=0.4)])
def test_the_gradient_of_gspo_is_constant_within_a_response(config, random_batch, evaluate):
    batch = random_batch(2)
    grad = evaluate(batch, config).grad
    for row, mask in zip(grad, batch.mask_BT, strict=True):
        assert row[mask].unique().numel() <= 1


def test_ar_without_weight_is_the_plain_method_and_lopti_splits_it(random_batch, evaluate):
    batch = random_batch(5)
    shared = {"alpha": 0, "beta": 0.1, "eps_high": 0.28}
    plain = evaluate(batch, DapoConfig(beta=0.1))
    assert torch.allclose(evaluate(batch, ArLoptiConfig(eta=None, **shared)).grad, plain.grad, atol=1e-12)
    passes = [evaluate(batch, ArLoptiConfig(eta=0.3, **shared), pass_index=i) for i in range(2)]
    assert torch.allclose(passes[0].grad + passes[1].grad, plain.grad, atol=1e-12)
    assert sum(p.loss for p in passes) == pytest.approx(plain.loss, abs=1e-12)


def test_steer_with_weight_one_and_entropy_advantage_with_weight_zero_are_dapo(random_batch, evaluate):
    batch = random_batch(3)
    dapo = evaluate(batch, DapoConfig())
    assert torch.allclose(evaluate(batch, SteerConfig(lambda_min=1)).grad, dapo.grad, atol=1e-12)
    shaped = EntropyAdvantageConfig(alpha=0, dual_clip=10)
    assert torch.allclose(evaluate(batch, shaped).grad, dapo.grad, atol=1e-12)


@settings(deadline=None, derandomize=True)
@given(st.floats(-3, 3, allow_subnormal=False), st.floats(0, 10), st.floats(1.01, 5))
def test_the_entropy_term_never_turns_an_advantage_around(advantage, entropy, kappa):
    def one(x):
        return torch.tensor([[x]], dtype=torch.float64)

    logp = one(-1.0).requires_grad_()
    batch = TokenBatch(logp, one(-1.0), one(0).bool() | True, one(advantage), entropy_BT=one(entropy))
    terms = token_losses(batch, EntropyAdvantageConfig(kappa=kappa))
    (slope,) = torch.autograd.grad(terms.parts["policy"].loss_BT.sum(), logp)
    assert slope.item() * advantage <= 0
    assert (slope == 0).item() == (advantage == 0)


def test_a_loss_of_zero_can_have_a_gradient():
    """Rewards 1, 0, 0, 1, equal lengths, on policy, no KL: the loss is 0, the gradient is not."""
    group = torch.zeros(4, dtype=torch.int64)
    advantage = group_advantages(torch.tensor([1.0, 0, 0, 1]), group, AdvantageConfig())
    logp = torch.full((4, 5), -0.7, requires_grad=True)
    mask = torch.ones(4, 5, dtype=torch.bool)
    batch = TokenBatch(logp, logp.detach().clone(), mask, advantage[:, None].expand(4, 5))
    config = GrpoConfig(beta=0)
    loss = aggregate(token_losses(batch, config), count(batch, config), config)
    loss.backward()
    assert abs(loss.item()) < 1e-6
    assert logp.grad.norm() > 0.1


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ArcherConfig(), (True, True, False, "response", 1)),
        (ArcherConfig(beta_k=0, scope="batch"), (False, True, False, "batch", 1)),
        (ArcherConfig(entropy_from="current", scope="group"), (True, False, True, "micro-batch", 1)),
        (ArcherReleasedConfig(), (True, False, True, "response", 1)),
        (ArcherReleasedConfig(aggregation="token-mean"), (True, False, True, "micro-batch", 1)),
        (GrpoConfig(), (True, False, False, "token", 1)),
        (DapoConfig(), (False, False, False, "token", 1)),
        (GspoConfig(), (False, False, False, "response", 1)),
        (EspoConfig(vocabulary_size=9), (False, True, False, "response", 1)),
        (ArLoptiConfig(), (True, False, False, "token", 2)),
        (ArLoptiConfig(eta=None, beta=0), (False, False, False, "token", 1)),
        (ClipCovConfig(), (False, False, False, "micro-batch", 1)),
        (HapoConfig(), (False, False, True, "micro-batch", 1)),
        (SteerConfig(), (False, True, False, "micro-batch", 1)),
        (EntropyAdvantageConfig(), (False, False, True, "token", 1)),
        (PearConfig(), (False, True, False, "token", 1)),
    ],
    ids=lambda x: getattr(x, "method", ""),
)
def test_needs(config, expected):
    found = needs(config)
    assert (
        found.reference,
        found.old_entropy,
        found.current_entropy,
        found.statistic,
        found.passes,
    ) == expected
    assert found.aggregation == config.aggregation
    assert found.generator == (config.method == "clip-cov")
    assert found.shaped_reward == (config.method == "pear")


def test_a_kl_weight_without_a_reference_is_named(random_batch):
    batch = replace(random_batch(0), ref_logp_BT=None)
    with pytest.raises(
        ValueError, match=r"expected ref_logp_BT, got None: the KL weights of 'grpo' are \(0.04,\)"
    ):
        token_losses(batch, GrpoConfig())
    assert "kl/mean" not in token_losses(batch, DapoConfig()).metrics
