"""Who divides by what."""

import pytest
import torch

from archer.configs.objective import GrpoConfig
from archer.objectives import Counts, aggregate
from archer.types import LossPart, LossTerms

LOSS = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, float("nan")], [float("inf")] * 3])
MASK = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])
MODES = {
    "token-mean": GrpoConfig(aggregation="token-mean"),
    "seq-mean-token-mean": GrpoConfig(),
    "constant-length": GrpoConfig(aggregation="constant-length", constant_length=6),
}


def terms(loss=LOSS, mask=MASK, responses=2):
    return LossTerms({"policy": LossPart(loss, mask)}, {}, torch.tensor(responses))


def counts(tokens=5, responses=2):
    return Counts({"policy": None if tokens is None else torch.tensor(tokens)}, torch.tensor(responses))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("token-mean", 36 / 5), ("seq-mean-token-mean", (2 + 15) / 2), ("constant-length", 36 / 12)],
)
def test_modes(mode, expected):
    """The third response is fully masked, so it counts in no denominator."""
    assert aggregate(terms(), counts(), MODES[mode]).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("token-mean", 36 / 50), ("seq-mean-token-mean", 17 / 20), ("constant-length", 36 / 120)],
)
def test_counts_of_the_step_are_the_denominators(mode, expected):
    assert aggregate(terms(), counts(50, 20), MODES[mode]).item() == pytest.approx(expected)


def test_a_part_without_a_count_takes_its_own_mean_by_share_of_responses():
    loss = aggregate(terms(), counts(None, responses=8), MODES["token-mean"])
    assert loss.item() == pytest.approx(36 / 5 * 2 / 8)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_train_gives_zero_loss_and_zero_gradients(mode):
    loss_BT = LOSS.clone().requires_grad_()
    nothing = terms(loss_BT, torch.zeros_like(MASK), responses=0)
    for tokens in (0, None):
        loss = aggregate(nothing, counts(tokens, 0), MODES[mode])
        (grad,) = torch.autograd.grad(loss, loss_BT)
        assert loss.item() == 0
        assert grad.tolist() == torch.zeros(3, 3).tolist()


def test_masked_rows_leave_the_denominator():
    """Two rows of 10 tokens, one masked: divided by 10."""
    mask = torch.tensor([[True], [False]]).expand(2, 10)
    masked = terms(torch.ones(2, 10), mask, 1)
    assert aggregate(masked, counts(int(mask.sum()), 1), MODES["token-mean"]).item() == 1


def test_terms_without_parts_are_an_error():
    with pytest.raises(ValueError, match="expected terms with a 'policy' part, got none"):
        aggregate(LossTerms({}, {}, torch.tensor(0)), counts(), MODES["token-mean"])
