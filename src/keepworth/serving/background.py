"""An adapter that trains beside the traffic: from the episodes that were recorded and rewarded, in rounds.

A round trains on episodes that no round trained on before, and saves an adapter. It is probed on episodes that are held out:
what was rewarded there must have become likelier, and what was not less likely (importance sampling). Only then it is swapped in,
and only where what the serving model read from the file is what was trained. From then on chance leaves a share of the episodes
to what it took the place of. The adapter is taken back where its episodes have less reward.

What was begun is on file before it is begun: after a kill, a round is trained again on the same episodes, and none is used twice.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import math
import os
import shutil
import statistics
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from keepworth.episodes.needs import needs_train

import torch

from keepworth.episodes.episode import Episode, Group
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import Clip, Outcome, Token
from keepworth.memory.durable_file import replacing
from keepworth.memory.item import timestamp
from keepworth.memory.memory import Memory
from keepworth.memory.store import injections
from keepworth.models.adapter import attach_lora, save_trained
from keepworth.models.inprocess import InProcessModel
from keepworth.serving.local_model import ADAPTER_WEIGHTS, LocalModel
from keepworth.serving.metrics import Metrics

_LOG = logging.getLogger("keepworth.serving")
ROLE = "gateway"
_LARGEST_WEIGHT = 5.0
OBJECTIVE = Objective(
    name="background",
    advantage=Outcome("batch"),
    ratio=Token("behaviour"),
    surrogate=Clip(0.2, 0.2),
    aggregation="seq-mean-token-mean",
)
TRAINING, REFUSED, SERVING, TAKEN_BACK, REPLACED = "training", "refused", "serving", "taken back", "replaced"


@dataclass(frozen=True, slots=True)
class BackgroundSettings:
    """How often and how carefully an adapter is trained.

    Args:
        episodes: That one round trains on.
        held_out, control: One episode in so many is held out of training, or answered by what an adapter took the place of.
        fewest: Episodes on each side of a comparison.
        steps: Of the optimiser, over all episodes of a round.
        deviations: By how many standard errors a probe must be above zero for a swap, or below to take an adapter back.
        seconds: Between two looks at what is new.
    """

    episodes: int = 64
    held_out: int = 4
    control: int = 4
    fewest: int = 12
    steps: int = 8
    learning_rate: float = 2e-4
    rank: int = 8
    deviations: float = 1.28
    seconds: float = 5.0
    seed: int = 0


@dataclass(slots=True)
class TrainingRound:
    """One adapter, from its training to its end.

    Args:
        before: The adapter it went on from, "" for the model itself.
        since: When it was swapped in.
        reason: Why it ended as it did.
        probe, watch: The reward that it adds by the probe, and among the traffic: gain, standard error, episodes.
    """

    number: int
    before: str
    episodes: list[str]
    state: str = TRAINING
    reason: str = ""
    since: str = ""
    probe: dict[str, float] = field(default_factory=dict)
    watch: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"round@{self.number}"


class BackgroundTraining:
    """Trains beside `model`, on what `memory` recorded, and keeps adapters and rounds in `folder`.

    Made before the served model has an adapter: the learner shares its weights, and has an adapter of its own."""

    def __init__(
        self,
        model: LocalModel,
        memory: Memory,
        folder: Path,
        metrics: Metrics,
        settings: BackgroundSettings | None = None,
    ) -> None:
        self.model, self.memory, self.folder, self.metrics = model, memory, folder, metrics
        self.settings = settings or BackgroundSettings()
        metrics.describe(
            "keepworth_adapter_rounds_total", "Rounds of background training, by what became of the adapter."
        )
        shared = {id(parameter): parameter for parameter in model.network.parameters()}
        network = copy.deepcopy(model.network, shared)
        self._learner = InProcessModel(network, model.tokenizer, model.name, model.token_budget)
        self._learner.folder, self._learner.base = model.folder, model.base
        self._named = attach_lora(self._learner, self.settings.rank, 2.0 * self.settings.rank, self.settings.seed)
        self._fresh = {name: value.detach().clone() for name, value in self._named.items()}
        self.rounds = _read(folder)
        self._rewarded: dict[str, Episode] = {}
        self._drawn_at: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="background-training", daemon=True)
        self._serve_again()

    @property
    def current(self) -> TrainingRound | None:
        """Whose adapter answers; None for the model itself."""
        return next((each for each in reversed(self.rounds) if each.state == SERVING), None)

    def chosen(self, tenant: str, episode: str) -> str:
        """The adapter that answers an episode. Other tenants are answered by the model itself: nothing of one is another's."""
        current = self.current
        if current is None or tenant:
            return ""
        return current.before if self._is_control(episode) else current.name

    def _is_control(self, episode: str) -> bool:
        return bool(episode) and _draw(f"control {episode}") % self.settings.control == 0

    def _is_held_out(self, episode: str) -> bool:
        return _draw(f"held out {episode}") % self.settings.held_out == 0

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """What is being trained is begun again when the server is."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        with suppress(OSError, AttributeError):  # behind those who wait for an answer, where the system can
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        while not self._stopping.is_set():
            try:
                self.look()
            except Exception as error:
                self.metrics.count("keepworth_memory_failures_total", at="training")
                _LOG.warning("background training failed: %s", type(error).__name__, exc_info=error)
            self._stopping.wait(self.settings.seconds)

    def look(self) -> None:
        """Take back what got worse, end what was begun, begin what there is enough for."""
        self._read_rewards()
        self._watch()
        current = self.current
        kept = set() if current is None else {current.name, current.before}
        for name in set(self.model.adapters) - kept:
            self.model.unload_adapter(name)
        training = next((each for each in self.rounds if each.state == TRAINING), None)
        if training is None:
            if current is not None and not current.watch:
                return  # it is not known yet whether it is to be gone on from
            new = self._unused()
            if len(new) < self.settings.episodes or len(self._held_out()) < self.settings.fewest:
                return
            before = "" if current is None else current.name
            training = TrainingRound(len(self.rounds) + 1, before, new[: self.settings.episodes])
            self.rounds.append(training)
            self._write()  # before anything is trained: a kill finds it, and none of its episodes is used again
        self._train(training)

    def _read_rewards(self) -> None:
        self._drawn_at = injections.rewarded_calls(self.memory.store)
        self._rewarded = {id: record for id, record in self._rewarded.items() if id in self._drawn_at}
        for id in set(self._drawn_at) - set(self._rewarded):
            record = self.memory.episode_record(id)
            # What was drawn greedily says nothing of what else might have been said.
            if record.segments and record.segments[0].ids and record.segments[0].temperature:
                self._rewarded[id] = record
        self._rewarded = {id: self._rewarded[id] for id in self._drawn_at if id in self._rewarded}  # oldest first

    def _unused(self) -> list[str]:
        """Episodes that no round has trained on, of the temperature that most were drawn at: a step takes one."""
        used = {id for each in self.rounds for id in each.episodes}
        by: dict[float, list[str]] = {}
        for id, record in self._rewarded.items():
            if id not in used and not self._is_held_out(id):
                by.setdefault(record.segments[0].temperature, []).append(id)
        return max(by.values(), key=len, default=[])

    def _held_out(self) -> list[Episode]:
        """The newest of the held-out episodes, at most as many as a round trains on."""
        held = [record for id, record in self._rewarded.items() if self._is_held_out(id)]
        return held[-self.settings.episodes :]

    # -- a round ------------------------------------------------------------------------------------------------------

    def _train(self, round: TrainingRound) -> None:
        episodes = [self._rewarded[id] for id in round.episodes if id in self._rewarded]  # others were erased since
        if len(episodes) < 2:
            self._end(round, REFUSED, "its episodes are gone")
            return
        values = self._fresh
        if round.before:
            there = _tensors(self._folder(round.before))
            values = {name: there[name.replace(".default.", ".")] for name in self._named}
        with torch.no_grad():
            for name, value in self._named.items():
                value.copy_(values[name])
        longest = max(len(each.segments[0].context) + len(each.segments[0].ids) for each in episodes)
        optimisation = Optimisation(self.settings.learning_rate, token_budget=max(2048, 2 * longest))
        groups = [Group(each.task, each.memory_snapshot, (each,)) for each in episodes]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the clip has an effect from the second step on
            learner = Learner(self._learner, self._named, OBJECTIVE, optimisation, ROLE)
        try:
            for _ in range(self.settings.steps):
                learner.update(groups)
                if self._stopping.is_set():
                    return
        except FloatingPointError as error:
            self._end(round, REFUSED, str(error))
            return
        self._learner.network.eval()
        save_trained(self._learner, self._named, self._folder(round.name))
        try:
            self.model.load_adapter(round.name, self._folder(round.name))
            self._require_delivered(round.name)
        except (KeepworthError, OSError, ValueError) as error:
            self._end(round, REFUSED, f"not delivered: {error}")
            return
        round.probe = self._estimate(round)
        if round.probe["gain"] <= self.settings.deviations * round.probe["error"]:
            self._end(round, REFUSED, "the held-out probe did not rise")
            return
        for each in self.rounds:
            if each.state == SERVING:
                each.state = REPLACED
        self._end(round, SERVING, "the held-out probe rose")

    def _require_delivered(self, name: str) -> None:
        """Raises KeepworthError unless what the serving model has is, to the bit, what was trained."""
        there = self.model.adapter_weights(name)
        for key, value in self._named.items():
            arrived = there.get(key.replace(".default.", "."))
            if arrived is None or not torch.equal(arrived, value.to(arrived.device, arrived.dtype)):
                raise KeepworthError(
                    f"{key} did not arrive as the learner has it.", "The adapter's file is not what was trained."
                )

    def _estimate(self, round: TrainingRound) -> dict[str, float]:
        """The mean over held-out episodes of (weight - 1) * (reward - mean reward); weight: how much likelier the adapter makes
        what was said than what said it, at most 5. In expectation, and but for that bound, that is the reward it adds."""
        episodes = self._held_out()
        mean = statistics.fmean(each.reward for each in episodes)
        gains = []
        for each in episodes:
            segment = each.segments[0]
            with self.model.turn(), self.model.answering_as(round.name):
                ((line,),) = self.model.score([segment.context], [[segment.ids]], segment.temperature)
            ratio = math.fsum(line) - math.fsum(segment.logprobs)
            weight = min(math.exp(min(ratio, 10.0)), _LARGEST_WEIGHT)
            gains.append((weight - 1.0) * (each.reward - mean))
        return {"gain": statistics.fmean(gains), "error": _standard_error(gains), "episodes": len(gains)}

    def _watch(self) -> None:
        """Rewards of the adapter's episodes against those that chance left to what it took the place of."""
        current = self.current
        if current is None:
            return
        names = {current.name: True, current.before or self.model.name: False}
        rewards: dict[bool, list[float]] = {True: [], False: []}
        for id, record in self._rewarded.items():
            adapted = names.get(record.segments[0].prompt_id)
            if adapted is not None and self._is_control(id) != adapted and self._drawn_at[id] >= current.since:
                rewards[adapted].append(record.reward)
        if min(map(len, rewards.values())) < self.settings.fewest:
            return
        gain = statistics.fmean(rewards[True]) - statistics.fmean(rewards[False])
        error = math.hypot(_standard_error(rewards[True]), _standard_error(rewards[False]))
        current.watch = {"gain": gain, "error": error, "episodes": sum(map(len, rewards.values()))}
        if gain < -self.settings.deviations * error:
            for each in self.rounds:
                if each.name == current.before:
                    each.state = SERVING
            self._end(current, TAKEN_BACK, "its episodes had less reward than those of what it took the place of")

    def _end(self, round: TrainingRound, state: str, reason: str) -> None:
        if state == SERVING:
            round.since = timestamp(self.memory.store.clock())
        round.state, round.reason = state, reason
        self.metrics.count("keepworth_adapter_rounds_total", state=state)
        self._write()
        _LOG.info("background training: %s is %s (%s)", round.name, state, reason)

    # -- on disk ------------------------------------------------------------------------------------------------------

    def _serve_again(self) -> None:
        """What served when the server ended; otherwise what was before it."""
        while (current := self.current) is not None:
            try:
                for name in filter(None, (current.before, current.name)):
                    if name not in self.model.adapters:
                        self.model.load_adapter(name, self._folder(name))
            except KeepworthError as error:
                current.state, current.reason = TAKEN_BACK, f"not delivered: {error}"
                self._write()
                continue
            return

    def _folder(self, name: str) -> Path:
        return self.folder / name.replace("@", "-")

    def _write(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(self.folder / "rounds.json") as out:
            out.write(json.dumps([asdict(each) for each in self.rounds], indent=1).encode())


def _read(folder: Path) -> list[TrainingRound]:
    file = folder / "rounds.json"
    if not file.exists():
        return []
    try:
        rounds = [TrainingRound(**each) for each in json.loads(file.read_bytes())]
    except (ValueError, TypeError) as error:
        raise KeepworthError(
            f"{file} holds no rounds that can be read.", f"Restore it, or move {folder} away and train anew."
        ) from error
    for each in rounds:
        if each.state == TRAINING:  # a half-written adapter is none
            shutil.rmtree(folder / each.name.replace("@", "-"), ignore_errors=True)
    return rounds


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    tensors: dict[str, torch.Tensor] = load_file(folder / ADAPTER_WEIGHTS)
    return tensors


def _draw(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
