"""Entropy roles: equality with the quantile they are defined by, ties, pools, padding."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from archer.configs.objective import ArcherConfig
from archer.objectives import entropy_rank, needs, prepare, reasoning_roles, token_losses

RHO = 0.8


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


def ones(entropy):
    return torch.ones_like(entropy, dtype=torch.bool)


def roles(entropy, **kwargs):
    kwargs = {"rho": RHO, **kwargs}
    return reasoning_roles(entropy, ones(entropy), **kwargs)


def test_the_tie_at_the_threshold():
    """.1 ... .6 at the 0.8-quantile: the threshold is .5 itself."""
    entropy = row(0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    assert roles(entropy).sum() == 2
    assert roles(entropy, tie="knowledge").sum() == 1


@pytest.mark.parametrize("n", [1, 2, 5])
def test_equal_entropies_all_have_the_ties_role(n):
    entropy = torch.zeros(1, n)
    assert roles(entropy).all()
    assert not roles(entropy, tie="knowledge").any()


@pytest.mark.parametrize(
    ("tie", "rank"), [("reasoning", [2 / 3, 0, 2 / 3, 1]), ("knowledge", [1 / 3, 0, 1 / 3, 1])]
)
def test_ranks_with_a_tie(tie, rank):
    entropy = row(0.5, 0.1, 0.5, 0.9)
    assert entropy_rank(entropy, ones(entropy), "response", tie).tolist() == [pytest.approx(rank)]


def test_padding_does_not_enter_the_quantile():
    """.1 ... 1.0 and ten pads at 0, upper fifth: 2 tokens, not 4."""
    entropy = torch.cat((torch.arange(1, 11) / 10, torch.zeros(10)))[None]
    mask = torch.arange(20)[None] < 10
    chosen = reasoning_roles(entropy, mask, rho=RHO)
    assert chosen[0].nonzero().flatten().tolist() == [8, 9]


def test_pools(batch_f):
    """Thresholds of F: .84 and 1.32 by response, 1.26 over both."""
    kwargs = {"rho": RHO, "group_B": batch_f.group_B}
    entropy, mask = batch_f.old_entropy_BT, batch_f.mask_BT
    by_response = [[False, True, False], [False, True, False]]
    pooled = [[False, False, False], [False, True, False]]
    assert reasoning_roles(entropy, mask, scope="response", **kwargs).tolist() == by_response
    assert reasoning_roles(entropy, mask, scope="batch", **kwargs).tolist() == pooled
    assert reasoning_roles(entropy, mask, scope="group", **kwargs).tolist() == pooled
    kwargs["group_B"] = torch.tensor([3, 1])
    assert reasoning_roles(entropy, mask, scope="group", **kwargs).tolist() == by_response


def test_group_scope_needs_group_ids():
    with pytest.raises(ValueError, match="expected group_B, got None"):
        roles(row(1.0, 2.0), scope="group")


def test_responses_without_tokens_have_no_roles():
    entropy = torch.full((2, 3), math.nan)
    empty = torch.zeros(2, 3, dtype=torch.bool)
    assert not reasoning_roles(entropy, empty, rho=RHO).any()
    assert reasoning_roles(entropy[:, :0], empty[:, :0], rho=RHO).shape == (2, 0)


def test_pooling_works_where_torch_quantile_refuses():
    """A flattened pool above 2**24 entropies."""
    n = 2**24 + 8
    entropy = torch.arange(n, dtype=torch.float32).view(8, -1)
    chosen = reasoning_roles(entropy, ones(entropy), rho=RHO, scope="batch")
    assert chosen.sum() == pytest.approx(0.2 * n, abs=2)


entropies = st.lists(
    st.one_of(st.sampled_from([0.0, 0.25, 0.5]), st.floats(0, 8, width=32)), min_size=1, max_size=40
)


@settings(deadline=None, derandomize=True)
@given(entropies, st.sampled_from([0.0, 0.2, 0.5, 0.7, 0.75, 0.8, 0.9, 1.0]), st.integers(0, 3))
def test_rank_says_what_the_interpolated_quantile_says(values, rho, pads):
    """Against the definition in exact arithmetic: the sorted values, interpolated at rho (n - 1)."""
    entropy = torch.tensor([values + [math.nan] * pads])
    mask = torch.tensor([[True] * len(values) + [False] * pads])
    ordered = sorted(Fraction(v) for v in values)
    position = Fraction(str(rho)) * (len(values) - 1)
    low = int(position)
    high = min(low + 1, len(values) - 1)
    threshold = ordered[low] + (position - low) * (ordered[high] - ordered[low])
    at_least = reasoning_roles(entropy, mask, rho=rho)
    beyond = reasoning_roles(entropy, mask, rho=rho, tie="knowledge")
    assert at_least[0].tolist() == [Fraction(v) >= threshold for v in values] + [False] * pads
    assert beyond[0].tolist() == [Fraction(v) > threshold for v in values] + [False] * pads


@settings(deadline=None, derandomize=True)
@given(entropies, st.floats(0, 1))
def test_share_of_reasoning_tokens(values, rho):
    """Without ties, ceil((1 - rho)(n - 1)) or one more are at or above the threshold; ties only add."""
    chosen = int(roles(torch.tensor([values]), rho=rho).sum())
    assert chosen >= (1 - rho) * (len(values) - 1) - 1e-9
    if len(set(values)) == len(values):
        assert chosen <= (1 - rho) * (len(values) - 1) + 1 + 1e-9


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 99), min_size=1), st.sampled_from([math.exp, lambda x: 3 * x + 1]))
def test_only_the_order_of_the_entropies_matters(values, monotone):
    entropy = torch.tensor([values], dtype=torch.float64)
    mapped = torch.tensor([[monotone(v) for v in values]], dtype=torch.float64)
    assert torch.equal(roles(entropy), roles(mapped))


def test_roles_come_from_the_policy_that_the_config_names(batch_f):
    flipped = replace(batch_f, entropy_BT=-batch_f.entropy_BT)
    old, current = ArcherConfig(beta_k=0), ArcherConfig(beta_k=0, entropy_from="current")
    assert needs(old).old_entropy
    assert not needs(old).current_entropy
    assert needs(current).current_entropy
    assert not needs(current).old_entropy
    shares = []
    for config in (old, current):
        terms = token_losses(prepare(flipped, config), config)
        shares.append(terms.metrics["clip/above_reasoning"])
    # the old policy makes t2 and t5 reasoning, beyond 1.5; the flipped one t3 and t4, at .25 and .7
    assert [share[0].item() for share in shares] == [2, 0]


def test_old_roles_need_prepare(batch_f):
    with pytest.raises(ValueError, match="expected reasoning_BT, got None: call prepare"):
        token_losses(batch_f, ArcherConfig())
    with pytest.raises(ValueError, match="expected old_entropy_BT, got None"):
        prepare(replace(batch_f, old_entropy_BT=None), ArcherConfig())
    with pytest.raises(ValueError, match="expected entropy_BT, got None"):
        token_losses(replace(batch_f, entropy_BT=None), ArcherConfig(entropy_from="current"))
