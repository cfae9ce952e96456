"""vLLM behind HTTP as an engine: samples and scores by token ids, and publishes weights with proof.

A required feature that the server lacks is an error at `connect`. The server's tokenizer is not used: only ids are sent.

Adapters that never reach the sampler look like slowly growing staleness and nothing else: no error, no odd number. So a
publication counts only when

1. the engine lists the new name,
2. both sides give a fixed probe sequence the same log-probabilities, within the tolerance on their mean gap, and
3. the engine's log-probabilities moved about as much as ours did. An update smaller than the tolerance would pass the second test
without having arrived; it does not pass this one. Updates smaller than the noise between both sides are added up until they are
larger."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx

from keepworth.base import extras
from keepworth.base.errors import UnknownName
from keepworth.base.http_client import JsonClient
from keepworth.base.model_errors import (
    BadAnswer,
    DeliveryFailed,
    EngineError,
    EngineRefused,
    MissingCapability,
    NothingDelivered,
)
from keepworth.models.http_wire import ROUTE, derive_seed, samples_in, sampling_body, scores_in, scoring_body
from keepworth.models.text_side import TextSide
from keepworth.records.model import FinishReason, Receipt, Sample, SamplingParams, Scorer, Tokens

Scores = tuple[float, ...]
_LOOK_AT_THE_SERVER = (
    "Look at the server's log; can it read the folder, and is it one server and not a balancer in front of several?"
)
_ADAPTER = "adapter-of-a-probe"


@dataclass(frozen=True, slots=True)
class Serving:
    """What new samples are drawn with: an adapter's name and version, or the served model's and 0."""

    name: str
    version: int


class HttpModel(TextSide):
    """An engine behind a URL that implements `keepworth.records.Model`. Made by `connect`. Thread-safe. Samples are drawn under
    the weights in service when `sample` is called, whatever is published meanwhile. Adapters are published under names of one
    run, `run@version`; the newest `max_staleness + 1` of them stay loaded, and no name is used twice."""

    def __init__(
        self, client: JsonClient, card: dict[str, Any], tokenizer: Any, run: str, max_staleness: int, tolerance: float
    ) -> None:
        if max_staleness < 0 or not tolerance > 0:
            raise ValueError(
                f"max_staleness must be at least 0 and probe_tolerance positive, not {max_staleness} and {tolerance}"
            )
        if "@" in run or "/" in run:
            raise ValueError(f"a run's name must not hold @ or /, which {run!r} does")
        super().__init__(tokenizer, str(card["id"]), context_limit=card["max_model_len"])
        self._client, self._run = client, run
        self.versions_kept = max_staleness + 1
        """How many published adapters stay loaded."""
        self._tolerance = tolerance
        self._serving = Serving(self.name, 0)
        self._loaded: list[str] = []
        self._noise = 0.0
        self._before: tuple[Scores, Scores] | None = None  # the witness's and the engine's, at the last proof
        self._unloader = ThreadPoolExecutor(1, thread_name_prefix="unload")
        self._unloading: Future[None] | None = None
        self._pool = ThreadPoolExecutor(client.connections, thread_name_prefix="http-model")
        self._proven: set[str] = set()
        version = ""
        with suppress(EngineRefused, BadAnswer):
            version = (client.get("/version") or {}).get("version", "")
        self.software = f"{card.get('owned_by', '')} {version}".strip()
        """The server's software, with its version where it reports one: `vllm 0.33.0`."""

    @classmethod
    def connect(
        cls,
        url: str,
        tokenizer: Any,
        *,
        model: str = "",
        adapters: bool = False,
        run: str = "",
        max_staleness: int = 0,
        probe_tolerance: float = 0.1,
        api_key: str | None = None,
        concurrency: int = 64,
        seconds: float = 600.0,
    ) -> HttpModel:
        """Connects to vLLM, and checks that it returns the ids and the log-probabilities that it drew.

        Args:
            url: The server's URL.
            tokenizer: The model's, or its folder.
            model: The served name, needed where a server serves several.
            adapters: Whether the caller will publish.
            run: First part of adapter names (`run@version`); by default one that no earlier run can have used.
            max_staleness: How many versions behind the newest may still be sampled from; one more stays loaded.
            probe_tolerance: Nats by which both sides may differ, in the mean over the probe's tokens.
            api_key: Sent as a bearer token.
            concurrency: Requests at once.
            seconds: The longest that a call may take.

        Raises:
            EngineError: EngineUnreachable, MissingCapability, BadAnswer and what the calls of `JsonClient` raise.
        """
        if isinstance(tokenizer, (str, Path)):
            extras.require("llm", "The tokenizer of an engine behind HTTP", "transformers")
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        client = JsonClient(url, api_key, seconds, connections=concurrency)
        card = _card_of(client, model)
        try:
            client.post(ROUTE, {})
        except EngineRefused as refusal:  # of a call without a prompt, where the route is there
            if refusal.status in (403, 404, 405):
                raise MissingCapability(
                    f"The engine at {client.url} does not serve {ROUTE}. It says: {refusal.detail}",
                    "vLLM from 0.32 on: start it with --enable-scale-out.",
                ) from refusal
        name = run or f"run-{secrets.token_hex(4)}"
        engine = cls(client, card, tokenizer, name, max_staleness, probe_tolerance)
        try:
            engine._check_tokenizer()
            engine._check_tokens()
            if adapters:
                engine.require_adapters()
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

    def require_adapters(self) -> None:
        """Raises MissingCapability where adapters cannot be loaded. The existence of the route is not enough: vLLM registers it
        by a switch of its own and refuses when it is called."""
        if "adapters" in self._proven:
            return
        missing = {"lora_name": _ADAPTER, "lora_path": f"/nonexistent/{_ADAPTER}"}
        try:
            self._client.post("/v1/load_lora_adapter", missing)
        except EngineRefused as refusal:
            # Loading a missing folder fails as not found where adapters are enabled, and in another way where they are not.
            if refusal.status not in (400, 404) or _ADAPTER not in refusal.detail:
                raise MissingCapability(
                    f"The engine at {self.url} cannot load adapters. It says: {refusal.detail}",
                    "vLLM: start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.",
                ) from refusal
        self._proven.add("adapters")

    # -- sampling and scoring ---------------------------------------------------------------------------------------

    def sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        if params.max_tokens < 1 or params.n < 1 or params.temperature < 0:
            raise ValueError(
                f"max_tokens and n must be at least 1 and temperature at least 0, not {params.max_tokens}, "
                f"{params.n} and {params.temperature}"
            )
        if params.grammar is not None:
            self.check_grammar(params.grammar)
        for index, prompt in enumerate(prompts):
            self.check_length(index, prompt, params.max_tokens)
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
            self.check_length(index, prompt, len(branch))
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

    # -- publication --------------------------------------------------------------------------------------------------

    def calibrate(self, witness: Scorer) -> float:
        """Returns the mean gap in nats between both sides on the probe while they hold the same weights: the noise floor. Call it
        once before the first publication, so that updates smaller than the tolerance can be told from no update. Raises
        DeliveryFailed where the gap is above the tolerance: they are different models, or one is broken."""
        local, theirs = self._scored_by(witness), self._scored(self._serving.name)
        gap = mean_gap(local, theirs)
        if gap > self._tolerance:
            raise DeliveryFailed(
                f"Before any publication {self._client.url} and the witness differ by {gap:.4g} nats a token on the probe, "
                f"more than the tolerance of {self._tolerance:g}.",
                "They must start from the same weights; a wider dtype gap needs a wider probe_tolerance.",
            )
        self._noise, self._before = gap, (local, theirs)
        return gap

    def publish(self, folder: Path | str, version: int, witness: Scorer) -> Receipt:
        """Loads the adapter in `folder` at the engine and proves that it arrived; from then on samples are of `version`.

        After an error the previous version stays in service.

        Args:
            folder: The folder of a PEFT adapter, loaded as `run@version` in addition to earlier versions. The server must be able
                to read it.
            version: Larger than the previous one.
            witness: The model that holds these weights on this side.

        Raises:
            EngineError: MissingCapability, DeliveryFailed (NothingDelivered for a publication without effect), EngineRefused.
        """
        begun = time.perf_counter()
        self.require_adapters()
        local = self._scored_by(witness)
        if version <= self._serving.version:
            raise EngineError(
                f"Version {version} was to be published after version {self._serving.version}.",
                "Versions only grow: a name is never used twice.",
            )
        self._wait_for_unloading()
        before = self._before or ((), self._scored(self._serving.name))
        name = f"{self._run}@{version}"
        with self._loading(folder, name):
            gap = self._prove(version, before, local, self._scored(name))
        self._loaded.append(name)
        self._serving = Serving(name, version)
        self.version = version
        # An adapter is unloaded after its last request, in the background.
        old, self._loaded = self._loaded[: -self.versions_kept], self._loaded[-self.versions_kept :]
        if old:
            self._unloading = self._unloader.submit(self._forget, *old)
        return Receipt(version, gap, time.perf_counter() - begun)

    def rehearse(self, folder: Path | str, witness: Scorer) -> None:
        """Publishes an adapter that does not change the engine's output, and unloads it again. Called before training, it shows
        that the engine takes this kind of adapter at all, which the existence of the routes does not. Raises what `publish`
        raises."""
        self.require_adapters()
        local = self._scored_by(witness)
        name = f"{self._run}@rehearsal-{secrets.token_hex(4)}"
        with self._loading(folder, name):
            theirs = self._scored(name)
        self._forget(name)
        self._require_near("the rehearsal", mean_gap(local, theirs))

    def unload(self) -> None:
        """Unloads the adapters of this run from the engine, where it still answers."""
        self._wait_for_unloading()
        self._forget(*self._loaded)
        self._loaded.clear()
        self._serving = Serving(self.name, self._serving.version)

    def _scored_by(self, witness: Scorer) -> Scores:
        prompt, branch = self.probe
        return witness.score([prompt], [[branch]])[0][0]

    def _scored(self, name: str) -> Scores:
        prompt, branch = self.probe
        return self._score_under(name, [prompt], [[branch]])[0][0]

    def _wait_for_unloading(self) -> None:
        """Waits until an old adapter is unloaded, because the engine has room for only one adapter more than are kept."""
        if self._unloading is not None:
            self._unloading.result()
            self._unloading = None

    @contextmanager
    def _loading(self, folder: Path | str, name: str) -> Iterator[None]:
        """Loads the adapter in `folder` as `name`, and unloads it where that or the block fails."""
        if name in self._listed():
            raise EngineError(
                f"{self._client.url} already has an adapter {name!r}, of an earlier run or another client.",
                "Choose another run name: a reused one may answer from the caches of the old weights.",
            )
        try:
            self._client.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(Path(folder).absolute())})
            if name not in self._listed():
                raise NothingDelivered(
                    f"{self._client.url} said that it loaded {name!r} and does not list it.", _LOOK_AT_THE_SERVER
                )
            yield
        except Exception:
            self._forget(name)
            raise

    def _listed(self) -> set[str]:
        return {str(card.get("id")) for card in (self._client.get("/v1/models") or {}).get("data") or []}

    def _forget(self, *names: str) -> None:
        """Unloads adapters that were not proven, or are not needed. A failure to unload is ignored, so that it does not hide the
        first error."""
        for name in names:
            with suppress(EngineError):
                self._client.post("/v1/unload_lora_adapter", {"lora_name": name}, idempotent=True)

    def _prove(self, version: int, before: tuple[Scores, Scores], local: Scores, theirs: Scores) -> float:
        """Returns the largest gap of a token. Raises NothingDelivered or DeliveryFailed."""
        gap, moved_there = mean_gap(local, theirs), mean_gap(theirs, before[1])
        moved_here = mean_gap(local, before[0]) if before[0] else 0.0
        if moved_here > 4 * self._noise and moved_there < moved_here / 4:
            raise NothingDelivered(
                f"Version {version} did not reach {self._client.url}: on the probe the witness moved by {moved_here:.4g} "
                f"nats and the engine by {moved_there:.4g}.",
                _LOOK_AT_THE_SERVER,
            )
        if not before[0] and gap > self._tolerance and moved_there == 0:
            raise NothingDelivered(
                f"Version {version} did not reach {self._client.url}: it computes exactly what it computed before, "
                f"{gap:.4g} nats from the witness.",
                _LOOK_AT_THE_SERVER,
            )
        self._require_near(f"the publication of version {version}", gap)
        if not before[0] or moved_here > 4 * self._noise:
            self._before = local, theirs
        return max((abs(x - y) for x, y in zip(local, theirs, strict=True)), default=0.0)

    def _require_near(self, what: str, gap: float) -> None:
        if gap > self._tolerance:
            raise DeliveryFailed(
                f"After {what} {self._client.url} and the witness differ by {gap:.4g} nats a token on the probe, more than "
                f"the tolerance of {self._tolerance:g}.",
                "Other weights arrived than were sent, or the two sides compute differently (dtype, scaling of the adapter).",
            )

    # -- checks before training -------------------------------------------------------------------------------------

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
        """Checks that drawing and scoring give the same log-probabilities on a few drawn tokens."""
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
        """Checks that log-probabilities are those of the distribution that is drawn from, also at a temperature other than 1."""
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
    """Raises EngineError, naming both, where two engines are the same one, or do not serve the same model alike."""
    for first, second in combinations(engines, 2):
        if httpx.URL(first.url) == httpx.URL(second.url):
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


def _card_of(client: JsonClient, model: str) -> dict[str, Any]:
    """Returns the entry of the served base model in `/v1/models`."""
    bases = [card for card in (client.get("/v1/models") or {}).get("data") or [] if not card.get("parent")]
    named = [card for card in bases if card.get("id") == model] if model else bases
    if model and not named:
        raise UnknownName("model", model, [str(card.get("id")) for card in bases], client.url)
    if len(named) != 1:
        names = ", ".join(str(card.get("id")) for card in bases) or "none"
        raise EngineError(f"{client.url} serves several models, or none: {names}.", "Name one of them as model.")
    card: dict[str, Any] = named[0]
    if not isinstance(card.get("max_model_len"), int):
        raise BadAnswer(f"{client.url}/v1/models does not say max_model_len of {card.get('id')}.")
    return card


def mean_gap(a: Sequence[float], b: Sequence[float]) -> float:
    """Returns the mean absolute difference. In bfloat16 single tokens of equal weights differ by a tenth of a nat."""
    return sum(abs(x - y) for x, y in zip(a, b, strict=True)) / max(1, len(a))
