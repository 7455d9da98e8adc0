"""The prompt order: complete epochs, no repeats within a call, exact resume."""

import json
import random

import pytest

from archer.data import PromptStream
from archer.errors import CheckpointError, DataError
from archer.types import Problem

PROBLEMS = [Problem(str(i), f"p{i}") for i in range(10)]


def ids(problems):
    return [p.id for p in problems]


def test_every_epoch_is_a_new_permutation():
    stream = PromptStream(PROBLEMS, seed=1)
    epochs = [ids(stream.next(10)) for _ in range(4)]
    assert all(sorted(epoch) == sorted(ids(PROBLEMS)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_the_order_is_fixed_and_depends_on_the_seed():
    assert ids(PromptStream(PROBLEMS, seed=1).next(10)) == ["5", "3", "8", "7", "9", "0", "4", "2", "6", "1"]
    assert ids(PromptStream(PROBLEMS, seed=2).next(10)) != ids(PromptStream(PROBLEMS, seed=1).next(10))


@pytest.mark.parametrize("count", [1, 3, 4, 7, 9, 10])
def test_a_call_never_repeats_a_problem_and_all_are_seen_equally_often(count):
    stream = PromptStream(PROBLEMS, seed=0)
    seen = dict.fromkeys(ids(PROBLEMS), 0)
    for _ in range(30):
        batch = ids(stream.next(count))
        assert len(set(batch)) == len(batch) == count
        for name in batch:
            seen[name] += 1
        assert max(seen.values()) - min(seen.values()) <= 2
    assert stream.epoch >= 30 * count // 10 - 1


def test_resume_continues_exactly_at_every_point():
    counts = [7, 2, 9, 4, 10, 3, 8, 1, 6]
    stream = PromptStream(PROBLEMS, seed=5)
    states, batches = [], []
    for count in counts:
        states.append(json.loads(json.dumps(stream.state())))
        batches.append(ids(stream.next(count)))
    for start, state in enumerate(states):
        resumed = PromptStream(PROBLEMS, seed=5)
        resumed.restore(state)
        assert [ids(resumed.next(count)) for count in counts[start:]] == batches[start:]


def test_global_random_state_is_neither_read_nor_changed():
    random.seed(1)
    before = random.getstate()
    first = ids(PromptStream(PROBLEMS, seed=1).next(10))
    assert random.getstate() == before
    random.seed(2)
    assert ids(PromptStream(PROBLEMS, seed=1).next(10)) == first


def test_other_data_or_seed_is_refused():
    state = PromptStream(PROBLEMS, seed=1).state()
    with pytest.raises(CheckpointError, match="prompt order of seed 2, found one of seed 1"):
        PromptStream(PROBLEMS, seed=2).restore(state)
    with pytest.raises(CheckpointError, match="prompt order of size 9, found one of size 10"):
        PromptStream(PROBLEMS[:9], seed=1).restore(state)


def test_impossible_requests_are_refused():
    with pytest.raises(DataError, match="between 1 and 10 prompts a step"):
        PromptStream(PROBLEMS, seed=1).next(11)
    with pytest.raises(DataError, match="at least one problem"):
        PromptStream([], seed=1)
