"""The objective as a loss function of verl's training workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from archer.configs.objective import ObjectiveConfig
from archer.configs.objective_base import EntropyPool
from archer.errors import MissingDependencyError, TensorError
from archer.objectives import Counts, aggregate, count, needs, token_losses
from archer.types import LossTerms, TokenBatch

if TYPE_CHECKING:
    from tensordict import TensorDict

ROLE_FIELD, GRADE_FIELD = "archer_reasoning", "archer_grade"
"""Fields of verl's rows that hold what ``prepare`` filled in for the whole step."""


def archer_loss(
    *,
    objective: ObjectiveConfig,
    model_output: Mapping[str, Tensor],
    data: TensorDict,
    dp_group: Any = None,
) -> tuple[Tensor, dict[str, Any]]:
    """Loss and metrics of one micro-batch; with ``objective`` bound, a function for ``set_loss_fn``.

    The denominators are those of verl's whole mini-batch over all processes, so any split gives the same sum of
    losses. verl averages gradients over data-parallel processes, hence the factor ``dp_size``. verl's number of
    responses counts fully masked ones too, which matters for the aggregations by response only.

    Args:
        objective: the method.
        model_output: verl's ``log_probs`` and, where computed, ``entropy`` of the current policy.
        data: verl's micro-batch; nested or padded fields.
        dp_group: unused; part of verl's interface.

    Raises:
        TensorError: entropy, roles or reference log-probabilities that the method needs are missing.
    """
    batch = _token_batch(objective, model_output, data)
    generator = torch.Generator(batch.logp_BT.device).manual_seed(_seed(data))
    terms = token_losses(batch, objective, generator=generator)
    loss = aggregate(terms, _counts(batch, objective, data), objective) * data["dp_size"]
    return loss, _metrics(terms, loss)


def _token_batch(
    objective: ObjectiveConfig, model_output: Mapping[str, Tensor], data: TensorDict
) -> TokenBatch:
    padded = _verl("verl.workers.utils.padding", "no_padding_2_padding")
    _require(objective, model_output, data)
    names = ["response_mask", "old_log_probs", "advantages"]
    names += [n for n in ("entropy", "ref_log_prob", ROLE_FIELD, GRADE_FIELD) if n in data]
    rows = data.select(*names).to_padded_tensor()
    entropy = model_output.get("entropy")
    reasoning = rows.get(ROLE_FIELD, None)
    return TokenBatch(
        logp_BT=padded(model_output["log_probs"], data),
        old_logp_BT=rows["old_log_probs"],
        mask_BT=rows["response_mask"].bool(),
        advantage_BT=rows["advantages"],
        old_entropy_BT=rows.get("entropy", None),
        entropy_BT=None if entropy is None else padded(entropy, data),
        ref_logp_BT=rows.get("ref_log_prob", None),
        reasoning_BT=None if reasoning is None else reasoning.bool(),
        grade_BT=rows.get(GRADE_FIELD, None),
    )


def _require(objective: ObjectiveConfig, model_output: Mapping[str, Tensor], data: TensorDict) -> None:
    needed = needs(objective)
    method = objective.method
    if needed.old_entropy and "entropy" not in data:
        raise TensorError(
            f"{method!r} needs the old policy's entropy, but verl's rows hold only {sorted(data.keys())}; set "
            "algorithm.rollout_correction.bypass_mode=False"
        )
    if needed.current_entropy and model_output.get("entropy") is None:
        raise TensorError(
            f"{method!r} needs the current policy's entropy, but the model gave only {sorted(model_output)}; set "
            "actor_rollout_ref.actor.calculate_entropy=True"
        )
    if needed.reference and "ref_log_prob" not in data:
        raise TensorError(
            f"{method!r} has a KL weight above 0, but verl's rows hold no ref_log_prob; set "
            "actor_rollout_ref.actor.use_kl_loss=True"
        )
    pooled = isinstance(objective, EntropyPool) and objective.entropy_from == "old"
    if pooled and ROLE_FIELD not in data and GRADE_FIELD not in data:
        raise TensorError(
            f"{method!r} needs the roles of the whole step, but verl's rows hold neither {ROLE_FIELD} nor "
            f"{GRADE_FIELD}; train with trainer.v1.trainer_mode=archer_sync, which fills them in"
        )


def _counts(batch: TokenBatch, objective: ObjectiveConfig, data: TensorDict) -> Counts:
    """verl's counts of the mini-batch; what only a forward can count stays open, as in ``Counts``."""
    own, device = count(batch, objective), batch.logp_BT.device
    tokens = torch.as_tensor(data["batch_num_tokens"], device=device)
    responses = torch.as_tensor(data["global_batch_size"], device=device)
    return Counts({part: None if n is None else tokens for part, n in own.tokens.items()}, responses)


def _seed(data: TensorDict) -> int:
    """A number from the sampled tokens: the same rows draw alike however the processes are laid out."""
    responses = data["responses"]
    return int((responses.values() if responses.is_nested else responses).sum())


def _metrics(terms: LossTerms, loss: Tensor) -> dict[str, Any]:
    """verl's metrics; means are taken over micro-batches, extremes over everything."""
    metric = _verl("verl.utils.metric", "Metric")
    values = {"archer/loss": metric("sum", loss.detach())}
    for name, (total, number) in terms.metrics.items():
        kind = name.rpartition("_")[2]
        if kind in ("max", "min"):
            values[f"archer/{name}"] = metric(kind, total)
        else:
            values[f"archer/{name}"] = metric("mean", total / number.clamp(min=1))
    return values


def _verl(module: str, name: str) -> Any:
    import importlib

    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise MissingDependencyError(f"this needs verl: pip install 'archer-rl[verl]' ({error})") from error
