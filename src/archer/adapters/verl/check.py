"""Whether verl in this environment will find the trainer mode, and if not, why."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata

from archer.adapters.verl.settings import PLUGIN, TRAINER_MODE

GROUP = "verl.plugins"
TESTED = "0.9.1"
MODULE = "archer.adapters.verl.trainer"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the check.

    Attributes:
        ok: whether this part stands.
        text: what was found and, where it does not stand, what to do.
    """

    ok: bool
    text: str


def check_plugin() -> list[Finding]:
    """Follow verl's own way to the plugin, one step at a time, up to the first that fails.

    verl hides errors that a plugin raises while it is imported; here they are shown.
    """
    findings: list[Finding] = []
    for step in (_installed, _entry_point, _policy, _import, _registered):
        finding = step()
        findings.append(finding)
        if not finding.ok:
            break
    return findings


def _installed() -> Finding:
    try:
        version = metadata.version("verl")
    except metadata.PackageNotFoundError:
        return Finding(False, "verl is not installed in this environment: pip install 'archer-rl[verl]'")
    note = "" if version == TESTED else f"; Archer is tested with {TESTED}"
    return Finding(True, f"verl {version} is installed{note}")


def _entry_point() -> Finding:
    found = [e for e in metadata.entry_points(group=GROUP) if e.value == MODULE]
    if not found:
        return Finding(
            False,
            f"no entry point {PLUGIN!r} in the group {GROUP}: Archer is on the path but not installed; "
            f"pip install archer-rl, or set VERL_USE_EXTERNAL_MODULES={MODULE}",
        )
    return Finding(True, f"entry point {found[0].name} = {found[0].value}")


def _policy() -> Finding:
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    if policy != "auto" and PLUGIN not in {name.strip() for name in policy.split(",")}:
        return Finding(
            False, f"VERL_USE_EXTERNAL_PLUGINS={policy} keeps verl from loading it; unset it, or add {PLUGIN}"
        )
    return Finding(True, f"VERL_USE_EXTERNAL_PLUGINS={policy} lets verl load it")


def _import() -> Finding:
    run = _python(f"import {MODULE}")
    if run.returncode:
        return Finding(False, f"importing {MODULE} fails; verl hides this:\n{run.stderr.strip()}")
    return Finding(True, f"{MODULE} can be imported")


def _registered() -> Finding:
    run = _python(
        "import verl; from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY as modes; print(*sorted(modes))"
    )
    if run.returncode:
        return Finding(False, f"verl itself can't be imported:\n{run.stderr.strip()}")
    modes = run.stdout.split()
    if TRAINER_MODE not in modes:
        return Finding(False, f"verl knows the trainer modes {', '.join(modes)}, but not {TRAINER_MODE}")
    return Finding(True, f"verl knows trainer.v1.trainer_mode={TRAINER_MODE}")


def _python(code: str) -> subprocess.CompletedProcess[str]:
    """A fresh process, as verl's own are: nothing is imported yet, and a failed import leaves nothing behind."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
