"""How time and peak memory of a training step grow as one size after the other doubles.

Usage: python benchmarks/growth.py [--repeats 2] [--quick]

Starts from 2 prompts of 64 tokens x 8 responses of 64 tokens on a random Qwen3 of width 256. Each point is a
process of its own, whose peak memory counts what lies above a freshly loaded model.
"""

import argparse
import json
import statistics
from types import SimpleNamespace

from common import (
    in_process,
    machine,
    peak_bytes,
    quiet,
    random_prompts,
    random_qwen3,
    resident_bytes,
    scratch,
)
from step import Path, archer_trainer

BASE = {"group": 8, "prompt_tokens": 64, "tokens": 64, "width": 256}
NAMES = {
    "group": "responses per prompt",
    "prompt_tokens": "prompt length",
    "tokens": "response length",
    "width": "model width",
}


def one(point, repeats):
    quiet()
    options = SimpleNamespace(**{**BASE, **point}, prompts=2, micro_batch_tokens=1200)
    shape = {
        "vocab_size": 8192,
        "hidden_size": options.width,
        "intermediate_size": 3 * options.width,
        "num_hidden_layers": 8,
        "num_attention_heads": options.width // 32,
        "num_key_value_heads": options.width // 64,
        "head_dim": 32,
        "tie_word_embeddings": True,
    }
    with scratch() as place:
        random_qwen3(Path(place) / "model", **shape)
        prompts = random_prompts(options.prompts, options.prompt_tokens, shape["vocab_size"])
        trainer = archer_trainer(str(Path(place) / "model"), prompts, options, Path(place))
        before = resident_bytes()
        steps = [trainer.step(number + 1) for number in range(repeats + 1)][1:]
    parts = {
        part: statistics.median(step[f"time/{part}"] for step in steps)
        for part in ("step", "sample", "update")
    }
    print(json.dumps({**parts, "bytes": peak_bytes() - before}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(json.loads(options.one), options.repeats)
        return
    factors = (1, 2) if options.quick else (1, 2, 4)
    repeats = 1 if options.quick else options.repeats
    print(machine())
    for name, label in NAMES.items():
        for factor in factors:
            point = {name: BASE[name] * factor}
            found = in_process("growth.py", "--repeats", repeats, "--one", json.dumps(point))
            if "error" in found:
                print(f"{label:22s} {point[name]:5d}  {found['error']}")
                continue
            print(
                f"{label:22s} {point[name]:5d}  step {found['step']:7.2f} s  sample {found['sample']:7.2f} s  "
                f"update {found['update']:7.2f} s  memory {found['bytes'] / 2**20:7.0f} MiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
