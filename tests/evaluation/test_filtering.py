"""A difficulty filter with a real engine: the local one on a random model."""

import json

import pytest

from archer.configs.data_recipe import DataRecipe, SamplerConfig
from archer.configs.loading import build_config
from archer.data import build
from archer.evaluation.filtering import FilterModel
from archer.types import Problem

PROBLEMS = [Problem(f"p{i}", f"{i} {i + 1}", "4") for i in range(4)]


@pytest.fixture
def settings(tiny_model, tmp_path):
    reward = tmp_path / "reward.py"
    reward.write_text(
        "def score(problem, text):\n"
        "    assert not problem.prompt.startswith('0 0')\n"
        "    return float(len(text.split()) % 2)\n"
    )

    def make(**changes):
        values = {"model": tiny_model(), "engine": "local", "max_tokens": 8, "max_prompt_tokens": 6}
        values["reward"] = {"kind": "custom", "function": f"{reward}:score"}
        return SamplerConfig(**values | changes)

    return make


def test_scores_follow_seed_and_template(settings):
    with FilterModel(settings()) as model:
        first = model.sample_and_score(PROBLEMS, 4, 0)
        assert model.sample_and_score(PROBLEMS, 4, 0) == first
        assert model.sample_and_score(PROBLEMS, 4, 1) != first
    assert [len(scores) for scores in first] == [4] * 4
    assert {score for scores in first for score in scores} == {0.0, 1.0}
    with FilterModel(settings(template="9 {prompt} 9")) as model:
        assert model.sample_and_score(PROBLEMS, 4, 0) != first


def test_long_prompts_are_not_sampled(settings):
    seen = []
    with FilterModel(settings(), lambda: seen.append(1)) as model:
        scores = model.sample_and_score([PROBLEMS[0], Problem("long", "1 " * 7, "4"), PROBLEMS[1]], 2, 0)
    assert scores[1] == [None, None]
    assert None not in scores[0] + scores[2]
    assert len(seen) == 4


def test_fingerprint_covers_what_changes_scores(settings):
    changes = [
        {},
        {"temperature": 0.5},
        {"template": "{prompt} 1"},
        {"max_tokens": 9},
        {"reward": {"kind": "math"}},
    ]
    found = [FilterModel(settings(**change)).fingerprint for change in changes]
    assert len(set(found)) == len(found)
    assert FilterModel(settings(max_batch=2)).fingerprint == found[0]


def test_a_recipe_with_a_filter(settings, tmp_path):
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps({"prompt": p.prompt, "answer": "4"}) + "\n" for p in PROBLEMS))
    sampler = settings().model_dump(mode="json")
    values = {
        "name": "small",
        "sources": {"raw": {"path": str(raw), "form": "archer"}},
        "stages": {"hard": {"kind": "difficulty", "sampler": sampler, "samples": 1, "drop": ["never"]}},
    }
    with FilterModel(settings()) as model:
        [*scores] = model.sample_and_score(PROBLEMS, 1, 0)
    with FilterModel(settings()) as model:
        card = build(build_config(DataRecipe, values, where="test"), tmp_path / "out", lambda config: model)
    assert card["stages"][-1]["dropped"] == {"never solved": sum(score == [0.0] for score in scores)}
