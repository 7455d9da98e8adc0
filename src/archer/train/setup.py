"""From a configuration to everything the loop works with, and back to life from a checkpoint."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from archer.configs.data import DataConfig
from archer.configs.loading import dump_config
from archer.configs.run import RunConfig
from archer.data import PromptStream, filter_overlong, fingerprint, load_problems, shared_prompts
from archer.errors import CheckpointError, ConfigError
from archer.policy.model import Policy
from archer.policy.tokenizer import PromptRenderer
from archer.rewards import Scorer, build_scorer
from archer.rollout.engines import build_sampler
from archer.train.checkpoint import load_state, newest_checkpoint
from archer.train.interrupt import Interrupt, Interrupted
from archer.train.loop import Parts, Trainer
from archer.train.records import RunRecords, write_atomically
from archer.types import Problem

Report = Callable[[dict[str, Any]], None]


def train(config: RunConfig, *, resume: bool, report: Report) -> tuple[Path, bool]:
    """Run, or continue, one training run.

    Args:
        config: the whole configuration.
        resume: continue from the newest whole checkpoint of the run directory.
        report: called with each line of metrics.

    Returns:
        The run directory, and whether the run finished (False: it stopped on a signal, after a checkpoint).

    Raises:
        ConfigError: the run directory exists already and ``resume`` is off.
        CheckpointError: nothing to resume from, or the checkpoint belongs to another run.
        ArcherError: anything that is wrong with the model, the data or the scorer.
    """
    folder = Path(config.output) / config.name
    _check_folder(folder, resume)
    records = RunRecords(folder)
    interrupt = Interrupt()
    with ExitStack() as stack:
        stack.enter_context(interrupt.installed())
        scorer = stack.enter_context(build_scorer(config.reward))
        parts = _parts(config, scorer, records)
        write_atomically(folder / "config.yaml", dump_config(config))
        records.environment(
            {
                "data": parts.data_fingerprint,
                "prompt_template": parts.renderer.fingerprint(),
                "first_prompt": parts.first_prompt,
                "parameters": sum(p.numel() for p in parts.policy.model.parameters()),
            }
        )
        trainer = Trainer(config, parts, records, interrupt, report)
        if resume:
            _restore(trainer, records, folder)
        try:
            trainer.run()
        except Interrupted:
            trainer.save()
            records.event(trainer.step_number, "notice", "stopped on a signal after a checkpoint")
            return folder, False
    return folder, True


def load_prompts(
    config: DataConfig, renderer: PromptRenderer, limit: int, policy: str, note: Callable[[str], None]
) -> list[Problem]:
    """Problems whose rendered prompt has at most ``limit`` tokens; what is dropped is counted in a note."""
    problems = load_problems(config)
    lengths = [len(renderer.ids(problem.prompt)) for problem in problems]
    kept, dropped = filter_overlong(problems, lengths, limit, policy)  # type: ignore[arg-type]
    if dropped:
        note(f"{dropped} of {len(problems)} prompts are longer than {limit} tokens and were dropped")
    return kept


def _check_folder(folder: Path, resume: bool) -> None:
    exists = (folder / "config.yaml").exists()
    if exists and not resume:
        raise ConfigError(
            f"{folder} holds a run already; add --resume to continue it, or choose another name=..."
        )
    if resume and not exists:
        raise CheckpointError(f"nothing to resume: {folder} holds no run; leave --resume away to start it")


def _parts(config: RunConfig, scorer: Scorer, records: RunRecords) -> Parts:
    policy = Policy(config.policy)
    renderer = PromptRenderer(policy.tokenizer, config.policy)
    _check_lengths(config, policy)

    def note(message: str) -> None:
        records.event(0, "warning", message)

    def load(data: DataConfig) -> list[Problem]:
        return load_prompts(
            data, renderer, config.rollout.max_prompt_tokens, config.rollout.overlong_prompts, note
        )

    problems = load(config.data)
    held_out: Sequence[Problem] = load(config.evaluation.data) if config.evaluation.data else []
    shared = shared_prompts(problems, held_out)
    if shared:
        note(f"{len(shared)} held-out prompts are also training prompts, for example {shared[0][1]}")
    if config.train.prompts_per_step > len(problems):
        raise ConfigError(
            f"train.prompts_per_step is {config.train.prompts_per_step}, but there are only {len(problems)} problems"
        )
    return Parts(
        policy=policy,
        renderer=renderer,
        sampler=build_sampler(config.rollout, policy, _longest(config)),
        scorer=scorer,
        stream=PromptStream(problems, config.train.seed),
        held_out=held_out,
        data_fingerprint=fingerprint(problems),
        first_prompt=renderer.text(problems[0].prompt),
    )


def _longest(config: RunConfig) -> int:
    response = max(config.rollout.max_response_tokens, config.evaluation.max_response_tokens or 0)
    return config.rollout.max_prompt_tokens + response


def _check_lengths(config: RunConfig, policy: Policy) -> None:
    total = _longest(config)
    if total > policy.max_tokens:
        raise ConfigError(
            f"rollout.max_prompt_tokens + max_response_tokens is {total}, but the model has {policy.max_tokens} "
            "positions; lower one of the two"
        )


def _restore(trainer: Trainer, records: RunRecords, folder: Path) -> None:
    path, notices = newest_checkpoint(folder)
    for notice in notices:
        records.event(0, "warning", notice)
    if path is None:
        raise CheckpointError(
            f"nothing to resume: {folder / 'checkpoints'} holds no whole checkpoint {notices}"
        )
    state = load_state(
        path, trainer.config, trainer.parts.data_fingerprint, trainer.parts.renderer.fingerprint()
    )
    trainer.policy.load(path)
    trainer.restore(state)
    records.forget_after(state.step)
    records.event(state.step, "notice", f"resumed from {path.name}")
