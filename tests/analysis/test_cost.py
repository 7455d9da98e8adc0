"""What a run cost, from its records."""

import json

import pytest

from archer.analysis import load_run
from archer.analysis.cost import cost_of, cost_table


def make(tmp_path, name, steps, cuda=None):
    folder = tmp_path / name
    folder.mkdir()
    lines = [{"step": 0, "time": 0.0, "time/evaluate": 360.0}]
    lines += [
        {"step": n, "time": 1.0, "time/step": 1800.0, "tokens/sampled": 1000, "tokens/trained": 900}
        for n in range(1, steps + 1)
    ]
    lines.append(dict(lines[-1]))  # a step that a resumed run wrote again
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "environment.json").write_text(json.dumps({"cuda": cuda, "cores": 2}))
    return load_run(folder)


def test_hours_and_tokens_of_a_run(tmp_path):
    cost = cost_of(make(tmp_path, "one", 4))
    assert (cost.steps, cost.stages, cost.device) == (4, 1, "CPU, 2 cores")
    assert cost.step_hours == pytest.approx(2.0)
    assert cost.evaluation_hours == pytest.approx(0.1)
    assert cost.device_hours == pytest.approx(2.1)
    assert (cost.sampled, cost.trained) == (4000, 3600)


def test_stages_are_summed(tmp_path):
    table = cost_table([make(tmp_path, "one", 4), make(tmp_path, "two", 2, cuda="NVIDIA H200")])
    assert "| two | 2 | 1 | NVIDIA H200 | 1.1 | 0.1 | 2,000 | 1,800 |" in table
    assert "| all stages | 6 | 2 | CPU, 2 cores, NVIDIA H200 | 3.2 | 0.2 | 6,000 | 5,400 |" in table
