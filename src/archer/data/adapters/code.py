"""Adapters of code sets. Reference solutions are left out; they are no part of a problem."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from typing import Any

from archer.data.adapters.asserts import split_check
from archer.data.adapters.common import code_problem, code_tests, kept, required, text_of
from archer.data.fields import json_value
from archer.data.rows import Row
from archer.types import Problem


def deepcoder(row: Row) -> Problem:
    """``problem``, ``tests`` (JSON text), ``starter_code``, ``metadata`` (``func_name`` in its LCB part)."""
    metadata = json_value(row, "metadata", row.values.get("metadata") or {})
    fn_name = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    tests = code_tests(row, "tests", required(row, "tests"), fn_name)
    return code_problem(row, text_of(row, "problem"), tests, _starter(row))


def code_contests(row: Row) -> Problem:
    """``description``; public, private and generated tests, each ``{input: [...], output: [...]}``."""
    tests: list[dict[str, Any]] = []
    for name in ("public_tests", "private_tests", "generated_tests"):
        group = row.values.get(name) or {}
        pairs = {"inputs": group.get("input", []), "outputs": group.get("output", [])}
        tests += code_tests(row, name, pairs)
    if row.values.get("input_file") or row.values.get("output_file"):
        raise row.error(
            "input_file", "a program that reads standard input", row.values.get("input_file"), "leave it out"
        )
    meta = kept(row, "difficulty", "cf_rating", "cf_tags", "time_limit", "memory_limit_bytes")
    return code_problem(row, text_of(row, "description"), tests, meta)


def codeforces(row: Row) -> Problem:
    """open-r1 rows: ``description``, ``input_format``, ``output_format``, ``note``, ``examples``, tests.

    ``interaction_format`` and ``generated_checker`` become ``meta.interactive`` and ``meta.many_answers``.
    """
    if row.values.get("input_mode") not in (None, "stdio"):
        raise row.error("input_mode", "stdio", row.values["input_mode"], "leave the row out")
    parts = [text_of(row, "description")]
    for title, name in (("Input", "input_format"), ("Output", "output_format")):
        if row.values.get(name):
            parts.append(f"{title}\n\n{row.values[name]}")
    examples = row.values.get("examples") or []
    parts += [f"Example\n\nInput\n{one['input']}\n\nOutput\n{one['output']}" for one in examples]
    if row.values.get("note"):
        parts.append(f"Note\n\n{row.values['note']}")
    tests = code_tests(row, "official_tests", [*examples, *(row.values.get("official_tests") or [])])
    meta = kept(row, "rating", "tags", "time_limit", "memory_limit", "contest_start_year")
    meta["interactive"] = bool(row.values.get("interaction_format"))
    meta["many_answers"] = bool(row.values.get("generated_checker"))
    if row.values.get("official_tests_complete") is not None:
        meta["official_tests_complete"] = row.values["official_tests_complete"]
    return code_problem(row, "\n\n".join(parts), _distinct(tests), meta)


def apps(row: Row) -> Problem:
    """APPS and TACO: ``question``, ``input_output`` (JSON text), ``starter_code``, ``url``."""
    tests = code_tests(row, "input_output", required(row, "input_output"))
    meta = kept(row, "difficulty", "url", "picture_num", "time_limit", "memory_limit") | _starter(row)
    return code_problem(row, text_of(row, "question"), tests, meta)


def livecodebench(row: Row) -> Problem:
    """``question_content``, ``public_test_cases``, ``private_test_cases``, ``starter_code``, ``metadata``."""
    metadata = json_value(row, "metadata", row.values.get("metadata") or {})
    fn_name = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    public = code_tests(row, "public_test_cases", row.values.get("public_test_cases") or [], fn_name)
    private = code_tests(row, "private_test_cases", _private_tests(row), fn_name)
    meta = kept(row, "platform", "contest_date", "contest_id", "difficulty", "question_title") | _starter(row)
    meta = {key: value if isinstance(value, str | int) else str(value) for key, value in meta.items()}
    return code_problem(row, text_of(row, "question_content"), [*public, *private], meta)


def leetcode(row: Row) -> Problem:
    """``problem_description``, ``starter_code``, ``test``, ``entry_point``, ``prompt`` (its imports)."""
    setup = row.values.get("prompt") or ""
    tests = split_check(row, "test", text_of(row, "test"), text_of(row, "entry_point"), setup)
    meta = kept(row, "difficulty", "tags", "estimated_date") | _starter(row)
    meta = {key: value if isinstance(value, str | list) else str(value) for key, value in meta.items()}
    return code_problem(row, text_of(row, "problem_description"), tests, meta)


def humaneval(row: Row) -> Problem:
    """``prompt`` (imports, helpers and the head of a function), ``test``, ``entry_point``."""
    prompt, entry_point = text_of(row, "prompt"), text_of(row, "entry_point")
    script = f"{text_of(row, 'test')}\n\ncheck({entry_point})\n"
    test = {"type": "assert", "setup": before_function(prompt, entry_point), "code": script}
    return code_problem(row, prompt, [test], {"entry_point": entry_point})


def mbpp(row: Row) -> Problem:
    """The sanitized part: ``prompt``, ``test_list``, ``test_imports``; the prompt shows the tests, as is usual."""
    asserts, setup = required(row, "test_list"), "\n".join(row.values.get("test_imports") or [])
    shown = "\n".join(asserts)
    prompt = f"{text_of(row, 'prompt')}\n\nYour code should pass these tests:\n\n{shown}"
    start = {"setup": setup} if setup else {}
    return code_problem(row, prompt, [{"type": "assert", **start, "code": code} for code in asserts], {})


def before_function(prompt: str, entry_point: str) -> str:
    """What stands in a prompt before the function to be completed: imports and helpers that an answer may leave out."""
    return prompt[: prompt.rfind(f"def {entry_point}(")] if f"def {entry_point}(" in prompt else ""


def _starter(row: Row) -> dict[str, Any]:
    starter = row.values.get("starter_code")
    return {"starter_code": starter} if isinstance(starter, str) and starter.strip() else {}


def _distinct(tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({(test["input"].strip(), test["output"].strip()): test for test in tests}.values())


class _TextOnly(pickle.Unpickler):
    """Reads pickled text and refuses everything that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed here")


def _private_tests(row: Row) -> object:
    # LiveCodeBench stores them as JSON text, or as base64(zlib(pickle(JSON text))) where they are large.
    value = row.values.get("private_test_cases") or "[]"
    if not isinstance(value, str) or value.lstrip().startswith("["):
        return value
    try:
        text = _TextOnly(io.BytesIO(zlib.decompress(base64.b64decode(value)))).load()
        return json.loads(text)
    except (
        binascii.Error,
        zlib.error,
        pickle.UnpicklingError,
        json.JSONDecodeError,
        TypeError,
        EOFError,
    ) as error:
        raise row.error(
            "private_test_cases", "JSON or packed JSON", value, f"{error}; download it again"
        ) from None
