"""Landlock: a process gives up the file tree but for some folders that it may read."""

import ctypes
import os
import struct
from collections.abc import Iterable

from . import kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_PATH_BENEATH = 1
_VERSION_FLAG = 1
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_READ = _EXECUTE | _READ_FILE | _READ_DIR
# All rights over files that each version of the interface knows: 13 bits, then refer, truncate, ioctl.
_ALL_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_FILES_LATER = (1 << 16) - 1


def version() -> int:
    """The kernel's version of the interface; 0 where it has none."""
    if not kernel.LINUX:
        return 0
    try:
        return kernel.syscall(_CREATE, 0, 0, _VERSION_FLAG)
    except OSError:
        return 0


def restrict_to(folders: Iterable[str]) -> None:
    """Leave this process nothing but reading below ``folders``; needs ``no_new_privs``.

    Raises:
        OSError: the kernel refuses.
    """
    rights = _ALL_FILES.get(version(), _ALL_FILES_LATER)
    attributes = ctypes.create_string_buffer(struct.pack("=Q", rights), 8)
    rules = kernel.syscall(_CREATE, attributes, 8, 0)
    try:
        for folder in folders:
            _allow(rules, folder)
        kernel.syscall(_RESTRICT, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, path: str) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rights = _READ if os.path.isdir(path) else _EXECUTE | _READ_FILE
        kernel.syscall(
            _ADD, rules, _PATH_BENEATH, ctypes.create_string_buffer(struct.pack("=Qi", rights, place)), 0
        )
    finally:
        os.close(place)
