"""How time and memory of de-duplication grow with the number of prompts.

    python benchmarks/dedup.py 10000 30000 100000

Prompts are made on the spot: words drawn from a Zipf law over 50,000 words, 20 to 120 a prompt, a fixed
instruction of 30 words around every prompt (the worst ordinary case for an inverted index), a given share of
near copies (2 words changed) and exact copies of earlier prompts. Each size runs in its own process; CPU
seconds say more than seconds where the machine has other work. Memory is the peak resident set above that of an
idle process.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def write_prompts(path: Path, count: int, near: float, exact: float, seed: int) -> None:
    """Write ``count`` rows with the given shares of near and exact copies."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, 50_001)
    cumulative = np.cumsum(weights / weights.sum())
    before = "Solve this problem step by step and think about it with care before the answer is given :"
    after = "Put the final answer on a line of its own after the word Answer please ."
    recent: list[np.ndarray] = []
    with path.open("w") as file:
        for number in range(count):
            draw = rng.random()
            if recent and draw < near + exact:
                words = recent[rng.integers(len(recent))].copy()
                if draw < near:
                    words[rng.integers(len(words), size=2)] = rng.integers(50_000, size=2)
            else:
                words = np.searchsorted(cumulative, rng.random(rng.integers(20, 121)))
                if len(recent) < 20_000:
                    recent.append(words)
                else:
                    recent[rng.integers(len(recent))] = words
            body = " ".join(f"w{word}x" for word in words.tolist())
            file.write(json.dumps({"prompt": f"{before} {body} {after}", "answer": str(number % 7)}) + "\n")


def measure(path: Path, n: int, threshold: float) -> dict[str, float]:
    """Run the two de-duplication stages on a file in this process."""
    from archer.configs.data_recipe import DataRecipe
    from archer.data import build

    recipe = DataRecipe.model_validate(
        {
            "name": "benchmark",
            "sources": {"made": {"form": "archer", "path": str(path)}},
            "stages": {
                "exact": {"kind": "exact-duplicates", "conflicts": "keep-first"},
                "ngrams": {"kind": "ngram-duplicates", "test": {"n": n, "threshold": threshold}},
            },
        }
    )
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    output = path.parent / "output"
    start, processor = time.perf_counter(), time.process_time()
    card = build(recipe, output)
    total = time.perf_counter() - start
    processor = time.process_time() - processor
    seconds = {
        name: json.loads((output / "stages" / name / "stage.json").read_text())["seconds"]
        for name in ("00-sources", "01-exact", "02-ngrams")
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "kept": card["problems"],
        "total": total,
        "processor": processor,
        "memory_mb": (peak - idle) / 1024,
        **seconds,
    }


def main() -> None:
    """Measure every size and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", type=int, nargs="+")
    parser.add_argument("--near", type=float, default=0.2)
    parser.add_argument("--exact", type=float, default=0.1)
    parser.add_argument("--n", type=int, default=13)
    parser.add_argument("--threshold", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where to put temporary files")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.n, options.threshold)))
        return
    print("| prompts | kept | read s | exact s | n-gram s | total s | CPU s | memory MB |")
    print("|---|---|---|---|---|---|---|---|")
    for size in options.sizes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            path = Path(folder) / "prompts.jsonl"
            write_prompts(path, size, options.near, options.exact, options.seed)
            command = [sys.executable, __file__, "1", "--measure", str(path)]
            command += ["--n", str(options.n), "--threshold", str(options.threshold)]
            row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        steps = [row[name] for name in ("00-sources", "01-exact", "02-ngrams", "total", "processor")]
        cells = [
            f"{size:,}",
            f"{row['kept']:,}",
            *(f"{step:.1f}" for step in steps),
            f"{row['memory_mb']:.0f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
