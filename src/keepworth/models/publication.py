"""Publication of adapters to an engine, with proof: name one, read that back, and score a probe on both sides.

Adapters that never reach the sampler look like slowly growing staleness and nothing else: no error, no odd number. So a
publication counts only when

1. the engine lists the new name,
2. both sides give a fixed probe sequence the same log-probabilities, within the tolerance on their mean gap, and
3. the engine's moved about as much as ours did. An update smaller than the tolerance would pass the second test without having
   arrived; it does not pass this one. Updates smaller than the noise between both sides are added up until they are not.
"""

from __future__ import annotations

import json
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from keepworth.episodes.model import Receipt, Tokens
from keepworth.models.errors import DeliveryFailed, EngineError, NothingDelivered
from keepworth.models.http_client import JsonClient

Scores = tuple[float, ...]
_LOOK_AT_THE_SERVER = (
    "Look at the server's log; can it read the folder, and is it one server and not a balancer in front of several?"
)


@dataclass(frozen=True, slots=True)
class Serving:
    """What new samples are drawn under: an adapter's name and version, or the served model's and 0."""

    name: str
    version: int


class Scorer(Protocol):
    """The other side of a probe: the model that the learner holds."""

    def score(
        self, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]: ...


class Publishing(ABC):
    """An engine that weights are published to, under the names of one run: `run@version`, the newest `max_staleness + 1` of them
    loaded, none ever used twice.

    Args:
        client: Of the engine.
        base: The served model's name.
        run: First part of the names.
        max_staleness: How many versions behind the newest stay loaded.
        tolerance: Nats by which both sides may differ, in the mean over the probe's tokens.
    """

    def __init__(self, client: JsonClient, base: str, run: str, max_staleness: int, tolerance: float) -> None:
        if max_staleness < 0 or not tolerance > 0:
            raise ValueError(
                f"max_staleness must be at least 0 and probe_tolerance positive, not {max_staleness} and {tolerance}"
            )
        if "@" in run or "/" in run:
            raise ValueError(f"a run's name must not hold @ or /, which {run!r} does")
        self._client, self._base, self._run = client, base, run
        self.versions_kept = max_staleness + 1
        """How many published adapters stay loaded at once."""
        self._tolerance = tolerance
        self._serving = Serving(base, 0)
        self._loaded: list[str] = []
        self._noise = 0.0
        self._before: tuple[Scores, Scores] | None = None  # the witness's and the engine's, at the last proof
        self._unloader = ThreadPoolExecutor(1, thread_name_prefix="unload")
        self._unloading: Future[None] | None = None

    @property
    @abstractmethod
    def probe(self) -> tuple[Tokens, Tokens]:
        """What both sides of a proof score: a beginning, and what follows it."""

    @abstractmethod
    def require(self, *capabilities: str) -> None:
        """Raises MissingCapability for the first of them that a harmless call does not prove, UnknownName for what is none."""

    @abstractmethod
    def _score_under(
        self, name: str, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]]
    ) -> list[list[tuple[float, ...]]]:
        """Under the weights or adapter called `name`, which need not be in service yet."""

    @property
    def version(self) -> int:
        """Of the weights in service: the last publication that was proven to have arrived; 0 before the first."""
        return self._serving.version

    def calibrate(self, witness: Scorer) -> float:
        """Return the mean gap in nats between both sides on the probe while they hold the same weights: the noise floor.

        Call it once before the first publication: updates smaller than the tolerance are then told from no update at all.
        Raises DeliveryFailed where the gap is above the tolerance: they are different models, or one is broken.
        """
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
        """Bring the adapter in `folder` to the engine and prove that it arrived; from then on samples are of `version`.

        After an error the version before stays in service.

        Args:
            folder: Of a PEFT adapter, loaded as `run@version` beside the versions before it. The server must be able to read it.
            version: Larger than the one before.
            witness: The model that holds these weights on this side.

        Raises:
            EngineError: MissingCapability, DeliveryFailed (NothingDelivered for a publication without effect), EngineRefused.
        """
        begun = time.perf_counter()
        folder, local = self._publishable(folder), self._scored_by(witness)
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
        # An adapter is unloaded after its last request: nobody waits here for that.
        old, self._loaded = self._loaded[: -self.versions_kept], self._loaded[-self.versions_kept :]
        if old:
            self._unloading = self._unloader.submit(self._forget, *old)
        return Receipt(version, gap, time.perf_counter() - begun)

    def rehearse(self, folder: Path | str, witness: Scorer) -> None:
        """Publish, once, an adapter that computes what the engine computes already, and take it out again.

        Called before training, it shows that the engine takes this kind of adapter at all: that its routes are there does not.
        Raises what `publish` raises."""
        folder, local = self._publishable(folder), self._scored_by(witness)
        name = f"{self._run}@rehearsal-{secrets.token_hex(4)}"
        with self._loading(folder, name):
            theirs = self._scored(name)
        self._forget(name)
        self._require_near("the rehearsal", mean_gap(local, theirs))

    def unload(self) -> None:
        """Take the adapters of this run out of the engine, as far as it still answers."""
        self._wait_for_unloading()
        self._forget(*self._loaded)
        self._loaded.clear()
        self._serving = Serving(self._base, self._serving.version)

    def _publishable(self, folder: Path | str) -> Path:
        folder = Path(folder).absolute()
        if not folder.is_dir():
            raise FileNotFoundError(f"There is no folder {folder} to publish")
        if not (folder / "adapter_config.json").exists():
            raise FileNotFoundError(f"{folder} holds no adapter_config.json: engines are sent adapters alone")
        self.require("adapters")
        return folder

    def _scored_by(self, witness: Scorer) -> Scores:
        prompt, branch = self.probe
        return witness.score([prompt], [[branch]])[0][0]

    def _scored(self, name: str) -> Scores:
        prompt, branch = self.probe
        return self._score_under(name, [prompt], [[branch]])[0][0]

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


def mean_gap(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the mean absolute difference: in bfloat16 single tokens of equal weights differ by a tenth of a nat."""
    return sum(abs(x - y) for x, y in zip(a, b, strict=True)) / max(1, len(a))
