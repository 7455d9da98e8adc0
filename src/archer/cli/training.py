"""``archer train`` and ``archer demo``."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from archer.cli.app import Overrides, app, console, quiet


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped recipe")],
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option(help="Continue from the newest checkpoint")] = False,
) -> None:
    """Train a policy."""
    from archer.configs.loading import load_config
    from archer.configs.run import RunConfig

    _train(load_config(RunConfig, recipe, overrides or []), resume=resume)


@app.command()
def demo(overrides: Overrides = None) -> None:
    """Train the tiny model that ships with Archer on sums: everything on this machine, nothing downloaded."""
    from archer.configs.loading import load_config
    from archer.configs.run import RunConfig

    name = _free_name(Path("runs"), "demo")
    _train(load_config(RunConfig, "demo", [f"name={name}", *(overrides or [])]), resume=False)


def _train(config: Any, *, resume: bool) -> None:
    from archer.train.interrupt import EXIT_INTERRUPTED
    from archer.train.progress import ProgressDisplay, before_and_after
    from archer.train.setup import train as run
    from archer.train.trackers import build_trackers

    quiet()
    folder = Path(config.output) / config.name
    trackers = build_trackers(
        config.trackers, folder, config.name, config.model_dump(mode="json"), console.print
    )
    with ProgressDisplay(config.train.steps, console) as display:

        def report(line: dict[str, Any]) -> None:
            display(line)
            for tracker in trackers:
                tracker(line)

        folder, finished = run(config, resume=resume, report=report)
    for tracker in trackers:
        tracker.close()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line for line in lines if any(key.startswith("eval/") for key in line)]
    if len(evaluated) > 1:
        console.print(before_and_after(evaluated[0], evaluated[-1]))
    console.print(f"run directory: {folder}")
    if not finished:
        console.print(f"stopped on a signal; continue with: archer train {folder / 'config.yaml'} --resume")
        raise typer.Exit(EXIT_INTERRUPTED)


def _free_name(output: Path, stem: str) -> str:
    number = 1
    while (output / f"{stem}-{number}").exists():
        number += 1
    return f"{stem}-{number}"
