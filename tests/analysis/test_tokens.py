"""Packing and sampling of token data for the viewer."""

import base64
import gzip
import json
from functools import partial

import numpy as np
import pytest

from archer.analysis.tokens import ABOVE, BELOW, MISSING, OUTWARD, REASONING, collect


def unpack(chunk):
    """A chunk's header and columns, read as the page reads them."""
    body = gzip.decompress(base64.b64decode(chunk))
    size = int.from_bytes(body[:4], "little")
    header = json.loads(body[4 : 4 + size])
    total, offset, columns = sum(header["lengths"]), 4 + size, {}
    names = [("ids", "<u4"), ("entropy", "<u2"), ("surprise", "<u2"), ("reference", "<i2"), ("update", "<i2")]
    names += [(f"earlier:{name}", "<i2") for name in header["earlier"]] + [("flags", "u1")]
    for name, kind in names:
        columns[name] = np.frombuffer(body, kind, total, offset)
        offset += columns[name].nbytes
    assert offset == len(body)
    return header, columns


def joined(rows, name):
    return np.concatenate([row[name] for row in rows])


def rows_of(run, step, group):
    file = dict(run.rollout_files())[step]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row for row in rows if row["group"] == group]


def test_a_chunk_holds_the_records_to_its_resolution(make_run):
    run = make_run(steps=10, every=10)
    _, data = collect(run, 10**9)
    assert len(data.groups) == 6
    for packed in data.groups:
        header, columns = unpack(packed.chunk)
        rows = rows_of(run, 10, packed.summaries[0].group)
        flat = partial(joined, rows)
        assert [header["vocabulary"][i] for i in columns["ids"]] == [t for row in rows for t in row["tokens"]]
        assert header["prompt"] == rows[0]["prompt"]
        assert header["texts"] == [None] * len(rows)
        np.testing.assert_allclose(columns["entropy"] / 1000, flat("entropy"), atol=5.1e-4)
        np.testing.assert_allclose(-(columns["surprise"] / 1000), flat("logp"), atol=5.1e-4)
        np.testing.assert_allclose(columns["reference"] / 1000, flat("logp") - flat("ref_logp"), atol=5.1e-4)
        if rows[0]["ratio"] is None:
            assert (columns["update"] == MISSING).all()
            assert header["clipping"] == [False] * len(rows)
            continue
        np.testing.assert_allclose(columns["update"] / 2000, np.log(flat("ratio")), atol=2.6e-4)
        reasoning = flat("reasoning")
        state = flat("clip")
        sign = np.concatenate([np.full(len(row["tokens"]), np.sign(row["advantage"])) for row in rows])
        np.testing.assert_array_equal(columns["flags"] & REASONING > 0, reasoning)
        np.testing.assert_array_equal(columns["flags"] & ABOVE > 0, state == 1)
        np.testing.assert_array_equal(columns["flags"] & BELOW > 0, state == -1)
        np.testing.assert_array_equal(columns["flags"] & OUTWARD > 0, state * sign > 0)


def test_what_a_run_did_not_record_is_missing(make_run):
    run = make_run(steps=10, every=10, reference=False, groups=1, size=1)
    file = run.rollout_files()[0][1]
    row = json.loads(file.read_text()) | {"reasoning": None, "text": "not the tokens joined"}
    row["logp"][0] = -200.0
    file.write_text(json.dumps(row) + "\n")
    _, data = collect(run, 10**9)
    header, columns = unpack(data.groups[0].chunk)
    assert (columns["reference"] == MISSING).all()
    assert columns["surprise"][0] == 65535
    assert header["roles"] == [False]
    assert header["texts"] == ["not the tokens joined"]


def test_the_exact_text_is_kept_only_where_the_tokens_do_not_show_it(make_run):
    run = make_run(steps=10, every=10, groups=1, size=3)
    file = run.rollout_files()[0][1]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[0]["text"] = "".join(rows[0]["tokens"][:-1])
    rows[1]["text"] = "\U0001f600"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, data = collect(run, 10**9)
    header, _ = unpack(data.groups[0].chunk)
    assert header["texts"] == [None, "\U0001f600", None], "an end-of-sequence token is no part of the text"


def test_earlier_checkpoints_have_columns_of_their_own(make_run):
    run = make_run(steps=10, every=10, groups=1, size=2)
    row = rows_of(run, 10, 0)[1]
    folder = run.path / "rescored" / "step_000002"
    folder.mkdir(parents=True)
    line = {"step": 10, "group": 0, "sample": 1, "logp": [value - 0.25 for value in row["logp"]]}
    (folder / "step_000010.jsonl").write_text(json.dumps(line) + "\n")
    _, data = collect(run, 10**9)
    header, columns = unpack(data.groups[0].chunk)
    first = header["lengths"][0]
    assert (columns["earlier:step_000002"][:first] == MISSING).all()
    assert (columns["earlier:step_000002"][first:] == 250).all()
    assert data.scales()["earlier:step_000002"] == pytest.approx(0.25)


@pytest.mark.parametrize("budget", [1, 500, 3000, 10**9])
def test_sampling_keeps_whole_groups_within_its_budget_and_says_so(make_run, budget):
    run = make_run(steps=40, every=5, groups=6, size=4)
    scan, data = collect(run, budget)
    largest = max(sum(s.length for s in packed.summaries) for packed in data.groups)
    embedded = sum(s.length for packed in data.groups for s in packed.summaries)
    stored = sum(s.length for s in scan.summaries)
    assert data.stored_tokens == stored
    assert len(scan.summaries) == data.stored_responses == 8 * 24
    assert embedded <= budget + largest
    assert all(len(packed.summaries) == 4 for packed in data.groups), "groups stay whole"
    assert data.groups[0].summaries[0].step == 40, "the last step is always there"
    if budget > stored:
        assert data.sampling() == f"All 192 stored responses ({stored:,} tokens) are here."
    else:
        assert data.sampling().startswith(
            f"{4 * len(data.groups):,} of 192 stored responses ({embedded:,} of {stored:,}"
        )
        if budget == 3000:
            assert len({packed.summaries[0].step for packed in data.groups}) >= 4, "spread over the steps"


def test_the_extremes_of_a_sampled_step_come_first(make_run):
    run = make_run(steps=10, every=10, groups=6, size=4)
    scan, data = collect(run, 700)
    step = [s for s in scan.summaries if s.step == 10]
    kept = {packed.summaries[0].group for packed in data.groups}
    assert max(step, key=lambda s: s.kl_max).group in kept
    assert max(step, key=lambda s: s.repetition).group in kept
    assert len(kept) < 6
