"""A model behind HTTP as an engine of ours: what the server can do, weights published with proof, samples and scores."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, Protocol

from keepworth.episodes import extras
from keepworth.episodes.errors import UnknownName
from keepworth.episodes.model import (
    Capabilities,
    FinishReason,
    Receipt,
    Sample,
    SamplingParams,
    Tokens,
    VersionSpan,
)
from keepworth.models.chat_format import TokenizerChat
from keepworth.models.errors import (
    BadAnswer,
    ContextOverflow,
    DeliveryFailed,
    EngineDied,
    EngineError,
    EngineRefused,
    EngineUnreachable,
    MissingCapability,
    NothingDelivered,
)
from keepworth.models.http_client import JsonClient, Retries, Timeouts, Tried, place_of
from keepworth.models.http_wire import (
    Completions,
    Drawn,
    RouteCall,
    Together,
    TokensInOut,
    Wire,
    as_sample,
    checked_sample,
)
from keepworth.models.text_side import TextSide

# What a server is and can do, found out with calls that change nothing there.
#
# That a route exists says little: vLLM registers its token route, its adapter routes and its weight transfer by switches of their
# own and refuses when they are called. So a capability is what a harmless call proved.


CAPABILITIES = ("adapters", "weights", "pause", "abort", "version_spans")
FIXES = {
    "adapters": "vLLM: start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.",
    "weights": "vLLM: start it with VLLM_SERVER_DEV_MODE=1, on a port that nobody else reaches.",
    "pause": "vLLM: start it with VLLM_SERVER_DEV_MODE=1, on a port that nobody else reaches.",
    "abort": "vLLM: start it with VLLM_SERVER_DEV_MODE=1, on a port that nobody else reaches.",
    "version_spans": "vLLM: start it with --enable-scale-out (or --tokens-only), so that it has /inference/v1/generate.",
    "any_temperature": "vLLM: start it with --logprobs-mode processed_logprobs. Or sample at temperature 1.",
}
_PROBE = "adapter-of-a-probe"
_INVALID = (400, 422)  # it read the body and found fault with it: the route is there and open


@dataclass(frozen=True, slots=True)
class Card:
    """What `/v1/models` says of the served base model. owner: "vllm", "keepworth" or another."""

    name: str
    owner: str
    context_limit: int


@dataclass(frozen=True, slots=True)
class Proven:
    """there: the capabilities that were proven; refusals: what the engine said to those that were not."""

    there: frozenset[str]
    refusals: Mapping[str, str]

    def __contains__(self, capability: str) -> bool:
        return capability in self.there

    def need(self, capability: str, url: str) -> None:
        """Raises MissingCapability, or UnknownName for what is no capability."""
        if capability not in CAPABILITIES:
            raise UnknownName("engine capability", capability, CAPABILITIES)
        if capability not in self.there:
            said = self.refusals.get(capability, "")
            reason = f" It says: {said}" if said else ""
            raise MissingCapability(f"The engine at {url} cannot do {capability!r}.{reason}", FIXES[capability])


def card_of(client: JsonClient, model: str) -> Card:
    listed = (client.get("/v1/models") or {}).get("data") or []
    bases = [each for each in listed if not each.get("parent")]
    named = [each for each in bases if each.get("id") == model] if model else bases
    if model and not named:
        raise UnknownName("model", model, [str(each.get("id")) for each in bases], client.url)
    if len(named) != 1:
        names = ", ".join(str(each.get("id")) for each in bases) or "none"
        raise EngineError(f"{client.url} serves several models, or none: {names}.", "Name one of them as model.")
    limit = named[0].get("max_model_len")
    if not isinstance(limit, int):
        raise BadAnswer(f"{client.url}/v1/models does not say max_model_len of {named[0].get('id')}.")
    return Card(str(named[0]["id"]), str(named[0].get("owned_by", "")), limit)


def capabilities_of(client: JsonClient) -> Proven:
    answers = _vllm(client)
    there = frozenset(name for name, (proven, _) in answers.items() if proven)
    return Proven(there, {name: said for name, (proven, said) in answers.items() if not proven})


def _vllm(client: JsonClient) -> dict[str, tuple[bool, str]]:
    """vLLM's, and our own server's. capability -> (whether it is proven, what the engine said)."""
    tokens = client.tried("POST", "/inference/v1/generate", {})
    paused = client.tried("GET", "/is_paused")
    resume = _route(client, "/resume")
    abort = client.tried("POST", "/abort_requests", {"request_ids": ["no-request-of-a-probe"]})
    rpc = client.tried("POST", "/collective_rpc", {"method": "check_health"})
    label = client.tried("GET", "/weight_info")
    # Loading what is not there fails as not found where adapters are on, and otherwise where they are not.
    body = {"lora_name": _PROBE, "lora_path": f"/nonexistent/{_PROBE}"}
    adapters = client.tried("POST", "/v1/load_lora_adapter", body)
    return {
        "adapters": (adapters.status in (400, 404) and _PROBE in adapters.detail, adapters.detail),
        "weights": (rpc.well and label.well, rpc.detail if not rpc.well else label.detail),
        "pause": (paused.well and isinstance(_field(paused, "is_paused"), bool) and resume, paused.detail),
        "abort": (abort.well, abort.detail),
        "version_spans": (tokens.status in _INVALID, tokens.detail),
    }


def _field(tried: Tried, key: str) -> object:
    return tried.answer.get(key) if tried.well and isinstance(tried.answer, dict) else None


def _route(client: JsonClient, path: str) -> bool:
    """Whether a route exists that cannot be called for the sake of asking: OPTIONS runs nothing."""
    return client.tried("OPTIONS", path).status not in (401, 403, 404)


def wire_for(client: JsonClient, card: Card, proven: Proven) -> Wire:
    if card.owner == "keepworth":
        return Together()
    if "version_spans" in proven:
        return TokensInOut()
    if client.tried("POST", "/v1/completions", {}).status in _INVALID:
        return Completions()
    raise MissingCapability(
        f"{client.url} (owned by {card.owner!r}) has neither /inference/v1/generate nor /v1/completions.",
        "Connect to vLLM, or to a server with its interface.",
    )


# Publication of weights with proof: name or label them, read that back, and score a probe on both sides.
#
# Adapters that never reach the sampler look like slowly growing staleness and nothing else: no error, no odd number. So a
# publication counts only when
#
# 1. the engine lists the new name (adapters) or says the new version label (full weights),
# 2. both sides give a fixed probe sequence the same log-probabilities, within the tolerance on their mean gap, and
# 3. the engine's moved about as much as ours did. An update smaller than the tolerance would pass the second test without
#    having arrived; it does not pass this one. Updates smaller than the noise between both sides are added up until they can be
#    told from it.


TokenScores = tuple[float, ...]
ScoreOf = Callable[[str], TokenScores]
"""The engine's log-probabilities of the probe under the weights or adapter of this name."""


class Scorer(Protocol):
    """The other side of a probe: the model that the learner holds."""

    def score(
        self, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]: ...


@dataclass(frozen=True, slots=True)
class InService:
    """The weights that new samples are drawn under. by_name: an adapter; else the base weights under their label."""

    name: str
    version: int
    by_name: bool


@dataclass(frozen=True, slots=True)
class _Proven:
    local: TokenScores
    theirs: TokenScores


class Publisher:
    """Keeps the names of one run: `run@version`, the newest `max_staleness + 1` of them loaded, none ever used twice."""

    def __init__(self, client: JsonClient, base: str, run: str, max_staleness: int, tolerance: float) -> None:
        if max_staleness < 0:
            raise ValueError(f"max_staleness must be at least 0, not {max_staleness}")
        if not tolerance > 0:
            raise ValueError(f"probe_tolerance must be positive, not {tolerance}")
        if not run or "@" in run or "/" in run:
            raise ValueError(f"a run's name must not be empty and must not hold @ or /, which {run!r} does")
        self._client = client
        self._base = base
        self._run = run
        self.versions_kept = max_staleness + 1
        self.tolerance = tolerance
        self._loaded: list[str] = []
        self._lists_adapters = False
        self._labels: dict[str, int] = {}
        self._noise = 0.0
        self._proven: _Proven | None = None
        self._lock = threading.Lock()
        self._unloader = ThreadPoolExecutor(1, thread_name_prefix="unload")
        self._unloading: Future[None] | None = None
        self.in_service = InService(base, 0, by_name=False)
        self.updates = 0  # of the base weights, proven or not

    @property
    def loaded(self) -> tuple[str, ...]:
        """Adapter names of this run that the engine holds, oldest first."""
        return tuple(self._loaded)

    def version_of(self, label: str) -> int:
        """The version that a weight label of the engine stands for; what was there at the start is 0. Raises BadAnswer."""
        if not self._labels:
            self._labels[label] = 0
        if label not in self._labels:
            raise BadAnswer(
                f"{self._client.url} sampled under weights {label!r}, which this run did not publish.",
                "Let one run publish to an engine; connect again to go on with what is there.",
            )
        return self._labels[label]

    def calibrate(self, local: TokenScores, score_of: ScoreOf) -> float:
        theirs = score_of(self.in_service.name)
        gap = mean_gap(local, theirs)
        if gap > self.tolerance:
            raise DeliveryFailed(
                f"Before any publication {self._client.url} and the witness differ by {gap:.4g} nats a token on the probe, "
                f"more than the tolerance of {self.tolerance:g}.",
                "They must start from the same weights; a wider dtype gap needs a wider probe_tolerance.",
            )
        self._noise, self._proven = gap, _Proven(local, theirs)
        return gap

    def publish(
        self,
        folder: Path,
        version: int,
        local: TokenScores,
        score_of: ScoreOf,
        paused: Callable[[], AbstractContextManager[None]],
    ) -> Receipt:
        """See `HttpModel.publish`. local: the witness's log-probabilities of the probe; paused: holds the engine still inside."""
        begun = time.perf_counter()
        with self._lock:
            if version <= self.in_service.version:
                raise EngineError(
                    f"Version {version} was to be published after version {self.in_service.version}.",
                    "Versions only grow: a name is never used twice.",
                )
            if not folder.is_dir():
                raise FileNotFoundError(f"There is no folder {folder} to publish")
            self._wait_for_unloading()
            before = self._before(score_of)
            if (folder / "adapter_config.json").exists():
                gap = self._publish_adapter(folder, version, before, local, score_of)
            else:
                gap = self._publish_weights(folder, version, before, local, score_of, paused)
            # An adapter is unloaded after its last request: nobody waits here for that.
            old, self._loaded = self._loaded[: -self.versions_kept], self._loaded[-self.versions_kept :]
            if old:
                self._unloading = self._unloader.submit(self._forget, *old)
        return Receipt(version, gap, time.perf_counter() - begun)

    def rehearse(
        self, folder: Path, local: TokenScores, score_of: ScoreOf, paused: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """See `HttpModel.rehearse`."""
        with self._lock:
            if (folder / "adapter_config.json").exists():
                name = f"{self._run}@rehearsal-{secrets.token_hex(4)}"
                try:
                    theirs = self._load(folder, name, score_of)
                finally:
                    self._forget(name)
            else:
                theirs = self._install(folder, self._new_label(0), score_of, paused)
            self._within_tolerance("the rehearsal", mean_gap(local, theirs))

    def check(self) -> None:
        """See `HttpModel.check`."""
        serving = self.in_service
        if serving.version and not serving.by_name:
            label = f"{self._run}@{serving.version}"
            there = self._label() == label
        else:
            label = serving.name
            there = label in self._listed() or (serving.by_name and not self._lists_adapters)
        if not there:
            raise EngineError(
                f"{self._client.url} does not have {label!r} any more.",
                "Was it started anew, or changed by somebody else?",
            )

    def close(self) -> None:
        self._unloader.shutdown(wait=False)

    def _wait_for_unloading(self) -> None:
        """The engine has a place for one adapter more than are kept."""
        if self._unloading is not None:
            self._unloading.result()
            self._unloading = None

    def _before(self, score_of: ScoreOf) -> _Proven:
        if self._proven is not None:
            return self._proven
        theirs = score_of(self.in_service.name)
        return _Proven((), theirs)

    # -- adapters ---------------------------------------------------------------------------------------------------

    def _publish_adapter(
        self, folder: Path, version: int, before: _Proven, local: TokenScores, score_of: ScoreOf
    ) -> float:
        name = f"{self._run}@{version}"
        try:
            gap = self._prove(version, before, local, self._load(folder, name, score_of))
        except _Taken:
            raise
        except Exception:
            self._forget(name)
            raise
        self._loaded.append(name)
        self.in_service = InService(name, version, by_name=True)
        return gap

    def _load(self, folder: Path, name: str, score_of: ScoreOf) -> TokenScores:
        """What the engine says of the probe under the adapter in `folder`, which it now calls `name`."""
        _check_adapter(folder)
        if name in self._listed():
            raise _Taken(
                f"{self._client.url} already has an adapter {name!r}, of an earlier run or another client.",
                "Choose another run name: a reused one may answer from the caches of the old weights.",
            )
        body = {"lora_name": name, "lora_path": str(folder)}
        self._client.post("/v1/load_lora_adapter", body)
        listed = self._listed()
        self._lists_adapters = name in listed
        if name not in listed:
            raise NothingDelivered(
                f"{self._client.url} said that it loaded {name!r} and does not list it.", _LOOK_AT_THE_SERVER
            )
        return score_of(name)

    def unload(self) -> None:
        """Every adapter of this run, as far as the engine still answers; the base weights are then in service."""
        self._wait_for_unloading()
        while self._loaded:
            self._forget(self._loaded.pop())
        if self.in_service.by_name:
            self.in_service = InService(self._base, self.in_service.version, by_name=False)

    def _listed(self) -> set[str]:
        return {str(each.get("id")) for each in (self._client.get("/v1/models") or {}).get("data") or []}

    def _forget(self, *names: str) -> None:
        """Take back what was not proven, or is not needed. That it cannot be taken back either must not hide why."""
        for name in names:
            with suppress(EngineError):
                body = {"lora_name": name}
                self._client.post("/v1/unload_lora_adapter", body, idempotent=True)

    # -- full weights -----------------------------------------------------------------------------------------------

    def _publish_weights(
        self,
        folder: Path,
        version: int,
        before: _Proven,
        local: TokenScores,
        score_of: ScoreOf,
        paused: Callable[[], AbstractContextManager[None]],
    ) -> float:
        if self.in_service.by_name:
            raise EngineError(
                "Full weights were to be published after adapters of the same run.",
                "One run publishes one or the other: adapters are relative to the base weights.",
            )
        theirs = self._install(folder, self._new_label(version), score_of, paused)
        gap = self._prove(version, before, local, theirs)
        self.in_service = InService(self._base, version, by_name=False)
        return gap

    def _new_label(self, version: int) -> str:
        label = f"{self._run}@{version}"
        self._labels[label] = version  # requests that run across the update may report it before the proof
        return label

    def _install(
        self, folder: Path, label: str, score_of: ScoreOf, paused: Callable[[], AbstractContextManager[None]]
    ) -> TokenScores:
        """What the engine says of the probe under the weights in `folder`, which it now labels `label`."""
        self._check_weights(folder)
        with paused():
            # No released weight transfer backend of vLLM reads a folder; its worker's own method does.
            call = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            self._client.post("/collective_rpc", call)
            self._client.post("/update_weight_version", {"new_version": label}, idempotent=True)
            self.updates += 1
        found = self._label()
        if found != label:
            raise NothingDelivered(
                f"{self._client.url} says that its weights are {found!r} after {label!r} was published.",
                _LOOK_AT_THE_SERVER,
            )
        return score_of(self._base)

    def _check_weights(self, folder: Path) -> None:
        if not any(folder.glob("*.safetensors")):
            raise FileNotFoundError(f"{folder} holds neither adapter_config.json nor safetensors: nothing to publish")
        if not (folder / "config.json").is_file():
            raise EngineError(
                f"{folder} holds tensors and no config.json: {self._client.url} would load half a model, or none.",
                "Publish a complete checkpoint folder, or train an adapter.",
            )

    def _label(self) -> Any:
        return (self._client.get("/weight_info") or {}).get("weight_version")

    # -- the proof --------------------------------------------------------------------------------------------------

    def _prove(self, version: int, before: _Proven, local: TokenScores, theirs: TokenScores) -> float:
        gap = mean_gap(local, theirs)
        moved_there = mean_gap(theirs, before.theirs)
        moved_here = mean_gap(local, before.local) if before.local else 0.0
        if before.local:
            if moved_here > 4 * self._noise and moved_there < moved_here / 4:
                raise NothingDelivered(
                    f"Version {version} did not reach {self._client.url}: on the probe the witness moved by "
                    f"{moved_here:.4g} nats and the engine by {moved_there:.4g}.",
                    _LOOK_AT_THE_SERVER,
                )
        elif gap > self.tolerance and moved_there == 0:
            raise NothingDelivered(
                f"Version {version} did not reach {self._client.url}: it computes exactly what it computed before, "
                f"{gap:.4g} nats from the witness.",
                _LOOK_AT_THE_SERVER,
            )
        self._within_tolerance(f"the publication of version {version}", gap)
        if not before.local or moved_here > 4 * self._noise:
            self._proven = _Proven(local, theirs)
        return _largest_gap(local, theirs)

    def _within_tolerance(self, what: str, gap: float) -> None:
        if gap > self.tolerance:
            raise DeliveryFailed(
                f"After {what} {self._client.url} and the witness differ by {gap:.4g} nats a token on the probe, more than "
                f"the tolerance of {self.tolerance:g}.",
                "Other weights arrived than were sent, or the two sides compute differently (dtype, scaling of the adapter).",
            )


class _Taken(EngineError):
    """The name belongs to somebody else: nothing to take back."""


_LOOK_AT_THE_SERVER = (
    "Look at the server's log; can it read the folder, and is it one server and not a balancer in front of several?"
)


def mean_gap(a: Sequence[float], b: Sequence[float]) -> float:
    """Mean absolute difference: in bfloat16 single tokens of equal weights differ by a tenth of a nat, their mean hardly does."""
    return sum(abs(x - y) for x, y in zip(a, b, strict=True)) / max(1, len(a))


def _largest_gap(a: Sequence[float], b: Sequence[float]) -> float:
    return max((abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0)


def _check_adapter(folder: Path) -> None:
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    if settings.get("modules_to_save"):
        raise EngineError(
            f"The adapter in {folder} also trains whole modules ({', '.join(settings['modules_to_save'])}).",
            "Engines load only the low-rank tensors: train without modules_to_save.",
        )
    if not any(folder.glob("adapter_model.*")):
        raise FileNotFoundError(f"{folder} holds adapter_config.json and no adapter_model.safetensors")


# A model behind HTTP as an engine of ours: vLLM's documented routes, our own server's.
#
# What the server can do is found out once, at `connect`, by calls that change nothing there. What is required and absent is an
# error there. The server keeps its own tokenizer out of the way: only token ids travel.


PauseMode = Literal["abort", "wait", "keep"]


class HttpModel:
    """An engine behind a URL; fulfils `keepworth.episodes.Model`. Made by `connect`. Safe to use from several threads.

    Samples are drawn under the weights in service when `sample` is called, whatever is published meanwhile.
    """

    def __init__(
        self,
        client: JsonClient,
        card: Card,
        wire: Wire,
        proven: Proven,
        tokenizer: Any,
        publisher: Publisher,
        scoring: int,
    ) -> None:
        self._client = client
        self._card = card
        self._wire = wire
        self._proven = proven
        self._scoring = threading.BoundedSemaphore(scoring)
        self._text = TextSide(tokenizer, card.name, context_limit=card.context_limit)
        self._publisher = publisher
        self._pool = ThreadPoolExecutor(client.connections, thread_name_prefix="http-model")
        self._in_flight: set[str] = set()
        self._lock = threading.Lock()
        self._version = _version(client)
        self._temperature_shown: bool | None = True if card.owner == "keepworth" else None

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
        scoring: int | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
    ) -> HttpModel:
        """Find out what the server at `url` is and can do.

        tokenizer: the model's, or its folder. model: the served name, needed where a server serves several. require: of
        "adapters", "weights", "pause", "abort", "version_spans", what the caller will use. run: first part of adapter names
        (`run@version`); by default one that no earlier run can have used. max_staleness: how many versions behind the newest
        may still be sampled from; that many and one stay loaded. probe_tolerance: nats by which both sides may differ,
        in the mean over the probe's tokens. concurrency: requests at once; scoring: of these, how many may score. By default
        as many, but one at a time on vLLM's processor build, which several end (in development mode it says what it is).

        Raises EngineUnreachable, MissingCapability, BadAnswer and what the calls of `JsonClient` raise.
        """
        settings = Timeouts() if timeouts is None else timeouts
        retries = Retries() if retries is None else retries
        client = JsonClient(url, api_key, settings, retries, concurrency)
        card = card_of(client, model)
        found = capabilities_of(client)
        wire = wire_for(client, card, found)
        if scoring is None:
            scoring = 1 if card.owner == "vllm" and _on_a_processor(client) else concurrency
        if isinstance(tokenizer, (str, Path)):
            extras.require("llm", "The tokenizer of an engine behind HTTP", "transformers")
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        publisher = Publisher(client, card.name, run or f"run-{secrets.token_hex(4)}", max_staleness, probe_tolerance)
        engine = cls(client, card, wire, found, tokenizer, publisher, scoring)
        try:
            engine._check_tokenizer()
            engine._check_tokens()
            engine.require(*require)
        except BaseException:
            engine.close()
            raise
        return engine

    def close(self) -> None:
        self._publisher.close()
        self._pool.shutdown()
        self._client.close()

    def __enter__(self) -> HttpModel:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"HttpModel({self._client.url!r}, {self.name!r}, version={self.version})"

    @property
    def url(self) -> str:
        return self._client.url

    @property
    def name(self) -> str:
        return self._card.name

    @property
    def software(self) -> str:
        """What serves the model, and its version as far as it says: `vllm 0.33.0`."""
        return f"{self._card.owner} {self._version}".strip()

    @property
    def version(self) -> int:
        """Of the weights in service: the last publication that was proven to have arrived; 0 before the first."""
        return self._publisher.in_service.version

    @property
    def context_limit(self) -> int:
        return self._card.context_limit

    @property
    def versions_kept(self) -> int:
        """How many published adapters stay loaded at once: `max_staleness` of `connect`, and one."""
        return self._publisher.versions_kept

    def require(self, *capabilities: str) -> None:
        """Raises MissingCapability for the first of them that the engine lacks."""
        for each in capabilities:
            self._proven.need(each, self.url)

    def capabilities(self) -> Capabilities:
        return Capabilities(
            adapters="adapters" in self._proven,
            in_flight_update="adapters" in self._proven or {"weights", "pause", "version_spans"} <= self._proven.there,
            token_input=True,
            version_spans="version_spans" in self._proven or "adapters" in self._proven,
        )

    # -- text -------------------------------------------------------------------------------------------------------

    def encode(self, text: str) -> Tokens:
        return self._text.encode(text)

    def encode_continuation(self, text: str) -> Tokens:
        return self._text.encode_continuation(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._text.decode(ids)

    def stop_ids_for(self, prefix: str) -> frozenset[int]:
        return self._text.stop_ids_for(prefix)

    @property
    def chat(self) -> TokenizerChat:
        """Raises NoChatTemplate."""
        return self._text.chat

    # -- sampling and scoring ---------------------------------------------------------------------------------------

    def sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        if params.max_tokens < 1 or params.n < 1 or params.temperature < 0:
            raise ValueError(
                f"max_tokens and n must be at least 1 and temperature at least 0, not {params.max_tokens}, "
                f"{params.n} and {params.temperature}"
            )
        for index, prompt in enumerate(prompts):
            self._check_length(index, len(prompt), params.max_tokens)
        if params.temperature not in (0.0, 1.0):
            self._check_temperature()
        return self._sample(prompts, params) if prompts else []

    def _sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        serving = self._publisher.in_service
        calls = self._wire.sample_calls(serving.name, prompts, params)
        samples: list[list[Sample]] = [[] for _ in prompts]
        for call, answer in zip(calls, self._answers(calls, idempotent=False), strict=True):
            groups = self._wire.drawn(call, answer, prompts, params)
            for index, group in zip(call.prompts, groups, strict=True):
                samples[index] += [
                    as_sample(checked_sample(each, params), serving.version, self._spans(each, serving.by_name))
                    for each in group
                ]
        return samples

    def score(
        self, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]:
        if temperature <= 0:
            raise ValueError(f"temperature must be positive to score tokens, not {temperature}")
        if temperature != 1.0 and not self._wire.scores_at_any_temperature:
            raise MissingCapability(
                f"The engine at {self.url} scores prompts at temperature 1 only, not at {temperature}.",
                "Score at temperature 1, or with the in-process model.",
            )
        if len(prompts) != len(branches):
            raise ValueError(f"{len(prompts)} prompts but {len(branches)} lists of branches")
        return self._score(self._publisher.in_service.name, prompts, branches, temperature)

    def _score(
        self, name: str, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]:
        """Under the weights or adapter called `name`, which need not be in service yet."""
        results: list[list[tuple[float, ...]]] = [[() for _ in own] for own in branches]
        # An empty branch has nothing to score.
        where = [(i, j) for i, own in enumerate(branches) for j, branch in enumerate(own) if branch]
        for i, j in where:
            self._check_length(i, len(prompts[i]) + len(branches[i][j]), 0)
            if not prompts[i]:
                raise ValueError(f"prompt {i} is empty: the first token of its branches would have no predictor")
        if not where:
            return results
        flat_prompts, flat = [prompts[i] for i, _ in where], [branches[i][j] for i, j in where]
        calls = self._wire.score_calls(name, flat_prompts, flat, temperature)
        for call, answer in zip(calls, self._answers(calls, idempotent=True), strict=True):
            scored = self._wire.scored(call, answer, flat_prompts, flat)
            for index, values in zip(call.prompts, scored, strict=True):
                i, j = where[index]
                results[i][j] = values
        return results

    def _answers(self, calls: Sequence[RouteCall], *, idempotent: bool) -> list[Any]:
        if len(calls) == 1:
            return [self._answer(calls[0], idempotent)]
        return list(self._pool.map(lambda call: self._answer(call, idempotent), calls))

    def _answer(self, call: RouteCall, idempotent: bool) -> Any:
        request = uuid.uuid4().hex
        marks = {"request_id": request}
        if self._card.owner == "vllm" and self._publisher.updates:
            marks["cache_salt"] = (
                f"update-{self._publisher.updates}"  # blocks that older weights filled must not be read
            )
        with self._lock:
            self._in_flight.add(request)
        try:
            if not idempotent:
                return self._unless_paused({**call.body, **marks}, call.path, idempotent)
            with self._scoring:
                return self._unless_paused({**call.body, **marks}, call.path, idempotent)
        except (EngineUnreachable, EngineDied, EngineRefused) as error:
            if idempotent and not self._well():
                raise EngineDied(
                    f"The engine at {self.url} ended while it scored: {error}",
                    "Look at its log. Where it cannot score several sequences at once, connect with scoring=1.",
                ) from error
            raise
        finally:
            with self._lock:
                self._in_flight.discard(request)

    def _unless_paused(self, body: dict[str, Any], path: str, idempotent: bool) -> Any:
        """A paused vLLM (0.33) refuses what is new, unbegun: such a request is made again until the engine goes on."""
        until = time.monotonic() + self._client.timeouts.answer
        wait = 0.05
        while True:
            try:
                return self._client.post(path, body, idempotent=idempotent)
            except EngineRefused as error:
                if error.status != 503 or "paused" not in error.detail.lower() or time.monotonic() > until:
                    raise
            time.sleep(wait)
            wait = min(2 * wait, 1.0)

    def _well(self) -> bool:
        try:
            self.health()
        except EngineError:
            return False
        return True

    def _spans(self, drawn: Drawn, by_name: bool) -> tuple[VersionSpan, ...]:
        """By the engine's labels. An adapter's version is in its name: the labels then speak of the base weights."""
        if by_name:
            return ()
        return tuple(VersionSpan(self._publisher.version_of(label), start, end) for label, start, end in drawn.labels)

    # -- weights ----------------------------------------------------------------------------------------------------

    def calibrate(self, witness: Scorer) -> float:
        """The mean gap in nats between both sides on the probe while they hold the same weights: the noise floor.

        Call it once before the first publication: updates smaller than the tolerance are then told from no update at all.
        Raises DeliveryFailed where the gap is above the tolerance: they are different models, or one is broken.
        """
        return self._publisher.calibrate(self._probe(witness), self._probe_name)

    def publish(self, folder: Path | str, version: int, witness: Scorer) -> Receipt:
        """Bring the weights in `folder` to the engine and prove that they arrived; from then on samples are of `version`.

        folder: a PEFT adapter folder, loaded as `run@version` beside the versions before it, or a folder of safetensors with
        the full weights. The server must be able to read it. witness: the model that holds these weights on this side.
        Raises MissingCapability, DeliveryFailed (NothingDelivered for a publication without effect), EngineRefused.
        After an error the version before stays in service, if it was an adapter; full weights are then in an unknown state.
        """
        folder = Path(folder).absolute()
        self._need_for(folder)
        return self._publisher.publish(folder, version, self._probe(witness), self._probe_name, self._paused_for_update)

    def rehearse(self, folder: Path | str, witness: Scorer) -> None:
        """Publish, once, weights that compute what the engine computes already, and take an adapter out again.

        Called before training, it shows that the engine takes this kind of weights at all: that its routes are there does not.
        witness: holds the same weights. Raises what `publish` raises."""
        folder = Path(folder).absolute()
        self._need_for(folder)
        self._publisher.rehearse(folder, self._probe(witness), self._probe_name, self._paused_for_update)

    def _need_for(self, folder: Path) -> None:
        self.require(*(["adapters"] if (folder / "adapter_config.json").exists() else ["weights", "pause"]))

    def check(self) -> None:
        """Whether the weights in service are still there: an engine that was started anew has forgotten them. Raises EngineError
        where they are not, and what calls raise where nobody answers."""
        self._publisher.check()

    def unload(self) -> None:
        """Take the adapters of this run out of the engine, which is then as it was; full weights stay."""
        self._publisher.unload()

    def _probe(self, witness: Scorer) -> tuple[float, ...]:
        prompt, branch = self.probe
        return witness.score([prompt], [[branch]])[0][0]

    def _probe_name(self, name: str) -> tuple[float, ...]:
        prompt, branch = self.probe
        return self._score(name, [prompt], [[branch]])[0][0]

    @property
    def probe(self) -> tuple[Tokens, Tokens]:
        """What both sides of a proof score: a beginning, and what follows it."""
        ids = self.encode('In 1905 the harbour of Oslo froze; Ana moved her 3 boats south, and wrote: "we\'ll return."')
        ids = ids[: self.context_limit - 1]
        return ids[:8], ids[8:]

    @contextlib.contextmanager
    def _paused_for_update(self) -> Iterator[None]:
        """Without spans from the engine nothing may be drawn across an update: what is running ends first.

        Whatever goes wrong in between, the engine goes on afterwards, and the error that says why is the one that is raised."""
        spans = "version_spans" in self._proven
        self.pause("keep" if spans else "wait")
        try:
            yield
        except BaseException as error:
            try:
                self.resume()
            except EngineError as second:
                if isinstance(error, EngineError):
                    error.fix = f"{error.fix} Besides, the engine may still be paused: {second}".strip()
            raise
        self.resume()

    # -- control ----------------------------------------------------------------------------------------------------

    def pause(self, mode: PauseMode = "abort") -> None:
        """abort: running samples end at once with what they have; wait: they end first; keep: they freeze until `resume`."""
        self.require("pause")
        if mode not in ("abort", "wait", "keep"):
            raise UnknownName("pause mode", mode, ("abort", "wait", "keep"))
        self._client.post("/pause", {}, query={"mode": mode}, idempotent=True)

    def resume(self) -> None:
        """Raises EngineError where the engine says that it is paused all the same."""
        self.require("pause")
        self._client.post("/resume", {}, idempotent=True)
        if (self._client.get("/is_paused") or {}).get("is_paused"):
            raise EngineError(f"{self.url} is still paused after POST /resume.", "Does another client pause it?")

    def abort(self, ids: Iterable[str] | None = None) -> None:
        """End running requests of this client: those named (see `in_flight`), or all. Their samples come back as ABORTED."""
        self.require("abort")
        named = [self._wire.id_form.format(each) for each in (self.in_flight if ids is None else ids)]
        if named:
            self._client.post("/abort_requests", {"request_ids": named}, idempotent=True)

    @property
    def in_flight(self) -> tuple[str, ...]:
        """Ids of the requests of this client that are not answered yet."""
        with self._lock:
            return tuple(sorted(self._in_flight))

    def health(self) -> float:
        """Seconds that the server took to say that it is well. Raises EngineUnreachable, EngineRefused or EngineTimeout."""
        begun = time.perf_counter()
        self._client.get("/health")
        return time.perf_counter() - begun

    # -- what must hold before anything is trained on ---------------------------------------------------------------

    def _check_length(self, index: int, length: int, growth: int) -> None:
        if not length:
            raise ValueError(f"prompt {index} is empty: there is nothing to continue")
        if length + growth > self.context_limit:
            raise ContextOverflow(
                f"Prompt {index} has {length} tokens and may grow by {growth}, past the {self.context_limit} that "
                f"{self.name} reads.",
                "Show fewer or shorter memories.",
            )

    def _check_tokenizer(self) -> None:
        text = "Ana's café: 12 naïve questions?\n\tyes"
        body = {"model": self.name, "prompt": text, "add_special_tokens": False}
        tried = self._client.tried("POST", "/tokenize", body)
        if tried.status == 404:
            return  # the check below still compares ids
        if not tried.well:
            raise EngineError(f"{self.url} refused POST /tokenize with status {tried.status}: {tried.detail}")
        theirs = tried.answer.get("tokens") if isinstance(tried.answer, dict) else None
        if theirs is None or tuple(theirs) != self.encode_continuation(text):
            raise EngineError(
                f"The tokenizer handed over and that of {self.name} at {self.url} make different ids of one text.",
                "Hand over the tokenizer of the model that is served.",
            )

    def _check_tokens(self) -> None:
        """Ids and log-probabilities come back, and both ways to a log-probability agree on a few drawn tokens."""
        prompt, _ = self.probe
        params = SamplingParams(max_tokens=min(8, self.context_limit - len(prompt) - 1))
        ((drawn,),) = self._sample([prompt], params)
        if drawn.finish is FinishReason.ABORTED:
            raise BadAnswer(f"{self.url} ended the first request itself.", "Is the engine paused or shutting down?")
        ((scored,),) = self._score(self.name, [prompt], [[drawn.ids]])
        gap = mean_gap(scored, drawn.logprobs)
        if gap > 4 * self._publisher.tolerance:  # few tokens, two kernels
            raise BadAnswer(
                f"{self.url} gives other log-probabilities to tokens when it draws them than when it scores them: "
                f"{gap:.3g} nats apart in the mean.",
                "Something reshapes its distribution: start it without sampling defaults, penalties and quantised caches.",
            )

    def _check_temperature(self) -> None:
        """Whether log-probabilities are those of the distribution that is drawn from, once the temperature is not 1."""
        if self._temperature_shown is None:
            prompt, _ = self.probe
            (drawn,) = self._sample([prompt], SamplingParams(max_tokens=16, temperature=0.5))[0]
            ((raw,),) = self._score(self._publisher.in_service.name, [prompt], [[drawn.ids]])
            self._temperature_shown = mean_gap(drawn.logprobs, raw) > 2 * self._publisher.tolerance
        if not self._temperature_shown:
            raise MissingCapability(
                f"The engine at {self.url} returns log-probabilities from before the temperature, which did not draw the tokens.",
                FIXES["any_temperature"],
            )


def require_alike(engines: Sequence[HttpModel]) -> None:
    """Raises EngineError, naming both, where two of them are one, or where they do not serve the same model alike."""
    for first, second in combinations(engines, 2):
        if place_of(first.url) == place_of(second.url):
            raise EngineError(f"{first.url} and {second.url} are one engine.", "Name each engine once.")
        if first.name != second.name:
            raise EngineError(
                f"{first.url} serves {first.name!r} and {second.url} serves {second.name!r}.",
                "Engines that one run samples at serve one model under one name.",
            )
        if first.context_limit != second.context_limit:
            raise EngineError(
                f"{first.url} reads {first.context_limit} tokens and {second.url} reads {second.context_limit}.",
                "Start them with the same limit: what one of them can go on with, the others must be able to.",
            )


def _on_a_processor(client: JsonClient) -> bool:
    answer = client.tried("GET", "/server_info?config_format=json").answer
    config = answer.get("vllm_config") if isinstance(answer, dict) else None
    device = config.get("device_config") if isinstance(config, dict) else None
    return isinstance(device, dict) and device.get("device") == "cpu"


def _version(client: JsonClient) -> str:
    for path in ("/version", "/server_info"):
        answer = client.tried("GET", path).answer
        if isinstance(answer, dict) and isinstance(answer.get("version"), str):
            return str(answer["version"])
    return ""
