"""Steps that several adapters share."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from archer.data.fields import answer_text, json_value, prompt_value
from archer.data.rows import Row
from archer.types import Message, Problem

_WRAPPERS = (
    re.compile(r"^Solve the following math problem step by step\..*?\n\n", re.DOTALL),
    re.compile(r"\n+Remember to put your answer on its own line after \"Answer:\"\.?\s*$"),
    re.compile(r"\s*Let's think step by step and output the final answer (?:within|after)[^\n]*$"),
    re.compile(r"\s*Please reason step by step, and put your final answer within[^\n]*$"),
    re.compile(r"\s*Please output the final answer within[^\n]*$"),
)


def required(row: Row, *names: str) -> Any:
    """The value of the first of the columns that the row has.

    Raises:
        DataError: it has none of them.
    """
    for name in names:
        if row.values.get(name) is not None:
            return row.values[name]
    has = ", ".join(row.values)
    raise row.error(" or ".join(names), f"a value (row has {has})", None, "check the form of this source")


def text_of(row: Row, *names: str) -> str:
    """The same, which must be text with something in it."""
    value = required(row, *names)
    if not isinstance(value, str) or not value.strip():
        raise row.error(" or ".join(names), "text", value, "check the form of this source")
    return value


def kept(row: Row, *names: str) -> dict[str, Any]:
    """The columns worth keeping, where the row has them."""
    return {name: row.values[name] for name in names if row.values.get(name) is not None}


def bare_prompt(row: Row, field: str, value: object) -> str | tuple[Message, ...]:
    """The problem alone: a chat of one user message becomes text, known answer instructions are cut off.

    Instructions would otherwise count as shared N-grams and clash with the template set for training.
    """
    prompt = prompt_value(row, field, value)
    if not isinstance(prompt, str):
        if len(prompt) > 1:
            return prompt
        prompt = prompt[0]["content"]
    for wrapper in _WRAPPERS:
        prompt = wrapper.sub("", prompt)
    if not prompt.strip():
        raise row.error(field, "a problem beside the instructions", value, "remove the row")
    return prompt


def maths_problem(
    row: Row, prompt: str | tuple[Message, ...], answer: object, field: str, meta: Mapping[str, Any]
) -> Problem:
    """A maths problem; a list (or the JSON text of one) of a single answer is that answer."""
    if isinstance(answer, str) and answer.startswith("[") and answer.endswith("]"):
        # What is no JSON (an interval, a matrix) is an answer as it stands.
        with contextlib.suppress(json.JSONDecodeError):
            answer = json.loads(answer)
    if isinstance(answer, Sequence) and not isinstance(answer, str) and len(answer) == 1:
        answer = answer[0]
    return Problem(origin_id(row), prompt, answer_text(row, field, answer), meta=meta)


def code_problem(
    row: Row, prompt: str | tuple[Message, ...], tests: Iterable[Mapping[str, Any]], meta: Mapping[str, Any]
) -> Problem:
    """A code problem.

    Raises:
        DataError: there is no test.
    """
    tests = tuple(tests)
    if not tests:
        raise row.error("tests", "at least one test", [], "remove the row")
    return Problem(origin_id(row), prompt, None, tests, "code", meta=meta)


def origin_id(row: Row) -> str:
    """The id that a row carries under one of the usual names; empty where it carries none."""
    extra = row.values.get("extra_info")
    nested = extra.get("index") if isinstance(extra, Mapping) else None
    names = ("id", "unique_id", "task_id", "question_id", "problem_id", "name")
    found = next((row.values[name] for name in names if row.values.get(name) is not None), nested)
    return "" if found is None else str(found)


def code_tests(row: Row, field: str, value: object, fn_name: str | None = None) -> list[dict[str, Any]]:
    """Code tests from any of the shapes in use, as a list or as the JSON text of one.

    Shapes: a list of tests; ``{"inputs": [...], "outputs": [...], "fn_name"?}`` (APPS, TACO, verl);
    ``{"assert_case": [...]}`` and ``{"import_prefix", "test_code", "entry_point"}`` (Skywork-OR1).

    Raises:
        DataError: another shape, or inputs and outputs of different number.
    """
    value = json_value(row, field, value)
    if isinstance(value, Mapping):
        if "inputs" in value:
            return _paired(row, field, value, value.get("fn_name") or fn_name)
        if "assert_case" in value:
            return [{"type": "assert", "code": code} for code in value["assert_case"]]
        if "test_code" in value:
            from archer.data.adapters.asserts import split_check

            return split_check(
                row, field, value["test_code"], value["entry_point"], value.get("import_prefix", "")
            )
    if isinstance(value, list):
        return [_one_test(row, f"{field}[{i}]", test, fn_name) for i, test in enumerate(value)]
    raise row.error(field, "tests in a known shape", value, "convert them to a list of {type, input, output}")


def _paired(row: Row, field: str, value: Mapping[str, Any], fn_name: str | None) -> list[dict[str, Any]]:
    inputs, outputs = value["inputs"], value["outputs"]
    if len(inputs) != len(outputs):
        raise row.error(field, "as many outputs as inputs", (len(inputs), len(outputs)), "remove the row")
    if fn_name is None:
        return [_stdin(given, wanted) for given, wanted in zip(inputs, outputs, strict=True)]
    # These sets wrap every expected value in a list of one; real lists would show other lengths too.
    wrapped = all(isinstance(wanted, list) and len(wanted) == 1 for wanted in outputs)
    outputs = [wanted[0] for wanted in outputs] if wrapped else outputs
    return [_functional(fn_name, given, wanted) for given, wanted in zip(inputs, outputs, strict=True)]


def _one_test(row: Row, field: str, test: object, fn_name: str | None) -> dict[str, Any]:
    if isinstance(test, str):
        return {"type": "assert", "code": test}
    if not isinstance(test, Mapping):
        raise row.error(field, "a test", test, "convert it to {type, input, output}")
    kind = test.get("type") or test.get("testtype") or ("functional" if fn_name else "stdin")
    if kind == "assert":
        return dict(test)
    if "input" not in test or "output" not in test:
        raise row.error(field, "a test with input and output", test, "convert it")
    if kind in ("stdin", "stdin_stdout"):
        return _stdin(test["input"], test["output"])
    if kind in ("functional", "function_call"):
        metadata = test.get("metadata")
        nested = metadata.get("func_name") if isinstance(metadata, Mapping) else None
        name = test.get("fn_name") or nested or fn_name
        if not name:
            raise row.error(f"{field}.fn_name", "the name of the function", None, "add it")
        wanted = test["output"]
        unwrap = kind == "function_call" and isinstance(wanted, list) and len(wanted) == 1
        return _functional(name, test["input"], wanted[0] if unwrap else wanted)
    raise row.error(f"{field}.type", "stdin or functional", kind, "convert the test")


def _stdin(given: object, wanted: object) -> dict[str, Any]:
    return {"type": "stdin", "input": _lines(given), "output": _lines(wanted)}


def _functional(name: str, given: object, wanted: object) -> dict[str, Any]:
    # Text is already one JSON argument a line (LiveCodeBench); a list holds the arguments.
    arguments = given if isinstance(given, str) else "\n".join(json.dumps(a) for a in _as_list(given))
    output = wanted if isinstance(given, str) and isinstance(wanted, str) else json.dumps(wanted)
    return {"type": "functional", "fn_name": name, "input": arguments, "output": output}


def _lines(value: object) -> str:
    return "\n".join(str(line) for line in value) if isinstance(value, list) else str(value)


def _as_list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
