"""The server engine against a server of our own that answers with the local engine."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import ValidationError

from archer.configs.engine import EngineConfig, ServerConfig
from archer.configs.policy import PolicyConfig
from archer.configs.rollout import SamplingConfig
from archer.errors import ConfigError, EngineError
from archer.policy.model import Policy
from archer.rollout.engines import build_sampler
from archer.rollout.local import LocalSampler
from archer.rollout.sampler import SampleRequest, stream_seed

REQUESTS = [SampleRequest("a", (3, 4, 5), 3), SampleRequest("b", (7, 8), 2)]
SAMPLING = SamplingConfig(temperature=0.9, max_response_tokens=10)


class Handler(BaseHTTPRequestHandler):
    """Answers a completion with the local engine; ``server.faults`` are given away first."""

    def log_message(self, *args):
        """Say nothing."""

    def do_GET(self):
        self.answer(200, {"data": [{"id": "tiny"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append((body, dict(self.headers)))
            fault = self.server.faults.pop(0) if self.server.faults else None
            if fault is None:
                config = SamplingConfig(
                    temperature=body["temperature"], max_response_tokens=body["max_tokens"]
                )
                request = SampleRequest("x", tuple(body["prompt"]))
                [[rollout]] = self.server.sampler.sample([request], config, seed=body["seed"])
        if fault is None:
            self.answer(200, self.choice(rollout))
        elif fault == "drop":
            self.close_connection = True
        else:
            self.answer(*fault)

    def choice(self, rollout):
        choice = {
            "token_ids": rollout.token_ids,
            "logprobs": {"token_logprobs": rollout.logp},
            "finish_reason": rollout.finish_reason,
            "text": "not used",
        }
        return {"choices": [choice]}

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def server(tiny_model):
    here = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here.lock, here.bodies, here.faults = threading.Lock(), [], []
    here.sampler = LocalSampler(Policy(PolicyConfig(model=tiny_model())), 4)
    thread = threading.Thread(target=here.serve_forever, args=(0.01,))
    thread.start()
    yield here
    here.shutdown()
    thread.join()
    here.server_close()


@pytest.fixture
def connect(server, tiny_model):
    def make(max_batch=4, **settings):
        values = {"model": "tiny", "retries": 2, "retry_wait": 0, **settings}
        config = ServerConfig(base_url=f"http://127.0.0.1:{server.server_port}/v1", **values)
        engine = EngineConfig(engine="server", max_batch=max_batch, server=config)
        return build_sampler(engine, PolicyConfig(model=tiny_model()), 64)

    return make


def expected(server):
    """What the server samples for each response's own seed."""
    found = []
    for request in REQUESTS:
        seeds = [stream_seed(1, request.key, number) for number in range(request.n)]
        one = SampleRequest("x", request.prompt_ids)
        found.append([server.sampler.sample([one], SAMPLING, seed=seed)[0][0] for seed in seeds])
    return found


@pytest.mark.parametrize("max_batch", [1, 4])
def test_order_seeds_ids_and_values(server, connect, max_batch):
    finished = []
    groups = connect(max_batch).sample(
        REQUESTS, SAMPLING, seed=1, on_finish=lambda i, r: finished.append((i, r))
    )
    for group, request, own in zip(groups, REQUESTS, expected(server), strict=True):
        assert [r.token_ids for r in group] == [r.token_ids for r in own]
        assert [r.logp for r in group] == [r.logp for r in own]
        assert [r.text for r in group] == [r.text for r in own]
        assert [r.finish_reason for r in group] == [r.finish_reason for r in own]
        assert [(r.key, r.sample, r.entropy) for r in group] == [
            (request.key, i, ()) for i in range(request.n)
        ]
    assert sorted((i, r.sample) for i, r in finished) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert len({body["seed"] for body, _ in server.bodies}) == 5
    assert all(2 in body["stop_token_ids"] and body["return_token_ids"] for body, _ in server.bodies)


def test_passing_faults_are_retried(server, connect):
    sampler = connect(1)
    server.faults = ["drop", (503, {"error": "busy"}), None]
    groups = sampler.sample(REQUESTS, SAMPLING, seed=1)
    assert [[r.token_ids for r in g] for g in groups] == [[r.token_ids for r in g] for g in expected(server)]
    assert len(server.bodies) == 5 + 2


def test_a_lasting_fault_ends_with_its_reason(server, connect):
    sampler = connect(1)
    server.faults = [(500, {"error": "out of memory"})] * 3
    with pytest.raises(EngineError, match=r"no answer in 3 attempts.*status 500.*out of memory"):
        sampler.sample(REQUESTS, SAMPLING, seed=1)


def test_a_refusal_is_not_retried(server, connect):
    sampler = connect(1)
    server.faults = [(400, {"error": "prompt too long"})]
    with pytest.raises(EngineError, match=r"status 400.*prompt too long"):
        sampler.sample(REQUESTS[:1], SAMPLING, seed=1)
    assert sum(body["seed"] == server.bodies[0][0]["seed"] for body, _ in server.bodies) == 1


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"text": "hi", "logprobs": {"token_logprobs": []}, "finish_reason": "stop"}, "token_ids"),
        ({"token_ids": [3], "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": "abort"}, "abort"),
        ({"token_ids": [3, 4], "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": "stop"}, "2 and 1"),
    ],
)
def test_answers_that_cannot_be_used(server, connect, choice, message):
    sampler = connect(1)
    server.faults = [(200, {"choices": [choice]})]
    with pytest.raises(EngineError, match=message):
        sampler.sample(REQUESTS, SAMPLING, seed=1)


def test_another_model_is_refused_at_the_start(connect):
    with pytest.raises(EngineError, match=r"serves tiny; expected other"):
        connect(model="other")


def test_no_server(tiny_model):
    config = ServerConfig(base_url="http://127.0.0.1:9/v1", retries=0)
    with pytest.raises(EngineError, match="no answer in 1 attempts"):
        build_sampler(EngineConfig(engine="server", server=config), PolicyConfig(model=tiny_model()), 64)


def test_key_is_sent_and_its_absence_named(server, connect, monkeypatch):
    monkeypatch.delenv("TINY_KEY", raising=False)
    with pytest.raises(ConfigError, match="TINY_KEY"):
        connect(api_key_env="TINY_KEY")
    monkeypatch.setenv("TINY_KEY", "secret")
    connect(api_key_env="TINY_KEY").sample(REQUESTS, SAMPLING, seed=1)
    assert server.bodies[0][1]["Authorization"] == "Bearer secret"


def test_weights_cannot_be_pushed(connect):
    with pytest.raises(EngineError, match="version 3"):
        connect().sync(3)


def test_settings_of_another_engine_are_refused():
    with pytest.raises(ValidationError, match="belongs to engine: server"):
        EngineConfig(engine="local", server=ServerConfig())
