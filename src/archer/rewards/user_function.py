"""A user's reward function, run in worker processes."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from archer.errors import ConfigError
from archer.rewards.boundary import encode
from archer.types import Problem


def load_function(reference: str) -> Callable[..., Any]:
    """Import ``path.py:name``. The file's folder goes on ``sys.path``, so it may import its neighbours.

    Raises:
        ConfigError: no such file, no such name, or not callable.
    """
    path, _, name = reference.rpartition(":")
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"reward.function: expected path.py:name, found no file {file}")
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(f"archer_user_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"reward.function: {file} can't be imported; expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found: Callable[..., Any] | None = vars(module).get(name)
    if not callable(found):
        names = sorted(k for k, v in vars(module).items() if inspect.isfunction(v))
        raise ConfigError(f"reward.function: expected a callable {name!r} in {file}, found {names}")
    return found


def make_handler(function: str, batched: bool) -> Callable[[Any], Any]:
    """Handler of one worker. One event loop per worker serves async functions, so clients can be kept."""
    call = load_function(function)
    runner = asyncio.Runner()

    async def wait_for(awaitable: Any) -> Any:
        return await awaitable

    def run(*arguments: Any) -> Any:
        result = call(*arguments)
        return runner.run(wait_for(result)) if inspect.isawaitable(result) else result

    def one(request: tuple[Problem, str]) -> Any:
        return encode(run(*request))

    def many(request: tuple[Sequence[Problem], Sequence[str]]) -> Any:
        result = run(*request)
        try:
            values = list(result)
        except TypeError:
            return {"type": "bad", "found": f"{type(result).__name__}, expected a list"}
        return [encode(value) for value in values]

    return many if batched else one
