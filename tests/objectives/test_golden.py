"""Archer, GRPO and DAPO on fixture F: hand-computed losses and gradients, to 6 decimals."""

import pytest
import torch

from archer.configs.objective import ArcherConfig, ArcherReleasedConfig, DapoConfig, GrpoConfig
from archer.objectives import Counts, aggregate, count, token_losses


def five(grid):
    """The five trained tokens of F."""
    return grid[torch.tensor([[True, True, True], [True, True, False]])].tolist()


def near(value):
    return pytest.approx(value, abs=1.01e-6)


NO_KL = {"beta": 0.0}
GOLDEN = {
    "1": (GrpoConfig(**NO_KL), 0.650000, [-1.1, 0, -0.25, 0, 3.5]),
    "1b": (GrpoConfig(beta=0.04), 0.659350, [-1.092727, 0.00875, -0.33, -0.01, 3.522857]),
    "1c": (GrpoConfig(**NO_KL, dual_clip=3), 0.525000, [-1.1, 0, -0.25, 0, 0]),
    "2": (DapoConfig(dual_clip=None), 0.334000, [-1.1, 0, -0.25, 0, 3.5]),
    "2, c=10": (DapoConfig(), 0.334000, [-1.1, 0, -0.25, 0, 3.5]),
    "2b": (DapoConfig(dual_clip=3), 0.234000, [-1.1, 0, -0.25, 0, 0]),
    "12": (ArcherConfig(), 0.290189, [-1.099818, 0, -0.252, -0.00025, 3.5]),
    "12, c=10": (ArcherConfig(dual_clip=10), 0.290189, [-1.099818, 0, -0.252, -0.00025, 3.5]),
    "12, c=3": (ArcherConfig(dual_clip=3), 0.190189, [-1.099818, 0, -0.252, -0.00025, 0]),
    "12, current": (
        ArcherConfig(entropy_from="current"),
        0.290189,
        [-1.099818, 0, -0.252, -0.00025, 3.5],
    ),
    "12d, paper": (ArcherConfig(dual_clip=3, beta_k=0.1), 0.208942, None),
    "12e": (ArcherConfig(beta_k=0), 0.290000, [-1.1, 0, -0.25, 0, 3.5]),
    "12e, batch": (ArcherConfig(beta_k=0, scope="batch"), 0.350000, [-1.1, 0, -0.25, 0, 3.5]),
    "12e, group": (ArcherConfig(beta_k=0, scope="group"), 0.350000, [-1.1, 0, -0.25, 0, 3.5]),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_loss_and_token_gradients_are_the_hand_computed_ones(case, batch_f, evaluate):
    config, loss, gradient = GOLDEN[case]
    outcome = evaluate(batch_f, config)
    assert outcome.loss == near(loss)
    if gradient is not None:
        assert five(outcome.token_grad) == near(gradient)
    assert outcome.token_grad[1, 2] == 0
    assert outcome.grad[1, 2] == 0


RELEASED = {
    "12b": ({"dual_clip": 10}, 0.290316, [-1.099697, 0, -0.253333, -0.000417, 3.5]),
    "12b, c=3": ({"dual_clip": 3}, 0.190316, [-1.099697, 0, -0.253333, -0.000417, 0]),
    "12d, code": ({"dual_clip": 3, "beta_k": 0.1}, 0.221570, None),
}


@pytest.mark.parametrize("case", RELEASED)
@pytest.mark.parametrize("entropy_from", ["current", "old"])
def test_released_code_divides_each_roles_kl_by_its_own_tokens(case, entropy_from, batch_f, evaluate):
    settings, loss, gradient = RELEASED[case]
    config = ArcherReleasedConfig(aggregation="token-mean", entropy_from=entropy_from, **settings)
    outcome = evaluate(batch_f, config)
    assert outcome.loss == near(loss)
    if gradient is not None:
        assert five(5 * outcome.grad) == near(gradient)


def test_released_code_with_one_response_a_micro_batch(batch_f, evaluate, take):
    """Case 12c: the authors' split of the step, and the aggregation that says the same for any split."""
    assert evaluate(batch_f, ArcherReleasedConfig()).loss == near(0.600243)

    config = ArcherReleasedConfig(aggregation="token-mean")
    counts = count(batch_f, config)
    losses = [aggregate(token_losses(take(batch_f, [i]), config), counts, config).item() for i in range(2)]
    assert sum(losses) == near(0.600243)


def test_no_counts_for_a_part_is_an_error(batch_f):
    config = ArcherReleasedConfig()
    terms = token_losses(batch_f, config)
    counts = Counts({"policy": torch.tensor(5)}, torch.tensor(2))
    with pytest.raises(ValueError, match=r"expected counts for part 'kl_reasoning', got \['policy'\]"):
        aggregate(terms, counts, config)


def test_metrics_of_archer_on_f(batch_f, evaluate):
    """Ratios 1.1, 1.6, .25 | .7, 3.5; reasoning t2 and t5; ranges .5 and .2."""
    metrics = {
        name: (s.item(), n.item()) for name, (s, n) in evaluate(batch_f, ArcherConfig()).terms.metrics.items()
    }
    assert metrics["role/reasoning_share"] == (2, 5)
    assert metrics["clip/above_reasoning"] == (2, 2)
    assert metrics["clip/below_reasoning"] == (0, 2)
    assert metrics["clip/above_knowledge"] == (0, 3)
    assert metrics["clip/below_knowledge"] == (2, 3)
    assert metrics["entropy/mean"] == near((3.65, 5))
    assert metrics["entropy/reasoning"] == near((2.70, 2))
    assert metrics["entropy/knowledge"] == near((0.95, 3))
    assert metrics["kl/mean"] == near((1.251076, 5))
    assert metrics["kl/reasoning"] == near((0.303979, 2))
    assert metrics["kl/knowledge"] == near((0.947097, 3))
    assert metrics["ratio/mean"] == near((7.15, 5))
    assert metrics["ratio/value_max"] == near((3.5, 5))
    assert metrics["ratio/value_min"] == near((0.25, 5))
