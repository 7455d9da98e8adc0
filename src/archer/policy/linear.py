"""Matrix products by the library that is quickest on this processor.

Builds of torch for x86 multiply float32 with Intel's MKL. On other makers' processors the kernels of oneDNN, which come
with torch too, need less time for the same sums: measured on an AMD EPYC with AVX-512, a fifth less for products
with a transposed matrix and a tenth less for others. The choice depends on the machine alone, so equal runs stay equal.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

MIN_ELEMENTS = 2**14
"""Products with smaller weights take less time than the detour through Python."""

CPU_INFO = Path("/proc/cpuinfo")
"""Where Linux names the maker of the processor."""


def times_transposed(left_ND: Tensor, right_VD: Tensor, out_NV: Tensor | None = None) -> Tensor:
    """``left_ND @ right_VD.T`` without gradient; ``out_NV`` is memory that may be used for it."""
    if _by_onednn(left_ND, right_VD):
        return _onednn_product(left_ND, right_VD, None)
    return torch.mm(left_ND, right_VD.T, out=out_NV)


def add_product(sum_ND: Tensor, left_NV: Tensor, right_VD: Tensor) -> None:
    """``sum_ND += left_NV @ right_VD`` without gradient; the sum may have a wider dtype than the factors."""
    if _by_onednn(left_NV, right_VD):
        sum_ND += _onednn_product(left_NV, right_VD.T, None)
    elif sum_ND.dtype == right_VD.dtype:
        sum_ND.addmm_(left_NV, right_VD)
    else:
        sum_ND += left_NV @ right_VD


def use_fast_linears(model: nn.Module) -> None:
    """Let the linear layers of ``model`` use the quickest library, forward and backward."""
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.numel() >= MIN_ELEMENTS:
            module.__class__ = FastLinear


class FastLinear(nn.Linear):
    """A linear layer whose products are those of ``times_transposed``."""

    def forward(self, input: Tensor) -> Tensor:
        """``[..., in]`` to ``[..., out]``."""
        if not _by_onednn(input, self.weight):
            return super().forward(input)
        return _Linear.apply(input, self.weight, self.bias)  # type: ignore[no-any-return, no-untyped-call]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(value, weight)
        return _onednn_product(value, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # type: ignore[override]
        value, weight = ctx.saved_tensors
        need_value, need_weight, need_bias = ctx.needs_input_grad
        rows = grad.reshape(-1, grad.shape[-1])
        return (
            _onednn_product(grad, weight.T, None) if need_value else None,
            # Here oneDNN, which would copy both sides, has no advantage.
            rows.T @ value.reshape(-1, value.shape[-1]) if need_weight else None,
            rows.sum(0) if need_bias else None,
        )


def _onednn_product(value: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(value, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def _by_onednn(value: Tensor, weight: Tensor) -> bool:
    return (
        value.dtype == weight.dtype == torch.float32
        and value.device.type == weight.device.type == "cpu"
        and _onednn_leads()
    )


@cache
def _onednn_leads() -> bool:
    """Whether float32 products go to oneDNN rather than to MKL."""
    mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    if not mkl or not onednn_available():
        return False
    try:
        return "GenuineIntel" not in CPU_INFO.read_text()
    except OSError:
        return False


def onednn_available() -> bool:
    """Whether this build of torch brings oneDNN and gives access to its products."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")
