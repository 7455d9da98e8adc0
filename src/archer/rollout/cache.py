"""Key-value cache for decoding, as attention layouts.

One preallocated tensor a layer, ``[rows, Hkv, capacity, D]``, written in place. Active rows are always the
first ones, so a step reads a plain slice; a finished row is overwritten by the last active one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


class KVCache:
    """Storage for ``rows`` sequences of at most ``capacity`` tokens; allocated when the first layer writes."""

    def __init__(self, rows: int, capacity: int) -> None:
        self.rows, self.capacity = rows, capacity
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def layer(self, index: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, ``[rows, Hkv, capacity, D]``."""
        if index not in self._layers:
            shape = (self.rows, like.shape[1], self.capacity, like.shape[3])
            self._layers[index] = (like.new_zeros(shape), like.new_zeros(shape))
        return self._layers[index]

    def move(self, source: int, target: int, length: int) -> None:
        """Overwrite row ``target`` by the first ``length`` places of row ``source``."""
        for keys, values in self._layers.values():
            keys[target, :, :length] = keys[source, :, :length]
            values[target, :, :length] = values[source, :, :length]


@dataclass(frozen=True, slots=True)
class Prefill:
    """Prompts, right-padded, computed once each and written to every row that continues from them.

    Attributes:
        source_R: which prompt of the batch each row takes.
        row_R: the cache rows.
    """

    cache: KVCache
    source_R: Tensor
    row_R: Tensor

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Causal self-attention of the prompts; padding lies to the right, where no prompt token looks."""
        length = query.shape[2]
        keys, values = self.cache.layer(layer, key)
        keys[self.row_R, :, :length] = key[self.source_R]
        values[self.row_R, :, :length] = value[self.source_R]
        mask = None
        if window is not None and window < length:
            mask = torch.ones(length, length, dtype=torch.bool, device=query.device).tril().triu(1 - window)
        out = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=mask is None,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return out.transpose(1, 2)


class Step:
    """One new token for each of the first ``n`` rows."""

    def __init__(self, cache: KVCache, positions: Sequence[int], device: torch.device) -> None:
        self.cache = cache
        self.position_R = torch.tensor(positions, device=device)
        self.row_R = torch.arange(len(positions), device=device)
        self.length = max(positions) + 1
        place_S = torch.arange(self.length, device=device)
        self._distance_RS = self.position_R[:, None] - place_S
        self._full_mask = (self._distance_RS >= 0)[:, None, None]

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Attention of each row's new token to all its earlier ones.

        The query heads that share a key head are stacked on the length axis: no copy of the keys.
        """
        rows, heads, _, width = query.shape
        keys, values = self.cache.layer(layer, key)
        keys[self.row_R, :, self.position_R] = key[:, :, 0]
        values[self.row_R, :, self.position_R] = value[:, :, 0]
        mask = self._full_mask
        if window is not None and window < self.length:
            mask = mask & (self._distance_RS < window)[:, None, None]
        out = F.scaled_dot_product_attention(
            query.view(rows, key.shape[1], -1, width),
            keys[:rows, :, : self.length],
            values[:rows, :, : self.length],
            attn_mask=mask,
            scale=scaling,
        )
        return out.view(rows, 1, heads, width)
