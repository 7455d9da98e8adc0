"""From a fork of the template to a confined process: namespaces, limits, no privileges, a system call filter."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from . import kernel, landlock, seccomp

NOBODY = 65534
_MOUNT = kernel.MS_NOSUID | kernel.MS_NODEV
# Enough for any honest depth of C calls; the space below the stack is kept free from the start.
_STACK = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Setting:
    """What the template was told when it started.

    Attributes:
        private_root: the root is read-only and this sandbox's own.
        readable: files and folders that a program may read.
        site: folder with third-party packages; ``packages`` names those that may be imported.
    """

    private_root: bool
    readable: Sequence[str]
    site: str
    packages: Sequence[str]


@dataclass(frozen=True, slots=True)
class Features:
    """What the kernel grants to each test's process, found by trying.

    Attributes:
        namespaces: its own process, mount and IPC namespaces; everything it leaves dies with it.
        network: the template's network namespace is empty.
        private_tmp: a file system of its own at /tmp, gone with it; files may be written there only.
        proc: a view of its own processes at /proc.
        user: user id to become, ``None`` where it stays what the template is.
        counted: tasks are counted for this sandbox alone, so that they can be limited.
        seccomp: a system call filter.
        landlock: version of the interface, 0 without.
    """

    namespaces: bool
    network: bool
    private_tmp: bool
    proc: bool
    user: int | None
    counted: bool
    seccomp: bool
    landlock: int

    def to_json(self) -> dict[str, Any]:
        """As a message."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one process.

    Attributes:
        cpu_seconds, wall_seconds: enforced from outside by the supervisor; the kernel's own limit backs it.
        memory: bytes above what the bare interpreter maps.
        file_bytes: size of a file, and of the private file system.
        open_files: file descriptors.
        threads: tasks of the user, enforced where the user isn't root.
    """

    cpu_seconds: float
    wall_seconds: float
    memory: int
    file_bytes: int
    open_files: int
    threads: int


def leave_namespaces(features: Features) -> None:
    """The next process to be forked starts namespaces of its own."""
    if features.namespaces:
        kernel.unshare(kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)


def enter(setting: Setting, features: Features, limits: Limits, base_memory: int) -> None:
    """Confine this process for good, strongest part last.

    Raises:
        OSError: the kernel refused a part that it granted when the template started.
    """
    os.setsid()
    if features.private_tmp:
        kernel.mount("tmpfs", "/tmp", "tmpfs", _MOUNT, f"mode=1777,nr_inodes=512,size={limits.file_bytes}")
    if features.proc:
        kernel.mount("proc", "/proc", "proc", _MOUNT | kernel.MS_NOEXEC | kernel.MS_RDONLY)
    os.chdir("/tmp" if features.private_tmp else "/")
    if features.user is not None:
        os.setgroups([])
        os.setresgid(features.user, features.user, features.user)
        os.setresuid(features.user, features.user, features.user)
    _set_limits(features, limits, base_memory)
    if not kernel.LINUX:
        return
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if features.landlock and not setting.private_root:
        landlock.restrict_to(setting.readable)
    if features.seccomp:
        seccomp.install(os.getpid(), writes=features.private_tmp)


def mapped_memory() -> int:
    """Bytes of address space that this process maps now; 0 where the kernel doesn't enforce a limit on it.

    Found by lowering the limit until a page can't be had, as there may be no /proc to read it from.
    """
    if not kernel.LINUX:
        return 0
    import mmap

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 1 << 40
    try:
        while high - low > mmap.PAGESIZE:
            middle = (low + high) // 2
            resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
            try:
                mmap.mmap(-1, mmap.PAGESIZE).close()
                high = middle
            except (OSError, MemoryError):
                low = middle
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return high


def _set_limits(features: Features, limits: Limits, base_memory: int) -> None:
    seconds = int(limits.cpu_seconds) + 2
    wanted = {
        resource.RLIMIT_CPU: (seconds, seconds + 1),
        resource.RLIMIT_FSIZE: (limits.file_bytes, limits.file_bytes),
        resource.RLIMIT_NOFILE: (limits.open_files, limits.open_files),
        resource.RLIMIT_CORE: (0, 0),
    }
    if base_memory:
        wanted[resource.RLIMIT_AS] = (base_memory + limits.memory,) * 2
        wanted[resource.RLIMIT_STACK] = (_STACK, _STACK)
    if features.counted or not features.seccomp:
        # Where a user's tasks elsewhere count too, this would stop honest threads; but without a filter it is
        # all that stops fork bombs.
        wanted[resource.RLIMIT_NPROC] = (limits.threads, limits.threads)
    for name, (soft, hard) in wanted.items():
        _, ceiling = resource.getrlimit(name)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(name, (soft, hard))


def find_features(setting: Setting, network: bool, user: int | None) -> Features:
    """Try each part in a process of its own."""
    isolated = kernel.LINUX and works(_try_namespaces)
    become = user if user is not None and works(lambda: os.setresuid(user, user, user)) else None
    private_tmp = isolated and setting.private_root and works(lambda: _try_mount("tmpfs", "/tmp"))
    return Features(
        namespaces=isolated,
        network=network,
        private_tmp=private_tmp,
        proc=isolated and setting.private_root and works(lambda: _try_mount("proc", "/proc")),
        user=become,
        counted=become is not None or (network and os.getuid() != 0 and _counts_by_namespace()),
        seccomp=seccomp.supported() and works(_try_seccomp),
        landlock=0 if setting.private_root else landlock.version(),
    )


def _counts_by_namespace() -> bool:
    # Since Linux 5.14 each user namespace has its own count.
    numbers = re.findall(r"\d+", os.uname().release)[:2]
    return [int(number) for number in numbers] >= [5, 14]


def works(action: Callable[[], object]) -> bool:
    """Whether ``action`` runs without ``OSError`` in a process of its own."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def _try_namespaces() -> None:
    kernel.unshare(kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _try_mount(kind: str, target: str) -> None:
    kernel.unshare(kernel.CLONE_NEWPID | kernel.CLONE_NEWNS)
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(OSError):
            kernel.mount(kind, target, kind, _MOUNT)
            code = 0
        os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise OSError(f"can't mount {kind}")


def _try_seccomp() -> None:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(os.getpid(), writes=False)


def set_soft_stack(size: int) -> None:
    """Soft stack limit, as far as the hard one allows."""
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
