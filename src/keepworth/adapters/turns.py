"""The turns of an agent whose framework has a slot for memory: what each slot in this folder does, whatever its framework is.

turns = Turns(memory, "strands", user_id="ana")
turn = turns.begin("Where do I live?", conversation="c1")  # the outcome of the turn before, then a search for this one
prompt = turn.text
turns.finish(turn, "In Oslo.")  # what was answered; the memory's writer keeps what the user said

A turn is an episode. The user's next message in the conversation is its outcome, as is a tool that fails (`use_tool`), a value
of `reward`, and whatever is reported later with `memory.reward(turn.id, ...)`. Nothing here raises when the memory is down: a
warning says so, the agent goes on, and what the user said is written once the memory is back. In an event loop, call each method
with `asyncio.to_thread`.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from threading import Lock
from typing import Any

from keepworth.base.extras import MissingExtra
from keepworth.base.recent import Recent
from keepworth.memory.automatic import asks, floor_of
from keepworth.memory.errors import InvalidFilter, UnknownEpisode
from keepworth.memory.headline import MARK, without_blocks
from keepworth.memory.item import now, timestamp
from keepworth.memory.memory import Memory
from keepworth.memory.search.search import Hits
from keepworth.memory.search.where import Where
from keepworth.memory.speech import clean, says_something

_LOG = logging.getLogger("keepworth.adapters")
CONVERSATIONS = 1000
"""The most conversations whose newest turn is held, and the most messages that wait for a memory that is down."""
LONGEST = 40_000
"""The most characters of a message that are searched with, or read as an outcome."""
LONGEST_QUESTION = 2000
"""The most characters of the end of an answer, which may hold the question that the user answers next."""


@dataclass(eq=False, slots=True)
class HostTurn:
    """A message of a user, what the memory showed for it, and what the agent answered.

    Args:
        message: What the user said.
        user_id: Whose turn it is; "" for nobody's.
        live: The episode of the turn, a `LiveEpisode`; None if the memory was down.
        shown: What the memory showed first in the turn.
        answer: What the agent answered; "" while it works.
        host: The framework's own object at the end of the turn, for the function `reward`.
        before: The turn before in the conversation; None if there is none.
    """

    message: str
    user_id: str = ""
    live: Any = None
    shown: Hits = field(default_factory=Hits)
    answer: str = ""
    host: Any = None
    before: HostTurn | None = None
    said_at: str = ""
    open: bool = True
    heard: bool = False
    stored: bool = False

    @property
    def id(self) -> str:
        """The id of the episode, which `Memory.reward` takes; "" if the memory was down."""
        return "" if self.live is None else str(self.live.id)

    @property
    def text(self) -> str:
        """What the memory showed, as a block for a prompt; "" where it showed nothing."""
        return prompt_text(self.shown)


RewardOf = Callable[[HostTurn], float | None]


class Turns:
    """The turns of an agent, over a memory.

    Args:
        memory: A `Memory`, an `AsyncMemory`, or a `Client` of a served one.
        host: The name of the framework, which is the source of what is written and rewarded.
        reward: A function from a finished turn to its reward, or to None where it has none; None for the signals alone.
        user_id: Whose turns they are, unless a call says so; "" for a handle of one person, and for an agent without persons.
            Where nobody is named, nothing that belongs to a person is shown.
        agent_id: The agent whose memory it is; "" for all.
        top_k: The most notes that a turn shows; "auto" for those that answer (`Memory.search`).
    """

    def __init__(
        self,
        memory: Any,
        host: str,
        reward: RewardOf | None = None,
        *,
        user_id: str = "",
        agent_id: str = "",
        top_k: int | str = 5,
    ) -> None:
        inner = getattr(memory, "memory", memory)
        if not callable(getattr(inner, "episode", None)):
            raise InvalidFilter(f"the slot for {host} takes an open Memory or a Client, got {type(memory).__name__}")
        if reward is not None and not callable(reward):
            raise InvalidFilter(f"reward takes a function of the finished turn, got {type(reward).__name__}")
        self.memory, self.host, self.reward = inner, host, reward
        self.user_id, self.agent_id, self.top_k = user_id, agent_id, top_k
        self._newest = Recent[tuple[str, str], HostTurn](CONVERSATIONS)
        self._unwritten: deque[tuple[dict[str, Any], dict[str, Any]]] = deque(maxlen=CONVERSATIONS)
        self._lock = Lock()

    def begin(
        self,
        message: str,
        *,
        conversation: str | None = "",
        user_id: str = "",
        before: HostTurn | str = "",
        heard: bool = True,
        where: Where = None,
    ) -> HostTurn:
        """Take a message for the outcome of the turn before, and search for it in an episode of its own.

        Args:
            message: What the user said.
            conversation: The name of the conversation, such as a session's id; None for a search that is part of none.
            user_id: Who speaks; "" for the person of this object.
            before: The turn before, or its id, where the host keeps it and this object may not know it.
            heard: False if the message is a query of the model's, and not what the user said: `finish` is told that.
            where: A filter on the metadata of what is shown, as in `Memory.search`.
        """
        person = user_id or self.user_id
        words = without_blocks(clean(message))[:LONGEST]
        turn = HostTurn(words, person, said_at=timestamp(self._clock()))
        try:
            if conversation is not None:
                turn.before = self._turn_before(person, conversation, before)
            if heard:
                self._hear(turn, words)
            if turn.before is not None and turn.before.open and turn.before.heard:  # it was broken off
                self.keep(turn.before)
            turn.live = self.memory.episode(words, by=person, **self.scope(person))
            if asks(words):
                turn.shown = self._search(turn, "", self.top_k, where)
        except Exception as error:
            _report("the memory recalled nothing", error)
        if conversation is not None:
            with self._lock:
                self._newest[person, conversation] = turn
        return turn

    def go_on(self, message: str, *, conversation: str = "", user_id: str = "") -> HostTurn:
        """Return the turn of a message, for a host that says before each call of a model what the user said: the turn that is not
        finished if it has the same words, as where a run is tried again, else a new one.

        Args:
            message: What the user said.
            conversation: The name of the conversation.
            user_id: Who speaks; "" for the person of this object.
        """
        turn = self.current(conversation=conversation, user_id=user_id)
        if turn is not None and turn.message == without_blocks(clean(message))[:LONGEST]:
            return turn
        if turn is not None:  # its run was stopped, or failed
            self.finish(turn, "")
        return self.begin(message, conversation=conversation, user_id=user_id)

    def current(self, *, conversation: str = "", user_id: str = "") -> HostTurn | None:
        """Return the turn of a conversation that is not finished; None if there is none."""
        with self._lock:
            turn = self._newest.get((user_id or self.user_id, conversation))
        return turn if turn is not None and turn.open else None

    def newest(self, *, conversation: str = "", user_id: str = "") -> HostTurn | None:
        """Return the newest turn of a conversation, finished or not; None if there is none."""
        with self._lock:
            return self._newest.get((user_id or self.user_id, conversation))

    def search(self, turn: HostTurn, query: str, *, top_k: int | str = 0, where: Where = None) -> Hits:
        """Search once more in a turn, for instance where the model asks for it.

        Args:
            turn: A turn that is not finished.
            query: What is looked for.
            top_k: The most notes; 0 for as many as a turn shows.
            where: A filter on the metadata of what is shown, as in `Memory.search`.
        """
        try:
            if turn.live is None:
                return Hits()
            return self._search(turn, clean(query)[:LONGEST], top_k or self.top_k, where)
        except Exception as error:
            _report("the memory found nothing", error)
            return Hits()

    def use_tool(self, turn: HostTurn, *, failed: bool, command: str = "", output: str = "") -> None:
        """Take the end of a tool for an outcome of what the turn showed before it.

        Args:
            turn: The turn in which the tool ran.
            failed: Whether the host says that it failed.
            command: The command line, if the tool is a shell.
            output: What it printed.
        """
        if turn.live is None:
            return
        try:
            turn.live.signal(failed=failed, command=clean(command), output=clean(output))
        except UnknownEpisode:  # it was erased meanwhile
            return
        except Exception as error:
            _report("the memory was not told how a tool ended", error)

    def finish(self, turn: HostTurn, answer: str, *, message: str | None = None, host: Any = None) -> None:
        """Record what was answered, keep what the user said, and give the turn the value of `reward`, if it has one.

        Args:
            turn: A turn that is not finished; a second call changes nothing.
            answer: What the agent answered.
            message: What the user said, if `begin` was not told; "" for nothing.
            host: The framework's own object, which `reward` finds as `turn.host`.
        """
        if not turn.open:
            return
        turn.open, turn.answer, turn.host = False, without_blocks(clean(answer)), host
        if message is not None:
            turn.message = without_blocks(clean(message))[:LONGEST]
        try:
            self._hear(turn, turn.message)
            if turn.live is not None:
                if turn.shown.decision:
                    turn.live.act(turn.answer[:LONGEST] or "(an answer without words)")
                turn.live.end("completed")
        except UnknownEpisode:  # it was erased meanwhile, with what was said in it
            return
        except Exception as error:
            _report("a turn was not recorded whole", error)
        self.keep(turn)
        if self.reward is not None:
            self._reward(turn, self.reward)
        turn.before = None

    def keep(self, turn: HostTurn) -> None:
        """Hand what the user said to the memory's writer, once, after what waits since the memory was down. `finish` does that as
        well: call it before where a host may not say that a turn ends."""
        with self._lock:  # a host may end a turn while another of its threads keeps what was said
            if turn.stored or not turn.message.strip():
                return
            turn.stored = True
        words: dict[str, Any] = {"role": "user", "content": turn.message, "said_at": turn.said_at}
        if turn.before is not None:
            words |= {"before": turn.before.message, "asked": turn.before.answer[-LONGEST_QUESTION:]}
        options = self.scope(turn.user_id) | ({"episode": turn.id} if turn.id else {})
        with self._lock:
            self._unwritten.append((words, options))
            waiting = list(self._unwritten)
            self._unwritten.clear()
        while waiting:
            try:
                self._write(*waiting[0])
            except UnknownEpisode:  # it was erased meanwhile, with what was said in it
                pass
            except ValueError as error:  # it would be refused again the next time
                _report("a message was not kept", error)
            except Exception as error:
                _report("what was said waits for the memory", error)
                with self._lock:
                    self._unwritten.extendleft(reversed(waiting))
                return
            del waiting[0]

    def add(self, text: str, *, user_id: str = "", **options: Any) -> Any:
        """Remember a text, as `Memory.add` does, where the model or the host asks for it. It raises as that does: who
        asked learns that it failed.

        Args:
            text: What is remembered.
            user_id: Whose memory it is; "" for the person of this object.
            options: Options of `Memory.add`.
        """
        return self.memory.add(text, source=self.host, **self.scope(user_id), **options)

    def scope(self, user_id: str = "") -> dict[str, Any]:
        """Return the options that name whose memory it is: of a person, or else of the person of this object."""
        bounds = {"user_id": user_id or self.user_id, "agent_id": self.agent_id}
        return {name: value for name, value in bounds.items() if value}

    def _clock(self) -> Any:
        return self.memory.store.clock() if isinstance(self.memory, Memory) else now()

    def _turn_before(self, person: str, conversation: str, before: HostTurn | str) -> HostTurn | None:
        """Return the newest turn of a conversation, from the memory if only its id is at hand."""
        turn = before if isinstance(before, HostTurn) else self.newest(conversation=conversation, user_id=person)
        if turn is not None:
            turn.before = None
            return turn
        if not before:
            return None
        try:
            live = self.memory.reopen(before)
        except UnknownEpisode:  # it was erased meanwhile
            return None
        return HostTurn(live.task, person, live, open=False)

    def _hear(self, turn: HostTurn, words: str) -> None:
        """Take what the user says for the outcome of the turn before, once."""
        before, first = turn.before, not turn.heard
        turn.heard = True
        if first and before is not None and before.live is not None and words.strip():
            try:
                before.live.signal(reply=words)
            except UnknownEpisode:  # it was erased meanwhile
                turn.before = None

    def _search(self, turn: HostTurn, query: str, top_k: int | str, where: Where) -> Hits:
        """Search in the episode of a turn, with the limits of a search that nobody asked for."""
        options: dict[str, Any] = {"floor": floor_of(self.memory)} if isinstance(self.memory, Memory) else {}
        if where is not None:
            options["where"] = where
        if not turn.live.scope.user:
            options["nobody"] = True
        hits: Hits = turn.live.search(query, top_k=top_k, **options)
        if not turn.shown.decision:
            turn.shown = hits
        return hits

    def _write(self, words: dict[str, Any], options: dict[str, Any]) -> None:
        if getattr(self.memory, "writer", words) is not None:
            self.memory.add([words], infer=True, source=self.host, **options)
        elif says_something(words["content"]):
            self.memory.add(words["content"], source=self.host, **options)

    def _reward(self, turn: HostTurn, reward: RewardOf) -> None:
        try:
            value = reward(turn)
            if value is not None and turn.live is not None:
                turn.live.reward(float(value), source=self.host)
        except UnknownEpisode:  # it was erased meanwhile
            return
        except Exception as error:
            _report("a turn got no reward", error)


def prompt_text(hits: Hits) -> str:
    """Return hits as a block for a prompt, under the headline of all such blocks; "" where there is nothing to show."""
    lines = hits.text
    return f"{MARK}\n{lines}" if lines else ""


def load_host(package: str, least: str, names: Sequence[str]) -> list[Any]:
    """Import what a slot needs of a framework.

    Args:
        package: The framework, as pip calls it.
        least: The oldest version that the slot was tried with.
        names: What is needed of it, each as "module:name".

    Raises:
        MissingExtra: It is not installed, or too old.
    """
    fix = f'pip install "{package}>={least}"'
    try:
        installed = version(package)
    except PackageNotFoundError as error:
        raise MissingExtra(f"This slot needs {package}, which is not installed.", fix) from error
    if _numbers(installed) < _numbers(least):
        raise MissingExtra(f"This slot needs {package} {least} or newer, and {installed} is installed.", fix)
    try:
        return [getattr(import_module(module), name) for module, _, name in (entry.partition(":") for entry in names)]
    except (ImportError, AttributeError) as error:
        raise MissingExtra(
            f"{package} {installed} has no such slot any more, or misses a part: {error}.", fix
        ) from error


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers with which a version begins: (1, 20) for "1.20rc1"."""
    lead = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(number) for number in lead.group().split(".")) if lead is not None else ()


def _report(what: str, error: Exception) -> None:
    _LOG.warning("%s, and the agent goes on without it: %s: %s", what, type(error).__name__, error)
