"""A seccomp filter: what a program that is being tested may not ask of the kernel.

The filter names what is refused, so that any ordinary computation runs. Refused calls fail with EPERM (the
program sees ``PermissionError``), ``clone3`` and ``openat2`` with ENOSYS, whereupon the C library uses the
older call, whose arguments a filter can read. Threads are allowed; other processes are not.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Iterator

from . import kernel, syscalls

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_X32_BIT = 0x40000000

_CLONE_THREAD = 0x00010000
# O_WRONLY, O_RDWR, O_CREAT, O_TRUNC; O_TMPFILE is never given without one of the first two.
_OPEN_TO_WRITE = 0o1 | 0o2 | 0o100 | 0o1000
# F_SETOWN, F_SETSIG, F_SETOWN_EX: they make the kernel signal another process.
_SIGNAL_COMMANDS = (8, 10, 15)
# FIOSETOWN, SIOCSPGRP do the same; TIOCSTI and TIOCLINUX type into a terminal.
_SIGNAL_REQUESTS = (0x8901, 0x8902, 0x5412, 0x541C)

Instruction = tuple[int, int, int, int]


def supported() -> bool:
    """Whether the filter is known for this machine; the kernel may still refuse it."""
    return kernel.LINUX and platform.machine() in _MACHINES


def install(pid: int, writes: bool) -> None:
    """Confine this process and all its threads, for good.

    Args:
        pid: of this process, the only one that it may signal.
        writes: whether files may be opened for writing, made and removed.

    Raises:
        OSError: the kernel has no filters, or ``no_new_privs`` isn't set.
    """
    column, architecture = _MACHINES[platform.machine()]
    code = b"".join(struct.pack("=HBBI", *line) for line in _program(column, architecture, pid, writes))
    buffer = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: a count, padding, a pointer.
    header = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)))
    kernel.prctl(kernel.PR_SET_SECCOMP, kernel.SECCOMP_MODE_FILTER, header)


def _program(column: int, architecture: int, pid: int, writes: bool) -> Iterator[Instruction]:
    yield _LOAD, 0, 0, _ARCHITECTURE
    yield _EQUAL, 1, 0, architecture
    yield _RETURN, 0, 0, _KILL
    yield _LOAD, 0, 0, _NUMBER
    if column == 0:
        yield _AT_LEAST, 0, 1, _X32_BIT
        yield _RETURN, 0, 0, _ERROR | errno.EPERM
    for call, rule in _by_argument(pid, writes).items():
        number = syscalls.SPECIAL[call][column]
        if number is not None:
            yield _EQUAL, 0, len(rule), number
            yield from rule
    groups = [syscalls.NETWORK, syscalls.PROCESSES, syscalls.KERNEL, syscalls.SHARED, syscalls.ATTRIBUTES]
    for group in groups if writes else [*groups, syscalls.WRITES]:
        for numbers in group.values():
            number = numbers[column]
            if number is not None:
                yield _EQUAL, 0, 1, number
                yield _RETURN, 0, 0, _ERROR | errno.EPERM
    yield _RETURN, 0, 0, _ALLOW


def _by_argument(pid: int, writes: bool) -> dict[str, list[Instruction]]:
    unknown = [(_RETURN, 0, 0, _ERROR | errno.ENOSYS)]
    rules = {
        "clone": _refuse_unless_bit(0, _CLONE_THREAD),
        "clone3": unknown,
        "openat2": unknown,
        "kill": _refuse_unless_one_of(0, (pid,)),
        "tgkill": _refuse_unless_one_of(0, (pid,)),
        "prlimit64": _refuse_unless_one_of(0, (0, pid)),
        "fcntl": _refuse_one_of(1, _SIGNAL_COMMANDS),
        "ioctl": _refuse_one_of(1, _SIGNAL_REQUESTS),
    }
    if not writes:
        rules["open"] = _refuse_bits(1, _OPEN_TO_WRITE)
        rules["openat"] = _refuse_bits(2, _OPEN_TO_WRITE)
    return rules


def _argument(place: int) -> Instruction:
    # The low half; both machines are little-endian and these arguments are 32 bits wide.
    return _LOAD, 0, 0, _FIRST_ARGUMENT + 8 * place


def _ends(refuse_last: bool) -> list[Instruction]:
    lines: list[Instruction] = [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    return lines if refuse_last else lines[::-1]


def _refuse_unless_bit(place: int, bit: int) -> list[Instruction]:
    return [_argument(place), (_ANY_BIT, 1, 0, bit), *_ends(refuse_last=False)]


def _refuse_bits(place: int, bits: int) -> list[Instruction]:
    return [_argument(place), (_ANY_BIT, 1, 0, bits), *_ends(refuse_last=True)]


def _refuse_unless_one_of(place: int, values: tuple[int, ...]) -> list[Instruction]:
    return [_argument(place), *_matches(values), *_ends(refuse_last=False)]


def _refuse_one_of(place: int, values: tuple[int, ...]) -> list[Instruction]:
    return [_argument(place), *_matches(values), *_ends(refuse_last=True)]


def _matches(values: tuple[int, ...]) -> list[Instruction]:
    # A match jumps over the remaining comparisons and the first of the two endings.
    return [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
