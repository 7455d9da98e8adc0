"""How responses are sampled."""

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from archer.configs.base import Config
from archer.configs.engine import EngineConfig


class SamplingConfig(Config):
    """One sampling law. Temperature 0 is greedy."""

    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0, description="0 keeps the whole vocabulary")
    max_response_tokens: PositiveInt = 1024


class RolloutConfig(SamplingConfig, EngineConfig):
    """Sampling for training.

    Only temperature is allowed to shape the distribution: with top-p or top-k the sampled tokens would come
    from a renormalised distribution that the importance ratio does not see.
    """

    group_size: int = Field(default=16, ge=2, description="responses per prompt, G (paper section 5.1)")
    max_prompt_tokens: PositiveInt = 1024
    overlong_prompts: Literal["drop", "refuse"] = "drop"

    @model_validator(mode="after")
    def _ratio_must_be_defined(self) -> "RolloutConfig":
        if self.temperature == 0:
            raise ValueError("temperature must be above 0 for training (greedy samples have no ratio); got 0")
        if self.top_p != 1.0 or self.top_k != 0:
            raise ValueError(
                "top_p and top_k must be 1.0 and 0 for training, because the importance ratio is taken over the "
                f"whole vocabulary; got top_p={self.top_p}, top_k={self.top_k}. Set them for evaluation only."
            )
        return self
