"""The chunked head against plain log-softmax."""

import pytest
import torch

from archer.policy import head
from archer.policy.head import token_logp_and_entropy


def plain(hidden, weight, target, bias, temperature):
    logits = hidden @ weight.T
    if bias is not None:
        logits = logits + bias
    logp = (logits / temperature).log_softmax(-1)
    return logp.gather(-1, target[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    return make(7, 5), make(11, 5), torch.randint(11, (7,), generator=generator), make(11)


ALL_TOKENS = torch.linspace(-1, 1, 8)[1:].double()
FEW_TOKENS = torch.tensor([0, 0, 0.7, 0, 0, -0.2, 0]).double()
MOST_TOKENS = torch.tensor([0.3, 0, 0.7, 0.1, 0.4, -0.2, 0.9]).double()


@pytest.mark.parametrize("chunk", [1, 25, 10**6])
@pytest.mark.parametrize("kept", [0, 40, 10**6])
@pytest.mark.parametrize("upstream", [ALL_TOKENS, FEW_TOKENS, MOST_TOKENS, torch.zeros(7).double()])
@pytest.mark.parametrize("with_bias", [False, True])
def test_values_and_gradients(tensors, chunk, kept, upstream, with_bias, monkeypatch):
    monkeypatch.setattr(head, "BLOCK_ELEMENTS", chunk)
    monkeypatch.setattr(head, "BLOCK_ROWS", 4)
    monkeypatch.setattr(head, "KEPT_ELEMENTS", kept)
    hidden, weight, target, bias = tensors
    inputs = [x.clone().requires_grad_() for x in ((hidden, weight, bias) if with_bias else (hidden, weight))]
    same = [x.detach().clone().requires_grad_() for x in inputs]
    ours = token_logp_and_entropy(
        *inputs[:2], target, bias_V=inputs[2] if with_bias else None, temperature=0.7
    )
    theirs = plain(*same[:2], target, same[2] if with_bias else None, 0.7)
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-12, rtol=0)
    torch.testing.assert_close(ours[1], theirs[1], atol=1e-12, rtol=0)
    ours[0].backward(upstream, retain_graph=True)
    (theirs[0] * upstream).sum().backward()
    for a, b in zip(inputs, same, strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-12, rtol=0)
    # What was kept is not used up.
    for a, again in zip(inputs, torch.autograd.grad(ours[0], inputs, upstream), strict=True):
        torch.testing.assert_close(again, a.grad, atol=1e-12, rtol=0)


def test_gradcheck(tensors):
    hidden, weight, target, bias = tensors
    assert torch.autograd.gradcheck(
        lambda h, w, b: token_logp_and_entropy(h, w, target, bias_V=b, temperature=1.3)[0],
        (hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()),
    )


def test_temperature_is_on_both_sides_of_the_ratio():
    hidden, weight = torch.tensor([[1.0]]), torch.tensor([[2.0], [0.0]])
    logp, _ = token_logp_and_entropy(hidden, weight, torch.tensor([0]), temperature=0.5)
    assert logp.item() == pytest.approx(-0.0181499, abs=1e-6)


def test_bfloat16_hidden_states_get_a_float32_head_and_keep_their_dtype_in_the_gradient():
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(6, 8, generator=generator).bfloat16().requires_grad_()
    weight = torch.randn(30, 8, generator=generator).bfloat16().requires_grad_()
    target = torch.arange(6)
    logp, entropy = token_logp_and_entropy(hidden, weight, target)
    assert logp.dtype == entropy.dtype == torch.float32
    expected, _ = plain(hidden.detach().float(), weight.detach().float(), target, None, 1.0)
    torch.testing.assert_close(logp, expected, atol=1e-5, rtol=0)
    logp.sum().backward()
    assert hidden.grad.dtype == weight.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("budget", [0, 20_000, 10**6])
def test_no_more_of_tokens_by_vocabulary_is_kept_than_the_budget(monkeypatch, budget):
    monkeypatch.setattr(head, "BLOCK_ELEMENTS", 1000)
    monkeypatch.setattr(head, "KEPT_ELEMENTS", budget)
    hidden, weight = torch.randn(200, 4, requires_grad=True), torch.randn(500, 4)

    def kept():
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            token_logp_and_entropy(hidden, weight, torch.zeros(200, dtype=torch.int64))
        return sum(size for size in sizes if size == 1000)

    assert kept() == min(budget, 200 * 500)
    with torch.no_grad():
        assert kept() == 0
