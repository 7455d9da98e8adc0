"""A study as a list of runs, each carried out by ``archer train`` in a process of its own."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from archer.analysis.records import flatten
from archer.configs.loading import dump_config, load_config
from archer.configs.run import RunConfig
from archer.configs.study import StudyConfig
from archer.errors import ConfigError
from archer.train.checkpoint import newest_checkpoint

State = Literal["absent", "begun", "finished"]

POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a study."""

    variant: str
    seed: int
    config: RunConfig

    @property
    def folder(self) -> Path:
        """The run directory."""
        return Path(self.config.output) / self.config.name

    @property
    def log(self) -> Path:
        """What the run printed."""
        return self.folder.with_name(self.folder.name + ".log")

    def state(self) -> State:
        """How far the run has come, by the files in its folder.

        Raises:
            ConfigError: the folder holds a run with other settings.
        """
        file = self.folder / "config.yaml"
        if not file.exists():
            return "absent"
        changed = differences(load_config(RunConfig, file), self.config)
        if changed:
            raise ConfigError(
                f"{self.folder} holds a run with other settings ({', '.join(changed)}); choose another name for the "
                "study, or remove the folder"
            )
        newest, _ = newest_checkpoint(self.folder)
        return "finished" if newest is not None and newest.name == self._last() else "begun"

    def _last(self) -> str:
        return f"step_{self.config.train.steps:06d}"


def plan(study: StudyConfig) -> list[Run]:
    """All runs of a study, seed after seed, so that an unfinished study has whole rows of pairs.

    Raises:
        ConfigError: a variant's configuration is wrong, or the runs are not evaluated.
    """
    runs = []
    for seed in study.seeds:
        for variant, overrides in study.variants.items():
            folder = Path(study.output) / study.name
            own = [f"output={folder}", f"name={variant}-seed{seed}", f"train.seed={seed}"]
            config = load_config(
                RunConfig, study.base, ["train.track_kl=true", *study.overrides, *overrides, *own]
            )
            if not config.train.eval_every:
                raise ConfigError(
                    f"{study.base}: train.eval_every is 0, so there would be nothing to compare; set it to "
                    f"{config.train.steps} to evaluate before and after training"
                )
            if not config.train.checkpoint_every:
                config = config.model_copy(
                    update={"train": config.train.model_copy(update={"checkpoint_every": config.train.steps})}
                )
            runs.append(Run(variant, seed, config))
    return runs


def differences(one: RunConfig, other: RunConfig) -> list[str]:
    """Dotted names of the settings in which two configurations differ."""
    a, b = flatten(one.model_dump(mode="json")), flatten(other.model_dump(mode="json"))
    return [key for key in dict.fromkeys([*a, *b]) if a.get(key) != b.get(key)]


def run_study(
    runs: Sequence[Run],
    *,
    workers: int = 1,
    report: Callable[[Run, str], None] = lambda run, message: None,
) -> list[Run]:
    """Carry out what is left of a study.

    Finished runs are kept, interrupted ones continue from their last checkpoint. SIGINT and SIGTERM reach the
    running ones, which save a checkpoint first.

    Args:
        runs: from ``plan``.
        workers: runs at the same time; each gets its share of the cores as threads, unless OMP_NUM_THREADS is set.
        report: called when a run is found finished, starts, ends or fails.

    Returns:
        The runs that failed.

    Raises:
        ConfigError: a folder holds a run with other settings.
        KeyboardInterrupt: a signal stopped the study.
    """
    waiting, active, failed = [], dict[int, tuple[Run, subprocess.Popen[bytes], float]](), list[Run]()
    for run in runs:
        if run.state() == "finished":
            report(run, "finished before")
        else:
            waiting.append(run)
    threads = max(1, (os.cpu_count() or 1) // workers)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        while waiting or active:
            while waiting and len(active) < workers:
                run = waiting.pop(0)
                report(run, "continues" if run.state() == "begun" else "starts")
                process = _start(run, threads)
                active[process.pid] = (run, process, time.monotonic())
            time.sleep(POLL_SECONDS)
            for run, process, start in [entry for entry in active.values() if entry[1].poll() is not None]:
                del active[process.pid]
                if process.returncode:
                    failed.append(run)
                    report(run, f"failed with exit code {process.returncode}; see {run.log}")
                else:
                    report(run, f"finished in {time.monotonic() - start:.0f} s")
    finally:
        for _, process, _ in active.values():
            process.send_signal(signal.SIGTERM)
        for _, process, _ in active.values():
            process.wait()
        signal.signal(signal.SIGTERM, previous)
    return failed


def _start(run: Run, threads: int) -> "subprocess.Popen[bytes]":
    resume = run.state() == "begun"
    if resume and newest_checkpoint(run.folder)[0] is None:
        shutil.rmtree(run.folder)  # killed before its first checkpoint: there is nothing to continue from
        resume = False
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    recipe = run.folder.with_name(run.folder.name + ".yaml")
    recipe.write_text(dump_config(run.config))
    command = [sys.executable, "-m", "archer.cli", "train", str(recipe), *(["--resume"] if resume else [])]
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    with run.log.open("ab") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )


def _interrupt(number: int, frame: FrameType | Any) -> None:
    raise KeyboardInterrupt
