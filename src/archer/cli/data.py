"""``archer data``."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress as Bar
from rich.table import Table

from archer.cli.app import Overrides, app, console

data_app = typer.Typer(no_args_is_help=True)
app.add_typer(data_app, name="data")


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
    from archer.configs.data_recipe import DataRecipe, SamplerConfig
    from archer.configs.loading import load_config
    from archer.data import ScoredSampler, build

    config = load_config(DataRecipe, recipe, overrides or [])
    with ExitStack() as models, Bar(console=console, transient=True) as bar:

        def make_sampler(settings: SamplerConfig) -> ScoredSampler:
            # Imported only here: a recipe without a difficulty stage needs no framework.
            from archer.evaluation.filtering import FilterModel

            sampling = bar.add_task(f"responses of {settings.model}", total=None)
            return models.enter_context(FilterModel(settings, lambda: bar.advance(sampling)))

        task = bar.add_task("reading", total=None)
        card = build(
            config,
            output,
            make_sampler,
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
