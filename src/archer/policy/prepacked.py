"""Weights laid out for the small matrix products of decoding on a CPU.

A product of a few dozen rows with a large weight matrix spends a good part of its time on bringing the weight
into the order that the kernel wants. While sampling, the weights stand still, so this is done once and kept.
The products are MKL's own on either path.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MIN_ELEMENTS = 2**16
"""Smaller weights stay in the cache anyway."""

MIN_ROWS = 12
"""With fewer rows the weights are read once in any order, and there is nothing to win."""

MEMORY_SHARE = 0.25
"""The copy may take this share of the machine's memory at most."""


class Prepacked:
    """Large float32 linear layers of ``model``; their products use the copy when the number of rows fits it."""

    def __init__(self, model: nn.Module) -> None:
        linears = [m for m in model.modules() if type(m) is nn.Linear and _suits(m.weight)]
        need = sum(m.weight.numel() * m.weight.element_size() for m in linears)
        self.linears = linears if _available() and need <= MEMORY_SHARE * _memory() else []
        self.rows = 0
        self._weights: dict[nn.Module, Tensor] = {}

    def fit(self, rows: int) -> None:
        """Prepare for products of ``rows`` rows; laying out anew costs about as much as one decoding step."""
        if self.rows - self.rows // 4 <= rows <= self.rows or (rows < MIN_ROWS and not self.rows):
            return
        self.rows = 0 if rows < MIN_ROWS else rows
        self._weights.clear()
        for linear in self.linears if self.rows else ():
            weight = linear.weight.detach()
            self._weights[linear] = torch.ops.mkl._mkl_reorder_linear_weight(weight, self.rows)

    def forward(self, linear: nn.Linear, value: Tensor) -> Tensor:
        """The layer's forward pass; rows that are missing to the prepared number are filled with zeros."""
        count = value.numel() // value.shape[-1]
        if linear not in self._weights or not self.rows - self.rows // 4 <= count <= self.rows:
            return F.linear(value, linear.weight, linear.bias)
        flat = value.reshape(count, -1)
        if count < self.rows:
            flat = F.pad(flat, (0, 0, 0, self.rows - count))
        out = torch.ops.mkl._mkl_linear(flat, self._weights[linear], linear.weight, linear.bias, self.rows)
        return out[:count].view(*value.shape[:-1], -1)  # type: ignore[no-any-return]


@contextmanager
def prepacked(model: nn.Module) -> Iterator[Prepacked]:
    """Let the layers of ``model`` use a ``Prepacked`` copy; the weights must not change meanwhile."""
    copy = Prepacked(model)
    for linear in copy.linears:
        linear.forward = partial(copy.forward, linear)  # type: ignore[method-assign]
    try:
        yield copy
    finally:
        for linear in copy.linears:
            del linear.forward


def _suits(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= MIN_ELEMENTS


def _available() -> bool:
    return torch._C.has_mkl and hasattr(torch.ops.mkl, "_mkl_linear")


def _memory() -> int:
    """Bytes of physical memory; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
