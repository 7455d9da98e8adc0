"""The problems of a benchmark."""

from dataclasses import replace
from datetime import date
from pathlib import Path

from archer.configs.benchmark import BenchmarkConfig
from archer.configs.data import DataConfig
from archer.configs.data_recipe import SourceConfig
from archer.configs.loading import build_config
from archer.data import load_problems
from archer.data.adapters.code import before_function
from archer.data.fields import templated
from archer.data.sources import read_source
from archer.errors import DataError
from archer.types import Problem


def load_benchmark(name: str, config: BenchmarkConfig, folder: Path | None) -> list[Problem]:
    """All problems of a benchmark, their prompts rendered with its template.

    Args:
        name: its name, for messages and ids.
        config: the benchmark.
        folder: where local files lie; a file that it has is used instead of the hub.

    Raises:
        DataError: no source can be read, a row is broken, or no problem lies in the window. A benchmark with missing
            rows would give a number that compares with nothing, so every broken row is an error.
    """
    problems = [_with_setup(problem, config) for problem in _problems(name, config, folder)]
    if config.window is not None:
        problems = [problem for problem in problems if _within(problem, config.window)]
    if not problems:
        window = "" if config.window is None else f" between {config.window[0]} and {config.window[1]}"
        raise DataError(f"benchmark {name}: expected problems{window}, found none")
    return problems[: config.limit]


def _problems(name: str, config: BenchmarkConfig, folder: Path | None) -> list[Problem]:
    path = config.path or (folder / config.file if folder is not None and config.file else None)
    common = {"domain": config.domain, "template": config.template}
    if path is not None and (config.path is not None or path.is_file()):
        return load_problems(build_config(DataConfig, {"path": path, **common}, where=f"benchmark {name}"))
    if config.hub is None:
        raise DataError(
            f"benchmark {name}: expected the file {path or config.file}, found none; give its folder with "
            "--data-folder or ARCHER_BENCHMARKS"
        )
    hub = config.hub
    source = SourceConfig(
        hub=hub.id,
        hub_config=hub.config,
        revision=hub.revision,
        split=hub.split,
        form=hub.form,
        columns=hub.columns,
        domain=config.domain,
    )
    found: list[Problem] = []
    for item in read_source(name, source):
        if isinstance(item, DataError):
            raise item
        found.append(replace(item, prompt=templated(item.prompt, config.template)))
    return found


def _with_setup(problem: Problem, config: BenchmarkConfig) -> Problem:
    """Put what stands before the function in a prompt of code before every program."""
    entry_point = problem.meta.get("entry_point")
    if not config.prompt_is_code or entry_point is None or any("setup" in test for test in problem.tests):
        return problem
    prompt = problem.prompt if isinstance(problem.prompt, str) else problem.prompt[-1]["content"]
    before, _, _ = (config.template or "{prompt}").partition("{prompt}")
    setup = before_function(prompt.removeprefix(before), str(entry_point))
    return replace(problem, tests=[{**test, "setup": setup} for test in problem.tests])


def _within(problem: Problem, window: tuple[date, date]) -> bool:
    """Whether a problem's contest lies in the window, its ends included.

    Raises:
        DataError: the problem has no date.
    """
    text = str(problem.meta.get("contest_date", ""))[:10]
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise DataError(
            f"problem {problem.id}: expected a day such as 2024-08-01 in meta.contest_date, found {text!r}"
        ) from None
    return window[0] <= day <= window[1]
