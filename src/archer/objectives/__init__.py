"""Pure tensor functions: roles, advantages, ratios, KL, surrogates, aggregation. Imports torch only.

A step computes ``needs(config)``, calls ``prepare`` once on all of its rows, then for every micro-batch
``aggregate(token_losses(rows, config), count(step, config), config).backward()``.
"""

from archer.objectives.advantages import group_advantages
from archer.objectives.aggregation import Counts, aggregate
from archer.objectives.correction import engine_gap, truncated_importance
from archer.objectives.dispatch import Needs, count, needs, prepare, token_losses
from archer.objectives.ratios import importance_ratio, kl_estimate
from archer.objectives.roles import entropy_rank, reasoning_roles
from archer.objectives.sampling import mixed_groups, overlong_filter, overlong_penalty
from archer.objectives.shaping import shape_rewards

__all__ = [
    "Counts",
    "Needs",
    "aggregate",
    "count",
    "engine_gap",
    "entropy_rank",
    "group_advantages",
    "importance_ratio",
    "kl_estimate",
    "mixed_groups",
    "needs",
    "overlong_filter",
    "overlong_penalty",
    "prepare",
    "reasoning_roles",
    "shape_rewards",
    "token_losses",
    "truncated_importance",
]
