"""From a recipe to a data set on disk."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from archer import __version__
from archer.configs.data_recipe import DataRecipe, SamplerConfig, SourceConfig, Stage
from archer.data.card import make_card, markdown
from archer.data.export import export
from archer.data.loading import fingerprint
from archer.data.outcomes import MakeSampler, Outcome, ScoredSampler, StageContext
from archer.data.records import sha256_of
from archer.data.runner import Progress, StageReport, finished, output_of, run_stage, write_json
from archer.data.sources import origin_of, read_source
from archer.data.stages import STAGES
from archer.errors import ConfigError, DataError
from archer.types import Problem

Origins = Mapping[str, Mapping[str, Any]]


def build(
    recipe: DataRecipe,
    output: Path,
    make_sampler: MakeSampler | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Run a recipe and write its result, exports and data card into ``output``.

    Every stage reads the file of the one before and writes its own (``stages/NN-NAME/``), so memory does not
    grow with the data except in the de-duplication stages, which say how. A stage that finished with the
    same settings on the same input is not run again; one that was interrupted starts over, except that a
    difficulty stage keeps every score it has.

    Args:
        recipe: what to do.
        output: a new or empty folder, or the folder of an earlier build.
        make_sampler: called for each difficulty stage.
        progress: called about once in a thousand problems.

    Returns:
        The data card, as in ``data_card.json``.

    Raises:
        DataError: a source or benchmark can't be read, no problem is left, or ``output`` holds other files.
        ConfigError: a difficulty stage without ``make_sampler``.
    """
    _claim(output)
    origins = {name: origin_of(name, config) for name, config in recipe.sources.items()}
    benchmark_origins = {name: origin_of(name, config) for name, config in recipe.benchmarks.items()}
    plan = _plan(recipe, origins, benchmark_origins)
    if make_sampler is None:
        _refuse_unfinished_sampling(recipe, plan, output / "stages")
    _remove_stale(output / "stages", {folder for folder, *_ in plan})
    context = StageContext(recipe, output / "work", output / "cache", make_sampler or _no_sampler)
    reports: list[StageReport] = []
    for number, (folder, name, kind, key) in enumerate(plan, start=1):
        here = output / "stages" / folder
        report = finished(here, key)
        if report is None:
            before = output / "stages" / plan[number - 2][0]
            total = reports[-1].kept if reports else None
            outcomes = _outcomes(recipe, name, before, context)
            tick = _ticker(progress, name, number, len(plan), total)
            report = run_stage(outcomes, here, StageReport(name, kind, key), recipe.samples, tick)
        reports.append(report)
    return _finish(recipe, (origins, benchmark_origins), reports, output, output / "stages" / plan[-1][0])


def _finish(
    recipe: DataRecipe, origins: tuple[Origins, Origins], reports: list[StageReport], output: Path, last: Path
) -> dict[str, Any]:
    shutil.rmtree(output / "work", ignore_errors=True)
    if not reports[-1].kept:
        raise DataError(
            f"{recipe.name}: expected at least one problem in the result, found none; {_why_none(reports)}"
        )
    result = output_of(last)
    paths = [export(result, form, output) for form in recipe.exports]
    files = {path.name: sha256_of(path) for path in paths}
    card = make_card(recipe, origins, reports, result, fingerprint(result), files)
    (output / "data_card.md").write_text(markdown(card))
    write_json(output / "data_card.json", card)
    return card


def _why_none(reports: list[StageReport]) -> str:
    report = next(report for report in reports if not report.kept)
    if not report.seen:
        return "the sources hold no row"
    reason, count = next(iter(report.dropped.items()))
    examples = [str(entry["detail"]) for entry in report.samples.get(reason, [])[:1]]
    return ", for example: ".join(
        [f"stage {report.name} dropped {count} of {report.seen} as {reason!r}", *examples]
    )


def _no_sampler(config: SamplerConfig) -> ScoredSampler:
    raise ConfigError(
        f"difficulty stage: expected a way to sample {config.model}, found none; build where models can be sampled, "
        "or set enabled: false for the stage (the data card will say so)"
    )


def _refuse_unfinished_sampling(
    recipe: DataRecipe, plan: list[tuple[str, str, str, str]], stages: Path
) -> None:
    """Say at once, not after the stages before, that a stage needs a model."""
    for folder, name, _, key in plan:
        stage = recipe.stages.get(name)
        if stage is not None and stage.kind == "difficulty" and finished(stages / folder, key) is None:
            _no_sampler(stage.sampler)


def _plan(
    recipe: DataRecipe, origins: Origins, benchmark_origins: Origins
) -> list[tuple[str, str, str, str]]:
    """Folder, name, kind and key of each stage that runs; a key covers all that its output depends on."""
    sources = [[name, config.model_dump(mode="json")] for name, config in _by_preference(recipe)]
    benchmarks = [[name, config.model_dump(mode="json")] for name, config in recipe.benchmarks.items()]
    key = _key(__version__, sources, origins, recipe.samples)
    plan = [("00-sources", "sources", "sources", key)]
    for number, (name, stage) in enumerate(recipe.stages.items(), start=1):
        if stage.enabled:
            settings = stage.model_dump(mode="json", exclude={"cache"})
            key = _key(
                key, settings, [benchmarks, benchmark_origins] if stage.kind == "decontaminate" else None
            )
            plan.append((f"{number:02d}-{name}", name, stage.kind, key))
    return plan


def _outcomes(recipe: DataRecipe, name: str, before: Path, context: StageContext) -> Iterator[Outcome]:
    if name == "sources":
        yield from _read(recipe)
        return
    stage: Stage = recipe.stages[name]
    shutil.rmtree(context.work, ignore_errors=True)
    context.work.mkdir(parents=True)
    yield from STAGES[stage.kind](output_of(before), stage, context)


def _read(recipe: DataRecipe) -> Iterator[Outcome]:
    for name, source in _by_preference(recipe):
        for problem in read_source(name, source):
            if isinstance(problem, DataError):
                detail = str(problem)
                if source.path is not None:  # the card must not differ between machines
                    detail = detail.replace(str(source.path), source.path.name)
                yield Outcome(Problem(name, "", source=name), "unusable row", detail)
            else:
                yield Outcome(problem)


def _by_preference(recipe: DataRecipe) -> list[tuple[str, SourceConfig]]:
    rank = {name: place for place, name in enumerate(recipe.prefer)}
    return sorted(recipe.sources.items(), key=lambda item: rank.get(item[0], len(rank)))


def _ticker(
    progress: Callable[[Progress], None] | None, name: str, number: int, stages: int, total: int | None
) -> Callable[[int, int], None]:
    def tick(done: int, kept: int) -> None:
        if progress is not None:
            progress(Progress(name, number, stages, done, total, kept))

    return tick


def _key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _claim(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise DataError(f"{output}: expected a folder, found a file; choose another output")
    if output.exists() and any(output.iterdir()) and not (output / "stages").is_dir():
        raise DataError(
            f"{output}: expected an empty folder or an earlier build, found other files; choose another"
        )
    (output / "stages").mkdir(parents=True, exist_ok=True)


def _remove_stale(stages: Path, planned: set[str]) -> None:
    for folder in stages.iterdir():
        if folder.name not in planned:
            shutil.rmtree(folder)
