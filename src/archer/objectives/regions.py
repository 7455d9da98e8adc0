"""The gradient that an objective gives to one token, as a function of its ratio (the regions of Fig. 3)."""

from __future__ import annotations

import torch
from torch import Tensor

from archer.configs.objective import ClipCovConfig, KLCovConfig, ObjectiveConfig
from archer.errors import ConfigError
from archer.objectives.dispatch import prepare, token_losses
from archer.types import TokenBatch


def has_regions(config: ObjectiveConfig) -> bool:
    """False for methods that pick tokens by comparing them with the whole batch: clip-cov and kl-cov."""
    return not isinstance(config, ClipCovConfig | KLCovConfig)


def loss_gradient(config: ObjectiveConfig, ratio_R: Tensor, sign: int, *, reasoning: bool) -> Tensor:
    """Derivative of a token's loss by its log-probability, for an advantage of size 1.

    Each ratio stands in a response of its own beside a second token of the same ratio, so that it is the response's
    too. The second token's entropy lies on the other side, so that the objective itself gives the first one its role.
    The policy equals the reference, so that the KL of k2 and k3 pulls nowhere.

    Args:
        config: the objective.
        ratio_R: positive importance ratios, float.
        sign: 1 or -1, the sign of the advantage.
        reasoning: the role.

    Returns:
        float64 ``[R]``.

    Raises:
        ConfigError: a method without regions, see ``has_regions``.
    """
    if not has_regions(config):
        raise ConfigError(
            f"{config.method!r} picks tokens by their covariance over the batch; expected a method whose gradient "
            "follows from a token's ratio and role"
        )
    ratio = ratio_R.double()
    old_BT = torch.full((len(ratio), 2), -2.0, dtype=torch.float64)
    logp_BT = (old_BT + ratio.log()[:, None]).requires_grad_()
    entropy_BT = torch.tensor([1.0 if reasoning else 0.1, 0.5], dtype=torch.float64).expand_as(old_BT)
    batch = TokenBatch(
        logp_BT=logp_BT,
        old_logp_BT=old_BT,
        mask_BT=torch.ones_like(old_BT, dtype=torch.bool),
        advantage_BT=torch.full_like(old_BT, float(sign)),
        old_entropy_BT=entropy_BT,
        entropy_BT=entropy_BT,
        ref_logp_BT=logp_BT.detach(),
        group_B=torch.arange(len(ratio)),
        response_B=torch.arange(len(ratio)),
    )
    terms = token_losses(prepare(batch, config), config)
    total = torch.stack(
        [torch.where(part.mask_BT, part.loss_BT, 0.0).sum() for part in terms.parts.values()]
    ).sum()
    (gradient_BT,) = torch.autograd.grad(total, logp_BT)
    return gradient_BT[:, 0]
