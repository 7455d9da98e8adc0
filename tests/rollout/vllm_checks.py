"""Runs in an environment with vLLM: writes what ``test_vllm.py`` looks at to a JSON file.

python vllm_checks.py MODEL_FOLDER OUTPUT.json engine | server URL
"""

import json
import sys
from pathlib import Path

import torch

from archer.configs.engine import EngineConfig, ServerConfig
from archer.configs.loading import build_config
from archer.configs.policy import PolicyConfig
from archer.configs.rollout import SamplingConfig
from archer.configs.run import RunConfig
from archer.policy.model import Policy
from archer.rollout.engines import build_sampler
from archer.rollout.local import LocalSampler
from archer.rollout.sampler import SampleRequest
from archer.rollout.vllm import VllmSampler
from archer.train.setup import train

REQUESTS = [
    SampleRequest("a", (3, 4, 5), 2),
    SampleRequest("b", tuple(range(10, 20)), 3),
    SampleRequest("c", (7,), 1),
]
GREEDY = SamplingConfig(temperature=0, max_response_tokens=20)
WARM = SamplingConfig(temperature=0.7, max_response_tokens=20)
ENGINE = {"engine": "vllm", "max_batch": 8, "vllm": {"eager": True, "cache_gb": 0.25, "memory_share": 0.1}}


def plain(groups):
    return [
        [
            {
                "ids": r.token_ids,
                "logp": r.logp,
                "version": r.policy_version,
                "weights": r.weights,
                "key": r.key,
            }
            | {"finish": r.finish_reason, "text": r.text, "sample": r.sample, "entropy": r.entropy}
            for r in group
        ]
        for group in groups
    ]


def gaps(policy, groups, temperature):
    """Absolute differences between the engine's log-probabilities and the trainer's."""
    found = []
    for rollout in (r for group in groups for r in group):
        with policy.evaluating():
            logp_BT, _ = policy.logps([(rollout.prompt_ids, rollout.token_ids)], temperature)
        found += (logp_BT[0] - torch.tensor(rollout.logp)).abs().tolist()
    return found


def engine(folder, output):
    policy = Policy(PolicyConfig(model=folder))
    sampler = build_sampler(EngineConfig(**ENGINE), policy, 64)
    local = LocalSampler(policy, 8)
    result = {}

    def both(name):
        finished = []
        warm = sampler.sample(REQUESTS, WARM, seed=5, on_finish=lambda i, r: finished.append((i, r.sample)))
        result[name] = {
            "greedy": plain(sampler.sample(REQUESTS, GREEDY, seed=5)),
            "local": plain(local.sample(REQUESTS, GREEDY, seed=5)),
            "warm": plain(warm),
            "again": plain(sampler.sample(REQUESTS, WARM, seed=5)),
            "alone": plain(sampler.sample(REQUESTS[1:2], WARM, seed=5)),
            "other_seed": plain(sampler.sample(REQUESTS, WARM, seed=6)),
            "gaps": gaps(policy, warm, 0.7),
            "finished": finished,
        }

    both("before")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    local.sync(1)
    sampler.sync(1)
    both("after")
    # Half of the weights never arrive: the push must be noticed.
    reload = sampler._llm.collective_rpc
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.mul_(1.1)
    sampler._llm.collective_rpc = lambda method, **kwargs: (
        None if method == "reload_weights" else reload(method, **kwargs)
    )
    try:
        sampler.sync(2)
    except RuntimeError as error:
        result["lost_push"] = str(error)
    sampler._llm.collective_rpc = reload
    result["training"] = training(folder, output.parent, sampler._llm)
    output.write_text(json.dumps(result))


def training(folder, place, llm):
    """Two steps with the engine that runs already: a second one in the process would only cost time."""
    from archer.train import setup

    data, reward = place / "problems.jsonl", place / "reward.py"
    rows = [{"id": f"p{i}", "prompt": f"{i + 3} {i + 5}", "answer": str(i)} for i in range(8)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reward.write_text("def score(problem, text):\n    return float(len(text) % 2)\n")
    setup.build_sampler = lambda config, policy, longest: VllmSampler(
        llm, policy.tokenizer, policy.eos_ids, policy
    )
    values = {
        "name": "vllm",
        "output": str(place),
        "policy": {"model": folder},
        "data": {"path": str(data)},
        "rollout": {**ENGINE, "group_size": 4, "max_prompt_tokens": 16, "max_response_tokens": 12},
        "optimizer": {"learning_rate": 1e-3, "warmup_updates": 1},
        "reward": {"kind": "custom", "function": f"{reward}:score"},
        "train": {
            "steps": 2,
            "prompts_per_step": 4,
            "mini_batch_prompts": 2,
            "eval_every": 0,
            "rollout_log_every": 1,
        }
        | {"importance_limit": 2.0},
    }
    lines = []
    run, _ = train(build_config(RunConfig, values, where="checks"), resume=False, report=lines.append)
    stored = [
        json.loads(x)
        for n in (1, 2)
        for x in (run / f"rollouts/step_00000{n}.jsonl").read_text().splitlines()
    ]
    seen = [[row["step"], row["policy_version"], row["weights"], len(row["entropy"])] for row in stored]
    return {"lines": lines, "rollouts": seen, "lengths": [len(row["token_ids"]) for row in stored]}


def server(folder, output, url):
    policy = Policy(PolicyConfig(model=folder))
    config = EngineConfig(engine="server", max_batch=4, server=ServerConfig(base_url=url))
    sampler = build_sampler(config, policy.config, 64)
    warm = sampler.sample(REQUESTS, WARM, seed=5)
    result = {
        "greedy": plain(sampler.sample(REQUESTS, GREEDY, seed=5)),
        "local": plain(LocalSampler(policy, 8).sample(REQUESTS, GREEDY, seed=5)),
        "warm": plain(warm),
        "again": plain(sampler.sample(REQUESTS, WARM, seed=5)),
        "gaps": gaps(policy, warm, 0.7),
    }
    output.write_text(json.dumps(result))


if __name__ == "__main__":
    folder, output, kind, *rest = sys.argv[1:]
    {"engine": engine, "server": server}[kind](folder, Path(output), *rest)
