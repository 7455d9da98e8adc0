"""What runs inside a worker process: reads requests, calls the handler under its limits, writes replies.

Requests are pickled by the parent, which is trusted here. Replies are JSON, because the parent must never
unpickle anything that a process which has handled model text sends it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import queue
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

HEADER_BYTES = 8
# CPU seconds past the soft limit after which the kernel kills the process, for C code that holds the
# interpreter and so never sees the soft limit's exception.
HARD_FACTOR, HARD_EXTRA = 1.25, 0.25

Handler = Callable[[Any], Any]


class CpuTimeExceeded(BaseException):
    """The soft limit. Not an ``Exception``, so that a library's own ``except Exception`` lets it through."""


def read_frame(connection: socket.socket) -> bytes:
    """One length-prefixed frame.

    Raises:
        EOFError: the other side is gone.
    """
    size = int.from_bytes(_read_exactly(connection, HEADER_BYTES), "big")
    return _read_exactly(connection, size)


def write_frame(connection: socket.socket, frame: bytes) -> None:
    """Send one length-prefixed frame."""
    connection.sendall(len(frame).to_bytes(HEADER_BYTES, "big") + frame)


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError("the connection is closed")
        parts += part
    return bytes(parts)


def main() -> None:
    """Entry point: ``argv`` holds the number of the inherited socket and the worker's specification."""
    connection = socket.socket(fileno=int(sys.argv[-2]))
    connection.set_inheritable(False)
    spec = json.loads(sys.argv[-1])
    _detach_standard_streams()
    _limit_memory(spec["memory_mb"])
    try:
        module, _, name = spec["target"].partition(":")
        handler: Handler = getattr(importlib.import_module(module), name)(**spec["settings"])
    except BaseException:  # noqa: BLE001 - whatever goes wrong at the start is reported, then ends the process
        write_frame(connection, json.dumps({"fail": "start", "detail": traceback.format_exc()}).encode())
        return
    write_frame(connection, json.dumps({"ready": os.getpid()}).encode())
    _serve(connection, handler, spec["cpu_seconds"])


def _detach_standard_streams() -> None:
    """Give user code an empty stdin, and send what it prints to stderr."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)


def _limit_memory(megabytes: int | None) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if megabytes is not None:
        size = megabytes * 2**20
        # Some systems (macOS) have no such limit; the others hold there.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _serve(connection: socket.socket, handler: Handler, cpu_seconds: float | None) -> None:
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    # The parent may have ignored or blocked these, and a new process inherits that.
    signal.signal(signal.SIGVTALRM, _raise_cpu_time)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGVTALRM, signal.SIGPROF))
    while True:
        reply = _handle(handler, requests.get(), cpu_seconds)
        write_frame(connection, json.dumps(reply).encode())
        if reply.get("fail") == "memory":
            return


def _receive(connection: socket.socket, requests: queue.SimpleQueue[bytes]) -> None:
    """Ends the process when the parent goes away, even in the middle of a request."""
    try:
        while True:
            requests.put(read_frame(connection))
    except (EOFError, OSError):
        os._exit(0)


def _raise_cpu_time(signum: int, frame: FrameType | None) -> None:
    raise CpuTimeExceeded


def _handle(handler: Handler, frame: bytes, cpu_seconds: float | None) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        try:
            _start_clock(cpu_seconds)
            value = handler(pickle.loads(frame))
        finally:
            _start_clock(None)
    except CpuTimeExceeded:
        return {"fail": "cpu_time", "detail": f"over {cpu_seconds} s of CPU time"}
    except MemoryError:
        return {"fail": "memory", "detail": "over the memory limit"}
    except BaseException:  # noqa: BLE001 - the parent attributes it
        return {"fail": "raised", "detail": traceback.format_exc(limit=-6)}
    return {"value": value, "seconds": time.perf_counter() - started}


def _start_clock(cpu_seconds: float | None) -> None:
    """Arm both CPU limits, or disarm them.

    The soft one repeats, for the case that the handler swallows its first exception. SIGPROF keeps its
    default action, which ends the process.
    """
    soft = cpu_seconds or 0.0
    hard = soft * HARD_FACTOR + HARD_EXTRA if soft else 0.0
    signal.setitimer(signal.ITIMER_PROF, hard)
    signal.setitimer(signal.ITIMER_VIRTUAL, soft, 0.05 if soft else 0.0)
