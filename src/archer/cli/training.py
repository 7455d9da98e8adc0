"""``archer train`` and ``archer demo``."""

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from archer.cli.app import Overrides, app, console, quiet
from archer.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from archer.configs.run import RunConfig


class Engine(StrEnum):
    """What carries out a run."""

    LOCAL = "local"
    TRL = "trl"
    VERL = "verl"


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped recipe")],
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option(help="Continue from the newest checkpoint")] = False,
    engine: Annotated[Engine, typer.Option(help="What carries out the run")] = Engine.LOCAL,
    dry_run: Annotated[bool, typer.Option(help="verl: print the settings and launch nothing")] = False,
    ray_address: Annotated[str | None, typer.Option(help="verl: address of a Ray cluster")] = None,
) -> None:
    """Train a policy."""
    from archer.configs.loading import load_config
    from archer.configs.run import RunConfig

    if engine is not Engine.VERL and (dry_run or ray_address is not None):
        raise ConfigError(f"--dry-run and --ray-address belong to --engine verl, got --engine {engine}")
    config = load_config(RunConfig, recipe, overrides or [])
    match engine:
        case Engine.LOCAL:
            _train(config, resume=resume)
        case Engine.TRL:
            _train_trl(config, resume=resume)
        case Engine.VERL:
            _train_verl(config, resume=resume, dry_run=dry_run, ray_address=ray_address)


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
    metrics = folder / "metrics.jsonl"  # absent where a signal came before the first line
    lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    evaluated = [line for line in lines if any(key.startswith("eval/") for key in line)]
    if len(evaluated) > 1:
        console.print(before_and_after(evaluated[0], evaluated[-1]))
    console.print(f"run directory: {folder}")
    if not finished:
        console.print(f"stopped on a signal; continue with: archer train {folder / 'config.yaml'} --resume")
        raise typer.Exit(EXIT_INTERRUPTED)


def _train_trl(config: "RunConfig", *, resume: bool) -> None:
    from archer.adapters.trl.engine import train as run
    from archer.policy.tokenizer import PromptRenderer, load_tokenizer, model_place
    from archer.train.setup import check_folder, load_prompts

    # Under accelerate launch the first process writes the run directory, perhaps before the others look.
    if int(os.environ.get("RANK", "0")) == 0:
        check_folder(Path(config.output) / config.name, resume)
    tokenizer = load_tokenizer(config.policy)
    renderer = PromptRenderer(tokenizer, config.policy)
    problems, held_out = (
        []
        if data is None
        else load_prompts(
            data, renderer, config.rollout.max_prompt_tokens, config.rollout.overlong_prompts, console.print
        )
        for data in (config.data, config.evaluation.data)
    )
    folder = run(
        config,
        model=model_place(config.policy),
        tokenizer=tokenizer,
        chat=renderer.uses_template,
        problems=problems,
        held_out=held_out,
        resume=resume,
    )
    console.print(f"run directory: {folder}")


def _train_verl(config: "RunConfig", *, resume: bool, dry_run: bool, ray_address: str | None) -> None:
    if resume:
        raise ConfigError("--resume is not for --engine verl: verl continues from its own newest checkpoint")
    try:
        from archer.adapters.verl.launch import launch  # type: ignore[import-not-found]
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"--engine verl needs {error.name}: see docs/VERL.md") from error
    launch(config, dry_run=dry_run, ray_address=ray_address)


def _free_name(output: Path, stem: str) -> str:
    number = 1
    while (output / f"{stem}-{number}").exists():
        number += 1
    return f"{stem}-{number}"
