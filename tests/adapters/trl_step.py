"""One optimiser step of ``ArcherTrainer`` on the fixed batch; run by ``torchrun`` for several processes."""

import importlib.util
import json
import sys
from pathlib import Path

import torch
from datasets import Dataset
from transformers import TrainerCallback

from archer.adapters.trl import ArcherConfig, ArcherTrainer

_spec = importlib.util.spec_from_file_location("archer_fixed_batch", Path(__file__).with_name("batch.py"))
batch = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(batch)


class KeepGradient(TrainerCallback):
    def __init__(self):
        self.gradient = {}

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradient = {
            name.removeprefix("module."): p.grad.clone()
            for name, p in model.named_parameters()
            if p.requires_grad
        }


class FixedStep(ArcherTrainer):
    """The old policy samples the fixed responses; the weights move before the first loss."""

    moved = False
    total = 0.0

    def _prepare_inputs(self, generation_batch):
        inputs = super()._prepare_inputs(generation_batch)
        if not self.moved:
            self.moved = True
            batch.perturb(self.accelerator.unwrap_model(self.model), batch.CURRENT)
        return inputs

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self.total += float(self.accelerator.gather(loss.detach()[None]).mean())
        return loss


def fixed_rollouts(prompts, trainer):
    first = trainer.accelerator.process_index * len(prompts)
    groups = [int(prompt) for prompt in prompts]
    rows = [(first + i) % batch.GROUP_SIZE for i in range(len(prompts))]
    return {
        "prompt_ids": [batch.PROMPTS[group] for group in groups],
        "completion_ids": [batch.RESPONSES[group][row] for group, row in zip(groups, rows, strict=True)],
        "logprobs": None,
    }


def fixed_rewards(prompts, completion_ids, **_):
    groups = [int(prompt) for prompt in prompts]
    return [
        batch.REWARDS[group][batch.RESPONSES[group].index(list(ids))]
        for group, ids in zip(groups, completion_ids, strict=True)
    ]


def one_step(folder, model, objective, *, mask_truncated=False, rows=12, accumulation=1):
    """Loss, gradient by parameter name, and the logged line of one step."""
    keep = KeepGradient()
    args = ArcherConfig(
        str(folder),
        objective=objective,
        num_generations=batch.GROUP_SIZE,
        max_completion_length=batch.MAX_RESPONSE_TOKENS,
        temperature=batch.TEMPERATURE,
        mask_truncated_completions=mask_truncated,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=accumulation,
        # TRL then keeps the old log-probabilities, which its first update would not need
        num_iterations=2,
        max_steps=1,
        max_grad_norm=0.0,
        logging_steps=1,
        shuffle_dataset=False,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
    )
    trainer = FixedStep(
        model,
        fixed_rewards,
        args,
        train_dataset=Dataset.from_dict({"prompt": [str(i) for i in range(len(batch.PROMPTS))]}),
        callbacks=[keep],
        rollout_func=fixed_rollouts,
    )
    batch.perturb(trainer.model, batch.OLD)
    trainer.train()
    return trainer.total, keep.gradient, trainer.state.log_history[0]


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    out = settings.pop("out")
    loss, gradient, line = one_step(**settings)
    if torch.distributed.get_rank() == 0:
        torch.save((loss, gradient, line), out)
    torch.distributed.destroy_process_group()
