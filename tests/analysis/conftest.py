"""Synthetic run directories in the format of docs/RUN_DIRECTORY.md."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from archer.analysis import Run, load_run

STEERING = ["So", " wait", " but", " alternatively", " let", " maybe", " therefore", " check"]
FACTS = [" 2", " +", " =", " 4", "ing", " the", " x", " $", "}", "\n", " <b>", " &amp;", " 中文"]
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
CONFIG: dict[str, Any] = {
    "name": "synthetic",
    "seed": 0,
    "objective": {"method": "archer", "rho": 0.8, "eps_r": 0.5, "eps_k": 0.2},
    "train": {"steps": 40, "lr": 1e-6},
}


class RunMaker:
    """Writes run directories from a seed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        name: str = "demo",
        *,
        seed: int = 0,
        steps: int = 40,
        every: int = 10,
        groups: int = 6,
        size: int = 4,
        length: int = 80,
        reference: bool = True,
        clipped: bool = True,
        domains: tuple[str, ...] = (),
        objective: dict[str, Any] | None = None,
    ) -> Run:
        path = self.folder / name
        rng = np.random.default_rng(seed)
        for part in ("rollouts", "evaluation"):
            (path / part).mkdir(parents=True)
        config = {
            **CONFIG,
            "name": name,
            "seed": seed,
            "objective": {**CONFIG["objective"], **(objective or {})},
        }
        (path / "config.yaml").write_text(yaml.safe_dump(config))
        (path / "environment.json").write_text(json.dumps({"torch": "2.13", "device": "cpu", "seed": seed}))
        write_lines(
            path / "metrics.jsonl", [metrics_row(step, steps, reference, rng) for step in range(steps + 1)]
        )
        write_lines(
            path / "events.jsonl",
            [{"time": 1.7e9, "step": 3, "level": "warning", "message": f"2 problems too long {HOSTILE}"}],
        )
        for step in range(every, steps + 1, every):
            rows = [
                rollout_row(step, group, sample, length, reference, rng) | ({} if clipped else {"clip": None})
                for group in range(groups)
                for sample in range(size)
            ]
            write_lines(path / "rollouts" / f"step_{step:06d}.jsonl", rows)
        for step in (0, steps):
            write_lines(
                path / "evaluation" / f"step_{step:06d}.jsonl",
                evaluation_rows(step, steps, domains or (None,), rng),
            )
        return load_run(path)


def metrics_row(step: int, steps: int, reference: bool, rng: np.random.Generator) -> dict[str, Any]:
    done = step / steps
    row: dict[str, Any] = {"step": step, "time": 1.7e9 + 12 * step}
    if step in (0, steps):
        row |= {f"eval/pass@{k}": 0.2 + 0.1 * np.log2(k) + 0.3 * done for k in (1, 2, 4, 8)}
        row |= {
            "eval/avg@8": 0.2 + 0.3 * done,
            "eval/truncated_share": 0.1 - 0.05 * done,
            "eval/length_mean": 60.0,
        }
    if step == 0:
        return row
    noise = lambda scale: float(rng.normal(0, scale))  # noqa: E731
    row |= {
        "reward/mean": 0.2 + 0.5 * done + noise(0.05),
        "reward/unscorable_share": 0.01,
        "reward/zero_variance_share": 0.3 + noise(0.03),
        "reward/all_right_share": 0.2 * done,
        "reward/all_wrong_share": 0.3 - 0.2 * done,
        "response/length_mean": 80 + 30 * done + noise(3),
        "response/length_max": 160.0,
        "response/truncated_share": 0.1 + noise(0.01),
        "response/repetition": 0.02 + 0.03 * done + abs(noise(0.005)),
        "entropy/mean": 0.6 - 0.2 * done + noise(0.02),
        "entropy/reasoning": 1.6 - 0.3 * done + noise(0.05),
        "entropy/knowledge": 0.2 - 0.1 * done + noise(0.01),
        "role/reasoning_share": 0.21 + noise(0.002),
        "clip/above_reasoning": 0.01 + abs(noise(0.003)),
        "clip/below_reasoning": 0.008 + abs(noise(0.003)),
        "clip/above_knowledge": 0.004 + abs(noise(0.001)),
        "clip/below_knowledge": 0.003 + abs(noise(0.001)),
        "ratio/mean": 1.0,
        "ratio/max": 2 + 3 * done + abs(noise(0.5)),
        "ratio/min": 0.3,
        "ratio/first_mismatch": 1e-6,
        "optim/loss": noise(0.01),
        "optim/grad_norm": 0.5 + abs(noise(0.2)),
        "optim/lr": 1e-6,
        "optim/updates": 2,
        "optim/skipped": 0,
        "tokens/sampled": 2000,
        "tokens/trained": 1900,
        "time/sample": 6 + noise(0.3),
        "time/push": 0.5,
        "time/reference": 1.0,
        "time/update": 4 + noise(0.2),
        "time/step": 12.0,
        "speed/sampled_tokens_per_second": 330 + noise(20),
    }
    if reference:
        row |= {"kl/mean": 0.02 * done, "kl/reasoning": 0.05 * done, "kl/knowledge": 0.01 * done}
    return row


def rollout_row(
    step: int, group: int, sample: int, length: int, reference: bool, rng: np.random.Generator
) -> dict[str, Any]:
    count = int(rng.integers(length // 2, length + 1))
    steering = rng.random(count) < 0.15 + 0.1 * (group % 3)
    picks = rng.integers(0, 1000, count)
    tokens = [
        STEERING[p % len(STEERING)] if s else FACTS[p % len(FACTS)]
        for s, p in zip(steering, picks, strict=True)
    ]
    if group == 0:
        tokens[:3] = [" <", HOSTILE, "&lt;"]
    if group == 1 and sample == 0:
        tokens = [" again"] * count
    words = STEERING + FACTS + [" <", HOSTILE, "&lt;", " again"]
    entropy = np.where(steering, rng.gamma(4, 0.4, count), rng.gamma(0.5, 0.1, count)) * (0.7 + 0.1 * group)
    logp = -entropy * rng.random(count) * 2
    trained = group != 2
    reasoning = entropy >= np.quantile(entropy, 0.8)
    ratio = np.exp(rng.normal(0, 0.15 + 0.2 * steering)).round(5)
    eps = np.where(reasoning, 0.5, 0.2)
    reward = None if group == 3 and sample == 1 else float(rng.random() < 0.4)
    return {
        "step": step,
        "group": group,
        "sample": sample,
        "problem_id": f"problem-{group}",
        "prompt": f"What is {group} + {step}? Answer in <answer> tags.",
        "text": "".join(tokens),
        "tokens": tokens,
        "token_ids": [words.index(token) for token in tokens],
        "logp": logp.round(5).tolist(),
        "entropy": entropy.round(5).tolist(),
        "reasoning": reasoning.tolist(),
        "ratio": ratio.tolist() if trained else None,
        "clip": ((ratio > 1 + eps).astype(int) - (ratio < 1 - eps)).tolist() if trained else None,
        "ref_logp": (logp + rng.normal(0, 0.1 + 0.1 * group, count)).clip(-30, 0).round(5).tolist()
        if reference
        else None,
        "advantage": 0.0 if not trained or reward is None else (1.2 if reward else -0.8),
        "reward": reward,
        "status": "unscorable" if reward is None else ("correct" if reward else "incorrect"),
        "extracted": "4" if reward else None,
        "reason": "" if reward else "no_answer",
        "finish_reason": "length" if count == length or sample == 3 else "stop",
        "policy_version": step,
    }


def evaluation_rows(
    step: int, steps: int, domains: tuple[str | None, ...], rng: np.random.Generator
) -> list[dict[str, Any]]:
    rows = []
    for domain in domains:
        for problem in range(60):
            chance = min(1.0, problem / 60 * 0.7 + 0.25 * step / steps)
            for sample in range(8):
                row = {
                    "problem_id": f"{domain or 'held-out'}-{problem}",
                    "sample": sample,
                    "reward": float(rng.random() < chance),
                }
                rows.append({**row, "domain": domain} if domain else row)
    return rows


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    return RunMaker(tmp_path)


def archer_gradient(ratio: np.ndarray, sign: int, reasoning: bool) -> np.ndarray:
    """Gradient of the clipped surrogate by the log-probability, written out for tests."""
    eps = 0.5 if reasoning else 0.2
    learns = ratio <= 1 + eps if sign > 0 else (ratio >= 1 - eps) & (ratio < 3.0)
    return np.where(learns, -sign * ratio, 0.0)


@pytest.fixture
def gradient() -> Callable[[np.ndarray, int, bool], np.ndarray]:
    return archer_gradient
