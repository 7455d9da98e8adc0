"""Log-probability and entropy of given tokens from hidden states, block by block, forward and backward.

The vocabulary is swept in blocks against a lot of tokens, with running sums as in online softmax. What the backward
pass needs of a block is kept within a fixed budget of memory and computed anew beyond it. So no more of a
[tokens, vocabulary] tensor than the budget exists, the output embedding is read once a sweep, and each block of its
gradient is written once.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from archer.policy.linear import add_product, times_transposed

BLOCK_ROWS = 1024
"""Tokens in a block. Enough for matrix products at full speed."""

BLOCK_ELEMENTS = 2**20
"""Logits held at once on a CPU: 4 MiB in float32 stay in the second-level caches of two cores."""

BLOCK_ELEMENTS_CUDA = 2**26
"""The same on CUDA, where large launches matter more than caches."""

KEPT_ELEMENTS = 2**25
"""Exponentials that a pass keeps for its backward pass: 128 MiB in float32."""

KEPT_WORK = 2 / 3
"""Products of a backward pass from kept blocks (2 a token) in relation to those without (3 an active token)."""

LOWEST = -1e30
"""Start of the running maximum: finite, so that its difference to a logit is no NaN."""


def float32_logits(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, scale: float, out_NV: Tensor | None = None
) -> Tensor:
    """Scaled logits in at least float32; on CUDA the product itself accumulates and returns float32."""
    if hidden_ND.dtype in (torch.float32, torch.float64):
        logits_NV = times_transposed(hidden_ND, weight_VD, out_NV)
    elif hidden_ND.is_cuda:
        logits_NV = torch.mm(hidden_ND, weight_VD.T, out_dtype=torch.float32)
    else:
        logits_NV = times_transposed(hidden_ND.float(), weight_VD.float(), out_NV)
    if bias_V is not None:
        logits_NV.add_(bias_V)
    return logits_NV if scale == 1.0 else logits_NV.mul_(scale)


def _blocks(hidden_ND: Tensor, weight_VD: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Rows, vocabulary entries and memory for the logits of each block."""
    elements = BLOCK_ELEMENTS_CUDA if hidden_ND.is_cuda else BLOCK_ELEMENTS
    rows = max(1, min(BLOCK_ROWS, len(hidden_ND)))
    columns = max(1, min(elements // rows, len(weight_VD)))
    dtype = torch.promote_types(hidden_ND.dtype, torch.float32)
    memory = torch.empty(rows * columns, dtype=dtype, device=hidden_ND.device)
    for row in range(0, len(hidden_ND), rows):
        n = min(rows, len(hidden_ND) - row)
        for column in range(0, len(weight_VD), columns):
            v = min(columns, len(weight_VD) - column)
            yield slice(row, row + n), slice(column, column + v), memory[: n * v].view(n, v)


class _TokenLogp(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: torch.autograd.function.FunctionCtx,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_N: Tensor,
        scale: float,
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(hidden_ND.dtype, torch.float32)
        target_logit_N = torch.zeros(len(target_N), dtype=dtype, device=hidden_ND.device)
        highest_N = torch.full_like(target_logit_N, LOWEST)
        # Sums over the vocabulary of e and of e * (logit - highest), where e = exp(logit - highest).
        sum_N, weighted_N = torch.zeros_like(highest_N), torch.zeros_like(highest_N)
        # Exponentials of the first blocks, and the maxima that they were taken against.
        kept: list[Tensor] = []
        room = KEPT_ELEMENTS if keep and any(ctx.needs_input_grad[:3]) else 0  # type: ignore[attr-defined]
        for rows, columns, memory in _blocks(hidden_ND, weight_VD):
            bias = None if bias_V is None else bias_V[columns]
            logits = float32_logits(hidden_ND[rows], weight_VD[columns], bias, scale, memory)
            place, inside = _in_block(target_N[rows], columns)
            found = logits.gather(-1, place[:, None])[:, 0]
            target_logit_N[rows] = torch.where(inside, found, target_logit_N[rows])
            highest = torch.maximum(highest_N[rows], logits.amax(-1))
            shift = highest_N[rows] - highest
            carried = shift.exp()
            weighted = (weighted_N[rows] + sum_N[rows] * shift) * carried
            exponential = logits.sub_(highest[:, None]).exp()
            sum_N[rows] = sum_N[rows] * carried + exponential.sum(-1)
            weighted_N[rows] = weighted + logits.mul_(exponential).sum(-1)
            highest_N[rows] = highest
            room -= exponential.numel()
            if room >= 0:
                kept += [exponential, highest]
        logsum_N = highest_N + sum_N.log()
        entropy_N = sum_N.log() - weighted_N / sum_N
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, target_N, logsum_N, *kept)  # type: ignore[arg-type]
        ctx.scale = scale  # type: ignore[attr-defined]
        ctx.mark_non_differentiable(entropy_N)
        return target_logit_N - logsum_N, entropy_N

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: torch.autograd.function.FunctionCtx, grad_logp_N: Tensor, _grad_entropy_N: Tensor
    ) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_VD, bias_V, target_N, logsum_N, *kept = ctx.saved_tensors  # type: ignore[attr-defined]
        scale: float = ctx.scale  # type: ignore[attr-defined]
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]  # type: ignore[attr-defined]
        grad_weight = torch.empty_like(weight_VD) if need_weight else None
        grad_bias = torch.zeros_like(bias_V) if need_bias and bias_V is not None else None
        # Tokens whose loss is flat (masked, clipped, zero advantage) cost nothing. The blocks that were kept hold them
        # too; where that would be more work than to compute the others anew, they are not used.
        active = grad_logp_N.nonzero()[:, 0]
        if len(active) < KEPT_WORK * len(target_N):
            kept = []
        if kept:
            active = torch.arange(len(target_N), device=target_N.device)
        hidden_AD, target_A, logsum_A = hidden_ND[active], target_N[active], logsum_N[active]
        factor_A = grad_logp_N[active] * scale
        # Summed in float32 whatever the dtype: there are many blocks.
        grad_hidden_AD = torch.zeros_like(hidden_AD, dtype=logsum_N.dtype) if need_hidden else None
        if not len(active) and grad_weight is not None:
            grad_weight.zero_()
        for number, (rows, columns, memory) in enumerate(_blocks(hidden_AD, weight_VD)):
            if 2 * number < len(kept):
                exponential, highest = kept[2 * number : 2 * number + 2]
                share = (highest - logsum_A[rows]).exp_().mul_(-factor_A[rows])
                grad = torch.mul(exponential, share[:, None], out=memory)
            else:
                bias = None if bias_V is None else bias_V[columns]
                logits = float32_logits(hidden_AD[rows], weight_VD[columns], bias, scale, memory)
                grad = logits.sub_(logsum_A[rows, None]).exp_().mul_(-factor_A[rows, None])
            place, inside = _in_block(target_A[rows], columns)
            grad.scatter_add_(-1, place[:, None], torch.where(inside, factor_A[rows], 0.0)[:, None])
            if grad_bias is not None:
                grad_bias[columns] += grad.sum(0)
            grad = grad.to(weight_VD.dtype)
            if grad_hidden_AD is not None:
                add_product(grad_hidden_AD[rows], grad, weight_VD[columns])
            if grad_weight is not None:
                # beta 0 overwrites: the first rows to reach a block need no zeros in it.
                grad_weight[columns].addmm_(grad.T, hidden_AD[rows], beta=float(rows.start > 0))
        grad_hidden = None
        if grad_hidden_AD is not None:
            grad_hidden = torch.zeros_like(hidden_ND).index_copy_(
                0, active, grad_hidden_AD.to(hidden_ND.dtype)
            )
        return grad_hidden, grad_weight, grad_bias, None, None, None


def _in_block(target_N: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """Place of each target within the block (any place, where it is not there), and whether it is there."""
    place_N = target_N - columns.start
    inside_N = (place_N >= 0) & (place_N < columns.stop - columns.start)
    return torch.where(inside_N, place_N, 0), inside_N


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
        hidden_ND, weight_VD, bias_V, target_N, 1.0 / temperature, torch.is_grad_enabled()
    )
    return logp_N, entropy_N
