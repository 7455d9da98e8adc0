"""Linux calls that the standard library lacks. Each raises ``OSError`` where the kernel says no."""

import ctypes
import os
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REC = 0x4000
MS_PRIVATE = 0x40000

PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2

LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def unshare(flags: int) -> None:
    """Leave the namespaces named by ``flags``."""
    _check(_libc.unshare(ctypes.c_int(flags)))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount ``kind`` at ``target``."""
    parts = [text.encode() or None for text in (source, target, kind)]
    _check(_libc.mount(*parts, ctypes.c_ulong(flags), options.encode() or None))


def prctl(option: int, first: int, second: object = 0) -> None:
    """``prctl`` with up to two arguments."""
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(first), second or zero, zero, zero))


def syscall(number: int, *arguments: object) -> int:
    """A system call by number; integers are passed as unsigned long."""
    words = [ctypes.c_ulong(word) if isinstance(word, int) else word for word in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *words))


def drop_capabilities() -> None:
    """Empty the effective, permitted and inheritable sets of this process."""
    # Version 3 of the header, this process; two triples of 32-bit words.
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()))
