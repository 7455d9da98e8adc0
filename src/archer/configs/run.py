"""The whole configuration of a run."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from archer.configs.base import Config
from archer.configs.data import DataConfig
from archer.configs.objective import ArcherConfig, ObjectiveConfig
from archer.configs.policy import PolicyConfig
from archer.configs.reward import RewardConfig
from archer.configs.rollout import RolloutConfig
from archer.configs.train import EvaluationConfig, OptimizerConfig, TrainConfig


class RunConfig(Config):
    """One training run; every recipe is a YAML file of this form.

    Attributes:
        name: the run directory is ``output/name``.
        trackers: optional mirrors of ``metrics.jsonl``; they can never stop a run.
    """

    name: str = Field(default="run", pattern=r"^[A-Za-z0-9._-]+$")
    output: str = "runs"
    policy: PolicyConfig
    rollout: RolloutConfig = RolloutConfig()
    objective: ObjectiveConfig = Field(default_factory=ArcherConfig, discriminator="method")
    reward: RewardConfig = RewardConfig()
    data: DataConfig
    evaluation: EvaluationConfig = EvaluationConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    train: TrainConfig = TrainConfig()
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()

    @field_validator("objective", mode="before")
    @classmethod
    def _method_defaults_to_archer(cls, value: Any) -> Any:
        return {"method": "archer", **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _evaluation_has_data(self) -> "RunConfig":
        if self.train.eval_every and self.evaluation.data is None:
            raise ValueError(
                "evaluation.data is needed while train.eval_every is above 0; set one of the two"
            )
        return self

    @model_validator(mode="after")
    def _the_engine_can_train(self) -> "RunConfig":
        engine, old = self.rollout.engine, self.train.old_logps
        if engine == "server":
            raise ValueError(
                "rollout.engine: a server's weights can't be changed from here, so it can't train; use local or vllm "
                "(archer eval and archer data build do sample from servers)"
            )
        if engine == "vllm" and old == "sampler":
            raise ValueError(
                "train.old_logps: vLLM gives no entropies, so old log-probabilities can't come from the sampler; "
                "use auto or recompute"
            )
        if self.train.importance_limit is not None and engine == "local" and old != "recompute":
            raise ValueError(
                "train.importance_limit: needs old log-probabilities from another pass than the sampler's; set "
                "train.old_logps: recompute, or rollout.engine: vllm"
            )
        return self
