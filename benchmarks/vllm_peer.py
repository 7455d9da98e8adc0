"""The vLLM side of ``sampling.py``; runs in vLLM's own environment and answers on standard output.

First line in: folder, prompts, n, tokens. Every further line: sample once, answer with seconds and tokens.
"""

import json
import os
import sys
import time

# vLLM reads these on import: its cache in GiB beside other processes, and threads where the system puts them.
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

from vllm import LLM, SamplingParams


def main():
    job = json.loads(sys.stdin.readline())
    longest = len(job["prompts"][0]) + job["tokens"]
    engine = LLM(
        model=job["folder"],
        dtype="float32",
        max_model_len=longest + 8,
        max_num_seqs=len(job["prompts"]) * job["n"],
        enable_prefix_caching=True,
        seed=0,
    )
    law = SamplingParams(
        n=job["n"], temperature=1.0, max_tokens=job["tokens"], ignore_eos=True, detokenize=False
    )
    prompts = [{"prompt_token_ids": prompt} for prompt in job["prompts"]]
    short = SamplingParams(n=2, temperature=1.0, max_tokens=4, ignore_eos=True, detokenize=False)
    engine.generate(prompts, short, use_tqdm=False)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        found = engine.generate(prompts, law, use_tqdm=False)
        taken = time.perf_counter() - started
        tokens = sum(len(sample.token_ids) for request in found for sample in request.outputs)
        print(json.dumps({"seconds": taken, "tokens": tokens}), flush=True)


if __name__ == "__main__":
    main()
