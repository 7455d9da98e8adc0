"""Recipes, overrides and the messages for wrong ones."""

import json

import pytest

from archer.configs.loading import RECIPES, dump_config, find_recipe, load_config
from archer.configs.objective import ArcherConfig, DapoConfig, GrpoConfig
from archer.configs.run import RunConfig
from archer.errors import ConfigError

RUN_RECIPES = sorted(path.stem for path in RECIPES.glob("*.yaml"))


@pytest.mark.parametrize("name", RUN_RECIPES)
def test_every_shipped_recipe_is_valid_and_survives_a_round_trip(name, tmp_path):
    config = load_config(RunConfig, name)
    assert config.name == name
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump_config(config))
    assert load_config(RunConfig, copy) == config


@pytest.mark.parametrize(
    ("name", "model", "length", "steps"),
    [
        ("archer-math-1.5b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 32768, 520),
        ("archer-code-1.5b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 32768, 320),
        ("archer-math-qwen3-4b", "Qwen/Qwen3-4B", 8192, None),
        ("archer-math-qwen3-8b", "Qwen/Qwen3-8B", 6144, None),
    ],
)
def test_published_settings(name, model, length, steps):
    config = load_config(RunConfig, name)
    assert config.policy.model == model
    assert config.rollout.max_response_tokens == length
    assert (config.rollout.group_size, config.rollout.temperature) == (16, 1.0)
    assert (config.train.prompts_per_step, config.train.mini_batch_prompts) == (64, 32)
    assert config.optimizer.learning_rate == 1e-6
    assert isinstance(config.objective, ArcherConfig)
    values = config.objective.model_dump(include={"rho", "eps_r", "eps_k", "beta_r", "beta_k"})
    assert values == {"rho": 0.8, "eps_r": 0.5, "eps_k": 0.2, "beta_r": 0.0, "beta_k": 0.001}
    assert (config.evaluation.temperature, config.evaluation.top_p) == (0.8, 1.0)
    assert config.evaluation.max_response_tokens == 32768
    if steps is not None:
        assert config.train.steps == steps


def test_overrides_reach_every_depth():
    config = load_config(
        RunConfig,
        "demo",
        [
            "train.steps=7",
            "objective.rho=0.7",
            "optimizer.learning_rate=2e-6",
            "policy.lora.rank=4",
            "policy.dtype=auto",
        ],
    )
    assert config.train.steps == 7
    assert isinstance(config.objective, ArcherConfig)
    assert config.objective.rho == 0.7
    assert config.optimizer.learning_rate == 2e-6
    assert config.policy.lora is not None
    assert config.policy.lora.rank == 4


def test_the_method_can_be_changed_and_defaults_to_archer(tmp_path):
    assert isinstance(load_config(RunConfig, "demo", ["objective={method: dapo}"]).objective, DapoConfig)
    changed = load_config(RunConfig, "archer-math-1.5b", ["objective.method=grpo", "objective.beta=0.01"])
    assert changed.objective == GrpoConfig(beta=0.01)
    values = {"policy": {"model": "m"}, "data": {"path": "d.jsonl"}, "train": {"eval_every": 0}}
    path = tmp_path / "r.yaml"
    path.write_text(json.dumps({**values, "objective": {"rho": 0.5}}))
    assert load_config(RunConfig, path).objective == ArcherConfig(rho=0.5)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.stepz=5", "train.stepz: no such field; did you mean steps?"),
        ("trian.steps=5", "trian: no such field; did you mean train?"),
        ("objective.eps_x=0.1", "eps_x: no such field; did you mean eps_"),
        ("objective.method=archr", "archer"),
        ("objective.rho=1.5", "objective.archer.rho: Input should be less than or equal to 1, got 1.5"),
        (
            "policy.dtype=fp8",
            "policy.dtype: Input should be 'auto', 'float32', 'bfloat16' or 'float64', got 'fp8'",
        ),
        ("rollout.group_size=1", "rollout.group_size: Input should be greater than or equal to 2, got 1"),
        ("train.mini_batch_prompts=5", "got 5 and 32. The nearest smaller value that does is 4"),
        ("rollout.top_p=0.9", "for training"),
        ("train.steps", "expected KEY=VALUE"),
        ("train.steps.x=1", "train.steps.x=1"),
        ("data.path=[", "not valid YAML"),
    ],
)
def test_wrong_settings_name_the_field_and_the_way_out(override, message):
    with pytest.raises(ConfigError) as caught:
        load_config(RunConfig, "demo", [override])
    assert message in str(caught.value)


def test_an_unknown_recipe_lists_the_known_ones():
    with pytest.raises(ConfigError, match="demo"):
        find_recipe("no-such-recipe")


def test_a_recipe_that_is_not_a_mapping_is_refused(tmp_path):
    path = tmp_path / "list.yaml"
    path.write_text("- 1\n")
    with pytest.raises(ConfigError, match="expected a mapping"):
        load_config(RunConfig, path)
