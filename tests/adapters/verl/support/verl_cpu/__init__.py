"""verl on a CPU, for tests: a platform, an engine and a rollout, added through verl's own registries.

verl imports this package through ``VERL_USE_EXTERNAL_MODULES=verl_cpu``, in every process.
"""

from verl_cpu import platform

# isort: split
# Engine and rollout ask for the platform while they are imported.
from verl_cpu import engine, rollout

__all__ = ["engine", "platform", "rollout"]
