"""A rollout server around a Hugging Face model; every weight update is logged with what it changed."""

import json
import os

import ray
import torch
from verl.workers.rollout import base
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

NAME = "hf_cpu"


class Server:
    def __init__(self, path, limit, seed):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.end = AutoTokenizer.from_pretrained(path).eos_token_id
        self.limit, self.version, self.updates = limit, 0, 0
        self.generator = torch.Generator().manual_seed(seed)

    async def generate(self, prompt_ids, sampling_params, request_id, **_):
        # torch.no_grad as a decorator would hide from Ray that this is a coroutine.
        with torch.no_grad():
            return self._sampled(prompt_ids, sampling_params)

    def _sampled(self, prompt_ids, sampling_params):
        temperature = float(sampling_params.get("temperature", 1.0))
        limit = int(sampling_params.get("max_tokens", self.limit))
        ids, past, tokens, logps = torch.tensor([list(prompt_ids)]), None, [], []
        while len(tokens) < limit and (not tokens or tokens[-1] != self.end):
            out = self.model(input_ids=ids, past_key_values=past, use_cache=True)
            past = out.past_key_values
            logp = torch.log_softmax(out.logits[0, -1].float() / (temperature or 1.0), -1)
            token = (
                torch.multinomial(logp.exp(), 1, generator=self.generator) if temperature else logp.argmax()
            )
            tokens.append(int(token))
            logps.append(float(logp[int(token)]))
            ids = torch.tensor([[tokens[-1]]])
        return TokenOutput(
            token_ids=tokens,
            log_probs=logps if sampling_params.get("logprobs") else None,
            stop_reason="completed",
            extra_fields={"global_steps": self.version},
        )

    async def load(self, weights, step):
        own = self.model.state_dict()
        lacking = {name for name in own if name not in weights} - {"lm_head.weight"}
        if lacking:
            raise ValueError(f"weights without {sorted(lacking)}")
        change = sum(float((own[n] - w.to(own[n])).abs().sum()) for n, w in weights.items() if n in own)
        self.model.load_state_dict({n: w for n, w in weights.items() if n in own}, strict=False)
        self.updates, self.version = self.updates + 1, self.version if step is None else step
        line = {"update": self.updates, "step": self.version, "change": change}
        with open(os.environ["VERL_CPU_WEIGHT_LOG"], "a") as file:
            file.write(json.dumps(line) + "\n")

    async def _nothing(self, *_, **__):
        return None

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = _nothing
    abort_all_requests = resume_generation = start_profile = stop_profile = set_global_steps = _nothing


class Replica(RolloutReplica):
    async def launch_servers(self):
        name = f"{NAME}_{self.replica_rank}"
        seed = int(self.config.seed or 0) + self.replica_rank
        options = {"name": name, "num_cpus": 0, "max_concurrency": 4}
        server = (
            ray.remote(Server)
            .options(**options)
            .remote(self.model_config.path, self.config.response_length, seed)
        )
        self.servers, self._server_handle, self._server_address = [server], server, f"{name}:0"


class Adapter(BaseRollout):
    def __init__(self, config, model_config, device_mesh, replica_rank=-1):
        super().__init__(config, model_config, device_mesh)
        self.rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank

    async def resume(self, tags):
        return None

    async def release(self):
        return None

    async def update_weights(self, weights, wire_format="named_tensors", global_steps=None, **_):
        held = {name: weight.detach().cpu().clone() for name, weight in weights}
        await ray.get_actor(f"{NAME}_{self.rank}").load.remote(held, global_steps)


RolloutReplicaRegistry.register(NAME, lambda: Replica)
base._ROLLOUT_REGISTRY[(NAME, "async")] = "verl_cpu.rollout.Adapter"
