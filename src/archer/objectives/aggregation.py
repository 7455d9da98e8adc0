"""The only place that divides: undivided terms and the step's counts become one loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor

from archer.configs.objective_base import ObjectiveBase
from archer.errors import TensorError
from archer.types import LossPart, LossTerms


@dataclass(frozen=True, slots=True)
class Counts:
    """Denominators of a whole optimiser step, over all its micro-batches and processes.

    Attributes:
        tokens: number of tokens of each part of the loss, int64 scalar; ``None`` where the part's tokens are
            chosen by the current policy, so that their number is known only after each forward.
        responses: number of responses with at least one trained token, int64 scalar.
    """

    tokens: Mapping[str, Tensor | None]
    responses: Tensor


def response_count(mask_BT: Tensor) -> Tensor:
    """Responses with at least one trained token, int64 scalar. Empty and fully masked ones do not count."""
    return mask_BT.any(dim=1).sum()


def aggregate(terms: LossTerms, counts: Counts, config: ObjectiveBase) -> Tensor:
    """The scalar loss of one micro-batch: its share of the step's loss, to be summed over micro-batches.

    - ``token-mean``: sum of the losses / ``counts.tokens[part]``. Where that is ``None``, the part's own
      mean over this micro-batch, weighted with the micro-batch's share of the step's responses. The result
      then depends on the split, as in the released codes that choose tokens in every forward.
    - ``seq-mean-token-mean``: each response's mean over the part's tokens, summed, / ``counts.responses``.
    - ``constant-length``: sum / (``counts.responses`` * constant_length). The form of verl, which has no
      1 / B, follows from counts with ``responses`` = 1.

    A count of 0 gives loss 0 and gradients that are exactly 0.

    Raises:
        TensorError: when the counts lack a part.
    """
    total: Tensor | None = None
    for name, part in terms.parts.items():
        if name not in counts.tokens:
            raise TensorError(f"expected counts for part {name!r}, got {sorted(counts.tokens)}")
        loss = _aggregate_part(part, counts.tokens[name], counts.responses, terms.responses, config)
        total = loss if total is None else total + loss
    if total is None:
        raise TensorError("expected terms with a 'policy' part, got none")
    return total


def _aggregate_part(
    part: LossPart, tokens: Tensor | None, step_responses: Tensor, responses: Tensor, config: ObjectiveBase
) -> Tensor:
    loss_BT = torch.where(part.mask_BT, part.loss_BT, 0.0)
    match config.aggregation:
        case "token-mean":
            if tokens is None:
                own_mean = loss_BT.sum() / part.mask_BT.sum().clamp(min=1)
                return own_mean * responses / step_responses.clamp(min=1)
            return loss_BT.sum() / tokens.clamp(min=1)
        case "seq-mean-token-mean":
            mean_B = loss_BT.sum(dim=1) / part.mask_BT.sum(dim=1).clamp(min=1)
            return mean_B.sum() / step_responses.clamp(min=1)
        case "constant-length":
            # the config holds a length exactly for this aggregation
            return loss_BT.sum() / (step_responses.clamp(min=1) * (config.constant_length or 1))
        case _:
            assert_never(config.aggregation)
