"""What makes two prompts equal: normalisation, tokens and N-grams."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from archer.configs.data_recipe import NgramTest, Normalisation

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Gram = tuple[str, ...]

_LOOK_ONLY = re.compile(
    r"\\(?:left|right|big|Big|bigg|Bigg|displaystyle|textstyle|quad|qquad)(?![A-Za-z])|\\[,;:! ]|[$~]"
)
_SMALL_FRACTION = re.compile(r"\\[dt]frac(?![A-Za-z])")
_TOKENS = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?|[^\s\w]|_")
_WORDS = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?")
_NUMBER = re.compile(r"\d")
_WORD_CACHE_SIZE = 1_000_000
_BASE = np.uint64(0x9E3779B97F4A7C15)


def tokens(text: str, normalise: Normalisation) -> list[str]:
    """The tokens of a text: words, numbers and (where punctuation is kept) single symbols."""
    text = unicodedata.normalize("NFKC", text)
    if normalise.latex:
        text = _SMALL_FRACTION.sub(r"\\frac", _LOOK_ONLY.sub(" ", text))
    if normalise.case == "fold":
        text = text.casefold()
    found = (_TOKENS if normalise.punctuation == "keep" else _WORDS).findall(text)
    if normalise.numbers == "mask":
        return ["0" if _NUMBER.match(token) else token for token in found]
    return found


def grams(words: Sequence[str], n: int) -> set[Gram]:
    """The distinct N-grams; a text of fewer than n tokens is one N-gram, an empty text has none."""
    if len(words) <= n:
        return {tuple(words)} if words else set()
    return set(zip(*(words[i:] for i in range(n)), strict=False))


def needed(test: NgramTest, later: int, earlier: int) -> int:
    """Shared N-grams that make two prompts the same, given their numbers of distinct N-grams."""
    base = min(later, earlier) if test.direction == "either" else later
    return max(test.min_shared, _ceil_share(test.threshold, base))


def text_hash(words: Sequence[str]) -> int:
    """A 64-bit hash of a token sequence, equal in every process."""
    return int.from_bytes(
        hashlib.blake2b("\x00".join(words).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )


class GramHasher:
    """N-grams as sorted distinct 64-bit hashes.

    Hashes only propose candidates: whoever acts on them compares the N-grams themselves, so a collision
    costs time and never changes a verdict.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._words = _WordHashes()

    def __call__(self, words: Sequence[str]) -> Hashes:
        """The sorted distinct hashes, uint64 ``[number of distinct N-grams]``."""
        if not words:
            return np.empty(0, dtype=np.uint64)
        hashed = np.fromiter(map(self._words.__getitem__, words), dtype=np.uint64, count=len(words))
        n = min(self._n, len(words))
        windows = len(words) - n + 1
        total = np.zeros(windows, dtype=np.uint64)
        for i in range(n):
            total = total * _BASE + hashed[i : i + windows]
        total ^= total >> np.uint64(32)
        return np.unique(total)


class _WordHashes(dict[str, int]):
    """Hash of a word, kept for as many words as fit the cache."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _WORD_CACHE_SIZE:
            self.clear()
        value = self[word] = text_hash((word,))
        return value


def _ceil_share(share: float, count: int) -> int:
    # 0.8 * 5 must need 4 and 0.1 * 30 must need 3 although both products lie above in binary.
    return -int(-share * count * (1 - 1e-12) // 1)
