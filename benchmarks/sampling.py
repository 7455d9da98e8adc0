"""Sampling: tokens a second of Archer's engine, ``generate``, transformers' continuous batching and vLLM.

Usage: python benchmarks/sampling.py [--model smollm2] [--prompts 1] [--per-prompt 64] [--prompt-tokens 72]
       [--tokens 128] [--repeats 3] [--vllm-python PYTHON] [--quick]

All peers load the same float32 folder, sample at temperature 1 from the whole vocabulary, and never stop before
the length limit. They run in turn, and the median counts. vLLM runs in its own environment, given by its python,
as one process that waits between its turns; without ``--vllm-python`` it is left out.
"""

import argparse
import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import torch
from common import MODELS, interleaved, machine, model_folder, quiet, random_prompts, scratch, seconds, table
from transformers import AutoModelForCausalLM, GenerationConfig

from archer.configs.policy import PolicyConfig
from archer.configs.rollout import SamplingConfig
from archer.policy.model import Policy
from archer.rollout.local import LocalSampler
from archer.rollout.sampler import SampleRequest


def archer_peer(folder, prompts, n, tokens):
    policy = Policy(PolicyConfig(model=folder, dtype="float32", device="cpu"))
    policy.eos_ids = frozenset()
    sampler = LocalSampler(policy, n * len(prompts))
    requests = [SampleRequest(str(i), prompt, n) for i, prompt in enumerate(prompts)]
    config = SamplingConfig(max_response_tokens=tokens)

    def run():
        groups = []
        taken = seconds(lambda: groups.extend(sampler.sample(requests, config, seed=0)))
        assert all(len(r.token_ids) == tokens for group in groups for r in group)
        return taken

    return run


def generate_peer(folder, prompts, n, tokens):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    ids = torch.tensor(prompts)

    def run():
        torch.manual_seed(0)
        found = []
        with torch.no_grad():
            taken = seconds(
                lambda: found.append(
                    model.generate(
                        ids,
                        attention_mask=torch.ones_like(ids),
                        do_sample=True,
                        temperature=1.0,
                        top_k=0,
                        top_p=1.0,
                        max_new_tokens=tokens,
                        num_return_sequences=n,
                        pad_token_id=0,
                    )
                )
            )
        assert found[0].shape == (len(prompts) * n, len(prompts[0]) + tokens)
        return taken

    return run


def continuous_peer(folder, prompts, n, tokens):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    config = GenerationConfig(
        max_new_tokens=tokens, do_sample=True, top_k=0, top_p=1.0, eos_token_id=-1, pad_token_id=0
    )
    inputs = [list(prompt) for prompt in prompts for _ in range(n)]

    def run():
        found = []
        with torch.no_grad():
            taken = seconds(lambda: found.append(model.generate_batch(inputs, generation_config=config)))
        assert sum(len(x.generated_tokens) for x in found[0].values()) == len(inputs) * tokens
        return taken

    return run


def vllm_peer(python, folder, prompts, n, tokens, stack):
    script = Path(__file__).with_name("vllm_peer.py")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    process = subprocess.Popen(
        [python, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )

    def stop():
        process.stdin.close()
        process.wait(timeout=60)

    stack.callback(stop)

    def ask(message):
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"vLLM in {python} ended without an answer")

    ask({"folder": folder, "prompts": prompts, "n": n, "tokens": tokens})

    def run():
        answer = ask({"run": True})
        assert answer["tokens"] == len(prompts) * n * tokens
        return answer["seconds"]

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--prompts", type=int, default=1)
    parser.add_argument("--per-prompt", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=72)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--vllm-python")
    parser.add_argument("--without", nargs="*", default=[], choices=["generate", "continuous"])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.per_prompt, options.tokens, options.repeats = 8, 8, 1
    quiet()
    print(machine())
    with ExitStack() as stack:
        folder = model_folder(options.model, stack.enter_context(scratch()))
        vocabulary = json.loads((Path(folder) / "config.json").read_text())["vocab_size"]
        prompts = random_prompts(options.prompts, options.prompt_tokens, vocabulary)
        n, tokens = options.per_prompt, options.tokens
        peers = {"archer": archer_peer(folder, prompts, n, tokens)}
        if "generate" not in options.without:
            peers["transformers generate"] = generate_peer(folder, prompts, n, tokens)
        if "continuous" not in options.without:
            peers["transformers continuous batching"] = continuous_peer(folder, prompts, n, tokens)
        if options.vllm_python:
            peers["vllm (cpu)"] = vllm_peer(options.vllm_python, folder, prompts, n, tokens, stack)
        print(
            f"{options.model}: {len(prompts)} x {n} sequences, {options.prompt_tokens} + {tokens} tokens, float32"
        )
        table(interleaved(peers, options.repeats), tokens=len(prompts) * n * tokens)


if __name__ == "__main__":
    main()
