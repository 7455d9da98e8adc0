"""Processes of one test seen from the parent: descriptors, what they print and report, how they end."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from archer.rewards.code.bay import Bay, SandboxFault
from archer.rewards.code.child import confine, supervise, wire

# How long after the wall limit the supervisor's word may take, on a machine that is very busy.
_GRACE_SECONDS = 60.0
_JOB_SECONDS = 60.0
_CHUNK = 1 << 16
SHORT_REPORT = 1 << 16
"""Bytes; a report without a result says little, whoever writes it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What the supervisor saw; a program has no part in it.

    Attributes:
        exit: exit code, ``None`` where a signal ended it.
        signal: its number, ``None`` without.
        killed: ``"cpu"``, ``"wall"`` or ``"abort"`` (by the parent) where the supervisor killed it.
        cpu, wall: seconds.
        memory: peak resident bytes.
    """

    exit: int | None
    signal: int | None
    killed: str
    cpu: float
    wall: float
    memory: int


@dataclass
class Process:
    """One process of a test.

    Attributes:
        limits: bytes of each channel.
        output: what it printed, if that was asked for; cut at its limit.
        report: bytes of its messages, cut likewise.
        over: the limit that it exceeded, and was killed for; 0 without.
        ended: set when it is gone.
        messages: what it reported, as far as it can be read; set when all of it is there.
    """

    role: str
    limits: Mapping[str, int]
    output: bytearray = field(default_factory=bytearray)
    report: bytearray = field(default_factory=bytearray)
    over: int = 0
    ended: Ended | None = None
    status: socket.socket | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    _status_bytes: bytearray = field(default_factory=bytearray)

    def abort(self) -> None:
        """Have it killed; its end is still to be waited for."""
        if self.status is not None and self.ended is None:
            with contextlib.suppress(OSError):
                self.status.send(b"x")

    def take(self, channel: str, data: bytes) -> None:
        """Something that came from it or from its supervisor."""
        if channel == "status":
            self._status_bytes += data
            return
        store = self.output if channel == "output" else self.report
        store += data
        limit = self.limits[channel]
        if len(store) > limit:
            del store[limit:]
            self.over = limit
            self.abort()

    def finish(self) -> None:
        """The supervisor has said all it had to say.

        Raises:
            SandboxFault: it said nothing, or that it failed.
        """
        messages = wire.unpack_all(bytes(self._status_bytes))
        fault = (messages[0] if messages else {}).get("fault")
        if not messages or fault:
            raise SandboxFault(f"expected the end of the {self.role} process, got {fault or 'nothing'}")
        self.ended = Ended(**messages[0])


class Execution:
    """A context in which processes are started and followed; at its end all descriptors are closed.

    Leaving it early ends the processes: their supervisors see the status channel close.
    """

    def __init__(self, bay: Bay) -> None:
        self._bay = bay
        self._stack = contextlib.ExitStack()
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        self._processes: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(
        self,
        role: str,
        job: dict[str, Any],
        limits: confine.Limits,
        *,
        report_limit: int = SHORT_REPORT,
        output_limit: int = 0,
        given: bytes | None = None,
        peer: socket.socket | None = None,
    ) -> Process:
        """Start a process.

        Args:
            role: see ``child.runs``.
            job: what it is to do; only this process gets to see it.
            limits: enforced by its supervisor.
            report_limit: bytes that it may report.
            output_limit: bytes that it may print.
            given: its standard input; where it has one, its output is kept.
            peer: channel to another process; closed here.

        Raises:
            SandboxFault: the sandbox is broken.
        """
        process = Process(role, {"output": output_limit, "report": report_limit})
        with contextlib.ExitStack() as theirs:
            status, their_status = _pair(theirs)
            control, their_control = _pair(theirs)
            process.status = self._own(status)
            descriptors = [0] * supervise.PEER
            descriptors[supervise.STATUS] = their_status.fileno()
            descriptors[supervise.CONTROL] = their_control.fileno()
            descriptors[supervise.INPUT] = _input(given or b"", theirs)
            if given is None:
                descriptors[supervise.OUTPUT] = _opened(os.open(os.devnull, os.O_WRONLY), theirs)
            else:
                ours, descriptors[supervise.OUTPUT] = os.pipe()
                theirs.callback(os.close, descriptors[supervise.OUTPUT])
                self._watch(_opened(ours, self._stack), process, "output")
            if peer is not None:
                theirs.enter_context(peer)
                descriptors.append(peer.fileno())
            self._watch(self._own(control).fileno(), process, "report")
            self._watch(status.fileno(), process, "status")
            self._bay.spawn(role, limits, descriptors)
        _hand_over(control, job)
        self._processes.append(process)
        return process

    def events(self, wall_seconds: float) -> Iterator[Process]:
        """Each process as it ends, until all have ended and everything that they sent is there.

        Raises:
            SandboxFault: that takes longer than it can.
        """
        deadline = time.monotonic() + wall_seconds + _GRACE_SECONDS
        while self._selector.get_map():
            ready = self._selector.select(deadline - time.monotonic())
            if not ready and time.monotonic() > deadline:
                raise SandboxFault(f"expected processes to end within {wall_seconds:g} s, but they did not")
            for key, _ in ready:
                process, channel = key.data
                data = _read(key.fd)
                if data is None:
                    continue
                if data:
                    process.take(channel, data)
                    continue
                self._selector.unregister(key.fd)
                if channel == "status":
                    process.finish()
                    yield process
        for process in self._processes:
            read = wire.unpack_all(bytes(process.report))
            process.messages = [message for message in read if isinstance(message, dict)]

    def _watch(self, descriptor: int, process: Process, channel: str) -> None:
        os.set_blocking(descriptor, False)
        self._selector.register(descriptor, selectors.EVENT_READ, (process, channel))

    def _own(self, channel: socket.socket) -> socket.socket:
        return self._stack.enter_context(channel)


def _read(descriptor: int) -> bytes | None:
    """What there is; empty at the end, ``None`` where there is nothing yet."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        # The other side ended without reading all that it was sent.
        return b""


def _hand_over(control: socket.socket, job: dict[str, Any]) -> None:
    control.settimeout(_JOB_SECONDS)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        # A process that is gone already is reported by its supervisor.
        try:
            control.sendall(wire.pack(job))
        except TimeoutError:
            raise SandboxFault("expected the process to read its job, but it did not") from None
    control.setblocking(False)


def _pair(theirs: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, other = socket.socketpair()
    theirs.enter_context(other)
    return ours, other


def _opened(descriptor: int, stack: contextlib.ExitStack) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def _input(data: bytes, theirs: contextlib.ExitStack) -> int:
    """A file that holds ``data``, at its start: a program that reads on gets the end of file at once."""
    if not data:
        return _opened(os.open(os.devnull, os.O_RDONLY), theirs)
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("input")
    else:
        descriptor, path = tempfile.mkstemp()
        os.unlink(path)
    with open(_opened(descriptor, theirs), "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def peers() -> tuple[socket.socket, socket.socket]:
    """A channel between two processes of a test; each end is closed here when it has been given away."""
    return socket.socketpair()


def started(processes: Sequence[Process]) -> None:
    """Check that each process came as far as its job.

    Raises:
        SandboxFault: one did not; that is never a program's doing.
    """
    for process in processes:
        first = next(iter(process.messages), {})
        if first.get("started") is not True:
            raise SandboxFault(
                f"expected the {process.role} process to start, got {first.get('fault') or process.ended}"
            )
