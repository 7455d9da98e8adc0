"""TRL's GRPO trainer with an objective of Archer's; generation, rewards and the loop stay TRL's.

Shape suffixes: B rows of this process, N rows of all processes, T completion tokens, F reward functions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing

from archer.adapters.trl.config import ArcherConfig, read_objective
from archer.errors import ConfigError
from archer.objectives import (
    Counts,
    aggregate,
    count,
    group_advantages,
    needs,
    prepare,
    shape_rewards,
    token_losses,
)
from archer.objectives.metrics import share
from archer.types import TokenBatch

_FORWARD = (
    "pixel_values",
    "image_grid_thw",
    "num_images",
    "pixel_attention_mask",
    "spatial_shapes",
    "num_tiles",
    "image_sizes",
    "token_type_ids",
    "mm_token_type_ids",
    "image_position_ids",
)
"""What a forward pass of a multimodal model takes from the inputs beside ids and mask."""

_CONSTANTS = ("old_entropy_BT", "reasoning_BT", "grade_BT")
"""Old-policy statistics that travel with the rows through TRL's shuffling and splitting."""

Inputs = dict[str, Any]


class ArcherTrainer(GRPOTrainer):  # type: ignore[misc]
    """``GRPOTrainer`` whose loss is an objective of Archer's.

    Takes the arguments of ``GRPOTrainer``, with an ``ArcherConfig`` as ``args``. Rewards, tools, vLLM, PEFT,
    accelerate, DeepSpeed, FSDP, callbacks, checkpoints and trackers work as in TRL. What differs: advantages are
    ``group_advantages`` of the objective; a response without a score is left out of the loss; the loss is divided
    by the counts of the whole optimiser step over all processes; the objective's metrics are logged.

    Raises:
        ConfigError: ``args`` is TRL's own configuration.
    """

    _tag_names = ["trl", "grpo", "archer"]  # noqa: RUF012
    _name = "Archer"

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        *rest: Any,
        **options: Any,
    ) -> None:
        if args is None:
            name = model if isinstance(model, str) else model.config._name_or_path
            args = ArcherConfig(f"{str(name).rstrip('/').split('/')[-1]}-Archer")
        if not isinstance(args, ArcherConfig):
            raise ConfigError(
                f"expected args to be an archer.adapters.trl.ArcherConfig, got {type(args).__name__}; it takes the "
                "same settings, and objective"
            )
        self.objective = read_objective(args.objective)
        self.needs = needs(self.objective)
        self._passes: list[tuple[Tensor, Tensor]] | None = None
        self._reward_NF: Tensor | None = None
        self._counts: Counts | None = None
        self._totals: dict[str, tuple[Tensor, Tensor]] = {}
        super().__init__(model, reward_funcs, args, *rest, **options)

    def _calculate_rewards(self, *args: Any, **options: Any) -> Tensor:
        self._reward_NF = super()._calculate_rewards(*args, **options)
        return self._reward_NF

    def _get_per_token_logps_and_entropies(
        self, model: Any, *args: Any, compute_entropy: bool = False, **options: Any
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """TRL's pass; those over sampled responses, where they are wanted, keep the entropies as well."""
        wanted = self._passes is not None and model is not self.ref_model
        logp_BT, entropy_BT, aux_loss = super()._get_per_token_logps_and_entropies(
            model, *args, compute_entropy=compute_entropy or wanted, **options
        )
        if self._passes is not None and entropy_BT is not None:
            self._passes.append((logp_BT, entropy_BT))
        return logp_BT, entropy_BT, aux_loss

    def _generate_and_score_completions(self, inputs: list[Inputs]) -> Inputs:
        """TRL's generation and scoring, then all that is constant in the update: advantages, masks, roles."""
        self._passes = [] if self.needs.old_entropy else None
        output: Inputs = super()._generate_and_score_completions(inputs)
        passes, self._passes = self._passes, None
        old_entropy_BT = None
        if passes is not None:
            output["old_per_token_logps"], old_entropy_BT = self._old_policy(output, passes)
        reward_N = self._rewards()
        own = self._own_rows(len(reward_N))
        mask_BT = output["completion_mask"].bool() & reward_N.isfinite()[own, None]
        if "tool_mask" in output:
            mask_BT = mask_BT & output["tool_mask"].bool()
        batch = self._everywhere(mask_BT, old_entropy_BT, len(reward_N))
        advantage_N = self._advantages(reward_N, batch, output["completion_ids"])
        batch = prepare(batch, self.objective)
        output["advantages"] = advantage_N[own]
        output["mask_BT"] = mask_BT
        output["row_B"] = torch.arange(len(reward_N), device=mask_BT.device)[own]
        output["group_B"] = output["row_B"] // self._group_size()
        width = mask_BT.shape[1]
        for name in _CONSTANTS:
            value_NT = getattr(batch, name)
            if value_NT is not None:
                output[name] = value_NT[own, :width]
        self._log_advantages(advantage_N)
        return output

    def _old_policy(self, output: Inputs, passes: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy ``[B, T]`` of the sampling policy; TRL's own pass where it made one."""
        for logp_BT, entropy_BT in passes:
            if logp_BT is output.get("old_per_token_logps"):
                return logp_BT, entropy_BT
        training = self.model.training
        batch_size = (
            self.args.per_device_train_batch_size if training else self.args.per_device_eval_batch_size
        )
        with (
            torch.no_grad(),
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
        ):
            logp_BT, entropy_BT, _ = self._forward(
                self.model, output, compute_entropy=True, batch_size=batch_size
            )
        return logp_BT, entropy_BT

    def _forward(self, model: Any, inputs: Inputs, **options: Any) -> Any:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        given = {name: inputs[name] for name in _FORWARD if name in inputs}
        return self._get_per_token_logps_and_entropies(
            model, ids, mask, inputs["completion_ids"].size(1), **given, **options
        )

    def _rewards(self) -> Tensor:
        """Weighted sum of each response's rewards over all processes, ``[N]``; NaN where no function gave one."""
        assert self._reward_NF is not None
        reward_N = (self._reward_NF * self.reward_weights.to(self._reward_NF.device)).nansum(dim=1)
        return torch.where(self._reward_NF.isnan().all(dim=1), math.nan, reward_N)

    def _group_size(self) -> int:
        return int(self.num_generations if self.model.training else self.num_generations_eval)

    def _own_rows(self, rows: int) -> slice:
        own = rows // self.accelerator.num_processes
        return slice(self.accelerator.process_index * own, (self.accelerator.process_index + 1) * own)

    def _gather(self, value_BT: Tensor) -> Tensor:
        return self.accelerator.gather(self.accelerator.pad_across_processes(value_BT, dim=1))  # type: ignore[no-any-return]

    def _everywhere(self, mask_BT: Tensor, old_entropy_BT: Tensor | None, rows: int) -> TokenBatch:
        """The rows of all processes, so that groups and pools are whole wherever they were sampled."""
        mask_NT = self._gather(mask_BT.long()).bool()
        zero_NT = torch.zeros(mask_NT.shape, device=mask_NT.device)
        return TokenBatch(
            logp_BT=zero_NT,
            old_logp_BT=zero_NT,
            mask_BT=mask_NT,
            advantage_BT=zero_NT,
            old_entropy_BT=None if old_entropy_BT is None else self._gather(old_entropy_BT.float()),
            group_B=torch.arange(rows, device=mask_NT.device) // self._group_size(),
        )

    def _advantages(self, reward_N: Tensor, batch: TokenBatch, completion_ids: Tensor) -> Tensor:
        assert batch.group_B is not None
        if self.needs.shaped_reward:
            tag = self._tokenizer.convert_tokens_to_ids("</think>")
            found_BT = (completion_ids == (-1 if tag is None else tag)).long()
            end_B = torch.where(found_BT.any(dim=1), found_BT.argmax(dim=1), -1)
            reward_N = shape_rewards(
                reward_N,
                self.objective,
                entropy_BT=batch.old_entropy_BT,
                mask_BT=batch.mask_BT,
                think_end_B=self.accelerator.gather(end_B),
            )
        return group_advantages(
            reward_N, batch.group_B, self.objective.advantage, length_B=batch.mask_BT.sum(dim=1)
        )

    def _log_advantages(self, advantage_N: Tensor) -> None:
        """TRL has just put its own advantages into the table of completions; ours are the ones trained."""
        table = self._logs["advantages"]
        for _ in range(min(len(table), len(advantage_N))):
            table.pop()
        table.extend(advantage_N.tolist())

    def _prepare_inputs(self, generation_batch: Any) -> Inputs:
        inputs: Inputs = super()._prepare_inputs(generation_batch)
        window = self.args.gradient_accumulation_steps
        if not self.model.training:
            self._counts = self._count([inputs])
        elif self._step % window == 0 or self._counts is None:
            first = self._step % self.args.steps_per_generation // window * window
            self._counts = self._count(self._buffered_inputs[first : first + window])
        return inputs

    def _count(self, window: Sequence[Inputs]) -> Counts:
        """Denominators of one optimiser step: its micro-batches here and on all other processes."""
        parts = []
        for inputs in window:
            placeholder_BT = torch.zeros(inputs["mask_BT"].shape, device=inputs["mask_BT"].device)
            parts.append(count(self._batch(inputs, placeholder_BT, None), self.objective))
        known = [name for name, tokens in parts[0].tokens.items() if tokens is not None]
        local = torch.stack([sum(p.tokens[name] for p in parts) for name in known] + [sum(p.responses for p in parts)])  # type: ignore[misc, arg-type]  # fmt: skip
        *tokens, responses = self.accelerator.reduce(local, reduction="sum")
        return Counts(dict.fromkeys(parts[0].tokens) | dict(zip(known, tokens, strict=True)), responses)

    def _batch(self, inputs: Inputs, logp_BT: Tensor, entropy_BT: Tensor | None) -> TokenBatch:
        """TRL's names to the objective's."""
        weight_BT = inputs.get("importance_sampling_ratio")
        old_logp_BT = inputs.get("old_per_token_logps")
        return TokenBatch(
            logp_BT=logp_BT,
            # TRL leaves it out where the policy that sampled is the one that is updated
            old_logp_BT=logp_BT.detach() if old_logp_BT is None else old_logp_BT,
            mask_BT=inputs["mask_BT"],
            advantage_BT=inputs["advantages"][:, None].expand_as(logp_BT),
            entropy_BT=entropy_BT,
            ref_logp_BT=inputs.get("ref_per_token_logps"),
            group_B=inputs["group_B"],
            response_B=inputs["row_B"],
            weight_BT=None if weight_BT is None else weight_BT.expand_as(logp_BT),
            **{name: inputs.get(name) for name in _CONSTANTS},
        )

    def _compute_loss(self, model: Any, inputs: Inputs) -> Tensor:
        logp_BT, entropy_BT, aux_loss = self._forward(
            model, inputs, compute_entropy=True, compute_aux_loss=self.aux_loss_enabled
        )
        generator = None
        if self.needs.generator:
            generator = torch.Generator(logp_BT.device).manual_seed(self.args.seed + self._step)
        batch = self._batch(inputs, logp_BT, entropy_BT.detach())
        terms = token_losses(batch, self.objective, generator=generator)
        assert self._counts is not None
        # The backward pass averages over processes, and the counts are already those of all of them.
        loss: Tensor = aggregate(terms, self._counts, self.objective) * self.accelerator.num_processes
        self._add_metrics({**terms.metrics, "entropy": share(entropy_BT, batch.mask_BT)})
        if self.aux_loss_enabled:
            training = self.model.training
            share_of_step = self.current_gradient_accumulation_steps if training else 1
            loss = loss + self.router_aux_loss_coef * aux_loss / share_of_step
        return loss

    def _add_metrics(self, metrics: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """Add up sums and counts over the step's micro-batches; log them, over all processes, at its end."""
        for name, (total, number) in metrics.items():
            if name in self._totals:
                before, seen = self._totals[name]
                total, number = _join(name)(before, total), seen + number
            self._totals[name] = (total, number)
        training = self.model.training
        if training and not self.accelerator.sync_gradients:
            return
        log = self._metrics["train" if training else "eval"]
        for name, (total, number) in self._totals.items():
            totals, numbers = self.accelerator.gather(torch.stack([total, number])[None]).unbind(dim=1)
            if numbers.sum() == 0:
                continue
            extreme = name.endswith(("_max", "_min"))
            join = {"_max": torch.amax, "_min": torch.amin}.get(name[-4:], torch.sum)
            value = join(totals) if extreme else totals.sum() / numbers.sum()
            log[name.replace("/value_", "/")].append(float(value))
        if "kl/mean" in self._totals and log["kl/mean"]:
            log["kl"].append(log["kl/mean"][-1])
        self._totals = {}


def _join(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    return {"_max": torch.maximum, "_min": torch.minimum}.get(name[-4:], torch.add)
