"""The block ``archer`` of a verl configuration."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from archer.configs.base import Config
from archer.configs.objective import ArcherConfig, ObjectiveConfig


class VerlConfig(Config):
    """What ``+archer.*`` on a verl command line sets; the method defaults to Archer."""

    objective: ObjectiveConfig = Field(default_factory=ArcherConfig, discriminator="method")

    @field_validator("objective", mode="before")
    @classmethod
    def _method_defaults_to_archer(cls, value: Any) -> Any:
        return {"method": "archer", **value} if isinstance(value, Mapping) else value
