"""Publication of weights to an engine, with proof: name or label them, read that back, and score a probe on both sides.

Adapters that never reach the sampler look like slowly growing staleness and nothing else: no error, no odd number. So a
publication counts only when

1. the engine lists the new name (adapters) or says the new version label (full weights),
2. both sides give a fixed probe sequence the same log-probabilities, within the tolerance on their mean gap, and
3. the engine's moved about as much as ours did. An update smaller than the tolerance would pass the second test without having
   arrived; it does not pass this one. Updates smaller than the noise between both sides are added up until they are not.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepworth.episodes.model import Receipt
from keepworth.models.errors import BadAnswer, DeliveryFailed, EngineError, NothingDelivered
from keepworth.models.http_client import JsonClient

Scores = tuple[float, ...]
_LOOK_AT_THE_SERVER = (
    "Look at the server's log; can it read the folder, and is it one server and not a balancer in front of several?"
)


@dataclass(frozen=True, slots=True)
class InService:
    """The weights that new samples are drawn under. by_name: an adapter; else the base weights under their label."""

    name: str
    version: int
    by_name: bool


class Publisher:
    """Keeps the names of one run: `run@version`, the newest `max_staleness + 1` of them loaded, none ever used twice.

    Args:
        client: Of the engine.
        base: The served model's name.
        run: First part of the names.
        max_staleness: How many versions behind the newest stay loaded.
        tolerance: Nats by which both sides may differ, in the mean over the probe's tokens.
        score: The engine's log-probabilities of the probe under the weights or adapter of a name.
        pause: Holds the engine still inside.
    """

    def __init__(
        self,
        client: JsonClient,
        base: str,
        run: str,
        max_staleness: int,
        tolerance: float,
        score: Callable[[str], Scores],
        pause: Callable[[], AbstractContextManager[None]],
    ) -> None:
        if max_staleness < 0 or not tolerance > 0:
            raise ValueError(
                f"max_staleness must be at least 0 and probe_tolerance positive, not {max_staleness} and {tolerance}"
            )
        if "@" in run or "/" in run:
            raise ValueError(f"a run's name must not hold @ or /, which {run!r} does")
        self._client, self._base, self._run = client, base, run
        self._score, self._pause = score, pause
        self.versions_kept = max_staleness + 1
        self.tolerance = tolerance
        self.in_service = InService(base, 0, by_name=False)
        self.updates = 0  # of the base weights, proven or not
        self._loaded: list[str] = []
        self._labels: dict[str, int] = {}
        self._noise = 0.0
        self._before: tuple[Scores, Scores] | None = None  # the witness's and the engine's, at the last proof
        self._unloader = ThreadPoolExecutor(1, thread_name_prefix="unload")
        self._unloading: Future[None] | None = None

    def version_of(self, label: str) -> int:
        """Return the version behind a weight label; what was there at the start is 0. Raises BadAnswer."""
        if not self._labels:
            self._labels[label] = 0
        if label not in self._labels:
            raise BadAnswer(
                f"{self._client.url} sampled under weights {label!r}, which this run did not publish.",
                "Let one run publish to an engine; connect again to go on with what is there.",
            )
        return self._labels[label]

    def calibrate(self, local: Scores) -> float:
        """See `HttpModel.calibrate`. local: the witness's log-probabilities of the probe."""
        theirs = self._score(self.in_service.name)
        gap = mean_gap(local, theirs)
        if gap > self.tolerance:
            raise DeliveryFailed(
                f"Before any publication {self._client.url} and the witness differ by {gap:.4g} nats a token on the probe, "
                f"more than the tolerance of {self.tolerance:g}.",
                "They must start from the same weights; a wider dtype gap needs a wider probe_tolerance.",
            )
        self._noise, self._before = gap, (local, theirs)
        return gap

    def publish(self, folder: Path, version: int, local: Scores) -> Receipt:
        """See `HttpModel.publish`."""
        begun = time.perf_counter()
        if version <= self.in_service.version:
            raise EngineError(
                f"Version {version} was to be published after version {self.in_service.version}.",
                "Versions only grow: a name is never used twice.",
            )
        self._wait_for_unloading()
        before = self._before or ((), self._score(self.in_service.name))
        if holds_adapter(folder):
            name = f"{self._run}@{version}"
            with self._loading(folder, name):
                gap = self._prove(version, before, local, self._score(name))
            self._loaded.append(name)
            self.in_service = InService(name, version, by_name=True)
        else:
            if self.in_service.by_name:
                raise EngineError(
                    "Full weights were to be published after adapters of the same run.",
                    "One run publishes one or the other: adapters are relative to the base weights.",
                )
            gap = self._prove(version, before, local, self._install(folder, version))
            self.in_service = InService(self._base, version, by_name=False)
        # An adapter is unloaded after its last request: nobody waits here for that.
        old, self._loaded = self._loaded[: -self.versions_kept], self._loaded[-self.versions_kept :]
        if old:
            self._unloading = self._unloader.submit(self._forget, *old)
        return Receipt(version, gap, time.perf_counter() - begun)

    def rehearse(self, folder: Path, local: Scores) -> None:
        """See `HttpModel.rehearse`."""
        if holds_adapter(folder):
            name = f"{self._run}@rehearsal-{secrets.token_hex(4)}"
            with self._loading(folder, name):
                theirs = self._score(name)
            self._forget(name)
        else:
            theirs = self._install(folder, 0)
        self._require_near("the rehearsal", mean_gap(local, theirs))

    def unload(self) -> None:
        """Take every adapter of this run out, as far as the engine still answers; the base weights are then in service."""
        self._wait_for_unloading()
        self._forget(*self._loaded)
        self._loaded.clear()
        if self.in_service.by_name:
            self.in_service = InService(self._base, self.in_service.version, by_name=False)

    def close(self) -> None:
        self._unloader.shutdown(wait=False)

    def _wait_for_unloading(self) -> None:
        """The engine has room for one adapter more than are kept."""
        if self._unloading is not None:
            self._unloading.result()
            self._unloading = None

    # -- adapters ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _loading(self, folder: Path, name: str) -> Iterator[None]:
        """Load the adapter in `folder` as `name`, and take it back where that, or what follows inside, fails."""
        settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        if settings.get("modules_to_save"):
            raise EngineError(
                f"The adapter in {folder} also trains whole modules ({', '.join(settings['modules_to_save'])}).",
                "Engines load only the low-rank tensors: train without modules_to_save.",
            )
        if name in self._listed():
            raise EngineError(
                f"{self._client.url} already has an adapter {name!r}, of an earlier run or another client.",
                "Choose another run name: a reused one may answer from the caches of the old weights.",
            )
        try:
            self._client.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
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
        """Unload what was not proven, or is not needed. That it cannot be unloaded either must not hide why."""
        for name in names:
            with suppress(EngineError):
                self._client.post("/v1/unload_lora_adapter", {"lora_name": name}, idempotent=True)

    # -- full weights -----------------------------------------------------------------------------------------------

    def _install(self, folder: Path, version: int) -> Scores:
        """Return what the engine says of the probe under the weights in `folder`, which it now labels with the version."""
        if not any(folder.glob("*.safetensors")):
            raise FileNotFoundError(f"{folder} holds neither adapter_config.json nor safetensors: nothing to publish")
        if not (folder / "config.json").is_file():
            raise EngineError(
                f"{folder} holds tensors and no config.json: {self._client.url} would load half a model, or none.",
                "Publish a complete checkpoint folder, or train an adapter.",
            )
        label = f"{self._run}@{version}"
        self._labels[label] = version  # requests that run across the update may report it before the proof
        with self._pause():
            # No released weight transfer backend of vLLM reads a folder; its worker's own method does.
            call = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            self._client.post("/collective_rpc", call)
            self._client.post("/update_weight_version", {"new_version": label}, idempotent=True)
            self.updates += 1
        if (there := self._label()) != label:
            raise NothingDelivered(
                f"{self._client.url} says that its weights are {there!r} after {label!r} was published.",
                _LOOK_AT_THE_SERVER,
            )
        return self._score(self._base)

    def _label(self) -> Any:
        return (self._client.get("/weight_info") or {}).get("weight_version")

    # -- the proof --------------------------------------------------------------------------------------------------

    def _prove(self, version: int, before: tuple[Scores, Scores], local: Scores, theirs: Scores) -> float:
        """Return the largest gap of a token. Raises NothingDelivered or DeliveryFailed."""
        gap, moved_there = mean_gap(local, theirs), mean_gap(theirs, before[1])
        moved_here = mean_gap(local, before[0]) if before[0] else 0.0
        if moved_here > 4 * self._noise and moved_there < moved_here / 4:
            raise NothingDelivered(
                f"Version {version} did not reach {self._client.url}: on the probe the witness moved by {moved_here:.4g} "
                f"nats and the engine by {moved_there:.4g}.",
                _LOOK_AT_THE_SERVER,
            )
        if not before[0] and gap > self.tolerance and moved_there == 0:
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
        if gap > self.tolerance:
            raise DeliveryFailed(
                f"After {what} {self._client.url} and the witness differ by {gap:.4g} nats a token on the probe, more than "
                f"the tolerance of {self.tolerance:g}.",
                "Other weights arrived than were sent, or the two sides compute differently (dtype, scaling of the adapter).",
            )


def holds_adapter(folder: Path) -> bool:
    return (folder / "adapter_config.json").exists()


def mean_gap(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the mean absolute difference: in bfloat16 single tokens of equal weights differ by a tenth of a nat."""
    return sum(abs(x - y) for x, y in zip(a, b, strict=True)) / max(1, len(a))
