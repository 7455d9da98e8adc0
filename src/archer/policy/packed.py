"""The packed layout: each prompt once, then its responses, without padding.

All responses of a group share their prompt. The tokens of a micro-batch lie in one row of N tokens, segment
after segment: the prompt, then each response with positions that continue from the prompt. A response's last
token predicts nothing, so it is left out. Attention is exact: prompts attend causally to themselves, and each
response to its prompt and itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

PACKED = "archer_packed"
Pair = tuple[Sequence[int], Sequence[int]]
"""Prompt ids and response ids of one row."""


class AttentionLayout(Protocol):
    """Anything that can take the place of a model's attention: the packed layout, or a decoding cache."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Attention output ``[batch, tokens, Hq, D]`` for ``[batch, heads, tokens, D]`` inputs."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """One prompt and the responses that follow it.

    Attributes:
        prompt: number of prompt tokens.
        lengths: tokens of each response that are fed to the model (all but its last).
        gather_GT: index of each response's tokens among the segment's response tokens, padded to the longest;
            None where all are equally long, so that a view will do.
        valid_R: the places of ``gather_GT`` that are no padding; None likewise.
    """

    prompt: int
    lengths: tuple[int, ...]
    gather_GT: Tensor | None
    valid_R: Tensor | None

    @property
    def shape(self) -> tuple[int, int]:
        """Responses, and length of the longest."""
        return len(self.lengths), max(self.lengths)


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """Token ids, positions and the index tensors of one packed micro-batch.

    Attributes:
        input_ids_1N, position_ids_1N: int64, what the model is fed.
        predict_M: index in the packed row of the hidden state that predicts each response token.
        target_M: the response tokens, row after row.
        row_M, column_M: where token m stands in a padded ``[B, T]`` tensor.
        shape: ``(B, T)``.
    """

    input_ids_1N: Tensor
    position_ids_1N: Tensor
    predict_M: Tensor
    target_M: Tensor
    row_M: Tensor
    column_M: Tensor
    shape: tuple[int, int]
    segments: tuple[_Segment, ...]

    def to_padded(self, value_M: Tensor) -> Tensor:
        """Scatter one value a response token into ``[B, T]``, zeros elsewhere; keeps the gradient."""
        padded_BT = value_M.new_zeros(self.shape)
        return padded_BT.index_put((self.row_M, self.column_M), value_M)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Exact attention over the layout, the same for every layer.

        Args:
            layer: number of the decoder layer.
            query: ``[1, Hq, N, D]``; key, value: ``[1, Hkv, N, D]``.

        Returns:
            ``[1, N, Hq, D]``.
        """
        # One split, so that its backward pass is one concatenation: slices would each fill a tensor of zeros.
        sizes = [size for s in self.segments for size in (s.prompt, sum(s.lengths))]
        parts = zip(*(torch.split(x[0], sizes, dim=1) for x in (query, key, value)), strict=True)
        pieces = []
        for segment in self.segments:
            prompt = next(parts)
            pieces.append(_prompt_attention(prompt, scaling, window))
            response = next(parts)
            if sum(segment.lengths):
                pieces.append(_response_attention(response, prompt[1:], segment, scaling, window))
        return torch.cat(pieces)[None]


def _prompt_attention(prompt: Sequence[Tensor], scaling: float | None, window: int | None) -> Tensor:
    q, k, v = prompt
    length = q.shape[1]
    mask = None
    if window is not None and window < length:
        mask = _causal_mask(length, length, window, 1, q.device, q.dtype)
    gqa = q.shape[0] != k.shape[0]
    out = F.scaled_dot_product_attention(
        q[None], k[None], v[None], attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=gqa
    )
    return out[0].transpose(0, 1)


def _response_attention(
    response: Sequence[Tensor],
    prompt: Sequence[Tensor],
    segment: _Segment,
    scaling: float | None,
    window: int | None,
) -> Tensor:
    """Responses of one segment, padded to each other; queries of one key-value head are stacked on the length
    axis, so that grouped-query attention needs no copy of the keys."""
    group, length = segment.shape
    q, k, v = response
    heads, _, width = k.shape
    repeat = q.shape[0] // heads

    def own(x: Tensor) -> Tensor:
        if segment.gather_GT is not None:
            x = x.index_select(1, segment.gather_GT.flatten())
        return torch.unflatten(x, 1, (group, length))

    def with_prompt(x: Tensor, of_prompt: Tensor) -> Tensor:
        return torch.cat([of_prompt.expand(group, -1, -1, -1), own(x).transpose(0, 1)], dim=2)

    queries = torch.unflatten(own(q), 0, (heads, repeat)).permute(2, 0, 1, 3, 4)
    out = F.scaled_dot_product_attention(
        queries.reshape(group, heads, repeat * length, width),
        with_prompt(k, prompt[0]),
        with_prompt(v, prompt[1]),
        attn_mask=_causal_mask(length, segment.prompt + length, window, repeat, q.device, q.dtype),
        scale=scaling,
    )
    out = out.view(group, heads * repeat, length, width).transpose(1, 2).reshape(group * length, -1, width)
    return out if segment.valid_R is None else out.index_select(0, segment.valid_R)


@lru_cache(maxsize=4)
def _causal_mask(
    queries: int, keys: int, window: int | None, repeat: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Additive causal mask aligned to the end, optionally within a sliding window, repeated over the queries.

    All layers of a pass ask for the same one or two.
    """
    mask = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
    if window is not None:
        mask = mask.triu(keys - queries - window + 1)
    additive = torch.zeros(queries, keys, dtype=dtype, device=device).masked_fill(~mask, float("-inf"))
    return additive.repeat(repeat, 1)


def pack(rows: Sequence[Pair], device: torch.device | str = "cpu") -> PackedLayout:
    """Lay out rows; neighbouring rows with the same prompt share it.

    Args:
        rows: prompt and response ids. Prompts must not be empty; responses may be.

    Raises:
        ValueError: a prompt is empty.
    """
    ids: list[int] = []
    positions: list[int] = []
    predict: list[int] = []
    segments: list[_Segment] = []
    first = 0
    while first < len(rows):
        prompt = list(rows[first][0])
        if not prompt:
            raise ValueError(f"expected at least one prompt token, got none in row {first}")
        last = first
        while last < len(rows) and list(rows[last][0]) == prompt:
            last += 1
        start = len(ids)
        ids += prompt
        positions += range(len(prompt))
        starts, lengths = [], []
        for _, response in rows[first:last]:
            starts.append(len(ids))
            lengths.append(max(len(response) - 1, 0))
            ids += list(response[:-1])
            positions += range(len(prompt), len(prompt) + lengths[-1])
            if len(response):
                predict += [start + len(prompt) - 1, *range(starts[-1], starts[-1] + lengths[-1])]
        segments.append(_segment(len(prompt), lengths, device))
        first = last
    lengths_B = [len(response) for _, response in rows]
    return PackedLayout(
        input_ids_1N=torch.tensor([ids], device=device),
        position_ids_1N=torch.tensor([positions], device=device),
        predict_M=torch.tensor(predict, dtype=torch.int64, device=device),
        target_M=torch.tensor(
            [t for _, response in rows for t in response], dtype=torch.int64, device=device
        ),
        row_M=torch.tensor(
            [b for b, n in enumerate(lengths_B) for _ in range(n)], dtype=torch.int64, device=device
        ),
        column_M=torch.tensor([t for n in lengths_B for t in range(n)], dtype=torch.int64, device=device),
        shape=(len(rows), max(lengths_B, default=0)),
        segments=tuple(segments),
    )


def _segment(prompt: int, lengths: list[int], device: torch.device | str) -> _Segment:
    if min(lengths) == max(lengths):
        return _Segment(prompt, tuple(lengths), None, None)
    column_T = torch.arange(max(lengths))
    length_G = torch.tensor(lengths)[:, None]
    start_G = length_G.cumsum(0) - length_G
    # Padded places point at the first token: any finite value will do, since only padding attends there.
    gather_GT = torch.where(column_T < length_G, start_G + column_T, 0)
    valid_R = (column_T < length_G).flatten().nonzero()[:, 0]
    return _Segment(prompt, tuple(lengths), gather_GT.to(device), valid_R.to(device))


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    archer_layout: AttentionLayout | None = None,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """What transformers calls in place of its own attention; without a layout it is plain sdpa."""
    if archer_layout is None:
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module,
            query,
            key,
            value,
            attention_mask,
            scaling=scaling,
            sliding_window=sliding_window,
            **kwargs,
        )
    if odd := {name for name in ("softcap", "s_aux", "position_bias") if kwargs.get(name) is not None}:
        raise ValueError(f"attention with {', '.join(sorted(odd))} is not plain softmax attention")
    layer: int = module.layer_idx  # type: ignore[assignment]
    return archer_layout.attend(layer, query, key, value, scaling, sliding_window), None


AttentionInterface.register(PACKED, _attention)
AttentionMaskInterface.register(PACKED, sdpa_mask)
