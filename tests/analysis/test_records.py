"""Reading run directories, whole, torn, resumed and damaged."""

import json

import numpy as np
import pytest

from archer.analysis import load_run
from archer.analysis.records import count_tokens
from archer.errors import DataError


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def test_a_run_is_read_as_it_was_written(make_run):
    run = make_run(steps=20, every=10, groups=3, size=2)
    assert [row["step"] for row in run.metrics] == list(range(21))
    assert run.config["objective"]["rho"] == 0.8
    assert run.environment["device"] == "cpu"
    assert [step for step, _ in run.rollout_files()] == [10, 20]
    assert run.notes == []
    file = run.rollout_files()[0][1]
    written = [json.loads(line) for line in file.read_text().splitlines()]
    responses, _ = run.responses(file)
    assert len(responses) == 6
    for row, response in zip(written, responses, strict=True):
        assert list(response.tokens) == row["tokens"]
        np.testing.assert_array_equal(response.logp, row["logp"])
        np.testing.assert_array_equal(response.entropy, row["entropy"])
        np.testing.assert_array_equal(response.reasoning, row["reasoning"])
        assert (response.ratio is None) == (row["ratio"] is None)
        assert response.reward == row["reward"]
        assert response.truncated == (row["finish_reason"] == "length")
    assert count_tokens(file) == sum(len(row["token_ids"]) for row in written)


def test_a_run_that_has_only_started_is_read(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    run = load_run(tmp_path)
    assert (run.metrics, run.events, run.config, run.rollout_files()) == ([], [], {}, [])


def test_a_torn_last_line_is_skipped_and_told(make_run):
    path = make_run(steps=5).path
    append(path / "metrics.jsonl", '{"step": 6, "reward/me')
    run = load_run(path)
    assert run.metrics[-1]["step"] == 5
    assert "line 7 is incomplete" in run.notes[0]


def test_steps_repeated_by_a_resume_use_the_last_row(make_run):
    path = make_run(steps=5).path
    append(path / "metrics.jsonl", '{"step": 4, "reward/mean": 0.25}\n{"step": 5, "reward/mean": 0.75}\n')
    run = load_run(path)
    assert [row["step"] for row in run.metrics] == [0, 1, 2, 3, 4, 5]
    assert [row["reward/mean"] for row in run.metrics[4:]] == [0.25, 0.75]
    assert "2 rows repeat a step" in run.notes[0]


@pytest.mark.parametrize("glue", ["", "\n"], ids=["glued", "own line"])
def test_a_line_torn_by_a_kill_before_a_resume_is_skipped(make_run, glue):
    path = make_run(steps=5).path
    append(path / "metrics.jsonl", '{"step": 6, "reward/me' + glue + '{"step": 4, "reward/mean": 0.25}\n')
    run = load_run(path)
    assert run.metrics[4]["reward/mean"] == 0.25
    assert any("line 7 is incomplete" in note for note in run.notes)


def test_a_damaged_line_in_the_middle_is_an_error_with_its_place(make_run):
    path = make_run(steps=5).path
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    lines[2] = "{broken\n"
    (path / "metrics.jsonl").write_text("".join(lines))
    with pytest.raises(DataError, match=r"metrics\.jsonl:3: expected one JSON object"):
        load_run(path)


def test_a_row_without_a_step_names_the_field(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"reward/mean": 1}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:1: expected field 'step', found reward/mean"):
        load_run(tmp_path)


def test_lists_of_different_length_name_the_field(make_run):
    run = make_run(steps=10, every=10)
    file = run.rollout_files()[0][1]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[1]["entropy"].pop()
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        DataError, match=rf"step_000010\.jsonl:2: expected {len(rows[1]['tokens'])} values in field 'entropy'"
    ):
        run.responses(file)


def test_a_torn_rollout_file_keeps_its_whole_lines_and_a_damaged_one_does_not(make_run):
    run = make_run(steps=10, every=10, groups=2, size=2)
    file = run.rollout_files()[0][1]
    text = file.read_text()
    file.write_text(text[:-50])
    responses, notes = run.responses(file)
    assert len(responses) == 3
    assert "line 4 is incomplete" in notes[0]
    file.write_text(text.replace('{"step"', '{"step', 1))
    with pytest.raises(DataError, match=r"step_000010\.jsonl:1"):
        run.responses(file)


@pytest.mark.parametrize(
    ("setup", "found"),
    [
        (lambda p: None, "found nothing at"),
        (lambda p: p.mkdir(), "found a folder holding nothing at"),
        (lambda p: p.write_text("x"), "found a file at"),
    ],
)
def test_what_is_not_a_run_is_told_with_what_was_found(tmp_path, setup, found):
    path = tmp_path / "thing"
    setup(path)
    with pytest.raises(DataError, match=found):
        load_run(path)


def test_an_unscorable_response_has_no_advantage(make_run):
    run = make_run(steps=10, every=10)
    file = run.rollout_files()[0][1]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[0]["advantage"] = float("nan")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run.responses(file)[0][0].advantage is None


def test_log_probabilities_under_other_checkpoints_join_their_responses(make_run):
    run = make_run(steps=10, every=10, groups=2, size=2)
    file = run.rollout_files()[0][1]
    row = json.loads(file.read_text().splitlines()[1])
    folder = run.path / "rescored" / "step_000005"
    folder.mkdir(parents=True)
    logp = [value - 0.5 for value in row["logp"]]
    line = {"step": 10, "group": row["group"], "sample": row["sample"], "logp": logp}
    (folder / file.name).write_text(json.dumps(line) + "\n")
    responses, _ = run.responses(file)
    np.testing.assert_array_equal(responses[1].earlier["step_000005"], logp)
    assert responses[0].earlier == {}


def test_evaluation_records_are_grouped_by_step(make_run):
    run = make_run(steps=10)
    evaluations = run.evaluations()
    assert {step: len(rows) for step, rows in evaluations.items()} == {0: 480, 10: 480}
