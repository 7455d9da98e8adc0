"""Problems made by reasoning-gym generators."""

from __future__ import annotations

import difflib
import hashlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from archer.configs.data import DataConfig
from archer.errors import DataError
from archer.types import Problem

TRIES_PER_PROBLEM = 50


def procedural_problems(config: DataConfig) -> list[Problem]:
    """Make ``config.size`` problems, the tasks taking turns; the same configuration gives the same list.

    ``meta`` holds ``task``, ``settings`` and ``entry`` (``question``, ``answer``, ``metadata``), which is
    what the task's own scorer needs. ``answer`` is ``None`` where only that scorer can decide.

    Raises:
        DataError: an unknown task, settings that it refuses, or (with ``distinct``) a task that runs out of
            different problems.
    """
    streams = [_entries(name, settings, config) for name, settings in config.tasks.items()]
    return [next(stream) for stream in itertools.islice(itertools.cycle(streams), config.size)]


def _entries(name: str, settings: Mapping[str, Any], config: DataConfig) -> Iterator[Problem]:
    dataset = _dataset(name, settings, config)
    seen: set[str] = set()
    for index in range(dataset.size):
        entry = dataset[index]
        if config.distinct and entry["question"] in seen:
            continue
        seen.add(entry["question"])
        yield Problem(
            id=f"{name}-{config.seed}-{index}",
            prompt=entry["question"],
            answer=entry["answer"],
            domain="procedural",
            source=f"reasoning-gym/{name}",
            meta={"task": name, "settings": dict(settings), "entry": dict(entry)},
        )
    raise DataError(
        f"task {name}: expected {-(-config.size // len(config.tasks))} different problems, "
        f"found {len(seen)}; "
        "widen the settings of the task, lower size, or set distinct: false"
    )


def _dataset(name: str, settings: Mapping[str, Any], config: DataConfig) -> Any:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=3) or sorted(DATASETS)[:5]
        raise DataError(f"tasks: expected a reasoning-gym task, found {name!r}; nearest: {', '.join(near)}")
    if clash := {"seed", "size"} & settings.keys():
        raise DataError(
            f"tasks.{name}: {', '.join(sorted(clash))} belongs beside tasks, not in the task's settings"
        )
    # Item i of seed s is drawn from a generator seeded with s + i, so neighbouring seeds share nearly all
    # their items; a hashed seed keeps a training and a held-out set apart.
    digest = hashlib.sha256(f"{name}:{config.seed}".encode()).digest()
    try:
        return reasoning_gym.create_dataset(
            name, seed=int.from_bytes(digest[:4], "big"), size=config.size * TRIES_PER_PROBLEM, **settings
        )
    except (AssertionError, TypeError, ValueError) as error:
        raise DataError(
            f"tasks.{name}: settings {dict(settings)} refused: {error}; see the task's config"
        ) from None
