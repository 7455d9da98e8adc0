"""Procedural problems: deterministic, distinct, and unrelated between seeds."""

import pytest
from pydantic import ValidationError

from archer.configs.data import DataConfig
from archer.data import fingerprint, load_problems, shared_prompts
from archer.errors import DataError

SMALL = {"chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}


def make(tasks="chain_sum", **settings):
    return load_problems(DataConfig(source="procedural", tasks=tasks, **settings))


def test_the_same_config_gives_the_same_problems():
    problems = make(size=50)
    assert fingerprint(problems) == fingerprint(make(size=50))
    assert problems[:20] == make(size=20)
    first = problems[0]
    assert first.domain == "procedural"
    assert first.source == "reasoning-gym/chain_sum"
    assert eval(first.meta["entry"]["metadata"]["expression"]) == int(first.answer)


def test_neighbouring_seeds_share_no_items():
    wide = {"chain_sum": {"min_terms": 4, "max_terms": 6, "min_digits": 3}}
    assert shared_prompts(make(wide, size=200, seed=0), make(wide, size=200, seed=1)) == []


def test_tasks_take_turns():
    problems = make(["chain_sum", "gcd"], size=5)
    assert [p.meta["task"] for p in problems] == ["chain_sum", "gcd", "chain_sum", "gcd", "chain_sum"]


def test_prompts_are_distinct_unless_said_otherwise():
    assert len({p.prompt for p in make(SMALL, size=150)}) == 150
    assert len({p.prompt for p in make(SMALL, size=150, distinct=False)}) < 150
    with pytest.raises(DataError, match="expected 201 different problems, found 200; widen the settings"):
        make(SMALL, size=201)


def test_template_system_prompt_and_limit_apply():
    (problem,) = make(size=5, limit=1, template="{prompt} !", system_prompt="S")
    assert problem.prompt[0] == {"role": "system", "content": "S"}
    assert problem.prompt[1]["content"].endswith("= !")
    assert problem.meta["entry"]["question"] + " !" == problem.prompt[1]["content"]


def test_unknown_tasks_and_settings_are_refused():
    with pytest.raises(DataError, match=r"found 'chain_sums'; nearest: chain_sum"):
        make("chain_sums")
    with pytest.raises(DataError, match=r"tasks.chain_sum: settings \{'min_term': 1\} refused"):
        make({"chain_sum": {"min_term": 1}})
    with pytest.raises(DataError, match="seed belongs beside tasks"):
        make({"chain_sum": {"seed": 1}})
    with pytest.raises(ValidationError, match="tasks: needed by source: procedural"):
        make({})
