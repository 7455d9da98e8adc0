"""Input checks, and the sanitised view of a batch that every method works on."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from archer.errors import TensorError
from archer.types import TokenBatch


def require(tensor: Tensor | None, name: str, reason: str) -> Tensor:
    """The tensor, or a ``TensorError`` that says why the method needs it."""
    if tensor is None:
        raise TensorError(f"expected {name}, got None: {reason}")
    return tensor


def _constants(batch: TokenBatch) -> dict[str, Tensor | None]:
    return {
        "old_logp_BT": batch.old_logp_BT,
        "advantage_BT": batch.advantage_BT,
        "old_entropy_BT": batch.old_entropy_BT,
        "entropy_BT": batch.entropy_BT,
        "ref_logp_BT": batch.ref_logp_BT,
        "weight_BT": batch.weight_BT,
    }


def check(batch: TokenBatch) -> None:
    """Check shapes, dtypes and devices.

    Raises:
        TensorError: with "expected ... got ...", naming the field.
    """
    shape = batch.logp_BT.shape
    if len(shape) != 2:
        raise TensorError(f"expected logp_BT of shape [B, T], got {list(shape)}")
    if batch.mask_BT.dtype != torch.bool:
        raise TensorError(f"expected mask_BT of dtype torch.bool, got {batch.mask_BT.dtype}")
    floats = {"logp_BT": batch.logp_BT, "grade_BT": batch.grade_BT, **_constants(batch)}
    for name, tensor in floats.items():
        if tensor is not None and not tensor.is_floating_point():
            raise TensorError(f"expected {name} of a floating dtype, got {tensor.dtype}")
    if batch.reasoning_BT is not None and batch.reasoning_BT.dtype != torch.bool:
        raise TensorError(f"expected reasoning_BT of dtype torch.bool, got {batch.reasoning_BT.dtype}")
    for name, tensor in {**floats, "mask_BT": batch.mask_BT, "reasoning_BT": batch.reasoning_BT}.items():
        if tensor is not None and tensor.shape != shape:
            raise TensorError(
                f"expected {name} of shape {list(shape)} like logp_BT, got {list(tensor.shape)}"
            )
        if tensor is not None and tensor.device != batch.logp_BT.device:
            raise TensorError(f"expected {name} on {batch.logp_BT.device} like logp_BT, got {tensor.device}")
    for name, tensor in {"group_B": batch.group_B, "response_B": batch.response_B}.items():
        if tensor is None:
            continue
        if tensor.dtype != torch.int64:
            raise TensorError(f"expected {name} of dtype torch.int64, got {tensor.dtype}")
        if tensor.shape != shape[:1]:
            raise TensorError(f"expected {name} of shape {list(shape[:1])}, got {list(tensor.shape)}")


def clean(batch: TokenBatch) -> TokenBatch:
    """Check the batch, then make it safe for arithmetic.

    Masked positions become 0 before anything is computed, so NaN or infinity there can't reach the loss or
    its gradient. Everything but ``logp_BT`` is detached. Half precision is raised to float32.

    Raises:
        TensorError: as ``check``.
    """
    check(batch)
    mask = batch.mask_BT
    dtype = torch.promote_types(batch.logp_BT.dtype, torch.float32)

    def safe(tensor: Tensor) -> Tensor:
        return torch.where(mask, tensor.to(dtype), 0.0)

    constants = {
        name: None if tensor is None else safe(tensor.detach()) for name, tensor in _constants(batch).items()
    }
    return replace(batch, logp_BT=safe(batch.logp_BT), **constants)  # type: ignore[arg-type]
