"""What is computed once a step, on all of its rows: advantages and roles."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from archer.adapters.verl.loss import GRADE_FIELD, ROLE_FIELD
from archer.configs.objective import ObjectiveConfig
from archer.objectives import group_advantages, needs, prepare, shape_rewards
from archer.types import TokenBatch


@dataclass(frozen=True, slots=True)
class StepRows:
    """The step's rows, padded on the right.

    Attributes:
        reward_B: float; NaN where the response could not be scored.
        group_B: int64, number of the prompt.
        mask_BT: bool, trained tokens.
        old_logp_BT: float, old policy.
        old_entropy_BT: float, old policy; None where verl did not compute it.
        think_end_B: int64, place of the closing tag of the thinking part, -1 for none; needed by PEAR.
    """

    reward_B: Tensor
    group_B: Tensor
    mask_BT: Tensor
    old_logp_BT: Tensor
    old_entropy_BT: Tensor | None = None
    think_end_B: Tensor | None = None


def prepare_step(rows: StepRows, objective: ObjectiveConfig) -> TokenBatch:
    """Mask unscorable rows, compute advantages, and let ``prepare`` fill in roles.

    Raises:
        TensorError: a tensor that the method needs is missing or does not fit.
    """
    mask_BT = rows.mask_BT & rows.reward_B.isfinite()[:, None]
    reward_B = rows.reward_B
    if needs(objective).shaped_reward:
        reward_B = shape_rewards(
            reward_B,
            objective,
            entropy_BT=rows.old_entropy_BT,
            mask_BT=mask_BT,
            think_end_B=rows.think_end_B,
        )
    advantage_B = group_advantages(reward_B, rows.group_B, objective.advantage, length_B=mask_BT.sum(1))
    batch = TokenBatch(
        logp_BT=rows.old_logp_BT,
        old_logp_BT=rows.old_logp_BT,
        mask_BT=mask_BT,
        advantage_BT=advantage_B[:, None] * mask_BT,
        old_entropy_BT=rows.old_entropy_BT,
        group_B=rows.group_B,
    )
    return prepare(replace(batch, response_B=torch.arange(len(mask_BT))), objective)


def row_fields(batch: TokenBatch) -> dict[str, Tensor]:
    """The padded fields of verl's rows that a prepared step replaces or adds."""
    fields = {
        "advantages": batch.advantage_BT,
        "response_mask": batch.mask_BT.long(),
        "loss_mask": batch.mask_BT.long(),
    }
    if batch.reasoning_BT is not None:
        fields[ROLE_FIELD] = batch.reasoning_BT.long()
    if batch.grade_BT is not None:
        fields[GRADE_FIELD] = batch.grade_BT
    return fields
