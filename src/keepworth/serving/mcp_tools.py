"""Memory as tools of the Model Context Protocol, through its own SDK: over standard input and output, or over HTTP.

Whose memory it is, the credential says, and for one host's connection its headers; no argument of a tool does, as a model
fills those in.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ParamSpec, TypeVar

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
from keepworth.memory.item import Item, Status
from keepworth.memory.memory import Memory
from keepworth.serving.access import Access
from keepworth.serving.open_memories import OpenMemories, OpenMemory
from keepworth.serving.wrong_fields import first_mistake

_LOG = logging.getLogger("keepworth.serving")
P = ParamSpec("P")
Result = TypeVar("Result")
BOUNDS = ("user_id", "agent_id", "session_id")
LOOKS, ADDS, CHANGES = (
    ToolAnnotations(read_only_hint=looks, destructive_hint=changes, open_world_hint=False)
    for looks, changes in ((True, False), (False, False), (False, True))
)
"""What hosts ask before they let a model call a tool: whether it only looks, adds, or changes what is there. Codex, where nobody
can be asked, refuses a tool that does not say it."""
WHOSE = (*BOUNDS, "user", "agent", "session", "tenant", "scope", "run_id")
INSTRUCTIONS = (
    "A memory that outlives this conversation. Search it before you answer what depends on the user or on earlier work; add what "
    "will matter later, one fact at a time; report how things came out, so that it learns what to show."
)


class MemoryNote(BaseModel):
    """One thing remembered. when: of the event, or of its writing."""

    id: str
    text: str
    kind: str
    when: str


class FoundNotes(BaseModel):
    """notes: best first. decision: what `report_outcome` takes."""

    notes: list[MemoryNote]
    decision: str


class NotePage(BaseModel):
    """next: what the next page takes as `after`, or ""."""

    notes: list[MemoryNote]
    next: str


class NoteHistory(BaseModel):
    """changes: what happened, oldest first."""

    changes: list[str]


class StartedEpisode(BaseModel):
    episode: str


class Done(BaseModel):
    """changed: how many items."""

    changed: int


IN_QUARANTINE = "(held in quarantine)"
Hits = Annotated[int, Field(ge=1, le=100)]
Page = Annotated[int, Field(ge=1, le=1000)]


class CheckedTool(Tool):  # type: ignore[misc]
    """A tool that has the arguments of its schema and no others. A model that names a person, or a filter there is not, is told,
    and not given something else; and mistakes are said as the server says them over HTTP, not as a validator does."""

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
            _noted(context, self.name, "refused")
            raise ToolError(str(mistake)) from None
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            raise (
                error.__cause__ if type(error.__cause__) is ToolError else error
            ) from None  # without the SDK's preface


Opened = Callable[[Context[Any, Any]], tuple[OpenMemory, Access, dict[str, str]]]
"""A call -> the memory, what the credential allows, and the bounds of what is written and searched."""


def over_http(memories: OpenMemories) -> Opened:
    """By the token that the server's door has checked, and the headers that a host is configured with."""

    def opened(context: Context[Any, Any]) -> tuple[OpenMemory, Access, dict[str, str]]:
        request = context.request_context.request
        access: Access = request.scope["access"]
        return memories.of(access), access, bounds_in(request.headers)

    return opened


def over_stdio(memories: OpenMemories, access: Access) -> Opened:
    """By what the command was started with."""
    return lambda context: (memories.of(access), access, {})


def bounds_in(headers: Mapping[str, str]) -> dict[str, str]:
    named = {name: headers.get(f"x-keepworth-{name.removesuffix('_id')}", "") for name in BOUNDS}
    return {name: value for name, value in named.items() if value}


def _within(memory: Memory, bounds: Mapping[str, str]) -> Memory:
    return memory.within(
        user_id=bounds.get("user_id", ""),
        agent_id=bounds.get("agent_id", ""),
        session_id=bounds.get("session_id", ""),
    )


def mcp_server(opened: Opened) -> MCPServer[Any]:
    """The tools. opened: see `over_http` and `over_stdio`."""
    tools: list[Tool] = []

    def tool(role: str, does: ToolAnnotations) -> Callable[[Callable[P, Result]], None]:
        return lambda verb: tools.append(CheckedTool.of(_guarded(verb, role, opened, bool(does.read_only_hint)), does))

    def at(context: Context[Any, Any]) -> OpenMemory:
        open, _, bounds = opened(context)
        return OpenMemory(_within(open.memory, bounds)) if bounds else open

    def of_nobody(context: Context[Any, Any], memory: Memory) -> dict[str, Any]:
        """Where neither the token nor a header names a person: see `Access.everybody`."""
        return {} if memory.scope.user or opened(context)[1].everybody else {"nobody": True}

    @tool("read", LOOKS)
    def search_memories(query: str, context: Context[Any, Any], top_k: Hits = 5, episode: str = "") -> FoundNotes:
        """Find what was remembered that fits a question or a task. episode: of `start_episode`, if the search is part of one."""
        open = at(context)
        open.touch(episode)
        whose = {} if episode and open.episode(episode).scope.user else of_nobody(context, open.memory)
        hits = open.memory.search(query, top_k=top_k, episode=episode, **whose)
        return FoundNotes(notes=[_note(hit.item) for hit in hits], decision=hits.decision)

    @tool("write", ADDS)
    def add_memory(text: str, context: Context[Any, Any], event_time: str = "", episode: str = "") -> MemoryNote:
        """Remember one fact, in a sentence that can be understood alone. event_time: when it happened, as ISO 8601."""
        open = at(context)
        return _note(open.memory.add(text, event_time=event_time, episode=episode, source="mcp"))

    @tool("read", LOOKS)
    def get_memory(id: str, context: Context[Any, Any]) -> MemoryNote:
        """One memory by its id."""
        open = at(context)
        return _note(open.memory.get(id))

    @tool("read", LOOKS)
    def list_memories(context: Context[Any, Any], limit: Page = 50, after: str = "") -> NotePage:
        """Memories in the order in which they were written. after: `next` of the page before."""
        open = at(context)
        page = open.memory.get_all(limit=limit, after=after, **of_nobody(context, open.memory))
        return NotePage(notes=[_note(item) for item in page], next=page[-1].id if len(page) == limit else "")

    @tool("write", CHANGES)
    def update_memory(id: str, text: str, context: Context[Any, Any]) -> MemoryNote:
        """Say the same fact in better words."""
        open = at(context)
        return _note(open.memory.update(id, text))

    @tool("write", CHANGES)
    def supersede_memory(id: str, text: str, context: Context[Any, Any], event_time: str = "") -> MemoryNote:
        """The fact changed: the new one takes the place of the old, which stays known as the past."""
        open = at(context)
        return _note(open.memory.supersede(id, text, event_time=event_time, source="mcp"))

    @tool("write", CHANGES)
    def delete_memory(id: str, context: Context[Any, Any]) -> Done:
        """Hide a memory that is wrong or unwanted."""
        open = at(context)
        open.memory.delete(id)
        return Done(changed=1)

    @tool("read", LOOKS)
    def memory_history(id: str, context: Context[Any, Any]) -> NoteHistory:
        """What happened to a memory, oldest first."""
        open = at(context)
        listed = open.memory.history(id)
        states = [each.after for each in listed if each.after is not None]
        held = bool(states) and states[-1].status is Status.QUARANTINED  # a former wording may hold the secret, too
        changes = [
            f"{each.at} {each.kind}: {'(gone)' if each.after is None else IN_QUARANTINE if held else each.after.text}"
            for each in listed
        ]
        return NoteHistory(changes=changes)

    @tool("read", ADDS)
    def start_episode(task: str, context: Context[Any, Any]) -> StartedEpisode:
        """Begin one attempt at a task, so that its outcome teaches the memory. Give its id to the searches."""
        open, access, bounds = opened(context)
        by = access.user_id or bounds.get("user_id", "")
        return StartedEpisode(episode=open.begin(task=task, by=by, **bounds).id)

    @tool("reward", ADDS)
    def report_outcome(target: str, value: float, context: Context[Any, Any]) -> Done:
        """Say how it came out: 1 for success, 0 for failure. target: an episode, or the decision of a search."""
        open = at(context)
        _, access, _ = opened(context)
        outcome = open.memory.reward(target, value, by=access.user_id or None, source="mcp")
        return Done(changed=len(outcome.changed))

    @tool("admin", CHANGES)
    def rollback_episode(episode: str, context: Context[Any, Any]) -> Done:
        """Undo everything that was written and learned in an episode."""
        open = at(context)
        return Done(changed=len(open.memory.rollback(episode).changed))

    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)  # the SDK would make the root of all logs its own
    try:
        return MCPServer("keepworth", version=keepworth.__version__, instructions=INSTRUCTIONS, tools=tools)
    finally:
        root.removeHandler(silent)


def sessions(server: MCPServer[Any], most: int) -> StreamableHTTPSessionManager:
    """What answers over HTTP, without sessions: every request stands alone. most: bytes of a body. Host and Origin are checked at
    the server's door, with the token."""
    server.streamable_http_app(
        json_response=True,
        stateless_http=True,
        max_request_body_size=most,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return server.session_manager


def _guarded(verb: Callable[P, Result], role: str, opened: Opened, reads: bool) -> Callable[P, Result]:
    """With the role checked, and what goes wrong as a tool says it: mistakes by their message, bugs without one. reads: whether
    it only reads, which an audit of changes leaves out."""

    @functools.wraps(verb)
    def guarded(*arguments: P.args, **options: P.kwargs) -> Result:
        context: Any = options["context"]
        ids = [str(options[name]) for name in ("id", "target", "episode") if options.get(name)]
        try:
            open, access, bounds = opened(context)
            access.require(role)
            owners = open.owners(ids) if access.shared else ()
            whose = [f"user_id={name}" for name in owners if name != access.user_id]
            whose += [f"{name}={value}" for name, value in bounds.items()]
            result = verb(*arguments, **options)
            made = [str(getattr(result, name)) for name in ("id", "episode") if hasattr(result, name)]
            _noted(context, verb.__name__, "done", *ids, *whose, *made, reads=reads)
            return result
        except KeepworthError as error:
            _noted(context, verb.__name__, "refused", *ids)
            message = str(error)
            for path in _paths(opened, options["context"]):
                message = message.replace(path, "this memory")
            raise ToolError(message) from None
        except Exception as error:
            _noted(context, verb.__name__, "failed", *ids)
            _LOG.exception("the tool %s failed", verb.__name__, exc_info=error)
            raise ToolError("Something broke inside the memory; its log says what.") from None

    return guarded


def _noted(context: Any, tool: str, outcome: str, *ids: str, reads: bool = False) -> None:
    """What the audit log says of a call. Over standard input there is no request, and no log."""
    asked = getattr(context.request_context, "request", None)
    if asked is not None and "tool" in asked.scope:
        asked.scope["tool"].update(tool=tool, outcome=outcome, changes="" if reads else "yes")
        asked.scope["touched"].extend(ids)


def _paths(opened: Opened, context: Any) -> list[str]:
    try:
        return [opened(context)[0].memory.path]
    except KeepworthError:
        return []


def _note(item: Item) -> MemoryNote:
    held = item.status is Status.QUARANTINED
    return MemoryNote(
        id=item.id,
        text=IN_QUARANTINE if held else item.text,
        kind=item.kind.value,
        when=item.event_time or item.written_at,
    )
