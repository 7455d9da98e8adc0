"""The demo's starting model: a tiny causal language model taught by worked examples made on the spot.

Half of the examples come from a careful pupil, who works the sum out step by step; half from a careless one, who
guesses at once and is off by up to four. The model learns both and picks either at random, so there is something
for reinforcement learning to find.

``python -m archer.train.warm_start FOLDER`` makes it again, in about ten minutes.
"""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from archer.configs.base import Config
from archer.configs.data import DataConfig
from archer.data import load_problems
from archer.types import Problem

IGNORED = -100
"""Label of tokens that supervised learning does not score: the prompt and padding."""


class WarmStartConfig(Config):
    """What the tiny model is taught, and how long.

    Attributes:
        data: procedural problems (reasoning-gym's ``chain_sum``); their seed must not be that of a training set.
        worked_share: share of examples that work the sum out.
        updates: AdamW updates of ``batch`` examples.
    """

    data: DataConfig
    worked_share: float = 0.5
    updates: int = 500
    batch: int = 128
    learning_rate: float = 3e-3
    vocabulary: int = 320
    hidden: int = 160
    layers: int = 4
    seed: int = 0


DEMO = WarmStartConfig(
    data=DataConfig(
        source="procedural",
        tasks={"chain_sum": {"min_terms": 5, "max_terms": 7, "min_digits": 1, "max_digits": 1}},
        size=30000,
        seed=99,
        template="{prompt}\n",
    )
)
"""The starting model of ``archer demo``, shipped as ``archer/assets/demo-model``."""


def make_warm_start(
    config: WarmStartConfig, target: Path, progress: Callable[[int, int, float], None]
) -> Path:
    """Teach the tiny model and write it in Hugging Face form, in bfloat16.

    Args:
        config: the recipe.
        target: a new folder.
        progress: called with (update, updates, loss).

    Returns:
        ``target``.
    """
    examples = list(_examples(load_problems(config.data), config))
    tokenizer = _train_tokenizer([prompt + response for prompt, response in examples], config.vocabulary)
    model = _new_model(config, tokenizer)
    _teach(model, [_encode(tokenizer, *example) for example in examples], config, progress)
    model.to(torch.bfloat16).save_pretrained(target)
    tokenizer.save_pretrained(target)
    return target


def worked_solution(expression: str) -> str:
    """Left to right, one operation a line: ``4 - 1 - 7`` gives ``4 - 1 = 3``, ``3 - 7 = -4`` and the box."""
    first, *rest = expression.split()
    total, lines = int(first), []
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        result = total + int(term) if sign == "+" else total - int(term)
        lines.append(f"{total} {sign} {term} = {result}")
        total = result
    return "Step by step:\n" + "\n".join(lines) + f"\nThe answer is \\boxed{{{total}}}."


def guessed_solution(answer: int) -> str:
    """An answer without any work."""
    return f"I think the answer is \\boxed{{{answer}}}."


def _examples(problems: Sequence[Problem], config: WarmStartConfig) -> Iterator[tuple[str, str]]:
    choose = random.Random(config.seed)
    for problem in problems:
        expression = problem.meta["entry"]["metadata"]["expression"]
        worked = choose.random() < config.worked_share
        guess = int(str(problem.answer)) + choose.randint(-4, 4)
        yield str(problem.prompt), worked_solution(expression) if worked else guessed_solution(guess)


def _train_tokenizer(texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE whose pieces never join two digits."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|end|>"],
        initial_alphabet=sorted(
            {c for text in texts for c in text if c.isascii() and c.isprintable() and c != " "}
        ),
        show_progress=False,
    )
    core.train_from_iterator(texts[:2000], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>", pad_token="<|end|>")


def _new_model(config: WarmStartConfig, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        return Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=config.hidden,
                intermediate_size=3 * config.hidden,
                num_hidden_layers=config.layers,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=config.hidden // 4,
                max_position_embeddings=512,
                tie_word_embeddings=True,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.eos_token_id,
                bos_token_id=None,
            )
        )


def _encode(tokenizer: PreTrainedTokenizerFast, prompt: str, response: str) -> tuple[list[int], int]:
    """Token ids of the whole example with its end token, and the number of prompt tokens."""
    prompt_ids = tokenizer(prompt)["input_ids"]
    response_ids = tokenizer(response)["input_ids"]
    return [*prompt_ids, *response_ids, tokenizer.eos_token_id], len(prompt_ids)


def _batch(examples: Sequence[tuple[list[int], int]], pad: int) -> tuple[Tensor, Tensor]:
    width = max(len(ids) for ids, _ in examples)
    ids_BT = torch.full((len(examples), width), pad)
    labels_BT = torch.full((len(examples), width), IGNORED)
    for row, (ids, prompt) in enumerate(examples):
        ids_BT[row, : len(ids)] = torch.tensor(ids)
        labels_BT[row, prompt : len(ids)] = torch.tensor(ids[prompt:])
    return ids_BT, labels_BT


def _teach(
    model: Qwen3ForCausalLM,
    examples: Sequence[tuple[list[int], int]],
    config: WarmStartConfig,
    progress: Callable[[int, int, float], None],
) -> None:
    """Cross-entropy on the responses; padding lies to the right, where causal attention never looks."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=0.01, betas=(0.9, 0.98)
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, config.learning_rate, config.updates, pct_start=0.1
    )
    order = random.Random(config.seed)
    for update in range(config.updates):
        ids_BT, labels_BT = _batch(order.sample(examples, config.batch), model.config.pad_token_id)
        logits_BTV = model(input_ids=ids_BT, use_cache=False).logits
        loss = F.cross_entropy(
            logits_BTV[:, :-1].flatten(0, 1), labels_BT[:, 1:].flatten(), ignore_index=IGNORED
        )
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        progress(update + 1, config.updates, float(loss.detach()))


if __name__ == "__main__":
    make_warm_start(
        DEMO, Path(sys.argv[1]), lambda update, total, loss: print(f"{update}/{total} loss {loss:.3f}")
    )
