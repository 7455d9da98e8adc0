"""Base loading: rows to problems, refusals with their place, duplicates, fingerprint, over-long prompts."""

import json
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest
from pydantic import ValidationError

from archer.configs.data import Columns, DataConfig
from archer.data import filter_overlong, fingerprint, load_problems, shared_prompts
from archer.errors import DataError
from archer.types import Problem


@pytest.fixture
def write(tmp_path):
    def write_rows(rows, name="rows.jsonl"):
        path = tmp_path / name
        if name.endswith(".jsonl"):
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif name.endswith(".json"):
            path.write_text(json.dumps(rows, indent=1))
        else:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path

    return write_rows


def load(path, **settings):
    return load_problems(DataConfig(path=path, **settings))


ROWS = [
    {"id": "a", "prompt": "1+1?", "answer": "2", "source": "s", "level": 3},
    {"id": "b", "prompt": "2+2?", "answer": "4", "source": "t", "level": 1},
]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.parquet"])
def test_every_file_form_gives_the_same_problems(write, name):
    assert load(write(ROWS, name)) == [
        Problem("a", "1+1?", "2", (), "math", "s", {"level": 3}),
        Problem("b", "2+2?", "4", (), "math", "t", {"level": 1}),
    ]


def test_hub_rows_give_the_same_problems(write, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    path = write(ROWS)
    (tmp_path / "set").mkdir()
    path.rename(tmp_path / "set" / "train.jsonl")
    hub = str(tmp_path / "set")
    assert [p.answer for p in load_problems(DataConfig(source="hub", hub=hub))] == ["2", "4"]
    with pytest.raises(DataError, match=r"set \(test\): expected a data set.*check hub"):
        load_problems(DataConfig(source="hub", hub=hub, split="test"))


def test_columns_are_mapped_and_the_rest_is_kept(write):
    path = write([{"q": "1+1?", "gold": 2, "key": 7, "note": "n", "meta": {"m": 1}}])
    columns = Columns(prompt="q", answer="gold", id="key")
    assert load(path, columns=columns, domain="other") == [
        Problem("7", "1+1?", "2", (), "other", "rows", {"note": "n", "m": 1})
    ]


@pytest.mark.parametrize(
    ("stored", "text"),
    [(42, "42"), (42.0, "42"), ("42", "42"), (-0.5, "-0.5"), (1e-7, "0.0000001"), (1e22, "1" + "0" * 22)],
)
def test_numbers_and_text_are_the_same_answer(write, stored, text):
    assert load(write([{"prompt": "p", "answer": stored}]))[0].answer == text


@pytest.mark.parametrize("stored", [True, False, None, "", "  ", [42], {"a": 1}, float("nan"), float("inf")])
def test_other_answers_are_refused_with_their_line(write, stored):
    path = write([{"prompt": "p", "answer": "1"}, {"prompt": "q", "answer": stored}])
    with pytest.raises(DataError) as error:
        load(path)
    assert f"{path}, line 2, field 'answer': expected" in str(error.value)
    assert repr(stored) in str(error.value)


def test_parquet_and_json_refusals_name_the_row_or_line(write):
    rows = [{"prompt": "p", "answer": 1}, {"prompt": "q", "answer": None}]
    with pytest.raises(DataError, match=r"rows\.parquet, row 2, field 'answer'"):
        load(write(rows, "rows.parquet"))
    path = write(rows, "rows.json")
    assert path.read_text().splitlines()[5] == " {"
    with pytest.raises(DataError, match=r"rows\.json, line 6, field 'answer'"):
        load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'{"prompt": "p", "answer": 1}\n{"prompt": }\n',
            r"line 2, column 12: expected one JSON object a line",
        ),
        (b"[1, 2]\n", r"line 1: expected a JSON object .* found list"),
        (b'\n{"prompt": "\xff", "answer": 1}\n', r"line 2: expected UTF-8 text"),
        (b"\n", r"expected at least one problem, found none"),
        (
            b'{"question": "p", "answer": 1}\n',
            r"field 'prompt': .*row has question, answer.*set columns.prompt",
        ),
        (b'{"prompt": "p"}\n', r"field 'answer': .*set columns.answer"),
        (b'{"prompt": " ", "answer": 1}\n', r"field 'prompt': expected a prompt"),
        (b'{"prompt": 3, "answer": 1}\n', r"field 'prompt': expected text or a list"),
        (b'{"prompt": "p", "answer": 1, "id": true}\n', r"field 'id': expected text, found True"),
        (b'{"prompt": "p", "answer": 1, "meta": 3}\n', r"field 'meta': expected an object"),
        (b'{"prompt": "p", "tests": [{"type": "io"}]}\n', r"field 'tests\[0\].type': expected one of stdin"),
        (
            b'{"prompt": "p", "tests": [{"type": "stdin", "input": "1"}]}\n',
            r"'tests\[0\].output': expected text",
        ),
        (b'{"prompt": "p", "tests": "nope"}\n', r"field 'tests': expected JSON"),
        (
            b'{"prompt": [{"role": "bot", "content": "x"}], "answer": 1}\n',
            r"'prompt\[0\].role': expected one of",
        ),
        (b'{"prompt": [{"role": "assistant", "content": "x"}], "answer": 1}\n', r"ends with a user message"),
        (b'{"prompt": ["x"], "answer": 1}\n', r"'prompt\[0\]': expected a message"),
    ],
)
def test_unusable_files_and_rows_are_refused(tmp_path, content, message):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}\n{}", "line 2, column 1: expected JSON, found Extra data; .*jsonl"),
        ("{}", "expected one array of objects, found dict"),
    ],
)
def test_unusable_json_files_are_refused(tmp_path, content, message):
    path = tmp_path / "rows.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        load(path)


def test_missing_and_false_parquet_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="expected a data file, found none"):
        load(tmp_path / "no.jsonl")
    (tmp_path / "no.parquet").write_text("text")
    with pytest.raises(DataError, match="expected a parquet file"):
        load(tmp_path / "no.parquet")


def test_tests_make_a_code_problem_without_an_answer(write):
    tests = [{"type": "stdin", "input": "1", "output": "2"}]
    for stored in (tests, json.dumps(tests)):
        (problem,) = load(write([{"prompt": "p", "answer": None, "tests": stored}]))
        assert (problem.domain, problem.answer, list(problem.tests)) == ("code", None, tests)


def test_a_scorer_that_needs_no_answer_can_say_so(write):
    assert load(write([{"prompt": "p"}]), columns=Columns(answer=None))[0].answer is None


def test_template_and_system_prompt(write):
    text, chat = (
        {"prompt": "1+1?", "answer": 2},
        {"prompt": [{"role": "user", "content": "2+2?"}], "answer": 4},
    )
    template = "Q: {prompt} Use \\boxed{}."
    first, second = load(write([text, chat]), template=template)
    assert first.prompt == "Q: 1+1? Use \\boxed{}."
    assert second.prompt == ({"role": "user", "content": "Q: 2+2? Use \\boxed{}."},)
    first, second = load(write([text, chat]), system_prompt="Be brief.")
    system = {"role": "system", "content": "Be brief."}
    assert first.prompt == (system, {"role": "user", "content": "1+1?"})
    assert second.prompt == (system, {"role": "user", "content": "2+2?"})
    assert load(write([text]), chat=True)[0].prompt == ({"role": "user", "content": "1+1?"},)


def test_a_second_system_message_is_refused(write):
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]
    with pytest.raises(DataError, match="expected a chat without a system message"):
        load(write([{"prompt": messages, "answer": 1}]), system_prompt="z")


def test_duplicate_ids_are_refused_with_both_lines(write):
    path = write([{"id": "a", "prompt": "p", "answer": 1}, {"id": "a", "prompt": "q", "answer": 1}])
    with pytest.raises(
        DataError, match=r"line 2, field 'id': expected an id not used before \(by .*line 1\)"
    ):
        load(path)
    assert [p.id for p in load(path, columns=Columns(id=None))] == ["rows-1", "rows-2"]


def test_prompts_equal_up_to_blanks_are_reported_dropped_or_refused(write, caplog):
    path = write([{"prompt": p, "answer": 1} for p in ("a b", "a  b", " a\nb", "ab")])
    assert len(load(path)) == 4
    assert (
        "2 of 4 prompts repeat an earlier one up to blanks: rows-2 = rows-1, rows-3 = rows-1" in caplog.text
    )
    assert [p.id for p in load(path, duplicates="drop")] == ["rows-1", "rows-4"]
    with pytest.raises(DataError, match="2 of 4 prompts repeat"):
        load(path, duplicates="refuse")


def test_shuffle_and_limit(write):
    path = write([{"prompt": f"p{i}", "answer": i} for i in range(20)])
    whole = load(path, shuffle_seed=3)
    assert sorted(int(p.answer) for p in whole) == list(range(20))
    assert [p.id for p in whole] != [p.id for p in load(path)]
    assert load(path, shuffle_seed=3, limit=5) == whole[:5]
    assert [p.answer for p in load(path, limit=2)] == ["0", "1"]


def test_fingerprint_is_stable_across_processes_and_sees_every_field():
    base = Problem("i", "p", "1", ({"type": "assert", "code": "c"},), "code", "s", {"b": 1, "a": [2]})
    script = (
        "from archer.types import Problem; from archer.data import fingerprint;"
        "tests = ({'code': 'c', 'type': 'assert'},);"
        "print(fingerprint([Problem('i', 'p', '1', tests, 'code', 's', {'a': [2], 'b': 1})]))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.strip() == fingerprint([base])
    changed = [
        Problem("j", "p", "1", base.tests, "code", "s", base.meta),
        Problem("i", "q", "1", base.tests, "code", "s", base.meta),
        Problem("i", "p", "2", base.tests, "code", "s", base.meta),
        Problem("i", "p", "1", (), "code", "s", base.meta),
        Problem("i", "p", "1", base.tests, "math", "s", base.meta),
        Problem("i", "p", "1", base.tests, "code", "t", base.meta),
        Problem("i", "p", "1", base.tests, "code", "s", {}),
    ]
    assert len({fingerprint([p]) for p in [base, *changed]}) == 8
    assert fingerprint([base, changed[0]]) != fingerprint([changed[0], base])


def test_overlong_prompts_are_dropped_with_a_count_or_refused():
    problems = [Problem(str(i), "p") for i in range(3)]
    assert filter_overlong(problems, [5, 3353, 2560], 2560, "drop") == ([problems[0], problems[2]], 1)
    assert filter_overlong(problems, [5, 5, 5], 5, "refuse") == (problems, 0)
    with pytest.raises(DataError, match=r"at most 2560 tokens, found 1 longer: 1 \(3353 tokens\)"):
        filter_overlong(problems, [5, 3353, 2560], 2560, "refuse")
    with pytest.raises(DataError, match=r"found none among 3 \(shortest 5 tokens\)"):
        filter_overlong(problems, [5, 5, 5], 4, "drop")


def test_shared_prompts_pairs_the_ids():
    assert shared_prompts(
        [Problem("a", "x y"), Problem("b", "z")], [Problem("c", "x  y"), Problem("d", "w")]
    ) == [("a", "c")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "path: needed by source: file"),
        ({"source": "procedural"}, "tasks: needed by source: procedural"),
        ({"path": "a.jsonl", "hub": "x/y"}, "hub: not used by source: file"),
        ({"path": "a.csv"}, "path: expected a file that ends in .jsonl or .json or .parquet"),
        ({"path": "a.jsonl", "template": "Q"}, "template: expected text that holds {prompt}"),
        ({"path": "a.jsonl", "limit": 0}, "greater than 0"),
    ],
)
def test_incomplete_configs_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        DataConfig(**settings)


def test_real_files_load(shared_data):
    assert len(load(shared_data("gsm8k_train.jsonl"))) == 7473
    first = load(shared_data("svamp.jsonl"))[0]
    assert (first.id, first.answer, first.source) == ("svamp-chal-1", "51", "svamp")
    assert load(shared_data("humaneval.jsonl"))[0].domain == "code"
