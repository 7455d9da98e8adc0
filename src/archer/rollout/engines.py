"""The one place that turns a configuration into a sampling engine."""

from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerBase

from archer.configs.engine import EngineConfig, ServerConfig
from archer.configs.policy import PolicyConfig
from archer.policy.model import Policy
from archer.policy.tokenizer import load_tokenizer, model_place
from archer.rollout.local import LocalSampler
from archer.rollout.sampler import Sampler
from archer.rollout.server import ServerSampler
from archer.rollout.vllm import VllmSampler, start_vllm


def build_sampler(config: EngineConfig, model: Policy | PolicyConfig, max_tokens: int) -> Sampler:
    """A sampler for ``config.engine``.

    Args:
        config: the engine; a ``RolloutConfig`` is one.
        model: a ``Policy`` that is trained, whose weights the engine takes on ``sync``; or, to evaluate or filter,
            the model's configuration: vLLM then loads it by itself, and a server only needs its tokenizer here.
        max_tokens: longest prompt and response together.

    Raises:
        MissingDependencyError: vLLM is not installed.
        EngineError: the engine can't start, or the server can't be reached.
        PolicyError: the model or tokenizer can't be loaded.
    """
    if config.engine == "server":
        model_config = model.config if isinstance(model, Policy) else model
        tokenizer = load_tokenizer(model_config)
        server = config.server or ServerConfig()
        return ServerSampler(
            server,
            server.model or model_config.model,
            tokenizer,
            _end_ids(model_config, tokenizer),
            config.max_batch,
        )
    if isinstance(model, PolicyConfig) and (config.engine == "local" or model.gguf_file is not None):
        model = Policy(model)
    if config.engine == "local":
        assert isinstance(model, Policy)
        return LocalSampler(model, config.max_batch)
    llm = start_vllm(config, model, max_tokens)
    if isinstance(model, Policy):
        return VllmSampler(llm, model.tokenizer, model.eos_ids, model)
    tokenizer = load_tokenizer(model)
    return VllmSampler(llm, tokenizer, _end_ids(model, tokenizer), None)


def _end_ids(config: PolicyConfig, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """All end ids that the model's files name; chat models often have two."""
    place, options = model_place(config), {} if config.revision is None else {"revision": config.revision}
    named = [tokenizer.eos_token_id]
    for source in (AutoConfig, GenerationConfig):
        try:
            named.append(getattr(source.from_pretrained(place, **options), "eos_token_id", None))
        except (OSError, ValueError):
            continue
    ids: set[int] = set()
    for item in named:
        ids.update(item if isinstance(item, list) else [] if item is None else [item])
    return frozenset(ids)
