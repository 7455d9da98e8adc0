"""The golden batch F, random batches, and one way to take a loss and its gradients."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from archer.objectives import aggregate, count, needs, prepare, token_losses
from archer.types import LossTerms, TokenBatch

POISON = (float("nan"), float("inf"), -float("inf"), 777.0)


@dataclass(frozen=True)
class Outcome:
    """``grad``: d(aggregated loss) / d logp. ``token_grad``: d(sum of undivided losses) / d logp."""

    loss: float
    grad: Tensor
    token_grad: Tensor
    terms: LossTerms


def losses_of(batch: TokenBatch, config: Any, **kwargs: Any) -> LossTerms:
    """``token_losses``, with a freshly seeded generator for the methods that draw tokens."""
    if needs(config).generator:
        kwargs["generator"] = torch.Generator().manual_seed(5)
    return token_losses(batch, config, **kwargs)


@pytest.fixture(scope="session")
def losses() -> Callable[..., LossTerms]:
    return losses_of


def run_objective(batch: TokenBatch, config: Any, **kwargs: Any) -> Outcome:
    """One micro-batch that is the whole step."""
    logp = batch.logp_BT.detach().clone().requires_grad_()
    batch = prepare(replace(batch, logp_BT=logp), config)
    terms = losses_of(batch, config, **kwargs)
    undivided = sum(torch.where(p.mask_BT, p.loss_BT, 0.0).sum() for p in terms.parts.values())
    (token_grad,) = torch.autograd.grad(undivided, logp, retain_graph=True)
    pass_index = kwargs.get("pass_index", 0)
    loss = aggregate(terms, count(batch, config, pass_index=pass_index), config)
    (grad,) = torch.autograd.grad(loss, logp)
    return Outcome(loss.item(), grad, token_grad, terms)


@pytest.fixture(scope="session")
def evaluate() -> Callable[..., Outcome]:
    return run_objective


@pytest.fixture
def batch_f() -> TokenBatch:
    """Fixture F: one prompt, responses of 3 and 2 tokens with A = +1 and -1, a poisoned padded position."""
    nan, inf = float("nan"), float("inf")

    def rows(*values: float, pad: float = nan) -> Tensor:
        return torch.tensor([values[:3], (*values[3:], pad)], dtype=torch.float64)

    entropy = rows(0.30, 1.20, 0.05, 0.60, 1.50, pad=inf)
    return TokenBatch(
        logp_BT=rows(0.55, 0.32, 0.20, 0.28, 0.70).log(),
        old_logp_BT=rows(0.50, 0.20, 0.80, 0.40, 0.20, pad=inf).log(),
        ref_logp_BT=rows(0.45, 0.25, 0.60, 0.35, 0.30).log(),
        mask_BT=torch.tensor([[True, True, True], [True, True, False]]),
        advantage_BT=rows(1.0, 1.0, 1.0, -1.0, -1.0),
        old_entropy_BT=entropy,
        entropy_BT=entropy.clone(),
        group_B=torch.tensor([7, 7]),
        response_B=torch.tensor([0, 1]),
    )


def make_random_batch(seed: int, rows: int = 6, width: int = 9, *, ties: bool = False) -> TokenBatch:
    """Float64 rows of random length, one empty and one full, in two groups; masked positions hold poison."""
    generator = torch.Generator().manual_seed(seed)

    def normal(scale: float) -> Tensor:
        return scale * torch.randn(rows, width, generator=generator, dtype=torch.float64)

    length = torch.randint(1, width + 1, (rows,), generator=generator)
    length[0], length[-1] = width, 0
    mask = torch.arange(width) < length[:, None]
    old = -normal(1.5).abs() - 0.01
    entropy = normal(1.0).abs()
    if ties:
        entropy = (entropy * 3).round() / 3
    advantage = torch.randn(rows, 1, generator=generator, dtype=torch.float64).expand(rows, width)

    def poisoned(tensor: Tensor) -> Tensor:
        choice = torch.randint(0, len(POISON), (rows, width), generator=generator)
        return torch.where(mask, tensor, torch.tensor(POISON, dtype=torch.float64)[choice])

    return TokenBatch(
        logp_BT=poisoned(-(old + normal(0.6)).abs() - 0.005),
        old_logp_BT=poisoned(old),
        ref_logp_BT=poisoned(-(old + normal(0.4)).abs() - 0.005),
        mask_BT=mask,
        advantage_BT=poisoned(advantage),
        old_entropy_BT=poisoned(entropy),
        entropy_BT=poisoned((entropy + normal(0.2)).abs()),
        group_B=torch.arange(rows) % 2,
        response_B=torch.arange(rows),
    )


def take_rows(batch: TokenBatch, rows: list[int]) -> TokenBatch:
    """The batch of these rows only."""
    chosen = {
        field.name: value[rows]
        for field in fields(batch)
        if (value := getattr(batch, field.name)) is not None
    }
    return replace(batch, **chosen)


@pytest.fixture(scope="session")
def take() -> Callable[[TokenBatch, list[int]], TokenBatch]:
    return take_rows


@pytest.fixture(scope="session")
def random_batch() -> Callable[..., TokenBatch]:
    return make_random_batch
