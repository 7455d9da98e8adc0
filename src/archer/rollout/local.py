"""The local engine: samples from the policy being trained, in the same process.

Sequences are decoded side by side; finished ones leave the batch and waiting ones enter. The prompt of a group
is computed and held once. Log-probabilities and entropies of the sampled tokens are recorded on the way, so training
needs no second pass for them.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from archer.configs.rollout import SamplingConfig
from archer.policy.model import Policy
from archer.policy.prepacked import prepacked
from archer.rollout.cache import KVCache, Prefill, Prompt, Step
from archer.rollout.distribution import draw
from archer.rollout.sampler import OnFinish, SampleRequest, stream_seed
from archer.types import Rollout


@dataclass(slots=True)
class _Sequence:
    """One response in the making."""

    request: int
    sample: int
    key: str
    prompt: int
    prompt_ids: tuple[int, ...]
    uniforms: list[float]
    token_ids: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)


class LocalSampler:
    """Samples with the policy's own weights; see ``archer.rollout.sampler.Sampler``."""

    def __init__(self, policy: Policy, max_batch: int) -> None:
        self.policy = policy
        self.max_batch = max_batch
        self.policy_version = 0

    def sync(self, version: int) -> None:
        """See ``Sampler.sync``: the weights are the policy's own."""
        self.policy_version = version

    def sample(
        self,
        requests: Sequence[SampleRequest],
        config: SamplingConfig,
        *,
        seed: int,
        on_finish: OnFinish | None = None,
    ) -> list[list[Rollout]]:
        """See ``Sampler.sample``."""
        numbers = _numbers([request.prompt_ids for request in requests])
        waiting = deque(
            _Sequence(i, s, r.key, numbers[i], r.prompt_ids, _uniforms(seed, r.key, s, config))
            for i, r in enumerate(requests)
            for s in range(r.n)
        )
        results: list[list[Rollout | None]] = [[None] * request.n for request in requests]
        rows = min(self.max_batch, len(waiting))
        cache = KVCache(
            rows=rows,
            capacity=config.max_response_tokens,
            slots=min(rows, len(set(numbers))),
            prompt_capacity=max((len(r.prompt_ids) for r in requests), default=0),
        )
        active: list[_Sequence] = []
        with self.policy.evaluating(), prepacked(self.policy.causal_lm):
            while waiting or active:
                # Entering in small lots would compute short prompts one by one.
                if waiting and len(active) <= cache.rows - max(1, cache.rows // 8):
                    entering = [waiting.popleft() for _ in range(min(cache.rows - len(active), len(waiting)))]
                    cache.release({sequence.prompt for sequence in active + entering})
                    self._advance(entering, self._prefill(entering, cache), config)
                    active += entering
                else:
                    cache.release({sequence.prompt for sequence in active})
                    self._advance(active, self._step(active, cache), config)
                active = self._retire(active, cache, config, results, on_finish)
        return [[rollout for rollout in row if rollout is not None] for row in results]

    def _prefill(self, entering: Sequence[_Sequence], cache: KVCache) -> Tensor:
        """Hidden states ``[len(entering), D]`` after each prompt; a prompt that is in the cache is not computed."""
        if not self.policy.packed:
            return self._uncached(entering)
        held = {prompt.number for prompt in cache.prompts}
        new = {s.prompt: s.prompt_ids for s in entering if s.prompt not in held}
        if new:
            device, width = self.policy.device, max(map(len, new.values()))
            ids = torch.tensor([p + (0,) * (width - len(p)) for p in new.values()], device=device)
            positions = torch.arange(width, device=device).expand_as(ids)
            prefill = Prefill(cache, len(cache.prompts))
            hidden = self.policy.hidden(self.policy.causal_lm, ids, positions, prefill)
            cache.prompts += [
                Prompt(number, len(p), hidden[i, len(p) - 1].clone())
                for i, (number, p) in enumerate(new.items())
            ]
        last = {prompt.number: prompt.hidden_D for prompt in cache.prompts}
        return torch.stack([last[sequence.prompt] for sequence in entering])

    def _step(self, active: Sequence[_Sequence], cache: KVCache) -> Tensor:
        """Hidden states ``[len(active), D]`` after each sequence's newest token."""
        if not self.policy.packed:
            return self._uncached(active)
        slot = {prompt.number: i for i, prompt in enumerate(cache.prompts)}
        step = Step(
            cache,
            [slot[sequence.prompt] for sequence in active],
            [len(sequence.token_ids) - 1 for sequence in active],
            self.policy.device,
        )
        ids = torch.tensor([[sequence.token_ids[-1]] for sequence in active], device=self.policy.device)
        return self.policy.hidden(self.policy.causal_lm, ids, step.position_R[:, None], step)[:, 0]

    def _uncached(self, sequences: Sequence[_Sequence]) -> Tensor:
        """For models whose attention can't be replaced: compute the whole sequence anew for each token."""
        return self.policy.last_hidden([s.prompt_ids + tuple(s.token_ids) for s in sequences])

    def _advance(self, sequences: Sequence[_Sequence], hidden_BD: Tensor, config: SamplingConfig) -> None:
        logits_BV = self.policy.logits(hidden_BD, config.temperature or 1.0)
        uniform_B = torch.tensor(
            [s.uniforms[len(s.token_ids)] for s in sequences], dtype=torch.float64, device=logits_BV.device
        )
        drawn = zip(*(x.tolist() for x in draw(logits_BV, uniform_B, config)), strict=True)
        for sequence, (token, logp, entropy) in zip(sequences, drawn, strict=True):
            sequence.token_ids.append(token)
            sequence.logp.append(logp)
            sequence.entropy.append(entropy)

    def _retire(
        self,
        active: list[_Sequence],
        cache: KVCache,
        config: SamplingConfig,
        results: list[list[Rollout | None]],
        on_finish: OnFinish | None,
    ) -> list[_Sequence]:
        """Hand out finished responses and close the gaps that they leave in the cache."""
        row = 0
        while row < len(active):
            sequence = active[row]
            stopped = sequence.token_ids[-1] in self.policy.eos_ids
            if not stopped and len(sequence.token_ids) < config.max_response_tokens:
                row += 1
                continue
            rollout = self._rollout(sequence, stopped)
            results[sequence.request][sequence.sample] = rollout
            if on_finish is not None:
                on_finish(sequence.request, rollout)
            last = active.pop()
            if row < len(active):
                active[row] = last
                cache.move(len(active), row, len(last.token_ids))
        return active

    def _rollout(self, sequence: _Sequence, stopped: bool) -> Rollout:
        return Rollout(
            prompt_ids=sequence.prompt_ids,
            token_ids=tuple(sequence.token_ids),
            logp=tuple(sequence.logp),
            entropy=tuple(sequence.entropy),
            finish_reason="stop" if stopped else "length",
            text=self.policy.tokenizer.decode(sequence.token_ids, skip_special_tokens=True),
            key=sequence.key,
            sample=sequence.sample,
            policy_version=self.policy_version,
        )


def _numbers(prompts: Sequence[tuple[int, ...]]) -> list[int]:
    """One number for each distinct prompt."""
    first = {prompt: number for number, prompt in reversed(list(enumerate(prompts)))}
    return [first[prompt] for prompt in prompts]


def _uniforms(seed: int, key: str, sample: int, config: SamplingConfig) -> list[float]:
    """The response's whole random stream, one number a token."""
    if config.temperature == 0:
        return [0.0] * config.max_response_tokens
    generator = torch.Generator().manual_seed(stream_seed(seed, key, sample))
    numbers: list[float] = torch.rand(
        config.max_response_tokens, dtype=torch.float64, generator=generator
    ).tolist()
    return numbers
