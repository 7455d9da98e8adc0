"""What is pushed to an engine, its checksum, and the comparison with what the engine holds."""

import torch
from torch import nn

from archer.configs.policy import LoraConfig, PolicyConfig
from archer.policy.model import Policy
from archer.rollout.weights import checksum, compare, policy_weights


def test_checksum_sees_values_places_types_and_names():
    base = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}
    swapped = torch.arange(6.0)
    swapped[[1, 4]] = swapped[[4, 1]]
    changed = [
        base | {"a": base["a"] + torch.tensor(1e-6)},
        base | {"a": swapped.reshape(2, 3)},
        base | {"a": base["a"].reshape(3, 2)},
        base | {"a": base["a"].bfloat16()},
        {"a": base["a"], "c": base["b"]},
    ]
    sums = [checksum(weights) for weights in [base, *changed]]
    assert len(set(sums)) == len(sums)
    assert checksum(dict(reversed(base.items()))) == sums[0]


def test_checksum_does_not_depend_on_the_chunks(monkeypatch):
    weights = {"a": torch.randn(1000, generator=torch.Generator().manual_seed(0))}
    whole = checksum(weights)
    monkeypatch.setattr("archer.rollout.weights.CHUNK", 7)
    assert checksum(weights) == whole


def test_weights_load_into_a_fresh_model(tiny_model):
    policy = Policy(PolicyConfig(model=tiny_model("qwen3")))
    weights = policy_weights(policy)
    missing, unexpected = policy.causal_lm.load_state_dict(weights, strict=False)
    assert not unexpected
    # The output head is tied to the embedding, so it goes once.
    assert missing == ["lm_head.weight"]


def test_lora_is_merged(tiny_model):
    folder = tiny_model("llama")
    policy = Policy(PolicyConfig(model=folder, lora=LoraConfig(rank=2)))
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(1))
    rows = [((3, 4, 5), (6, 7, 8))]
    with policy.evaluating():
        expected, _ = policy.logps(rows, 1.0)
    plain = Policy(PolicyConfig(model=folder))
    weights = policy_weights(policy)
    assert set(weights) == set(policy_weights(plain))
    plain.causal_lm.load_state_dict(weights, strict=False)
    with plain.evaluating():
        merged, _ = plain.logps(rows, 1.0)
    torch.testing.assert_close(merged, expected, atol=1e-5, rtol=1e-5)
    assert checksum(weights) != checksum(policy_weights(Policy(PolicyConfig(model=folder))))


class Fused(nn.Module):
    """An engine's layer with q and k in one parameter, a padded vocabulary, and one parameter of its own form."""

    def __init__(self, weights):
        super().__init__()
        self.packed_modules_mapping = {"qk_proj": ["q_proj", "k_proj"]}
        self.qk_proj, self.embed, self.own = nn.Module(), nn.Module(), nn.Module()
        self.qk_proj.weight = nn.Parameter(torch.cat([weights["q_proj.weight"], weights["k_proj.weight"]]))
        self.embed.weight = nn.Parameter(nn.functional.pad(weights["embed.weight"], (0, 0, 0, 3)))
        self.own.weight = nn.Parameter(torch.empty(0))


def test_comparison_knows_fused_and_padded_parameters():
    generator = torch.Generator().manual_seed(0)
    names = ("q_proj.weight", "k_proj.weight", "embed.weight", "own.weight")
    weights = {name: torch.randn(4, 3, generator=generator) for name in names}
    engine = Fused(weights)
    assert compare(engine, weights) == (2, [])
    weights["k_proj.weight"] = weights["k_proj.weight"] + 1e-6
    assert compare(engine, weights) == (2, ["qk_proj.weight"])
