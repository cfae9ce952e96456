"""Publication of weights with proof: name or label them, read that back, and score a probe on both sides.

Adapters that never reach the sampler look like slowly growing staleness and nothing else: no error, no odd number. So a
publication counts only when

1. the engine lists the new name (adapters) or says the new version label (full weights),
2. both sides give a fixed probe sequence the same log-probabilities, within the tolerance on their mean gap, and
3. the engine's moved about as much as ours did. An update smaller than the tolerance would pass the second test without
   having arrived; it does not pass this one. Updates smaller than the noise between both sides are added up until they can be
   told from it.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from keepworth.episodes.model import Receipt, Tokens
from keepworth.models.errors import BadAnswer, DeliveryFailed, EngineError, NothingDelivered
from keepworth.models.http_client import JsonClient

Scores = tuple[float, ...]
ScoreOf = Callable[[str], Scores]
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
    local: Scores
    theirs: Scores


class Publisher:
    """Keeps the names of one run: `run@version`, the newest `max_staleness + 1` of them loaded, none ever used twice."""

    def __init__(
        self, client: JsonClient, base: str, run: str, max_staleness: int, tolerance: float, owner: str
    ) -> None:
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
        self._native = owner == "sglang"
        self._prefix = "" if self._native else "/v1"
        self._loaded: list[str] = []
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

    def calibrate(self, local: Scores, score_of: ScoreOf) -> float:
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
        local: Scores,
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
            # SGLang unloads only after an adapter's last request: nobody waits here for that.
            old, self._loaded = self._loaded[: -self.versions_kept], self._loaded[-self.versions_kept :]
            if old:
                self._unloading = self._unloader.submit(self._forget, *old)
        return Receipt(version, gap, time.perf_counter() - begun)

    def rehearse(
        self, folder: Path, local: Scores, score_of: ScoreOf, paused: Callable[[], AbstractContextManager[None]]
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

    def _publish_adapter(self, folder: Path, version: int, before: _Proven, local: Scores, score_of: ScoreOf) -> float:
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

    def _load(self, folder: Path, name: str, score_of: ScoreOf) -> Scores:
        """What the engine says of the probe under the adapter in `folder`, which it now calls `name`."""
        _check_adapter(folder)
        if name in self._listed():
            raise _Taken(
                f"{self._client.url} already has an adapter {name!r}, of an earlier run or another client.",
                "Choose another run name: a reused one may answer from the caches of the old weights.",
            )
        body = {"lora_name": name, "lora_path": str(folder)}
        answer = self._client.post(f"{self._prefix}/load_lora_adapter", body, control=True)
        listed = self._listed()
        if self._native and isinstance(answer, dict):  # not every version of SGLang lists adapters in /v1/models
            listed |= set(answer.get("loaded_adapters") or ())
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
                self._client.post(f"{self._prefix}/unload_lora_adapter", body, idempotent=True, control=True)

    # -- full weights -----------------------------------------------------------------------------------------------

    def _publish_weights(
        self,
        folder: Path,
        version: int,
        before: _Proven,
        local: Scores,
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
    ) -> Scores:
        """What the engine says of the probe under the weights in `folder`, which it now labels `label`."""
        self._check_weights(folder)
        with paused():
            if self._native:
                body = {"model_path": str(folder), "weight_version": label, "flush_cache": True}
                answer = self._client.post("/update_weights_from_disk", body, control=True) or {}
                if answer.get("success") is False:
                    raise DeliveryFailed(f"{self._client.url} did not take the weights: {answer.get('message')}.")
            else:
                # No released weight transfer backend of vLLM reads a folder; its worker's own method does.
                call = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
                self._client.post("/collective_rpc", call, control=True)
                self._client.post("/update_weight_version", {"new_version": label}, idempotent=True, control=True)
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
        if not self._native:
            return (self._client.get("/weight_info") or {}).get("weight_version")
        for path in ("/model_info", "/get_model_info"):  # the second is the older name
            tried = self._client.tried("GET", path)
            if tried.well and isinstance(tried.answer, dict):
                return tried.answer.get("weight_version")
        return None

    # -- the proof --------------------------------------------------------------------------------------------------

    def _prove(self, version: int, before: _Proven, local: Scores, theirs: Scores) -> float:
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
