"""The configs: one class a method, picked by name; refusals that name the field."""

import subprocess
import sys
from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from archer.configs.objective import (
    AdvantageConfig,
    ArcherConfig,
    ArcherReleasedConfig,
    ClipCovConfig,
    DapoConfig,
    GrpoConfig,
    GspoConfig,
    ObjectiveConfig,
)

ADAPTER = TypeAdapter(ObjectiveConfig)
CLASSES = get_args(get_args(ObjectiveConfig)[0])


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_every_method_is_found_by_name_and_survives_a_round_trip(cls):
    name = cls.model_fields["method"].default
    required = {"vocabulary_size": 7} if name == "espo" else {}
    config = ADAPTER.validate_python({"method": name, **required})
    assert type(config) is cls
    assert ADAPTER.validate_json(config.model_dump_json()) == config


def test_names_are_unique_and_all_there():
    names = [cls.model_fields["method"].default for cls in CLASSES]
    assert len(names) == len(set(names)) == 23


def test_the_published_defaults():
    archer = ArcherConfig()
    assert (archer.rho, archer.eps_r, archer.eps_k, archer.beta_r, archer.beta_k) == (
        0.8,
        0.5,
        0.2,
        0.0,
        0.001,
    )
    assert (archer.scope, archer.entropy_from, archer.tie) == ("response", "old", "reasoning")
    assert (archer.aggregation, archer.kl_estimator, archer.dual_clip) == ("token-mean", "k3", None)
    released = ArcherReleasedConfig()
    assert (released.entropy_from, released.tie, released.dual_clip) == ("current", "knowledge", 10)
    assert (released.aggregation, released.kl_max) == ("seq-mean-token-mean", 10)
    grpo, dapo = GrpoConfig(), DapoConfig()
    assert (grpo.eps_low, grpo.eps_high, grpo.aggregation, grpo.beta) == (
        0.2,
        0.2,
        "seq-mean-token-mean",
        0.04,
    )
    assert (dapo.eps_low, dapo.eps_high, dapo.aggregation, dapo.beta) == (0.2, 0.28, "token-mean", 0)
    assert (archer.advantage.normalisation, archer.advantage.ddof, archer.advantage.epsilon) == (
        "std",
        1,
        1e-6,
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ADAPTER.validate_python({"method": "archr"}),
            "does not match any of the expected tags: 'archer'",
        ),
        (lambda: ArcherConfig(roh=0.7), "roh\n  Extra inputs are not permitted"),
        (lambda: ArcherConfig(rho=1.2), "rho\n  Input should be less than or equal to 1"),
        (lambda: ArcherConfig(beta_k=float("inf")), "beta_k\n  Input should be a finite number"),
        (lambda: ArcherConfig(dual_clip=1.0), "dual_clip\n  Input should be greater than 1"),
        (lambda: GrpoConfig(constant_length=5), "expected constant_length exactly when"),
        (lambda: GrpoConfig(aggregation="constant-length"), "and constant_length=None"),
        (
            lambda: GspoConfig(aggregation="token-mean"),
            "aggregation\n  Input should be 'seq-mean-token-mean'",
        ),
        (lambda: GspoConfig(dual_clip=3), "dual_clip\n  Extra inputs are not permitted"),
        (lambda: ClipCovConfig(window=(5, 1)), "expected a window"),
        (lambda: AdvantageConfig(fallback_limit=5), "expected weighting 'token' with fallback_limit"),
        (lambda: AdvantageConfig(weighting="token", normalisation="leave-one-out"), "expected normalisation"),
    ],
)
def test_refusals_name_the_field(make, message):
    with pytest.raises(ValidationError) as refusal:
        make()
    assert message in str(refusal.value)


def test_configs_load_no_torch():
    code = "import sys, archer.configs.objective; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
