"""What a verl configuration must say, and what is refused."""

import copy
import sys

import pytest
from pydantic import TypeAdapter

from archer.adapters.verl.settings import method_problems, read_objective
from archer.configs.objective import ObjectiveConfig
from archer.errors import ConfigError, MissingDependencyError

# verl's defaults where Archer looks at them, with what docs/VERL.md tells to set.
GOOD = {
    "actor_rollout_ref": {
        "actor": {
            "strategy": "fsdp",
            "use_kl_loss": True,
            "calculate_entropy": False,
            "entropy_coeff": 0,
            "clip_ratio": 0.2,
            "clip_ratio_low": 0.2,
            "clip_ratio_high": 0.2,
            "clip_ratio_c": 3.0,
            "loss_agg_mode": "token-mean",
            "loss_scale_factor": None,
            "kl_loss_type": "low_var_kl",
            "policy_loss": {"loss_mode": "vanilla"},
        },
        "rollout": {"top_p": 1, "top_k": -1},
    },
    "algorithm": {
        "adv_estimator": "grpo",
        "norm_adv_by_std_in_grpo": True,
        "use_kl_in_reward": False,
        "rollout_correction": {"bypass_mode": False, "rollout_is": None, "rollout_rs": None},
    },
    "distillation": {"enabled": False},
}


def changed(*overrides):
    config = copy.deepcopy(GOOD)
    for path, value in overrides:
        *parents, last = path.split(".")
        place = config
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return config


def test_the_block_is_read_and_archer_is_the_default():
    assert read_objective(GOOD).method == "archer"
    objective = read_objective(changed(("archer.objective.rho", 0.7)))
    assert (objective.method, objective.rho) == ("archer", 0.7)
    other = read_objective(changed(("archer.objective", {"method": "dapo", "eps_high": 0.3})))
    assert (other.method, other.eps_high) == ("dapo", 0.3)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("actor_rollout_ref.actor.use_kl_loss", False),
        ("actor_rollout_ref.actor.entropy_coeff", 0.01),
        ("actor_rollout_ref.actor.strategy", "megatron"),
        ("actor_rollout_ref.actor.clip_ratio_high", 0.28),
        ("actor_rollout_ref.actor.clip_ratio_c", 10.0),
        ("actor_rollout_ref.actor.loss_agg_mode", "seq-mean-token-mean"),
        ("actor_rollout_ref.actor.kl_loss_type", "k2"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode", "gspo"),
        ("actor_rollout_ref.rollout.top_p", 0.9),
        ("algorithm.adv_estimator", "gae"),
        ("algorithm.norm_adv_by_std_in_grpo", False),
        ("algorithm.use_kl_in_reward", True),
        ("algorithm.rollout_correction.bypass_mode", True),
        ("algorithm.rollout_correction.rollout_is", "token"),
        ("distillation.enabled", True),
        ("archer.objective.roh", 0.7),
    ],
)
def test_a_setting_that_would_change_the_objective_is_refused_by_name(path, value):
    with pytest.raises(ConfigError, match=path.rpartition(".")[2]):
        read_objective(changed((path, value)))


def test_all_refusals_come_in_one_message():
    wrong = changed(("actor_rollout_ref.actor.entropy_coeff", 1), ("algorithm.use_kl_in_reward", True))
    with pytest.raises(ConfigError) as error:
        read_objective(wrong)
    assert "entropy_coeff" in str(error.value)
    assert "use_kl_in_reward" in str(error.value)


def test_no_kl_weight_needs_no_reference_and_current_roles_need_the_current_entropy():
    assert read_objective(
        changed(("archer.objective.beta_k", 0.0), ("actor_rollout_ref.actor.use_kl_loss", False))
    )
    current = ("archer.objective.entropy_from", "current")
    with pytest.raises(ConfigError, match="calculate_entropy"):
        read_objective(changed(current))
    assert read_objective(changed(current, ("actor_rollout_ref.actor.calculate_entropy", True)))


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "ar-lopti"},
        {"method": "archer", "scope": "group", "entropy_from": "current"},
        {"method": "archer-released", "aggregation": "token-mean", "entropy_from": "old"},
        {"method": "eighty-twenty", "entropy_from": "old"},
    ],
)
def test_methods_whose_statistics_verl_does_not_have_are_refused(settings):
    assert list(method_problems(TypeAdapter(ObjectiveConfig).validate_python(settings)))


def test_without_verl_the_trainer_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transfer_queue", None)
    monkeypatch.delitem(sys.modules, "archer.adapters.verl.trainer", raising=False)
    with pytest.raises(MissingDependencyError, match="pip install"):
        __import__("archer.adapters.verl.trainer")
