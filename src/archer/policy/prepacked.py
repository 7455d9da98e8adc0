"""Weights laid out for the small matrix products of decoding on a CPU.

A product of a few dozen rows with a large weight matrix spends a good part of its time on bringing the weight
into the order that the kernel wants. While sampling, the weights stand still, so this is done once and kept, in
the layout of oneDNN, whose kernels suit the vector units of any maker's processor. Layers that read the same input
(query, key and value; gate and up) become one product.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from archer.policy.linear import MIN_ELEMENTS, FastLinear, onednn_available

MEMORY_SHARE = 0.25
"""The copy may take this share of the machine's memory at most."""

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of layers that transformers' decoders feed the same tensor, in this order."""

ROWS_HINT = 32
"""Rows for which oneDNN chooses the layout; products of other sizes run as fast with it, as measured."""


class _Product:
    """One packed product that stands for one linear layer, or for several that read the same input."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        weight = torch.cat([linear.weight.detach() for linear in linears])
        biases = [
            weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias.detach()
            for linear in linears
        ]
        self.bias = None if all(linear.bias is None for linear in linears) else torch.cat(biases)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS_HINT)
        self.sizes = [linear.out_features for linear in linears]
        # The input of the last product, held so that its siblings recognise it, and their parts of the result.
        self.input: Tensor | None = None
        self.parts: dict[int, Tensor] = {}

    def forward(self, member: int, value: Tensor) -> Tensor:
        """Output of layer number ``member``: computed with its siblings', or taken from what they computed."""
        if self.input is not value or member not in self.parts:
            out = torch.ops.mkldnn._linear_pointwise(value, self.weight, self.bias, "none", [], "")
            if len(self.sizes) == 1:
                return out  # type: ignore[no-any-return]
            self.input, self.parts = value, dict(enumerate(out.split(self.sizes, dim=-1)))
        part = self.parts.pop(member)
        if not self.parts:
            self.input = None
        return part


@contextmanager
def prepacked(model: nn.Module) -> Iterator[None]:
    """Let the large linear layers of ``model`` use packed copies; no gradients, and the weights must not change.

    On other devices, without oneDNN, or where memory is short, nothing changes.
    """
    groups = _groups(model)
    need = sum(linear.weight.numel() * linear.weight.element_size() for group in groups for linear in group)
    if need > MEMORY_SHARE * _memory():
        groups = []
    try:
        for group in groups:
            product = _Product(group)
            for member, linear in enumerate(group):
                linear.forward = partial(product.forward, member)  # type: ignore[method-assign]
        yield
    finally:
        for linear in (linear for group in groups for linear in group):
            vars(linear).pop("forward", None)


def _groups(model: nn.Module) -> list[list[nn.Linear]]:
    """Layers that gain from packing, siblings together."""
    groups: list[list[nn.Linear]] = []
    taken: set[nn.Module] = set()
    for module in model.modules():
        for names in SIBLINGS:
            found = [getattr(module, name, None) for name in names]
            siblings = [linear for linear in found if isinstance(linear, nn.Linear) and _suits(linear)]
            if len(siblings) == len(names) and len({(s.in_features, s.weight.dtype) for s in siblings}) == 1:
                groups.append(siblings)
                taken.update(siblings)
    singles = [m for m in model.modules() if isinstance(m, nn.Linear) and _suits(m) and m not in taken]
    return groups + [[linear] for linear in singles]


def _suits(linear: nn.Linear) -> bool:
    weight = linear.weight
    return (
        type(linear) in (nn.Linear, FastLinear)
        and weight.device.type == "cpu"
        and weight.dtype in _dtypes()
        and weight.numel() >= MIN_ELEMENTS
    )


def _dtypes() -> set[torch.dtype]:
    """What oneDNN multiplies fast on this processor."""
    if not onednn_available():
        return set()
    fast = {torch.float32}
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        fast.add(torch.bfloat16)
    return fast


def _memory() -> int:
    """Bytes of physical memory; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
