"""From scored groups to the tensors of the objective, and the split into mini- and micro-batches."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from archer.policy.packed import Pair
from archer.types import Group, Rollout, TokenBatch


@dataclass(frozen=True, slots=True)
class StepData:
    """All trained responses of one step.

    Attributes:
        rows: prompt and response ids, the responses of a group next to each other.
        group: number of the group of each row.
        batch: constants of the objective on the CPU, ``[B, T]``; ``logp_BT`` holds the old log-probabilities.
    """

    rows: Sequence[Pair]
    group: Sequence[int]
    batch: TokenBatch


@dataclass(slots=True)
class LastVisit:
    """What the update saw of each token when it visited it last.

    Attributes:
        ratio_BT: importance ratio, 1 where no update came.
        clip_BT: int8 clip state of the objective (see ``LossTerms``); None for methods without a clip range.
    """

    ratio_BT: Tensor
    clip_BT: Tensor | None = None

    def note(self, rows: Sequence[int], ratio_BT: Tensor, clip_BT: Tensor | None) -> None:
        """Overwrite the given rows, up to the width of ``ratio_BT``."""
        width = ratio_BT.shape[1]
        self.ratio_BT[rows, :width] = ratio_BT.float().cpu()
        if clip_BT is not None:
            if self.clip_BT is None:
                self.clip_BT = torch.zeros(self.ratio_BT.shape, dtype=torch.int8)
            self.clip_BT[rows, :width] = clip_BT.cpu()


def assemble(groups: Sequence[Group], *, mask_truncated: bool) -> StepData:
    """Pad the groups' responses on the right; advantages are 0 until they are known.

    Rows without a verdict are masked, so that they count nowhere; with ``mask_truncated`` so are those cut off by
    the length limit.
    """
    pairs = [(r, v) for group in groups for r, v in zip(group.rollouts, group.verdicts, strict=True)]
    lengths_B = torch.tensor([len(rollout.token_ids) for rollout, _ in pairs])
    usable_B = torch.tensor(
        [
            verdict.score is not None and not (mask_truncated and rollout.finish_reason == "length")
            for rollout, verdict in pairs
        ]
    )
    shape = (len(pairs), int(lengths_B.max()))
    logp_BT, entropy_BT = torch.zeros(shape), torch.zeros(shape)
    for index, (rollout, _) in enumerate(pairs):
        logp_BT[index, : len(rollout.logp)] = torch.tensor(rollout.logp)
        entropy_BT[index, : len(rollout.entropy)] = torch.tensor(rollout.entropy)
    number = [i for i, group in enumerate(groups) for _ in group.rollouts]
    batch = TokenBatch(
        logp_BT=logp_BT,
        old_logp_BT=logp_BT,
        mask_BT=(torch.arange(shape[1]) < lengths_B[:, None]) & usable_B[:, None],
        advantage_BT=torch.zeros(shape),
        old_entropy_BT=entropy_BT,
        group_B=torch.tensor(number),
        response_B=torch.arange(len(pairs)),
    )
    return StepData([(rollout.prompt_ids, rollout.token_ids) for rollout, _ in pairs], number, batch)


def think_end(rollouts: Sequence[Rollout], tag: int | None) -> Tensor:
    """Index of the first token ``tag`` in each response, -1 where there is none, int64 ``[B]``."""
    return torch.tensor(
        [r.token_ids.index(tag) if tag is not None and tag in r.token_ids else -1 for r in rollouts]
    )


def select(batch: TokenBatch, index: Sequence[int], device: torch.device | str = "cpu") -> TokenBatch:
    """The given rows, cut to the longest response among them, on ``device``."""
    rows = torch.tensor(list(index))
    # A masked row still has tokens that the model computes, so the width comes from the stored log-probabilities.
    width = _width(batch, rows)
    chosen: dict[str, Tensor] = {}
    for field in fields(batch):
        value: Tensor | None = getattr(batch, field.name)
        if value is not None:
            part = value[rows]
            chosen[field.name] = (part[:, :width] if part.ndim == 2 else part).to(device)
    return replace(batch, **chosen)


def _width(batch: TokenBatch, rows: Tensor) -> int:
    used_T = (batch.mask_BT[rows] | (batch.old_logp_BT[rows] != 0)).any(0).nonzero()
    return int(used_T.max()) + 1 if len(used_T) else 0


def micro_batches(data: StepData, index: Sequence[int], budget: int) -> list[list[int]]:
    """Split rows into runs of at most ``budget`` packed tokens, the prompt of a group counted once a run.

    A single row above the budget forms a run of its own. Rows of a group stay next to each other, longest first
    within the group, so that padding in attention is small.
    """
    ordered = sorted(index, key=lambda i: (data.group[i], -len(data.rows[i][1])))
    runs: list[list[int]] = []
    used, previous = budget, -1
    for row in ordered:
        prompt, response = data.rows[row]
        cost = len(response) + (len(prompt) if data.group[row] != previous else 0)
        if used + cost > budget:
            runs.append([])
            used, cost = 0, len(prompt) + len(response)
        runs[-1].append(row)
        used, previous = used + cost, data.group[row]
    return runs


def mini_batches(data: StepData, prompts: int, seed: int) -> list[list[int]]:
    """Rows of ``prompts`` whole groups at a time, groups in an order that depends on ``seed`` alone."""
    numbers = sorted(set(data.group))
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed)).tolist()
    shuffled = [numbers[i] for i in order]
    chunks = [set(shuffled[i : i + prompts]) for i in range(0, len(shuffled), prompts)]
    return [[row for row, group in enumerate(data.group) if group in chunk] for chunk in chunks]
