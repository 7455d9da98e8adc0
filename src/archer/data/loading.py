"""From a data configuration to a list of problems."""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from archer.configs.data import DataConfig
from archer.data.fields import (
    answer_text,
    json_value,
    prompt_json,
    prompt_text,
    prompt_value,
    render,
    tests_value,
)
from archer.data.procedural import procedural_problems
from archer.data.rows import Row, name_of, read_rows
from archer.errors import DataError
from archer.types import Problem

logger = logging.getLogger(__name__)


def load_problems(config: DataConfig) -> list[Problem]:
    """Load, check, shuffle and cut the problems that a configuration names.

    Raises:
        DataError: a file, row or field can't be used, an id stands twice, or a prompt stands twice and
            ``duplicates`` is ``refuse``. The message names the file, the line and the field.
    """
    if config.source == "procedural":
        problems = [_rendered(config, problem) for problem in procedural_problems(config)]
    else:
        problems = _problems_of_rows(config)
    problems = _without_duplicates(problems, config.duplicates)
    if not problems:
        raise DataError(f"{config.path or config.hub}: expected at least one problem, found none")
    if config.shuffle_seed is not None:
        random.Random(config.shuffle_seed).shuffle(problems)
    return problems[: config.limit]


def problem_from_row(row: Row, config: DataConfig) -> Problem:
    """One row as a problem, its prompt rendered.

    Raises:
        DataError: a field is missing or can't be used.
    """
    values, columns = row.values, config.columns
    if columns.prompt not in values:
        raise row.error(columns.prompt, f"a column (row has {', '.join(values)})", None, "set columns.prompt")
    prompt = prompt_value(row, columns.prompt, values[columns.prompt])
    tests = _value(values, columns.tests)
    tests = () if tests is None else tests_value(row, str(columns.tests), tests)
    named = {name for name in columns.model_dump().values() if name is not None}
    meta = {key: value for key, value in values.items() if key not in named and key != "meta"}
    return Problem(
        id=_text(row, columns.id, f"{name_of(config)}-{row.number}"),
        prompt=render(row, prompt, config.template, config.system_prompt, config.chat),
        answer=_answer(row, columns.answer, has_tests=bool(tests)),
        tests=tests,
        domain=_text(row, columns.domain, "code" if tests else config.domain),
        source=_text(row, columns.source, name_of(config)),
        meta={**meta, **_meta(row)},
    )


def fingerprint(problems: Iterable[Problem]) -> str:
    """A sha256 of every field of every problem, in order; equal on every machine and in every process."""
    digest = hashlib.sha256()
    for p in problems:
        fields = [p.id, prompt_json(p.prompt), p.answer, list(p.tests), p.domain, p.source, dict(p.meta)]
        digest.update(json.dumps(fields, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()


def shared_prompts(first: Iterable[Problem], second: Iterable[Problem]) -> list[tuple[str, str]]:
    """Pairs of ids (one of each set) whose prompts are equal up to blanks; empty for a clean split."""
    ids = {_blank_free(p): p.id for p in first}
    return [(ids[key], p.id) for p in second if (key := _blank_free(p)) in ids]


def filter_overlong(
    problems: Sequence[Problem], lengths: Sequence[int], limit: int, policy: Literal["drop", "refuse"]
) -> tuple[list[Problem], int]:
    """Keep the problems whose prompt has at most ``limit`` tokens; a prompt is never cut.

    Args:
        problems: the problems.
        lengths: tokens of each rendered prompt (chat template included), in the same order.
        limit: largest number of tokens allowed.
        policy: ``drop`` leaves longer ones out; ``refuse`` raises.

    Returns:
        The kept problems and the number left out.

    Raises:
        DataError: one is longer and ``policy`` is ``refuse``, or none is left.
    """
    long = [(p.id, n) for p, n in zip(problems, lengths, strict=True) if n > limit]
    if long and policy == "refuse":
        shown = ", ".join(f"{name} ({n} tokens)" for name, n in long[:5])
        raise DataError(
            f"expected prompts of at most {limit} tokens, found {len(long)} longer: {shown}"
            f"{', ...' if len(long) > 5 else ''}; raise the limit, remove them, or drop over-long prompts"
        )
    if len(long) == len(problems):
        raise DataError(
            f"expected at least one prompt of at most {limit} tokens, found none among {len(problems)} "
            f"(shortest {min(lengths, default=0)} tokens); raise the limit"
        )
    return [p for p, n in zip(problems, lengths, strict=True) if n <= limit], len(long)


def _problems_of_rows(config: DataConfig) -> list[Problem]:
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for row in read_rows(config):
        problem = problem_from_row(row, config)
        if problem.id in seen:
            expected = f"an id not used before (by {seen[problem.id]})"
            action = "make ids unique, or set columns.id: null to number the rows"
            raise row.error(str(config.columns.id), expected, problem.id, action)
        seen[problem.id] = row.where
        problems.append(problem)
    return problems


def _rendered(config: DataConfig, problem: Problem) -> Problem:
    row = Row({}, 0, f"task {problem.source}")
    prompt = render(row, str(problem.prompt), config.template, config.system_prompt, config.chat)
    return Problem(problem.id, prompt, problem.answer, (), problem.domain, problem.source, problem.meta)


def _without_duplicates(problems: list[Problem], policy: str) -> list[Problem]:
    first: dict[bytes, Problem] = {}
    repeats: dict[str, str] = {}
    for problem in problems:
        kept = first.setdefault(_blank_free(problem), problem)
        if kept is not problem:
            repeats[problem.id] = kept.id
    if not repeats:
        return problems
    shown = ", ".join(f"{again} = {kept}" for again, kept in list(repeats.items())[:5])
    found = f"{len(repeats)} of {len(problems)} prompts repeat an earlier one up to blanks: {shown}"
    if policy == "refuse":
        raise DataError(f"expected distinct prompts, found that {found}; remove them or set duplicates: drop")
    logger.warning("%s (%s)", found, "dropped" if policy == "drop" else "kept; duplicates: drop removes them")
    return [p for p in problems if p.id not in repeats] if policy == "drop" else problems


def _blank_free(problem: Problem) -> bytes:
    return hashlib.sha256(" ".join(prompt_text(problem.prompt).split()).encode()).digest()[:16]


def _value(values: Mapping[str, Any], column: str | None) -> Any:
    return None if column is None else values.get(column)


def _text(row: Row, column: str | None, default: str) -> str:
    value = _value(row.values, column)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise row.error(str(column), "text", value, "fix the value or change columns in the config")
    return str(value)


def _answer(row: Row, column: str | None, has_tests: bool) -> str | None:
    if column is None:
        return None
    if column not in row.values:
        if has_tests:
            return None
        raise row.error(column, f"a column (row has {', '.join(row.values)})", None,
                        "set columns.answer, or columns.answer: null where a scorer needs none")  # fmt: skip
    if row.values[column] is None and has_tests:
        return None
    return answer_text(row, column, row.values[column])


def _meta(row: Row) -> Mapping[str, Any]:
    meta = json_value(row, "meta", row.values.get("meta"))
    if meta is None:
        return {}
    if not isinstance(meta, Mapping):
        raise row.error("meta", "an object", meta, "make it an object or rename the column")
    return meta
