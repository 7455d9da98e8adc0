"""One worker process, seen from the parent: started fresh, asked under a deadline, killed for certain."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from archer.rewards.child import read_frame, write_frame

START_SECONDS = 120.0
_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from archer.rewards.child import main; main()"
)


class WorkerFault(Exception):
    """A request that got no answer.

    Attributes:
        kind: ``start``, ``raised``, ``cpu_time``, ``wall_time``, ``memory``, ``killed`` or ``closed``.
        detail: the worker's traceback, or what is known.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker runs and what it may use.

    Attributes:
        target: ``module:name`` of a factory; ``factory(**settings)`` returns the handler of requests.
        settings: JSON-able keyword arguments of the factory.
        wall_seconds: wall time of one request.
        cpu_seconds: CPU time of one request; ``None`` sets no limit.
        memory_mb: address space of the process; ``None`` sets no limit.
        show_output: let the worker's prints reach this process's stderr.
    """

    target: str
    wall_seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    cpu_seconds: float | None = None
    memory_mb: int | None = None
    show_output: bool = False

    def for_child(self) -> str:
        """The part that the child needs, as JSON."""
        return json.dumps(
            {
                "target": self.target,
                "settings": dict(self.settings),
                "cpu_seconds": self.cpu_seconds,
                "memory_mb": self.memory_mb,
            }
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """The handler's value and the wall seconds that it took, waiting not counted."""

    value: Any
    seconds: float


class WorkerProcess:
    """A process of its own session, executed afresh: it inherits neither the parent's memory nor its files.

    One owner starts it and asks it one thing at a time; only ``interrupt`` may be called by another thread.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _BOOTSTRAP,
                    json.dumps(sys.path),
                    str(theirs.fileno()),
                    spec.for_child(),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if spec.show_output else subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                # A fixed hash seed keeps the order of sets, and with it every verdict, the same.
                env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            )
        self._reaping = threading.Lock()
        self._status: int | None = None

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once the process has been killed and reaped."""
        return self._status is None

    def start(self) -> None:
        """Wait until the handler is made.

        Raises:
            WorkerFault: ``start`` when that fails, with the worker's traceback.
        """
        reply = self._exchange(None, START_SECONDS)
        if "ready" not in reply:
            self.kill()
            raise WorkerFault("start", str(reply.get("detail", reply)))

    def ask(self, request: bytes) -> Reply:
        """Send one pickled request and wait for its reply.

        Raises:
            WorkerFault: no value came; unless its kind is ``raised`` or ``cpu_time`` with the process still
                alive, the process is gone and must be replaced.
        """
        reply = self._exchange(request, self._spec.wall_seconds)
        if "value" in reply:
            return Reply(reply["value"], float(reply["seconds"]))
        raise WorkerFault(str(reply.get("fail")), str(reply.get("detail")))

    def interrupt(self) -> None:
        """Make a running ``start`` or ``ask`` of another thread fail at once."""
        with self._reaping:
            if self._status is None:
                self._kill_session()

    def kill(self) -> int:
        """End the process and everything in its session, reap it, and return its exit status."""
        with self._reaping:
            if self._status is None:
                self._kill_session()
                self._status = self._process.wait()
                self._socket.close()
            return self._status

    def _kill_session(self) -> None:
        # The process is not reaped yet, so its id can't belong to another one, even if it is dead.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self._process.kill()

    def _exchange(self, request: bytes | None, seconds: float) -> dict[str, Any]:
        self._socket.settimeout(seconds)
        try:
            if request is not None:
                write_frame(self._socket, request)
            reply = json.loads(read_frame(self._socket))
        except TimeoutError:
            self.kill()
            raise WorkerFault("wall_time", f"over {seconds} s of wall time") from None
        except (EOFError, OSError, ValueError) as error:
            raise self._death(error) from None
        if not isinstance(reply, dict):
            self.kill()
            raise WorkerFault("killed", "the worker sent something that is no reply")
        return reply

    def _death(self, error: Exception) -> WorkerFault:
        status = self.kill()
        if status == -signal.SIGPROF:
            return WorkerFault("cpu_time", f"killed over {self._spec.cpu_seconds} s of CPU time")
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        return WorkerFault("killed", f"the worker ended with {name} ({error})")
