"""verl's own training worker in this process, and the fixed rows in verl's form."""

from importlib.resources import files

import torch

MODEL = str(files("archer") / "assets/demo-model")
FULL = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}


def build_worker(micro_batch):
    """A ``TrainingWorker`` with an FSDP2 engine that holds the demo model in float32."""
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig
    from verl.workers.engine_workers import TrainingWorker

    model = HFModelConfig(
        path=MODEL,
        use_remove_padding=False,
        enable_gradient_checkpointing=False,
        override_config={"attn_implementation": "sdpa"},
    )
    engine = FSDPEngineConfig(
        strategy="fsdp2",
        use_torch_compile=False,
        mixed_precision=FULL,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=micro_batch,
        infer_micro_batch_size_per_gpu=micro_batch,
        max_token_len_per_gpu=4096,
        infer_max_token_len_per_gpu=4096,
    )
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=model,
            engine_config=engine,
            optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=10, clip_grad=1e9),
            checkpoint_config=CheckpointConfig(),
        )
    )
    worker.reset()
    return worker


def nested(rows):
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


def cut(padded_BT, lengths):
    """Padded rows as verl's nested ones."""
    return nested(padded_BT[i, :n] for i, n in enumerate(lengths))


def verl_data(rows, fields, **settings):
    """verl's mini-batch: token ids of ``rows`` and padded ``fields`` of the responses."""
    from verl.utils import tensordict_utils

    lengths = [len(response) for _, response in rows]
    whole = [torch.tensor([*prompt, *response]) for prompt, response in rows]
    data = {
        "prompts": nested(torch.tensor(prompt) for prompt, _ in rows),
        "responses": nested(torch.tensor(response) for _, response in rows),
        "input_ids": nested(whole),
        "position_ids": nested(torch.arange(len(ids)) for ids in whole),
        **{name: cut(value, lengths) for name, value in fields.items()},
    }
    extra = {"temperature": 1.0, "global_token_num": [len(ids) for ids in whole], **settings}
    return tensordict_utils.get_tensordict(data, non_tensor_dict=extra)


def loss_and_gradients(worker, loss_function, data):
    """The loss of one mini-batch and the gradients that the optimiser would see; the weights stay."""
    from verl.utils import tensordict_utils

    seen = {}

    def keep_gradients():
        for name, parameter in worker.engine.module.named_parameters():
            gradient = parameter.grad
            seen[name] = (gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient).clone()
        return torch.stack([g.norm() for g in seen.values()]).norm()

    worker.set_loss_fn(loss_function)
    worker.engine.optimizer_step = keep_gradients
    out = worker.train_batch(data)
    return tensordict_utils.get(out, "metrics"), seen
