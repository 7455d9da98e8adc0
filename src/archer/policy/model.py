"""The policy: a Hugging Face causal language model with its tokenizer, its reference and its log-probabilities."""

import copy
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from archer.configs.policy import PolicyConfig
from archer.errors import PolicyError
from archer.policy.allocator import keep_freed_memory
from archer.policy.head import float32_logits, token_logp_and_entropy
from archer.policy.linear import use_fast_linears
from archer.policy.packed import PACKED, AttentionLayout, Pair, pack
from archer.policy.tokenizer import load_tokenizer, model_place

logger = logging.getLogger(__name__)

PROBE_TOLERANCE = 2e-3
"""Largest difference in log-probability (nats, float32) at which the packed path counts as equal to the plain one."""

PROBE: tuple[Pair, ...] = (((1, 2, 3), (4, 5, 6, 2)), ((1, 2, 3), (5, 1)), ((2, 4), (3, 3, 1)))
"""Small rows with a shared and an unshared prompt."""


class Policy:
    """A trainable policy.

    Attributes:
        model: the Hugging Face model (a peft model with LoRA), dropout set to 0.
        tokenizer: its tokenizer.
        device: where the model lies.
        packed: whether a group's prompt is computed once (see ``archer.policy.packed``).
        eos_ids: every id that ends a response.
    """

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config
        self.device = _device(config.device)
        if self.device.type == "cpu":
            keep_freed_memory()
        self.tokenizer: PreTrainedTokenizerBase = load_tokenizer(config)
        self.model = _load_model(config, self.device)
        self._head_scale = _head_scale(self.model)
        _disable_dropout(self.model)
        use_fast_linears(self.model)
        if config.lora is not None:
            self.model = _with_lora(self.model, config)
        if config.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self.model.enable_input_require_grads()
        self.model.train()  # dropout is 0; transformers checkpoints activations in train mode only
        self._reference: nn.Module | None = None
        self.eos_ids = _eos_ids(self.model, self.tokenizer)
        self.packed = config.attention != "padded" and self._try_packed(required=config.attention == "packed")

    @property
    def causal_lm(self) -> PreTrainedModel:
        """The causal language model itself, without the peft wrapper."""
        return _unwrap(self.model)

    @property
    def max_tokens(self) -> int:
        """Longest sequence (prompt and response) that the model's positions allow."""
        return int(getattr(self.causal_lm.config, "max_position_embeddings", None) or 2**31)

    def trainable_parameters(self) -> list[nn.Parameter]:
        """Parameters that the optimiser updates, in a stable order, tied ones once."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def logps(self, rows: Sequence[Pair], temperature: float) -> tuple[Tensor, Tensor]:
        """Log-probability (with gradient) and entropy (without) of every response token.

        Args:
            rows: prompt and response ids; neighbouring rows with equal prompts share its computation.
            temperature: the sampling temperature; logits are divided by it.

        Returns:
            ``(logp_BT, entropy_BT)`` in nats, at least float32, zeros beyond each response.
        """
        return self._logps(self.causal_lm, rows, temperature)

    @torch.no_grad()
    def reference_logps(self, rows: Sequence[Pair], temperature: float) -> tuple[Tensor, Tensor]:
        """As ``logps``, without gradient, under the reference (the policy as loaded)."""
        if self.config.lora is not None:
            with self.model.disable_adapter():  # type: ignore[operator]
                return self._logps(self.causal_lm, rows, temperature)
        if self._reference is None:
            raise PolicyError("the reference was not kept: call keep_reference() before the first update")
        return self._logps(self._reference, rows, temperature)

    def keep_reference(self) -> None:
        """Remember the present weights as the reference. With LoRA nothing is copied: the adapter is switched off."""
        if self.config.lora is None and self._reference is None:
            self._reference = copy.deepcopy(self.model).requires_grad_(False)

    def save(self, folder: Path) -> None:
        """Write the model (with LoRA: the adapter) and tokenizer in Hugging Face form."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def load(self, folder: Path) -> None:
        """Replace the weights (with LoRA: the adapter's) by those that ``save`` wrote."""
        if self.config.lora is not None:
            import peft

            peft.set_peft_model_state_dict(self.model, peft.load_peft_weights(str(folder)))
            return
        saved = AutoModelForCausalLM.from_pretrained(folder, dtype=self.causal_lm.dtype)
        self.causal_lm.load_state_dict(saved.state_dict())

    def hidden(self, model: nn.Module, ids: Tensor, positions: Tensor, layout: AttentionLayout) -> Tensor:
        """Final hidden states ``[batch, tokens, D]`` with attention replaced by ``layout``."""
        # A 4-D mask makes transformers skip building one; the layout does not read it.
        skip = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=ids.device)
        out = _decoder(model)(
            input_ids=ids, position_ids=positions, attention_mask=skip, use_cache=False, archer_layout=layout
        )
        return out[0]  # type: ignore[no-any-return]

    def logits(self, hidden_BD: Tensor, temperature: float) -> Tensor:
        """Logits ``[B, V]`` divided by the temperature, at least float32."""
        head, scale = _head(self.model), self._head_scale / temperature
        if hidden_BD.dtype in (torch.float32, torch.float64):
            # As a call of the layer, so that a prepacked weight is used.
            logits_BV: Tensor = head(hidden_BD)
            return logits_BV if scale == 1.0 else logits_BV.mul_(scale)
        return float32_logits(hidden_BD, head.weight, head.bias, scale)

    def last_hidden(self, sequences: Sequence[tuple[int, ...]]) -> Tensor:
        """Hidden state ``[B, D]`` at the end of each sequence, by the plain padded forward pass."""
        rows: list[Pair] = [(ids, (0,)) for ids in sequences]
        return _padded_hidden(self.causal_lm, rows, self.device)

    def _logps(self, model: nn.Module, rows: Sequence[Pair], temperature: float) -> tuple[Tensor, Tensor]:
        layout = pack(rows, self.device)
        if not self.packed:
            hidden_MD = _padded_hidden(model, rows, self.device)
        else:
            hidden_ND = self.hidden(model, layout.input_ids_1N, layout.position_ids_1N, layout)[0]
            hidden_MD = hidden_ND.index_select(0, layout.predict_M)
        head = _head(model)
        logp_M, entropy_M = token_logp_and_entropy(
            hidden_MD,
            head.weight,
            layout.target_M,
            bias_V=head.bias,
            temperature=temperature / self._head_scale,
        )
        return layout.to_padded(logp_M), layout.to_padded(entropy_M)

    @torch.no_grad()
    def _try_packed(self, required: bool) -> bool:
        """Compare the packed path with the model's own forward on a probe; fall back where they differ."""
        plain_BT = _plain_logps(self.causal_lm, PROBE, self.device)
        before = self.causal_lm.config._attn_implementation
        self.causal_lm.set_attn_implementation(PACKED)
        self.packed = True
        reason = self._fault(plain_BT)
        if reason is None:
            return True
        self.causal_lm.set_attn_implementation(before)
        self.packed = False
        name = self.causal_lm.config.model_type
        if required:
            raise PolicyError(
                f"policy.attention is packed, but {name} can't be served by it ({reason}); set policy.attention=auto"
            )
        if (fault := self._fault(plain_BT)) is not None:
            raise PolicyError(f"{name} can't be trained here: its output head is not a linear map ({fault})")
        logger.warning("packed attention does not serve %s (%s); using the padded path", name, reason)
        return False

    def _fault(self, plain_BT: Tensor) -> str | None:
        """Why ``logps`` does not give the probe's plain values, or None."""
        try:
            logp_BT, _ = self._logps(self.causal_lm, PROBE, 1.0)
        except (TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"
        worst = float((logp_BT - plain_BT).abs().max())
        # Half precision rounds each path differently, so there only gross errors can be told apart.
        limit = PROBE_TOLERANCE if self.causal_lm.dtype.itemsize >= 4 else 0.25
        return None if worst <= limit else f"log-probabilities differ by {worst:.2g} nats"

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """No gradients, activations not kept."""
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.model.train(was_training)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise PolicyError(f"policy.device: expected auto, cpu, cuda or cuda:N, got {name!r}") from error


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}[name]


def _load_model(config: PolicyConfig, device: torch.device) -> PreTrainedModel:
    options = {"revision": config.revision, "gguf_file": config.gguf_file}
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            model_place(config),
            dtype=_dtype(config.dtype, device),
            **{key: value for key, value in options.items() if value is not None},
        )
    except (OSError, ValueError) as error:
        raise PolicyError(
            f"policy.model: expected the hub name or folder of a causal language model, got {config.model!r}: {error}"
        ) from error
    if config.gguf_file is not None:
        # The weights were dequantised on loading; the leftovers would keep the model from being saved or loaded.
        for owner, name in ((model.config, "quantization_config"), (model, "hf_quantizer")):
            if hasattr(owner, name):
                delattr(owner, name)
    return model.to(device)  # type: ignore[arg-type]


def _head_scale(model: PreTrainedModel) -> float:
    """Constant factor between the head's linear map and the model's logits (Granite, Cohere).

    Raises:
        PolicyError: the model bends its logits (soft capping), which the chunked head does not do.
    """
    if getattr(model.config, "final_logit_softcapping", None) is not None:
        raise PolicyError(
            f"{model.config.model_type} caps its logits (final_logit_softcapping); such models can't be trained here"
        )
    scale = getattr(model.config, "logit_scale", None) or 1.0
    return float(scale / (getattr(model.config, "logits_scaling", None) or 1.0))


def _disable_dropout(model: nn.Module) -> None:
    """Dropout would make the ratio differ from 1 before any update."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def _with_lora(model: PreTrainedModel, config: PolicyConfig) -> PreTrainedModel:
    import peft

    assert config.lora is not None
    return peft.get_peft_model(  # type: ignore[no-any-return]
        model,
        peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=config.lora.rank,
            lora_alpha=config.lora.alpha,
            lora_dropout=0.0,
            target_modules=config.lora.target_modules,
        ),
    )


def _unwrap(model: nn.Module) -> PreTrainedModel:
    base = getattr(model, "get_base_model", None)
    return base() if base is not None else model  # type: ignore[no-any-return, return-value]


def _decoder(model: nn.Module) -> nn.Module:
    decoder: nn.Module = _unwrap(model).base_model
    return decoder


def _head(model: nn.Module) -> nn.Linear:
    head = _unwrap(model).get_output_embeddings()
    return getattr(head, "base_layer", head)  # type: ignore[no-any-return]


def _eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """All end ids: the generation config's (a chat model often has two) and the tokenizer's."""
    named = [
        _unwrap(model).generation_config.eos_token_id,
        _unwrap(model).config.eos_token_id,
        tokenizer.eos_token_id,
    ]
    ids: set[int] = set()
    for item in named:
        ids.update(item if isinstance(item, list) else [] if item is None else [item])
    if not ids:
        raise PolicyError(
            "neither the model nor its tokenizer names an end-of-sequence token; set eos_token_id"
        )
    return frozenset(ids)


def _right_padded(rows: Sequence[Pair], device: torch.device) -> tuple[Tensor, Tensor]:
    width = max(len(p) + len(r) for p, r in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.int64)
    mask = torch.zeros(len(rows), width, dtype=torch.int64)
    for index, (prompt, response) in enumerate(rows):
        length = len(prompt) + len(response)
        ids[index, :length] = torch.tensor([*prompt, *response])
        mask[index, :length] = 1
    return ids.to(device), mask.to(device)


def _padded_hidden(model: nn.Module, rows: Sequence[Pair], device: torch.device) -> Tensor:
    """Hidden states that predict each response token, from the plain right-padded forward pass."""
    ids, mask = _right_padded(rows, device)
    hidden_BSD = _decoder(model)(input_ids=ids, attention_mask=mask, use_cache=False)[0]
    return torch.cat([hidden_BSD[b, len(p) - 1 : len(p) + len(r) - 1] for b, (p, r) in enumerate(rows)])


def _plain_logps(model: nn.Module, rows: Sequence[Pair], device: torch.device) -> Tensor:
    """The oracle of the probe: full logits from the model's own forward, plain log-softmax."""
    ids, mask = _right_padded(rows, device)
    logps = model(input_ids=ids, attention_mask=mask, use_cache=False).logits.float().log_softmax(-1)
    out_BT = torch.zeros(len(rows), max(len(r) for _, r in rows), device=device)
    for b, (prompt, response) in enumerate(rows):
        target = torch.tensor(list(response), device=device)
        out_BT[b, : len(response)] = logps[b, len(prompt) - 1 : -1][: len(response)].gather(
            -1, target[:, None]
        )[:, 0]
    return out_BT
