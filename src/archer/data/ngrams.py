"""All pairs of prompts that share enough N-grams, exactly, without comparing all pairs.

The search is a set-similarity join with prefix filtering (Bayardo et al. 2007, "Scaling up all pairs
similarity search"). Two prompts that must share ``a`` of the ``m`` N-grams of one of them share at least one
of any ``m - a + 1`` N-grams of that prompt; looking up the rarest ones keeps candidates few. N-grams that
stand in one prompt only can't be shared and are never indexed, which removes nearly all of natural text.
Unlike MinHash, nothing is missed, and containment (not only Jaccard similarity) can be asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from archer.configs.data_recipe import NgramTest
from archer.data.text import GramHasher, Hashes, needed

Counts = np.ndarray[Any, np.dtype[np.int32]]
Positions = np.ndarray[Any, np.dtype[np.int64]]
Rows = np.ndarray[Any, np.dtype[np.int32]]

PARTITION_SIZE = 8_000_000
_READ_SIZE = 1 << 20
_BLOCK_ROWS = 1024


class GramStore:
    """The N-gram hashes of every row, on disk; in memory only 8 bytes a row.

    Args:
        path: file to write.
        token_lists: the tokens of each row.
        n: tokens an N-gram.
    """

    def __init__(self, path: Path, token_lists: Iterable[Sequence[str]], n: int) -> None:
        hasher = GramHasher(n)
        sizes: list[int] = []
        with path.open("wb") as file:
            for words in token_lists:
                hashes = hasher(words)
                sizes.append(len(hashes))
                file.write(hashes.tobytes())
        self._starts = np.concatenate(([0], np.cumsum(np.asarray(sizes, dtype=np.int64))))
        self._path = path
        # Reads, not a memory map: mapped pages would count as memory of this process.
        self._file = path.open("rb", buffering=0)

    def row(self, index: int) -> Hashes:
        """The sorted distinct hashes of a row."""
        return self._read(int(self._starts[index]), int(self._starts[index + 1]))

    def rows(self, first: int, last: int) -> tuple[Hashes, Positions]:
        """The hashes of the rows from ``first`` to before ``last`` (or the end), and where each row starts."""
        starts = self._starts[first : last + 1]
        return self._read(int(starts[0]), int(starts[-1])), starts - starts[0]

    def repeated(self) -> tuple[Hashes, Counts]:
        """The hashes that stand in two or more rows, sorted, and in how many rows each stands.

        The hashes are counted in ranges of about ``PARTITION_SIZE``, so memory is bounded by a range and
        by the result.
        """
        parts = max(1, -(-int(self._starts[-1]) // PARTITION_SIZE))
        bounds = [(i << 64) // parts for i in range(1, parts)]
        values: list[Hashes] = []
        counts: list[Counts] = []
        for low, high in pairwise([0, *bounds, None]):
            found = self._between(low or 0, high)
            found.sort()
            ends = np.flatnonzero(np.append(found[1:] != found[:-1], True)) + 1
            times = np.diff(ends, prepend=0)
            values.append(found[ends[times > 1] - 1])
            counts.append(times[times > 1].astype(np.int32))
        return np.concatenate(values), np.concatenate(counts)

    def close(self) -> None:
        """Delete the file."""
        self._file.close()
        self._path.unlink()

    def _between(self, low: int, high: int | None) -> Hashes:
        chunks = [np.empty(0, dtype=np.uint64)]
        total = int(self._starts[-1])
        for start in range(0, total, _READ_SIZE):
            chunk = self._read(start, min(start + _READ_SIZE, total))
            inside = chunk >= np.uint64(low)
            if high is not None:
                inside &= chunk < np.uint64(high)
            chunks.append(chunk[inside])
        return np.concatenate(chunks)

    def _read(self, start: int, end: int) -> Hashes:
        raw = os.pread(self._file.fileno(), (end - start) * 8, start * 8)
        return np.frombuffer(raw, dtype=np.uint64)


class _Postings:
    """For each repeated hash, the kept rows that hold it, in two flat arrays."""

    def __init__(self, starts: Positions) -> None:
        self._starts = starts
        self._filled = np.zeros(len(starts) - 1, dtype=np.int32)
        self._rows: Rows = np.zeros(int(starts[-1]), dtype=np.int32)

    def add(self, positions: Positions, row: int) -> None:
        self._rows[self._starts[positions] + self._filled[positions]] = row
        self._filled[positions] += 1

    def rows(self, positions: Positions) -> list[Rows]:
        starts = self._starts[positions]
        ends = starts + self._filled[positions]
        return [self._rows[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True) if b > a]


class _Block:
    """Some rows together with the places of their hashes among the repeated ones.

    Looked up together and in sorted order, because one look-up at a time in a large array misses the caches.
    """

    def __init__(self, store: GramStore, repeated: Hashes, first: int) -> None:
        self.first = first
        self.last = first + _BLOCK_ROWS
        self._hashes, self._starts = store.rows(first, self.last)
        order = np.argsort(self._hashes)
        self._places = np.empty(len(order), dtype=np.int64)
        self._places[order] = np.searchsorted(repeated, self._hashes[order])
        inside = self._places < len(repeated)
        self._is_repeated = inside.copy()
        self._is_repeated[inside] = repeated[self._places[inside]] == self._hashes[inside]

    def row(self, row: int) -> tuple[Hashes, Positions]:
        """The hashes of a row, and the positions of those that are repeated."""
        start, end = self._starts[row - self.first], self._starts[row - self.first + 1]
        return self._hashes[start:end], self._places[start:end][self._is_repeated[start:end]]


class DuplicateIndex:
    """Finds kept rows that pass the N-gram test against a row.

    Args:
        store: hashes of all rows.
        test: the N-gram test; the row asked about is the later one.
    """

    def __init__(self, store: GramStore, test: NgramTest) -> None:
        self._store = store
        self._test = test
        self._values, self._counts = store.repeated()
        starts = np.concatenate(([0], np.cumsum(self._counts, dtype=np.int64)))
        self._all = _Postings(starts)
        self._prefixes = _Postings(starts) if test.direction == "either" else None
        self._block = _Block(store, self._values, 0)

    def match_or_keep(self, row: int, is_same: Callable[[int], bool]) -> int | None:
        """The first kept row that passes the test; where there is none, the row itself is kept.

        Args:
            row: the row asked about; rows come in order.
            is_same: the verdict on a candidate, which has passed the test by its hashes.
        """
        if not self._block.first <= row < self._block.last:
            self._block = _Block(self._store, self._values, row)
        hashes, shared = self._block.row(row)
        prefix = self._prefix(shared, len(hashes))
        for other in self._candidates(shared, prefix):
            theirs = self._store.row(other)
            common = len(hashes) + len(theirs) - len(np.union1d(hashes, theirs))
            if common >= needed(self._test, len(hashes), len(theirs)) and is_same(other):
                return other
        self._all.add(shared, row)
        if self._prefixes is not None:
            self._prefixes.add(prefix, row)
        return None

    def _candidates(self, shared: Positions, prefix: Positions) -> list[int]:
        found = self._all.rows(prefix)
        if self._prefixes is not None:
            found += self._prefixes.rows(shared)
        candidates: list[int] = np.unique(np.concatenate(found)).tolist() if found else []
        return candidates

    def _prefix(self, shared: Positions, size: int) -> Positions:
        # Of the m - a + 1 rarest N-grams, the m - len(shared) that stand in one row only come first.
        length = len(shared) - needed(self._test, size, size) + 1
        if length <= 0:
            return shared[:0]
        return shared[np.argsort(self._counts[shared], kind="stable")[:length]]
