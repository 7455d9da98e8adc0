"""Token data for the viewer: which groups are embedded, and how they are packed.

A chunk holds one group: the length of a JSON header, the header (vocabulary, prompt, lengths), then one
column after another over all of the group's tokens, gzipped and in base64. The page unpacks a chunk when it
is looked at.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archer.analysis.records import FloatArray, Response, Run, count_tokens
from archer.analysis.scan import Scan, Summary, by_group, scan_run, token_clipping, token_kl

SCALE = 1000.0
"""Entropies and log-probabilities are stored as integers of 1 / SCALE nats, log ratios of 1 / (2 SCALE)."""
MISSING = -32768
REASONING, ABOVE, BELOW, OUTWARD = 1, 2, 4, 8
"""Bits of the flag column."""


@dataclass(frozen=True, slots=True)
class Packed:
    """One embedded group: its chunk, its responses' summaries, and its ``spreads``."""

    chunk: str
    summaries: Sequence[Summary]
    spreads: Mapping[str, float]


class ViewerData:
    """The embedded part of one run, gathered while the run is scanned.

    The budget is spread over the steps in proportion to their tokens, from the last step backwards; a step
    that overspends by finishing a group leaves less to the steps before it.

    Attributes:
        groups: the packed groups, the last step first after ``collect``.
        stored_responses, stored_tokens: what the run holds in all.
    """

    def __init__(self, run: Run, max_tokens: int) -> None:
        self._sizes = {step: count_tokens(file) for step, file in run.rollout_files()}
        self._credit = 0.0
        self.stored_responses = 0
        self.stored_tokens = sum(self._sizes.values())
        self._rate = min(1.0, max_tokens / max(self.stored_tokens, 1))
        self.groups: list[Packed] = []

    def keep(self, step: int, responses: Sequence[Response], summaries: Sequence[Summary]) -> None:
        """Packs as many groups of one batch as the budget allows."""
        self.stored_responses += len(responses)
        self._credit += self._rate * self._sizes[step]
        for indices in order_of_interest(responses, summaries, step):
            if self._credit <= 0 and self._rate < 1:
                break
            self._credit -= sum(summaries[i].length for i in indices)
            chosen = [responses[i] for i in indices]
            chunk = pack(chosen)
            self.groups.append(Packed(chunk, [summaries[i] for i in indices], spreads(chosen)))

    def scales(self) -> dict[str, float]:
        """Value at which each colouring is strongest: the mean over groups of their ``spreads``."""
        names = sorted({name for group in self.groups for name in group.spreads})
        found = {name: [g.spreads[name] for g in self.groups if g.spreads.get(name, 0) > 0] for name in names}
        return {name: float(np.mean(values)) for name, values in found.items() if values}

    def sampling(self) -> str:
        """What of the run is embedded, in words."""
        rows = [summary for group in self.groups for summary in group.summaries]
        if len(rows) == self.stored_responses:
            return f"All {self.stored_responses:,} stored responses ({self.stored_tokens:,} tokens) are here."
        return (
            f"{len(rows):,} of {self.stored_responses:,} stored responses "
            f"({sum(row.length for row in rows):,} of {self.stored_tokens:,} tokens) are here, in whole "
            "groups spread over the steps: of each chosen step first the group with the largest KL and the "
            "one with the highest repetition, then groups drawn at random. Figures and numbers outside this "
            "viewer use all of them."
        )


def collect(run: Run, max_tokens: int) -> tuple[Scan, ViewerData]:
    """Reads a run once, and packs whole groups until about ``max_tokens`` tokens are embedded."""
    data = ViewerData(run, max_tokens)
    scan = scan_run(run, data.keep)
    data.groups.sort(key=lambda packed: (-packed.summaries[0].step, packed.summaries[0].group))
    return scan, data


def order_of_interest(
    responses: Sequence[Response], summaries: Sequence[Summary], step: int
) -> list[list[int]]:
    """Indices of each group's responses: largest KL first, then highest repetition, then at random."""
    groups = [indices for _, indices in by_group(responses)]
    order = np.random.default_rng(step).permutation(len(groups)).tolist()
    repetition = [max(summaries[i].repetition for i in indices) for indices in groups]
    kl = [max(np.nan_to_num(summaries[i].kl_max) for i in indices) for indices in groups]
    for worst in (repetition, kl):
        if any(worst):
            first = int(np.argmax(worst))
            order.remove(first)
            order.insert(0, first)
    return [groups[i] for i in order]


def pack(responses: Sequence[Response]) -> str:
    """One group of responses as a chunk.

    Columns, little-endian: token number in the header's vocabulary (uint32); entropy, -log-probability
    (uint16); log-probability minus the reference's, log ratio, log-probability minus each earlier
    checkpoint's (int16); flags (uint8). ``MISSING`` stands for no value.
    """
    vocabulary = {text: i for i, text in enumerate(dict.fromkeys(t for r in responses for t in r.tokens))}
    earlier = list(dict.fromkeys(name for r in responses for name in r.earlier))
    lengths = [len(r.tokens) for r in responses]
    header = {
        "vocabulary": list(vocabulary),
        "prompt": responses[0].prompt,
        "lengths": lengths,
        "texts": [exact_text(r) for r in responses],
        "earlier": earlier,
        "roles": [r.reasoning is not None for r in responses],
        "clipping": [token_clipping(r) is not None for r in responses],
    }
    columns: list[NDArray[Any]] = [
        np.asarray([vocabulary[t] for r in responses for t in r.tokens], "<u4"),
        unsigned(np.concatenate([r.entropy for r in responses])),
        unsigned(-np.concatenate([r.logp for r in responses])),
        signed(
            SCALE,
            [r.logp - r.ref_logp if r.ref_logp is not None else None for r in responses],
            lengths,
        ),
        signed(2 * SCALE, [None if r.ratio is None else log(r.ratio) for r in responses], lengths),
    ]
    for name in earlier:
        change = [r.logp - r.earlier[name] if name in r.earlier else None for r in responses]
        columns.append(signed(SCALE, change, lengths))
    columns.append(np.concatenate([flags(r) for r in responses]))
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 4)
    body = len(text).to_bytes(4, "little") + text + b"".join(column.tobytes() for column in columns)
    return base64.b64encode(gzip.compress(body, 6, mtime=0)).decode()


def exact_text(response: Response) -> str | None:
    """The text where the token texts do not show it: those of a character split over tokens don't join to it.

    ``None`` where they do, the end-of-sequence token aside.
    """
    joined = "".join(response.tokens)
    without_end = "".join(response.tokens[:-1])
    return None if response.text in (joined, without_end) else response.text


def spreads(responses: Sequence[Response]) -> dict[str, float]:
    """99th percentile over a group's tokens of each quantity that a colour can show and that exists."""
    parts: dict[str, list[FloatArray]] = {"entropy": [r.entropy for r in responses]}
    for r in responses:
        kl = token_kl(r)
        if kl is not None and r.ref_logp is not None:
            parts.setdefault("kl", []).append(kl)
            parts.setdefault("reference", []).append(np.abs(r.logp - r.ref_logp))
        if r.ratio is not None:
            parts.setdefault("update", []).append(np.abs(log(r.ratio)))
        for name, logp in r.earlier.items():
            parts.setdefault(f"earlier:{name}", []).append(np.abs(r.logp - logp))
    joined = {name: np.concatenate(values) for name, values in parts.items()}
    finite = {name: values[np.isfinite(values)] for name, values in joined.items()}
    return {name: float(np.quantile(values, 0.99)) for name, values in finite.items() if values.size}


def unsigned(values: FloatArray) -> NDArray[np.uint16]:
    """Non-negative nats as uint16; the top of the range for anything larger or not finite."""
    return np.nan_to_num(np.clip(np.round(values * SCALE), 0, 65535), nan=65535).astype("<u2")


def signed(scale: float, parts: Sequence[FloatArray | None], lengths: Sequence[int]) -> NDArray[np.int16]:
    """Values as int16 of 1 / scale, clipped to the range; ``MISSING`` for NaN and for absent parts."""
    values = np.concatenate(
        [np.full(n, np.nan) if part is None else part for part, n in zip(parts, lengths, strict=True)]
    )
    return np.nan_to_num(np.clip(np.round(values * scale), -32767, 32767), nan=MISSING).astype("<i2")


def log(ratio: FloatArray) -> FloatArray:
    """Natural logarithm; minus infinity at 0."""
    with np.errstate(divide="ignore"):
        return np.log(ratio)


def flags(response: Response) -> NDArray[np.uint8]:
    """The flag column of one response."""
    result = np.zeros(len(response.tokens), np.uint8)
    if response.reasoning is not None:
        result |= REASONING * response.reasoning.astype(np.uint8)
    clipping = token_clipping(response)
    if clipping is not None:
        state, outward = clipping
        result |= ABOVE * (state > 0).astype(np.uint8)
        result |= BELOW * (state < 0).astype(np.uint8)
        result |= OUTWARD * outward.astype(np.uint8)
    return result
