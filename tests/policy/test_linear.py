"""Products by oneDNN are the plain ones, forward and backward."""

import copy

import pytest
import torch
from torch import nn

from archer.configs.policy import LoraConfig, PolicyConfig
from archer.policy import linear as module
from archer.policy.head import token_logp_and_entropy
from archer.policy.linear import FastLinear, use_fast_linears
from archer.policy.model import Policy

ROWS = [((3, 4, 5), (6, 7, 8)), ((3, 4, 5), (9, 10))]


@pytest.fixture(params=[True, False], ids=["onednn", "plain"])
def onednn(request, monkeypatch):
    """Both libraries, whatever the processor; small layers too."""
    if request.param and not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN")
    monkeypatch.setattr(module, "_onednn_leads", lambda: request.param)
    monkeypatch.setattr(module, "MIN_ELEMENTS", 1)
    return request.param


@pytest.fixture
def products(monkeypatch):
    """Counts oneDNN's products."""
    shapes = []
    real = module._onednn_product
    monkeypatch.setattr(module, "_onednn_product", lambda *x: shapes.append(x[1].shape) or real(*x))
    return shapes


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(8,), (5, 8), (2, 5, 8), (0, 8)])
def test_layer(onednn, products, bias, shape):
    torch.manual_seed(0)
    plain = nn.Linear(8, 6, bias=bias)
    fast = copy.deepcopy(plain)
    use_fast_linears(fast)
    assert type(fast) is FastLinear
    one = torch.randn(shape).requires_grad_()
    two = one.detach().clone().requires_grad_()
    upstream = torch.randn(*shape[:-1], 6)
    for layer, value in ((plain, one), (fast, two)):
        layer(value).backward(upstream)
    torch.testing.assert_close(fast(two), plain(one))
    torch.testing.assert_close(two.grad, one.grad)
    for mine, theirs in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert bool(products) == onednn


def test_layer_on_strided_input_and_gradient(onednn):
    torch.manual_seed(0)
    plain = nn.Linear(8, 6)
    fast = copy.deepcopy(plain)
    use_fast_linears(fast)
    base = torch.randn(8, 5, requires_grad=True)
    expected = torch.autograd.grad(plain(base.T).T.contiguous().square().sum(), [base, *plain.parameters()])
    found = torch.autograd.grad(fast(base.T).T.contiguous().square().sum(), [base, *fast.parameters()])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("kind", ["qwen3", "llama", "gpt_neox"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_model(tiny_model, monkeypatch, products, kind, checkpointing):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN")
    monkeypatch.setattr(module, "MIN_ELEMENTS", 1)
    policy = Policy(PolicyConfig(model=tiny_model(kind), gradient_checkpointing=checkpointing))
    found = []
    for leads in (False, True):
        monkeypatch.setattr(module, "_onednn_leads", lambda leads=leads: leads)
        logp_BT, entropy_BT = policy.logps(ROWS, 0.7)
        gradients = torch.autograd.grad(logp_BT.square().sum(), policy.trainable_parameters())
        found.append([logp_BT.detach(), entropy_BT, *gradients])
    for plain, fast in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-4)
    assert products


def test_adapters(tiny_model, monkeypatch, products):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN")
    monkeypatch.setattr(module, "MIN_ELEMENTS", 1)
    policy = Policy(PolicyConfig(model=tiny_model(), lora=LoraConfig(rank=4)))
    for parameter in policy.trainable_parameters():
        nn.init.normal_(parameter, std=0.3)
    found = []
    for leads in (False, True):
        monkeypatch.setattr(module, "_onednn_leads", lambda leads=leads: leads)
        logp_BT, _ = policy.logps(ROWS, 1.0)
        gradients = torch.autograd.grad(logp_BT.square().sum(), policy.trainable_parameters())
        reference_BT, _ = policy.reference_logps(ROWS, 1.0)
        assert not torch.allclose(reference_BT, logp_BT)
        found.append([logp_BT.detach(), reference_BT, *gradients])
    for plain, fast in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-4)
    assert products


def test_head(onednn, products):
    torch.manual_seed(0)
    hidden, weight = torch.randn(7, 5).requires_grad_(), torch.randn(11, 5).requires_grad_()
    target, upstream = torch.randint(11, (7,)), torch.randn(7)
    plain = (hidden @ weight.T).log_softmax(-1)
    logp, entropy = token_logp_and_entropy(hidden, weight, target)
    torch.testing.assert_close(logp, plain.gather(-1, target[:, None])[:, 0])
    torch.testing.assert_close(entropy, -(plain.exp() * plain).sum(-1))
    expected = torch.autograd.grad(plain.gather(-1, target[:, None])[:, 0], (hidden, weight), upstream)
    for mine, theirs in zip(torch.autograd.grad(logp, (hidden, weight), upstream), expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert bool(products) == onednn


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_dtypes_are_left_alone(tiny_model, monkeypatch, products, dtype):
    monkeypatch.setattr(module, "_onednn_leads", lambda: True)
    monkeypatch.setattr(module, "MIN_ELEMENTS", 1)
    policy = Policy(PolicyConfig(model=tiny_model(), dtype=dtype))
    products.clear()
    policy.causal_lm(torch.tensor([[3, 4, 5]]))
    assert not products


@pytest.mark.parametrize(
    ("vendor", "leads"), [("GenuineIntel", False), ("AuthenticAMD", True), (None, False)]
)
def test_choice_by_maker(monkeypatch, tmp_path, vendor, leads):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    info = tmp_path / "cpuinfo"
    if vendor is not None:
        info.write_text(f"processor : 0\nvendor_id : {vendor}\n")
    monkeypatch.setattr(module, "CPU_INFO", info)
    assert module._onednn_leads.__wrapped__() == leads
