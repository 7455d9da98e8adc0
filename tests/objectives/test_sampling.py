"""Overlong shaping and filtering, and dynamic sampling."""

import pytest
import torch

from archer.objectives import mixed_groups, overlong_filter, overlong_penalty

NAN = float("nan")


def test_overlong_penalty_is_the_papers():
    length = torch.tensor([16384, 16385, 18432, 20480, 20481, 1])
    penalty = overlong_penalty(length, limit=20480, buffer=4096)
    assert penalty.tolist() == pytest.approx([0, -0.000244, -0.5, -1, -1, 0], abs=1e-6)


def test_overlong_penalty_without_floor_falls_on():
    length = torch.tensor([90, 100, 120])
    penalty = overlong_penalty(length, limit=100, buffer=20, factor=0.5, floor=False)
    assert penalty.tolist() == pytest.approx([-0.25, -0.5, -1.0])


@pytest.mark.parametrize("buffer", [0, 21])
def test_overlong_penalty_refuses_an_impossible_buffer(buffer):
    with pytest.raises(ValueError, match=f"expected 0 < buffer <= limit, got buffer={buffer} and limit=20"):
        overlong_penalty(torch.tensor([3]), limit=20, buffer=buffer)


def test_overlong_filter_masks_whole_responses():
    mask = torch.tensor([[True, True, False], [True, True, True]])
    assert overlong_filter(mask, torch.tensor([False, True])).tolist() == [[True, True, False], [False] * 3]


@pytest.mark.parametrize(
    ("reward", "keep"),
    [
        ([1, 0, 1, 1], [False, True, False, True]),
        ([1, 1, 1, 1], [False] * 4),
        ([NAN, 0, 1, 1], [False, True, False, True]),
        ([NAN, NAN, NAN, NAN], [False] * 4),
        ([0.3, 1.00001, 0.3, 1.0], [False, True, False, True]),
    ],
)
def test_only_groups_with_different_scores_are_kept(reward, keep):
    group = torch.tensor([5, -2, 5, -2])
    assert mixed_groups(torch.tensor(reward, dtype=torch.float32), group).tolist() == keep
