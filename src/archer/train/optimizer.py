"""AdamW with float32 master weights, its learning-rate schedule and gradient clipping."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from archer.configs.train import OptimizerConfig


class Optimizer:
    """AdamW over all given parameters, in float32 whatever the precision of the model.

    A step at the learning rates used here changes a weight by less than half the distance between two neighbouring
    bfloat16 numbers, so the model's own weights would never move. Parameters below float32 therefore have a float32
    master: gradients of all micro-batches are summed on it, AdamW updates it, and the parameter is its rounded copy.
    Parameters in float32 or float64 are their own masters.

    Args:
        parameters: of the model, in a stable order.
        config: AdamW's settings and the largest gradient norm.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], config: OptimizerConfig) -> None:
        self.parameters = list(parameters)
        self.max_grad_norm = config.max_grad_norm
        self.masters = [p if p.dtype.itemsize >= 4 else nn.Parameter(p.detach().float()) for p in parameters]
        for parameter, master in self._copies():
            hook = partial(_move_gradient, master)
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        self.adamw = torch.optim.AdamW(
            self.masters,
            lr=config.learning_rate,
            betas=config.betas,
            eps=config.epsilon,
            weight_decay=config.weight_decay,
        )

    def step(self, rate: float) -> tuple[float, bool]:
        """Clip the gradient to the norm, update at the learning rate ``rate``, and clear the gradient.

        Returns:
            The gradient norm before clipping, and whether the update was made; a norm that is not finite skips it.
        """
        norm = float(nn.utils.clip_grad_norm_(self.masters, self.max_grad_norm))
        taken = math.isfinite(norm)
        if taken:
            for group in self.adamw.param_groups:
                group["lr"] = rate
            self.adamw.step()
            self._round()
        self.adamw.zero_grad(set_to_none=True)
        return norm, taken

    def state_dict(self) -> dict[str, Any]:
        """AdamW's state and the masters of parameters below float32."""
        masters = [master.detach() for _, master in self._copies()]
        return self.adamw.state_dict() | ({"masters": masters} if masters else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` gave; parameters become the rounded masters."""
        masters = state.get("masters", [])
        with torch.no_grad():
            for (_, master), saved in zip(self._copies(), masters, strict=True):
                master.copy_(saved)
        self.adamw.load_state_dict({key: value for key, value in state.items() if key != "masters"})
        self._round()

    def _copies(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """Parameters that have a master of their own, with it."""
        return [(p, m) for p, m in zip(self.parameters, self.masters, strict=True) if p is not m]

    @torch.no_grad()
    def _round(self) -> None:
        for parameter, master in self._copies():
            parameter.copy_(master)


def _move_gradient(master: nn.Parameter, parameter: torch.Tensor) -> None:
    """Add a parameter's fresh gradient to its master's and drop it."""
    assert parameter.grad is not None
    if master.grad is None:
        master.grad = parameter.grad.float()
    else:
        master.grad += parameter.grad
    parameter.grad = None


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
