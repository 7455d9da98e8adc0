"""Key-value cache for decoding, as attention layouts.

Prompts and responses lie apart. A prompt's keys and values exist once, in a slot that all its responses read;
a response has a row of its own. Both are preallocated and written in place. Active rows and used slots are always
the first ones, so that a step reads plain slices; a freed place is overwritten by the last one in use.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt in a slot.

    Attributes:
        number: the caller's name for it.
        length: its tokens.
        hidden_D: final hidden state at its end, from which a first token is drawn.
    """

    number: int
    length: int
    hidden_D: Tensor


@dataclass(frozen=True, slots=True)
class _Layer:
    """Keys and values of one layer: ``[slots, Hkv, places, D]`` of prompts, ``[rows, Hkv, places, D]`` of responses."""

    prompt_keys: Tensor
    prompt_values: Tensor
    keys: Tensor
    values: Tensor


class KVCache:
    """Storage for ``rows`` responses and ``slots`` prompts; allocated when the first layer writes.

    Args:
        rows, capacity: responses, and the tokens of the longest.
        slots, prompt_capacity: prompts in use at once, and the tokens of the longest.
    """

    def __init__(self, rows: int, capacity: int, slots: int, prompt_capacity: int) -> None:
        self.rows, self.capacity = rows, capacity
        self.slots, self.prompt_capacity = slots, prompt_capacity
        self.prompts: list[Prompt] = []
        self._layers: dict[int, _Layer] = {}

    def layer(self, index: int, like: Tensor) -> _Layer:
        """Storage of one layer for keys shaped like ``[any, Hkv, any, D]``."""
        if index not in self._layers:
            _, heads, _, width = like.shape
            prompt = (self.slots, heads, self.prompt_capacity, width)
            own = (self.rows, heads, self.capacity, width)
            self._layers[index] = _Layer(*(like.new_zeros(shape) for shape in (prompt, prompt, own, own)))
        return self._layers[index]

    def move(self, source: int, target: int, length: int) -> None:
        """Overwrite row ``target`` by the first ``length`` places of row ``source``."""
        for layer in self._layers.values():
            for held in (layer.keys, layer.values):
                held[target, :, :length] = held[source, :, :length]

    def release(self, used: Collection[int]) -> None:
        """Free the slots of prompts whose number is not in ``used``."""
        slot = 0
        while slot < len(self.prompts):
            if self.prompts[slot].number in used:
                slot += 1
                continue
            last = self.prompts.pop()
            if slot < len(self.prompts):
                self.prompts[slot] = last
                for layer in self._layers.values():
                    for held in (layer.prompt_keys, layer.prompt_values):
                        held[slot, :, : last.length] = held[len(self.prompts), :, : last.length]


@dataclass(frozen=True, slots=True)
class Prefill:
    """Prompts, right-padded, written to the slots from ``first`` on."""

    cache: KVCache
    first: int

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Causal self-attention of the prompts; padding lies to the right, where no prompt token looks."""
        count, heads, length, _ = query.shape
        held = self.cache.layer(layer, key)
        held.prompt_keys[self.first : self.first + count, :, :length] = key
        held.prompt_values[self.first : self.first + count, :, :length] = value
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
            enable_gqa=heads != key.shape[1],
        )
        return out.transpose(1, 2)


class Step:
    """One new token for each of the first ``R`` rows.

    Args:
        cache: holds the rows and the prompts that they continue.
        slots: the slot of each row's prompt.
        own: how many tokens of its response each row has fed before this one.
        device: where the cache lies.
    """

    def __init__(
        self, cache: KVCache, slots: Sequence[int], own: Sequence[int], device: torch.device
    ) -> None:
        self.cache = cache
        self.own_R = torch.tensor(own, device=device)
        self.length_R = torch.tensor([cache.prompts[slot].length for slot in slots], device=device)
        self.position_R = self.length_R + self.own_R
        self.longest_prompt = max(prompt.length for prompt in cache.prompts)
        self.longest_own = max(own) + 1
        members: list[list[int]] = [[] for _ in cache.prompts]
        for row, slot in enumerate(slots):
            members[slot].append(row)
        self._members = max(map(len, members))
        gather, place = [], [0] * len(slots)
        for slot, rows in enumerate(members):
            gather += rows + [0] * (self._members - len(rows))
            for rank, row in enumerate(rows):
                place[row] = slot * self._members + rank
        # None where the rows lie side by side already, equally many of each prompt.
        ordered = gather == list(range(len(slots)))
        self._gather = None if ordered else torch.tensor(gather, device=device)
        self._place_R = None if ordered else torch.tensor(place, device=device)
        self._masks: dict[int | None, Tensor] = {}
        self._targets: dict[int, Tensor] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Attention of each row's new token to its prompt and its own tokens.

        The queries of all rows of a prompt meet it in one product; those of a row's query heads that share a key
        head are stacked on the length axis, so that no keys are copied.
        """
        rows, heads, _, width = query.shape
        held = self.cache.layer(layer, key)
        target = self._target(key.shape[1])
        held.keys.view(-1, width).index_copy_(0, target, key.reshape(-1, width))
        held.values.view(-1, width).index_copy_(0, target, value.reshape(-1, width))
        used, split, own = len(self.cache.prompts), self.longest_prompt, slice(self.longest_own)
        scale = width**-0.5 if scaling is None else scaling
        stacked = query.reshape(rows, key.shape[1], -1, width) * scale
        of_prompt = self._by_prompt(stacked) @ held.prompt_keys[:used, :, :split].transpose(-1, -2)
        of_own = stacked @ held.keys[:rows, :, own].transpose(-1, -2)
        scores = torch.cat([self._by_row(of_prompt), of_own], dim=-1)
        scores += self._mask(window, query.dtype)
        weights = scores.softmax(-1, dtype=torch.promote_types(query.dtype, torch.float32)).to(query.dtype)
        out = self._by_row(self._by_prompt(weights[..., :split]) @ held.prompt_values[:used, :, :split])
        out += weights[..., split:] @ held.values[:rows, :, own]
        return out.reshape(rows, 1, heads, width)

    def _by_prompt(self, value: Tensor) -> Tensor:
        """``[R, Hkv, r, X]`` to ``[slots, Hkv, members * r, X]``: the rows of each prompt side by side."""
        _, heads, repeat, width = value.shape
        gathered = value if self._gather is None else value.index_select(0, self._gather)
        gathered = gathered.view(-1, self._members, heads, repeat, width)
        return gathered.transpose(1, 2).reshape(-1, heads, self._members * repeat, width)

    def _by_row(self, value: Tensor) -> Tensor:
        """The way back."""
        slots, heads, _, width = value.shape
        spread = value.view(slots, heads, self._members, -1, width).transpose(1, 2)
        rows = spread.reshape(slots * self._members, heads, -1, width)
        return rows if self._place_R is None else rows.index_select(0, self._place_R)

    def _target(self, heads: int) -> Tensor:
        """Index of each (row, head)'s new place in the flattened storage."""
        if heads not in self._targets:
            device = self.own_R.device
            lane = torch.arange(len(self.own_R) * heads, device=device).view(-1, heads)
            self._targets[heads] = (lane * self.cache.capacity + self.own_R[:, None]).flatten()
        return self._targets[heads]

    def _mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """Additive ``[R, 1, 1, prompt places + own places]``, the same for all layers with this window."""
        if window not in self._masks:
            device = self.own_R.device
            prompt_S = torch.arange(self.longest_prompt, device=device)
            own_S = torch.arange(self.longest_own, device=device)
            seen = torch.cat([prompt_S < self.length_R[:, None], own_S <= self.own_R[:, None]], dim=1)
            if window is not None:
                distance = torch.cat(
                    [self.position_R[:, None] - prompt_S, self.own_R[:, None] - own_S], dim=1
                )
                seen &= distance < window
            mask = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill(~seen, float("-inf"))
            self._masks[window] = mask[:, None, None]
        return self._masks[window]
