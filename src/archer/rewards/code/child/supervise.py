"""One test's process seen from outside: started confined, watched, killed at its limits, reaped, reported."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from . import confine, kernel, runs, wire

STATUS, CONTROL, INPUT, OUTPUT, PEER = range(5)
"""Places of the descriptors that come with a request; ``PEER`` is absent where no second process takes part."""

_CONTROL_AT, _PEER_AT = 3, 4
_LONGEST_SLEEP = 0.25
_End = tuple[int, resource.struct_rusage]
# Where an exit can't be waited for with a time limit, it is asked for this often.
_POLL_SECONDS = 0.005


def supervise(
    setting: confine.Setting,
    features: confine.Features,
    base_memory: int,
    request: dict[str, Any],
    descriptors: Sequence[int],
) -> NoReturn:
    """Run one request in a process of its own and send what became of it; called in a fork of the template."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = socket.socket(fileno=descriptors[STATUS])
    try:
        limits = confine.Limits(**request["limits"])
        confine.leave_namespaces(features)
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _become(setting, features, base_memory, limits, request, descriptors)
        for descriptor in descriptors[CONTROL:]:
            os.close(descriptor)
        report = _watch(pid, limits, started, status)
    except (OSError, KeyError, TypeError) as error:
        report = {"fault": f"{type(error).__name__}: {error}"}
    with contextlib.suppress(wire.ChannelClosed):
        wire.send(status, report)
    os._exit(0)


def _become(
    setting: confine.Setting,
    features: confine.Features,
    base_memory: int,
    limits: confine.Limits,
    request: dict[str, Any],
    descriptors: Sequence[int],
) -> NoReturn:
    control = _arrange(descriptors)
    try:
        confine.enter(setting, features, limits, base_memory)
    except OSError as error:
        wire.send(control, {"fault": f"{type(error).__name__}: {error}"})
        os._exit(1)
    peer = socket.socket(fileno=_PEER_AT) if len(descriptors) > PEER else None
    runs.run(request["role"], control, peer)


def _arrange(descriptors: Sequence[int]) -> socket.socket:
    """Input, output and errors at 0, 1, 2; control and peer behind; nothing else stays open."""
    # First out of the way of the places that they go to.
    moved = [fcntl.fcntl(one, fcntl.F_DUPFD, 64) for one in descriptors[CONTROL:]]
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    places = (_CONTROL_AT, 0, 1, _PEER_AT)
    for source, place in zip(moved, places, strict=False):
        os.dup2(source, place)
    os.closerange(_PEER_AT + (len(moved) == len(places)), 64 + 256)
    return socket.socket(fileno=_CONTROL_AT)


def _watch(pid: int, limits: confine.Limits, started: float, status: socket.socket) -> dict[str, Any]:
    killed = ""
    exits = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    # The end may also be found by asking, and is then not to be waited for again.
    ended: _End | None = None
    while not killed and ended is None and not _sleep(exits, pid, limits, started, status):
        ended = None if exits is not None else _collect(pid, os.WNOHANG)
        killed = "" if ended else _over_limit(pid, limits, started, status)
    # The group is the child's own, as it leads a session; in namespaces of its own all of it dies anyway.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if ended is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    state, usage = ended or _collect(pid, 0) or (0, resource.getrusage(resource.RUSAGE_CHILDREN))
    return {
        "exit": os.WEXITSTATUS(state) if os.WIFEXITED(state) else None,
        "signal": os.WTERMSIG(state) if os.WIFSIGNALED(state) else None,
        "killed": killed,
        "cpu": usage.ru_utime + usage.ru_stime,
        "wall": time.monotonic() - started,
        "memory": _peak(usage),
    }


def _collect(pid: int, options: int) -> _End | None:
    found, state, usage = os.wait4(pid, options)
    return (state, usage) if found else None


def _sleep(
    exits: int | None, pid: int, limits: confine.Limits, started: float, status: socket.socket
) -> bool:
    """Sleep until the process has ended (True, where that can be told), or there is something to look at."""
    left = min(
        limits.cpu_seconds - (_cpu_seconds(pid) or 0.0), limits.wall_seconds - (time.monotonic() - started)
    )
    seconds = min(max(left, 0.001), _LONGEST_SLEEP)
    if exits is None:
        select.select([status], [], [], min(seconds, _POLL_SECONDS))
        return False
    ready, _, _ = select.select([exits, status.fileno()], [], [], seconds)
    return exits in ready


def _over_limit(pid: int, limits: confine.Limits, started: float, status: socket.socket) -> str:
    # Anything on the status channel, its end included, means that nobody wants the result any more.
    if select.select([status], [], [], 0)[0]:
        return "abort"
    cpu = _cpu_seconds(pid)
    if cpu is not None and cpu >= limits.cpu_seconds:
        return "cpu"
    if time.monotonic() - started >= limits.wall_seconds:
        return "wall"
    return ""


def _cpu_seconds(pid: int) -> float | None:
    if not kernel.LINUX:
        return None
    # The clock of another process, as clock_getcpuclockid(3) makes it.
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


def _peak(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1024 if kernel.LINUX else 1)
