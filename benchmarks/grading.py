"""Throughput of the maths scorer on ordinary pairs.

Usage: python benchmarks/grading.py FILE.jsonl [FILE.jsonl ...] [--pairs 4000] [--workers 2] [--kind math]

Each pair is a gold answer of the files and a short response: half of them right, half with the answer of
another row. Responses go through the same scorer, worker processes included, as in a training run. Also
prints the rate of the rules alone, in this process.
"""

import argparse
import json
import random
import statistics
import time
from pathlib import Path

from archer.configs.reward import RewardConfig
from archer.rewards import build_scorer
from archer.rewards.math.decide import decide, prepare
from archer.types import Problem


def pairs(files, n, rng):
    golds = [json.loads(line)["answer"] for file in files for line in file.read_text().splitlines()]
    for i in range(n):
        gold = rng.choice(golds)
        answer = gold if i % 2 else rng.choice(golds)
        filler = "We add the two numbers, check the sign and simplify. " * 40
        yield (
            Problem(str(i), "", answer=gold),
            f"<think>{filler}</think>{filler}The answer is $\\boxed{{{answer}}}$.",
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--pairs", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kind", choices=["math", "paper"], default="math")
    options = parser.parse_args()
    problems, texts = zip(*pairs(options.files, options.pairs, random.Random(0)), strict=True)

    started = time.perf_counter()
    scorer = build_scorer(RewardConfig(kind=options.kind, workers=options.workers))
    print(f"start: {time.perf_counter() - started:.2f} s")
    with scorer:
        scorer.score(problems[:100], texts[:100])
        started = time.perf_counter()
        verdicts = scorer.score(problems, texts)
        elapsed = time.perf_counter() - started
    seconds = sorted(verdict.seconds for verdict in verdicts)
    shares = {s: sum(v.status == s for v in verdicts) for s in ("correct", "incorrect", "unscorable")}
    print(
        f"scorer: {len(verdicts) / elapsed:.0f} pairs/s on {options.workers} workers ({elapsed:.2f} s), {shares}"
    )
    print(f"one pair: median {statistics.median(seconds) * 1e3:.2f} ms, slowest {seconds[-1] * 1e3:.0f} ms")
    slowest = max(range(len(verdicts)), key=lambda i: verdicts[i].seconds)
    print(f"slowest: gold {problems[slowest].answer!r}, {verdicts[slowest]}")

    if options.kind == "math":
        started = time.perf_counter()
        for problem, verdict in zip(problems, verdicts, strict=True):
            decide(prepare(problem.answer), verdict.extracted or "")
        print(f"rules alone, one process: {len(problems) / (time.perf_counter() - started):.0f} pairs/s")


if __name__ == "__main__":
    main()
