"""The script behind the demo's starting model."""

import pytest
import torch
from transformers import AutoTokenizer

from archer.configs.loading import load_config
from archer.configs.policy import PolicyConfig
from archer.configs.run import RunConfig
from archer.policy.model import Policy
from archer.train.warm_start import DEMO, guessed_solution, make_warm_start, worked_solution


def test_worked_solution():
    assert worked_solution("4 - 1 - 7 + 10") == (
        "Step by step:\n4 - 1 = 3\n3 - 7 = -4\n-4 + 10 = 6\nThe answer is \\boxed{6}."
    )
    assert guessed_solution(-4) == "I think the answer is \\boxed{-4}."


@pytest.fixture(scope="module")
def short():
    return DEMO.model_copy(
        update={
            "data": DEMO.data.model_copy(update={"size": 300}),
            "updates": 6,
            "batch": 8,
            "hidden": 32,
            "layers": 1,
        }
    )


def test_the_script_teaches_and_writes_a_model(short, tmp_path):
    losses = []
    folder = make_warm_start(short, tmp_path / "model", lambda update, total, loss: losses.append(loss))
    assert len(losses) == 6
    assert losses[-1] < losses[0]
    policy = Policy(PolicyConfig(model=str(folder)))
    assert policy.packed
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "State the final answer: 12 - 305 =\nStep by step:\n12 - 305 = -293\nThe answer is \\boxed{-293}."
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    digits = [tokenizer.decode([i]) for i in ids if any(c.isdigit() for c in tokenizer.decode([i]))]
    assert all(sum(c.isdigit() for c in piece) == 1 for piece in digits)


def test_the_script_repeats_itself(short, tmp_path):
    first, second = (
        Policy(PolicyConfig(model=str(make_warm_start(short, tmp_path / name, lambda *_: None))))
        for name in "ab"
    )
    for ours, theirs in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_shipped_model_is_the_recipes(tmp_path):
    config = load_config(RunConfig, "demo")
    policy = Policy(config.policy)
    assert sum(p.numel() for p in policy.model.parameters()) == 1_248_000
    assert policy.causal_lm.config.hidden_size == DEMO.hidden
    assert config.data.tasks == DEMO.data.tasks
    assert config.data.template == DEMO.data.template
    seeds = {config.data.seed, config.evaluation.data.seed, DEMO.data.seed}
    assert len(seeds) == 3
