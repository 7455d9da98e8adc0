"""Throughput of the code runner, and where the time of a small program goes.

python benchmarks/sandbox.py [--isolation auto] [--workers 2] [--seconds 5]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from archer.configs.code import CodeConfig
from archer.rewards.code import CodeRunner

CASES = {
    "stdin": (
        "a, b = map(int, input().split())\nprint(a + b)",
        {"type": "stdin", "input": "2 3\n", "output": "5\n"},
    ),
    "functional": (
        "class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b",
        {"type": "functional", "fn_name": "add", "input": "2\n3", "output": "5"},
    ),
    "assert": ("def add(a, b): return a + b", {"type": "assert", "code": "assert add(2, 3) == 5"}),
}


def throughput(runner: CodeRunner, name: str, seconds: float) -> tuple[float, list[float], list[float]]:
    """Programs a second with all workers busy; CPU and wall milliseconds of each program's own processes."""
    program, test = CASES[name]
    deadline = time.monotonic() + seconds

    def work() -> list[tuple[float, float]]:
        done = []
        while time.monotonic() < deadline:
            (result,) = runner.run(program, [test]).tests
            assert result.label == "passed", result
            done.append((result.cpu_seconds * 1e3, result.wall_seconds * 1e3))
        return done

    started = time.monotonic()
    with ThreadPoolExecutor(runner.workers) as threads:
        parts = [future.result() for future in [threads.submit(work) for _ in range(runner.workers)]]
    done = [item for part in parts for item in part]
    return len(done) / (time.monotonic() - started), [cpu for cpu, _ in done], [wall for _, wall in done]


def main() -> None:
    """Print one line a kind of test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isolation", default="auto")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    started = time.monotonic()
    with CodeRunner(CodeConfig(isolation=options.isolation, workers=options.workers)) as runner:
        print(
            f"{runner.isolation}\nstart and canaries: {time.monotonic() - started:.2f} s, {runner.workers} workers"
        )
        print(f"{'test':<12}{'programs/s':>12}{'child CPU ms':>14}{'child wall ms':>15}{'parent CPU ms':>15}")
        for name in CASES:
            before = resource.getrusage(resource.RUSAGE_SELF)
            rate, cpu, wall = throughput(runner, name, options.seconds)
            after = resource.getrusage(resource.RUSAGE_SELF)
            own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"{name:<12}{rate:>12.1f}{statistics.median(cpu):>14.2f}{statistics.median(wall):>15.2f}"
                f"{own / len(cpu) * 1e3:>15.2f}"
            )


if __name__ == "__main__":
    main()
