"""Filters by how often a model solves a problem, with every score kept on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from archer.configs.data_recipe import DifficultyStage
from archer.data.loading import fingerprint
from archer.data.outcomes import Outcome, ScoredSampler, StageContext, StageResult
from archer.data.records import ProblemFile, dumps
from archer.errors import DataError
from archer.types import Problem

Scores = Sequence[float | None]


def difficulty(problems: ProblemFile, stage: DifficultyStage, context: StageContext) -> StageResult:
    """Sample, score and drop. A build that stops continues after the last stored batch.

    Raises:
        DataError: the sampler returned another number of scores than was asked for.
    """
    sampler = context.make_sampler(stage.sampler)
    cache = _Cache(stage.cache or context.cache / "scores.jsonl", sampler, stage)
    rows = iter(problems)
    while batch := list(islice(rows, stage.batch)):
        for problem, scores in zip(batch, cache.scores(batch), strict=True):
            yield _verdict(problem, scores, stage)


def _verdict(problem: Problem, scores: Scores, stage: DifficultyStage) -> Outcome:
    known = [score for score in scores if score is not None]
    if not known:
        return Outcome(problem, "unscorable", f"none of {len(scores)} responses could be scored")
    solved = sum(score >= stage.solved_at for score in known)
    detail = f"{solved} of {len(known)} by {stage.sampler.model}"
    if solved == 0 and "never" in stage.drop:
        return Outcome(problem, "never solved", detail)
    if solved == len(known) and "always" in stage.drop:
        return Outcome(problem, "always solved", detail)
    return Outcome(problem)


class _Cache:
    """Scores by the hash of problem, sampler, number of samples and seed, in an append-only file."""

    def __init__(self, path: Path, sampler: ScoredSampler, stage: DifficultyStage) -> None:
        self._path = path
        self._sampler = sampler
        self._stage = stage
        self._known = dict(self._stored())

    def scores(self, batch: Sequence[Problem]) -> list[Scores]:
        keys = [self._key(problem) for problem in batch]
        missing = [(key, problem) for key, problem in zip(keys, batch, strict=True) if key not in self._known]
        if missing:
            samples, seed = self._stage.samples, self._stage.seed
            found = self._sampler.sample_and_score([problem for _, problem in missing], samples, seed)
            lengths = [len(scores) for scores in found]
            if lengths != [samples] * len(missing):
                raise DataError(
                    f"sampler {self._stage.sampler.model}: expected {samples} scores for each of "
                    f"{len(missing)} problems, found {lengths}"
                )
            self._store([(key, list(scores)) for (key, _), scores in zip(missing, found, strict=True)])
        return [self._known[key] for key in keys]

    def _key(self, problem: Problem) -> str:
        # Ids, sources and flags change when a recipe changes and never change what is sampled or graded.
        same = fingerprint([replace(problem, id="", source="", meta={})])
        content = [same, self._sampler.fingerprint, self._stage.samples, self._stage.seed]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]

    def _store(self, entries: Sequence[tuple[str, list[float | None]]]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            for key, scores in entries:
                file.write(dumps({"key": key, "scores": scores}))
                self._known[key] = scores

    def _stored(self) -> Iterator[tuple[str, Scores]]:
        if not self._path.exists():
            return
        with self._path.open("r+b") as file:
            whole = 0
            for line in file:
                if not line.endswith(b"\n"):
                    file.truncate(whole)  # a build was killed while it wrote
                    break
                whole += len(line)
                entry = json.loads(line)
                yield entry["key"], entry["scores"]
