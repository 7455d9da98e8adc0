"""verl's synchronous trainer with the objective installed: ``trainer.v1.trainer_mode=archer_sync``.

verl imports this module through the entry point ``verl.plugins`` and hides errors of the import; ``archer
verl-check`` shows them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from archer.adapters.verl.loss import archer_loss
from archer.adapters.verl.settings import TRAINER_MODE, read_objective
from archer.adapters.verl.step import StepRows, prepare_step, row_fields
from archer.configs.objective import PearConfig
from archer.errors import ConfigError, MissingDependencyError

try:
    import transfer_queue
    from omegaconf import DictConfig, OmegaConf, open_dict
    from tensordict import TensorDict
    from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
    from verl.workers.utils.padding import response_to_nested
except ImportError as error:
    raise MissingDependencyError(
        f"the trainer mode {TRAINER_MODE} needs verl 0.9.1 and what its trainer imports: "
        f"pip install 'archer-rl[verl]' ({error})"
    ) from error


@register_trainer(TRAINER_MODE)
class ArcherTrainerSync(PPOTrainerSync):  # type: ignore[misc]
    """verl's synchronous trainer; the settings of the objective are ``archer.objective.*``.

    Raises:
        ConfigError: see ``read_objective``.
    """

    def __init__(self, config: DictConfig) -> None:
        self.objective = read_objective(OmegaConf.to_container(config, resolve=True))
        # The base class takes its replay buffer and its section of settings by the mode's name.
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)

    def on_init_end(self) -> None:
        """Install the loss on the actor's workers, before the first weights go to the rollout."""
        self.actor_rollout_wg.set_loss_fn(partial(archer_loss, objective=self.objective))
        print(f"archer: loss installed: {self.objective!r}", flush=True)
        super().on_init_end()

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """verl's pass, then Archer's own advantages, masks and roles over the whole step.

        Raises:
            ConfigError: a response came in several parts, as agents with context resets give them.
        """
        if any(not key.endswith("_0") for key in batch.keys):
            raise ConfigError(
                "a response came in several parts; Archer's verl mode takes whole responses only"
            )
        batch = super()._compute_advantage(batch, metrics)
        names = ["uid", "responses", "response_mask", "rm_scores", "old_log_probs", "entropy"]
        data = transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=names
        )
        nested_mask = data["response_mask"]
        numbers: dict[str, int] = {}
        group = [numbers.setdefault(uid, len(numbers)) for uid in data.pop("uid").tolist()]
        rows = self._rows(data.to_padded_tensor(), torch.tensor(group))
        fields = row_fields(prepare_step(rows, self.objective))
        unscorable_B = ~rows.reward_B.isfinite()
        metrics["archer/unscorable"] = float(unscorable_B.float().mean())
        scores_BT = data["rm_scores"].to_padded_tensor(0.0)
        fields["rm_scores"] = torch.where(unscorable_B[:, None], 0.0, scores_BT)
        nested = {name: response_to_nested(value, nested_mask) for name, value in fields.items()}
        return transfer_queue.kv_batch_put(
            keys=batch.keys,
            partition_id=batch.partition_id,
            fields=TensorDict(nested, batch_size=len(batch)),
        )

    def _rows(self, data: TensorDict, group_B: torch.Tensor) -> StepRows:
        think_end_B = None
        if isinstance(self.objective, PearConfig):
            tag = self.tokenizer.convert_tokens_to_ids("</think>")
            is_tag_BT = data["responses"] == tag if tag is not None else torch.zeros_like(data["responses"])
            think_end_B = torch.where(is_tag_BT.any(1), is_tag_BT.int().argmax(1), -1)
        return StepRows(
            reward_B=data["rm_scores"].sum(1).float(),
            group_B=group_B,
            mask_BT=data["response_mask"].bool(),
            old_logp_BT=data["old_log_probs"].float(),
            old_entropy_BT=data["entropy"].float() if "entropy" in data else None,
            think_end_B=think_end_B,
        )
