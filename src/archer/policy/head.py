"""Log-probability and entropy of given tokens from hidden states, in chunks, forward and backward.

No tensor of shape [tokens, vocabulary] outlives its chunk: the backward pass recomputes the logits of one
chunk at a time, so peak memory does not grow with the number of tokens (as a plain log-softmax does).
"""

import torch
from torch import Tensor

CHUNK_ELEMENTS = 2**22
"""Logits held at once. 16 MiB in float32 keeps a chunk within a CPU's last-level cache."""


def float32_logits(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, scale: float) -> Tensor:
    """Scaled logits in at least float32; on CUDA the product itself accumulates and returns float32."""
    if hidden_ND.dtype in (torch.float32, torch.float64):
        logits_NV = hidden_ND @ weight_VD.T
    elif hidden_ND.is_cuda:
        logits_NV = torch.mm(hidden_ND, weight_VD.T, out_dtype=torch.float32)
    else:
        logits_NV = hidden_ND.float() @ weight_VD.float().T
    if bias_V is not None:
        logits_NV = logits_NV + bias_V
    return logits_NV.mul_(scale)


def _chunk_rows(vocabulary: int) -> int:
    return max(1, CHUNK_ELEMENTS // vocabulary)


class _TokenLogp(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: torch.autograd.function.FunctionCtx,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_N: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(hidden_ND.dtype, torch.float32)
        logp_N = torch.empty(len(target_N), dtype=dtype, device=hidden_ND.device)
        entropy_N, logsum_N = torch.empty_like(logp_N), torch.empty_like(logp_N)
        chunk = _chunk_rows(len(weight_VD))
        for start in range(0, len(target_N), chunk):
            part = slice(start, start + chunk)
            logits = float32_logits(hidden_ND[part], weight_VD, bias_V, scale)
            logsum_N[part] = logits.logsumexp(-1)
            logp_N[part] = logits.gather(-1, target_N[part, None])[:, 0] - logsum_N[part]
            probability = (logits - logsum_N[part, None]).exp_()
            entropy_N[part] = logsum_N[part] - torch.linalg.vecdot(probability, logits)
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, target_N, logsum_N)  # type: ignore[arg-type]
        ctx.scale = scale  # type: ignore[attr-defined]
        ctx.mark_non_differentiable(entropy_N)
        return logp_N, entropy_N

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: torch.autograd.function.FunctionCtx, grad_logp_N: Tensor, _grad_entropy_N: Tensor
    ) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_VD, bias_V, target_N, logsum_N = ctx.saved_tensors  # type: ignore[attr-defined]
        scale: float = ctx.scale  # type: ignore[attr-defined]
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]  # type: ignore[attr-defined]
        grad_hidden = torch.zeros_like(hidden_ND) if need_hidden else None
        grad_weight = torch.zeros_like(weight_VD) if need_weight else None
        grad_bias = torch.zeros_like(bias_V) if need_bias and bias_V is not None else None
        # Tokens whose loss is flat (masked, clipped, zero advantage) cost nothing.
        active = grad_logp_N.nonzero()[:, 0]
        for index in torch.split(active, _chunk_rows(len(weight_VD))):
            hidden = hidden_ND[index]
            grad = float32_logits(hidden, weight_VD, bias_V, scale).sub_(logsum_N[index, None]).exp_().neg_()
            grad.scatter_add_(-1, target_N[index, None], torch.ones_like(grad[:, :1]))
            grad.mul_(grad_logp_N[index, None])
            if grad_bias is not None:
                grad_bias += grad.sum(0) * scale
            grad = grad.mul_(scale).to(weight_VD.dtype)
            if grad_hidden is not None:
                grad_hidden[index] = grad @ weight_VD
            if grad_weight is not None:
                grad_weight.addmm_(grad.T, hidden)
        return grad_hidden, grad_weight, grad_bias, None, None


def token_logp_and_entropy(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    target_N: Tensor,
    *,
    bias_V: Tensor | None = None,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Log-probability of ``target_N`` (with gradient) and entropy (without), both in nats.

    Args:
        hidden_ND: final hidden states at the positions that predict the targets, any float dtype.
        weight_VD: output embedding.
        target_N: int64 token ids.
        bias_V: output bias, if the model has one.
        temperature: logits are divided by it before the softmax.

    Returns:
        ``(logp_N, entropy_N)`` in float32 (float64 for float64 input). ``entropy_N`` carries no gradient: every
        objective here treats it as a statistic.
    """
    logp_N, entropy_N = _TokenLogp.apply(  # type: ignore[no-untyped-call]
        hidden_ND, weight_VD, bias_V, target_N, 1.0 / temperature
    )
    return logp_N, entropy_N
