"""A bay: one sandbox with a warm interpreter in it, that runs one test at a time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from archer.errors import RewardError
from archer.rewards.code.child import confine, wire
from archer.rewards.code.layout import CHILD, Layout

_START_SECONDS = 60.0
_ANSWER_SECONDS = 30.0
_STOP_SECONDS = 5.0
# A starting script of one line: make the folder importable, then forget it again.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from child import template; del sys.path[0]; "
    "template.main(int(sys.argv[2]), sys.argv[3])"
)


class SandboxFault(RewardError):
    """The harness failed, not the program: worth another try."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start a bay.

    Attributes:
        bubblewrap: path of the tool, ``None`` to go without.
        layout: what is visible inside.
        user: user id to become inside, where this process is root; ``None`` to stay the same user.
        proc: whether the tool is asked for /proc, which containers often refuse.
    """

    bubblewrap: str | None
    layout: Layout
    user: int | None
    proc: bool = True


class Bay:
    """A running template; ``spawn`` has it fork a process for a test.

    Not safe for use by two threads at once.

    Raises:
        SandboxFault: it doesn't start; the message holds what the tool said.
    """

    def __init__(self, plan: Plan) -> None:
        ours, theirs = socket.socketpair()
        self._channel = ours
        self._process: subprocess.Popen[bytes] | None = None
        ours.settimeout(_START_SECONDS)
        with theirs, tempfile.TemporaryFile() as errors, contextlib.ExitStack() as stack:
            command, descriptors = _command(plan, theirs.fileno(), stack)
            try:
                self._process = _start(command, (theirs.fileno(), *descriptors), errors)
                theirs.close()
                self.features = confine.Features(**wire.receive(ours))
            except (OSError, wire.ChannelClosed, TypeError) as error:
                self.close()
                errors.seek(0)
                said = errors.read(2000).decode("utf-8", "replace").strip()
                raise SandboxFault(
                    f"expected a sandbox to start, got {error}: {said or 'no message'}"
                ) from None
        ours.settimeout(_ANSWER_SECONDS)

    def spawn(self, role: str, limits: confine.Limits, descriptors: Sequence[int]) -> None:
        """Have a process forked that holds ``descriptors`` (places in ``child.supervise``).

        Raises:
            SandboxFault: the template is gone or can't fork.
        """
        request = {"role": role, "limits": {name: getattr(limits, name) for name in limits.__slots__}}
        try:
            socket.send_fds(self._channel, [json.dumps(request).encode()], list(descriptors))
            answer = self._channel.recv(1)
        except OSError as error:
            raise SandboxFault(f"expected the sandbox to fork, got {error}") from None
        if answer != b"+":
            raise SandboxFault(
                "expected the sandbox to fork, but it " + ("could not" if answer else "has ended")
            )

    def close(self) -> None:
        """End the sandbox and everything in it; safe to call again."""
        self._channel.close()
        process = self._process
        if process is None or process.returncode is not None:
            return
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(command: Sequence[str], descriptors: Sequence[int], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=descriptors,
        env=_environment(),
        cwd="/",
        start_new_session=True,
    )


def _environment() -> dict[str, str]:
    # One hash seed for all, so that a program that depends on the order of a set gets the same verdict always.
    fixed = {"LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PATH": "/usr/bin", "HOME": "/tmp"}
    # A memory pool for each thread would use up the address space that a program is allowed.
    fixed["MALLOC_ARENA_MAX"] = "1"
    fixed |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return fixed | kept


def _command(plan: Plan, descriptor: int, stack: contextlib.ExitStack) -> tuple[list[str], list[int]]:
    layout = plan.layout
    options: dict[str, Any] = {
        "private_root": plan.bubblewrap is not None,
        "readable": layout.readable,
        "site": layout.site,
        "packages": layout.packages,
        "user": plan.user,
        "unshare": plan.bubblewrap is None,
    }
    # No site module, no user site, no script folder on the path, no bytecode written.
    python = [layout.interpreter, "-S", "-s", "-P", "-B", "-c", _BOOT, str(CHILD.parent)]
    python += [str(descriptor), json.dumps(options)]
    if plan.bubblewrap is None:
        return python, []
    arguments = [plan.bubblewrap, *_bubblewrap_arguments(layout, plan.proc)]
    if plan.user is None:
        return [*arguments, "--unshare-user", "--", *python], []
    namespace = stack.enter_context(_two_users(plan.user))
    return [*arguments, "--userns", str(namespace), "--", *python], [namespace]


def _bubblewrap_arguments(layout: Layout, proc: bool) -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    # Left to the tool, the folders on the way are closed to all but root.
    shown = (*layout.shown, *layout.package_paths, str(CHILD), "/dev/null")
    parents = {parent for path in shown for parent in map(str, Path(path).parents)} - {"/"}
    for folder in sorted(parents):
        yield from ("--dir", folder)
    for path in layout.shown:
        yield from ("--ro-bind", path, path)
    for path in layout.hidden:
        yield from ("--tmpfs", path)
    for path in (*layout.package_paths, str(CHILD)):
        yield from ("--ro-bind", path, path)
    for place, target in layout.links:
        yield from ("--symlink", target, place)
    for name in ("null", "zero", "random", "urandom"):
        yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        yield from ("--symlink", f"/proc/self/fd/{number}", f"/dev/{name}")
    yield from ("--proc" if proc else "--dir", "/proc", "--dir", "/tmp", "--chdir", "/")
    for path in (*layout.hidden, "/"):
        yield from ("--remount-ro", path)
    # Each test's process gives up all capabilities; the template needs them to make its namespaces.
    yield from ("--as-pid-1", "--cap-add", "ALL", "--hostname", "sandbox")


@contextlib.contextmanager
def _two_users(user: int) -> Iterator[int]:
    """A user namespace that knows root and ``user``, so that root can become ``user`` in it.

    The tool itself would map one user only, and limits on tasks don't bind root.
    """
    script = (
        "import ctypes, sys; code = ctypes.CDLL(None).unshare(0x10000000); print(code, flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as helper:
        assert helper.stdout is not None
        if helper.stdout.readline().strip() != b"0":
            raise SandboxFault("expected a user namespace, but the kernel refuses one")
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{helper.pid}/{name}", "w") as file:
                file.write(f"0 0 1\n{user} {user} 1\n")
        namespace = os.open(f"/proc/{helper.pid}/ns/user", os.O_RDONLY)
        assert helper.stdin is not None
        helper.stdin.close()
    try:
        yield namespace
    finally:
        os.close(namespace)
