"""CrewAI's `Memory`, and its `StorageBackend`, over a memory.

from crewai import Agent
from keepworth import Memory
from keepworth.adapters.crewai import KeepworthMemory

memory = KeepworthMemory(Memory("agent.mem"), user_id="ana")
agent = Agent(role="Helper", goal="Help", backstory="You help.", llm="openai/gpt-5-mini", memory=memory)
agent.kickoff("Where do I live?")

A storage is handed vectors, and is not told what was asked and how it ended; CrewAI's memory is. So the slot is a memory over a
storage: it recalls where an agent or a task begins, and CrewAI brings it the result at the end (`extract_memories`). It asks no
model, neither for that nor to remember. Needs the package `crewai`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import uuid4

from keepworth.adapters.turns import CONVERSATIONS, HostTurn, RewardOf, Turns, load_host
from keepworth.base.recent import Recent
from keepworth.memory.errors import InvalidFilter, UnknownItem
from keepworth.memory.headline import MARK
from keepworth.memory.item import Item
from keepworth.memory.search.search import Hits

PACKAGE, LEAST = "crewai", "1.15.24"
CrewMemory, MemoryMatch, MemoryRecord, ScopeInfo, join, PrivateAttr, context_of_run, id_of_run, after_tool, hooks = (
    load_host(
        PACKAGE,
        LEAST,
        [
            "crewai.memory.unified_memory:Memory",
            "crewai.memory.types:MemoryMatch",
            "crewai.memory.types:MemoryRecord",
            "crewai.memory.types:ScopeInfo",
            "crewai.memory.utils:join_scope_paths",
            "pydantic:PrivateAttr",
            "crewai.context:capture_execution_context",
            "crewai.execution:get_execution_uuid",
            "crewai.hooks:register_after_tool_call_hook",
            "crewai.hooks:get_after_tool_call_hooks",
        ],
    )
)
ABOUT = "crewai"
"""The metadata of an item in which stands what CrewAI knows of a record beside its text."""
Filter = dict[str, Any]


class KeepworthStorage:
    """A `StorageBackend`: each record is an item, with its scope and its categories as metadata.

    Args:
        turns: The turns of the agents that use the storage.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._texts = Recent[tuple[float, ...], str](CONVERSATIONS)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, by which `search` knows the text again: keepworth has an encoder of its own."""
        vectors = [[byte / 127.5 - 1.0 for byte in sha256(text.encode()).digest()] for text in texts]
        self._texts.update((tuple(vector), text) for vector, text in zip(vectors, texts, strict=True))
        return vectors

    def save(self, records: list[Any]) -> None:
        """Store records, each of which gets the id of its item."""
        for record in records:
            record.id = self._turns.add(record.content, metadata=_metadata(record)).id

    def search(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: Filter | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[Any, float]]:
        """Return records with their scores, best first: a search that is part of no turn.

        Args:
            query_embedding: A vector of `embed`.
            scope_prefix: Where the records stand; those that stand nowhere are found as well.
            categories: The records have one of these.
            metadata_filter: The metadata that they have.
            limit: The most records.
            min_score: The least score.

        Raises:
            InvalidFilter: The vector is of another embedder.
        """
        text = self._texts.get(tuple(query_embedding))
        if text is None:
            raise InvalidFilter("keepworth searches with words: pass embedder=storage.embed to CrewAI's Memory")
        where = _filter(scope_prefix, categories, metadata_filter, placeless=True)
        hits = self._turns.begin(text, conversation=None, heard=False, where=where).shown
        return [(_record(hit.item), hit.score) for hit in hits[:limit] if hit.score >= min_score]

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: Filter | None = None,
    ) -> int:
        """Delete the records that fit, and return how many these are. Their history stays, until `Memory.erase`.

        Args:
            scope_prefix: Where the records stand.
            categories: They have one of these.
            record_ids: They are among these.
            older_than: They are older.
            metadata_filter: They have these metadata.
        """
        listed = self._items(_filter(scope_prefix, categories, metadata_filter))
        chosen = [
            item
            for item in listed
            if (record_ids is None or item.id in record_ids)
            and (older_than is None or _time(item) < _naive(older_than))
        ]
        for item in chosen:
            self._turns.memory.delete(item.id)
        return len(chosen)

    def update(self, record: Any) -> None:
        """Reword a record, or change what is known of it. Raises UnknownItem."""
        if self.get_record(record.id) is None:
            raise UnknownItem(f"there is no record {record.id!r}: take an id that a search or a list gave")
        self._turns.memory.update(record.id, record.content, metadata=_metadata(record), repeat=True)

    def get_record(self, record_id: str) -> Any:
        """Return a record; None if there is none."""
        return next((_record(item) for item in self._items() if item.id == record_id), None)

    def list_records(self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0) -> list[Any]:
        """Return the records of a scope, newest first.

        Args:
            scope_prefix: Where they stand.
            limit: The most records.
            offset: How many of the newest are left out.
        """
        listed = self._items(_filter(scope_prefix), newest=True)
        return [_record(item) for item in listed[offset : offset + limit]]

    def get_scope_info(self, scope: str) -> Any:
        """Return how many records a scope has, of which categories, and from when."""
        records = [_record(item) for item in self._items(_filter(scope))]
        times = [record.created_at for record in records]
        return ScopeInfo(
            path=join(scope, None),
            record_count=len(records),
            categories=sorted(self.list_categories(scope)),
            oldest_record=min(times, default=None),
            newest_record=max(times, default=None),
            child_scopes=self.list_scopes(scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """Return the scopes next below another."""
        depth = len(_places(parent))
        paths = [_places(_record(item).scope) for item in self._items(_filter(parent))]
        return sorted({path[depth] for path in paths if len(path) > depth})

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Return how many records each category has."""
        counts: dict[str, int] = {}
        for item in self._items(_filter(scope_prefix)):
            for category in _record(item).categories:
                counts[category] = counts.get(category, 0) + 1
        return counts

    def count(self, scope_prefix: str | None = None) -> int:
        return len(self._items(_filter(scope_prefix)))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Delete the records of a scope, or all of the person."""
        self.delete(scope_prefix)

    async def asave(self, records: list[Any]) -> None:
        await asyncio.to_thread(self.save, records)

    async def asearch(self, query_embedding: list[float], **options: Any) -> list[tuple[Any, float]]:
        return await asyncio.to_thread(self.search, query_embedding, **options)

    async def adelete(self, **options: Any) -> int:
        return await asyncio.to_thread(self.delete, **options)

    def _items(self, where: Filter | None = None, *, newest: bool = False) -> list[Item]:
        """Return the items of the person that fit; without a person, those of nobody."""
        turns, home = self._turns, getattr(self._turns.memory, "scope", None)
        nobody = not (turns.user_id or (home is not None and home.user))
        options = {**turns.scope(), "nobody": True} if nobody else turns.scope()
        items: list[Item] = turns.memory.get_all(where=where, newest=newest, limit=1_000_000, **options)
        return items


class KeepworthMemory(CrewMemory):  # type: ignore[misc, valid-type]  # the package is optional
    """A memory for `Agent(memory=...)` and `Crew(memory=...)`: a turn is a task, or a kickoff of an agent.

    Args:
        memory: A `Memory` of keepworth, an `AsyncMemory`, or a `Client` of a served one.
        reward: A function from a finished turn to its reward, or to None; `turn.host` is the text that CrewAI made of its end.
        user_id: The person whom the agents serve; "" for nobody.
        agent_id: The agent whose memory it is; "" for all.
        top_k: The most notes that a turn shows; "auto" for those that answer (`Memory.search`).
        options: Fields of CrewAI's own memory, such as `root_scope` and `read_only`.
    """

    _turns: Turns = PrivateAttr()
    _storage: KeepworthStorage = PrivateAttr()
    _tasks: Recent[str, _Task] = PrivateAttr(default_factory=lambda: Recent(CONVERSATIONS))

    def __init__(
        self,
        memory: Any,
        reward: RewardOf | None = None,
        *,
        user_id: str = "",
        agent_id: str = "",
        top_k: int | str = 5,
        **options: Any,
    ) -> None:
        turns = Turns(memory, PACKAGE, reward, user_id=user_id, agent_id=agent_id, top_k=top_k)
        storage = KeepworthStorage(turns)
        super().__init__(storage=storage, embedder=storage.embed, **options)
        self._turns = turns
        if _hear_tool not in hooks():
            after_tool(_hear_tool)

    @property
    def turns(self) -> Turns:
        return self._turns

    def __deepcopy__(self, memo: Any = None) -> KeepworthMemory:
        """Return this object: what is copied with an agent or a crew goes on with the same memory."""
        return self

    def recall(
        self,
        query: str,
        scope: str | None = None,
        categories: list[str] | None = None,
        limit: int = 10,
        depth: str = "deep",
        source: str | None = None,
        include_private: bool = False,
    ) -> list[Any]:
        """Return what the memory shows, in its order: for an agent that begins a turn, or for a search within one.

        Args:
            query: What was asked, or what is looked for.
            scope: Where the records stand; those that stand nowhere are found as well.
            categories: The records have one of these.
            limit: The most records.
            depth: Not used: no model is asked.
            source: Whose private records are found.
            include_private: Whether all of them are.
        """
        where = _filter(self._below_root(scope), categories, placeless=True, source=source, private=include_private)
        hits = _apart(self._recall, query, where, _run(), _begins())
        block, items = hits.block, {hit.id: (hit.item, hit.score) for hit in hits}
        lines = [*block.lines.items(), *([("", block.last)] if block.last else [])][:limit]
        matches: list[Any] = []
        for id, line in lines:
            item, score = items.get(id, (Item(id, line), 0.0))
            text = line if matches else f"{MARK}\n{line}"
            matches.append(_Line(record=_record(item), score=score, match_reasons=["keepworth"], text=text))
        return matches

    def extract_memories(self, content: str) -> list[str]:
        """Record how a task ended, as CrewAI tells its memory then. Nothing that the model said becomes a memory.

        Args:
            content: The task and its result.
        """
        _apart(self._finish, content, _run())
        return []

    def remember(self, content: str, scope: str | None = None, **options: Any) -> Any:
        """Store a text, where the model or a program asks for it, and return its record. It raises what `Memory.add` raises.

        Args:
            content: The text.
            scope: Where it stands.
            options: What `remember_many` takes.
        """
        records = self.remember_many([content], scope, **options)
        return records[0] if records else None

    def remember_many(
        self,
        contents: list[str],
        scope: str | None = None,
        categories: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        importance: float | None = None,
        source: str | None = None,
        private: bool = False,
        agent_role: str | None = None,
        root_scope: str | None = None,
    ) -> list[Any]:
        """Store texts, and return their records.

        Args:
            contents: The texts.
            scope: Where they stand.
            categories: What they are about.
            metadata: Their metadata.
            importance: How important they are; keepworth learns that from outcomes instead.
            source: Who says so.
            private: Whether only the source finds them.
            agent_role: Not used.
            root_scope: What `scope` is below of, in place of the memory's own.
        """
        fields: dict[str, Any] = {"scope": self._below_root(scope, root_scope) or "/", "categories": categories or []}
        fields |= {"metadata": metadata or {}, "source": source, "private": private}
        fields["importance"] = self.default_importance if importance is None else importance
        records = [] if self.read_only else [MemoryRecord(content=content, **fields) for content in contents]
        _apart(self._storage.save, records)
        return records

    def _below_root(self, scope: str | None, root: str | None = None) -> str | None:
        root = self.root_scope if root is None else root
        return join(root, scope) if root else scope

    def _recall(self, query: str, where: Filter | None, run: str, begins: bool) -> Hits:
        """Return what a turn showed, or what else it finds."""
        task = self._tasks.get(run)
        task = task if task is not None and task.turn.open else None
        if begins and (task is None or query != task.query):
            task = self._begin(query, where, run)
        if task is None:  # a program asks, outside of all tasks
            return self._turns.begin(query, conversation=None, heard=False, where=where).shown
        return task.turn.shown if query == task.query else self._turns.search(task.turn, query, where=where)

    def _begin(self, query: str, where: Filter | None, run: str) -> _Task:
        """Begin a turn: where a run begins, what was asked is the outcome of the run before, and else of nothing."""
        last = next(iter(list(self._tasks.values())[-1:]), None)
        replies = last is not None and last.run.partition(":")[0] != run.partition(":")[0]
        # An agent that is handed a whole conversation asks its memory with all of it.
        words = query.removeprefix(last.history) if last is not None and last.history else query
        before = last.turn if last is not None and replies else ""
        turn = self._turns.begin(words, conversation=f"{run}:{uuid4()}", before=before, where=where)
        self._tasks[run] = _Task(run, query, turn)
        return self._tasks[run]

    def _finish(self, content: str, run: str) -> None:
        task = self._tasks.get(run)
        if task is None or not task.turn.open:
            return
        answer = content[content.find(task.query) + len(task.query) :].partition("\nResult: ")[2]
        answer = answer.rpartition("Final Answer:")[2].strip()  # of a model that is told to think aloud before it
        task.history = f"{task.query}\n{answer}\n"
        for name, command, output, agent in task.tools:
            ends = getattr(agent, "last_tool_failures", ())
            failed = any(end.tool_name == name and end.failure.message in output for end in ends)
            self._turns.use_tool(task.turn, failed=failed, command=command, output=output)
        self._turns.finish(task.turn, answer, host=content)


@dataclass(slots=True)
class _Task:
    """A task that an agent does: what CrewAI asked its memory with, and the name, command, output and agent of each tool."""

    run: str
    query: str
    turn: HostTurn
    history: str = ""
    tools: list[tuple[str, str, str, Any]] = field(default_factory=list)


class _Line(MemoryMatch):  # type: ignore[misc, valid-type]
    """A match that stands in a prompt as a line of keepworth does."""

    text: str

    def format(self) -> str:
        return self.text


def _hear_tool(context: Any) -> None:
    """Note how a tool ended, for the task in which it ran."""
    memory = getattr(context.agent, "memory", None) or getattr(context.crew, "_memory", None)
    memory = getattr(memory, "_memory", None) or memory  # a scope is a view of a memory
    task = memory._tasks.get(_run()) if isinstance(memory, KeepworthMemory) else None
    if task is not None and context.tool_name not in ("search_memory", "save_to_memory"):
        command = str((context.tool_input or {}).get("command") or "")
        task.tools.append((context.tool_name, command, str(context.tool_result), context.agent))


def _run() -> str:
    """Return the name of the task that runs here: of a kickoff, and of its task if it has several."""
    return f"{id_of_run() or ''}:{context_of_run().current_task_id or ''}"


def _begins() -> bool:
    """Return whether CrewAI asks its memory for the prompt of a task, and not for a tool of the model's."""
    return [event for _, event in context_of_run().event_id_stack[-1:]] == ["memory_retrieval_started"]


def _apart(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a thread: CrewAI calls its memory in the event loop, if it runs in one, and waits for it there."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(call, *arguments).result()


def _filter(
    scope: str | None = None,
    categories: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    *,
    placeless: bool = False,
    source: str | None = None,
    private: bool = True,
) -> Filter | None:
    """Return a filter of what CrewAI asks for; None for everything."""
    tests: list[Filter] = [{name: value} for name, value in (metadata or {}).items()]
    if places := _places(scope or "/"):
        here = {f"{ABOUT}.places": {"$contains": places[-1]}}
        tests.append({"$or": [here, {f"{ABOUT}.places": {"$exists": False}}]} if placeless else here)
    if categories:
        tests.append({"$or": [{f"{ABOUT}.categories": {"$contains": category}} for category in categories]})
    if not private:
        open_to_all = {"$not": {f"{ABOUT}.private": True}}
        tests.append({"$or": [open_to_all, {f"{ABOUT}.source": source}]} if source else open_to_all)
    return {"$and": tests} if tests else None


def _places(scope: str) -> list[str]:
    """Return the scopes in which a scope stands, from the outermost to itself: "/a" and "/a/b" for "/a/b"."""
    names = scope.strip("/").split("/") if scope.strip("/") else []
    return ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]


def _metadata(record: Any) -> dict[str, Any]:
    about = {"places": _places(record.scope), "categories": record.categories, "importance": record.importance}
    about |= {"source": record.source, "private": record.private}
    return {**record.metadata, ABOUT: {name: value for name, value in about.items() if value}}


def _record(item: Item) -> Any:
    about = item.metadata.get(ABOUT, {})
    metadata = {name: value for name, value in item.metadata.items() if name != ABOUT}
    fields = {name: about[name] for name in ("categories", "importance", "source", "private") if name in about}
    fields |= {"created_at": _time(item)} if item.written_at else {}
    return MemoryRecord(
        id=item.id, content=item.text, scope=(about.get("places") or ["/"])[-1], metadata=metadata, **fields
    )


def _time(item: Item) -> datetime:
    return _naive(datetime.fromisoformat(item.written_at))


def _naive(time: datetime) -> datetime:
    """Return a time as CrewAI writes it: in UTC, without saying so."""
    return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo is not None else time
