"""One fixed batch of the demo model, as plain lists, that every engine is held to.

Needs torch and transformers only, so that an environment of another engine can load it by path. The batch holds
ragged lengths, a response without an end (truncated), a row without a score (masked), and a group whose rewards
are all equal. The order of events is the same everywhere:

1. the model as loaded is the reference;
2. ``perturb(model, OLD)``: this model sampled ``RESPONSES``; its log-probabilities and entropies are the old ones;
3. ``perturb(model, CURRENT)``: the loss and its gradient are those of this model.
"""

import math

MODEL = "package:archer/assets/demo-model"
GROUP_SIZE = 4
MAX_RESPONSE_TOKENS = 17
END = 0
"""Id of the end token, which pads as well."""
TEMPERATURE = 0.8
OLD, CURRENT = 0.02, 0.015
"""Sizes of the two changes of the weights."""
TOLERANCE = 1e-5

_LENGTHS = ((5, 9, 13, 17), (3, 16, 8, 11), (12, 4, 7, 10))

PROMPTS: list[list[int]] = [[7, 21, 35, 49], [60, 3, 88], [14, 15, 92, 65, 35, 89]]
"""One list of ids a group."""

RESPONSES: list[list[list[int]]] = [
    [
        [(37 * group + 11 * row + 3 * t * t + 5 * t) % 100 + 1 for t in range(length - 1)]
        + [77 if (group, row) == (0, 3) else END]
        for row, length in enumerate(lengths)
    ]
    for group, lengths in enumerate(_LENGTHS)
]
"""``RESPONSES[group][row]``; row 3 of group 0 has no end token."""

REWARDS: list[list[float | None]] = [[1.0, 0.0, 0.0, 1.0], [1.0, 0.25, None, 0.0], [1.0, 1.0, 1.0, 1.0]]
"""None: no score, so the row is masked and takes no part in its group. Group 2 has no variance."""

MASK_TRUNCATED = (False, True)
"""Both settings are checked; with True the row without an end is masked too."""

OBJECTIVES = {
    "archer": {"method": "archer", "beta_k": 0.05, "beta_r": 0.01, "dual_clip": 3.0},
    "archer-group": {"method": "archer", "scope": "group", "beta_k": 0.05},
    "archer-batch": {"method": "archer", "scope": "batch", "beta_k": 0.05},
    "archer-current": {"method": "archer", "entropy_from": "current", "beta_k": 0.05},
    "archer-released": {"method": "archer-released", "beta_k": 0.05},
    "archer-soft": {"method": "archer-soft", "beta_k": 0.05},
    "grpo": {"method": "grpo"},
    "dr-grpo": {"method": "dr-grpo", "constant_length": MAX_RESPONSE_TOKENS},
    "gspo": {"method": "gspo"},
}


def perturb(model, size: float) -> None:
    """Change every parameter by ``size`` times its own mean magnitude times a sine of the place; deterministic."""
    import torch

    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            wave = torch.arange(parameter.numel(), dtype=torch.float64).mul_(math.sqrt(2) * 100 * size).sin_()
            change = size * parameter.double().abs().mean() * wave.view(parameter.shape)
            parameter.add_(change.to(parameter.dtype))
