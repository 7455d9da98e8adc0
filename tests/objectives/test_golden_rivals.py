"""The other methods on fixture F: losses and gradients to 6 decimals."""

import math
from dataclasses import replace

import pytest
import torch

from archer.configs.objective import (
    AdvantageConfig,
    ArcherKConfig,
    ArcherSoftConfig,
    ArLoptiConfig,
    AspoConfig,
    AspoReleasedConfig,
    CeGppoConfig,
    CispoConfig,
    ClipCovConfig,
    DrGrpoConfig,
    EightyTwentyConfig,
    EntropyAdvantageConfig,
    EspoConfig,
    GppoConfig,
    GrpoConfig,
    GspoConfig,
    HapoConfig,
    HapoReleasedConfig,
    KLCovConfig,
    PearConfig,
    SteerConfig,
)
from archer.objectives import Counts, aggregate, group_advantages, shape_rewards, token_losses
from archer.objectives.methods.covariance import covariance
from archer.objectives.methods.entropy_scaled import entropy_scores

NO_KL = {"beta": 0.0}


def five(grid):
    """The five trained tokens of F."""
    return grid[torch.tensor([[True, True, True], [True, True, False]])].tolist()


def near(value):
    return pytest.approx(value, abs=1.01e-6)


def lopti(**kwargs):
    return ArLoptiConfig(**{"alpha": 0, "eps_high": 0.28, "dual_clip": None, **NO_KL, **kwargs})


AR = {"alpha": 0.3, "eta": None}
WINDOW = {"window": (0.3, 5.0), "share": 0.4}
SHORT = {"thresholds": (0.8,), "eps": (0.2, 0.5), "beta": (0.001, 0)}
ARCHER_GRADIENT = [-1.099818, 0, -0.252, -0.00025, 3.5]

GOLDEN = {
    "5": (CispoConfig(), 0.221643, [-1.1, -1.2, -0.25, 0.7, 1.2]),
    "5, lower bound": (CispoConfig(eps_low=0.2), None, [-1.1, -1.2, -0.8, 0.8, 1.2]),
    "6": (GppoConfig(), 0.350000, [-1.1, -1.2, -0.25, 0.8, 3.5]),
    "6, c=10": (GppoConfig(dual_clip=10), 0.350000, [-1.1, -1.2, -0.25, 0.8, 3.5]),
    "6b .75": (CeGppoConfig(), 0.310000, [-1.1, -1.2, -0.25, 0.6, 3.5]),
    "6b .5": (CeGppoConfig(beta_1=0.5), 0.270000, [-1.1, -1.2, -0.25, 0.4, 3.5]),
    "6b c=3": (CeGppoConfig(dual_clip=3), 0.210000, [-1.1, -1.2, -0.25, 0.6, 0]),
    "7": (EightyTwentyConfig(), 3.500000, [0, 0, 0, 0, 3.5]),
    "7, old": (EightyTwentyConfig(entropy_from="old"), 3.500000, [0, 0, 0, 0, 3.5]),
    "7b": (EightyTwentyConfig(rho=0.6), 1.110000, [0, 0, 0, 0, 3.5]),
    "7b, old": (EightyTwentyConfig(rho=0.6, entropy_from="old"), 1.110000, [0, 0, 0, 0, 3.5]),
    "7b, all": (EightyTwentyConfig(rho=0.6, denominator="all"), 0.444000, [0, 0, 0, 0, 3.5]),
    "8": (lopti(**AR), 0.234640, [-0.935, 0, -0.235, 0, 2.66]),
    "8b": (lopti(**AR, probability_from="current"), 0.330364, [-0.9515, 0, -0.19, 0, 3.185]),
    "10": (KLCovConfig(share=0.2), 0.321335, [-1.1, -1.6, -0.25, -0.3, 3.5]),
    "11": (EntropyAdvantageConfig(), -0.204680, [-1.232, 0, -0.255, 0, 1.75]),
    "13": (AspoConfig(**NO_KL), 0.563173, [-0.909091, 0, -3, 0, 3]),
    "13, KL": (AspoConfig(), 0.563423, None),
    "13b": (AspoReleasedConfig(**NO_KL), 0.586982, [-0.909091, 0, -3, 0, 3]),
    "15 .7": (SteerConfig(), 0.127479, [-1.052857, 0, -0.227875, 0, 2.45]),
    "15 .8": (SteerConfig(lambda_min=0.8), 0.196104, None),
    "16": (EspoConfig(vocabulary_size=100), 0.741945, None),
    "17, loss": (PearConfig(), 0.650000, [-1.1, 0, -0.25, 0, 3.5]),
    "archer-soft, sharp": (ArcherSoftConfig(softness=0), 0.290189, ARCHER_GRADIENT),
    "archer-k, K=2": (ArcherKConfig(**SHORT), 0.290189, ARCHER_GRADIENT),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_loss_and_token_gradients_are_the_hand_computed_ones(case, batch_f, evaluate):
    config, loss, gradient = GOLDEN[case]
    outcome = evaluate(batch_f, config)
    if loss is not None:
        assert outcome.loss == near(loss)
    if gradient is not None:
        assert five(outcome.token_grad) == near(gradient)
    assert outcome.grad[1, 2] == 0


@pytest.mark.parametrize(("length", "loss"), [(1, 0.437500), (4, 0.109375)])
def test_dr_grpo_takes_advantages_without_a_std(length, loss, batch_f, evaluate):
    """Case 3: rewards 1 and 0, so advantages of half; the paper's form, and oat's with L = 4."""
    config = DrGrpoConfig(constant_length=length)
    advantage = group_advantages(torch.tensor([1.0, 0.0]), batch_f.group_B, config.advantage)
    assert advantage.tolist() == [0.5, -0.5]
    batch = replace(batch_f, advantage_BT=advantage[:, None].expand(2, 3))
    outcome = evaluate(batch, config)
    assert outcome.loss == near(loss)
    assert five(outcome.token_grad) == near([-0.55, 0, -0.125, 0, 1.75])


def test_dr_grpo_in_the_form_of_verl(batch_f):
    """Case 3b: divided by L = 3 and by no number of responses."""
    config = DrGrpoConfig(constant_length=3)
    batch = replace(batch_f, advantage_BT=batch_f.advantage_BT / 2)
    counts = Counts({"policy": torch.tensor(5)}, responses=torch.tensor(1))
    assert aggregate(token_losses(batch, config), counts, config).item() == near(0.291667)


def test_gspo_has_one_ratio_a_response(batch_f, evaluate):
    """Case 4: s = .760590 and 1.565248; the gradient of the mean is constant within a response."""
    outcome = evaluate(batch_f, GspoConfig())
    ratio = five(outcome.terms.parts["policy"].loss_BT)
    assert ratio == near([-0.760590] * 3 + [1.565248] * 2)
    assert outcome.loss == near(0.402329)
    assert five(outcome.grad) == near([-0.126765] * 3 + [0.391312] * 2)


def test_gspo_with_both_responses_clipped(batch_f, evaluate):
    """Case 4b."""
    outcome = evaluate(replace(batch_f, advantage_BT=-batch_f.advantage_BT), GspoConfig())
    assert outcome.loss == near(-0.000350)
    assert outcome.grad.count_nonzero() == 0


@pytest.mark.parametrize("distance", [9.0, 15.0, 100.0])
def test_the_ratio_of_a_sequence_is_at_most_e_to_the_10(distance, batch_f, evaluate):
    far = replace(batch_f, old_logp_BT=batch_f.logp_BT - distance, advantage_BT=-torch.ones(2, 3).double())
    outcome = evaluate(far, GspoConfig())
    assert outcome.loss == pytest.approx(math.exp(min(distance, 10)))
    assert (outcome.grad != 0).any().item() == (distance < 10)


LOPTI = {
    "8c": (lopti(), 0.604000, -0.270000),
    "8d": (lopti(tie="low"), 0.384000, -0.050000),
    "8e": (lopti(alpha=0.3), 0.468640, -0.234000),
}


@pytest.mark.parametrize("case", LOPTI)
def test_lopti_trains_rare_tokens_first(case, batch_f, evaluate):
    config, first, second = LOPTI[case]
    passes = [evaluate(batch_f, config, pass_index=i) for i in range(2)]
    assert [outcome.loss for outcome in passes] == near([first, second])
    trained_twice = (passes[0].token_grad != 0) & (passes[1].token_grad != 0)
    assert not trained_twice.any()
    with pytest.raises(ValueError, match="expected 0 <= pass_index < 2 for 'ar-lopti', got 2"):
        token_losses(batch_f, config, pass_index=2)


def test_covariances_of_f(batch_f):
    clean = replace(
        batch_f,
        logp_BT=batch_f.logp_BT.nan_to_num(),
        advantage_BT=batch_f.advantage_BT.nan_to_num(),
    )
    assert five(covariance(clean)) == near([0.317946, -0.115331, -0.491334, 0.333235, -0.766314])


def test_clip_cov_drops_all_candidates_where_there_are_few(batch_f, evaluate):
    """Case 9: t1 and t4 lie in the window, and two tokens are dropped."""
    outcome = evaluate(batch_f, ClipCovConfig(**WINDOW))
    assert outcome.loss == near(0.330000)
    assert five(outcome.token_grad) == near([0, -1.6, -0.25, 0, 3.5])


def test_clip_cov_does_not_draw_tokens_that_ppo_stops_already(batch_f, evaluate):
    """With range .2, t4 at r = .7 is clipped, so only t1 is left to drop."""
    outcome = evaluate(batch_f, ClipCovConfig(**WINDOW, eps_low=0.2, eps_high=0.2))
    assert five(outcome.token_grad) == near([0, 0, -0.25, 0, 3.5])
    assert outcome.loss == near((0 - 1.2 - 0.25 + 0.8 + 3.5) / 5)

    # with range .05 above, t1 at r = 1.1 is clipped, so only t4 is left
    outcome = evaluate(batch_f, ClipCovConfig(**WINDOW, eps_high=0.05))
    assert outcome.loss == near((-1.05 - 1.05 - 0.25 + 0 + 3.5) / 5)


def test_clip_cov_draws_uniformly_and_repeats_with_the_seed(batch_f):
    """One of the two candidates t1 and t4 goes, each about half the time."""
    config = ClipCovConfig(window=(0.3, 5.0), share=0.2)

    def kept(seed):
        generator = torch.Generator().manual_seed(seed)
        return [
            x != 0 for x in five(token_losses(batch_f, config, generator=generator).parts["policy"].loss_BT)
        ]

    draws = [kept(seed) for seed in range(200)]
    assert draws[:5] == [kept(seed) for seed in range(5)]
    assert all(sum(draw) == 4 for draw in draws)
    assert 70 < sum(not draw[0] for draw in draws) < 130
    assert all(not draw[0] or not draw[3] for draw in draws)


def test_clip_cov_refuses_to_draw_from_global_randomness(batch_f):
    with pytest.raises(ValueError, match=r"expected a torch.Generator, got None"):
        token_losses(batch_f, ClipCovConfig())


def test_steer_does_not_scale_up_small_changes(batch_f, evaluate):
    """With advantages a thousandth of F's the largest change is below .02, so .02 sets the scale."""
    batch = replace(batch_f, advantage_BT=batch_f.advantage_BT / 1000)
    # t5: r = 3.5, pi = .7, H = 1.5
    change = 3.5 * 0.3 * (math.log(0.7) + 1.5) / 1000
    grad = five(evaluate(batch, SteerConfig()).token_grad)
    assert grad[4] == pytest.approx(math.exp(math.log(0.7) / 0.02 * change) * 3.5 / 1000)


HAPO = {
    "14": (HapoConfig(), 1.517504, [-0.496136, 0, -0.2, 0, 8.4]),
    "14b": (HapoReleasedConfig(eps_high=0.28), 1.453076, [-0.88, 0, -0.4, 0, 8.4]),
}


@pytest.mark.parametrize("case", HAPO)
def test_hapo_on_its_own_advantages(case, batch_f, evaluate):
    config, loss, gradient = HAPO[case]
    batch = replace(batch_f, advantage_BT=torch.tensor([[0.8], [-1.2]]).double().expand(2, 3))
    outcome = evaluate(batch, config)
    assert outcome.loss == near(loss)
    assert five(outcome.token_grad) == near(gradient)


def test_hapo_as_released_on_token_level_advantages(batch_f, evaluate):
    """Cases 14c and 14b: tokens weigh the mean and std of rewards 1 and 0."""
    config = HapoReleasedConfig(eps_high=0.28)
    advantage = group_advantages(
        torch.tensor([1.0, 0.0]), batch_f.group_B, config.advantage, length_B=torch.tensor([3, 2])
    )
    assert advantage.tolist() == near([0.816495, -1.224742])
    batch = replace(batch_f, advantage_BT=advantage.double()[:, None].expand(2, 3))
    assert evaluate(batch, config).loss == near(1.483037)


def test_hapo_falls_back_where_token_weights_give_extreme_advantages():
    """One wrong token against 99 right ones: by token -9.95, by response -.707."""
    config = HapoConfig().advantage
    reward, group, length = torch.tensor([1.0, 0.0]), torch.zeros(2, dtype=torch.int64), torch.tensor([99, 1])
    out = group_advantages(reward, group, config, length_B=length)
    assert out.tolist() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-5)
    without = AdvantageConfig(weighting="token", ddof=0)
    extreme = group_advantages(reward, group, without, length_B=length)
    assert extreme.tolist() == pytest.approx([math.sqrt(1 / 99), -math.sqrt(99)], rel=1e-4)
    with pytest.raises(ValueError, match=r"expected length_B of shape \[2\], got None"):
        group_advantages(reward, group, config)


def test_entropy_scores(batch_f):
    """log H around its nearest 0.8-quantile, that of t2."""
    entropy = batch_f.entropy_BT
    logs = [math.log(h) for h in (0.3, 1.2, 0.05, 0.6, 1.5)]
    low, pivot = logs[2] - logs[1], logs[1]
    expected = [(logs[0] - pivot) / -low, 0, -1, (logs[3] - pivot) / -low, 1]
    stated = entropy_scores(entropy, batch_f.mask_BT, 0.8, signed_minimum=False)
    released = entropy_scores(entropy, batch_f.mask_BT, 0.8, signed_minimum=True)
    assert five(stated) == pytest.approx(expected)
    assert five(released) == pytest.approx([abs(x) for x in expected])


@pytest.mark.parametrize("value", [0.0, 0.7])
def test_equal_entropies_score_zero(value):
    mask = torch.ones(2, 2, dtype=torch.bool)
    assert entropy_scores(torch.full((2, 2), value), mask, 0.8, signed_minimum=False).tolist() == [[0, 0]] * 2


PEAR_ROWS = [
    # thinking, tag, answer -> mean entropies of the two parts
    ([0.8, 1.0, 9.0, 0.2], 2, 1.0, 0.3),
    ([0.1, 0.3, 9.0, 0.5], 2, 1.0, 1.0),
    ([0.8, 1.0, 9.0, 0.2], 2, 0.1, 0.1),
    ([0.2, 0.4, 0.6, 0.4], -1, 1.0, 0.6),
    ([0.8, 1.0, 9.0, 0.2], 2, float("nan"), float("nan")),
]


@pytest.mark.parametrize(("entropy", "tag", "reward", "shaped"), PEAR_ROWS)
def test_pear_rewards(entropy, tag, reward, shaped):
    """Case 17, a wrong answer, no tag, and an unscorable response; the last column is padding."""
    nan = float("nan")
    out = shape_rewards(
        torch.tensor([reward]),
        PearConfig(),
        entropy_BT=torch.tensor([[*entropy, nan]]),
        mask_BT=torch.tensor([[True] * 4 + [False]]),
        think_end_B=torch.tensor([tag]),
    )
    assert out.tolist() == pytest.approx([shaped], nan_ok=True)


def test_pear_never_pays_more_than_one():
    """Ceiling 1.5 and a penalty of .1."""
    out = shape_rewards(
        torch.tensor([1.0]),
        PearConfig(ceiling=1.5),
        entropy_BT=torch.tensor([[0.1]]),
        mask_BT=torch.tensor([[True]]),
        think_end_B=torch.tensor([-1]),
    )
    assert out.item() == 1


def test_pear_names_what_is_missing_and_other_methods_need_nothing():
    reward = torch.tensor([1.0])
    assert shape_rewards(reward, GrpoConfig()) is reward
    with pytest.raises(ValueError, match="expected entropy_BT, got None"):
        shape_rewards(reward, PearConfig())
    with pytest.raises(ValueError, match=r"expected entropy_BT and mask_BT of one shape"):
        shape_rewards(
            reward,
            PearConfig(),
            entropy_BT=torch.zeros(1, 2),
            mask_BT=torch.ones(1, 3, dtype=torch.bool),
            think_end_B=torch.tensor([-1]),
        )
