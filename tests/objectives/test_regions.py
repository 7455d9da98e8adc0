"""Fig. 3: which ratios still move, by role and sign."""

import pytest
import torch

from archer.configs.objective import ArcherConfig, ArcherReleasedConfig, GrpoConfig
from archer.objectives.regions import loss_gradient

RATIO = torch.tensor([0.3, 0.6, 0.9, 1.1, 1.3, 1.6, 3.5])


@pytest.mark.parametrize(
    ("config", "sign", "reasoning", "alive"),
    [
        (ArcherConfig(), 1, True, [1, 1, 1, 1, 1, 0, 0]),
        (ArcherConfig(), 1, False, [1, 1, 1, 1, 0, 0, 0]),
        (ArcherConfig(), -1, True, [0, 1, 1, 1, 1, 1, 1]),
        (ArcherConfig(), -1, False, [0, 0, 1, 1, 1, 1, 1]),
        (ArcherConfig(dual_clip=3.0), -1, False, [0, 0, 1, 1, 1, 1, 0]),
        (ArcherReleasedConfig(), 1, True, [1, 1, 1, 1, 1, 0, 0]),
        (ArcherReleasedConfig(), 1, False, [1, 1, 1, 1, 0, 0, 0]),
        (GrpoConfig(), 1, True, [1, 1, 1, 1, 0, 0, 0]),
    ],
)
def test_regions(config, sign, reasoning, alive):
    gradient = loss_gradient(config, RATIO, sign, reasoning=reasoning)
    expected = torch.where(torch.tensor(alive, dtype=torch.bool), -sign * RATIO.double(), 0.0)
    torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=0)
