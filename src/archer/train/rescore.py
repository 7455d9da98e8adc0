"""Stored responses under another checkpoint: how a token's probability changed since then."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from archer.analysis.records import load_run
from archer.configs.loading import load_config
from archer.configs.run import RunConfig
from archer.errors import CheckpointError, DataError
from archer.policy.model import Policy
from archer.policy.packed import Pair
from archer.train.records import write_atomically

Row = dict[str, object]


def rescore(
    folder: Path,
    checkpoint: str,
    *,
    label: str | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write log-probability and entropy of all stored responses under another checkpoint.

    Args:
        folder: a run directory with stored rollouts.
        checkpoint: name of one of the run's checkpoints (``step_000010``), or hub name or folder of a model with
            the same tokenizer.
        label: name in the report; by default the last part of ``checkpoint``.
        report: called with each file that was written.

    Returns:
        The folder written, ``rescored/LABEL``: files as in ``rollouts``, one object a response with ``step``,
        ``group``, ``sample``, ``logp`` and ``entropy`` (nats, at the run's sampling temperature).

    Raises:
        CheckpointError: the run has no such checkpoint, or it is a LoRA adapter.
        DataError: nothing is stored, or a token id is unknown to the model.
        PolicyError: the model can't be loaded.
    """
    run = load_run(folder)
    files = run.rollout_files()
    if not files:
        raise DataError(f"{folder}: no rollouts are stored; train with train.rollout_log_every above 0")
    config = load_config(RunConfig, folder / "config.yaml")
    place = _model_place(folder, checkpoint)
    policy = Policy(config.policy.model_copy(update={"model": place, "gguf_file": None, "revision": None}))
    target = folder / "rescored" / (label or Path(checkpoint).name)
    target.mkdir(parents=True, exist_ok=True)
    for _, file in files:
        lines = [json.dumps(row) + "\n" for row in _rows(file, policy, config)]
        write_atomically(target / file.name, "".join(lines))
        report(str(target / file.name))
    return target


def _model_place(folder: Path, checkpoint: str) -> str:
    own = folder / "checkpoints" / checkpoint
    known = sorted(path.name for path in (folder / "checkpoints").glob("step_*"))
    if not own.is_dir():
        if checkpoint.startswith("step_"):
            raise CheckpointError(
                f"{folder} has no checkpoint {checkpoint}; it has {', '.join(known) or 'none'} "
                "(train.keep_checkpoints sets how many stay)"
            )
        return checkpoint
    if (own / "adapter_config.json").exists():
        raise CheckpointError(
            f"{own} is a LoRA adapter; merge it into its model and give that model's folder"
        )
    return str(own)


def _rows(file: Path, policy: Policy, config: RunConfig) -> Iterator[Row]:
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    vocabulary = policy.causal_lm.get_input_embeddings().num_embeddings
    for record in records:
        if max([*record["prompt_ids"], *record["token_ids"]]) >= vocabulary:
            raise DataError(
                f"{file}: group {record['group']}, sample {record['sample']} has a token id beyond the model's "
                f"{vocabulary}; expected a model with the run's tokenizer"
            )
    for _, members in groupby(records, key=lambda record: record["group"]):
        for part in _parts(list(members), config.train.micro_batch_tokens):
            pairs: list[Pair] = [(record["prompt_ids"], record["token_ids"]) for record in part]
            with policy.evaluating():
                logp_BT, entropy_BT = policy.logps(pairs, config.rollout.temperature)
            for i, record in enumerate(part):
                length = len(record["token_ids"])
                yield {
                    **{key: record[key] for key in ("step", "group", "sample")},
                    "logp": [round(value, 5) for value in logp_BT[i, :length].tolist()],
                    "entropy": [round(value, 5) for value in entropy_BT[i, :length].tolist()],
                }


def _parts(records: Sequence[dict[str, list[int]]], budget: int) -> Iterator[list[dict[str, list[int]]]]:
    """The responses of one group in runs of at most ``budget`` tokens, the prompt counted once; at least one each."""
    part: list[dict[str, list[int]]] = []
    used = 0
    for record in records:
        cost = len(record["token_ids"])
        if part and used + cost > budget:
            yield part
            part = []
        used = cost + (used if part else len(record["prompt_ids"]))
        part.append(record)
    yield part
