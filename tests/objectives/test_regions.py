"""Fig. 3: which ratios still move, by role and sign."""

import pytest
import torch

from archer.configs.objective import (
    ArcherConfig,
    ArcherReleasedConfig,
    CispoConfig,
    ClipCovConfig,
    EspoConfig,
    GrpoConfig,
    GspoConfig,
    KLCovConfig,
)
from archer.errors import ConfigError
from archer.objectives.regions import has_regions, loss_gradient

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


@pytest.mark.parametrize(
    ("config", "share"), [(GspoConfig(eps_low=0.3, eps_high=0.4), 1.0), (EspoConfig(vocabulary_size=50), 0.5)]
)
def test_a_ratio_over_many_tokens_is_clipped_at_its_own_range(config, share):
    ratio = torch.tensor([0.5, 0.69, 0.71, 0.99, 1.0, 1.39, 1.41, 2.0])
    alive = (ratio <= 1.4) if config.method == "gspo" else (ratio <= 1.0)
    gradient = loss_gradient(config, ratio, 1, reasoning=True)
    torch.testing.assert_close(gradient, torch.where(alive, -share * ratio.double(), 0.0), atol=1e-6, rtol=0)


def test_cispo_bounds_the_pull_and_never_ends_it():
    gradient = loss_gradient(CispoConfig(eps_low=None, eps_high=0.2), RATIO, -1, reasoning=True)
    torch.testing.assert_close(gradient, RATIO.double().clamp(max=1.2), atol=1e-6, rtol=0)


@pytest.mark.parametrize("config", [ClipCovConfig(), KLCovConfig()], ids=lambda c: c.method)
def test_methods_that_pick_tokens_over_the_batch_have_no_regions(config):
    assert not has_regions(config)
    with pytest.raises(ConfigError, match="covariance over the batch"):
        loss_gradient(config, RATIO, 1, reasoning=True)
