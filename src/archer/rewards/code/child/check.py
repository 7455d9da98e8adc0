"""The test's side of an assert test: the test's code, in a process that the program has never been in."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import socket
import sys
import types
from typing import Any

from .peer import OF_PROGRAM, Peer, Remote

_NAME = "test"


class BadTest(Exception):
    """The test itself is at fault."""


def run(setup: str, code: str, channel: socket.socket) -> tuple[str, str]:
    """Run a test against the program at the other end: a label and a detail."""
    peer = Peer(channel, open_to_all=False)
    try:
        test = compile(code, "test.py", "exec", dont_inherit=True)
        namespace = _after_setup(setup)
    except (BadTest, SyntaxError, ValueError) as error:
        return "bad_test", f"{type(error).__name__}: {error}"
    peer.classes = classes_of(namespace)
    label, detail = _execute(test, code, namespace, peer)
    # A test may swallow every exception, that of a program which is no longer there included.
    return ("runtime_error", "the program ended before its test did") if peer.closed else (label, detail)


def _execute(test: types.CodeType, code: str, namespace: dict[str, Any], peer: Peer) -> tuple[str, str]:
    try:
        _fetch_names(code, namespace, Remote(peer, 0))
        exec(test, namespace)
    except AssertionError as error:
        label = "runtime_error" if OF_PROGRAM in getattr(error, "__notes__", ()) else "wrong_answer"
        return label, _where(error, code)
    except MemoryError:
        return "memory_limit", "MemoryError"
    except BaseException as error:  # noqa: BLE001  anything but a quiet end fails the test
        return "runtime_error", f"{type(error).__name__}: {_where(error, code)}"
    return "passed", ""


def classes_of(namespace: dict[str, Any]) -> dict[str, type]:
    """Classes that the code run so far in ``namespace`` has defined."""
    own = namespace["__name__"]
    return {
        name: value
        for name, value in namespace.items()
        if isinstance(value, type) and value.__module__ == own and value.__name__ == name
    }


def _after_setup(setup: str) -> dict[str, Any]:
    module = types.ModuleType(_NAME)
    sys.modules[_NAME] = module
    namespace = module.__dict__
    try:
        exec(compile(setup, "setup.py", "exec", dont_inherit=True), namespace)
        for name in _stubs(setup):
            namespace.pop(name, None)
    except Exception as error:  # noqa: BLE001  setup code is data
        raise BadTest(f"setup code fails: {type(error).__name__}: {error}") from None
    return namespace


def _fetch_names(code: str, namespace: dict[str, Any], lookup: Remote) -> None:
    """Give the test what it doesn't define: modules that it took to be imported, and the program's names.

    Which names are the program's is read from the test alone, so a program can't slip in one of its own (a
    ``set`` or an ``abs`` that always agrees).
    """
    tree = ast.parse(code)
    own = {name for node in ast.walk(tree) for name in _binds(node)} | set(namespace)
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    free = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - own
    modules = {name for name in free - called if name in sys.stdlib_module_names}
    namespace.update({name: importlib.import_module(name) for name in modules})
    wanted = {name for name in free - modules if not hasattr(builtins, name)}
    # Only where nothing else can be meant is a built-in name the program's: ``assert sum(10, 15) == 6``.
    for name in sorted(wanted or _innermost_calls(tree)):
        # A name that the program lacks stays undefined, and the test fails where it needs it.
        with contextlib.suppress(KeyError):
            namespace[name] = lookup(name)


def _innermost_calls(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            left = node.test.left if isinstance(node.test, ast.Compare) else node.test
            functions = [part.func for part in ast.walk(left) if isinstance(part, ast.Call)]
            names.update([function.id for function in functions if isinstance(function, ast.Name)][-1:])
    return names


def _binds(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.arg(arg=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(alias.asname or alias.name).split(".")[0] for alias in names]
        case ast.ExceptHandler(name=str(name)):
            return [name]
    return []


def _stubs(setup: str) -> list[str]:
    """Functions that the setup code only declares; the program has to supply them."""
    return [
        node.name
        for node in ast.parse(setup).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and all(map(_does_nothing, node.body))
    ]


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom | ast.Raise)


def _where(error: BaseException, code: str) -> str:
    """The line of the test that failed, and the exception's text."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "test.py":
            line = trace.tb_lineno
        trace = trace.tb_next
    text = str(error)[:200]
    return (
        f"line {line}: {code.splitlines()[line - 1].strip()[:200]}" + (f" ({text})" if text else "")
        if line
        else text
    )
