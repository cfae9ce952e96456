"""Memory as tools of the Model Context Protocol, through its SDK: over standard input and output, or over HTTP.

The token says whose memory it is, and over HTTP also headers that the host is configured with. No argument of a tool does, as a
model fills those in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, TypeVar, get_type_hints

from keepworth.base.needs import needs_serve

from anyio.to_thread import run_sync
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolResult, ListToolsResult, TextContent, ToolAnnotations
from mcp.types import Tool as DescribedTool
from pydantic import (
    BaseModel,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
    create_model,
)

import keepworth
from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.memory.headline import TOKENS
from keepworth.memory.item import Item, Status, with_zone
from keepworth.memory.search.passages import GAP, block, part_from, tokens_of
from keepworth.memory.store.store import Revision
from keepworth.serving import verbs
from keepworth.serving.access import Access, bounds_in
from keepworth.serving.calls import first_mistake
from keepworth.serving.open_memories import OpenMemories, OpenMemory
from keepworth.serving.verb import Verb, VerbTool, verb
from keepworth.serving.verbs import IN_QUARANTINE, VerbCaller, masked

_LOG = logging.getLogger("keepworth.serving")
LOOKS, ADDS, CHANGES = (
    ToolAnnotations(read_only_hint=looks, destructive_hint=changes, open_world_hint=False)
    for looks, changes in ((True, False), (False, False), (False, True))
)
"""Annotations that tell hosts whether a tool only reads, adds, or changes what is there. When Codex cannot ask its user, it
refuses tools without them."""
WHOSE = (*verbs.Bounds.model_fields, "user", "agent", "session", "tenant", "scope", "run_id")
INSTRUCTIONS = (
    "A memory that outlives this conversation. Search it before you answer what depends on the user or on earlier work; add what "
    "will matter later, one fact at a time; report how things came out, so that it learns what to show."
)


class MemoryNote(BaseModel):
    """One thing remembered. `when` is the time of the event, or else that of writing. If it is long, `whole` is false and `text`
    is a part of it; `get_memory` reads the rest."""

    id: str
    text: str
    kind: str
    when: str
    whole: bool = True


class NotePart(MemoryNote):
    """A note, or a part of a long one. `next` is what the next call takes as `start`; 0 if nothing follows."""

    next: int = 0


class FoundNotes(BaseModel):
    """Notes that fit a query, best first, within a budget. `decision` is what `report_outcome` takes; `missing` are the ids of
    notes that fit too, and had no room; `none` is the probability that no note answers, if `top_k` was "auto"."""

    notes: list[MemoryNote]
    decision: str
    missing: list[str] = []
    none: float | None = None


class NotePage(BaseModel):
    """A page of notes. `next` is what the next page takes as `after`; "" on the last page."""

    notes: list[MemoryNote]
    next: str


class NoteHistory(BaseModel):
    """What happened to a note, oldest first. `next` is what the next call takes as `after`; 0 if nothing follows."""

    changes: list[str]
    next: int = 0


class StartedEpisode(BaseModel):
    episode: str


class Done(BaseModel):
    """The number of items that were changed."""

    changed: int


Hits = Annotated[
    int,
    Field(ge=1, le=100),
    WrapValidator(verbs.pass_auto),
    PlainSerializer(lambda value: value),
    WithJsonSchema(verbs.number_or_auto(100)),
]
Page = Annotated[int, Field(ge=1, le=1000)]
Place = Annotated[int, Field(ge=0)]
Tokens = Annotated[int, Field(ge=1, le=verbs.MOST_TOKENS)]
LISTED = 100
"""The tokens up to which a note stands whole in a list of notes or of changes."""


@dataclass(frozen=True, slots=True)
class ToolHost(VerbCaller):
    """A caller through an MCP host. `bounds` is the scope of what is written and searched, as the host is configured."""

    bounds: Mapping[str, str]


TOOLS: dict[str, tuple[Verb, DescribedTool]] = {}
"""By name, each tool as a verb, whose model checks the arguments, and as hosts list it."""


def tool(of: Verb, changes: bool = False) -> Callable[[Callable[..., BaseModel]], None]:
    """Return a decorator that adds a tool, which calls a verb. `changes`: it changes items, and does not only add some."""

    def add(function: Callable[..., BaseModel]) -> None:
        _add(of, verb("GET /", of.role)(function), str(function.__doc__), get_type_hints(function)["return"], changes)

    return add


def _add(of: Verb, made: Verb, about: str, answer: type[BaseModel], changes: bool) -> None:
    TOOLS[made.name] = (
        made,
        DescribedTool(
            name=made.name,
            description=" ".join(about.split()),
            input_schema=made.model.model_json_schema(),
            output_schema=answer.model_json_schema(),
            annotations=CHANGES if changes else LOOKS if of.role == "read" and not of.writes else ADDS,
        ),
    )


def add_tool(of: Verb, tool: VerbTool) -> None:
    """Add the tool of a verb. It answers with the items that the verb returns as notes, and else with how many it changed."""
    name, *fields = tool.usage.split()
    origin: dict[str, Any] = {"source": "mcp"} if "source" in of.takes and "source" not in fields else {}

    def answer(host: ToolHost, **values: Any) -> BaseModel:
        result = of.function(host, **origin, **values)
        if isinstance(result, Item):
            return _note(result)
        if isinstance(result, list):
            return NotePage(notes=[_note(item, LISTED) for item in result], next="")
        return Done(changed=result if isinstance(result, int) else len(result.changed))

    answer.__name__ = name
    definitions: dict[str, Any] = {field: (of.takes[field].annotation, of.takes[field]) for field in fields}
    model: type[BaseModel] = create_model(name, **definitions)
    result = get_type_hints(of.function)["return"]
    shape = MemoryNote if result is Item else NotePage if result == list[Item] else Done
    _add(of, Verb("GET", "/", of.role, answer, (model,)), tool.about, shape, tool.changes)


@tool(verbs.search)
def search_memories(
    host: ToolHost, query: str, top_k: Hits = 5, episode: str = "", tokens: Tokens = TOKENS
) -> FoundNotes:
    """Find memories that fit a question or a task. top_k: how many, or "auto" for those that answer, and none where none does.
    episode: the id from `start_episode`, if the search is part of one. tokens: how much text to return at most; of long memories
    it has the passages that fit."""
    person = host.open.episode(episode).scope.user if episode and not host.memory.scope.user else ""
    bounds = {"user_id": person} if person else {}
    hits = verbs.search.function(host, query, top_k=top_k, episode=episode, **bounds)
    shown = block(hits, query, tokens)
    lines = {id: line.removeprefix("- ") for id, line in shown.lines.items()}
    notes = []
    for item in {item.id: item for item in (*hits.core, *(hit.item for hit in hits))}.values():
        if (line := lines.get(item.id)) is not None:
            whole = item.id in shown.whole
            # As it stands, with its line breaks, unless most of it is white space.
            text = item.text if whole and len(item.text) <= 2 * len(line) else line
            notes.append(_make_note(MemoryNote, item, text, whole))
    return FoundNotes(notes=notes, decision=hits.decision, missing=list(shown.missing), none=hits.none)


@tool(verbs.add_items)
def add_memory(
    host: ToolHost,
    text: str,
    event_time: str = "",
    episode: str = "",
    kind: verbs.Kind = "fact",
    ttl: float | None = None,
    metadata: dict[str, Any] | None = None,
) -> MemoryNote:
    """Remember one fact, in a sentence that can be understood alone. event_time: when it happened, as ISO 8601. ttl: for how many
    seconds it is true. metadata: names with values, such as {"topic": "food"}."""
    options = {"event_time": event_time, "episode": episode, "kind": kind, "ttl": ttl, "metadata": metadata}
    return _note(verbs.add_items.function(host, text, source="mcp", **options)[0])


@tool(verbs.get_item)
def get_memory(host: ToolHost, id: str, start: Place = 0, tokens: Tokens = TOKENS) -> NotePart:
    """Get one memory by its id. start: `next` of the call before, to read on in a long one. tokens: how much to return at
    most."""
    item = verbs.get_item.function(host, id)
    if item.status is Status.QUARANTINED:
        item = masked(item)
    text, next = part_from(item.text, start, tokens)
    part = _make_note(NotePart, item, text, not (start or next))
    part.next = next
    return part


@tool(verbs.list_items)
def list_memories(host: ToolHost, limit: Page = 50, after: str = "", tokens: Tokens = TOKENS) -> NotePage:
    """List memories in the order in which they were written. after: `next` of the page before. tokens: how much text to return at
    most; of long memories it has the beginning."""
    page = verbs.list_items.function(host, limit=limit, after=after)
    notes = [_note(item, LISTED) for item in page]
    most = _count_fitting([note.text for note in notes], tokens)
    return NotePage(notes=notes[:most], next=page[most - 1].id if most < len(page) or len(page) == limit else "")


@tool(verbs.update_item, changes=True)
def update_memory(host: ToolHost, id: str, text: str) -> MemoryNote:
    """Say the same fact in better words."""
    return _note(verbs.update_item.function(host, id, text))


@tool(verbs.item_history)
def memory_history(host: ToolHost, id: str, after: Place = 0, tokens: Tokens = TOKENS) -> NoteHistory:
    """Show what happened to a memory, oldest first. after: `next` of the call before. tokens: how much text to return at most."""
    # An earlier wording may hold the secret too: for an item in quarantine no text is shown.
    listed = host.memory.history(id)
    states = [change.after for change in listed if change.after is not None]
    held = bool(states) and states[-1].status is Status.QUARANTINED

    def text_after(change: Revision) -> str:
        return "(gone)" if change.after is None else IN_QUARANTINE if held else _beginning(change.after.text, LISTED)

    changes = [f"{with_zone(change.at)} {change.kind}: {text_after(change)}" for change in listed[after:]]
    most = _count_fitting(changes, tokens)
    return NoteHistory(changes=changes[:most], next=after + most if most < len(changes) else 0)


@tool(verbs.begin_episode)
def start_episode(host: ToolHost, task: str) -> StartedEpisode:
    """Begin one attempt at a task, so that its outcome teaches the memory. Give its id to the searches."""
    by = host.access.user_id or host.bounds.get("user_id", "")
    return StartedEpisode(episode=verbs.begin_episode.function(host, by, task, **host.bounds)["id"])


@tool(verbs.rollback, changes=True)
def rollback_episode(host: ToolHost, episode: str) -> Done:
    """Undo everything that was written and learned in an episode."""
    return Done(changed=len(verbs.rollback.function(host, episode).changed))


for _verb in verbs.VERBS:
    if _verb.tool is not None:
        add_tool(_verb, _verb.tool)


def mcp_server(memories: OpenMemories, access: Access | None = None) -> Server[Any]:
    """Make an MCP server with all tools. `access` is what every call may do; without one, the token of a call's HTTP request says
    it, which has been checked, and the headers of the request narrow the scope."""

    def call(name: str, arguments: Mapping[str, Any], request: Any) -> BaseModel:
        if name not in TOOLS:
            raise UnknownName("tool", name, TOOLS)
        verb, _ = TOOLS[name]
        try:
            fields = verb.model.model_validate(arguments).model_dump(exclude_unset=True)
        except ValidationError as error:
            mistake = first_mistake(error, verb.model, "argument", f"in {name}")
            if mistake.about in WHOSE:
                mistake.fix = "Leave it out: whose memory it is, the token says, or how the host is configured."
            raise mistake from None
        allowed: Access = access or request.scope["access"]
        bounds = {} if access else bounds_in(request.headers)
        allowed.require(verb.role)
        open = memories.of(allowed)
        if bounds:
            open = OpenMemory(open.memory.within(**dict[str, Any](bounds)), open.share)
        answer: BaseModel = verb.function(ToolHost(open.memory, allowed, open, bounds), **fields)
        return answer

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[described for _, described in TOOLS.values()])

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        """Answer a call. The message of an error that a caller can mend is shown, and not that of a bug."""
        try:
            answer = await run_sync(call, params.name, params.arguments or {}, context.request)
        except KeepworthError as error:
            message = str(error)
            for path in memories.paths():
                message = message.replace(path, "this memory")
        except Exception as error:
            _LOG.exception("the tool %s failed", params.name, exc_info=error)
            message = "Something broke inside the memory; its log says what."
        else:
            text = TextContent(text=answer.model_dump_json(indent=2))
            return CallToolResult(content=[text], structured_content=answer.model_dump())
        return CallToolResult(content=[TextContent(text=message)], is_error=True)

    return Server(
        "keepworth",
        version=keepworth.__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(memories: OpenMemories, access: Access) -> None:
    """Answer the calls on standard input, with the access that the command was started with, until it ends."""
    server = mcp_server(memories, access)
    async with stdio_server() as (calls, answers):
        await server.run(calls, answers, server.create_initialization_options())


def _note(item: Item, tokens: int = TOKENS) -> MemoryNote:
    """Return an item as a note, whole or, if that takes more tokens, its beginning."""
    if item.status is Status.QUARANTINED:
        item = masked(item)
    text = _beginning(item.text, tokens)
    return _make_note(MemoryNote, item, text, text == item.text)


Note = TypeVar("Note", bound=MemoryNote)


def _make_note(of: type[Note], item: Item, text: str, whole: bool) -> Note:
    return of(
        id=item.id, text=text, kind=item.kind.value, when=with_zone(item.event_time or item.written_at), whole=whole
    )


def _beginning(text: str, tokens: int) -> str:
    """Return a text, or the beginning of it with a mark."""
    begins, next = part_from(text, 0, tokens)
    return f"{begins.rstrip()} {GAP}" if next else begins


def _count_fitting(texts: Sequence[str], tokens: int) -> int:
    """Return how many of the texts, from the first on, have no more than so many tokens; at least one if there is any."""
    for number, spent in enumerate(accumulate(map(tokens_of, texts))):
        if spent > tokens:
            return max(1, number)
    return len(texts)
