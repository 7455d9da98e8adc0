"""vLLM in the trainer's process, as a ``Sampler``.

Token ids go in and come out; nothing is tokenised twice. The engine starts from the policy's configuration alone and
gets every weight from the trainer, at the start and after each step.
"""

import os
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerBase

from archer.configs.engine import EngineConfig, VllmConfig
from archer.configs.policy import PolicyConfig
from archer.configs.rollout import SamplingConfig
from archer.errors import EngineError, MissingDependencyError
from archer.policy.model import Policy
from archer.policy.tokenizer import model_place
from archer.rollout.sampler import OnFinish, SampleRequest, stream_seed
from archer.rollout.weights import checksum, compare, policy_weights
from archer.types import Rollout

PROBE = (1, 2, 3, 4, 5, 6, 2, 7)
"""A prompt of ids that every vocabulary has."""

PROBE_LIMIT, PROBE_LIMIT_HALF = 0.02, 0.5
"""Mean difference in nats on the probe above which the engine must hold other weights; float32 and half precision."""


class VllmSampler:
    """Samples with vLLM; see ``archer.rollout.sampler.Sampler``.

    Log-probabilities are those of the distribution that was sampled from: after the temperature, and after top-k and
    top-p where they are set. vLLM gives no entropies, so ``Rollout.entropy`` is empty. A response's seed depends on
    ``(seed, key, sample)`` alone; its tokens may still differ between batches where rounding does.

    Args:
        llm: a ``vllm.LLM`` that runs in this process.
        tokenizer: decodes responses.
        end_ids: ids that end a response.
        policy: where ``sync`` takes weights from; None for an engine that loaded its own.
    """

    def __init__(
        self, llm: Any, tokenizer: PreTrainedTokenizerBase, end_ids: Collection[int], policy: Policy | None
    ) -> None:
        self.policy_version = 0
        self.weights = ""
        self._llm, self._tokenizer, self._policy = llm, tokenizer, policy
        self._end_ids = frozenset(end_ids)
        self._requests = 0
        if policy is not None:
            self.sync(0)

    def sync(self, version: int) -> None:
        """See ``Sampler.sync``.

        Raises:
            EngineError: the engine has no policy, or does not hold the policy's weights afterwards.
        """
        if self._policy is None:
            raise EngineError(
                "this engine loaded its own weights; give build_sampler a Policy to train with it"
            )
        weights = policy_weights(self._policy)
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights.items())})
        self._llm.reset_prefix_cache()
        self._llm.apply_model(_repack)
        [(compared, different)] = self._llm.apply_model(lambda model: compare(model, weights))
        if different or not compared:
            raise EngineError(
                f"after pushing weights of version {version}, {len(different)} of {compared} parameters in vLLM differ "
                f"from the trainer's: {different[:3]}; expected at least one to compare and none to differ"
            )
        self._probe(version)
        self.policy_version, self.weights = version, checksum(weights)

    def sample(
        self,
        requests: Sequence[SampleRequest],
        config: SamplingConfig,
        *,
        seed: int,
        on_finish: OnFinish | None = None,
    ) -> list[list[Rollout]]:
        """See ``Sampler.sample``.

        Raises:
            EngineError: vLLM gave a response up.
        """
        engine = self._llm.llm_engine
        places: dict[str, tuple[int, int]] = {}
        for index, request in enumerate(requests):
            for number in range(request.n):
                name = f"archer-{self._requests}"
                self._requests += 1
                places[name] = index, number
                engine.add_request(
                    name,
                    {"prompt_token_ids": list(request.prompt_ids)},
                    self._parameters(config, stream_seed(seed, request.key, number)),
                )
        results: list[list[Rollout | None]] = [[None] * request.n for request in requests]
        try:
            while engine.has_unfinished_requests():
                for output in engine.step():
                    if not output.finished:
                        continue
                    index, number = places.pop(output.request_id)
                    rollout = self._rollout(requests[index], number, output.outputs[0])
                    results[index][number] = rollout
                    if on_finish is not None:
                        on_finish(index, rollout)
        finally:
            if places:
                engine.abort_request(list(places))
        return [[rollout for rollout in row if rollout is not None] for row in results]

    def _probe(self, version: int) -> None:
        """Compare log-probabilities of a few fixed tokens: what a kernel has packed shows nowhere else."""
        from vllm import SamplingParams

        assert self._policy is not None
        [output] = self._llm.generate(
            {"prompt_token_ids": list(PROBE)}, SamplingParams(max_tokens=1, prompt_logprobs=0), use_tqdm=False
        )
        with self._policy.evaluating():
            expected_BT, _ = self._policy.logps([(PROBE[:1], PROBE[1:])], 1.0)
        steps = zip(output.prompt_logprobs[1:], PROBE[1:], expected_BT[0].tolist(), strict=True)
        gap = sum(abs(step[token].logprob - value) for step, token, value in steps) / len(PROBE[1:])
        limit = PROBE_LIMIT if self._llm.model_config.dtype.itemsize >= 4 else PROBE_LIMIT_HALF
        if not gap <= limit:
            raise EngineError(
                f"after pushing weights of version {version}, log-probabilities in vLLM differ from the trainer's by "
                f"{gap:.3g} nats on average; expected at most {limit:g}"
            )

    def _parameters(self, config: SamplingConfig, seed: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            seed=seed,
            max_tokens=config.max_response_tokens,
            stop_token_ids=sorted(self._end_ids),
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _rollout(self, request: SampleRequest, number: int, output: Any) -> Rollout:
        if output.finish_reason not in ("stop", "length"):
            raise EngineError(
                f"vLLM ended response {number} of {request.key} with {output.finish_reason!r}; expected stop or length"
            )
        token_ids = tuple(output.token_ids)
        return Rollout(
            prompt_ids=request.prompt_ids,
            token_ids=token_ids,
            logp=tuple(step[token].logprob for step, token in zip(output.logprobs, token_ids, strict=True)),
            entropy=(),
            finish_reason=output.finish_reason,
            text=self._tokenizer.decode(token_ids, skip_special_tokens=True),
            key=request.key,
            sample=number,
            policy_version=self.policy_version,
            weights=self.weights,
        )


def _repack(model: nn.Module) -> None:
    """Rebuild what vLLM packs for a CPU from weights that it also keeps.

    A reload leaves the packed copy of an output head that is tied to the embedding as it was.
    """
    for module in model.modules():
        if hasattr(module, "cpu_linear") and module.weight.numel():  # type: ignore[operator]
            method: Any = module.quant_method
            method.process_weights_after_loading(module)


def start_vllm(config: EngineConfig, model: Policy | PolicyConfig, max_tokens: int) -> Any:
    """A ``vllm.LLM`` in this process.

    Args:
        config: its settings.
        model: a policy, whose weights are pushed later, or a model that vLLM loads by itself.
        max_tokens: longest prompt and response together.

    Raises:
        MissingDependencyError: vLLM is not installed.
        EngineError: vLLM can't start, with its own reason.
    """
    # vLLM reads these on import. A process of its own would need every pushed weight copied to it.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    try:
        from vllm import LLM
    except ImportError as error:
        raise MissingDependencyError(
            f"rollout.engine: vllm needs vLLM (pip install 'archer-rl[vllm]'; docs/VLLM.md for a CPU): {error}"
        ) from error
    settings = config.vllm or VllmConfig()
    with tempfile.TemporaryDirectory() as folder:
        try:
            return LLM(**_options(settings, config.max_batch, model, max_tokens, Path(folder)))
        except (ValueError, RuntimeError, NotImplementedError, AssertionError) as error:
            raise EngineError(f"rollout.engine: vLLM can't start: {error}") from error


def _options(
    settings: VllmConfig, max_batch: int, model: Policy | PolicyConfig, max_tokens: int, folder: Path
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "dtype": settings.dtype,
        "gpu_memory_utilization": settings.memory_share,
        "enforce_eager": settings.eager,
        "max_model_len": settings.max_tokens or max_tokens,
        "max_num_seqs": max_batch,
        "logprobs_mode": "processed_logprobs",
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
    }
    if settings.cache_gb is not None:
        options["kv_cache_memory_bytes"] = int(settings.cache_gb * 2**30)
    if isinstance(model, Policy):
        model.causal_lm.config.save_pretrained(folder)
        options |= {"model": str(folder), "load_format": "dummy", "generation_config": "vllm"}
        if settings.dtype == "auto":
            options["dtype"] = str(model.causal_lm.dtype).removeprefix("torch.")
    else:
        options |= {"model": model_place(model), "revision": model.revision}
    return options
