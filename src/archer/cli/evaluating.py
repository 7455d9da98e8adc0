"""``archer eval``."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress as Bar

from archer.cli.app import app, console, quiet, show_markdown

if TYPE_CHECKING:
    from archer.configs.benchmark import BenchmarkConfig
    from archer.configs.engine import EngineConfig
    from archer.evaluation.tables import BenchmarkScore
    from archer.policy.tokenizer import PromptRenderer
    from archer.types import Problem

Settings = Mapping[str, Any]


@app.command("eval")
def evaluate(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Hub names or folders of models, checkpoints or .gguf files; LABEL=MODEL names a row"
        ),
    ] = None,
    suite: Annotated[str | None, typer.Option(help="paper-math, paper-code or quick")] = None,
    benchmark: Annotated[str | None, typer.Option(help="Names with commas: gsm8k,math500")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own problems: a jsonl, json or parquet file")
    ] = None,
    data_folder: Annotated[
        Path | None, typer.Option(help="Where local benchmark files lie; also ARCHER_BENCHMARKS")
    ] = None,
    benchmarks_file: Annotated[
        str, typer.Option(help="A YAML file with benchmarks and suites of your own")
    ] = "benchmarks",
    k: Annotated[
        int | None, typer.Option(min=1, help="Samples a problem, instead of the benchmark's")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first problems")] = None,
    temperature: Annotated[float | None, typer.Option(min=0)] = None,
    top_p: Annotated[float | None, typer.Option(min=0, max=1)] = None,
    max_response_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    max_prompt_tokens: int = 4096,
    template: Annotated[str | None, typer.Option(help="Text around each prompt, with {prompt} in it")] = None,
    reward: Annotated[str | None, typer.Option(help="math, paper, procedural or code")] = None,
    engine: Annotated[str, typer.Option(help="What samples: local, vllm or server")] = "local",
    base_url: Annotated[
        str | None, typer.Option(help="Of a server with the OpenAI completions protocol, with /v1")
    ] = None,
    max_batch: int = 64,
    seed: int = 1234,
    output: Annotated[Path, typer.Option(help="Folder for responses and tables")] = Path("evaluations"),
    regrade: Annotated[
        Path | None,
        typer.Option(help="Give the responses in OUTPUT/MODEL/BENCHMARK new verdicts, without a model"),
    ] = None,
) -> None:
    """Benchmark scores of one or several models: avg@K and pass@k with intervals, side by side.

    The same command continues a killed evaluation without sampling again what is stored.
    """
    from archer.configs.engine import EngineConfig
    from archer.configs.loading import build_config
    from archer.errors import ConfigError
    from archer.evaluation.benchmarks import load_benchmark

    quiet()
    if regrade is not None:
        _regrade(regrade, output, reward)
        return
    if not models:
        raise ConfigError("archer eval: expected at least one model, got none")
    changes = {
        "k": k,
        "limit": limit,
        "template": template,
        "sampling": {"temperature": temperature, "top_p": top_p, "max_response_tokens": max_response_tokens},
        "reward": None if reward is None else {"kind": reward},
    }
    asked = _chosen(suite, benchmark, data, benchmarks_file, changes)
    folder = data_folder or (
        Path(os.environ["ARCHER_BENCHMARKS"]) if "ARCHER_BENCHMARKS" in os.environ else None
    )
    chosen = {name: (config, load_benchmark(name, config, folder)) for name, config in asked.items()}
    engine_values = {"engine": engine, "max_batch": max_batch} | (
        {} if base_url is None else {"server": {"base_url": base_url}}
    )
    engine_config = build_config(EngineConfig, engine_values, where="archer eval")
    scores: dict[str, dict[str, BenchmarkScore]] = {}
    for model in models:
        label, _, place = model.rpartition("=")
        label = label or Path(place).stem if place.endswith(".gguf") else label or Path(place).name
        if label in scores:
            raise ConfigError(f"archer eval: two models are called {label}; name them with LABEL=MODEL")
        scores[label] = _evaluate_model(place, label, chosen, output, engine_config, max_prompt_tokens, seed)
    _publish({name: config.title for name, config in asked.items()}, scores, output)


@app.command()
def transfer(
    base: Annotated[Path, typer.Argument(help="The base model's folder of evaluations (evaluations/LABEL)")],
    trained: Annotated[
        list[Path], typer.Argument(help="Folders of models trained from it, on either domain")
    ],
    output: Annotated[Path, typer.Option(help="Folder for the table and the figure")] = Path("transfer"),
) -> None:
    """What training on one domain does to each: gain per problem by its difficulty for the base model (Fig. 11-12)."""
    from archer.analysis.plots import save_figure
    from archer.analysis.statistics import accuracy_by_problem
    from archer.analysis.transfer import cross_domain_figure
    from archer.evaluation.store import read_evaluations
    from archer.evaluation.tables import BenchmarkScore

    stores = {folder.name: read_evaluations(folder) for folder in (base, *trained)}
    records = {label: {name: s.ordered() for name, s in found.items()} for label, found in stores.items()}
    figure = cross_domain_figure(records[base.name], {f.name: records[f.name] for f in trained})
    scores = {
        label: {n: BenchmarkScore(s.k, s.metrics(), accuracy_by_problem(s.records)) for n, s in found.items()}
        for label, found in stores.items()
    }
    save_figure(figure, output)
    _publish({name: name for name in stores[base.name]}, scores, output)


def _chosen(
    suite: str | None, benchmark: str | None, data: Path | None, file: str, changes: Settings
) -> "dict[str, BenchmarkConfig]":
    """The benchmarks asked for, with the options' changes.

    Raises:
        ConfigError: not exactly one of the three ways to choose was used, or a name is unknown.
    """
    from archer.configs.benchmark import BenchmarkConfig, BenchmarksConfig
    from archer.configs.loading import build_config, load_config
    from archer.errors import ConfigError

    if sum(choice is not None for choice in (suite, benchmark, data)) != 1:
        raise ConfigError("archer eval: expected exactly one of --suite, --benchmark and --data")
    if data is not None:
        own = {
            "title": data.name,
            "path": data,
            "sampling": {"temperature": 0.8, "max_response_tokens": 1024},
        }
        plain = build_config(BenchmarkConfig, {**own, "k": 8}, where="archer eval")
        return {data.stem: _changed(plain, changes)}
    known = load_config(BenchmarksConfig, file)
    names = known.suites.get(suite, ()) if suite is not None else tuple(str(benchmark).split(","))
    if not names:
        raise ConfigError(f"--suite: expected one of {', '.join(known.suites)}; got {suite!r}")
    for name in names:
        if name not in known.benchmarks:
            raise ConfigError(
                f"--benchmark: expected names among {', '.join(known.benchmarks)}; got {name!r}"
            )
    return {name: _changed(known.benchmarks[name], changes) for name in names}


def _changed(config: "BenchmarkConfig", changes: Settings) -> "BenchmarkConfig":
    """The benchmark with every option that was given in place of its own value."""
    from archer.configs.benchmark import BenchmarkConfig
    from archer.configs.loading import build_config

    values = config.model_dump()
    for name, value in changes.items():
        if isinstance(value, Mapping):
            values[name] |= {key: inner for key, inner in value.items() if inner is not None}
        elif value is not None:
            values[name] = value
    return build_config(BenchmarkConfig, values, where="archer eval")


def _evaluate_model(
    place: str,
    label: str,
    chosen: "Mapping[str, tuple[BenchmarkConfig, list[Problem]]]",
    output: Path,
    engine: "EngineConfig",
    max_prompt_tokens: int,
    seed: int,
) -> "dict[str, BenchmarkScore]":
    from archer.analysis.statistics import accuracy_by_problem
    from archer.configs.loading import build_config
    from archer.configs.policy import PolicyConfig
    from archer.data import fingerprint
    from archer.evaluation.store import SampleStore, fill
    from archer.evaluation.tables import BenchmarkScore
    from archer.policy.model import Policy
    from archer.policy.tokenizer import PromptRenderer, load_tokenizer
    from archer.rewards import build_scorer
    from archer.rollout.engines import build_sampler
    from archer.rollout.weights import checksum, policy_weights

    source, _, file = place.rpartition("/") if place.endswith(".gguf") else (place, "", None)
    policy_config = build_config(PolicyConfig, {"model": source, "gguf_file": file}, where="archer eval")
    renderer = PromptRenderer(load_tokenizer(policy_config), policy_config)
    longest = max(
        _longest_prompt(name, problems, renderer, max_prompt_tokens) + config.sampling.max_response_tokens
        for name, (config, problems) in chosen.items()
    )
    policy = Policy(policy_config) if engine.engine == "local" else None
    sampler = build_sampler(engine, policy or policy_config, longest)
    weights = f"as the {engine.engine} has them" if policy is None else checksum(policy_weights(policy))
    scores = {}
    for name, (config, problems) in chosen.items():
        settings = {
            "model": place,
            "weights": weights,
            "prompt_template": renderer.fingerprint(),
            "problems": fingerprint(problems),
            "k": config.k,
            "seed": seed,
            "sampling": config.sampling.model_dump(mode="json"),
            "reward": config.reward.model_dump(mode="json"),
        }
        store = SampleStore(output / label / name, settings, problems)
        with build_scorer(config.reward) as scorer, Bar(console=console, transient=True) as bar:
            task = bar.add_task(f"{label} on {config.title}", total=len(store.missing()) * config.k)
            fill(
                store,
                renderer,
                sampler,
                scorer,
                config.sampling,
                seed=seed,
                on_response=lambda bar=bar, task=task: bar.advance(task),  # type: ignore[misc]
            )
        scores[name] = BenchmarkScore(config.k, store.metrics(), accuracy_by_problem(store.records))
    return scores


def _longest_prompt(name: str, problems: "list[Problem]", renderer: "PromptRenderer", limit: int) -> int:
    """Tokens of the longest prompt.

    Raises:
        DataError: it is above the limit.
    """
    from archer.errors import DataError

    lengths = {problem.id: len(renderer.ids(problem.prompt)) for problem in problems}
    longest = max(lengths, key=lengths.__getitem__)
    if lengths[longest] > limit:
        raise DataError(
            f"benchmark {name}, problem {longest}: the prompt has {lengths[longest]} tokens, the limit is {limit}; "
            "raise --max-prompt-tokens (leaving problems out would change the score)"
        )
    return lengths[longest]


def _publish(
    titles: Mapping[str, str], scores: "Mapping[str, Mapping[str, BenchmarkScore]]", output: Path
) -> None:
    from archer.evaluation.tables import BenchmarkTable

    table: BenchmarkTable = BenchmarkTable(titles, scores)
    for name, text in (
        ("table.md", table.markdown()),
        ("table.csv", table.csv()),
        ("table.json", table.json()),
    ):
        (output / name).write_text(text, encoding="utf-8")
    show_markdown(table.markdown())
    console.print(f"responses and tables: {output}", soft_wrap=True)


def _regrade(source: Path, output: Path, reward: str | None) -> None:
    """New verdicts for stored responses, in a folder of their own under ``output``."""
    from archer.analysis.statistics import accuracy_by_problem
    from archer.configs.loading import build_config
    from archer.configs.reward import RewardConfig
    from archer.errors import ConfigError
    from archer.evaluation.store import SampleStore, regrade
    from archer.evaluation.tables import BenchmarkScore
    from archer.rewards import build_scorer

    store = SampleStore.open(source)
    values = store.settings["reward"] if reward is None else {"kind": reward}
    config = build_config(RewardConfig, values, where="archer eval")
    target = output / source.parent.name / source.name
    if target.resolve() == source.resolve():
        raise ConfigError(f"--output: {target} is the folder that is regraded; choose another")
    with build_scorer(config) as scorer:
        fresh, changed = regrade(store, target, scorer, config.model_dump(mode="json"))
    console.print(f"{changed} of {len(store.records)} verdicts changed")
    label = source.parent.name
    score = BenchmarkScore(fresh.k, fresh.metrics(), accuracy_by_problem(fresh.records))
    _publish({source.name: source.name}, {label: {source.name: score}}, output)
