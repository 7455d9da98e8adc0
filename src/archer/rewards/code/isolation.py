"""Which isolation this machine offers, found by starting it."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from archer.configs.code import CodeConfig
from archer.errors import IsolationError
from archer.rewards.code.bay import Bay, Plan, SandboxFault
from archer.rewards.code.child.confine import NOBODY, Features
from archer.rewards.code.layout import Layout, find_layout

Level = Literal["bubblewrap", "rlimits"]


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """What a program is kept from on this machine.

    Attributes:
        level: the strongest that works, ``None`` where not even an interpreter can be started.
        guards: for each kind of harm, by what it is prevented; an empty string where nothing does.
        refused: why a stronger level isn't there, by its name.
    """

    level: Level | None
    guards: Mapping[str, str]
    refused: Mapping[str, str]

    @property
    def gaps(self) -> tuple[str, ...]:
        """Kinds of harm that nothing prevents."""
        return tuple(name for name, guard in self.guards.items() if not guard)

    def __str__(self) -> str:
        lines = [f"code sandbox: {self.level or 'none'}"]
        lines += [f"  {name}: {guard or 'NOT PREVENTED'}" for name, guard in self.guards.items()]
        lines += [f"  no {name}: {reason}" for name, reason in self.refused.items()]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Isolation:
    """A level, and how to start a bay with it."""

    level: Level
    plan: Plan
    report: IsolationReport


def probe_isolation() -> IsolationReport:
    """What this machine offers; takes a fraction of a second and starts a few processes."""
    layout = find_layout(())
    refused: dict[str, str] = {}
    for level in ("bubblewrap", "rlimits"):
        found = _try(level, layout, refused)
        if found is not None:
            return found.report
    return IsolationReport(None, {}, refused)


def choose_isolation(config: CodeConfig) -> Isolation:
    """The isolation that ``config`` asks for.

    Warns where ``"auto"`` falls short of the strongest, and where nothing prevents some kind of harm.

    Raises:
        IsolationError: this machine doesn't have it; the message says why.
        ConfigError: one of ``config.packages`` isn't installed.
    """
    layout = find_layout(config.packages)
    refused: dict[str, str] = {}
    levels: tuple[Level, ...] = (
        ("bubblewrap", "rlimits") if config.isolation == "auto" else (config.isolation,)
    )
    for level in levels:
        found = _try(level, layout, refused)
        if found is not None:
            _warn(found, config)
            return found
    reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    raise IsolationError(
        f"expected code isolation {config.isolation!r}, but this machine has none ({reasons})"
    )


def _warn(found: Isolation, config: CodeConfig) -> None:
    problems = [f"no {name} ({reason})" for name, reason in found.report.refused.items()]
    problems += [f"nothing prevents: {', '.join(found.report.gaps)}"] if found.report.gaps else []
    if problems:
        warnings.warn(
            f"programs of the model run under isolation {found.level!r}: {'; '.join(problems)}", stacklevel=4
        )


def _try(level: Level, layout: Layout, refused: dict[str, str]) -> Isolation | None:
    try:
        plan, features = _bubblewrap(layout) if level == "bubblewrap" else _limits_only(layout)
    except SandboxFault as fault:
        refused[level] = str(fault)
        return None
    return Isolation(level, plan, IsolationReport(level, _guards(plan, features), dict(refused)))


def _bubblewrap(layout: Layout) -> tuple[Plan, Features]:
    tool = shutil.which("bwrap")
    if tool is None:
        raise SandboxFault("bwrap isn't on the path; install the package bubblewrap")
    # Root inside its own user namespace is still exempt from limits on tasks, so it becomes somebody else.
    users = (NOBODY, None) if os.geteuid() == 0 else (None,)
    plans = [Plan(tool, layout, user, proc) for proc in (True, False) for user in users]
    plan, features = _first_that_starts(plans)
    if not features.namespaces and not features.seccomp:
        raise SandboxFault("neither namespaces nor a system call filter can be had for each test")
    return plan, features


def _limits_only(layout: Layout) -> tuple[Plan, Features]:
    becomes_nobody = os.geteuid() == 0 and layout.is_open_to_others
    return _first_that_starts([Plan(None, layout, NOBODY if becomes_nobody else None)])


def _first_that_starts(plans: list[Plan]) -> tuple[Plan, Features]:
    fault: SandboxFault | None = None
    for plan in plans:
        try:
            bay = Bay(plan)
        except SandboxFault as error:
            fault = fault or error
            continue
        bay.close()
        return plan, bay.features
    raise fault or SandboxFault("no plan")


def _guards(plan: Plan, features: Features) -> dict[str, str]:
    boxed = plan.bubblewrap is not None
    calls = "system call filter" if features.seccomp else ""
    spaces = "namespaces" if features.namespaces else ""
    return {
        "network": _both("namespace" if features.network else "", calls),
        "other processes": _both(spaces, calls),
        "survivors": _both(spaces, calls),
        "changing files": _both("read-only root" if boxed else "", "" if features.private_tmp else calls),
        "reading files": "minimal root" if boxed else "landlock" if features.landlock else "",
        "fork bombs": _both(calls, "limit on tasks" if features.counted or not calls else ""),
        "endless programs": "limits on CPU and wall time",
        # Other systems accept the limit and don't keep it.
        "memory bombs": "limit on address space" if sys.platform == "linux" else "",
    }


def _both(*guards: str) -> str:
    return ", ".join(guard for guard in guards if guard)
