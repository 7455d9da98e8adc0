"""Whole builds: counts, preference, resumption, card, exports, and the recipes that are shipped."""

import json
from importlib.resources import files
from pathlib import Path

import pyarrow.parquet
import pytest
import yaml
from pydantic import ValidationError

from archer.configs.data import DataConfig
from archer.configs.data_recipe import DataRecipe
from archer.data import build, fingerprint, load_problems
from archer.data.adapters import ADAPTERS
from archer.data.records import from_json
from archer.data.stages import STAGES
from archer.data.stages.examples import shown_tests
from archer.errors import ConfigError, DataError

LONG = "A farmer has {} cows and {} hens and sells {} of each every day of the week until only one is left."


@pytest.fixture
def folder(tmp_path):
    first = [{"prompt": f"First problem number {i} about a thing", "answer": i} for i in range(5)]
    first += [{"prompt": LONG.format(3, 4, 1), "answer": 7}, {"prompt": "Bad", "answer": None}]
    second = [
        {"question": "first problem  number 2 about a thing", "answer": "#### 2"},
        {"question": "Today " + LONG.format(3, 4, 1), "answer": "#### 7"},
        {"question": LONG.format(30, 40, 10), "answer": "#### 70"},
        {"question": "Only here", "answer": "#### 1,000"},
        {"question": "No mark", "answer": "1"},
    ]
    for name, rows in (
        ("first", first),
        ("second", second),
        ("test", [{"prompt": LONG.format(9, 9, 9), "answer": 1}]),
    ):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def recipe_of(folder, **changes):
    return DataRecipe.model_validate(
        {
            "name": "trial",
            "sources": {
                "first": {"form": "archer", "path": folder / "first.jsonl", "licence": "MIT"},
                "second": {"form": "gsm8k", "path": folder / "second.jsonl"},
            },
            "benchmarks": {"test": {"form": "archer", "path": folder / "test.jsonl"}},
            "stages": {
                "checks": {"kind": "checks"},
                "exact": {"kind": "exact-duplicates"},
                "ngrams": {"kind": "ngram-duplicates", "test": {"n": 5, "threshold": 0.8}},
                "clean": {"kind": "decontaminate"},
            },
            "exports": ["jsonl", "parquet", "verl", "trl"],
        }
        | changes
    )


def counts(card):
    return {stage["name"]: (stage["in"], stage["kept"], stage["dropped"]) for stage in card["stages"]}


def test_a_build_counts_what_every_stage_did(folder):
    card = build(recipe_of(folder), folder / "out")
    assert counts(card) == {
        "sources": (12, 10, {"unusable row": 2}),
        "checks": (10, 10, {}),
        "exact": (10, 9, {"exact duplicate": 1}),
        "ngrams": (9, 8, {"n-gram duplicate": 1}),
        "clean": (8, 8, {}),
    }
    assert card["stages"][4]["notes"] == {"near test": 2}
    assert card["by_source"] == {"first": 6, "second": 2}
    assert [(s["name"], s["licence"], s["rows"], s["in_result"]) for s in card["sources"]] == [
        ("first", "MIT", 7, 6),
        ("second", "not given", 5, 2),
    ]
    unusable = [entry["detail"] for entry in card["stages"][0]["samples"]["unusable row"]]
    assert sorted(Path(detail.split(",")[0]).name for detail in unusable) == ["first.jsonl", "second.jsonl"]
    dropped = [json.loads(line) for line in (folder / "out/stages/03-ngrams/dropped.jsonl").open()]
    assert [(row["id"], row["reason"], row["detail"]) for row in dropped] == [
        ("second/2", "n-gram duplicate", "1.00 of the 5-grams shared with first/6")
    ]


def test_the_preferred_source_is_kept(folder):
    card = build(recipe_of(folder, prefer=["second"]), folder / "out")
    assert card["by_source"] == {"second": 4, "first": 4}


def test_the_card_tells_a_reader(folder):
    card = build(recipe_of(folder), folder / "out")
    assert json.loads((folder / "out/data_card.json").read_text()) == card
    text = (folder / "out/data_card.md").read_text()
    assert "| ngrams | 9 | 8 | n-gram duplicate 1 |  |" in text
    assert "| first | first.jsonl, sha256 " in text
    assert "| MIT | 7 | 6 |" in text
    assert card["sha256"] in text
    assert str(folder) not in text


def test_exports_hold_the_same_problems(folder):
    card = build(recipe_of(folder), folder / "out")
    problems = load_problems(DataConfig(path=folder / "out/problems.jsonl"))
    assert fingerprint(problems) == card["sha256"]
    assert load_problems(DataConfig(path=folder / "out/problems.parquet")) == problems
    verl = pyarrow.parquet.read_table(folder / "out/verl.parquet").to_pylist()
    for row, problem in zip(verl, problems, strict=True):
        assert from_json(json.loads(row["extra_info"].pop("problem")) | {"tests": []}) == problem
    assert verl[7] == {
        "data_source": "second",
        "prompt": [{"role": "user", "content": "Only here"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "1000"},
        "extra_info": {"index": 7, "id": "second/4", "split": "train"},
    }
    trl = [json.loads(line) for line in (folder / "out/trl.jsonl").open()]
    assert trl[7] == {
        "id": "second/4",
        "prompt": [{"role": "user", "content": "Only here"}],
        "answer": "1000",
        "tests": None,
        "domain": "math",
        "source": "second",
    }
    for form, name in (("verl", "verl.parquet"), ("trl", "trl.jsonl")):
        source = {"form": form, "path": folder / "out" / name}
        again = build(recipe_of(folder, sources={"again": source}, stages={}, exports=[]), folder / form)
        assert again["problems"] == card["problems"]


def test_code_problems_and_chats_survive_every_export(folder):
    tests = [{"type": "stdin", "input": "1", "output": "2"}]
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "P"}]
    rows = [{"prompt": "Add.", "tests": tests, "meta": {"a": [1]}}, {"prompt": chat, "answer": 1, "b": None}]
    (folder / "code.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources = {"code": {"form": "archer", "path": folder / "code.jsonl"}}
    build(recipe_of(folder, sources=sources, stages={}), folder / "out")
    one, two = load_problems(DataConfig(path=folder / "out/problems.jsonl"))
    assert (one.domain, one.answer, list(one.tests), one.meta["a"]) == ("code", None, tests, [1])
    assert list(two.prompt) == chat
    chat_one, chat_two = load_problems(DataConfig(path=folder / "out/problems.parquet"))
    assert (chat_two, chat_one.tests, chat_one.meta) == (two, one.tests, one.meta)
    assert chat_one.prompt == ({"role": "user", "content": "Add."},)
    verl = pyarrow.parquet.read_table(folder / "out/verl.parquet").to_pylist()
    assert json.loads(verl[0]["reward_model"]["ground_truth"]) == tests


def stage_times(output):
    return {path.parent.name: path.stat().st_mtime_ns for path in output.glob("stages/*/stage.json")}


def test_finished_stages_are_not_run_again(folder):
    seen = []
    first = build(recipe_of(folder), folder / "out", progress=seen.append)
    assert [(p.stage, p.number, p.stages, p.done, p.total, p.kept) for p in seen] == [
        ("sources", 1, 5, 12, None, 10),
        ("checks", 2, 5, 10, 10, 10),
        ("exact", 3, 5, 10, 10, 9),
        ("ngrams", 4, 5, 9, 9, 8),
        ("clean", 5, 5, 8, 8, 8),
    ]
    before = stage_times(folder / "out")
    assert build(recipe_of(folder), folder / "out") == first
    assert stage_times(folder / "out") == before


def ran_again(folder, **changes):
    build(recipe_of(folder), folder / "out")
    before = stage_times(folder / "out")
    build(recipe_of(folder, **changes), folder / "out")
    after = stage_times(folder / "out")
    return sorted(name for name in after if after[name] != before.get(name))


def test_a_changed_stage_runs_again_with_all_that_follow(folder):
    stages = recipe_of(folder).model_dump()["stages"]
    stages["ngrams"]["test"]["n"] = 7
    assert ran_again(folder, stages=stages) == ["03-ngrams", "04-clean"]


def test_a_changed_source_or_benchmark_runs_again_what_depends_on_it(folder):
    build(recipe_of(folder), folder / "out")
    before = stage_times(folder / "out")
    (folder / "test.jsonl").write_text('{"prompt": "Only here", "answer": 1}\n')
    card = build(recipe_of(folder), folder / "out")
    assert counts(card)["clean"] == (8, 7, {"in test": 1})
    after = stage_times(folder / "out")
    assert [name for name in sorted(after) if after[name] != before[name]] == ["04-clean"]
    (folder / "second.jsonl").write_text('{"question": "New", "answer": "#### 5"}\n')
    assert build(recipe_of(folder), folder / "out")["by_source"]["second"] == 1


def test_a_stage_cut_off_in_the_middle_runs_again(folder):
    first = build(recipe_of(folder), folder / "out")
    here = folder / "out/stages/02-exact"
    (here / "stage.json").unlink()
    (here / "kept.jsonl").write_text("")
    assert build(recipe_of(folder), folder / "out") == first
    kept = (here / "kept.jsonl").read_bytes()
    (here / "kept.jsonl").write_bytes(kept[:-10])
    assert build(recipe_of(folder), folder / "out") == first


def test_a_stage_left_out_is_named_in_the_card(folder):
    stages = recipe_of(folder).model_dump()["stages"]
    stages["clean"]["enabled"] = False
    card = build(recipe_of(folder, stages=stages), folder / "out")
    assert card["stages"][4]["left_out"]
    assert "| clean | left out |  |  |  |" in (folder / "out/data_card.md").read_text()
    assert not (folder / "out/stages/04-clean").exists()


def test_difficulty_in_a_build(folder):
    class Sampler:
        fingerprint = "f"

        def sample_and_score(self, problems, samples, seed):
            return [[1.0 if "First" in p.prompt else 0.0] + [0.0] * (samples - 1) for p in problems]

    stages = {"hard": {"kind": "difficulty", "sampler": {"model": "m"}, "drop": ["never"]}}
    recipe = recipe_of(folder, stages=stages)
    with pytest.raises(ConfigError, match=r"difficulty stage: expected a way to sample m, found none"):
        build(recipe, folder / "out")
    assert not (folder / "out/stages/00-sources").exists()
    made = []
    card = build(recipe, folder / "out", make_sampler=lambda config: made.append(config) or Sampler())
    assert counts(card)["hard"] == (10, 5, {"never solved": 5})
    assert made[0].model == "m"
    assert build(recipe, folder / "out") == card
    assert (folder / "out/cache/scores.jsonl").exists()


def test_unusable_recipes_and_folders_are_refused(folder):
    (folder / "full").mkdir()
    (folder / "full/mine.txt").write_text("x")
    with pytest.raises(DataError, match="full: expected an empty folder or an earlier build"):
        build(recipe_of(folder), folder / "full")
    assert (folder / "full/mine.txt").exists()
    missing = {"no": {"form": "archer", "path": folder / "no.jsonl"}}
    with pytest.raises(DataError, match="no: expected a data file"):
        build(recipe_of(folder, sources=missing), folder / "out")
    (folder / "bad.jsonl").write_text('{"prompt": "x"}\n')
    bad = {"bad": {"form": "archer", "path": folder / "bad.jsonl"}}
    with pytest.raises(
        DataError,
        match=r"at least one .*stage sources dropped 1 of 1 as 'unusable row', for example: bad.jsonl, line 1",
    ):
        build(recipe_of(folder, sources=bad), folder / "out")


def test_real_sets_against_real_benchmarks(shared_data, tmp_path):
    def entries(*names):
        return {name: {"form": "archer", "path": shared_data(f"{name}.jsonl")} for name in names}

    recipe = DataRecipe.model_validate(
        {
            "name": "school-maths",
            "sources": entries("gsm8k_train", "math_train", "svamp"),
            "benchmarks": entries("math500", "gsm8k_test", "aime24", "aime25"),
            "stages": {
                "exact": {"kind": "exact-duplicates"},
                "merge": {"kind": "ngram-duplicates"},
                "clean": {"kind": "decontaminate"},
            },
        }
    )
    card = build(recipe, tmp_path / "out")
    assert counts(card) == {
        "sources": (15945, 15945, {}),
        "exact": (15945, 15943, {"exact duplicate": 2}),
        "merge": (15943, 15884, {"n-gram duplicate": 59}),
        "clean": (15884, 15842, {"in math500": 40, "in gsm8k_test": 2}),
    }
    assert card["stages"][3]["notes"] == {"near math500": 77}


def test_real_statements_show_a_test_each(shared_data):
    problems = load_problems(DataConfig(path=shared_data("code_contests.jsonl")))
    shown = [sum(shown_tests(str(problem.prompt), problem.tests)) for problem in problems]
    assert (len(shown), min(shown), sum(shown)) == (162, 1, 305)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": {}}, "at least 1 item"),
        ({"prefer": ["x"]}, "prefer: expected names of sources .first, second., got x"),
        (
            {"stages": {"a": {"kind": "decontaminate", "benchmarks": ["y"]}}},
            "expected names of benchmarks .test., got y",
        ),
        (
            {"benchmarks": {}, "stages": {"a": {"kind": "decontaminate"}}},
            "at least one entry under benchmarks",
        ),
        ({"stages": {"a": {"kind": "nope"}}}, "nope"),
        ({"stages": {"sources": {"kind": "checks"}}}, "this name is taken"),
        (
            {"stages": {"a": {"kind": "ngram-duplicates", "test": {"n": 0, "threshold": 0.5}}}},
            "greater than or equal",
        ),
        ({"name": "a/b"}, "pattern"),
    ],
)
def test_inconsistent_recipes_are_refused(folder, changes, message):
    with pytest.raises(ValidationError, match=message):
        recipe_of(folder, **changes)


@pytest.mark.parametrize("origin", [{}, {"path": "a.jsonl", "hub": "a/b"}])
def test_sources_need_one_origin(folder, origin):
    with pytest.raises(ValidationError, match="expected exactly one of path and hub"):
        recipe_of(folder, sources={"first": {"form": "archer", **origin}})


def test_every_form_and_kind_of_the_config_exists():
    schema = DataRecipe.model_json_schema()["$defs"]
    assert set(schema["SourceConfig"]["properties"]["form"]["enum"]) == {*ADAPTERS, "archer"}
    kinds = {
        values["properties"]["kind"]["const"] for name, values in schema.items() if name.endswith("Stage")
    }
    assert kinds == set(STAGES)


SHIPPED = sorted(
    entry.name for entry in (files("archer") / "recipes" / "data").iterdir() if entry.name.endswith(".yaml")
)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recipes_parse(name):
    text = (files("archer") / "recipes" / "data" / name).read_text()
    recipe = DataRecipe.model_validate(yaml.safe_load(text))
    assert recipe.name == name.removesuffix(".yaml")


def test_the_papers_sets_are_shipped():
    assert SHIPPED == ["archer-code-6k.yaml", "archer-math-51k.yaml"]
