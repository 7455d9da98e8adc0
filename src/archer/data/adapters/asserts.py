"""Assert scripts taken apart: one test an assert, and function tests where all values are literals."""

from __future__ import annotations

import ast
import json
from typing import Any

from archer.data.rows import Row


def split_check(row: Row, field: str, script: str, entry_point: str, setup: str) -> list[dict[str, Any]]:
    """The asserts of ``def check(candidate): ...`` as tests of ``entry_point``, one each.

    A script whose asserts depend on other statements stays one test.

    Raises:
        DataError: the script is not Python or has no ``check`` function.
    """
    try:
        tree = ast.parse(script)
    except SyntaxError as error:
        raise row.error(field, "Python", script, f"{error.msg} in line {error.lineno}") from None
    check = next(
        (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"), None
    )
    if check is None:
        raise row.error(field, "a function `check`", script, "convert the test")
    start = {"setup": setup} if setup.strip() else {}
    if len(tree.body) > 1 or not all(isinstance(node, ast.Assert) for node in check.body):
        return [{"type": "assert", **start, "code": f"{script}\ncheck({entry_point})"}]
    return [
        {"type": "assert", **start, "code": f"candidate = {entry_point}\n{ast.unparse(node)}"}
        for node in check.body
    ]


def as_function_test(code: str) -> dict[str, Any] | None:
    """``assert f(1, [2]) == 3`` as a function test; ``None`` where it is anything else.

    Keyword arguments are taken in the order written, which is that of the signature in generated tests.
    """
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return None
    alias = ""
    if len(body) == 2 and isinstance(body[0], ast.Assign) and isinstance(body[0].value, ast.Attribute):
        alias = body[0].value.attr
        body = body[1:]
    match body:
        case [
            ast.Assert(
                test=ast.Compare(
                    left=ast.Call(func=ast.Name(id=name)) as call, ops=[ast.Eq()], comparators=[wanted]
                )
            )
        ]:
            pass
        case _:
            return None
    try:
        arguments = [_json(node) for node in (*call.args, *(keyword.value for keyword in call.keywords))]
        output = _json(wanted)
    except (ValueError, TypeError):
        return None
    return {"type": "functional", "fn_name": alias or name, "input": "\n".join(arguments), "output": output}


def _json(node: ast.expr) -> str:
    value = ast.literal_eval(node)
    text = json.dumps(value, allow_nan=False)
    # Tuples, sets and keys that are not text would come back as something else.
    if json.loads(text) != value:
        raise ValueError("not a JSON value")
    return text
