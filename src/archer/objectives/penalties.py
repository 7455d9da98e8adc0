"""KL to the reference as a config asks for it."""

from __future__ import annotations

from torch import Tensor

from archer.configs.objective import ObjectiveBase
from archer.objectives.checks import require
from archer.objectives.ratios import kl_estimate
from archer.types import TokenBatch


def reference_kl(batch: TokenBatch, config: ObjectiveBase, *weights: float) -> Tensor | None:
    """Per-token KL estimate in nats, ``[B, T]``; None without a reference where no weight needs one.

    Raises:
        TensorError: when a weight is above 0 and ``ref_logp_BT`` is missing.
    """
    if batch.ref_logp_BT is None and max(weights) == 0:
        return None
    reference = require(
        batch.ref_logp_BT, "ref_logp_BT", f"the KL weights of {config.method!r} are {weights}"
    )
    return kl_estimate(batch.logp_BT, reference, config.kl_estimator, config.kl_max)
