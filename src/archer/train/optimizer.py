"""AdamW, its learning-rate schedule and gradient clipping."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from archer.configs.train import OptimizerConfig


def build_optimizer(parameters: Sequence[nn.Parameter], config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over all given parameters."""
    return torch.optim.AdamW(
        parameters,
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
    )


def learning_rate(config: OptimizerConfig, update: int, total: int) -> float:
    """Rate of the update number ``update`` (from 0) of about ``total``: linear warm-up, then the schedule."""
    if update < config.warmup_updates:
        return config.learning_rate * (update + 1) / config.warmup_updates
    done = min(1.0, (update - config.warmup_updates) / max(1, total - config.warmup_updates))
    match config.schedule:
        case "constant":
            factor = 1.0
        case "linear":
            factor = 1.0 - done
        case "cosine":
            factor = 0.5 * (1.0 + math.cos(math.pi * done))
    return config.learning_rate * factor


def apply_update(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], rate: float, max_grad_norm: float
) -> tuple[float, bool]:
    """Clip the gradient to the norm, step, and clear it.

    Returns:
        The gradient norm before clipping, and whether the step was taken; a norm that is not finite skips it.
    """
    norm = float(nn.utils.clip_grad_norm_(parameters, max_grad_norm))
    taken = math.isfinite(norm)
    if taken:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm, taken
