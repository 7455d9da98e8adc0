"""Math-Verify on what the rules leave open: integrals, sums, limits and the like. Runs in worker processes
only.

Only its LaTeX parser is used. Its parser for plain expressions evaluates text, so it never sees any.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify


def equivalent(gold: str, answer: str) -> bool | None:
    """Whether Math-Verify finds the two equal, in both directions; ``None`` where it can't read one of
    them."""
    gold_values, values = parsed(gold), parsed(answer)
    if not gold_values or not values:
        return None
    return bool(
        verify(gold_values, values, timeout_seconds=None)
        and verify(values, gold_values, timeout_seconds=None)
    )


def readable(gold: str) -> bool:
    """True where Math-Verify can read a gold answer, and finds it equal to itself."""
    return equivalent(gold, gold) is True


@lru_cache(maxsize=512)
def parsed(text: str) -> list[Any]:
    """Math-Verify's readings of one LaTeX expression; empty where it has none."""
    return list(
        parse(
            f"${text}$",
            extraction_config=[LatexExtractionConfig()],
            fallback_mode="no_fallback",
            parsing_timeout=None,
        )
    )
