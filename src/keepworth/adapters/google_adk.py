"""Google ADK's `BaseMemoryService` over a memory.

from google.adk.agents import Agent
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from keepworth import Memory
from keepworth.adapters.google_adk import KeepworthMemoryService

async def save(callback_context):
    await callback_context.add_session_to_memory()

agent = Agent(name="helper", model="gemini-2.5-flash", tools=[PreloadMemoryTool()], after_agent_callback=save)
service = KeepworthMemoryService(Memory("agent.mem"))
runner = Runner(agent=agent, app_name="app", session_service=InMemorySessionService(), memory_service=service)

ADK searches before a call of the model (`PreloadMemoryTool`) or where the model asks (`LoadMemoryTool`), and hands a session over
with `add_session_to_memory`. What was searched after the last of these calls is a turn, which the call finishes: so save it
after each turn, as above. ADK's searches name no session. Of two sessions of one person at once, the one that is saved first
finishes the turn. Needs the package `google-adk`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from keepworth.adapters.turns import HostTurn, RewardOf, Turns, load_host
from keepworth.base.recent import Recent
from keepworth.memory.errors import UnknownItem
from keepworth.memory.headline import MARK
from keepworth.memory.item import timestamp
from keepworth.memory.search.search import Hits

PACKAGE, LEAST = "google-adk", "2.13"
_MEMORY = "google.adk.memory"
BaseMemoryService, SearchMemoryResponse, MemoryEntry, types = load_host(
    PACKAGE,
    LEAST,
    [
        f"{_MEMORY}.base_memory_service:BaseMemoryService",
        f"{_MEMORY}.base_memory_service:SearchMemoryResponse",
        f"{_MEMORY}.memory_entry:MemoryEntry",
        "google.genai:types",
    ],
)
MOST_EVENTS = 100_000
"""How many ids of events are held, so that a session that is saved again is read from where it went on."""


class KeepworthMemoryService(BaseMemoryService):  # type: ignore[misc, valid-type]
    """A memory service for a `Runner`.

    Args:
        memory: A `Memory`, an `AsyncMemory`, or a `Client` of a served one.
        reward: A function from a finished turn to its reward, or to None; `turn.host` is the list of the turn's events.
        apps_apart: Whether an app sees what was written in it alone (`agent_id`), as with ADK's services; False for all that is
            known of a person, also from elsewhere.
        top_k: The most notes that a search shows; "auto" for those that answer (`Memory.search`).
    """

    def __init__(
        self, memory: Any, reward: RewardOf | None = None, *, apps_apart: bool = True, top_k: int | str = 5
    ) -> None:
        Turns(memory, PACKAGE, reward)  # raises for what is no memory
        self._memory, self._reward, self._apart, self._top_k = memory, reward, apps_apart, top_k
        self._apps: dict[str, Turns] = {}
        self._heard = Recent[str, None](MOST_EVENTS)
        self._lock = Lock()

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> Any:
        """Search for what the user said, or for what the model asks, as part of the user's turn. The first entry is a headline.

        Args:
            app_name: Where it is kept, unless apps share.
            user_id: Whose memory it is.
            query: What is looked for.
        """
        hits = await asyncio.to_thread(self._search, self._turns(app_name), user_id, query)
        block, about = hits.block, {"decision": hits.decision}
        lines = [("", MARK), *block.lines.items(), *([("", block.last)] if block.last else [])] if block.text else []
        entries = [MemoryEntry(id=id or None, content=_content(text), custom_metadata=about) for id, text in lines]
        return SearchMemoryResponse(memories=entries)

    async def add_session_to_memory(self, session: Any) -> None:
        """Read what is new in a session: it finishes the turn, and what the user said is kept."""
        await asyncio.to_thread(self._hear, session.app_name, session.user_id, session.events)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Any],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Read events as `add_session_to_memory` does those of a session.

        Args:
            app_name: Where it is kept, unless apps share.
            user_id: Whose memory it is.
            events: What happened since the last call.
            session_id: Not used: what is known of a person outlives the session.
            custom_metadata: Not used: a turn may become no item, or several.
        """
        await asyncio.to_thread(self._hear, app_name, user_id, events)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[Any],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember texts as they are. It raises what `Memory.add` raises.

        Args:
            app_name: Where it is kept, unless apps share.
            user_id: Whose memory it is.
            memories: The entries, whose texts are remembered.
            custom_metadata: The metadata of each, beside its own.
        """
        add = self._turns(app_name).add
        for memory in memories:
            metadata = {**(memory.custom_metadata or {}), **(custom_metadata or {})}
            await asyncio.to_thread(add, _text(memory.content), user_id=user_id, metadata=metadata)

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete a memory of a person in an app.

        Args:
            app_name: Where it is kept, unless apps share.
            user_id: Whose memory it is.
            memory_id: The id of an entry that a search returned.

        Raises:
            UnknownItem: The person has no such memory in this app.
        """
        await asyncio.to_thread(self._delete, self._turns(app_name), user_id, memory_id or "")

    def _turns(self, app: str) -> Turns:
        app = app if self._apart else ""
        with self._lock:
            if app not in self._apps:
                self._apps[app] = Turns(self._memory, PACKAGE, self._reward, agent_id=app, top_k=self._top_k)
            return self._apps[app]

    def _search(self, turns: Turns, person: str, query: str) -> Hits:
        turn = turns.current(user_id=person)
        if turn is None:
            return turns.begin(query, user_id=person, heard=False).shown
        # The tool that loads memory asks the same before each call of the model in a turn.
        again = turn.message == query and _holds(turns, turn)
        return turn.shown if again else turns.search(turn, query)

    def _hear(self, app: str, person: str, events: Iterable[Any]) -> None:
        turns = self._turns(app)
        for exchange in _exchanges(self._unheard(events)):
            turn = turns.current(user_id=person) or turns.begin("", user_id=person, heard=False)
            turn.said_at = exchange.said_at or turn.said_at
            for command, failed, output in _tool_ends(exchange.events):
                turns.use_tool(turn, failed=failed, command=command, output=output)
            turns.finish(turn, exchange.answer, message=exchange.message, host=exchange.events)

    def _delete(self, turns: Turns, person: str, id: str) -> None:
        scope = turns.memory.get(id).scope
        if scope.user != person or (self._apart and scope.agent != turns.agent_id):
            raise UnknownItem(f"{person!r} has no memory {id!r} in this app: take an id that a search of it returned")
        turns.memory.delete(id)

    def _unheard(self, events: Iterable[Any]) -> list[Any]:
        """Return the events that were not read before."""
        with self._lock:
            new = [event for event in events if not event.id or event.id not in self._heard]
            self._heard.update((event.id, None) for event in new)
        return new


@dataclass(slots=True)
class _Exchange:
    """What a user said, and the events until the user speaks again."""

    message: str = ""
    said_at: str = ""
    answer: str = ""
    events: list[Any] = field(default_factory=list)


def _exchanges(events: Iterable[Any]) -> Iterator[_Exchange]:
    """Yield what the user said, message by message; what an agent did before the first belongs to a message "" ."""
    exchange = _Exchange()
    for event in events:
        text = _text(event.content)
        if event.author == "user" and text:
            if exchange.events:
                yield exchange
            exchange = _Exchange(text, timestamp(event.timestamp))
        elif text:
            exchange.answer = text
        exchange.events.append(event)
    if exchange.events:
        yield exchange


def _tool_ends(events: Iterable[Any]) -> Iterator[tuple[str, bool, str]]:
    """Yield the command, whether it failed, and the output of each tool; one that fails answers ADK with an "error"."""
    commands: dict[str, str] = {}
    for event in events:
        for call in event.get_function_calls():
            commands[call.id or call.name] = str((call.args or {}).get("command") or "")
        for end in event.get_function_responses():
            answer = end.response or {}
            yield commands.get(end.id or end.name, ""), bool(answer.get("error")), "\n".join(map(str, answer.values()))


def _holds(turns: Turns, turn: HostTurn) -> bool:
    """Return whether everything that a turn showed is still there."""
    try:
        return all(turns.memory.get(hit.id).open for hit in turn.shown)
    except Exception:  # erased meanwhile, or the memory is down: a search says so
        return False


def _content(text: str) -> Any:
    return types.Content(role="user", parts=[types.Part(text=text)])


def _text(content: Any) -> str:
    """Return the words of a content, without the model's thoughts."""
    parts = content.parts or () if content is not None else ()
    return "\n".join(part.text for part in parts if part.text and not part.thought)
