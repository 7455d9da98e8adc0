"""Shared fixtures."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# A slow or busy machine must not fail a property test.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Path of a real data file by name; skips the test where the file is not on this machine."""
    folder = Path(os.environ.get("ARCHER_SHARED_DATA", ROOT.parent / "shared" / "data"))

    def path_of(name: str) -> Path:
        path = folder / name
        if not path.exists():
            pytest.skip(f"real data file {name} is not on this machine (set ARCHER_SHARED_DATA)")
        return path

    return path_of


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Maker of random models with a word-level tokenizer: ``tiny_model("qwen3")`` gives a folder."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    common = {
        "vocab_size": 40,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "eos_token_id": 2,
        "bos_token_id": None,
        "pad_token_id": None,
    }
    grouped = {**common, "num_key_value_heads": 2}
    gpt2 = {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "eos_token_id": 2}
    settings = {
        "qwen3": {**grouped, "head_dim": 8, "tie_word_embeddings": True},
        "llama": grouped,
        "mistral": {**grouped, "sliding_window": 4},
        "granite": {**grouped, "logits_scaling": 3.0},
        "gpt_neox": {**common, "num_hidden_layers": 2},
        "gpt2": gpt2,
        "gemma2": {**grouped, "head_dim": 8},
    }
    made: dict[tuple[str, int], str] = {}

    def make(kind: str = "qwen3", seed: int = 0) -> str:
        if (kind, seed) not in made:
            folder = tmp_path_factory.mktemp(f"{kind}-{seed}")
            words = {**{str(i): i + 3 for i in range(10)}, "<unk>": 0, "<pad>": 1, "<end>": 2}
            words |= {f"w{i}": i for i in range(13, 40)}
            core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
            core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
            tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<pad>")
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings[kind]))
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.add_(0.1 * torch.randn_like(parameter))
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            made[kind, seed] = str(folder)
        return made[kind, seed]

    return make
