"""Packed weights give the plain products, for as long as they are asked for and no longer."""

import pytest
import torch
from torch import nn

from archer.configs.policy import LoraConfig, PolicyConfig
from archer.configs.rollout import SamplingConfig
from archer.policy import prepacked as module
from archer.policy.model import Policy
from archer.policy.prepacked import prepacked
from archer.rollout.local import LocalSampler
from archer.rollout.sampler import SampleRequest

IDS = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 10, 11, 12]])


@pytest.fixture(autouse=True)
def _small_layers_too(monkeypatch):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN")
    monkeypatch.setattr(module, "MIN_ELEMENTS", 1)


def linears(model):
    return {name: m for name, m in model.named_modules() if type(m) is nn.Linear}


def packed_names(model):
    return {name for name, linear in linears(model).items() if "forward" in vars(linear)}


@pytest.mark.parametrize("kind", ["qwen3", "llama", "mistral", "gpt_neox", "gpt2"])
def test_products_are_the_plain_ones(tiny_model, kind):
    model = Policy(PolicyConfig(model=tiny_model(kind))).causal_lm
    with torch.no_grad():
        plain = model(IDS).logits
        with prepacked(model):
            assert packed_names(model) == set(linears(model))
            torch.testing.assert_close(model(IDS).logits, plain, atol=1e-5, rtol=1e-4)
            # Other numbers of rows than the first, with the same packed weights.
            torch.testing.assert_close(model(IDS[:1, :1]).logits, plain[:1, :1], atol=1e-5, rtol=1e-4)
        assert not packed_names(model)
        assert torch.equal(model(IDS).logits, plain)


def siblings(bias):
    layer = nn.Module()
    for name, width in (("q_proj", 12), ("k_proj", 4), ("v_proj", 4)):
        setattr(layer, name, nn.Linear(8, width, bias=name in bias))
    return layer


@pytest.mark.parametrize("bias", [(), ("q_proj", "k_proj", "v_proj"), ("q_proj",)])
def test_siblings_in_any_order_and_of_different_inputs(bias):
    torch.manual_seed(0)
    layer = siblings(bias)
    one, two = torch.randn(3, 8), torch.randn(3, 8)
    calls = [("q_proj", one), ("v_proj", one), ("k_proj", two), ("k_proj", one), ("v_proj", two)]
    calls += [("q_proj", two), ("q_proj", two)]
    with torch.no_grad():
        plain = [getattr(layer, name)(value) for name, value in calls]
        with prepacked(layer):
            for (name, value), expected in zip(calls, plain, strict=True):
                torch.testing.assert_close(getattr(layer, name)(value), expected)


def test_siblings_are_one_product(monkeypatch):
    layer, sizes = siblings(()), []
    real = torch.ops.mkldnn._linear_pointwise

    def counting(value, *rest):
        out = real(value, *rest)
        sizes.append(out.shape[-1])
        return out

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", counting)
    with torch.no_grad(), prepacked(layer):
        value = torch.randn(3, 8)
        for _ in range(2):
            for name in ("q_proj", "k_proj", "v_proj"):
                getattr(layer, name)(value)
    # The second round asks for parts that were already handed out, so it is computed again.
    assert sizes == [20, 20]


def test_plain_again_after_an_error(tiny_model):
    model = Policy(PolicyConfig(model=tiny_model())).causal_lm
    with pytest.raises(RuntimeError, match="stop"), prepacked(model):
        raise RuntimeError("stop")
    assert not packed_names(model)


@pytest.mark.parametrize("reason", ["memory", "dtype", "size"])
def test_left_alone(tiny_model, monkeypatch, reason):
    model = Policy(
        PolicyConfig(model=tiny_model(), dtype="float64" if reason == "dtype" else "float32")
    ).causal_lm
    if reason == "memory":
        monkeypatch.setattr(module, "_memory", lambda: 1)
    if reason == "size":
        monkeypatch.setattr(module, "MIN_ELEMENTS", 10**9)
    with prepacked(model):
        assert not packed_names(model)


def test_adapters_stay_in_force(tiny_model):
    policy = Policy(PolicyConfig(model=tiny_model(), lora=LoraConfig(rank=4)))
    for parameter in policy.trainable_parameters():
        nn.init.normal_(parameter, std=0.3)
    with torch.no_grad():
        plain = policy.causal_lm(IDS).logits
        with prepacked(policy.causal_lm):
            assert packed_names(policy.causal_lm)
            torch.testing.assert_close(policy.causal_lm(IDS).logits, plain, atol=1e-5, rtol=1e-4)


def test_sampling_uses_the_present_weights(tiny_model):
    policy = Policy(PolicyConfig(model=tiny_model()))
    sampler, config = LocalSampler(policy, 4), SamplingConfig(max_response_tokens=8)
    for seed in range(2):
        (rollouts,) = sampler.sample([SampleRequest("a", (3, 4, 5), 4)], config, seed=seed)
        logp_BT, _ = policy.logps([(r.prompt_ids, r.token_ids) for r in rollouts], 1.0)
        for row, rollout in enumerate(rollouts):
            recorded = torch.tensor(rollout.logp)
            torch.testing.assert_close(recorded, logp_BT[row, : len(recorded)].detach(), atol=1e-5, rtol=0)
        with torch.no_grad():
            for parameter in policy.trainable_parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))


def test_half_precision(tiny_model):
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this processor does not multiply bfloat16")
    model = Policy(PolicyConfig(model=tiny_model(), dtype="bfloat16")).causal_lm
    with torch.no_grad():
        plain = model(IDS).logits
        with prepacked(model):
            assert packed_names(model)
            torch.testing.assert_close(model(IDS).logits, plain, atol=0.05, rtol=0.02)
