"""A whole training step, and its parts, against TRL's GRPOTrainer.

Usage: python benchmarks/step.py [--model smollm2] [--prompts 4] [--group 8] [--prompt-tokens 72] [--tokens 128]
       [--repeats 3] [--trl-batch 8] [--without-trl] [--quick]

Both sample ``prompts x group`` responses of exactly ``tokens`` tokens, score them with the same cheap rule, take
reference log-probabilities, and make one AdamW update in float32. Archer runs its own method; TRL runs GRPO with
beta 0.04 and ``--trl-batch`` responses a backward pass (the size at which it is quickest here). One step of each in
turn, the first of each left out as warm-up, medians. The last line is the rate of the arithmetic that the update
can't do without (6 operations a parameter and token, prompts counted once) as a share of the rate of a large matrix
product measured right after each step, since shared machines change their speed within minutes.
"""

import argparse
import statistics
import time
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import torch
from common import MODELS, machine, matrix_peak, model_folder, peak_bytes, quiet, random_prompts, scratch
from transformers import AutoTokenizer, TrainerCallback

from archer.configs.loading import build_config
from archer.configs.run import RunConfig
from archer.data import PromptStream
from archer.policy.model import Policy
from archer.rollout.local import LocalSampler
from archer.train.interrupt import Interrupt
from archer.train.loop import Parts, Trainer
from archer.train.records import RunRecords
from archer.types import Problem, Verdict


class IdPrompts:
    """A renderer whose prompts are token ids already, so that both sides see prompts of one length."""

    def ids(self, prompt):
        return tuple(int(token) for token in prompt.split())

    def text(self, prompt):
        return prompt


class ParityScorer:
    """Right or wrong by the length of the text: about half of each group."""

    def submit(self, problem, text):
        future = Future()
        score = float(len(text) % 2)
        future.set_result(Verdict("correct" if score else "incorrect", score))
        return future


def archer_trainer(folder, prompts, options, place):
    config = build_config(
        RunConfig,
        {
            "name": "step",
            "output": str(place),
            "policy": {"model": folder, "dtype": "float32", "device": "cpu"},
            "data": {"path": "none.jsonl"},
            "rollout": {
                "group_size": options.group,
                "max_prompt_tokens": options.prompt_tokens,
                "max_response_tokens": options.tokens,
                "max_batch": options.prompts * options.group,
            },
            "train": {
                "prompts_per_step": options.prompts,
                "mini_batch_prompts": options.prompts,
                "micro_batch_tokens": options.micro_batch_tokens,
                "eval_every": 0,
                "rollout_log_every": 0,
            },
        },
        where="benchmarks/step.py",
    )
    policy = Policy(config.policy)
    policy.eos_ids = frozenset()
    problems = [Problem(str(i), " ".join(map(str, ids))) for i, ids in enumerate(prompts)]
    parts = Parts(
        policy=policy,
        renderer=IdPrompts(),
        sampler=LocalSampler(policy, config.rollout.max_batch),
        scorer=ParityScorer(),
        stream=PromptStream(problems, 0),
        held_out=[],
        data_fingerprint="",
        first_prompt="",
    )
    return Trainer(config, parts, RunRecords(place / "records"), Interrupt(), lambda line: None)


class Watch:
    """Seconds spent in named methods since the last ``take``."""

    def __init__(self):
        self.seconds = {}

    def wrap(self, owner, method, name):
        inner = getattr(owner, method)

        def timed(*args, **kwargs):
            started = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                label = name(args) if callable(name) else name
                self.seconds[label] = self.seconds.get(label, 0.0) + time.perf_counter() - started

        setattr(owner, method, timed)

    def take(self):
        taken, self.seconds = self.seconds, {}
        return taken


class BetweenSteps(TrainerCallback):
    """Times each of TRL's steps and runs one of Archer's after it."""

    def __init__(self, watch, other):
        self.watch, self.other, self.steps = watch, other, []

    def on_step_begin(self, *args, **kwargs):
        self.watch.take()
        self.started = time.perf_counter()

    def on_step_end(self, *args, **kwargs):
        total = time.perf_counter() - self.started
        self.steps.append({"step": total, **self.watch.take()})
        self.other()


def run_trl(folder, prompts, options, place, other):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = GRPOConfig(
        output_dir=str(place / "trl"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=options.trl_batch,
        gradient_accumulation_steps=options.prompts * options.group // options.trl_batch,
        num_generations=options.group,
        max_completion_length=options.tokens,
        beta=0.04,
        learning_rate=1e-6,
        max_steps=options.repeats + 1,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
    )
    texts = [tokenizer.decode(ids) for ids in prompts]
    watch = Watch()
    callback = BetweenSteps(watch, other)
    trainer = GRPOTrainer(
        model=folder,
        reward_funcs=lambda completions, **_: [float(len(text) % 2) for text in completions],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": texts}),
        processing_class=tokenizer,
        callbacks=[callback],
    )
    # Both sides go to the length limit: no end token stops a response or masks what follows it.
    trainer.eos_token_ids = [-1]
    trainer.generation_config.eos_token_id = None
    ids_of = {text: list(ids) for text, ids in zip(texts, prompts, strict=True)}
    trainer._tokenize_prompts = lambda chosen: ([ids_of[text] for text in chosen], None, {})
    watch.wrap(trainer, "_generate_single_turn", "sample")
    watch.wrap(
        trainer,
        "_get_per_token_logps_and_entropies",
        lambda args: "forward" if torch.is_grad_enabled() else "reference",
    )
    trainer.train()
    return callback.steps[1:]


def arithmetic(policy, options):
    """Operations of one update."""
    head = policy.causal_lm.get_output_embeddings().weight.numel()
    embedding = policy.causal_lm.get_input_embeddings().weight.numel()
    tied = policy.causal_lm.get_output_embeddings().weight is policy.causal_lm.get_input_embeddings().weight
    body = sum(p.numel() for p in policy.model.parameters()) - embedding - (0 if tied else head)
    fed = options.prompts * (options.prompt_tokens + options.group * (options.tokens - 1))
    predicted = options.prompts * options.group * options.tokens
    return 6 * (body * fed + head * predicted)


@contextmanager
def loaded(options):
    with scratch() as place:
        folder = model_folder(options.model, place)
        vocabulary = AutoTokenizer.from_pretrained(folder).vocab_size
        yield folder, random_prompts(options.prompts, options.prompt_tokens, vocabulary), Path(place)


def show(name, steps, order):
    for part in order:
        values = [step.get(part, 0.0) for step in steps]
        print(
            f"{name:8s} {part:10s} {statistics.median(values):8.2f} s  ({min(values):.2f} to {max(values):.2f})"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=72)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--micro-batch-tokens", type=int, default=1200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--trl-batch", type=int, default=8)
    parser.add_argument("--without-trl", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.prompts, options.tokens, options.repeats, options.prompt_tokens = 2, 8, 1, 12
    quiet()
    print(machine())
    with loaded(options) as (folder, prompts, place):
        trainer = archer_trainer(folder, prompts, options, place)
        ours, peaks = [], []

        def step():
            metrics = trainer.step(len(ours) + 1)
            ours.append({k.removeprefix("time/"): v for k, v in metrics.items() if k.startswith("time/")})
            peaks.append(matrix_peak())

        trl = [] if options.without_trl else run_trl(folder, prompts, options, place, step)
        while len(ours) < options.repeats + 1:
            step()
        print(
            f"{options.model}: {options.prompts} prompts of {options.prompt_tokens} tokens x {options.group} "
            f"responses of {options.tokens}, float32, peak memory of the process {peak_bytes() / 2**30:.1f} GiB"
        )
        show("archer", ours[1:], ["step", "sample", "reference", "update"])
        if trl:
            for taken in trl:
                taken["loss+update"] = taken["step"] - taken.get("sample", 0) - taken.get("reference", 0)
            show("trl", trl, ["step", "sample", "reference", "loss+update", "forward"])
            ratio = statistics.median(t["step"] for t in trl) / statistics.median(o["step"] for o in ours[1:])
            print(f"one step of TRL takes the time of {ratio:.2f} of Archer's")
        rates = [arithmetic(trainer.policy, options) / own["update"] / 1e9 for own in ours[1:]]
        shares = [rate / peak for rate, peak in zip(rates, peaks[1:], strict=True)]
        print(
            f"update: {statistics.median(rates):.0f} GFLOP/s, {statistics.median(shares):.0%} of a 2048 square product "
            f"({min(peaks):.0f} to {max(peaks):.0f} GFLOP/s)"
        )


if __name__ == "__main__":
    main()
