"""``archer eval``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress as Bar
from rich.table import Table

from archer.cli.app import app, console, quiet


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

    quiet()
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
