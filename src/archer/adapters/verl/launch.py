"""``archer train CONFIG --engine verl``: a run's configuration as a verl command."""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from archer.adapters.verl.overrides import Files, check_supported, hydra_overrides, model_path
from archer.configs.data import DataConfig
from archer.configs.run import RunConfig
from archer.data.export import export
from archer.data.loading import load_problems
from archer.errors import ArcherError, ConfigError, MissingDependencyError

COMMAND = (sys.executable, "-m", "verl.trainer.main_ppo")


def launch(config: RunConfig, *, dry_run: bool, ray_address: str | None) -> None:
    """Write the data in verl's form and run ``main_ppo``; with ``dry_run`` only print the command.

    Args:
        config: the run; everything verl can't honour is an error here.
        dry_run: print the command, write nothing, start nothing; needs neither verl nor a GPU.
        ray_address: address of a running Ray cluster (``auto``, ``host:6379``); None starts Ray on this machine. The
            data files, and the model where it is a folder, must be readable by the cluster's nodes.

    Raises:
        ConfigError: a field that verl can't honour, named in the message; or no GPU.
        MissingDependencyError: verl is not installed.
        ArcherError: ``main_ppo`` failed.
    """
    check_supported(config)
    has_template = config.policy.chat_template == "auto" and _has_template(config.policy.model, dry_run)
    files = _files(config, plain_prompts=not has_template)
    if dry_run:
        machines = (
            {} if ray_address else {"trainer.nnodes": 1, "trainer.n_gpus_per_node": max(_local_gpus(), 1)}
        )
        command = [*COMMAND, *hydra_overrides(config, files, machines, ray_address)]
        print(" \\\n  ".join([shlex.join(command[:3]), *map(shlex.quote, command[3:])]))
        if ray_address:
            print(
                "# trainer.nnodes and trainer.n_gpus_per_node are asked from the cluster when it is launched"
            )
        return
    if importlib.util.find_spec("verl") is None:
        raise MissingDependencyError("--engine verl needs verl 0.9.1: pip install 'archer-rl[verl]'")
    overrides = hydra_overrides(config, files, _machines(ray_address), ray_address)
    write_data(config, files)
    status = subprocess.run([*COMMAND, *overrides], check=False).returncode
    if status:
        raise ArcherError(f"verl's main_ppo ended with status {status}; what it printed above says why")


def write_data(config: RunConfig, files: Files) -> None:
    """Write the training and the held-out problems as verl rows.

    Raises:
        DataError: as ``load_problems``.
    """
    _write(config.data, files.train)
    if config.evaluation.data is not None:
        _write(config.evaluation.data, files.held_out)


def _write(data: DataConfig, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    export(load_problems(data), "verl", path.parent)


def _files(config: RunConfig, *, plain_prompts: bool) -> Files:
    folder = (Path(config.output) / config.name).resolve()
    train = folder / "data/train/verl.parquet"
    held_out = folder / "data/held_out/verl.parquet" if config.evaluation.data is not None else train
    return Files(folder, train, held_out, plain_prompts)


def _has_template(model: str, dry_run: bool) -> bool:
    """Whether the model's tokenizer has a chat template; a dry run supposes so where it can't be read here."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model_path(model)).chat_template is not None
    except (OSError, ValueError) as error:
        if dry_run:
            print(f"# the tokenizer of {model} can't be read here; supposed to have a chat template")
            return True
        raise ConfigError(f"policy.model: no tokenizer found in {model!r}: {error}") from error


def _local_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _machines(ray_address: str | None) -> Mapping[str, Any]:
    if ray_address is None:
        gpus = _local_gpus()
        if not gpus:
            raise ConfigError(
                "--engine verl needs a GPU, and this machine shows none; give the address of a Ray cluster, or use "
                "--engine local"
            )
        return {"trainer.nnodes": 1, "trainer.n_gpus_per_node": gpus}
    return _cluster(ray_address)


def _cluster(ray_address: str) -> Mapping[str, Any]:
    """Nodes and GPUs of the cluster, asked in a process of its own: ``main_ppo`` connects afresh."""
    script = (
        "import json, sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR'); "
        "print(json.dumps([int(n['Resources'].get('GPU', 0)) for n in ray.nodes() if n['Alive']]))"
    )
    asked = subprocess.run(
        [sys.executable, "-c", script, ray_address], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        raise ConfigError(f"no Ray cluster answers at {ray_address!r}: {asked.stderr.strip()[-500:]}")
    gpus = [n for n in json.loads(asked.stdout.strip().splitlines()[-1]) if n]
    if not gpus or len(set(gpus)) > 1:
        raise ConfigError(
            f"the Ray cluster at {ray_address!r} has nodes with {gpus} GPUs; verl needs the same number on each"
        )
    return {"trainer.nnodes": len(gpus), "trainer.n_gpus_per_node": gpus[0]}
