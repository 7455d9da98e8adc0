"""What a program may see of this machine: the interpreter, its libraries, the packages that it may import."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from archer.errors import ConfigError

CHILD = Path(__file__).with_name("child")
_SYSTEM = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64", "/nix/store")
_SINGLE = ("/etc/ld.so.cache", "/usr/share/zoneinfo")
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths, each at the place that it has outside.

    Attributes:
        interpreter: the Python that runs programs: that of this process, outside any virtual environment.
        shown: files and folders that exist inside, read-only.
        links: symbolic links to make, (place, target).
        hidden: folders below ``shown`` that are empty inside.
        site: folder that holds ``packages``.
        packages: names that may be imported.
        package_paths: their files and folders.
    """

    interpreter: str
    shown: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...]
    site: str
    packages: tuple[str, ...]
    package_paths: tuple[str, ...]

    @property
    def readable(self) -> tuple[str, ...]:
        """Everything that a program may read."""
        devices = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
        return (*self.shown, *self.package_paths, str(CHILD), *devices)

    @property
    def is_open_to_others(self) -> bool:
        """Whether any user of this machine can read the interpreter and the packages."""
        return all(
            _others_can_read(Path(path)) for path in (self.interpreter, *self.shown, *self.package_paths)
        )


def find_layout(packages: Sequence[str]) -> Layout:
    """The layout of this machine.

    Raises:
        ConfigError: one of ``packages`` isn't installed.
    """
    interpreter = _interpreter()
    names = ("stdlib", "platstdlib")
    libraries = [sysconfig.get_path(name, vars=_base_variables()) for name in names]
    libraries += [sysconfig.get_config_var("LIBDIR") or "", *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    links = [(path, os.readlink(path)) for path in _SYSTEM if os.path.islink(path)]
    folders = [path for path in _SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    folders += [os.path.realpath(path) for path in libraries if path and os.path.isdir(path)]
    shown = _without_nested(folders) + [path for path in _SINGLE if os.path.exists(path)]
    if not any(_is_below(interpreter, folder) for folder in shown):
        shown.append(interpreter)
    hidden = [f"{folder}/{name}" for folder in {*folders, "/usr/lib/python3"} for name in _PACKAGE_FOLDERS]
    site, paths = _find_packages(packages)
    return Layout(
        interpreter=interpreter,
        shown=tuple(shown),
        links=tuple(links),
        hidden=tuple(sorted(path for path in hidden if os.path.isdir(path))),
        site=site,
        packages=tuple(packages),
        package_paths=tuple(paths),
    )


def _interpreter() -> str:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix) / "bin" / name
    return os.path.realpath(base if base.exists() else sys.executable)


def _base_variables() -> dict[str, str]:
    return {"base": sys.base_prefix, "platbase": sys.base_exec_prefix, "installed_base": sys.base_prefix}


def _find_packages(packages: Sequence[str]) -> tuple[str, list[str]]:
    site = ""
    paths: list[str] = []
    for name in packages:
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec else None
        if spec is None or origin is None:
            raise ConfigError(
                f"expected packages that are installed, found no {name!r}; install it or leave it out of `packages`"
            )
        folders = spec.submodule_search_locations
        path = Path(folders[0]) if folders else Path(origin)
        if site and str(path.parent) != site:
            raise ConfigError(
                f"expected all of `packages` in {site}, found {name!r} in {path.parent}; install them together"
            )
        site = str(path.parent)
        # Wheels keep the shared libraries that they bring along beside the package.
        libraries = path.with_name(f"{name}.libs")
        paths += [str(path), *([str(libraries)] if libraries.is_dir() else [])]
    return site, paths


def _without_nested(folders: Sequence[str]) -> list[str]:
    unique = sorted(set(folders))
    return [path for path in unique if not any(path != other and _is_below(path, other) for other in unique)]


def _is_below(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


def _others_can_read(path: Path) -> bool:
    return all(
        os.stat(place).st_mode & (0o005 if os.path.isdir(place) else 0o004) for place in (path, *path.parents)
    ) and all(os.stat(place).st_mode & 0o001 for place in path.parents)
