"""Settings of ``ArcherTrainer``: TRL's, plus an objective; what would change the objective unseen is refused."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from trl import GRPOConfig

from archer.configs.loading import build_config
from archer.configs.objective import ObjectiveConfig
from archer.configs.run import ObjectiveSettings
from archer.errors import ConfigError
from archer.objectives import needs

_SAMPLING = "the importance ratio is taken over the whole vocabulary at the temperature; leave it unset"
_ENTROPY = "the objective has no entropy bonus; leave it unset"
_METHOD = "it belongs to another of TRL's losses; leave it unset"

REFUSED: Mapping[str, str] = {
    "loss_type": "set objective.aggregation",
    "epsilon": "set objective.eps_low, or eps_r and eps_k",
    "epsilon_high": "set objective.eps_high, or eps_r and eps_k",
    "delta": "set objective.dual_clip, which bounds negative advantages",
    "importance_sampling_level": "set objective to the method gspo",
    "scale_rewards": "set objective.advantage.normalisation",
    "multi_objective_aggregation": "rewards are summed by reward_weights, then normalised",
    "top_entropy_quantile": "set objective.rho, or objective to the method eighty-twenty",
    "entropy_coef": _ENTROPY,
    "use_adaptive_entropy": _ENTROPY,
    "entropy_coef_min": _ENTROPY,
    "entropy_coef_max": _ENTROPY,
    "entropy_coef_delta": _ENTROPY,
    "entropy_target": _ENTROPY,
    "off_policy_mask_threshold": "no method here drops responses by their KL; leave it unset",
    "use_bias_correction_kl": "the KL estimate is objective.kl_estimator; leave it unset",
    "sapo_temperature_neg": _METHOD,
    "sapo_temperature_pos": _METHOD,
    "vespo_k_pos": _METHOD,
    "vespo_lambda_pos": _METHOD,
    "vespo_k_neg": _METHOD,
    "vespo_lambda_neg": _METHOD,
    "use_liger_kernel": "its kernels replace parts of the model's forward, so it is off here; leave it unset",
    "top_p": _SAMPLING,
    "top_k": _SAMPLING,
    "min_p": _SAMPLING,
    "repetition_penalty": _SAMPLING,
}
"""TRL's settings that must keep their default, and what to do in place of each."""

_SAMPLING_KEYS = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "typical_p", "do_sample"}
)


def read_objective(value: Mapping[str, Any] | str | None) -> ObjectiveConfig:
    """The objective that a mapping of its settings, the name of a method, or nothing (Archer) stands for.

    Raises:
        ConfigError: no such method or setting, or a value that can't be used.
    """
    settings = {"method": value} if isinstance(value, str) else dict(value or {})
    return build_config(ObjectiveSettings, {"objective": settings}, where="ArcherConfig").objective


@dataclass
class ArcherConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's ``GRPOConfig`` with an objective of Archer's.

    Args:
        objective: settings of the objective, such as ``{"method": "archer", "rho": 0.8}``, or the name of a
            method. Held as a plain mapping of all its settings, so that it is saved with the arguments.
        disable_dropout: True here; dropout makes the ratio differ from 1 before any update.

    ``beta`` follows from the objective: TRL loads its reference model exactly when the objective needs one.

    Raises:
        ConfigError: a setting of TRL's that would change the objective, a method that TRL's data can't serve, or a
            batch split in which a step's tokens can't be counted.
    """

    _VALID_DICT_FIELDS = [*GRPOConfig._VALID_DICT_FIELDS, "objective"]  # noqa: RUF012

    objective: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "The objective: a method's name, or its settings as JSON."}
    )
    beta: float = field(
        default=0.0, metadata={"help": "Follows from the objective, whose KL weights count; leave it unset."}
    )
    disable_dropout: bool = field(
        default=True, metadata={"help": "Whether to disable dropout, which moves the ratio away from 1."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        objective = read_objective(self.objective)
        self.objective = objective.model_dump(mode="json")
        self._refuse_other_objectives()
        self._map_reference(objective)
        self._check_method(objective)
        if self.steps_per_generation % self.gradient_accumulation_steps:
            raise ConfigError(
                "expected steps_per_generation to be a multiple of gradient_accumulation_steps, so that the tokens of "
                f"an optimiser step are known before it; got {self.steps_per_generation} and "
                f"{self.gradient_accumulation_steps}. Leave steps_per_generation and generation_batch_size unset, or "
                f"make steps_per_generation {self.gradient_accumulation_steps} or a multiple"
            )

    def _refuse_other_objectives(self) -> None:
        defaults = {f.name: f.default for f in fields(GRPOConfig) if f.default is not MISSING}
        for name, action in REFUSED.items():
            found = getattr(self, name)
            if found != defaults[name]:
                raise ConfigError(
                    f"{name}={found!r} would change the objective beside ArcherConfig.objective; {action}"
                )
        shaped = _SAMPLING_KEYS & set(self.generation_kwargs or {})
        if shaped:
            raise ConfigError(
                f"generation_kwargs: {', '.join(sorted(shaped))} shapes the samples; {_SAMPLING}"
            )

    def _map_reference(self, objective: ObjectiveConfig) -> None:
        # TRL asks only whether beta is 0; the weights themselves are the objective's.
        wanted = 1.0 if needs(objective).reference else 0.0
        if self.beta not in (0.0, wanted):
            raise ConfigError(
                f"beta={self.beta} would set a KL weight beside the objective's; set beta_k and beta_r (archer), or "
                "beta, in objective"
            )
        self.beta = wanted

    def _check_method(self, objective: ObjectiveConfig) -> None:
        wants = needs(objective)
        if wants.passes > 1:
            raise ConfigError(
                f"objective {objective.method!r} makes {wants.passes} updates on the same data, which TRL's loop does "
                "not; set objective.eta to null (one update), or train with --engine local"
            )
        if wants.statistic == "micro-batch" and self.world_size > 1:
            raise ConfigError(
                f"objective {objective.method!r} depends here on which rows share a micro-batch, so "
                f"{self.world_size} processes would give another result than one; use one process, or a method or "
                "settings without that (objective.entropy_from old, where it has it)"
            )
