"""Re-scored responses: the policy that sampled them finds their own probabilities again."""

import json

import numpy as np
import pytest

from archer.analysis import load_run
from archer.errors import CheckpointError, DataError
from archer.policy.model import Policy
from archer.train.rescore import rescore
from archer.train.setup import train


@pytest.fixture
def run(run_config, scorer):
    config = run_config(
        train__steps=3,
        train__checkpoint_every=1,
        train__keep_checkpoints=9,
        train__rollout_log_every=1,
        train__micro_batch_tokens=20,
        optimizer__warmup_updates=0,
    )
    folder, _ = train(config, resume=False, report=lambda line: None)
    return config, folder


def changes(folder, step, label):
    """Largest change of a log-probability since ``label``, over the stored responses of a step."""
    loaded = load_run(folder)
    responses, _ = loaded.responses(dict(loaded.rollout_files())[step])
    return max(float(np.abs(r.logp - r.earlier[label]).max()) for r in responses)


def test_the_checkpoint_that_sampled_a_step_gives_no_change(run):
    _, folder = run
    rescore(folder, "step_000001")
    assert changes(folder, 2, "step_000001") < 5e-5
    assert changes(folder, 3, "step_000001") > 1e-3


def test_values_are_those_of_the_policy_at_the_run_temperature(run):
    config, folder = run
    target = rescore(folder, config.policy.model, label="base")
    assert target == folder / "rescored" / "base"
    policy = Policy(config.policy)
    stored = [json.loads(line) for line in (folder / "rollouts" / "step_000003.jsonl").open()]
    rescored = [json.loads(line) for line in (target / "step_000003.jsonl").open()]
    assert [(r["group"], r["sample"]) for r in rescored] == [(r["group"], r["sample"]) for r in stored]
    for record, result in zip(stored, rescored, strict=True):
        with policy.evaluating():
            logp, entropy = policy.logps(
                [(record["prompt_ids"], record["token_ids"])], config.rollout.temperature
            )
        np.testing.assert_allclose(result["logp"], logp[0].tolist(), atol=2e-5)
        np.testing.assert_allclose(result["entropy"], entropy[0].tolist(), atol=2e-5)
    assert changes(folder, 1, "base") < 5e-5


def test_what_can_not_be_rescored_is_refused(run, tiny_model):
    _, folder = run
    with pytest.raises(CheckpointError, match="no checkpoint step_000009; it has step_000001"):
        rescore(folder, "step_000009")
    file = folder / "rollouts" / "step_000002.jsonl"
    rows = [json.loads(line) for line in file.open()]
    rows[0]["token_ids"][0] = 4000
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="token id beyond the model's 40"):
        rescore(folder, "step_000003")
    for stored in (folder / "rollouts").iterdir():
        stored.unlink()
    with pytest.raises(DataError, match="no rollouts are stored"):
        rescore(folder, "step_000003")
