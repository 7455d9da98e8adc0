"""verl's training worker, in this process, with Archer's loss: values, gradients, splits, refusals."""

from functools import partial

import pytest
import torch
from fixed_rows import GROUPS, LENGTHS, REWARDS, fixed_rows, full_mask, noise
from pydantic import TypeAdapter
from verl_worker import MODEL, build_worker, cut, loss_and_gradients, verl_data

from archer.adapters.verl.loss import archer_loss
from archer.adapters.verl.settings import method_problems
from archer.adapters.verl.step import StepRows, prepare_step, row_fields
from archer.configs.objective import ObjectiveConfig
from archer.configs.policy import PolicyConfig
from archer.errors import TensorError
from archer.objectives import aggregate, count, token_losses

# Strong enough that both ranges clip and both KL weights show.
ARCHER = {"method": "archer", "beta_r": 0.05, "beta_k": 0.2}
METHODS = [
    ARCHER,
    {"method": "archer", "entropy_from": "current"},
    {"method": "archer", "scope": "group"},
    {"method": "archer", "scope": "batch"},
    {"method": "archer-released"},
    {"method": "archer-soft"},
    {"method": "archer-k"},
    {"method": "grpo"},
    {"method": "dapo"},
    {"method": "dr-grpo", "constant_length": 16},
    {"method": "gspo"},
    {"method": "cispo"},
    {"method": "gppo"},
    {"method": "ce-gppo"},
    {"method": "eighty-twenty"},
    {"method": "ar-lopti", "eta": None},
    {"method": "kl-cov"},
    {"method": "entropy-advantage"},
    {"method": "aspo"},
    {"method": "aspo-released"},
    {"method": "hapo"},
    {"method": "hapo-released"},
    {"method": "steer"},
    {"method": "espo", "vocabulary_size": 109},
    {"method": "pear"},
]


def objective_of(settings):
    return TypeAdapter(ObjectiveConfig).validate_python(settings)


@pytest.fixture(scope="module")
def policy():
    """The same model in Archer's own hands."""
    from archer.policy.model import Policy

    return Policy(PolicyConfig(model=MODEL, dtype="float32", device="cpu", attention="padded"))


@pytest.fixture(scope="module")
def worker(one_process):
    return build_worker(micro_batch=len(LENGTHS))


def step_of(policy, objective, rewards=REWARDS):
    """The fixed step: an old policy and a reference that differ from the model by fixed noise."""
    with torch.no_grad():
        logp_BT, entropy_BT = policy.logps(fixed_rows(), 1.0)
    rows = StepRows(
        reward_B=torch.tensor(rewards),
        group_B=torch.tensor(GROUPS),
        mask_BT=full_mask(),
        old_logp_BT=logp_BT + noise(0.3, 1),
        old_entropy_BT=entropy_BT,
        think_end_B=torch.full((len(LENGTHS),), -1),
    )
    return prepare_step(rows, objective), logp_BT + noise(0.4, 2)


def local(policy, objective, rewards=REWARDS):
    """Loss and gradients as the local engine computes them on one micro-batch."""
    from dataclasses import replace

    batch, reference_BT = step_of(policy, objective, rewards)
    policy.model.zero_grad()
    logp_BT, entropy_BT = policy.logps(fixed_rows(), 1.0)
    batch = replace(batch, logp_BT=logp_BT, entropy_BT=entropy_BT, ref_logp_BT=reference_BT)
    loss = aggregate(token_losses(batch, objective), count(batch, objective), objective)
    loss.backward()
    return loss.item(), {n: p.grad.clone() for n, p in policy.causal_lm.named_parameters()}


def in_verl(worker, policy, objective, rewards=REWARDS, loss_function=None, **settings):
    batch, reference_BT = step_of(policy, objective, rewards)
    fields = {
        "old_log_probs": batch.old_logp_BT,
        "ref_log_prob": reference_BT,
        "entropy": batch.old_entropy_BT,
        **row_fields(batch),
    }
    data = verl_data(fixed_rows(), fields, calculate_entropy=True, global_batch_size=len(LENGTHS), **settings)
    chosen = loss_function or partial(archer_loss, objective=objective)
    metrics, gradients = loss_and_gradients(worker, chosen, data)
    return metrics, gradients


def assert_same_gradient(found, expected):
    assert found.keys() == expected.keys()
    whole = torch.stack([g.norm() for g in expected.values()]).norm()
    assert whole > 1e-3
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= 1e-5 * whole, name


@pytest.mark.parametrize("size", [1, 2, 8])
def test_one_gradient_under_any_split(worker, policy, size):
    objective = objective_of(ARCHER)
    loss, expected = local(policy, objective)
    metrics, found = in_verl(worker, policy, objective, micro_batch_size_per_gpu=size)
    assert metrics["loss"] == pytest.approx(loss, abs=1e-5 * abs(loss))
    assert_same_gradient(found, expected)


@pytest.mark.parametrize("settings", METHODS, ids=lambda s: "-".join(map(str, s.values())))
def test_every_method_has_the_local_loss_and_gradient(worker, policy, settings):
    objective = objective_of(settings)
    assert not list(method_problems(objective))
    # verl counts fully masked responses, so the aggregations by response agree where there are none.
    rewards = [0.5 if r != r else r for r in REWARDS]
    loss, expected = local(policy, objective, rewards)
    metrics, found = in_verl(worker, policy, objective, rewards)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5, abs=1e-6)
    assert_same_gradient(found, expected)


@pytest.mark.parametrize("weight", [0.0, 0.05])
def test_with_uniform_ranges_it_is_the_loss_of_verl(worker, policy, weight):
    from verl.workers.config import FSDPActorConfig
    from verl.workers.utils.losses import ppo_loss

    uniform = {"method": "archer", "eps_r": 0.2, "eps_k": 0.2, "beta_r": weight, "beta_k": weight}
    objective = objective_of(uniform)
    config = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=4,
        ppo_mini_batch_size=8,
        clip_ratio_c=1e6,
        use_kl_loss=weight > 0,
        kl_loss_coef=weight,
    )
    theirs, expected = in_verl(worker, policy, objective, loss_function=partial(ppo_loss, config=config))
    ours, found = in_verl(worker, policy, objective)
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
    assert_same_gradient(found, expected)
    by_role, _ = in_verl(worker, policy, objective_of(ARCHER))
    assert abs(by_role["loss"] - theirs["loss"]) > 1e-3, "roles must matter on these rows"


def test_a_fifth_of_the_tokens_is_reasoning(worker, policy):
    metrics, _ = in_verl(worker, policy, objective_of(ARCHER))
    share = metrics["archer/role/reasoning_share"]
    found = share.aggregate() if hasattr(share, "aggregate") else share[0].aggregate()
    kept = [n for n, reward in zip(LENGTHS, REWARDS, strict=True) if reward == reward]
    # The quantile 0.8 of n values lies at 0.8 (n - 1); the places at and above it are reasoning.
    assert found == pytest.approx(sum(n - -int(-0.8 * (n - 1) // 1) for n in kept) / sum(kept))
    assert 0.2 <= found < 0.3


@pytest.mark.parametrize(
    ("settings", "lacking", "names"),
    [
        (ARCHER, "entropy", "bypass_mode"),
        (ARCHER, "ref_log_prob", "use_kl_loss"),
        (ARCHER, "archer_reasoning", "archer_sync"),
        ({"method": "hapo"}, "current", "calculate_entropy"),
    ],
)
def test_what_is_missing_is_named(worker, policy, settings, lacking, names):
    objective = objective_of(settings)
    batch, reference_BT = step_of(policy, objective)
    fields = {
        "old_log_probs": batch.old_logp_BT,
        "ref_log_prob": reference_BT,
        "entropy": batch.old_entropy_BT,
    }
    fields |= row_fields(batch)
    fields.pop(lacking, None)
    data = verl_data(
        fixed_rows(), fields, calculate_entropy=lacking != "current", global_batch_size=len(LENGTHS)
    )
    with pytest.raises(TensorError, match=names):
        loss_and_gradients(worker, partial(archer_loss, objective=objective), data)


def test_verl_gives_the_entropy_and_log_probabilities_that_the_local_engine_has(worker, policy):
    data = verl_data(
        fixed_rows(),
        {"response_mask": full_mask().long(), "loss_mask": full_mask().long()},
        calculate_entropy=True,
        compute_loss=False,
    )
    out = worker.infer_batch(data)
    from verl.workers.utils.padding import response_from_nested

    logp_BT, entropy_BT = policy.logps(fixed_rows(), 1.0)
    for name, expected_BT in (("log_probs", logp_BT), ("entropy", entropy_BT)):
        found = response_from_nested(out[name], data["response_mask"])
        expected = cut(expected_BT.detach(), LENGTHS)
        torch.testing.assert_close(found.values(), expected.values(), rtol=0, atol=1e-5)
