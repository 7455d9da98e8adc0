"""What every method must keep: padding, order, split, poison, empty batches, finite differences."""

from dataclasses import fields, replace
from typing import get_args

import pytest
import torch
from torch.nn.functional import pad

from archer.configs.objective import (
    ArcherConfig,
    ArcherKConfig,
    ArcherReleasedConfig,
    ArcherSoftConfig,
    ArLoptiConfig,
    EightyTwentyConfig,
    GrpoConfig,
    GspoConfig,
    ObjectiveConfig,
)
from archer.objectives import aggregate, count, needs, prepare, token_losses

CLASSES = get_args(get_args(ObjectiveConfig)[0])
SETTINGS = {"espo": {"vocabulary_size": 100}, "clip-cov": {"window": (0.05, 9.0), "share": 0.2}}
CONFIGS = {
    **{(name := c.model_fields["method"].default): c(**SETTINGS.get(name, {})) for c in CLASSES},
    "archer, group": ArcherConfig(scope="group", dual_clip=3, kl_estimator="k1"),
    "archer, batch": ArcherConfig(scope="batch", rho=0.5, aggregation="seq-mean-token-mean"),
    "archer, current": ArcherConfig(entropy_from="current", tie="knowledge", kl_estimator="k2"),
    "archer, current batch": ArcherConfig(entropy_from="current", scope="batch"),
    "archer-released, token-mean": ArcherReleasedConfig(aggregation="token-mean"),
    "archer-released, old": ArcherReleasedConfig(aggregation="token-mean", entropy_from="old"),
    "archer-soft, wide": ArcherSoftConfig(softness=1, scope="group", tie="knowledge"),
    "archer-k, four": ArcherKConfig(
        thresholds=(0.1, 0.5, 0.9), eps=(0.1, 0.2, 0.3, 0.4), beta=(0, 0.3, 0.2, 0.1), scope="batch"
    ),
    "grpo, constant": GrpoConfig(aggregation="constant-length", constant_length=7),
    "gspo, KL": GspoConfig(beta=0.1),
    "eighty-twenty, old": EightyTwentyConfig(entropy_from="old", beta=0.1),
    "eighty-twenty, all": EightyTwentyConfig(scope="response", denominator="all"),
    "ar": ArLoptiConfig(eta=None),
}
NOT_SPLIT_INVARIANT = {
    "archer, current batch",
    "archer-released, token-mean",
    "eighty-twenty",
    "clip-cov",
    "kl-cov",
    "hapo",
    "hapo-released",
    "steer",
}
STOP_GRADIENT = {
    "gspo",
    "gspo, KL",
    "espo",
    "cispo",
    "gppo",
    "ce-gppo",
    "aspo",
    "aspo-released",
    "steer",
}


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


@pytest.fixture(params=range(3))
def batch(request, random_batch):
    return random_batch(request.param, ties=request.param == 1)


def padded(batch, left, right):
    """More masked columns, with values that must not matter."""
    wide = {}
    for field in fields(batch):
        value = getattr(batch, field.name)
        if value is not None and value.ndim == 2:
            fill = False if value.dtype == torch.bool else float("nan")
            wide[field.name] = pad(value, (left, right), value=fill)
    return replace(batch, **wide)


def test_masked_values_never_reach_loss_or_gradient(config, batch, evaluate):
    """The batch holds NaN, infinities and large numbers there; zeros instead change nothing."""
    outcome = evaluate(batch, config)
    zeros = replace(
        batch,
        **{
            f.name: torch.where(batch.mask_BT, getattr(batch, f.name), 0.0)
            for f in fields(batch)
            if f.name.endswith("_BT") and getattr(batch, f.name) is not None and f.name != "mask_BT"
        },
    )
    same = evaluate(zeros, config)
    assert outcome.grad.isfinite().all()
    assert (outcome.grad[~batch.mask_BT] == 0).all()
    assert outcome.grad[batch.mask_BT].count_nonzero() > 0
    assert outcome.loss == same.loss
    assert torch.equal(outcome.grad, same.grad)


def test_padding_changes_nothing(config, batch, evaluate):
    outcome = evaluate(batch, config)
    wide = evaluate(padded(batch, 2, 3), config)
    assert wide.loss == pytest.approx(outcome.loss, abs=1e-12)
    assert torch.allclose(wide.grad[:, 2:-3], outcome.grad, atol=1e-12, rtol=0)
    assert {k: pytest.approx((s.item(), n.item())) for k, (s, n) in outcome.terms.metrics.items()} == {
        k: (s.item(), n.item()) for k, (s, n) in wide.terms.metrics.items()
    }


@pytest.mark.parametrize("method", sorted(CONFIGS.keys() - {"clip-cov"}))
def test_row_order_changes_nothing(method, batch, evaluate, take):
    """clip-cov hands its random numbers to the tokens in row order."""
    config = CONFIGS[method]
    order = [4, 0, 5, 2, 1, 3]
    outcome = evaluate(batch, config)
    shuffled = evaluate(take(batch, order), config)
    assert shuffled.loss == pytest.approx(outcome.loss, abs=1e-12)
    assert torch.allclose(shuffled.grad, outcome.grad[order], atol=1e-12, rtol=0)


def split_gradient(batch, config, take, losses, split):
    """Loss and gradient of a step whose rows go through in micro-batches."""
    logp = batch.logp_BT.clone().requires_grad_()
    step = prepare(batch, config)
    counts = count(step, config)
    total = 0.0
    for rows in split:
        micro = replace(take(step, rows), logp_BT=logp[rows])
        loss = aggregate(losses(micro, config), counts, config)
        loss.backward()
        total += loss.item()
    return total, logp.grad


SPLITS = ([[0, 1, 2], [3, 4, 5]], [[5], [2, 0], [1, 4, 3]], [[i] for i in range(6)])


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("split", SPLITS, ids=["halves", "uneven", "single"])
def test_any_split_gives_the_same_gradient(name, batch, evaluate, take, losses, split):
    config = CONFIGS[name]
    outcome = evaluate(batch, config)
    loss, grad = split_gradient(batch, config, take, losses, split)
    same = torch.allclose(grad, outcome.grad, atol=1e-12, rtol=0)
    if name in NOT_SPLIT_INVARIANT:
        assert needs(config).statistic == "micro-batch"
        assert not same
    else:
        assert needs(config).statistic != "micro-batch"
        assert same
        assert loss == pytest.approx(outcome.loss, abs=1e-12)


def test_nothing_to_train_gives_zero_loss_and_zero_gradient(config, batch, evaluate):
    nothing = replace(batch, mask_BT=torch.zeros_like(batch.mask_BT))
    outcome = evaluate(nothing, config)
    assert outcome.loss == 0
    assert torch.equal(outcome.grad, torch.zeros_like(outcome.grad))


def test_responses_of_no_tokens(config, batch, evaluate):
    no_columns = {
        f.name: value[:, :0]
        for f in fields(batch)
        if (value := getattr(batch, f.name)) is not None and value.ndim == 2
    }
    assert evaluate(replace(batch, **no_columns), config).loss == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_low_precision_inputs_are_computed_in_float32(config, batch, evaluate, dtype):
    low = {
        f.name: value.to(dtype)
        for f in fields(batch)
        if (value := getattr(batch, f.name)) is not None and value.is_floating_point()
    }
    batch = replace(batch, **low)
    exact = replace(batch, **{name: value.double() for name, value in low.items()})
    outcome = evaluate(batch, config)
    assert all(part.loss_BT.dtype == torch.float32 for part in outcome.terms.parts.values())
    assert outcome.loss == pytest.approx(evaluate(exact, config).loss, abs=2e-5, rel=2e-5)


def test_inputs_are_left_alone_and_constants_get_no_gradient(config, batch, losses):
    constants = {
        f.name: value.clone().requires_grad_()
        for f in fields(batch)
        if (value := getattr(batch, f.name)) is not None and value.is_floating_point()
    }
    step = prepare(replace(batch, **constants), config)
    aggregate(losses(step, config), count(step, config), config).backward()
    for name, value in constants.items():
        assert torch.equal(value.detach().nan_to_num(), getattr(batch, name).nan_to_num())
        assert (value.grad is not None) == (name == "logp_BT"), name


@pytest.mark.parametrize("method", sorted(CONFIGS.keys() - STOP_GRADIENT))
def test_gradient_agrees_with_finite_differences(method, batch, losses):
    """A method with a stop-gradient has a value of another slope; golden gradients cover those."""
    config = CONFIGS[method]
    step = prepare(batch, config)
    counts = count(step, config)

    def loss_of(logp):
        filled = torch.where(step.mask_BT, 0.0, float("nan")).double()
        full = filled.masked_scatter(step.mask_BT, logp)
        return aggregate(losses(replace(step, logp_BT=full), config), counts, config)

    trained = batch.logp_BT[batch.mask_BT].clone().requires_grad_()
    assert torch.autograd.gradcheck(loss_of, trained, eps=1e-7, atol=1e-6, rtol=1e-5)


FIELDS = ("logp_BT", "old_logp_BT", "advantage_BT", "mask_BT")


@pytest.mark.parametrize("name", FIELDS)
def test_a_wrong_shape_or_dtype_is_named(config, batch, name):
    narrow = replace(batch, **{name: getattr(batch, name)[:, :-1]})
    with pytest.raises(ValueError, match=r"expected \w+_BT of shape .* got"):
        token_losses(narrow, config)
    with pytest.raises(ValueError, match=r"expected \w+_BT of shape .* got"):
        count(narrow, config)
    whole = replace(batch, **{name: batch.mask_BT.long()})
    with pytest.raises(ValueError, match=f"expected {name} of .*dtype.* got torch.int64"):
        prepare(whole, config)
