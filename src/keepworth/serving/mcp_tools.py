"""Memory as tools of the Model Context Protocol, through its SDK: over standard input and output, or over HTTP.

The token says whose memory it is, and over HTTP also headers that the host is configured with. No argument of a tool does, as a
model fills those in.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from keepworth.episodes.needs import needs_mcp

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import keepworth
from keepworth.episodes.errors import KeepworthError
from keepworth.memory import verbs
from keepworth.memory.item import Item, Status
from keepworth.memory.verbs import IN_QUARANTINE, Verb, VerbCaller, masked
from keepworth.serving.access import Access, bounds_in
from keepworth.serving.calls import first_mistake
from keepworth.serving.open_memories import OpenMemories, OpenMemory

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
    """One thing remembered. `when` is the time of the event, or else that of writing."""

    id: str
    text: str
    kind: str
    when: str


class FoundNotes(BaseModel):
    """Notes that fit a query, best first. `decision` is what `report_outcome` takes."""

    notes: list[MemoryNote]
    decision: str


class NotePage(BaseModel):
    """A page of notes. `next` is what the next page takes as `after`; "" on the last page."""

    notes: list[MemoryNote]
    next: str


class NoteHistory(BaseModel):
    """What happened to a note, oldest first."""

    changes: list[str]


class StartedEpisode(BaseModel):
    episode: str


class Done(BaseModel):
    """The number of items that were changed."""

    changed: int


Hits = Annotated[int, Field(ge=1, le=100)]
Page = Annotated[int, Field(ge=1, le=1000)]


class CheckedTool(Tool):  # type: ignore[misc]
    """A tool that refuses arguments that are not in its schema, such as the name of a person, so that a model does not take the
    answer for what it asked. Its error messages are those of the HTTP routes, and not those of pydantic."""

    @classmethod
    def of(cls, verb: Callable[..., Any], does: ToolAnnotations) -> CheckedTool:
        made = cls.from_function(verb, annotations=does)
        loose = made.fn_metadata.arg_model
        made.fn_metadata.arg_model = type(loose.__name__, (loose,), {"model_config": ConfigDict(extra="forbid")})
        made.parameters = made.fn_metadata.arg_model.model_json_schema(by_alias=True)
        assert isinstance(made, cls)
        return made

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        kind = self.fn_metadata.arg_model
        try:
            kind.model_validate(self.fn_metadata.pre_parse_json(arguments))
        except ValidationError as error:
            mistake = first_mistake(error, kind, "argument", f"in {self.name}")
            if mistake.about in WHOSE:
                mistake.fix = "Leave it out: whose memory it is, the token says, or how the host is configured."
            raise ToolError(str(mistake)) from None
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            # Drops the words that the SDK puts before the message.
            raise (error.__cause__ if type(error.__cause__) is ToolError else error) from None


Opened = Callable[[Context[Any, Any]], tuple[OpenMemory, Access, dict[str, str]]]
"""A function from a call to the memory, what the token allows, and the scope of what is written and searched."""


def over_http(memories: OpenMemories) -> Opened:
    """Open the memory by the token, which the server has checked, within the scope that the host's headers name."""

    def opened(context: Context[Any, Any]) -> tuple[OpenMemory, Access, dict[str, str]]:
        request = context.request_context.request
        access: Access = request.scope["access"]
        named = {name: value for name, value in bounds_in(request.headers).items() if value}
        return memories.of(access), access, named

    return opened


def over_stdio(memories: OpenMemories, access: Access) -> Opened:
    """Open the memory with the access that the command was started with."""
    return lambda context: (memories.of(access), access, {})


@dataclass(frozen=True, slots=True)
class ToolHost(VerbCaller):
    """A caller through an MCP host. `bounds` is the scope of what is written and searched, as the host is configured."""

    bounds: Mapping[str, str]


def mcp_server(opened: Opened) -> MCPServer[Any]:
    """Make an MCP server with all tools. `opened` is `over_http(...)` or `over_stdio(...)`."""
    tools: list[Tool] = []

    def tool(verb: Verb, changes: bool = False) -> Callable[[Callable[..., Any]], None]:
        """Add a tool that calls a verb. `changes` says that it changes items, and does not only add some."""
        does = CHANGES if changes else LOOKS if verb.role == "read" and not verb.writes else ADDS
        return lambda function: tools.append(CheckedTool.of(_guarded(function, verb, opened), does))

    @tool(verbs.search)
    def search_memories(host: ToolHost, query: str, top_k: Hits = 5, episode: str = "") -> FoundNotes:
        """Find memories that fit a question or a task. episode: the id from `start_episode`, if the search is part of one."""
        person = host.open.episode(episode).scope.user if episode and not host.memory.scope.user else ""
        bounds = {"user_id": person} if person else {}
        hits = verbs.search.function(host, query, top_k=top_k, episode=episode, **bounds)
        return FoundNotes(notes=[_note(hit.item) for hit in hits], decision=hits.decision)

    @tool(verbs.add_items)
    def add_memory(host: ToolHost, text: str, event_time: str = "", episode: str = "") -> MemoryNote:
        """Remember one fact, in a sentence that can be understood alone. event_time: when it happened, as ISO 8601."""
        return _note(verbs.add_items.function(host, text, event_time=event_time, episode=episode, source="mcp")[0])

    @tool(verbs.get_item)
    def get_memory(host: ToolHost, id: str) -> MemoryNote:
        """Get one memory by its id."""
        return _note(verbs.get_item.function(host, id))

    @tool(verbs.list_items)
    def list_memories(host: ToolHost, limit: Page = 50, after: str = "") -> NotePage:
        """List memories in the order in which they were written. after: `next` of the page before."""
        page = verbs.list_items.function(host, limit=limit, after=after)
        return NotePage(notes=[_note(item) for item in page], next=page[-1].id if len(page) == limit else "")

    @tool(verbs.update_item, changes=True)
    def update_memory(host: ToolHost, id: str, text: str) -> MemoryNote:
        """Say the same fact in better words."""
        return _note(verbs.update_item.function(host, id, text))

    @tool(verbs.supersede_item, changes=True)
    def supersede_memory(host: ToolHost, id: str, text: str, event_time: str = "") -> MemoryNote:
        """Replace a memory by a new one because the fact changed; the old one stays in the history."""
        return _note(verbs.supersede_item.function(host, id, text, event_time=event_time, source="mcp"))

    @tool(verbs.delete_item, changes=True)
    def delete_memory(host: ToolHost, id: str) -> Done:
        """Hide a memory that is wrong or unwanted."""
        return Done(changed=verbs.delete_item.function(host, id))

    @tool(verbs.item_history)
    def memory_history(host: ToolHost, id: str) -> NoteHistory:
        """Show what happened to a memory, oldest first."""
        # An earlier wording may hold the secret too: for an item in quarantine no text is shown.
        listed = host.memory.history(id)
        states = [change.after for change in listed if change.after is not None]
        held = bool(states) and states[-1].status is Status.QUARANTINED
        changes = [
            f"{change.at} {change.kind}: {'(gone)' if change.after is None else IN_QUARANTINE if held else change.after.text}"
            for change in listed
        ]
        return NoteHistory(changes=changes)

    @tool(verbs.begin_episode)
    def start_episode(host: ToolHost, task: str) -> StartedEpisode:
        """Begin one attempt at a task, so that its outcome teaches the memory. Give its id to the searches."""
        by = host.access.user_id or host.bounds.get("user_id", "")
        return StartedEpisode(episode=verbs.begin_episode.function(host, by, task, **host.bounds)["id"])

    @tool(verbs.reward)
    def report_outcome(host: ToolHost, target: str, value: float) -> Done:
        """Report how a task came out: 1 for success, 0 for failure. target: the id of an episode, or the decision of a search."""
        return Done(changed=len(verbs.reward.function(host, target, value, source="mcp").changed))

    @tool(verbs.rollback, changes=True)
    def rollback_episode(host: ToolHost, episode: str) -> Done:
        """Undo everything that was written and learned in an episode."""
        return Done(changed=len(verbs.rollback.function(host, episode).changed))

    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)  # without a handler, the SDK would configure the root logger
    try:
        return MCPServer("keepworth", version=keepworth.__version__, instructions=INSTRUCTIONS, tools=tools)
    finally:
        root.removeHandler(silent)


def sessions(server: MCPServer[Any], most: int) -> StreamableHTTPSessionManager:
    """Make the handler of HTTP requests, whose bodies have at most `most` bytes. It keeps no state between requests. Host, Origin
    and token have been checked before."""
    server.streamable_http_app(
        json_response=True,
        stateless_http=True,
        max_request_body_size=most,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return server.session_manager


def _guarded(function: Callable[..., Any], verb: Verb, opened: Opened) -> Callable[..., Any]:
    """Wrap a tool's function for the SDK: it takes the call instead of the host, the role is checked, and errors become
    ToolError, with the message of an expected error but not with that of a bug."""

    def guarded(context: Context[Any, Any], **options: Any) -> Any:
        try:
            open, access, bounds = opened(context)
            access.require(verb.role)
            within = OpenMemory(open.memory.within(**dict[str, Any](bounds))) if bounds else open
            return function(ToolHost(within.memory, access, within, bounds), **options)
        except KeepworthError as error:
            message = str(error)
            for path in _paths(opened, context):
                message = message.replace(path, "this memory")
            raise ToolError(message) from None
        except Exception as error:
            _LOG.exception("the tool %s failed", function.__name__, exc_info=error)
            raise ToolError("Something broke inside the memory; its log says what.") from None

    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    call = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=Context[Any, Any])
    options_of_tool = [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(parameters)[1:]
    ]
    guarded.__name__, guarded.__doc__ = function.__name__, function.__doc__
    guarded.__signature__ = inspect.Signature([*options_of_tool, call], return_annotation=hints["return"])  # type: ignore[attr-defined]
    guarded.__annotations__ = {parameter.name: parameter.annotation for parameter in (*options_of_tool, call)} | {
        "return": hints["return"]
    }
    return guarded


def _paths(opened: Opened, context: Any) -> list[str]:
    try:
        return [opened(context)[0].memory.path]
    except KeepworthError:
        return []


def _note(item: Item) -> MemoryNote:
    if item.status is Status.QUARANTINED:
        item = masked(item)
    return MemoryNote(id=item.id, text=item.text, kind=item.kind.value, when=item.event_time or item.written_at)
