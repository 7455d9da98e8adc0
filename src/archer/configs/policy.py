"""Which model is trained, and how it is held in memory."""

from typing import Literal

from pydantic import Field, PositiveInt

from archer.configs.base import Config


class LoraConfig(Config):
    """Low-rank adapters through peft; the reference policy is then the model with its adapter off."""

    rank: PositiveInt = 16
    alpha: float = Field(default=32.0, gt=0)
    target_modules: Literal["all-linear"] | list[str] = "all-linear"


class PolicyConfig(Config):
    """The policy model and tokenizer.

    Attributes:
        model: hub name or folder of any Hugging Face causal language model; ``package:NAME/FOLDER`` is a
            folder of an installed Python package that carries one.
        gguf_file: file name within ``model``, for weights in GGUF form.
        revision: hub revision.
        dtype: ``auto`` is float32 on a CPU and bfloat16 on CUDA; the head's logits, the sum of gradients, and the
            weights that the optimiser updates are float32 in any case.
        device: ``auto`` is CUDA where there is one, else CPU.
        attention: ``packed`` computes a group's prompt once; ``padded`` is the plain path for models whose
            attention can't be replaced; ``auto`` tries packed on a small probe and falls back with a notice.
        gradient_checkpointing: recompute activations in the backward pass.
        lora: train low-rank adapters instead of all weights.
        chat_template: ``auto`` uses the tokenizer's template where it has one; ``none`` feeds the prompt as it is.
    """

    model: str
    gguf_file: str | None = None
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    device: str = "auto"
    attention: Literal["auto", "packed", "padded"] = "auto"
    gradient_checkpointing: bool = False
    lora: LoraConfig | None = None
    chat_template: Literal["auto", "none"] = "auto"
