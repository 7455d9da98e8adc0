"""A model with a grader, as the difficulty filters of a data recipe use it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from archer import __version__
from archer.configs.data_recipe import SamplerConfig
from archer.configs.engine import EngineConfig
from archer.configs.policy import PolicyConfig
from archer.configs.rollout import SamplingConfig
from archer.data import fingerprint
from archer.evaluation.evaluate import sample_and_score
from archer.policy.tokenizer import PromptRenderer, load_tokenizer, model_place
from archer.rewards import Scorer, build_scorer
from archer.rollout.engines import build_sampler
from archer.rollout.sampler import Sampler
from archer.types import Problem

OnResponse = Callable[[], None]


class FilterModel:
    """A ``ScoredSampler`` for one difficulty stage; a context manager that ends the grader's processes.

    The engine starts with the first problem whose scores are not stored.

    Args:
        config: the stage's ``sampler`` block.
        on_response: called after each response.

    Raises:
        PolicyError: the tokenizer can't be loaded.
    """

    def __init__(self, config: SamplerConfig, on_response: OnResponse | None = None) -> None:
        self._config, self._on_response = config, on_response
        self._policy = PolicyConfig(model=config.model, revision=config.revision, gguf_file=config.gguf_file)
        self._renderer = PromptRenderer(load_tokenizer(self._policy), self._policy)
        self._started: tuple[Sampler, Scorer] | None = None

    @property
    def fingerprint(self) -> str:
        """See ``ScoredSampler``; of a local model the names, sizes and times of its files."""
        settings = self._config.model_dump(mode="json", exclude={"server", "vllm", "max_batch"})
        folder = Path(model_place(self._policy))
        files = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(folder.glob("*"))]
        content = [__version__, settings, self._renderer.fingerprint(), files]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]

    def sample_and_score(
        self, problems: Sequence[Problem], samples: int, seed: int
    ) -> list[list[float | None]]:
        """See ``ScoredSampler``. A prompt longer than ``max_prompt_tokens`` is not sampled: nothing can be said."""
        config = self._config
        rendered = [self._as_asked(problem) for problem in problems]
        fits = [len(self._renderer.ids(p.prompt)) <= config.max_prompt_tokens for p in rendered]
        sampler, scorer = self._start()
        groups = sample_and_score(
            [problem for problem, short in zip(rendered, fits, strict=True) if short],
            self._renderer,
            sampler,
            scorer,
            SamplingConfig(
                temperature=config.temperature, top_p=config.top_p, max_response_tokens=config.max_tokens
            ),
            n=samples,
            seed=seed,
            on_response=self._on_response,
        )
        found = iter(groups)
        return [[v.score for v in next(found).verdicts] if short else [None] * samples for short in fits]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._started is not None:
            self._started[1].close()

    def _start(self) -> tuple[Sampler, Scorer]:
        if self._started is None:
            config = self._config
            scorer = build_scorer(config.reward)
            engine = EngineConfig(**{name: getattr(config, name) for name in EngineConfig.model_fields})
            longest = config.max_prompt_tokens + config.max_tokens
            self._started = build_sampler(engine, self._policy, longest), scorer
        return self._started

    def _as_asked(self, problem: Problem) -> Problem:
        """With the template around its prompt; named by content, so that scores don't depend on ids."""
        name = fingerprint([replace(problem, id="", source="", meta={})])
        template, prompt = self._config.template, problem.prompt
        if template is not None and isinstance(prompt, str):
            prompt = template.replace("{prompt}", prompt)
        return replace(problem, id=name, prompt=prompt)
