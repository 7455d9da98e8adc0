"""Exact and N-gram de-duplication. The input is in order of preference, so the first of a group is kept."""

from __future__ import annotations

import re

import numpy as np

from archer.configs.data_recipe import ExactStage, NgramStage, NgramTest
from archer.data.fields import prompt_text
from archer.data.ngrams import DuplicateIndex, GramStore
from archer.data.outcomes import Outcome, StageContext, StageResult
from archer.data.records import ProblemFile
from archer.data.text import Gram, grams, needed, text_hash, tokens
from archer.types import Problem

_THOUSANDS = re.compile(r"(?<=\d)(?:,|\{,\}|\\,)(?=\d{3}(?!\d))")
_ANSWER_LOOKS = re.compile(r"\$|\s|\\left|\\right|\\!|\.$|(?<=\\)[dt](?=frac)")


def exact_duplicates(problems: ProblemFile, stage: ExactStage, context: StageContext) -> StageResult:
    """Keep the first of each group of equal prompts, or none where answers conflict.

    Prompts and answers are compared by 64-bit hashes: among a million prompts, the chance that any two
    different ones fall together is about 3e-8.
    """
    prompts, answers = _hashes(problems, stage)
    _, first, group = np.unique(prompts, return_index=True, return_inverse=True)
    conflicting = _groups_with_two_answers(group, answers, len(first))
    for row, problem in enumerate(problems):
        kept = int(first[group[row]])
        if conflicting[group[row]] and stage.conflicts == "drop":
            yield Outcome(
                problem, "conflicting answers", f"{problem.answer!r}; the prompt stands with others"
            )
        elif row != kept:
            yield Outcome(problem, "exact duplicate", f"of {problems.row(kept).id}")
        else:
            yield Outcome(problem)


def ngram_duplicates(problems: ProblemFile, stage: NgramStage, context: StageContext) -> StageResult:
    """Keep each problem that passes the N-gram test against no kept one before it."""
    test = stage.test
    token_lists = (tokens(prompt_text(problem.prompt), test.normalise) for problem in problems)
    store = GramStore(context.work / "ngrams.u64", token_lists, test.n)
    index = DuplicateIndex(store, test)
    for row, problem in enumerate(problems):
        pair = _Pair(problem, problems, test)
        match = index.match_or_keep(row, pair.is_same)
        if match is None:
            yield Outcome(problem)
        else:
            shared = f"{pair.share:.2f} of the {test.n}-grams shared with {problems.row(match).id}"
            yield Outcome(problem, "n-gram duplicate", shared)
    store.close()


class _Pair:
    """The exact verdict on one problem and a candidate; ``share`` is that of the last candidate."""

    def __init__(self, problem: Problem, problems: ProblemFile, test: NgramTest) -> None:
        self._problem = problem
        self._problems = problems
        self._test = test
        self._mine: set[Gram] = set()
        self.share = 0.0

    def is_same(self, row: int) -> bool:
        self._mine = self._mine or self._grams(self._problem)
        theirs = self._grams(self._problems.row(row))
        common = len(self._mine & theirs)
        smaller = min(len(self._mine), len(theirs))
        self.share = common / (smaller if self._test.direction == "either" else len(self._mine))
        return common >= needed(self._test, len(self._mine), len(theirs))

    def _grams(self, problem: Problem) -> set[Gram]:
        return grams(tokens(prompt_text(problem.prompt), self._test.normalise), self._test.n)


def _hashes(problems: ProblemFile, stage: ExactStage) -> tuple[np.ndarray, np.ndarray]:
    prompts = bytearray()
    answers = bytearray()
    for problem in problems:
        words = tokens(prompt_text(problem.prompt), stage.normalise)
        prompts += text_hash(words).to_bytes(8, "little")
        answers += text_hash((_comparable(problem.answer),)).to_bytes(8, "little")
    return np.frombuffer(prompts, dtype="<u8"), np.frombuffer(answers, dtype="<u8")


def _groups_with_two_answers(group: np.ndarray, answers: np.ndarray, groups: int) -> np.ndarray:
    smallest = np.full(groups, np.iinfo(np.uint64).max, dtype=np.uint64)
    largest = np.zeros(groups, dtype=np.uint64)
    np.minimum.at(smallest, group, answers)
    np.maximum.at(largest, group, answers)
    differ: np.ndarray = smallest != largest
    return differ


def _comparable(answer: str | None) -> str:
    if answer is None:
        return "\x00no answer"
    return _THOUSANDS.sub("", _ANSWER_LOOKS.sub("", answer)).casefold()
