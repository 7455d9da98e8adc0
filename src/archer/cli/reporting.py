"""``archer report``, ``archer rescore``, ``archer cost`` and ``archer watch``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from archer.cli.app import app, console, quiet, show_markdown


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
    page = write_report(loaded, output or runs[0] / "report.html", gradient_of=gradient_of)
    console.print(f"report: {page}", soft_wrap=True)
    if figures is not None:
        written = write_figures(loaded, figures, gradient_of=gradient_of)
        console.print(f"{len(written)} figures in {figures}", soft_wrap=True)


@app.command()
def cost(
    runs: Annotated[list[Path], typer.Argument(help="Run directories; several are stages of one training")],
) -> None:
    """Steps, stages, device hours and tokens of runs."""
    from archer.analysis import load_run
    from archer.analysis.cost import cost_table

    show_markdown(cost_table([load_run(path) for path in runs]))


@app.command()
def watch(
    run: Annotated[Path, typer.Argument(help="A run directory")],
    once: Annotated[bool, typer.Option(help="Show the present state and return")] = False,
) -> None:
    """A running or finished run in the terminal."""
    from archer.analysis import watch as show

    show(run, once=once)


@app.command()
def rescore(
    run: Annotated[Path, typer.Argument(help="A run directory with stored rollouts")],
    checkpoint: Annotated[
        str,
        typer.Option(help="One of the run's checkpoints (step_000010), or a model with the same tokenizer"),
    ],
    label: Annotated[str | None, typer.Option(help="Its name in the report")] = None,
) -> None:
    """Compute stored responses under another checkpoint, so that the report can show what changed since."""
    from archer.train.rescore import rescore as run_rescore

    quiet()
    folder = run_rescore(
        run, checkpoint, label=label, report=lambda file: console.print(file, soft_wrap=True)
    )
    console.print(f"written to {folder}; now: archer report {run}", soft_wrap=True)


def gradient_of(run: Any) -> Any:
    """The gradient of a run's own objective, for Fig. 3; None where it has no regions."""
    import numpy as np
    import torch

    from archer.configs.loading import build_config
    from archer.configs.run import RunConfig
    from archer.objectives.regions import has_regions, loss_gradient

    config = build_config(RunConfig, run.config, where=str(run.path / "config.yaml"))
    if not has_regions(config.objective):
        return None

    def gradient(ratio: Any, sign: int, reasoning: bool) -> Any:
        value = loss_gradient(
            config.objective, torch.from_numpy(np.asarray(ratio)), sign, reasoning=reasoning
        )
        return value.numpy()

    return gradient
