"""One fixed batch, one loss and one gradient, in the local loop and in TRL's trainer."""

import importlib.util
from pathlib import Path

import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed")

from archer.configs.loading import build_config
from archer.configs.policy import PolicyConfig
from archer.configs.run import RunConfig
from archer.data import PromptStream
from archer.policy.model import Policy
from archer.policy.tokenizer import PromptRenderer, model_place
from archer.train.batching import LastVisit
from archer.train.interrupt import Interrupt
from archer.train.loop import Parts, Trainer
from archer.train.records import Clock, Meter, RunRecords
from archer.types import Group, Problem, Rollout, Verdict

STEP = Path(__file__).with_name("trl_step.py")
_spec = importlib.util.spec_from_file_location("archer_trl_step", STEP)
trl_step = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(trl_step)
batch = trl_step.batch
PLACE = model_place(PolicyConfig(model=batch.MODEL))


def fixed_groups():
    groups = []
    for number, (prompt, responses, rewards) in enumerate(
        zip(batch.PROMPTS, batch.RESPONSES, batch.REWARDS, strict=True)
    ):
        rollouts = [
            Rollout(
                prompt_ids=tuple(prompt),
                token_ids=tuple(ids),
                logp=(0.0,) * len(ids),
                entropy=(0.0,) * len(ids),
                finish_reason="stop" if ids[-1] == batch.END else "length",
                text="",
            )
            for ids in responses
        ]
        verdicts = [
            Verdict("unscorable" if r is None else "correct" if r == 1 else "incorrect", r) for r in rewards
        ]
        groups.append(Group(Problem(id=str(number), prompt=""), rollouts, verdicts))
    return groups


def local_step(folder, objective, mask_truncated):
    """Loss and gradient by parameter name from the local loop's own methods."""
    config = build_config(
        RunConfig,
        {
            "policy": {"model": batch.MODEL, "device": "cpu", "dtype": "float32"},
            "data": {"path": "unused.jsonl"},
            "objective": objective,
            "rollout": {
                "group_size": batch.GROUP_SIZE,
                "temperature": batch.TEMPERATURE,
                "max_response_tokens": batch.MAX_RESPONSE_TOKENS,
            },
            "train": {
                "old_logps": "recompute",
                "mask_truncated": mask_truncated,
                "eval_every": 0,
                "micro_batch_tokens": 60,
            },
        },
        where="test",
    )
    policy = Policy(config.policy)
    groups = fixed_groups()
    parts = Parts(
        policy=policy,
        renderer=PromptRenderer(policy.tokenizer, config.policy),
        sampler=None,
        scorer=None,
        stream=PromptStream([group.problem for group in groups], 0),
        held_out=(),
        data_fingerprint="",
        first_prompt="",
    )
    trainer = Trainer(config, parts, RunRecords(folder), Interrupt(), lambda line: None)
    batch.perturb(policy.model, batch.OLD)
    data, meter = trainer.score_tokens(groups, Clock(), Meter()), Meter()
    batch.perturb(policy.model, batch.CURRENT)
    visit = LastVisit(torch.ones_like(data.batch.logp_BT))
    trainer._backward(data, range(len(data.rows)), 0, meter, visit)
    gradient = {name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None}
    return meter.values()["optim/loss"], gradient, meter.values()


def assert_same(first, second):
    (loss, gradient, _), (other_loss, other, _) = first, second
    assert abs(loss - other_loss) < batch.TOLERANCE
    assert gradient.keys() == other.keys()
    largest = max(float(g.abs().max()) for g in gradient.values())
    assert largest > 0.1
    for name, value in gradient.items():
        worst = float((value - other[name]).abs().max())
        assert worst < batch.TOLERANCE * max(1.0, largest), f"{name}: {worst}"


@pytest.mark.parametrize(
    ("name", "mask_truncated"), [*((name, False) for name in sorted(batch.OBJECTIVES)), ("archer", True)]
)
def test_trl_has_the_gradient_of_the_local_loop(name, mask_truncated, tmp_path):
    objective = batch.OBJECTIVES[name]
    local = local_step(tmp_path / "local", objective, mask_truncated)
    trl = trl_step.one_step(
        tmp_path / "trl", PLACE, objective, mask_truncated=mask_truncated, rows=4, accumulation=3
    )
    assert_same(local, trl)
    # The weights moved, so that ratios, clipping and KL are at work.
    assert local[2]["ratio/max"] > 1.1
    assert trl[2]["ratio/max"] == pytest.approx(local[2]["ratio/max"], rel=1e-4)
