"""A server with the OpenAI completions protocol, as a ``Sampler``.

Prompts go as token ids. The server must give the sampled ids back (``return_token_ids``, as vLLM does); text is never
encoded again.
"""

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from transformers import PreTrainedTokenizerBase

from archer.configs.engine import ServerConfig
from archer.configs.rollout import SamplingConfig
from archer.errors import ConfigError, EngineError
from archer.rollout.sampler import OnFinish, SampleRequest, stream_seed
from archer.types import Rollout

RETRIED = frozenset({408, 429, 500, 502, 503, 504})
"""Status codes that may be gone the next time."""


class ServerSampler:
    """Samples from a server; see ``archer.rollout.sampler.Sampler``.

    One request a response, each with its own seed. ``Rollout.logp`` is as the server gives it (the raw distribution
    unless it was started with ``--logprobs-mode processed_logprobs``), ``entropy`` is empty, and the weights' version
    is unknown: ``policy_version`` stays 0.

    Args:
        config: the server.
        model: the name under which it serves the model.
        tokenizer: decodes responses; must be the served model's.
        end_ids: ids that end a response.
        max_batch: requests in flight.

    Raises:
        ConfigError: the environment variable with the key is not set.
        EngineError: the server can't be reached or does not serve the model.
    """

    def __init__(
        self,
        config: ServerConfig,
        model: str,
        tokenizer: PreTrainedTokenizerBase,
        end_ids: Collection[int],
        max_batch: int,
    ) -> None:
        self.policy_version = 0
        self._config, self._model, self._tokenizer = config, model, tokenizer
        self._end_ids, self._max_batch = sorted(end_ids), max_batch
        self._headers = {"Content-Type": "application/json", **_key_header(config.api_key_env)}
        served = [entry["id"] for entry in self._call("models", None)["data"]]
        if model not in served:
            raise EngineError(
                f"{config.base_url} serves {', '.join(served)}; expected {model} (set rollout.server.model)"
            )

    def sync(self, version: int) -> None:
        """Always refused.

        Raises:
            EngineError: a server's weights can't be changed from here.
        """
        raise EngineError(
            f"{self._config.base_url}: weights of version {version} can't be pushed to a server; train with "
            "rollout.engine: local or vllm"
        )

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
            EngineError: a request failed after all retries, or an answer lacks token ids or log-probabilities.
        """
        results: list[list[Rollout | None]] = [[None] * request.n for request in requests]
        with ThreadPoolExecutor(self._max_batch) as pool:
            futures = {
                pool.submit(self._one, request, number, config, seed): index
                for index, request in enumerate(requests)
                for number in range(request.n)
            }
            try:
                for future in as_completed(futures):
                    index, rollout = futures[future], future.result()
                    results[index][rollout.sample] = rollout
                    if on_finish is not None:
                        on_finish(index, rollout)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return [[rollout for rollout in row if rollout is not None] for row in results]

    def _one(self, request: SampleRequest, number: int, config: SamplingConfig, seed: int) -> Rollout:
        body = {
            "model": self._model,
            "prompt": list(request.prompt_ids),
            "n": 1,
            "temperature": config.temperature,
            "top_p": config.top_p,
            **({"top_k": config.top_k} if config.top_k else {}),
            "max_tokens": config.max_response_tokens,
            "seed": stream_seed(seed, request.key, number),
            "logprobs": 0,
            "stop_token_ids": self._end_ids,
            "return_token_ids": True,
        }
        answer = self._call("completions", body)
        try:
            choice = answer["choices"][0]
            token_ids, reason = choice["token_ids"], choice["finish_reason"]
            logp = choice["logprobs"]["token_logprobs"]
        except (KeyError, IndexError, TypeError) as error:
            raise EngineError(
                f"{self._config.base_url}: expected choices with token_ids, logprobs and finish_reason, found no "
                f"{error} in {str(answer)[:200]}; vLLM 0.11 or later gives them"
            ) from error
        if reason not in ("stop", "length") or token_ids is None or len(token_ids) != len(logp):
            raise EngineError(
                f"{self._config.base_url}: response {number} of {request.key}: expected an end by stop or length and "
                f"as many log-probabilities as ids, found {reason!r}, {token_ids and len(token_ids)} and {len(logp)}"
            )
        return Rollout(
            prompt_ids=request.prompt_ids,
            token_ids=tuple(token_ids),
            logp=tuple(logp),
            entropy=(),
            finish_reason=reason,
            text=self._tokenizer.decode(token_ids, skip_special_tokens=True),
            key=request.key,
            sample=number,
        )

    def _call(self, path: str, body: Mapping[str, Any] | None) -> Any:
        """POST ``body``, or GET without one, with retries."""
        url = f"{self._config.base_url.rstrip('/')}/{path}"
        data = None if body is None else json.dumps(body).encode()
        for attempt in range(self._config.retries + 1):
            if attempt:
                time.sleep(self._config.retry_wait * 2 ** (attempt - 1))
            try:
                request = urllib.request.Request(url, data, self._headers)
                with urllib.request.urlopen(request, timeout=self._config.timeout) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                problem = f"status {error.code}: {error.read(300).decode(errors='replace')}"
                if error.code not in RETRIED:
                    raise EngineError(f"{url}: {problem}") from error
            except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
                problem = f"{type(error).__name__}: {error}"
        raise EngineError(f"{url}: no answer in {self._config.retries + 1} attempts; the last: {problem}")


def _key_header(variable: str) -> dict[str, str]:
    if not variable:
        return {}
    if variable not in os.environ:
        raise ConfigError(f"rollout.server.api_key_env: the environment variable {variable} is not set")
    return {"Authorization": f"Bearer {os.environ[variable]}"}
