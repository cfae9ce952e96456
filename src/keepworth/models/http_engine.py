"""A model behind HTTP as an engine of ours: vLLM's documented routes, SGLang's where they differ, our own server's.

What the server can do is found out once, at `connect`, by calls that change nothing there. What is required and absent is an
error there. The server keeps its own tokenizer out of the way: only token ids travel.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

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
    beginning,
    begun,
)
from keepworth.models.errors import (
    BadAnswer,
    ContextOverflow,
    EngineDied,
    EngineError,
    EngineRefused,
    EngineUnreachable,
    MissingCapability,
)
from keepworth.models.http_answers import Drawn, as_sample, checked_sample
from keepworth.models.http_capabilities import FIXES, Card, Proven, capabilities_of, card_of, wire_for
from keepworth.models.http_client import JsonClient, Retries, Timeouts
from keepworth.models.http_publish import Publisher, Scorer, mean_gap
from keepworth.models.http_wire import Call, Wire

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
        self._tokenizer = tokenizer
        self._beginning = beginning(tokenizer)
        self._publisher = publisher
        self._pool = ThreadPoolExecutor(client.connections, thread_name_prefix="http-model")
        self._stops: dict[str, frozenset[int]] = {}
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
        control_key: str | None = None,
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
        in the mean over the probe's tokens. control_key: for calls that change the model, where they take another key than
        `api_key` (SGLang's admin key). concurrency: requests at once; scoring: of these, how many may score. By default
        as many, but one at a time on vLLM's processor build, which several end (in development mode it says what it is).

        Raises EngineUnreachable, MissingCapability, BadAnswer and what the calls of `JsonClient` raise.
        """
        settings = Timeouts() if timeouts is None else timeouts
        retries = Retries() if retries is None else retries
        client = JsonClient(url, api_key, settings, retries, concurrency, control_key=control_key)
        card = card_of(client, model)
        found = capabilities_of(client, card.owner)
        wire = wire_for(client, card, found)
        if scoring is None:
            scoring = 1 if card.owner == "vllm" and _on_a_processor(client) else concurrency
        if isinstance(tokenizer, (str, Path)):
            extras.require("llm", "The tokenizer of an engine behind HTTP", "transformers")
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        publisher = Publisher(
            client, card.name, run or f"run-{secrets.token_hex(4)}", max_staleness, probe_tolerance, card.owner
        )
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
        return begun(self.encode_continuation(text), self._beginning)

    def encode_continuation(self, text: str) -> Tokens:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def stop_ids_for(self, prefix: str) -> frozenset[int]:
        if prefix not in self._stops:
            special = frozenset(self._tokenizer.all_special_ids)
            texts = self._tokenizer.batch_decode([[each] for each in range(len(self._tokenizer))])
            self._stops[prefix] = special | frozenset(i for i, text in enumerate(texts) if text.startswith(prefix))
        return self._stops[prefix]

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
        return self._sample(prompts, params)

    def _sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        return self._labelled(prompts, params)[0] if prompts else []

    def _labelled(self, prompts: Sequence[Tokens], params: SamplingParams) -> tuple[list[list[Sample]], bool]:
        """The samples, and whether each of them says under which weights it was drawn."""
        serving = self._publisher.in_service
        calls = self._wire.sample_calls(serving.name, prompts, params)
        samples: list[list[Sample]] = [[] for _ in prompts]
        labelled = True
        for call, answer in zip(calls, self._answers(calls, idempotent=False), strict=True):
            groups = self._wire.drawn(call, answer, prompts, params)
            for index, group in zip(call.prompts, groups, strict=True):
                labelled = labelled and all(each.labels for each in group)
                samples[index] += [
                    as_sample(checked_sample(each, params), serving.version, self._spans(each, serving.by_name))
                    for each in group
                ]
        return samples, labelled

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

    def _answers(self, calls: Sequence[Call], *, idempotent: bool) -> list[Any]:
        if len(calls) == 1:
            return [self._answer(calls[0], idempotent)]
        return list(self._pool.map(lambda call: self._answer(call, idempotent), calls))

    def _answer(self, call: Call, idempotent: bool) -> Any:
        request = uuid.uuid4().hex
        marks = {"rid" if self._card.owner == "sglang" else "request_id": request}
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

    def unload(self) -> None:
        """Take the adapters of this run out of the engine, which is then as it was; full weights stay."""
        self._publisher.unload()

    def _probe(self, witness: Scorer) -> tuple[float, ...]:
        prompt, branch = self._probe_tokens()
        return witness.score([prompt], [[branch]])[0][0]

    def _probe_name(self, name: str) -> tuple[float, ...]:
        prompt, branch = self._probe_tokens()
        return self._score(name, [prompt], [[branch]])[0][0]

    def _probe_tokens(self) -> tuple[Tokens, Tokens]:
        ids = self.encode('In 1905 the harbour of Oslo froze; Ana moved her 3 boats south, and wrote: "we\'ll return."')
        ids = ids[: self.context_limit - 1]
        return ids[:8], ids[8:]

    @contextlib.contextmanager
    def _paused_for_update(self) -> Iterator[None]:
        """Without spans from the engine nothing may be drawn across an update: what is running ends first.

        SGLang cannot wait, so there it is aborted. Whatever goes wrong in between, the engine goes on afterwards, and the
        error that says why is the one that is raised."""
        spans = "version_spans" in self._proven
        self.pause("keep" if spans else "abort" if self._card.owner == "sglang" else "wait")
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
        """abort: running samples end at once with what they have; wait: they end first; keep: they freeze until `resume`.

        SGLang knows no wait; there, keep puts running samples back into the queue ("retract")."""
        self.require("pause")
        if mode not in ("abort", "wait", "keep"):
            raise UnknownName("pause mode", mode, ("abort", "wait", "keep"))
        if self._card.owner != "sglang":
            self._client.post("/pause", {}, query={"mode": mode}, idempotent=True, control=True)
        elif mode == "wait":
            raise MissingCapability(f"SGLang at {self.url} cannot pause by waiting.", "Use abort or keep.")
        else:
            body = {"mode": "retract" if mode == "keep" else mode}
            self._client.post("/pause_generation", body, idempotent=True, control=True)

    def resume(self) -> None:
        """Raises EngineError where the engine says that it is paused all the same."""
        self.require("pause")
        if self._card.owner == "sglang":
            self._client.post("/continue_generation", {}, idempotent=True, control=True)
            return
        self._client.post("/resume", {}, idempotent=True, control=True)
        if (self._client.get("/is_paused") or {}).get("is_paused"):
            raise EngineError(f"{self.url} is still paused after POST /resume.", "Does another client pause it?")

    def abort(self, ids: Iterable[str] | None = None) -> None:
        """End running requests of this client: those named (see `in_flight`), or all. Their samples come back as ABORTED."""
        self.require("abort")
        named = [self._wire.id_form.format(each) for each in (self.in_flight if ids is None else ids)]
        if self._card.owner == "sglang":
            for each in named:
                self._client.post("/abort_request", {"rid": each}, idempotent=True, control=True)
        elif named:
            self._client.post("/abort_requests", {"request_ids": named}, idempotent=True, control=True)

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
        prompt, _ = self._probe_tokens()
        params = SamplingParams(max_tokens=min(8, self.context_limit - len(prompt) - 1))
        ((drawn,),), labelled = self._labelled([prompt], params)
        if labelled and self._card.owner == "sglang":
            self._proven = Proven(self._proven.there | {"version_spans"}, self._proven.refusals)
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
            prompt, _ = self._probe_tokens()
            (drawn,) = self._sample([prompt], SamplingParams(max_tokens=16, temperature=0.5))[0]
            ((raw,),) = self._score(self._publisher.in_service.name, [prompt], [[drawn.ids]])
            self._temperature_shown = mean_gap(drawn.logprobs, raw) > 2 * self._publisher.tolerance
        if not self._temperature_shown:
            raise MissingCapability(
                f"The engine at {self.url} returns log-probabilities from before the temperature, which did not draw the tokens.",
                FIXES["any_temperature"],
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
