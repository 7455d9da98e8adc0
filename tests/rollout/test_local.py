"""The local engine against ``generate``, the trainer's log-probabilities and itself under other batching."""

import math

import pytest
import torch
from transformers import AutoModelForCausalLM

from archer.configs.policy import PolicyConfig
from archer.configs.rollout import RolloutConfig, SamplingConfig
from archer.policy.model import Policy
from archer.rollout.distribution import draw
from archer.rollout.local import LocalSampler
from archer.rollout.sampler import SampleRequest

REQUESTS = [
    SampleRequest("a", (3, 4, 5, 6), 5),
    SampleRequest("b", (7, 8), 3),
    SampleRequest("c", tuple(range(9, 20)), 4),
]


def sample(policy, max_batch=5, seed=1, requests=REQUESTS, **settings):
    config = SamplingConfig(**{"max_response_tokens": 24, **settings})
    return LocalSampler(policy, max_batch).sample(requests, config, seed=seed)


@pytest.mark.parametrize("kind", ["qwen3", "llama", "mistral", "gpt2"])
def test_greedy_equals_generate(tiny_model, kind):
    folder = tiny_model(kind)
    model = AutoModelForCausalLM.from_pretrained(folder)
    for group, request in zip(
        sample(Policy(PolicyConfig(model=folder)), temperature=0), REQUESTS, strict=True
    ):
        prompt = torch.tensor([request.prompt_ids])
        whole = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, do_sample=False
        )
        assert all(list(r.token_ids) == whole[0, len(request.prompt_ids) :].tolist() for r in group)


@pytest.mark.parametrize("attention", ["packed", "padded"])
def test_recorded_values_are_the_trainers(tiny_model, attention):
    policy = Policy(PolicyConfig(model=tiny_model("mistral"), attention=attention))
    rollouts = [r for group in sample(policy, temperature=0.8) for r in group]
    logp, entropy = policy.logps([(r.prompt_ids, r.token_ids) for r in rollouts], 0.8)
    for row, rollout in enumerate(rollouts):
        n = len(rollout.token_ids)
        torch.testing.assert_close(torch.tensor(rollout.logp), logp[row, :n], atol=1e-5, rtol=0)
        torch.testing.assert_close(torch.tensor(rollout.entropy), entropy[row, :n], atol=1e-5, rtol=0)


def test_streams_do_not_depend_on_batching(tiny_model):
    policy = Policy(PolicyConfig(model=tiny_model()))
    expected = [[r.token_ids for r in group] for group in sample(policy, max_batch=100)]
    for max_batch in (1, 3, 8):
        assert [[r.token_ids for r in group] for group in sample(policy, max_batch=max_batch)] == expected
    alone = sample(policy, requests=[REQUESTS[1]])
    assert [r.token_ids for r in alone[0]] == expected[1]


def test_samples_of_one_prompt_differ_and_seeds_matter(tiny_model):
    policy = Policy(PolicyConfig(model=tiny_model()))
    first = sample(policy)[0]
    assert len({r.token_ids for r in first}) == len(first)
    assert [r.token_ids for r in sample(policy, seed=2)[0]] != [r.token_ids for r in first]


def test_finish_reasons_and_callback(tiny_model):
    policy = Policy(PolicyConfig(model=tiny_model()))
    seen = []
    config = SamplingConfig(max_response_tokens=24, temperature=1.5)
    groups = LocalSampler(policy, 4).sample(
        REQUESTS, config, seed=0, on_finish=lambda index, rollout: seen.append((index, rollout.sample))
    )
    rollouts = [r for group in groups for r in group]
    assert {r.finish_reason for r in rollouts} == {"stop", "length"}
    for r in rollouts:
        assert (r.token_ids[-1] in policy.eos_ids) == (r.finish_reason == "stop")
        assert not policy.eos_ids & set(r.token_ids[:-1])
        assert len(r.token_ids) == len(r.logp) == len(r.entropy) <= 24
    assert sorted(seen) == [(i, s) for i, request in enumerate(REQUESTS) for s in range(request.n)]


def test_no_requests(tiny_model):
    assert sample(Policy(PolicyConfig(model=tiny_model())), requests=[]) == []


def test_draw_follows_the_distribution():
    logits = torch.tensor([0.5, 0.2, 0.2, 0.1]).log()
    uniform = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    token, logp, entropy = draw(logits.expand(10_000, -1), uniform, SamplingConfig())
    torch.testing.assert_close(
        torch.bincount(token).double() / 10_000,
        torch.tensor([0.5, 0.2, 0.2, 0.1]).double(),
        atol=2e-4,
        rtol=0,
    )
    assert logp[0].item() == pytest.approx(math.log(0.5), abs=1e-6)
    assert entropy[0].item() == pytest.approx(-sum(p * math.log(p) for p in (0.5, 0.2, 0.2, 0.1)), abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [({"top_k": 1}, {0}), ({"top_k": 3}, {0, 1, 2}), ({"top_p": 0.6}, {0, 1}), ({"top_p": 0.5}, {0})],
)
def test_narrowed_sampling(settings, kept):
    logits = torch.tensor([0.5, 0.25, 0.15, 0.1]).log()
    uniform = torch.linspace(0, 1 - 1e-9, 1000, dtype=torch.float64)
    token, logp, _ = draw(logits.expand(1000, -1), uniform, SamplingConfig(**settings))
    assert set(token.tolist()) == kept
    assert logp[0].item() == pytest.approx(math.log(0.5), abs=1e-6)


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.tensor([[-math.inf, 0.0, -math.inf]])
    for uniform in (0.0, 1 - 2**-53):
        token, _, _ = draw(
            logits.nan_to_num(neginf=-1e9), torch.tensor([uniform], dtype=torch.float64), SamplingConfig()
        )
        assert token.item() == 1


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"top_p": 0.9}, {"top_k": 5}])
def test_training_refuses_laws_that_break_the_ratio(settings):
    with pytest.raises(ValueError, match="for training"):
        RolloutConfig(**settings)
