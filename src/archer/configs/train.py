"""Optimiser, loop and evaluation settings."""

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from archer.configs.base import Config
from archer.configs.data import DataConfig
from archer.configs.rollout import SamplingConfig


class OptimizerConfig(Config):
    """AdamW with linear warm-up.

    Attributes:
        learning_rate: 1e-6 in the paper (section 5.1).
        warmup_updates: updates over which the rate rises linearly from 0 (10 in the authors' script).
        max_grad_norm: gradients are scaled down to this global norm.
    """

    learning_rate: float = Field(default=1e-6, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = Field(default=1e-8, gt=0)
    warmup_updates: NonNegativeInt = 10
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    max_grad_norm: float = Field(default=1.0, gt=0)


class TrainConfig(Config):
    """The loop.

    Attributes:
        prompts_per_step: prompts sampled each step (64 in the paper).
        mini_batch_prompts: prompts in one optimiser update (32 in the paper).
        epochs: passes over a step's rollouts (3 in the authors' script).
        micro_batch_tokens: packed tokens in one forward pass. The result does not depend on it.
        zero_variance: groups whose responses all have the same reward teach nothing. ``keep`` trains them all the
            same (their KL still counts), ``drop`` leaves them out, ``refill`` samples more prompts until the
            step is full, at most ``max_refills`` times.
        overlong_buffer: DAPO's soft penalty on the last tokens before the length limit (2503.14476 Eq. 13); null: off.
        overlong_factor: its largest value.
        mask_truncated: leave responses that hit the length limit out of the loss.
        old_logps: where log-probabilities of the sampling policy come from. ``sampler`` takes those recorded while
            sampling, ``recompute`` a pass of the trainer; ``auto`` takes the sampler's in float32, and recomputes
            from the next step on where they differ by more than ``max_ratio_error``, with a notice.
            Engines other than ``local`` give no entropies, so their samples are always recomputed.
        importance_limit: C of truncated importance sampling: where old log-probabilities are recomputed, each token's
            policy loss is multiplied by min(pi_old / pi_engine, C), which corrects for an engine whose probabilities
            differ from the trainer's. null trains the objective as it is written; ``engine/logp_gap`` tells whether it
            matters. 2 is usual.
        max_ratio_error: largest abs(ratio - 1) allowed before a step's first update.
        track_kl: measure the KL of the sampling policy to the base model in every step (``kl/base``) even where the
            objective has no KL term; costs a forward pass of the base model.
    """

    steps: PositiveInt = 100
    prompts_per_step: PositiveInt = 64
    mini_batch_prompts: PositiveInt = 32
    epochs: PositiveInt = 1
    micro_batch_tokens: PositiveInt = 4096
    zero_variance: Literal["keep", "drop", "refill"] = "keep"
    max_refills: PositiveInt = 4
    overlong_buffer: PositiveInt | None = None
    overlong_factor: float = Field(default=1.0, gt=0)
    mask_truncated: bool = False
    old_logps: Literal["auto", "sampler", "recompute"] = "auto"
    importance_limit: float | None = Field(default=None, gt=0)
    max_ratio_error: float = Field(default=1e-4, gt=0)
    track_kl: bool = False
    eval_every: NonNegativeInt = 10
    checkpoint_every: NonNegativeInt = 10
    keep_checkpoints: PositiveInt = 2
    rollout_log_every: NonNegativeInt = 10
    seed: int = 0

    @model_validator(mode="after")
    def _mini_batches_divide_the_step(self) -> "TrainConfig":
        if self.prompts_per_step % self.mini_batch_prompts:
            near = max(d for d in range(1, self.mini_batch_prompts + 1) if self.prompts_per_step % d == 0)
            raise ValueError(
                f"mini_batch_prompts must divide prompts_per_step; got {self.mini_batch_prompts} and "
                f"{self.prompts_per_step}. The nearest smaller value that does is {near}"
            )
        return self


class EvaluationConfig(SamplingConfig):
    """Held-out problems, and how to sample on them (temperature 0.8, top-p 1.0 in the paper's evaluation)."""

    data: DataConfig | None = None
    k: PositiveInt = 8
    temperature: float = Field(default=0.8, ge=0)
    max_response_tokens: PositiveInt | None = Field(  # type: ignore[assignment]
        default=None, description="null uses the training limit"
    )
    seed: int = 1234
