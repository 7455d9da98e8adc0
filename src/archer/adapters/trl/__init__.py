"""Archer inside TRL: ``ArcherTrainer`` and ``ArcherConfig`` take the places of ``GRPOTrainer`` and ``GRPOConfig``."""

from archer.errors import MissingDependencyError

try:
    from archer.adapters.trl.config import ArcherConfig
    from archer.adapters.trl.trainer import ArcherTrainer
except ModuleNotFoundError as error:
    if error.name not in ("trl", "accelerate"):
        raise
    raise MissingDependencyError(f"{error.name} is not installed: pip install 'archer-rl[trl]'") from error

__all__ = ["ArcherConfig", "ArcherTrainer"]
