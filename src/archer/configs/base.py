"""The base class of every configuration."""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A frozen configuration that refuses unknown keys and non-finite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)
