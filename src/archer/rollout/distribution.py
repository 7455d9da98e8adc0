"""Drawing one token a row from logits, with its log-probability and entropy."""

import torch
from torch import Tensor

from archer.configs.rollout import SamplingConfig


def draw(logits_BV: Tensor, uniform_B: Tensor, config: SamplingConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Draw by inverting the cumulative distribution, so that one uniform number a token decides.

    Args:
        logits_BV: float, already divided by the temperature (by 1 for greedy).
        uniform_B: float64 in [0, 1); ignored for greedy.
        config: temperature 0 is greedy; top-k and top-p narrow the distribution that is drawn from.

    Returns:
        ``(token_B, logp_B, entropy_B)``; the last two in nats, over the **whole** vocabulary, as training needs.
    """
    logsum_B = logits_BV.logsumexp(-1)
    probability_BV = (logits_BV - logsum_B[:, None]).exp_()
    entropy_B = logsum_B - torch.linalg.vecdot(probability_BV, logits_BV)
    if config.temperature == 0:
        token_B = logits_BV.argmax(-1)
    else:
        kept_BV = _narrow(probability_BV, config)
        cumulative_BV = kept_BV.cumsum(-1, dtype=torch.float64)
        threshold_B1 = uniform_B[:, None] * cumulative_BV[:, -1:]
        token_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True)[:, 0]
        # Rounding can put a threshold on the total itself; the last possible token is then meant.
        last_B = kept_BV.shape[-1] - 1 - (kept_BV.flip(-1) > 0).int().argmax(-1)
        token_B = torch.minimum(token_B, last_B)
    logp_B = logits_BV.gather(-1, token_B[:, None])[:, 0] - logsum_B
    return token_B, logp_B, entropy_B


def _narrow(probability_BV: Tensor, config: SamplingConfig) -> Tensor:
    """Set the probability of tokens outside top-k and the top-p nucleus to 0; the rest is not renormalised."""
    if config.top_k and config.top_k < probability_BV.shape[-1]:
        smallest_B1 = probability_BV.topk(config.top_k, dim=-1).values[:, -1:]
        probability_BV = probability_BV.masked_fill(probability_BV < smallest_B1, 0.0)
    if config.top_p < 1.0:
        sorted_BV, order_BV = probability_BV.sort(dim=-1, descending=True, stable=True)
        # A token stays while the mass before it is below top-p of what top-k has left.
        before_BV = sorted_BV.cumsum(-1) - sorted_BV
        drop_BV = before_BV >= config.top_p * sorted_BV.sum(-1, keepdim=True)
        probability_BV = probability_BV.masked_fill(drop_BV.scatter(-1, order_BV, drop_BV), 0.0)
    return probability_BV
