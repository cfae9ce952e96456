"""An adapter that trains beside the traffic: from the episodes that were recorded and rewarded, in rounds.

A round trains on episodes that no round trained on before, and saves an adapter. It is probed on episodes that are held out:
what was rewarded there must have become likelier, and what was not less likely (importance sampling). Only then it is swapped in,
and only where the serving model, with the adapter as it was read from its file, scores a text as the learner does. From then on
chance leaves a share of the episodes to what it took the place of. The adapter is taken back where its episodes have less reward.

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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from keepworth.episodes.needs import needs_train

import torch

from keepworth.episodes.episode import Episode, Group
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import Tokens
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import Clip, Outcome, Token
from keepworth.memory.durable_file import replacing
from keepworth.memory.item import timestamp
from keepworth.memory.memory import Memory
from keepworth.memory.store import injections
from keepworth.models.adapter import Named, attach_lora, probe, save_trained
from keepworth.models.http_engine import mean_gap
from keepworth.models.inprocess import InProcessModel
from keepworth.serving.calls import NotServed
from keepworth.serving.metrics import Metrics
from keepworth.serving.served_model import ADAPTER_WEIGHTS, ServedModel

_LOG = logging.getLogger("keepworth.serving")
ROLE = "gateway"
_LARGEST_WEIGHT = 5.0
_GAPS = {torch.float64: 1e-6, torch.float32: 1e-3}
_GAP = 0.1
"""Nats a token by which the two sides may differ on the probe: bfloat16 rounds where steps are taken one by one."""
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
    """episodes: that one round trains on. held_out, control: one episode in so many is held out of training, or answered by what
    an adapter took the place of. fewest: episodes on each side of a comparison. steps: of the optimiser, over all episodes of a
    round. deviations: by how many standard errors a probe must be above zero for a swap, or below to take an adapter back.
    seconds: between two looks at what is new."""

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


@dataclass(frozen=True, slots=True)
class AdapterProbe:
    """How much reward a change adds, per episode: the estimate, its standard error, and from how many episodes."""

    gain: float
    error: float
    episodes: int

    def above(self, deviations: float) -> bool:
        return self.gain - deviations * self.error > 0.0

    def below(self, deviations: float) -> bool:
        return self.gain + deviations * self.error < 0.0


@dataclass(slots=True)
class TrainingRound:
    """before: the adapter it went on from, "" for the model itself. scores: of the probe text, by the learner. since: when it was
    swapped in. reason: why it ended as it did. probe, watch: what it was swapped in by, and is watched by."""

    number: int
    before: str
    episodes: list[str]
    state: str = TRAINING
    reason: str = ""
    since: str = ""
    scores: list[float] = field(default_factory=list)
    probe: dict[str, float] = field(default_factory=dict)
    watch: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"round@{self.number}"


class _Ending(Exception):
    """The server ends: what was begun is begun again when it is started."""


class BackgroundTraining:
    """Trains beside `model`, on what `memory` recorded, and keeps adapters and rounds in `folder`.

    Made before the served model has an adapter: the learner shares its weights, and has an adapter of its own."""

    def __init__(
        self,
        model: ServedModel,
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
        shared = {id(each): each for each in model.network.parameters()}
        self._learner = InProcessModel(
            copy.deepcopy(model.network, shared), model.tokenizer, model.name, model.token_budget
        )
        self._learner.folder, self._learner.base = model.folder, model.base
        self._named = attach_lora(self._learner, self.settings.rank, 2.0 * self.settings.rank, self.settings.seed)
        self._fresh = {name: value.detach().clone() for name, value in self._named.items()}
        self._probe = probe(self._learner)
        self.rounds = _read(folder)
        self._rewarded: dict[str, Episode] = {}
        self._drawn_at: dict[str, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="background-training", daemon=True)
        self._serve_again()

    # -- who answers --------------------------------------------------------------------------------------------------

    @property
    def current(self) -> TrainingRound | None:
        """Whose adapter answers; None for the model itself."""
        return next((each for each in reversed(self.rounds) if each.state == SERVING), None)

    def chosen(self, tenant: str, episode: str) -> str:
        """The adapter that answers an episode. Other tenants are answered by the model itself: nothing of one is another's."""
        current = self.current
        if current is None or tenant:
            return ""
        if self._of_control(episode) and (not current.before or current.before in self.model.adapters()):
            return current.before
        return current.name

    def _of_control(self, episode: str) -> bool:
        return bool(episode) and _draw(f"control {episode}") % self.settings.control == 0

    # -- the thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """What is being trained is begun again when the server is."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        with suppress(
            OSError, AttributeError
        ):  # behind those who wait for an answer, where the system has a way to say so
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        while not self._stopping.is_set():
            try:
                self.look()
            except _Ending:
                return
            except Exception as error:
                self.metrics.count("keepworth_memory_failures_total", at="training")
                _LOG.warning("background training failed: %s", type(error).__name__, exc_info=error)
            self._stopping.wait(self.settings.seconds)

    def look(self) -> None:
        """Take back what got worse, end what was begun, begin what there is enough for."""
        self._tidy()
        self._read_rewards()
        self._watch()
        open_round = next((each for each in self.rounds if each.state == TRAINING), None)
        if open_round is None:
            current = self.current
            if current is not None and not current.watch:
                return  # it is not known yet whether it is to be gone on from
            used = {id for each in self.rounds for id in each.episodes}
            new = self._of_one_temperature([id for id in self._rewarded if id not in used and not self._held_out(id)])
            if len(new) < self.settings.episodes or len(self._probed()) < self.settings.fewest:
                return
            before = "" if current is None else current.name
            open_round = TrainingRound(len(self.rounds) + 1, before, new[: self.settings.episodes])
            self.rounds.append(open_round)
            self._write()  # before anything is trained: a kill finds it, and none of its episodes is used again
        self._train(open_round)

    # -- what was recorded --------------------------------------------------------------------------------------------

    def _read_rewards(self) -> None:
        self._drawn_at = injections.rewarded_calls(self.memory.store)
        self._rewarded = {
            id: record for id, record in self._rewarded.items() if id in self._drawn_at
        }  # others are erased
        for id in self._drawn_at:
            if id not in self._rewarded:
                record = self.memory.episode_record(id)
                # What was drawn greedily tells nothing of what else might have been said.
                if record.segments and record.segments[0].ids and record.segments[0].temperature:
                    self._rewarded[id] = record

    def _of_one_temperature(self, ids: Sequence[str]) -> list[str]:
        """The most of them that were drawn alike: a step compares probabilities at one temperature."""
        by: dict[float, list[str]] = {}
        for id in ids:
            by.setdefault(self._rewarded[id].segments[0].temperature, []).append(id)
        return max(by.values(), key=len, default=[])

    def _held_out(self, episode: str) -> bool:
        return _draw(f"held out {episode}") % self.settings.held_out == 0

    def _probed(self) -> list[Episode]:
        """The newest of the held-out episodes, at most as many as a round trains on."""
        held = [record for id, record in self._rewarded.items() if self._held_out(id)]
        return held[-self.settings.episodes :]

    # -- a round ------------------------------------------------------------------------------------------------------

    def _train(self, round: TrainingRound) -> None:
        episodes = [self._rewarded[id] for id in round.episodes if id in self._rewarded]  # others were erased since
        if len(episodes) < 2:
            self._end(round, REFUSED, "its episodes are gone")
            return
        self._put(round.before)
        longest = max(len(each.segments[0].context) + len(each.segments[0].ids) for each in episodes)
        optimisation = Optimisation(self.settings.learning_rate, token_budget=max(2048, 2 * longest))
        groups = [Group(each.task, each.memory_snapshot, (each,)) for each in episodes]
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # the clip is of what said it, and has an effect from the second step on
            learner = Learner(self._learner, self._named, OBJECTIVE, optimisation, ROLE)
        try:
            for _ in range(self.settings.steps):
                learner.update(groups)
                if self._stopping.is_set():
                    raise _Ending
        except FloatingPointError as error:
            self._end(round, REFUSED, str(error))
            return
        self._learner.network.eval()
        round.scores = list(self._scored(self._learner, "", [self._probe])[0])
        save_trained(self._learner, self._named, self._folder(round))
        self._swap(round)

    def _put(self, adapter: str) -> None:
        """The weights that a round goes on from, into the learner."""
        values = self._fresh if not adapter else _loaded(self.folder / adapter.replace("@", "-"), self._named)
        with torch.no_grad():
            for name, value in self._named.items():
                value.copy_(values[name])

    def _swap(self, round: TrainingRound) -> None:
        try:
            self._deliver(round, self._named)
        except (NotServed, KeepworthError) as error:
            self._end(round, REFUSED, f"not delivered: {error}")
            return
        found = self._off_policy(round)
        round.probe = asdict(found)
        if not found.above(self.settings.deviations):
            self._unload(round.name)
            self._end(round, REFUSED, "the held-out probe did not rise")
            return
        for each in self.rounds:
            if each.state == SERVING:
                each.state = REPLACED
        self._end(round, SERVING, "the held-out probe rose")

    def _deliver(self, round: TrainingRound, trained: Named | None = None) -> None:
        """Raises NotServed where the folder cannot be read, KeepworthError where what was read is not what was trained. trained:
        what the learner has, where it has it still."""
        self.model.load_adapter(round.name, str(self._folder(round)))
        there = self._scored(self.model, round.name, [self._probe])[0]
        own = self.model.adapter_weights(round.name)
        for name, value in (trained or {}).items():
            arrived = own.get(name.replace(".default.", "."))
            if arrived is None or not torch.equal(arrived, value.to(arrived.device, arrived.dtype)):
                self._unload(round.name)
                raise KeepworthError(
                    f"{name} did not arrive as the learner has it.", "The adapter's file is not what was trained."
                )
        gap = mean_gap(there, round.scores)
        if not gap <= _GAPS.get(self.model.dtype, _GAP):
            self._unload(round.name)
            raise KeepworthError(
                f"The serving model and the learner differ by {gap:.3g} nats on the probe.",
                "The adapter's file is not what was trained.",
            )

    def _off_policy(self, round: TrainingRound) -> AdapterProbe:
        """The mean over held-out episodes of (weight - 1) * (reward - mean reward); weight: how much likelier the adapter makes
        what was said than what said it, at most 5. In expectation, and but for that bound, that is the reward it adds."""
        episodes = self._probed()
        pairs = [(each.segments[0].context, each.segments[0].ids) for each in episodes]
        lines = self._scored(self.model, round.name, pairs, [each.segments[0].temperature for each in episodes])
        mean = statistics.fmean(each.reward for each in episodes)
        gains = []
        for each, line in zip(episodes, lines, strict=True):
            ratio = math.fsum(line) - math.fsum(each.segments[0].logprobs)
            weight = min(math.exp(min(ratio, 10.0)), _LARGEST_WEIGHT)
            gains.append((weight - 1.0) * (each.reward - mean))
        return AdapterProbe(statistics.fmean(gains), _standard_error(gains), len(gains))

    def _scored(
        self,
        model: InProcessModel,
        name: str,
        pairs: Sequence[tuple[Tokens, Tokens]],
        temperatures: Sequence[float] = (),
    ) -> list[tuple[float, ...]]:
        lines: list[tuple[float, ...]] = []
        for place, (context, ids) in enumerate(pairs):
            temperature = temperatures[place] if temperatures else 1.0
            if isinstance(model, ServedModel):
                scored = model.score_as(name, f"probe-{name}-{place}", [context], [[ids]], temperature)
                if scored is None:
                    raise _Ending
            else:
                with torch.no_grad():
                    scored = model.score([context], [[ids]], temperature)
            lines.append(scored[0][0])
        return lines

    # -- afterwards ---------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Rewards of the adapter's episodes against those that chance left to what it took the place of."""
        current = self.current
        if current is None:
            return
        names = {current.name: True, current.before or self.model.name: False}
        rewards: dict[bool, list[float]] = {True: [], False: []}
        for id, record in self._rewarded.items():
            own = names.get(record.segments[0].prompt_id)
            if own is not None and self._of_control(id) != own and self._drawn_at[id] >= current.since:
                rewards[own].append(record.reward)
        if min(map(len, rewards.values())) < self.settings.fewest:
            return
        gain = statistics.fmean(rewards[True]) - statistics.fmean(rewards[False])
        error = math.hypot(_standard_error(rewards[True]), _standard_error(rewards[False]))
        found = AdapterProbe(gain, error, sum(map(len, rewards.values())))
        current.watch = asdict(found)
        if found.below(self.settings.deviations):
            self._take_back(current)

    def _take_back(self, round: TrainingRound) -> None:
        before = next((each for each in self.rounds if each.name == round.before), None)
        if before is not None:
            before.state = SERVING
        self._end(round, TAKEN_BACK, "its episodes had less reward than those of what it took the place of")

    def _end(self, round: TrainingRound, state: str, reason: str) -> None:
        if state == SERVING:
            round.since = timestamp(self.memory.store.clock())
        round.state, round.reason = state, reason
        self.metrics.count("keepworth_adapter_rounds_total", state=state)
        self._write()
        _LOG.info("background training: %s is %s (%s)", round.name, state, reason)

    def _tidy(self) -> None:
        """Unload what answers nobody any more: not at once, as somebody may just have been given its name."""
        kept = {each.name for each in self.rounds if each.state == SERVING}
        kept |= {each.before for each in self.rounds if each.state == SERVING}
        for name in set(self.model.adapters()) - kept:
            self._unload(name)

    def _unload(self, name: str) -> None:
        if name in self.model.adapters():
            self.model.unload_adapter(name)

    # -- on disk ------------------------------------------------------------------------------------------------------

    def _serve_again(self) -> None:
        """What served when the server ended, proven again; otherwise what was before it."""
        while (current := self.current) is not None:
            try:
                if current.before:
                    before = next(each for each in self.rounds if each.name == current.before)
                    self._deliver(before)
                self._deliver(current)
            except (NotServed, KeepworthError) as error:
                current.state, current.reason = TAKEN_BACK, f"not delivered: {error}"
                self._write()
                continue
            return

    def _folder(self, round: TrainingRound) -> Path:
        return self.folder / round.name.replace("@", "-")

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


def _loaded(folder: Path, named: Named) -> Mapping[str, torch.Tensor]:
    """An adapter's tensors, by the names that they have in the learner."""
    from safetensors.torch import load_file

    found = load_file(folder / ADAPTER_WEIGHTS)
    return {name: found[name.replace(".default.", ".")] for name in named}


def _draw(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
