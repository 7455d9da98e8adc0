"""What the loop does with an engine that is not the trainer itself."""

import json
from dataclasses import replace

import pytest

from archer.errors import ConfigError, EngineError
from archer.rollout.local import LocalSampler
from archer.train import setup


class OtherEngine(LocalSampler):
    """Log-probabilities 0.1 nats too high at every second token, and no entropies, as from another program."""

    stale = False

    def sample(self, requests, config, *, seed, on_finish=None):
        def changed(rollout):
            logp = tuple(value + 0.1 * (i % 2) for i, value in enumerate(rollout.logp))
            return replace(rollout, logp=logp, entropy=(), weights=f"sum{self.policy_version}")

        def finish(index, rollout):
            if on_finish is not None:
                on_finish(index, changed(rollout))

        groups = super().sample(requests, config, seed=seed, on_finish=finish)
        return [[changed(rollout) for rollout in group] for group in groups]

    def sync(self, version):
        if not self.stale:
            super().sync(version)


def run(config, monkeypatch, engine=OtherEngine):
    monkeypatch.setattr(setup, "build_sampler", lambda config, policy, longest: engine(policy, 16))
    lines = []
    folder, _ = setup.train(config, resume=False, report=lines.append)
    return folder, lines


def test_mismatch_is_measured_and_corrected(run_config, monkeypatch, scorer):
    settings = {"rollout__engine": "vllm", "train__importance_limit": 0.95, "train__eval_every": 0}
    folder, lines = run(run_config(**settings), monkeypatch)
    for line in lines:
        # Half of the tokens, a little less where lengths are odd, are off by 0.1 nats.
        assert 0.035 < line["engine/logp_gap"] <= 0.0501
        assert line["engine/ratio_max"] == pytest.approx(1, abs=1e-4)
        assert line["ratio/first_mismatch"] < 1e-5
        assert 0.5 <= line["engine/truncated_share"] < 0.65
    rows = [json.loads(x) for x in (folder / "rollouts" / "step_000002.jsonl").read_text().splitlines()]
    for row in rows:
        assert row["weights"] == "sum2"
        assert row["policy_version"] == 2
        assert len(row["entropy"]) == len(row["token_ids"])
        assert max(row["entropy"]) > 0
        for i, weight in enumerate(row["weight"]):
            assert weight == pytest.approx(0.95 if i % 2 == 0 else 0.904837, abs=1e-4)
        assert row["logp"][1::2] == pytest.approx([x + 0.1 for x in row["old_logp"][1::2]], abs=1e-4)


def test_without_a_limit_the_engine_changes_nothing(run_config, monkeypatch, scorer):
    """Recomputed values replace the engine's, so training is that of the local engine with recomputation."""
    _, with_other = run(run_config(name="other", rollout__engine="vllm"), monkeypatch)
    _, local = run(run_config(name="local", train__old_logps="recompute"), monkeypatch, LocalSampler)
    for a, b in zip(with_other, local, strict=True):
        assert a.get("optim/loss") == b.get("optim/loss")
        assert a.get("optim/grad_norm") == b.get("optim/grad_norm")
        assert a.get("eval/avg@2") == b.get("eval/avg@2")


def test_samples_of_other_weights_stop_the_run(run_config, monkeypatch, scorer):
    stale = type("Stale", (OtherEngine,), {"stale": True})
    with pytest.raises(EngineError, match=r"weights of version 0; expected 2"):
        run(run_config(rollout__engine="vllm"), monkeypatch, stale)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rollout__engine": "server"}, "rollout.engine"),
        ({"rollout__engine": "vllm", "train__old_logps": "sampler"}, "train.old_logps"),
        ({"train__importance_limit": 2.0}, "train.importance_limit"),
        ({"rollout__vllm": {"eager": True}}, "belongs to engine: vllm"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_at_the_start(run_config, settings, message):
    with pytest.raises(ConfigError, match=message):
        run_config(**settings)
