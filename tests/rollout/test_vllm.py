"""Real vLLM, in an environment of its own: ``ARCHER_VLLM_PYTHON`` is its interpreter (scripts/vllm-env.sh makes it)."""

import json
import os
import socket
import subprocess
import time
import urllib.request
from itertools import chain
from pathlib import Path

import pytest

PYTHON = os.environ.get("ARCHER_VLLM_PYTHON")
HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not PYTHON, reason="set ARCHER_VLLM_PYTHON to an interpreter with vLLM (docs/VLLM.md)"
    ),
]


def environment():
    return os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src"), "VLLM_LOGGING_LEVEL": "WARNING"}


def check(*arguments):
    done = subprocess.run(
        [PYTHON, str(HERE / "vllm_checks.py"), *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(Path(arguments[1]).read_text())


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A random model whose heads vLLM's CPU kernels accept, with steep logits so that greedy has no ties."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    folder = str(tmp_path_factory.mktemp("model"))
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "head_dim": 32,
        "vocab_size": 109,
    }
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
    ids = {"eos_token_id": 2, "bos_token_id": None, "pad_token_id": None}
    config = Qwen3Config(**sizes, **heads, **ids, max_position_embeddings=256, initializer_range=0.3)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({str(i): i for i in range(109)}, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="2").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def result(model, tmp_path_factory):
    return check(model, tmp_path_factory.mktemp("engine") / "result.json", "engine")


def ids(groups):
    return [[r["ids"] for r in group] for group in groups]


@pytest.mark.parametrize("when", ["before", "after"])
def test_greedy_is_the_local_engines(result, when):
    found = result[when]
    assert ids(found["greedy"]) == ids(found["local"])
    for ours, theirs in zip(chain(*found["local"]), chain(*found["greedy"]), strict=True):
        assert theirs["logp"] == pytest.approx(ours["logp"], abs=1e-4)
        assert [theirs[k] for k in ("finish", "text", "key", "sample")] == [
            ours[k] for k in ("finish", "text", "key", "sample")
        ]
        assert theirs["entropy"] == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_log_probabilities_are_the_trainers_at_the_temperature(result, when):
    assert len(result[when]["gaps"]) > 50
    assert max(result[when]["gaps"]) < 1e-4


def test_streams_depend_on_seed_key_and_sample_alone(result):
    before = result["before"]
    assert ids(before["warm"]) == ids(before["again"])
    assert ids(before["alone"]) == ids(before["warm"])[1:2]
    assert ids(before["other_seed"]) != ids(before["warm"])
    assert len({tuple(x) for x in ids(before["warm"])[1]}) == 3
    assert sorted(map(tuple, before["finished"])) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0)]


def test_pushed_weights_are_used_and_named(result):
    before, after = result["before"], result["after"]
    assert ids(before["greedy"]) != ids(after["greedy"])
    for found, version in ((before, 0), (after, 1)):
        assert {r["version"] for group in found["warm"] for r in group} == {version}
    [old] = {r["weights"] for group in before["warm"] for r in group}
    [new] = {r["weights"] for group in after["warm"] for r in group}
    assert len(old) == len(new) == 16
    assert old != new


def test_a_push_that_does_not_arrive_is_noticed(result):
    assert "version 2" in result["lost_push"]
    assert "parameters in vLLM differ" in result["lost_push"]


def test_two_training_steps(result):
    lines, rollouts = result["training"]["lines"], result["training"]["rollouts"]
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert line["engine/logp_gap"] < 1e-4
        assert line["engine/ratio_max"] == pytest.approx(1, abs=1e-3)
        assert line["ratio/first_mismatch"] < 1e-5
        assert line["optim/updates"] == 2
        assert line["optim/grad_norm"] > 0
    assert {(step, version) for step, version, *_ in rollouts} == {(1, 0), (2, 2)}
    assert len({weights for _, _, weights, _ in rollouts}) == 2
    assert [row[3] for row in rollouts] == result["training"]["lengths"]


def test_server(model, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--max-model-len", "64", "--max-num-seqs", "8", "--enforce-eager", "--dtype", "float32"]
    options += ["--logprobs-mode", "processed_logprobs", "--gpu-memory-utilization", "0.1"]
    options += ["--kv-cache-memory-bytes", str(2**28), "--host", "127.0.0.1", "--port", str(port)]
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", model, *options]
    settings = environment() | {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    log = tmp_path / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(command, env=settings, stdout=out, stderr=out)
    try:
        url = f"http://127.0.0.1:{port}/v1"
        wait_for(url, server, log)
        found = check(model, tmp_path / "result.json", "server", url)
    finally:
        server.terminate()
        server.wait(60)
    assert ids(found["greedy"]) == ids(found["local"])
    assert ids(found["warm"]) == ids(found["again"])
    assert max(found["gaps"]) < 1e-4
    assert len({tuple(x) for x in ids(found["warm"])[1]}) == 3


def wait_for(url, server, log):
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/models", timeout=5).read()
            return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])
