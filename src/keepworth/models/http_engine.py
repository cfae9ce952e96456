"""vLLM behind HTTP as an engine: samples and scores by token ids, weights published with proof.

What is required of the server and absent is an error at `connect`. The server's tokenizer stays out of the way: only ids travel.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from keepworth.episodes import extras
from keepworth.episodes.errors import UnknownName
from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens
from keepworth.models.errors import (
    BadAnswer,
    ContextOverflow,
    EngineError,
    MissingCapability,
)
from keepworth.models.http_client import JsonClient, Retries, Timeouts, address_of
from keepworth.models.http_wire import (
    ROUTE,
    derive_seed,
    samples_in,
    sampling_body,
    scores_in,
    scoring_body,
)
from keepworth.models.publication import Publishing, mean_gap
from keepworth.models.text_side import HasText, TextSide

_ADAPTER = "adapter-of-a-probe"
# That a route exists says little: vLLM registers its adapter routes and its weight transfer by switches of their own and refuses
# when they are called. So a capability is what a call proved that changes nothing there.
_CAPABILITIES = ("adapters",)


@dataclass(frozen=True, slots=True)
class Card:
    """What `/v1/models` says of the served base model."""

    name: str
    owner: str
    context_limit: int


class HttpModel(Publishing, HasText):
    """An engine behind a URL; fulfils `keepworth.episodes.Model`. Made by `connect`. Safe to use from several threads.

    Samples are drawn under the weights in service when `sample` is called, whatever is published meanwhile.
    """

    def __init__(
        self, client: JsonClient, card: Card, tokenizer: Any, run: str, max_staleness: int, tolerance: float
    ) -> None:
        self._card = card
        self._text = TextSide(tokenizer, card.name, context_limit=card.context_limit)
        super().__init__(client, card.name, run, max_staleness, tolerance)
        self._pool = ThreadPoolExecutor(client.connections, thread_name_prefix="http-model")
        self._proven: set[str] = set()
        answer = client.try_call("GET", "/version").answer
        version = answer.get("version", "") if isinstance(answer, dict) else ""
        self.software = f"{card.owner} {version}".strip()
        """What serves the model, and its version as far as it says: `vllm 0.33.0`."""

    @classmethod
    def connect(
        cls,
        url: str,
        tokenizer: Any,
        *,
        model: str = "",
        require: Iterable[str] = (),
        run: str = "",
        max_staleness: int = 0,
        probe_tolerance: float = 0.1,
        api_key: str | None = None,
        concurrency: int = 64,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
    ) -> HttpModel:
        """Connect to vLLM, and check that it gives back the ids and the log-probabilities that it drew.

        Args:
            url: Of the server.
            tokenizer: The model's, or its folder.
            model: The served name, needed where a server serves several.
            require: "adapters", where the caller will publish.
            run: First part of adapter names (`run@version`); by default one that no earlier run can have used.
            max_staleness: How many versions behind the newest may still be sampled from; that many and one stay loaded.
            probe_tolerance: Nats by which both sides may differ, in the mean over the probe's tokens.
            api_key: Sent as a bearer token.
            concurrency: Requests at once.
            timeouts: Of calls.
            retries: Of calls that may be repeated.

        Raises:
            EngineError: EngineUnreachable, MissingCapability, BadAnswer and what the calls of `JsonClient` raise.
        """
        if isinstance(tokenizer, (str, Path)):
            extras.require("llm", "The tokenizer of an engine behind HTTP", "transformers")
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        client = JsonClient(url, api_key, timeouts or Timeouts(), retries or Retries(), concurrency)
        card = _card_of(client, model)
        route = client.try_call("POST", ROUTE, {})
        if route.status in (403, 404, 405):
            raise MissingCapability(
                f"The engine at {client.url} does not serve {ROUTE}. It says: {route.detail}",
                "vLLM from 0.32 on: start it with --enable-scale-out.",
            )
        name = run or f"run-{secrets.token_hex(4)}"
        engine = cls(client, card, tokenizer, name, max_staleness, probe_tolerance)
        try:
            engine._check_tokenizer()
            engine._check_tokens()
            engine.require(*require)
        except BaseException:
            engine.close()
            raise
        return engine

    def close(self) -> None:
        self._unloader.shutdown(wait=False)
        self._pool.shutdown()
        self._client.close()

    def __enter__(self) -> HttpModel:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"HttpModel({self.url!r}, {self.name!r}, version={self.version})"

    @property
    def url(self) -> str:
        return self._client.url

    @property
    def name(self) -> str:
        return self._card.name

    @property
    def context_limit(self) -> int:
        return self._card.context_limit

    def require(self, *capabilities: str) -> None:
        for name in capabilities:
            if name in self._proven:
                continue
            if name not in _CAPABILITIES:
                raise UnknownName("engine capability", name, _CAPABILITIES)
            missing = {"lora_name": _ADAPTER, "lora_path": f"/nonexistent/{_ADAPTER}"}
            said = self._client.try_call("POST", "/v1/load_lora_adapter", missing)
            # Loading what is not there fails as not found where adapters are on, and otherwise where they are not.
            if not said.ok and (said.status not in (400, 404) or _ADAPTER not in said.detail):
                raise MissingCapability(
                    f"The engine at {self.url} cannot do {name!r}. It says: {said.detail}",
                    "vLLM: start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.",
                )
            self._proven.add(name)

    # -- sampling and scoring ---------------------------------------------------------------------------------------

    def sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        if params.max_tokens < 1 or params.n < 1 or params.temperature < 0:
            raise ValueError(
                f"max_tokens and n must be at least 1 and temperature at least 0, not {params.max_tokens}, "
                f"{params.n} and {params.temperature}"
            )
        for index, prompt in enumerate(prompts):
            self._check_length(index, prompt, params.max_tokens)
        if params.temperature not in (0.0, 1.0):
            self._check_temperature()
        return self._sample(prompts, params)

    def _sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        serving = self._serving
        bodies = [
            sampling_body(serving.name, prompt, params, derive_seed(params.seed, index))
            for index, prompt in enumerate(prompts)
        ]
        return [
            samples_in(answer, prompt, params, serving.version)
            for answer, prompt in zip(self._answers(bodies, idempotent=False), prompts, strict=True)
        ]

    def score(
        self, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]:
        if temperature != 1.0:
            raise MissingCapability(
                f"The engine at {self.url} scores prompts at temperature 1 only, not at {temperature}.",
                "Score at temperature 1, or with the in-process model.",
            )
        return self._score_under(self._serving.name, prompts, branches)

    def _score_under(
        self, name: str, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]]
    ) -> list[list[tuple[float, ...]]]:
        pairs = [(prompt, branch) for prompt, row in zip(prompts, branches, strict=True) for branch in row]
        for index, (prompt, branch) in enumerate(pairs):
            self._check_length(index, prompt, len(branch))
        bodies = [scoring_body(name, prompt, branch) for prompt, branch in pairs if branch]
        answers = iter(self._answers(bodies, idempotent=True))
        scores = iter([scores_in(next(answers), prompt, branch) if branch else () for prompt, branch in pairs])
        return [[next(scores) for _ in row] for row in branches]

    def _answers(self, bodies: Sequence[dict[str, Any]], *, idempotent: bool) -> list[Any]:
        if len(bodies) == 1:
            return [self._answer(bodies[0], idempotent)]
        return list(self._pool.map(lambda body: self._answer(body, idempotent), bodies))

    def _answer(self, body: dict[str, Any], idempotent: bool) -> Any:
        return self._client.post(ROUTE, {**body, "request_id": uuid.uuid4().hex}, idempotent=idempotent)

    @property
    def probe(self) -> tuple[Tokens, Tokens]:
        ids = self.encode('In 1905 the harbour of Oslo froze; Ana moved her 3 boats south, and wrote: "we\'ll return."')
        ids = ids[: self.context_limit - 1]
        return ids[:8], ids[8:]

    # -- what must hold before anything is trained on ---------------------------------------------------------------

    def _check_length(self, index: int, prompt: Tokens, growth: int) -> None:
        if not prompt:
            raise ValueError(f"prompt {index} is empty: there is nothing to continue")
        if len(prompt) + growth > self.context_limit:
            raise ContextOverflow(
                f"Prompt {index} has {len(prompt)} tokens and may grow by {growth}, past the {self.context_limit} that "
                f"{self.name} reads.",
                "Show fewer or shorter memories.",
            )

    def _check_tokenizer(self) -> None:
        text = "Ana's café: 12 naïve questions?\n\tyes"
        body = {"model": self.name, "prompt": text, "add_special_tokens": False}
        theirs = (self._client.post("/tokenize", body, idempotent=True) or {}).get("tokens")
        if theirs is None or tuple(theirs) != self.encode_continuation(text):
            raise EngineError(
                f"The tokenizer handed over and that of {self.name} at {self.url} make different ids of one text.",
                "Hand over the tokenizer of the model that is served.",
            )

    def _check_tokens(self) -> None:
        """Both ways to a log-probability agree on a few drawn tokens."""
        prompt, _ = self.probe
        params = SamplingParams(max_tokens=min(8, self.context_limit - len(prompt) - 1))
        ((drawn,),) = self._sample([prompt], params)
        if drawn.finish is FinishReason.ABORTED:
            raise BadAnswer(f"{self.url} ended the first request itself.", "Is the engine paused or shutting down?")
        ((scored,),) = self._score_under(self.name, [prompt], [[drawn.ids]])
        gap = mean_gap(scored, drawn.logprobs)
        if gap > 4 * self._tolerance:  # few tokens, two kernels
            raise BadAnswer(
                f"{self.url} gives other log-probabilities to tokens when it draws them than when it scores them: "
                f"{gap:.3g} nats apart in the mean.",
                "Something reshapes its distribution: start it without sampling defaults, penalties and quantised caches.",
            )

    def _check_temperature(self) -> None:
        """Log-probabilities must be those of the distribution that is drawn from, also once the temperature is not 1."""
        if "temperature" in self._proven:
            return
        prompt, _ = self.probe
        ((drawn,),) = self._sample([prompt], SamplingParams(max_tokens=16, temperature=0.5))
        ((raw,),) = self._score_under(self._serving.name, [prompt], [[drawn.ids]])
        if mean_gap(drawn.logprobs, raw) <= 2 * self._tolerance:
            raise MissingCapability(
                f"The engine at {self.url} returns log-probabilities from before the temperature, which did not draw the tokens.",
                "vLLM: start it with --logprobs-mode processed_logprobs. Or sample at temperature 1.",
            )
        self._proven.add("temperature")


def require_alike(engines: Sequence[HttpModel]) -> None:
    """Raises EngineError, naming both, where two of them are one, or where they do not serve the same model alike."""
    for first, second in combinations(engines, 2):
        if address_of(first.url) == address_of(second.url):
            raise EngineError(f"{first.url} and {second.url} are one engine.", "Name each engine once.")
        for what, a, b in (
            ("serves", repr(first.name), repr(second.name)),
            ("reads a number of tokens,", first.context_limit, second.context_limit),
        ):
            if a != b:
                raise EngineError(
                    f"{first.url} {what} {a} and {second.url} {what} {b}.",
                    "Engines that one run samples at serve one model under one name with one limit.",
                )


def _card_of(client: JsonClient, model: str) -> Card:
    bases = [card for card in (client.get("/v1/models") or {}).get("data") or [] if not card.get("parent")]
    named = [card for card in bases if card.get("id") == model] if model else bases
    if model and not named:
        raise UnknownName("model", model, [str(card.get("id")) for card in bases], client.url)
    if len(named) != 1:
        names = ", ".join(str(card.get("id")) for card in bases) or "none"
        raise EngineError(f"{client.url} serves several models, or none: {names}.", "Name one of them as model.")
    limit = named[0].get("max_model_len")
    if not isinstance(limit, int):
        raise BadAnswer(f"{client.url}/v1/models does not say max_model_len of {named[0].get('id')}.")
    return Card(str(named[0]["id"]), str(named[0].get("owned_by", "")), limit)
