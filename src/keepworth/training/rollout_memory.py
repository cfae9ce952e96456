"""The memory of an agent that is a program: while the weights learn, its own choices learn from the same rewards.

The address of a rollout is a gateway, too (`keepworth.serving.gateway`): what the memory recalls stands before the user's newest
words in every prompt, and each such recall is a decision with a probability. The reward of the rollout reaches all of its
decisions once the update has been made, so that all members of a group begin with the same memory.

The run learns in a copy of the memory, and the given one stays as it is:

    runs/NAME/memory/learned.mem    the copy, with all that it has learned
    runs/NAME/memory/000012.mem     what it was after step 12, for a run that goes on from that checkpoint

Where the memory fails, a rollout goes on without it, and its record says so."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from keepworth.base.durable_files import SUFFIXES
from keepworth.base.errors import KeepworthError
from keepworth.base.json_values import read_json
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.item import EVERYWHERE
from keepworth.memory.memory import Memory
from keepworth.memory.store import episode_log, maintenance, notes
from keepworth.models.chat_format import TokenizerChat
from keepworth.records.episode import Decision, Group, RewardScope, Shown
from keepworth.records.model import ChatTemplate
from keepworth.serving.access import Access, bounds_in
from keepworth.serving.application import in_thread
from keepworth.serving.call_formats import FORMATS
from keepworth.serving.calls import ReadyAnswer, ServedCall, json_object
from keepworth.serving.gateway import Gateway, GatewaySettings, GatewayTurn
from keepworth.serving.model_calls import ANSWERED
from keepworth.serving.open_memories import OpenMemories, OpenMemory
from keepworth.serving.upstream import Upstream
from keepworth.training.collect.pipeline import PIPELINE_STATE
from keepworth.training.collect.sources import Source
from keepworth.training.run_folder import RunFolder
from keepworth.worlds.conversations import render_call

_LOG = logging.getLogger("keepworth.training")
SOURCE = "training"
"""The channel of the rewards that a run gives to its memory."""
LEARNED = "learned.mem"
_KEPT = 3
"""Copies that stay: those of the two checkpoints that a run keeps, and that of the one which is being written."""
_REMEMBERING = {format.path: format for format in FORMATS}


class TrainedMemory(Source):
    """The memory of a run, which learns from the rewards of its rollouts.

    Args:
        given: The path of a memory, or an open one. It is copied into the run's folder.
        run: The folder of the run.
        top_k: The most items that are recalled for a turn.
        writes: Whether what a rollout's user says is stored, at the end of the step.
    """

    name = "memory"
    replays = False

    def __init__(self, given: Any, run: RunFolder, *, top_k: int, writes: bool) -> None:
        self._given, self._run, self._writes = given, run, writes
        self._settings = GatewaySettings(top_k=top_k, prompts=False, words="later")
        self._folder = run.path / "memory"
        self._lock = threading.Lock()
        self._memory: Memory | None = None
        self._gateway: Gateway | None = None
        self._memories: _RolloutMemories | None = None
        self._chat: ChatTemplate | None = None
        self._step = 0
        self.lane = ThreadPoolExecutor(1, "memory-in-training")

    @property
    def memory(self) -> Memory:
        """The run's memory. Raises KeepworthError where it cannot be opened."""
        with self._lock:
            if self._memory is None:
                self._memory = self._open()
            return self._memory

    def rollout(self, seed: int, chat: ChatTemplate, *, explore: bool) -> RolloutMemory:
        """Returns the memory of one rollout.

        Args:
            seed: The seed of what the memory's policy draws in it.
            chat: The format of the model's conversations.
            explore: Whether the policy may try something; not where the model is measured.
        """
        memory = self.memory
        with self._lock:
            if self._gateway is None:
                self._chat = chat
                upstream = Upstream("http://127.0.0.1", transport=_NoUpstream(), name="model", render=self._render)
                self._memories = _RolloutMemories(memory)
                self._gateway = Gateway(self._memories, upstream, self.lane, self._settings)
            assert self._memories is not None
            return RolloutMemory(self._gateway, self._memories, self.lane, self._writes, seed, explore)

    def _render(self, path: str, body: Mapping[str, Any]) -> str | None:
        try:
            return render_call(ANSWERED[path].read(body), self._chat) if isinstance(self._chat, TokenizerChat) else None
        except KeepworthError:
            return None

    # -- as a source of the training -------------------------------------------------------------------------------------

    def keep(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        """Rewards the decisions of the episodes that an update was made of, and stores what was said in them."""
        self._step = step + 1
        decided = [
            (decision, episode) for group in groups for episode in group.episodes for decision in episode.decisions
        ]
        failed = cut = 0
        for decision, episode in decided:
            try:
                memory = self.memory
                low, high = (0.0, 1.0) if memory.learning is None else memory.learning.reward_range
                terms = (term for term in episode.rewards if term.scope is RewardScope.EPISODE and not term.shaping)
                value = sum(term.value * term.weight for term in terms)
                cut += not low <= value <= high
                about = episode_log.rewarded(memory.store, memory.scopes.changeable, decision.id)
                target = about.episode or decision.id
                memory.reward(target, min(high, max(low, value)), by="", source=SOURCE)
            except Exception as error:
                failed += 1
                _LOG.warning("a decision of the memory got no reward: %s: %s", type(error).__name__, error)
        if self._writes and self._gateway is not None:
            self._gateway.resume(OpenMemory(self.memory))
        numbers = {"rewarded": len(decided) - failed, "failed": failed, "cut": cut}
        return {f"memory/{name}": float(count) for name, count in numbers.items() if count or name == "rewarded"}

    def state(self) -> Any:
        """Copies the memory next to its file, and returns the name of the copy."""
        name = f"{self._step:06d}.mem"
        _copy(self.memory, self._folder / name)
        for old in sorted(self._folder.glob("[0-9]*.mem"))[:-_KEPT]:
            _remove(old)
        return {"file": name, "step": self._step}

    def load(self, state: Any) -> None:
        """Takes over the number of the step; the memory itself is that of the checkpoint since it was opened."""
        if state:
            self._step = int(state["step"])

    def close(self) -> None:
        """Ends the use of the memory, and closes its file."""
        self.lane.shutdown()
        with self._lock:
            if self._memory is not None:
                self._memory.close()
            self._memory = self._gateway = None

    def _open(self) -> Memory:
        """Opens the run's copy: that of the last checkpoint, or else a new one of the given memory."""
        self._folder.mkdir(parents=True, exist_ok=True)
        given = self._given if isinstance(self._given, Memory) else Memory(self._given, read_only=True, log="off")
        file, settings = self._folder / LEARNED, _settings_of(given, seed=0)
        try:
            last = self._run.latest_checkpoint(verify=False)
            state = {} if last is None else read_json(last.path / PIPELINE_STATE, last.way_out)
            saved = state.get("sources", {}).get(self.name)
            if saved:
                with Memory(self._folder / saved["file"], read_only=True, log="off") as then:
                    _copy(then, file)
            else:
                _copy(given, file)
        finally:
            if given is not self._given:
                given.close()
        return Memory(file, **settings)


def _settings_of(memory: Memory, seed: int) -> dict[str, Any]:
    """Returns the arguments with which a copy of a memory is opened so that it works as that memory does."""
    scope, embedder = memory.scope, memory.store.embedder
    settings: dict[str, Any] = {
        "tenant": scope.tenant,
        "user_id": scope.user,
        "agent_id": scope.agent,
        "session_id": scope.session,
    }
    nobody = EVERYWHERE.parts()
    settings = {name: part for (name, part), all in zip(settings.items(), nobody, strict=True) if part != all}
    learns: dict[str, Any] = {"policy": None}
    if memory.learning is not None:
        learns = {"policy": memory.learning.make, "reward_range": memory.learning.reward_range, "seed": seed}
    encoder = None if embedder is None else embedder.encoder
    # Signals would teach it in the middle of a step.
    return {**settings, **learns, "encoder": encoder, "writer": memory.writer, "signals": (), "log": "at once"}


def _copy(memory: Memory, file: Path) -> None:
    part = file.with_name(f"{file.name}.part")
    _remove(part)
    maintenance.backup(memory.store, part)
    _remove(file)
    os.replace(part, file)


def _remove(file: Path) -> None:
    for suffix in SUFFIXES:
        file.with_name(f"{file.name}{suffix}").unlink(missing_ok=True)


class RolloutMemory:
    """The memory as one rollout uses it."""

    def __init__(
        self,
        gateway: Gateway,
        memories: _RolloutMemories,
        lane: ThreadPoolExecutor,
        writes: bool,
        seed: int,
        explore: bool,
    ) -> None:
        self._gateway, self._memories, self._lane = gateway, memories, lane
        self._id = secrets.token_hex(8)
        self._access = Access(self._id, roles=("read", "write") if writes and explore else ("read",))
        self._open = memories.open_rollout(self._id, seed, explore)
        self._turns: dict[str, None] = {}

    async def prepare(self, path: str, raw: bytes, headers: Mapping[str, str]) -> GatewayTurn | None:
        """Returns the turn of a call, with what the memory recalls for it; None where it adds nothing to such calls. Raises
        NotServed for a mistake of the caller.

        Args:
            path: The route that was called.
            raw: The bytes of the call.
            headers: Its headers, which may say whose memory it is, and switch it off.
        """
        if (format := _REMEMBERING.get(path)) is None:
            return None
        call = ServedCall(json_object(raw), {}, access=self._access, raw=raw, headers=headers)
        # Members of a group say the same words at the same time: each has conversations of its own.
        bounds = {**bounds_in(headers), "session_id": self._id}
        turn = await in_thread(self._lane, self._gateway.prepare, format, call, bounds)
        if turn.memory is not None:
            self._turns[turn.episode] = None
        return turn

    async def record(self, turn: GatewayTurn, answer: ReadyAnswer | None) -> None:
        """Records how a turn ended. `answer` is None where there is none."""
        if turn.memory is None:
            return
        ended = (400, b"", "") if answer is None else (answer.status, answer.content, answer.kind)
        await in_thread(self._lane, self._gateway.record, turn, *ended)

    def end(self) -> tuple[tuple[Decision, ...], tuple[Shown, ...], tuple[str, ...]]:
        """Returns the decisions of the rollout, what the prompts held of it, and what failed."""
        decisions, shown = list[Decision](), dict[str, Shown]()
        try:
            for turn in self._turns:
                made = self._open.memory.episode_record(turn).decisions
                decisions += made
                receipt = notes.body(self._open.memory.store, notes.RECEIPT, turn) or {}
                scores = {id: score for decision in made for id, score in decision.candidates}
                for id, line in receipt.get("lines", {}).items():
                    shown.setdefault(id, Shown(id, scores.get(id, 0.0), line.removeprefix("- ")))
        except Exception as error:
            failure = f"the memory failed, and what it decided is not in the record: {type(error).__name__}: {error}"
            return (), (), (failure,)
        finally:
            self._memories.close_rollout(self._id)
        return tuple(decisions), tuple(shown.values()), ()


class _RolloutOpenMemory(OpenMemory):
    """An open memory whose episodes are those of one rollout."""

    def __init__(self, memory: Memory, seed: int, explore: bool) -> None:
        super().__init__(memory)
        self._seed, self._explore, self._begun = seed, explore, 0

    def begin(self, task: str, **options: Any) -> LiveEpisode:
        live = super().begin(task, explore=self._explore, **options)
        live.seed = self._seed + self._begun
        self._begun += 1
        return live


class _RolloutMemories(OpenMemories):
    """The one memory of a run, opened anew for each rollout."""

    def __init__(self, memory: Memory) -> None:
        self._whole = OpenMemory(memory)
        self._rollouts: dict[str, OpenMemory] = {}

    def of(self, access: Access) -> OpenMemory:
        return self._rollouts.get(access.id, self._whole)

    def open_rollout(self, id: str, seed: int, explore: bool) -> OpenMemory:
        opened = self._rollouts[id] = _RolloutOpenMemory(self._whole.memory, seed, explore)
        return opened

    def close_rollout(self, id: str) -> None:
        self._rollouts.pop(id, None)


class _NoUpstream(httpx.AsyncBaseTransport):
    """The model in training is called directly."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise NotImplementedError
