"""The four things that a test's process can be: a program, a function call, an object server, a checker.

Each reads its job from the control channel, which it never gave away before, says ``started`` there, and runs.
What comes after on that channel is a program's own word: the parent takes labels and results from it, and
compares the results itself.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import random
import site
import socket
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from . import check, plain, serve, wire
from .program import Failure, describe, run_code

# In LiveCodeBench's order: later names win, and the built-in ones over those of the modules before.
_STAR_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json"),
)
_PRELUDE = "\n".join(
    [f"from {name} import *" for name in (*_STAR_MODULES, "builtins", "typing")]
    + [f"import {name}" for name in _STAR_MODULES]
)
_PRELUDE_RECURSION = 50_000
_MEMORY_ERROR = wire.pack({"failed": Failure("run", "MemoryError", "").to_json()})

_prelude: dict[str, Any] = {}
_own_output: list[io.TextIOWrapper] = []


class _Packages:
    """Finds the allowed third-party packages, and no other, in the folder that holds them."""

    def __init__(self, site: str, names: Sequence[str]) -> None:
        self._site = site
        self._names = frozenset(names)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None or name not in self._names:
            return None
        # Not by a search of the folder: only what is in it by these names may be readable.
        folder = os.path.join(self._site, name)
        if os.path.isdir(folder):
            return importlib.util.spec_from_file_location(
                name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
            )
        return importlib.util.spec_from_file_location(name, folder + ".py")


def warm(folder: str, packages: Sequence[str]) -> None:
    """Load, once and before any fork, what programs need most."""
    if packages:
        sys.meta_path.append(_Packages(folder, packages))  # type: ignore[arg-type]
    # The interpreter was started without ``site``, which gives programs ``exit`` and ``quit``.
    site.setquit()
    exec(_PRELUDE, _prelude)
    _prelude.pop("__builtins__")


def run(role: str, control: socket.socket, peer: socket.socket | None) -> NoReturn:
    """Do one job and end this process."""
    job = wire.receive(control)
    _fresh_state()
    wire.send(control, {"started": True})
    roles: dict[str, Callable[[], int]] = {
        "stdin": lambda: _program(job, control),
        "functional": lambda: _call(job, control),
    }
    if peer is not None:
        roles["serve"] = lambda: _serve(job, control, peer)
        roles["check"] = lambda: _check(job, control, peer)
    code = 1
    try:
        code = roles[role]()
    finally:
        os._exit(code)


def _fresh_state() -> None:
    random.seed(0)
    sys.argv = ["solution.py"]
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), "utf-8")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), "utf-8")  # type: ignore[misc]
    _own_output.append(sys.stdout)
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(  # type: ignore[misc]
        io.FileIO(2, "w"), "utf-8", errors="backslashreplace", write_through=True
    )


def _namespace(name: str, prelude: bool) -> dict[str, Any]:
    module = types.ModuleType(name)
    sys.modules[name] = module
    if prelude:
        sys.setrecursionlimit(_PRELUDE_RECURSION)
        module.__dict__.update(_prelude, stdin=sys.stdin, stdout=sys.stdout, stderr=sys.stderr, argv=sys.argv)
    return module.__dict__


def _report(control: socket.socket, failure: Failure) -> None:
    message = _MEMORY_ERROR if failure.error == "MemoryError" else wire.pack({"failed": failure.to_json()})
    with contextlib.suppress(OSError):
        control.sendall(message)


def _program(job: dict[str, Any], control: socket.socket) -> int:
    failure, code = run_code(job["program"], _namespace("__main__", job["prelude"]))
    if failure is None:
        failure, code = _finish(code)
    if failure is not None:
        _report(control, failure)
    return code


def _finish(code: int) -> tuple[Failure | None, int]:
    """What the interpreter does at its end: threads, exit functions, buffers."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        # A program may have put anything in the place of its output, as fast readers and writers do.
        for stream in (sys.stdout, _own_output[0]):
            if not getattr(stream, "closed", False):
                stream.flush()
    except BaseException as error:  # noqa: BLE001  the program's own code runs here
        return describe("run", error), 1
    return None, code


def _call(job: dict[str, Any], control: socket.socket) -> int:
    namespace = _namespace("solution", job["prelude"])
    failure, code = run_code(job["program"], namespace)
    if failure is None and code == 0:
        try:
            if "Solution" in namespace:
                function = getattr(namespace["Solution"](), job["fn_name"])
            else:
                function = namespace[job["fn_name"]]
            result = plain.Encoder().message(function(*job["arguments"]))
            control.sendall(wire.pack({"result": result}))
        except plain.NotPlain as error:
            failure = describe("result", error)
        except BaseException as error:  # noqa: BLE001  the program's own code runs here
            failure = describe("run", error)
    if failure is not None:
        _report(control, failure)
    return 1 if failure else code


def _serve(job: dict[str, Any], control: socket.socket, peer: socket.socket) -> int:
    namespace = _namespace("solution", prelude=False)
    failure, code = run_code(job["setup"], namespace)
    classes = check.classes_of(namespace)
    if failure is None and code == 0:
        failure, code = run_code(job["program"], namespace)
    if failure is not None:
        _report(control, failure)
        return code
    if code == 0:
        serve.serve(peer, namespace, classes)
    return code


def _check(job: dict[str, Any], control: socket.socket, peer: socket.socket) -> int:
    label, detail = check.run(job["setup"], job["code"], peer)
    control.sendall(wire.pack({"token": job["token"], "label": label, "detail": detail}))
    return 0
