"""One fixed batch: ragged lengths, a truncated row, an unscorable row, a group without variance."""

import math

import torch

GROUPS = [0, 0, 0, 1, 1, 1, 2, 2]
LENGTHS = [7, 12, 4, 9, 16, 5, 11, 8]
PROMPTS = [5, 9, 6]
REWARDS = [1.0, 0.0, 0.0, 1.0, 1.0, math.nan, 0.0, 1.0]
"""Group 1 has equal rewards and an unscorable row; row 4 has the full length."""
VOCABULARY = 109


def fixed_rows():
    """Prompt and response ids of each row."""
    draw = torch.Generator().manual_seed(7)
    prompts = [torch.randint(1, VOCABULARY, (n,), generator=draw).tolist() for n in PROMPTS]
    return [
        (tuple(prompts[g]), tuple(torch.randint(1, VOCABULARY, (n,), generator=draw).tolist()))
        for g, n in zip(GROUPS, LENGTHS, strict=True)
    ]


def noise(scale, seed):
    """Differences of another policy's log-probabilities, ``[B, T]``."""
    shape = (len(LENGTHS), max(LENGTHS))
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def full_mask():
    return torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
