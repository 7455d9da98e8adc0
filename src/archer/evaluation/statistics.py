"""avg@K and the unbiased pass@k."""

import math
from collections.abc import Sequence

from scipy.stats import t as student


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of ``k`` samples, drawn without replacement from ``n`` with ``c`` right, is right.

    ``1 - C(n - c, k) / C(n, k)`` (Chen et al. 2021, arXiv 2107.03374, Eq. 1), computed with exact integers.

    Raises:
        ValueError: unless ``0 <= c <= n`` and ``1 <= k <= n``.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"expected 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def avg_at_k(scores: Sequence[Sequence[float]]) -> float:
    """Mean over problems of the mean score over samples; problems without a score are left out."""
    means = [math.fsum(row) / len(row) for row in scores if row]
    return math.fsum(means) / len(means) if means else math.nan


def mean_interval(values: Sequence[float], z: float = 1.959964) -> tuple[float, float]:
    """Mean and half-width of its 95 % normal interval (sample standard deviation over the square root of n)."""
    n = len(values)
    mean = math.fsum(values) / n if n else math.nan
    if n < 2:
        return mean, math.nan
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return mean, z * math.sqrt(variance / n)


def seed_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of its 95 % interval by Student's t, for a handful of seeds; NaN for fewer than two."""
    mean, half = mean_interval(values, z=1.0)
    return mean, half if len(values) < 2 else half * float(student.ppf(0.975, len(values) - 1))
