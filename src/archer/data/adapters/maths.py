"""Adapters of maths sets, and of the two row forms of trainers, which hold maths or code."""

from __future__ import annotations

from collections.abc import Mapping

from archer.data.adapters.common import (
    bare_prompt,
    code_problem,
    code_tests,
    kept,
    maths_problem,
    required,
    text_of,
)
from archer.data.rows import Row
from archer.rewards.math import extract
from archer.types import Problem


def gsm8k(row: Row) -> Problem:
    """``question``, ``answer``: a worked solution, the answer after ``####``."""
    solution = text_of(row, "answer")
    _, mark, answer = solution.rpartition("####")
    if not mark:
        raise row.error("answer", "an answer after ####", solution[-60:], "check the form of this source")
    return maths_problem(row, text_of(row, "question"), answer.strip().replace(",", ""), "answer", {})


def math(row: Row) -> Problem:
    """``problem``, ``solution`` (the answer in its last ``\\boxed``) or ``answer``, ``level``, ``type``."""
    answer = row.values.get("answer")
    if answer is None:
        solution = text_of(row, "solution")
        answer = extract(solution).answer
        if answer is None:
            raise row.error("solution", "an answer in \\boxed{}", solution[-60:], "remove the row")
    return maths_problem(
        row, text_of(row, "problem"), answer, "answer", kept(row, "level", "type", "subject")
    )


def deepscaler(row: Row) -> Problem:
    """``problem``, ``answer``, ``solution``."""
    return maths_problem(row, text_of(row, "problem"), required(row, "answer"), "answer", {})


def big_math(row: Row) -> Problem:
    """``problem``, ``answer``, ``source``, ``domain``, ``llama8b_solve_rate``."""
    meta = kept(row, "domain", "llama8b_solve_rate")
    if origin := row.values.get("source"):
        meta["origin"] = origin
    return maths_problem(row, text_of(row, "problem"), required(row, "answer"), "answer", meta)


def verl(row: Row) -> Problem:
    """verl rows (DAPO-Math and Skywork-OR1 are such rows).

    ``prompt`` (messages, or text in the processed DAPO set), ``reward_model.ground_truth`` (or ``solution``),
    ``data_source``, ``ability``, ``extra_info``. Skywork-OR1 stores the JSON text of a list of answers, or
    of the tests.
    """
    prompt = bare_prompt(row, "prompt", required(row, "prompt"))
    reward_model = row.values.get("reward_model")
    truth = (
        reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else row.values.get("solution")
    )
    ability = str(row.values.get("ability") or "").casefold()
    meta = kept(row, "data_source")
    extra = row.values.get("extra_info")
    if isinstance(extra, Mapping) and extra.get("model_difficulty") is not None:
        meta["model_difficulty"] = extra["model_difficulty"]
    if "code" in ability or "coding" in ability:
        return code_problem(row, prompt, code_tests(row, "reward_model.ground_truth", truth), meta)
    return maths_problem(row, prompt, truth, "reward_model.ground_truth", meta)


def trl(row: Row) -> Problem:
    """TRL rows: ``prompt`` (text or messages), ``answer``, ``solution`` or ``ground_truth``, ``tests``."""
    prompt = bare_prompt(row, "prompt", required(row, "prompt"))
    if row.values.get("tests"):
        return code_problem(row, prompt, code_tests(row, "tests", row.values["tests"]), {})
    truth = required(row, "answer", "solution", "ground_truth")
    if isinstance(truth, str):
        truth = extract(truth).answer or truth
    return maths_problem(row, prompt, truth, "answer", {})
