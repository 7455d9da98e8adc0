"""The statistics behind the figures, as pure numpy functions.

Entropies, log-probabilities and KL are in nats. ``T`` is the length of one response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Scope = Literal["response", "group", "batch"]
SCOPES: tuple[Scope, ...] = ("response", "group", "batch")


def repetition(text: str, n: int = 20) -> float:
    """Share of repeated n-word windows: (windows - distinct windows) / windows.

    The text is lower-cased and split at whitespace; punctuation stays with its word. This is the repetition
    ratio of the authors' released reward manager.

    Args:
        text: the decoded response, without special tokens.
        n: words in a window.

    Returns:
        The share, in [0, 1); 0 for a text of fewer than ``n`` words.

    Raises:
        ValueError: ``n`` is below 1.
    """
    if n < 1:
        raise ValueError(f"expected a window of at least 1 word, got n={n}")
    words = text.lower().split()
    windows = len(words) - n + 1
    if windows < 1:
        return 0.0
    return (windows - len({tuple(words[i : i + n]) for i in range(windows)})) / windows


def roles(
    entropy: Sequence[FloatArray],
    group: Sequence[int],
    rho: float,
    scope: Scope,
    *,
    tie_is_reasoning: bool = True,
) -> list[BoolArray]:
    """Marks reasoning tokens: those whose entropy reaches the rho-quantile of their scope (Archer, Eq. 2).

    Args:
        entropy: one ``[T]`` array a response.
        group: the group of each response.
        rho: quantile in [0, 1], linear interpolation.
        scope: whether the quantile is taken over the response (the paper), its group, or the batch.
        tie_is_reasoning: a token at the threshold is a reasoning token (the paper) or not (the released
            code).

    Returns:
        One bool ``[T]`` array a response, in the same order.

    Raises:
        ValueError: ``rho`` is outside [0, 1], the scope is unknown, or the two sequences differ in length.
    """
    if not 0 <= rho <= 1:
        raise ValueError(f"expected rho in [0, 1], got {rho}")
    if scope not in SCOPES:
        raise ValueError(f"expected a scope among {', '.join(SCOPES)}, got {scope!r}")
    if len(entropy) != len(group):
        raise ValueError(
            f"expected one group a response, got {len(entropy)} responses and {len(group)} groups"
        )
    pools: dict[int, list[FloatArray]] = {}
    keys = [{"response": i, "group": g, "batch": 0}[scope] for i, g in enumerate(group)]
    for key, values in zip(keys, entropy, strict=True):
        pools.setdefault(key, []).append(values)
    threshold = {key: quantile(np.concatenate(values), rho) for key, values in pools.items()}
    above = np.greater_equal if tie_is_reasoning else np.greater
    return [above(values, threshold[key]) for key, values in zip(keys, entropy, strict=True)]


def quantile(values: FloatArray, rho: float) -> float:
    """The rho-quantile with linear interpolation; NaN for no values."""
    return float(np.quantile(values, rho)) if values.size else float("nan")


def kl_to_reference(logp: FloatArray, ref_logp: FloatArray) -> FloatArray:
    """The k3 estimate of KL(policy || reference) at each sampled token, ``[T]``, in nats, never negative.

    With d = logp - ref_logp it is exp(-d) + d - 1, d clamped to [-20, 20] first.
    """
    d = np.clip(logp - ref_logp, -20.0, 20.0)
    return np.maximum(np.expm1(-d) + d, 0.0)


class TokenTable:
    """Occurrences and mean entropy of every token id, gathered one response at a time."""

    def __init__(self) -> None:
        self._rows: dict[int, list[float]] = {}
        self._text: dict[int, str] = {}

    def add(self, token_ids: NDArray[np.int64], tokens: Sequence[str], entropy: FloatArray) -> None:
        """Counts one response; the three sequences have length ``T``."""
        ids, first, inverse = np.unique(token_ids, return_index=True, return_inverse=True)
        counts = np.bincount(inverse, minlength=len(ids))
        sums = np.bincount(inverse, weights=entropy, minlength=len(ids))
        for token, index, count, total in zip(
            ids.tolist(), first, counts.tolist(), sums.tolist(), strict=True
        ):
            row = self._rows.setdefault(token, [0, 0.0])
            row[0] += count
            row[1] += total
            self._text.setdefault(token, tokens[index])

    def means(self, min_count: int = 1) -> list[TokenMean]:
        """The tokens seen at least ``min_count`` times, highest mean entropy first."""
        rows = [
            TokenMean(self._text[token], token, int(count), total / count)
            for token, (count, total) in self._rows.items()
            if count >= min_count
        ]
        return sorted(rows, key=lambda row: (-row.entropy, row.token_id))


@dataclass(frozen=True, slots=True)
class TokenMean:
    """A token, how often it occurred, and its mean entropy (nats)."""

    text: str
    token_id: int
    count: int
    entropy: float


def top_tokens(means: Sequence[TokenMean], size: int) -> tuple[list[TokenMean], list[TokenMean]]:
    """The ``size`` tokens of highest and of lowest mean entropy, most extreme first, never the same token
    twice.

    Args:
        means: tokens in order of falling mean entropy, already filtered by count.
        size: how many of each; half of the tokens when there are fewer than twice as many.
    """
    size = min(size, len(means) // 2)
    return list(means[:size]), list(reversed(means[len(means) - size :]))


def smooth(values: FloatArray, window: int) -> FloatArray:
    """Local straight-line fits with Gaussian weights: no lag, and a straight line stays as it is, to its ends.

    The result stays between the lowest and the highest value. NaN entries are skipped and stay NaN; a window of
    1 returns the values.

    Args:
        values: ``[S]``, one value a step.
        window: width in steps; the weights have a standard deviation of a quarter of it.
    """
    known = ~np.isnan(values)
    if window <= 1 or not known.any():
        return values.copy()
    place = np.arange(len(values), dtype=np.float64)
    distance = place[known][None, :] - place[:, None]
    weight = np.exp(-0.5 * (distance / (window / 4)) ** 2)
    sums = [(weight * distance**power).sum(axis=1) for power in range(3)]
    moments = [(weight * distance**power) @ values[known] for power in range(2)]
    spread = sums[0] * sums[2] - sums[1] ** 2
    # Where no neighbour has a weight, a line has no slope; the mean is what is left.
    flat = spread < 1e-9 * np.maximum(sums[0] * sums[2], 1e-300)
    line = (sums[2] * moments[0] - sums[1] * moments[1]) / np.where(flat, 1.0, spread)
    fitted = np.where(flat, moments[0] / np.maximum(sums[0], 1e-300), line)
    return np.where(known, np.clip(fitted, values[known].min(), values[known].max()), np.nan)


def bootstrap_interval(values: FloatArray, draws: int = 1000, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of ``values`` ``[N]``, from a fixed seed.

    Problems are the unit that is resampled, so pass one value a problem.
    """
    if not values.size:
        return float("nan"), float("nan")
    picks = np.random.default_rng(0).integers(0, values.size, (draws, values.size))
    low, high = np.quantile(values[picks].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def accuracy_by_problem(records: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """Mean reward of each problem over its scorable samples; problems with none are left out."""
    rewards: dict[str, list[float]] = {}
    for record in records:
        reward = record["reward"]
        if isinstance(reward, int | float):
            rewards.setdefault(str(record["problem_id"]), []).append(float(reward))
    return {problem: sum(values) / len(values) for problem, values in rewards.items()}


def gain_by_difficulty(
    place: Mapping[str, float],
    before: Mapping[str, float],
    after: Mapping[str, float],
    edges: Sequence[float],
) -> list[tuple[float, float, FloatArray, FloatArray]]:
    """Gain in accuracy of the problems of each difficulty.

    ``place`` and ``before`` should come from different samples of the starting model: sorting by a noisy
    accuracy and subtracting the same one would show gains for hard problems where there are none.

    Args:
        place: accuracy that decides a problem's bin.
        before, after: accuracies whose difference is the gain; problems missing from any of the three are
            left out.
        edges: increasing bin edges; a bin holds its lower edge, the last bin its upper edge too.

    Returns:
        (low edge, high edge, accuracies before ``[n]``, gains ``[n]``) for each bin that holds a problem.
    """
    shared = sorted(place.keys() & before.keys() & after.keys())
    start = np.asarray([before[p] for p in shared], np.float64)
    gain = np.asarray([after[p] for p in shared], np.float64) - start
    sorter = np.asarray([place[p] for p in shared], np.float64)
    bins = np.clip(np.searchsorted(edges, sorter, side="right") - 1, 0, len(edges) - 2)
    held = [i for i in range(len(edges) - 1) if (bins == i).any()]
    return [(edges[i], edges[i + 1], start[bins == i], gain[bins == i]) for i in held]


def log_ratio_counts(log_ratio: FloatArray, edges: FloatArray) -> FloatArray:
    """Number of tokens in each bin of log ratio, ``[len(edges) - 1]``; tokens outside count in the outer
    bins.

    NaN values (tokens that no update visited) are left out.
    """
    values = np.clip(log_ratio[~np.isnan(log_ratio)], edges[0], edges[-1])
    return np.histogram(values, bins=edges)[0].astype(np.float64)
