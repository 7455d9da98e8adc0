"""What every method must keep: padding, order, split, poison, empty batches, finite differences."""

from dataclasses import fields, replace
from typing import get_args

import pytest
import torch
from torch.nn.functional import pad

from archer.configs.objective import ObjectiveConfig
from archer.objectives import aggregate, count, needs, prepare, token_losses

CLASSES = get_args(get_args(ObjectiveConfig)[0])
REQUIRED = {}
CONFIGS = {
    c.model_fields["method"].default: c(**REQUIRED.get(c.model_fields["method"].default, {})) for c in CLASSES
}
NOT_SPLIT_INVARIANT = set()
STOP_GRADIENT = set()


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
    """The batch holds NaN and infinities there; zeros instead change nothing."""
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


def test_row_order_changes_nothing(config, batch, evaluate, take):
    order = [4, 0, 5, 2, 1, 3]
    outcome = evaluate(batch, config)
    shuffled = evaluate(take(batch, order), config)
    assert shuffled.loss == pytest.approx(outcome.loss, abs=1e-12)
    assert torch.allclose(shuffled.grad, outcome.grad[order], atol=1e-12, rtol=0)


def split_gradient(batch, config, take, split):
    """Loss and gradient of a step whose rows go through in micro-batches."""
    logp = batch.logp_BT.clone().requires_grad_()
    step = prepare(batch, config)
    counts = count(step, config)
    total = 0.0
    for rows in split:
        micro = replace(take(step, rows), logp_BT=logp[rows])
        loss = aggregate(token_losses(micro, config), counts, config)
        loss.backward()
        total += loss.item()
    return total, logp.grad


SPLITS = ([[0, 1, 2], [3, 4, 5]], [[5], [2, 0], [1, 4, 3]], [[i] for i in range(6)])


@pytest.mark.parametrize("split", SPLITS, ids=["halves", "uneven", "single"])
def test_any_split_gives_the_same_gradient(config, batch, evaluate, take, split):
    if config.method in NOT_SPLIT_INVARIANT:
        assert needs(config).statistic == "micro-batch"
        return
    assert needs(config).statistic != "micro-batch"
    outcome = evaluate(batch, config)
    loss, grad = split_gradient(batch, config, take, split)
    assert loss == pytest.approx(outcome.loss, abs=1e-12)
    assert torch.allclose(grad, outcome.grad, atol=1e-12, rtol=0)


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


def test_inputs_are_left_alone_and_constants_get_no_gradient(config, batch):
    constants = {
        f.name: value.clone().requires_grad_()
        for f in fields(batch)
        if (value := getattr(batch, f.name)) is not None and value.is_floating_point()
    }
    step = prepare(replace(batch, **constants), config)
    aggregate(token_losses(step, config), count(step, config), config).backward()
    for name, value in constants.items():
        assert torch.equal(value.detach().nan_to_num(), getattr(batch, name).nan_to_num())
        assert (value.grad is not None) == (name == "logp_BT"), name


def test_gradient_agrees_with_finite_differences(config, batch):
    if config.method in STOP_GRADIENT:
        pytest.skip("holds a stop-gradient, so its value has another slope; the golden gradients cover it")
    step = prepare(batch, config)
    counts = count(step, config)

    def loss_of(logp):
        filled = torch.where(step.mask_BT, 0.0, float("nan")).double()
        full = filled.masked_scatter(step.mask_BT, logp)
        return aggregate(token_losses(replace(step, logp_BT=full), config), counts, config)

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
