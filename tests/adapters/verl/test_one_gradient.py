"""The fixed batch that every engine is held to, in verl's worker and in the local loop."""

import importlib.util
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter
from verl_worker import MODEL, build_worker, loss_and_gradients, verl_data

from archer.adapters.verl.loss import archer_loss
from archer.adapters.verl.step import StepRows, prepare_step, row_fields
from archer.configs.objective import ObjectiveConfig
from archer.configs.policy import PolicyConfig
from archer.objectives import aggregate, count, group_advantages, prepare, token_losses
from archer.types import TokenBatch

_spec = importlib.util.spec_from_file_location("fixed_batch", Path(__file__).parents[1] / "batch.py")
batch = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(batch)

# verl's count of responses holds masked ones, so with the masked row here the means over responses are scaled;
# test_worker.py compares those methods on rows without one.
TOKEN_MEANS = ["archer", "archer-batch", "archer-current", "archer-group", "archer-soft"]
ROWS = [
    (tuple(prompt), tuple(ids))
    for prompt, group in zip(batch.PROMPTS, batch.RESPONSES, strict=True)
    for ids in group
]
LENGTHS = [len(ids) for _, ids in ROWS]
GROUP = torch.arange(len(batch.PROMPTS)).repeat_interleave(batch.GROUP_SIZE)
REWARD = torch.tensor([float("nan") if r is None else r for group in batch.REWARDS for r in group])
FULL = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]


class LocalParts:
    """The parameters that this process holds of a sharded model."""

    def __init__(self, module):
        self.module = module

    def named_parameters(self):
        return [(name, p.to_local()) for name, p in self.module.named_parameters()]


def local_step(objective):
    from archer.policy.model import Policy

    policy = Policy(PolicyConfig(model=MODEL, dtype="float32", device="cpu", attention="padded"))
    temperature = batch.TEMPERATURE
    with torch.no_grad():
        reference_BT, _ = policy.logps(ROWS, temperature)
        batch.perturb(policy.model, batch.OLD)
        old_BT, entropy_BT = policy.logps(ROWS, temperature)
    batch.perturb(policy.model, batch.CURRENT)
    advantage_B = group_advantages(REWARD, GROUP, objective.advantage, length_B=torch.tensor(LENGTHS))
    rows = TokenBatch(
        logp_BT=old_BT,
        old_logp_BT=old_BT,
        mask_BT=FULL & REWARD.isfinite()[:, None],
        advantage_BT=advantage_B[:, None].expand_as(old_BT),
        old_entropy_BT=entropy_BT,
        ref_logp_BT=reference_BT,
        group_B=GROUP,
    )
    rows = prepare(rows, objective)
    logp_BT, current_BT = policy.logps(ROWS, temperature)
    terms = token_losses(replace(rows, logp_BT=logp_BT, entropy_BT=current_BT), objective)
    loss = aggregate(terms, count(rows, objective), objective)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in policy.causal_lm.named_parameters()}


def verl_step(worker, objective, micro_batch):
    from verl.workers.utils.padding import response_from_nested

    def measured(*names):
        mask = {"response_mask": FULL.long(), "loss_mask": FULL.long()}
        data = verl_data(
            ROWS, mask, calculate_entropy=True, compute_loss=False, temperature=batch.TEMPERATURE
        )
        out = worker.infer_batch(data)
        found = [response_from_nested(out[name], data["response_mask"]) for name in names]
        return [value.to_padded_tensor(0.0) for value in found]

    (reference_BT,) = measured("log_probs")
    batch.perturb(LocalParts(worker.engine.module), batch.OLD)
    old_BT, entropy_BT = measured("log_probs", "entropy")
    batch.perturb(LocalParts(worker.engine.module), batch.CURRENT)
    rows = prepare_step(StepRows(REWARD, GROUP, FULL, old_BT, entropy_BT), objective)
    fields = {"old_log_probs": old_BT, "entropy": entropy_BT, "ref_log_prob": reference_BT}
    data = verl_data(
        ROWS,
        fields | row_fields(rows),
        calculate_entropy=True,
        temperature=batch.TEMPERATURE,
        global_batch_size=len(ROWS),
        micro_batch_size_per_gpu=micro_batch,
    )
    metrics, gradients = loss_and_gradients(worker, partial(archer_loss, objective=objective), data)
    return metrics["loss"], gradients


@pytest.mark.parametrize("micro_batch", [4, 12])
@pytest.mark.parametrize("name", TOKEN_MEANS)
def test_verl_has_the_loss_and_gradient_of_the_local_loop(one_process, name, micro_batch):
    objective = TypeAdapter(ObjectiveConfig).validate_python(batch.OBJECTIVES[name])
    loss, expected = local_step(objective)
    found_loss, found = verl_step(build_worker(len(ROWS)), objective, micro_batch)
    assert abs(found_loss - loss) < batch.TOLERANCE
    assert found.keys() == expected.keys()
    assert max(float(g.abs().max()) for g in expected.values()) > 100 * batch.TOLERANCE
    for parameter, gradient in expected.items():
        assert float((found[parameter] - gradient).abs().max()) < batch.TOLERANCE, parameter
