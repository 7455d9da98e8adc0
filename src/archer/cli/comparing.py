"""``archer compare`` and ``archer ablate``."""

from pathlib import Path
from typing import Annotated

import typer

from archer.cli.app import Overrides, app, console, show_markdown
from archer.cli.reporting import gradient_of
from archer.configs.study import StudyConfig

Seeds = Annotated[str | None, typer.Option(help="Values of train.seed, with commas: 0,1,2")]
Groups = Annotated[list[str] | None, typer.Option(help="Only these tables of the study; may be repeated")]
Workers = Annotated[int, typer.Option(min=1, help="Runs at the same time")]
TablesOnly = Annotated[bool, typer.Option(help="Only write the tables of the finished runs")]


@app.command()
def compare(
    recipe: Annotated[
        str,
        typer.Argument(help="A study (a YAML file with variants), or a run recipe together with --methods"),
    ],
    overrides: Overrides = None,
    methods: Annotated[
        str | None, typer.Option(help="Objectives to compare, with commas: archer,grpo,dapo")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="What the others are compared with; by default the first method")
    ] = None,
    seeds: Seeds = None,
    name: Annotated[str | None, typer.Option(help="Name of the study's folder")] = None,
    group: Groups = None,
    workers: Workers = 1,
    tables_only: TablesOnly = False,
) -> None:
    """Train several methods or settings over several seeds, and say which differences are more than noise.

    Finished runs are kept: the same command continues an interrupted study.
    """
    study = _study(recipe, overrides or [], methods, baseline, seeds, name)
    _carry_out(_only(study, group or []), workers, tables_only)


@app.command()
def ablate(
    scale: Annotated[
        str,
        typer.Argument(help="tiny (the demo's model, on this machine), math-1.5b or code-1.5b (the paper's)"),
    ] = "tiny",
    overrides: Overrides = None,
    seeds: Seeds = None,
    group: Groups = None,
    workers: Workers = 1,
    tables_only: TablesOnly = False,
) -> None:
    """The paper's ablations: Tables 3 (rho), 4 (kl) and 5 (clip), and the threshold's scope (Fig. 2)."""
    study = _study(f"ablate-{scale}", overrides or [], None, None, seeds, None)
    _carry_out(_only(study, group or []), workers, tables_only)


def _study(
    recipe: str,
    overrides: list[str],
    methods: str | None,
    baseline: str | None,
    seeds: str | None,
    name: str | None,
) -> StudyConfig:
    """A study from its file, or made of a run recipe and a list of methods; options win over the file."""
    import yaml

    from archer.configs.loading import build_config, find_recipe
    from archer.errors import ConfigError

    path = find_recipe(recipe)
    values = yaml.safe_load(path.read_text()) or {}
    if "variants" not in values:
        if methods is None:
            raise ConfigError(
                f"{path}: expected a study with variants, found a run recipe; add --methods archer,grpo to compare "
                "methods on it"
            )
        chosen = methods.split(",")
        values = {
            "name": f"{path.stem}-methods",
            "base": str(path),
            "variants": {method: [f"objective.method={method}"] for method in chosen},
            "baseline": chosen[0],
        }
    elif methods is not None:
        raise ConfigError(
            f"{path}: --methods goes with a run recipe; this is a study, which names its variants"
        )
    values["overrides"] = [*values.get("overrides", []), *overrides]
    if baseline is not None:
        values["baseline"] = baseline
    if seeds is not None:
        values["seeds"] = seeds.split(",")
    if name is not None:
        values["name"] = name
    return build_config(StudyConfig, values, where=str(path))


def _only(study: StudyConfig, groups: list[str]) -> StudyConfig:
    """The study without the tables and variants that were not asked for."""
    from archer.errors import ConfigError

    if not groups:
        return study
    unknown = [group for group in groups if group not in study.groups]
    if unknown:
        raise ConfigError(
            f"--group: expected one of {', '.join(study.groups) or 'none: the study has one table'}; got {unknown[0]}"
        )
    kept = {title: members for title, members in study.tables().items() if title in groups}
    wanted = {member for members in kept.values() for member in members}
    variants = {key: value for key, value in study.variants.items() if key in wanted}
    return study.model_copy(update={"groups": kept, "variants": variants})


def _carry_out(study: StudyConfig, workers: int, tables_only: bool) -> None:
    from archer.experiments import Run, collect, plan, run_study, write_study

    runs = plan(study)
    place = {(run.variant, run.seed): number for number, run in enumerate(runs, 1)}

    def report(run: Run, message: str) -> None:
        where = f"[{place[run.variant, run.seed]}/{len(runs)}]"
        console.print(f"{where} {run.variant}, seed {run.seed}: {message}", markup=False, soft_wrap=True)

    failed = [] if tables_only else run_study(runs, workers=workers, report=report)
    result = collect(study, runs)
    files = write_study(result, runs, Path(study.output) / study.name, gradient_of)
    show_markdown(result.markdown())
    console.print(f"tables, curves and report: {files[0].parent}", soft_wrap=True)
    if failed:
        raise typer.Exit(1)
