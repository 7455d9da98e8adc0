"""Which engine samples, and how it is set up."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from archer.configs.base import Config

Engine = Literal["local", "vllm", "server"]


class VllmConfig(Config):
    """An in-process vLLM engine.

    Attributes:
        dtype: of the engine's weights; ``auto`` is the policy's own.
        memory_share: share of the GPU's memory (on a CPU: of the main memory) that the engine may use. In training
            the rest is left to the trainer.
        cache_gb: size of its key-value cache in GiB, instead of what is left of ``memory_share``.
        eager: run without compiling and without CUDA graphs: starts sooner, samples more slowly.
        max_tokens: longest sequence; null is what the run needs.
    """

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    memory_share: Annotated[float, Field(gt=0, le=1)] = 0.4
    cache_gb: PositiveFloat | None = None
    eager: bool = False
    max_tokens: PositiveInt | None = None


class ServerConfig(Config):
    """A server with the OpenAI completions protocol that takes and gives token ids, as ``vllm serve`` does.

    Attributes:
        base_url: up to and with ``/v1``.
        model: the name under which the server serves it; null is the policy's ``model``.
        api_key_env: environment variable with the key; empty where none is needed.
        timeout: seconds that one response may take.
        retries: how often a response is asked for again after a lost connection, a time-out, or a status of
            408, 429 or 5xx.
        retry_wait: seconds before the first retry; doubled each time.
    """

    base_url: Annotated[str, Field(pattern=r"^https?://")] = "http://localhost:8000/v1"
    model: str | None = None
    api_key_env: str = ""
    timeout: PositiveFloat = 600.0
    retries: Annotated[int, Field(ge=0)] = 4
    retry_wait: Annotated[float, Field(ge=0)] = 1.0


class EngineConfig(Config):
    """The sampling engine.

    Attributes:
        engine: ``local`` samples with the policy's own module; ``vllm`` with vLLM in this process; ``server`` asks a
            server, whose weights can't be changed from here, so it evaluates and filters but doesn't train.
        max_batch: sequences decoded, or asked for, at once.
        vllm: settings of ``engine: vllm``.
        server: settings of ``engine: server``.
    """

    engine: Engine = "local"
    max_batch: PositiveInt = 64
    vllm: VllmConfig | None = None
    server: ServerConfig | None = None

    @model_validator(mode="after")
    def _settings_belong_to_the_engine(self) -> Self:
        for name in ("vllm", "server"):
            if getattr(self, name) is not None and self.engine != name:
                raise ValueError(f"{name}: belongs to engine: {name}; got engine: {self.engine}")
        return self
