"""The whole algorithm: sample, score, compare with the group, hold knowledge, let reasoning move.

One step is ``Trainer.step``. Read it from top to bottom; everything it calls is either in this file or one call
deep in the layer that owns it. Shape suffixes: B responses, T response tokens.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from archer.configs.run import RunConfig
from archer.data import PromptStream
from archer.errors import EngineError
from archer.evaluation.evaluate import evaluate, sample_and_score
from archer.objectives import (
    aggregate,
    count,
    engine_gap,
    group_advantages,
    kl_estimate,
    needs,
    overlong_penalty,
    prepare,
    shape_rewards,
    token_losses,
    truncated_importance,
)
from archer.policy.model import Policy
from archer.policy.tokenizer import PromptRenderer
from archer.rewards import Scorer
from archer.rollout.sampler import Sampler
from archer.train.batching import (
    LastVisit,
    StepData,
    assemble,
    micro_batches,
    mini_batches,
    select,
    think_end,
)
from archer.train.checkpoint import TrainState, save_checkpoint, settings_of
from archer.train.interrupt import Interrupt
from archer.train.optimizer import Optimizer, learning_rate
from archer.train.records import Clock, Meter, RunRecords, measure, spread
from archer.types import Group, Problem, TokenBatch


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop works with; ``archer.train.setup`` builds it from a configuration."""

    policy: Policy
    renderer: PromptRenderer
    sampler: Sampler
    scorer: Scorer
    stream: PromptStream
    held_out: Sequence[Problem]
    data_fingerprint: str
    first_prompt: str


class Trainer:
    """Trains one policy.

    Args:
        config: the run.
        parts: models, data and scorer.
        records: where everything is written.
        interrupt: turns a termination signal into a checkpoint.
        report: called with each finished line of metrics (the progress display, trackers).
    """

    def __init__(
        self,
        config: RunConfig,
        parts: Parts,
        records: RunRecords,
        interrupt: Interrupt,
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self.config, self.parts, self.records = config, parts, records
        self.interrupt, self.report = interrupt, report
        self.policy = parts.policy
        self.needs = needs(config.objective)
        self.optimizer = Optimizer(self.policy.trainable_parameters(), config.optimizer)
        self.step_number = 0
        self.updates = 0
        self.recompute = (
            config.train.old_logps == "recompute"
            or config.rollout.engine != "local"
            or (config.train.old_logps == "auto" and self.policy.causal_lm.dtype.itemsize < 4)
        )
        self.stream_state = parts.stream.state()
        self.saved_step = -1
        # Metrics of a finished step whose evaluation has not ended.
        self.pending: dict[str, float] | None = None
        self.reference = self.needs.reference or config.train.track_kl
        if self.reference:
            self.policy.keep_reference()

    def run(self) -> None:
        """All remaining steps, with evaluations and checkpoints between them."""
        train = self.config.train
        if self.step_number == 0 and train.eval_every:
            self.pending = {}
        while self.pending is not None or self.step_number < train.steps:
            if self.pending is None:
                self.stream_state = self.parts.stream.state()
                metrics = self.step(self.step_number + 1)
                # From here on the step counts: an interruption keeps it.
                self.step_number, self.stream_state = self.step_number + 1, self.parts.stream.state()
                self.pending = metrics
            self.finish(self.step_number, self.pending)
            self.interrupt.check()

    def finish(self, number: int, metrics: dict[str, float]) -> None:
        """Evaluate and save where they are due, and publish the step's metrics."""
        train = self.config.train
        last = number == train.steps
        if train.eval_every and (number % train.eval_every == 0 or last):
            metrics = metrics | self.evaluate(number)
        self.pending = None
        self.report(self.records.metrics(number, metrics))
        if number and (last or (train.checkpoint_every and number % train.checkpoint_every == 0)):
            self.save()

    def step(self, number: int) -> dict[str, float]:
        """One step of the algorithm (paper, Algorithm 1)."""
        clock, meter, before = Clock(), Meter(), self.updates
        with clock.phase("step"):
            with clock.phase("sample"), self.interrupt.allowed():
                groups = self.collect(number, meter)
            self._check_version(groups)
            if not groups:
                self.records.event(number, "warning", "no group had different rewards; nothing was trained")
                return {**meter.values(), **clock.seconds, "optim/updates": 0.0, "optim/skipped": 1.0}
            data = self.score_tokens(groups, clock, meter)
            with clock.phase("update"):
                visit = self.update(number, data, meter)
            with clock.phase("push"):
                self.parts.sampler.sync(self.updates)
        every = self.config.train.rollout_log_every
        if every and (number % every == 0 or number == 1):
            self.records.rollouts(number, groups, data, visit, self.policy.tokenizer)
        values = meter.values()
        return {
            **values,
            **clock.seconds,
            "optim/updates": float(self.updates - before),
            "tokens/trained": float(data.batch.mask_BT.sum()),
            "speed/sampled_tokens_per_second": values["tokens/sampled"] / clock.seconds["time/sample"],
        }

    def collect(self, number: int, meter: Meter) -> list[Group]:
        """Sample and score the step's groups; with ``zero_variance`` drop or refill the ones that teach nothing."""
        train, kept, seen = self.config.train, list[Group](), list[Group]()
        for attempt in range(1 + train.max_refills):
            problems = self.parts.stream.next(train.prompts_per_step - len(kept))
            fresh = sample_and_score(
                problems,
                self.parts.renderer,
                self.parts.sampler,
                self.parts.scorer,
                self.config.rollout,
                n=self.config.rollout.group_size,
                seed=_mix(train.seed, number, attempt),
            )
            seen += fresh
            kept += [g for g in fresh if train.zero_variance == "keep" or spread(g) > 0]
            if train.zero_variance != "refill" or len(kept) == train.prompts_per_step:
                break
        else:
            self.records.event(
                number,
                "warning",
                f"refilled {train.max_refills} times and still have {len(kept)} groups; training those",
            )
        measure(seen, meter)
        return kept

    def _check_version(self, groups: Sequence[Group]) -> None:
        """Every response must come from the present weights."""
        for rollout in (r for group in groups for r in group.rollouts):
            if rollout.policy_version != self.updates:
                raise EngineError(
                    f"response {rollout.sample} of {rollout.key} was sampled by weights of version "
                    f"{rollout.policy_version}; expected {self.updates}, the trainer's"
                )

    def score_tokens(self, groups: Sequence[Group], clock: Clock, meter: Meter) -> StepData:
        """Old and reference log-probabilities, advantages and roles: all constants of the update."""
        data = assemble(groups, mask_truncated=self.config.train.mask_truncated)
        batch = data.batch
        if self.recompute:
            with clock.phase("old"):
                logp_BT, entropy_BT = self._constants(data, self.policy.logps)
            limit, sampled_BT = self.config.train.importance_limit, batch.old_logp_BT
            meter.add(engine_gap(logp_BT, sampled_BT, batch.mask_BT, limit))
            if limit is not None:
                weight_BT = truncated_importance(logp_BT, sampled_BT, batch.mask_BT, limit)
                batch = replace(batch, weight_BT=weight_BT)
            batch = replace(batch, logp_BT=logp_BT, old_logp_BT=logp_BT, old_entropy_BT=entropy_BT)
        if self.reference:
            with clock.phase("reference"):
                ref_logp_BT, _ = self._constants(data, self.policy.reference_logps)
            batch = replace(batch, ref_logp_BT=ref_logp_BT)
            kl_BT = kl_estimate(batch.old_logp_BT, ref_logp_BT, "k3")
            meter.add_value("kl/base", float(kl_BT[batch.mask_BT].sum()), float(batch.mask_BT.sum()))
        advantage_B = self.advantages(groups, batch)
        batch = replace(batch, advantage_BT=advantage_B[:, None].expand_as(batch.logp_BT))
        return replace(data, batch=prepare(batch, self.config.objective))

    def advantages(self, groups: Sequence[Group], batch: TokenBatch) -> Tensor:
        """Each response's reward against its group's, ``[B]``; unscorable ones get 0 and count nowhere."""
        train, objective = self.config.train, self.config.objective
        rollouts = [r for group in groups for r in group.rollouts]
        reward_B = torch.tensor(
            [math.nan if v.score is None else v.score for g in groups for v in g.verdicts]
        )
        if train.overlong_buffer is not None:
            length_B = torch.tensor([len(r.token_ids) for r in rollouts])
            limit = self.config.rollout.max_response_tokens
            reward_B = reward_B + overlong_penalty(
                length_B, limit=limit, buffer=train.overlong_buffer, factor=train.overlong_factor
            )
        if self.needs.shaped_reward:
            reward_B = shape_rewards(
                reward_B,
                objective,
                entropy_BT=batch.old_entropy_BT,
                mask_BT=batch.mask_BT,
                think_end_B=think_end(rollouts, self.policy.tokenizer.convert_tokens_to_ids("</think>")),
            )
        group_B = torch.tensor([i for i, group in enumerate(groups) for _ in group.rollouts])
        return group_advantages(reward_B, group_B, objective.advantage, length_B=batch.mask_BT.sum(1))

    def _constants(
        self, data: StepData, compute: Callable[..., tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy ``[B, T]`` of every row, without gradient, on the CPU."""
        logp_BT, entropy_BT = torch.zeros_like(data.batch.logp_BT), torch.zeros_like(data.batch.logp_BT)
        with self.policy.evaluating():
            for micro in micro_batches(data, range(len(data.rows)), self.config.train.micro_batch_tokens):
                logp, entropy = compute([data.rows[i] for i in micro], self.config.rollout.temperature)
                logp_BT[micro, : logp.shape[1]] = logp.float().cpu()
                entropy_BT[micro, : logp.shape[1]] = entropy.float().cpu()
        return logp_BT, entropy_BT

    def update(self, number: int, data: StepData, meter: Meter) -> LastVisit:
        """Epochs of mini-batches, one optimiser update each; returns what the last visit of each token saw."""
        train, first = self.config.train, True
        visit = LastVisit(torch.ones_like(data.batch.logp_BT))
        for epoch in range(train.epochs):
            for rows in mini_batches(data, train.mini_batch_prompts, _mix(train.seed, number, epoch)):
                for pass_index in range(self.needs.passes):
                    self._backward(data, rows, pass_index, meter, visit)
                    if first:
                        self._check_ratio(number, data, rows, visit.ratio_BT, meter)
                        first = False
                    self._apply(number, meter)
        return visit

    def _backward(
        self, data: StepData, rows: Sequence[int], pass_index: int, meter: Meter, visit: LastVisit
    ) -> None:
        """Gradient of one mini-batch. Micro-batches only bound memory: each is divided by the whole's counts."""
        objective, device = self.config.objective, self.policy.device
        counts = count(select(data.batch, rows, device), objective, pass_index=pass_index)
        total, moved = 0.0, False
        micros = micro_batches(data, rows, self.config.train.micro_batch_tokens)
        for micro in micros:
            logp_BT, entropy_BT = self.policy.logps(
                [data.rows[i] for i in micro], self.config.rollout.temperature
            )
            leaf_BT = logp_BT.detach().requires_grad_()
            batch = select(data.batch, micro, device)
            batch = replace(batch, logp_BT=leaf_BT, entropy_BT=entropy_BT)
            generator = torch.Generator(device).manual_seed(
                _mix(self.config.train.seed, self.updates, micro[0])
            )
            terms = token_losses(batch, objective, pass_index=pass_index, generator=generator)
            loss = aggregate(terms, counts, objective)
            (gradient_BT,) = torch.autograd.grad(loss, leaf_BT)
            # Where no token has a gradient (no advantage, no KL) the model's own backward pass would give zeros.
            # One pass always runs, since an optimiser passes over parameters that have no gradient at all.
            if gradient_BT.any() or (micro is micros[-1] and not moved):
                logp_BT.backward(gradient_BT)  # type: ignore[no-untyped-call]
                moved = True
            total += float(loss.detach())
            meter.add(terms.metrics)
            ratio = (leaf_BT.detach() - batch.old_logp_BT).exp()
            visit.note(micro, torch.where(batch.mask_BT, ratio, 1.0), terms.clip_BT)
        meter.add_value("optim/loss", total)

    def _check_ratio(
        self, number: int, data: StepData, rows: Sequence[int], ratio_BT: Tensor, meter: Meter
    ) -> None:
        """Before any update the ratio must be 1: the sampler's log-probabilities are those of the trainer."""
        mismatch = float((ratio_BT[rows] - 1).abs().max())
        meter.add_value("ratio/first_mismatch", mismatch)
        if mismatch > self.config.train.max_ratio_error and not self.recompute:
            action = "kept, as train.old_logps says"
            if self.config.train.old_logps == "auto":
                self.recompute, action = True, "recomputed from the next step on"
            self.records.event(
                number,
                "warning",
                f"before the first update the ratio differs from 1 by {mismatch:.2g} (limit "
                f"{self.config.train.max_ratio_error:g}): old log-probabilities are {action}",
            )

    def _apply(self, number: int, meter: Meter) -> None:
        """Clip the gradient and step; a gradient that is not finite is skipped and counted."""
        train = self.config.train
        total = (
            train.steps
            * train.epochs
            * (train.prompts_per_step // train.mini_batch_prompts)
            * self.needs.passes
        )
        rate = learning_rate(self.config.optimizer, self.updates, total)
        norm, taken = self.optimizer.step(rate)
        self.updates += taken
        meter.add_value("optim/lr", rate)
        if taken:
            meter.add_value("optim/grad_norm", norm)
        else:
            self.records.event(number, "warning", f"gradient norm {norm}: update skipped")
        meter.add_value("optim/skipped", float(not taken))

    def evaluate(self, number: int) -> dict[str, float]:
        """avg@K and pass@k on the held-out problems with the present weights."""
        settings, clock = self.config.evaluation, Clock()
        limit = settings.max_response_tokens or self.config.rollout.max_response_tokens
        with clock.phase("evaluate"), self.interrupt.allowed():
            result = evaluate(
                self.parts.held_out,
                self.parts.renderer,
                self.parts.sampler,
                self.parts.scorer,
                settings.model_copy(update={"max_response_tokens": limit}),
                k=settings.k,
                seed=settings.seed,
            )
        result.write(self.records.folder / "evaluation" / f"step_{number:06d}.jsonl")
        return result.metrics() | clock.seconds

    def save(self) -> None:
        """Write a checkpoint of the last finished step, unless it is already there."""
        if self.saved_step == self.step_number:
            return
        state = TrainState(
            step=self.step_number,
            updates=self.updates,
            stream=self.stream_state,
            optimizer=self.optimizer.state_dict(),
            settings=settings_of(self.config),
            data=self.parts.data_fingerprint,
            template=self.parts.renderer.fingerprint(),
            recompute=self.recompute,
            pending=self.pending,
        )
        save_checkpoint(self.records.folder, self.policy, state, self.config.train.keep_checkpoints)
        self.saved_step = self.step_number

    def restore(self, state: TrainState) -> None:
        """Continue from a checkpoint whose weights are already loaded."""
        self.step_number, self.updates, self.saved_step = state.step, state.updates, state.step
        self.recompute = state.recompute
        self.pending = None if state.pending is None else dict(state.pending)
        self.optimizer.load_state_dict(dict(state.optimizer))
        self.parts.stream.restore(state.stream)
        self.stream_state = dict(state.stream)
        self.parts.sampler.sync(state.updates)


def _mix(seed: int, step: int, attempt: int) -> int:
    """One seed for each step and attempt."""
    return (seed * 1_000_003 + step) * 101 + attempt
