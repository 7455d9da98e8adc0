"""Log-probability and entropy from hidden states, forward and backward: time and peak memory.

Usage: python benchmarks/head.py [--tokens 1024] [--repeats 3] [--quick]

Peers: Archer's block sweep, TRL's chunked head, and plain torch. Vocabularies of 49152 (hidden size 576) and
151936 (hidden size 896). Each peer runs in a process of its own; peers alternate, and the median counts. Peak
memory is what a pass needs beyond its inputs and the gradients that it returns.
"""

import argparse
import json
import statistics

import torch
from common import in_process, machine, peak_bytes, resident_bytes, seconds

SHAPES = {49152: 576, 151936: 896}


def archer_head(hidden, weight, target):
    from archer.policy.head import token_logp_and_entropy

    return token_logp_and_entropy(hidden, weight, target)


def trl_head(hidden, weight, target):
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE

    logp, entropy, *_ = ChunkedLogProbFunction.apply(
        hidden, weight, None, target, 1.0, _CHUNKED_LOGPROB_CHUNK_SIZE, None, 1.0, ("log_probs", "entropy")
    )
    return logp, entropy


def plain_head(hidden, weight, target):
    logp = (hidden @ weight.T).log_softmax(-1)
    entropy = -(logp.detach().exp() * logp.detach()).sum(-1)
    return logp.gather(-1, target[:, None])[:, 0], entropy


PEERS = {"archer": archer_head, "trl": trl_head, "plain torch": plain_head}


def one(peer, vocabulary, tokens):
    from archer.policy.allocator import keep_freed_memory

    generator = torch.Generator().manual_seed(0)
    width = SHAPES[vocabulary]
    hidden = torch.randn(tokens, width, generator=generator).requires_grad_()
    weight = (torch.randn(vocabulary, width, generator=generator) * 0.05).requires_grad_()
    target = torch.randint(vocabulary, (tokens,), generator=generator)
    upstream = torch.randn(tokens, generator=generator)
    sums = []

    def run():
        logp, entropy = PEERS[peer](hidden, weight, target)
        gradients = torch.autograd.grad(logp, (hidden, weight), upstream)
        sums[:] = [float(logp.detach().sum()), float(entropy.sum()), float(gradients[0].abs().sum())]

    torch.mm(torch.randn(64, 64), torch.randn(64, 64))
    PEERS[peer](hidden[:2], weight[:1024], target[:2] % 1024)
    # Only now: what making the inputs has freed must not be there to be used again unseen.
    keep_freed_memory()
    before = resident_bytes()
    first = seconds(run)
    # Of the first pass: later ones also count the holes that earlier ones left in the heap.
    needed = peak_bytes() - before - (hidden.numel() + weight.numel()) * 4
    times = [first] + [seconds(run) for _ in range(2)]
    print(json.dumps({"seconds": min(times), "bytes": needed, "sums": sums}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one[0], int(options.one[1]), options.tokens)
        return
    if options.quick:
        options.tokens, options.repeats = 128, 1
    print(machine())
    for vocabulary, width in SHAPES.items():
        print(f"vocabulary {vocabulary}, hidden size {width}, {options.tokens} tokens")
        results = {peer: [] for peer in PEERS}
        for _ in range(options.repeats):
            for peer, found in results.items():
                found.append(in_process("head.py", "--tokens", options.tokens, "--one", peer, vocabulary))
        for peer, found in results.items():
            if "error" in found[0]:
                print(f"  {peer:12s} {found[0]['error']}")
                continue
            time_taken = statistics.median(r["seconds"] for r in found)
            memory = statistics.median(r["bytes"] for r in found) / 2**20
            print(
                f"  {peer:12s} {time_taken:7.3f} s  peak {memory:8.1f} MiB  "
                f"sums {' '.join(f'{x:.6g}' for x in found[0]['sums'])}"
            )


if __name__ == "__main__":
    main()
