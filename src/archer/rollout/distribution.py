"""Drawing one token a row from logits, with its log-probability and entropy."""

import torch
import torch.nn.functional as F
from torch import Tensor

from archer.configs.rollout import SamplingConfig

BLOCK = 128
"""Vocabulary entries that are summed before the search for a token; divides the usual vocabularies."""

CHUNK_ELEMENTS = 2**20
"""Logits worked on at once on a CPU, so that one sweep after the other finds them in the cache."""


def draw(logits_BV: Tensor, uniform_B: Tensor, config: SamplingConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Draw by inverting the cumulative distribution, so that one uniform number a token decides.

    Args:
        logits_BV: float, already divided by the temperature (by 1 for greedy).
        uniform_B: float64 in [0, 1); ignored for greedy.
        config: temperature 0 is greedy; top-k and top-p narrow the distribution that is drawn from.

    Returns:
        ``(token_B, logp_B, entropy_B)``; the last two in nats, over the **whole** vocabulary, as training needs.
    """
    rows = len(logits_BV) if logits_BV.is_cuda else max(1, CHUNK_ELEMENTS // logits_BV.shape[-1])
    parts = [
        _draw(logits, uniform, config)
        for logits, uniform in zip(torch.split(logits_BV, rows), torch.split(uniform_B, rows), strict=True)
    ]
    token_B, logp_B, entropy_B = (torch.cat(column) for column in zip(*parts, strict=True))
    return token_B, logp_B, entropy_B


def _draw(logits_BV: Tensor, uniform_B: Tensor, config: SamplingConfig) -> tuple[Tensor, Tensor, Tensor]:
    shifted_BV = logits_BV - logits_BV.amax(-1, keepdim=True)
    mass_BV = shifted_BV.exp()
    total_B = mass_BV.sum(-1)
    log_total_B = total_B.log()
    entropy_B = log_total_B - (mass_BV * shifted_BV).sum(-1) / total_B
    if config.temperature == 0:
        token_B = logits_BV.argmax(-1)
    else:
        token_B = _invert(_narrow(mass_BV, config), uniform_B)
    logp_B = shifted_BV.gather(-1, token_B[:, None])[:, 0] - log_total_B
    return token_B, logp_B, entropy_B


def _invert(mass_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Token whose share of the cumulated mass holds ``uniform_B``: first its block, then its place in the block.

    Sums of blocks are cumulated in float64, and so are the entries of the one block that matters: the whole
    vocabulary in float64 would cost more than all other work on it.
    """
    blocks_BKW = torch.unflatten(F.pad(mass_BV, (0, -mass_BV.shape[-1] % BLOCK)), -1, (-1, BLOCK))
    block_B, fraction_B = _search(blocks_BKW.sum(-1), uniform_B)
    entries_BW = blocks_BKW[torch.arange(len(mass_BV), device=mass_BV.device), block_B]
    place_B, _ = _search(entries_BW, fraction_B)
    return block_B * BLOCK + place_B


def _search(mass_BK: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Index whose share of the cumulated mass holds ``uniform_B``, and where within that share, in [0, 1]."""
    cumulative_BK = mass_BK.cumsum(-1, dtype=torch.float64)
    threshold_B1 = uniform_B[:, None] * cumulative_BK[:, -1:]
    index_B1 = torch.searchsorted(cumulative_BK, threshold_B1, right=True)
    # Rounding can put a threshold on the total itself; the last possible index is then meant.
    last_B1 = mass_BK.shape[-1] - 1 - (mass_BK.flip(-1) > 0).int().argmax(-1, keepdim=True)
    index_B1 = torch.minimum(index_B1, last_B1)
    share_B1 = mass_BK.gather(-1, index_B1).double()
    below_B1 = cumulative_BK.gather(-1, index_B1) - share_B1
    fraction_B1 = ((threshold_B1 - below_B1) / share_B1).clamp(0.0, 1.0)
    return index_B1[:, 0], fraction_B1[:, 0]


def _narrow(mass_BV: Tensor, config: SamplingConfig) -> Tensor:
    """Set the mass of tokens outside top-k and the top-p nucleus to 0; the rest is not renormalised."""
    if config.top_k and config.top_k < mass_BV.shape[-1]:
        smallest_B1 = mass_BV.topk(config.top_k, dim=-1).values[:, -1:]
        mass_BV = mass_BV.masked_fill(mass_BV < smallest_B1, 0.0)
    if config.top_p < 1.0:
        sorted_BV, order_BV = mass_BV.sort(dim=-1, descending=True, stable=True)
        # A token stays while the mass before it is below top-p of what top-k has left.
        before_BV = sorted_BV.cumsum(-1) - sorted_BV
        drop_BV = before_BV >= config.top_p * sorted_BV.sum(-1, keepdim=True)
        mass_BV = mass_BV.masked_fill(drop_BV.scatter(-1, order_BV, drop_BV), 0.0)
    return mass_BV
