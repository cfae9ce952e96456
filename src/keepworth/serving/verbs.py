"""The calls that a served memory answers ("verbs"), each defined once: route, role, typed fields, documentation and function.

The HTTP routes, their OpenAPI description and the clients are made from this table. Here is also decided what a caller sees: only
admins see the text of items in quarantine, and where no person is named, others see only what was stored without a person.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.config import JsonDict

from keepworth.base.errors import KeepworthError
from keepworth.memory import errors
from keepworth.memory.automatic import asks, floor_of
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.headline import MARK
from keepworth.memory.item import LONGEST_NAME, Item, ItemKind, Provenance, Status
from keepworth.memory.memory import Memory
from keepworth.memory.search.passages import TOKENS
from keepworth.memory.search.search import MODES, Hits
from keepworth.memory.search.where import Filter, from_text, parsed
from keepworth.memory.store import episode_log, notes
from keepworth.records.episode import episode_to_json

MOST_TOKENS = 1_000_000
"""The largest budget of a text for a prompt."""
IN_QUARANTINE = "(held in quarantine)"
MOST = 1000
"""The largest number of texts, ids, hits or items of a page in one request."""


@dataclass(frozen=True, slots=True)
class VerbCaller:
    """Who calls a verb: the memory, what they may do (`access`, a `serving.access.Access`), and the memory's running episodes
    (`open`, a `serving.open_memories.OpenMemory`)."""

    memory: Memory
    access: Any
    open: Any

    def item(self, item: Item) -> Item:
        """Return an item as the caller may see it: without its text if it is in quarantine, or if the caller may not read."""
        if self.withholds(item):
            item = masked(item)
        if "read" not in self.access.roles:
            item = replace(item, text="", key="", metadata={}, provenance=Provenance())
        return item

    def withholds(self, item: Item) -> bool:
        return item.status is Status.QUARANTINED and "admin" not in self.access.roles

    def withholds_id(self, id: str) -> bool:
        """Whether an item is withheld from the caller. One that no longer exists is, as its state is unknown."""
        try:
            return self.withholds(self.memory.get(id))
        except KeepworthError:
            return True

    def nobody(self, person: str = "") -> dict[str, Any]:
        """Return the option that hides what belongs to a person, if the call names nobody and the caller is no admin."""
        return {} if person or self.memory.scope.user or self.access.everybody else {"nobody": True}

    def search(self, person: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the checked options of a search. Only admins may search items in quarantine."""
        if Status.QUARANTINED.value in options.get("statuses", ()):
            self.access.require("admin")
        return {**options, "where": _filter(options.get("where")), **self.nobody(person)}


@dataclass(frozen=True, slots=True)
class Verb:
    """One call that a served memory answers."""

    method: str  # the HTTP method
    path: str  # of its route
    role: str  # that a caller must have
    function: Callable[..., Any]  # called with the caller, the values in the path, and the fields of the request
    model: type[BaseModel]  # checks the fields
    of: Callable[..., Any] | None = None  # the method of `Memory` or `LiveEpisode` with the same arguments
    key: str = ""  # the name of the result in the answer; "" if the result is the whole answer
    writes: bool = False  # so that a request may carry an idempotency key
    pages: bool = False  # whether it lists a page at a time; the answer then has `next`
    lines: bool = False  # whether the answer is lines of JSON

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def summary(self) -> str:
        return str(self.function.__doc__).splitlines()[0]

    @property
    def in_body(self) -> bool:
        """Whether the fields come in the body of the request, and not as parameters of its URL."""
        return self.method in ("POST", "PATCH")

    @property
    def in_path(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)


class _Fields(BaseModel):
    """Base of the models of a URL's parameters: unlisted fields are refused, and text is converted to the types of the others."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _StrictFields(_Fields):
    """Base of the models of bodies: as `_Fields`, but values must have the right type already."""

    model_config = ConfigDict(strict=True)


def verb(
    route: str,
    role: str,
    *fields: type[BaseModel],
    of: Callable[..., Any] | None = None,
    key: str = "",
    schema: JsonDict | None = None,
    writes: bool = False,
    pages: bool = False,
    lines: bool = False,
) -> Callable[[Callable[..., Any]], Verb]:
    """Return a decorator that turns a function into a `Verb`, which explains the arguments. The route is "METHOD /path", `fields`
    are models with the fields that the function takes as `**options`, `schema` is JSON Schema for the fields together, such as
    that one of two is required."""
    method, _, path = route.partition(" ")

    def make(function: Callable[..., Any]) -> Verb:
        hints = get_type_hints(function, include_extras=True)
        named = [
            parameter
            for parameter in list(inspect.signature(function).parameters.values())[1:]
            if parameter.kind is not parameter.VAR_KEYWORD and f"{{{parameter.name}}}" not in path
        ]
        bases = (*fields, _StrictFields if method in ("POST", "PATCH") else _Fields)
        model: type[BaseModel] = create_model(
            function.__name__.title().replace("_", ""),
            __base__=bases,
            __module__=__name__,
            __cls_kwargs__={"json_schema_extra": schema} if schema else None,
            **{
                field.name: (hints[field.name], ... if field.default is field.empty else field.default)
                for field in named
            },
        )  # type: ignore[call-overload]
        return Verb(method, path, role, function, model, of, key, writes, pages, lines)

    return make


# -- fields -----------------------------------------------------------------------------------------------------------


def _whole(value: Any) -> Any:
    """Convert a float such as 1.0 to an int, as JSON Schema counts it as a whole number; leave other values as they are."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_KINDS: list[Any] = [kind.value for kind in ItemKind]
_STATUSES: list[Any] = [Statu.value for Statu in Status]
# Where `Memory` checks a value itself, with a better message, the limit stands only in the description.
Name = Annotated[str, Field(max_length=LONGEST_NAME, json_schema_extra={"pattern": r"^[^\u0000-\u001f]*$"})]
Kind = Annotated[str, Field(json_schema_extra={"enum": _KINDS})]
StatusName = Annotated[str, Field(json_schema_extra={"enum": _STATUSES})]
Whole = Annotated[int, BeforeValidator(_whole)]
Time = Annotated[
    str | float,
    Field(
        description="A time as ISO 8601, taken as UTC if it has no zone, or seconds since 1970.",
        json_schema_extra={
            "anyOf": [{"type": "string", "format": "date-time"}, {"type": "string"}, {"type": "number"}]
        },
    ),
]
Kinds = Annotated[
    str,
    Field(
        description="Kinds of items, with commas between them; all if left out.",
        json_schema_extra={"pattern": f"^(({'|'.join(_KINDS)})(,({'|'.join(_KINDS)}))*)?$"},
    ),
]
Ids = Annotated[str, Field(description="Ids, with commas between them; all that were shown with a reward if left out.")]
Entry = Annotated[
    int,
    Field(ge=0, le=2**53, description="One change, by the `seq` that the history of an item gives it."),
    BeforeValidator(_whole),
]


class Page(BaseModel):
    limit: int = Field(100, ge=1, le=MOST)
    after: str = Field("", description="`next` of the page before.")


class Bounds(BaseModel):
    user_id: Name = ""
    agent_id: Name = ""
    session_id: Name = ""


class TextOrigin(_StrictFields):
    """The place that a text comes from: source, session, turn, speaker and date."""

    source: str = ""
    session: str = ""
    turn: Whole = Field(-1, ge=-1, le=2**53)
    speaker: str = ""
    date: str = ""


class Writing(Bounds):
    kind: Kind = "fact"
    key: str = ""
    event_time: Time = ""
    valid_from: Time = ""
    valid_to: Time = ""
    expires_at: Time = ""
    ttl: float | None = None
    trust: float = 1.0
    status: StatusName = "active"
    metadata: dict[str, Any] | None = None
    source: str = ""
    repeat: bool = False
    episode: str = ""


class Searching(Bounds):
    top_k: Whole = Field(10, ge=1, le=MOST)
    mode: Annotated[str, Field(json_schema_extra={"enum": list(MODES)})] | None = None
    threshold: float | None = None
    actions: list[str] = Field([], max_length=MOST)
    explain: bool = False
    kinds: list[Kind] = Field([], max_length=100)
    statuses: list[StatusName] = Field(["active"], max_length=100)
    where: dict[str, Any] | None = None
    since: Time = ""
    until: Time = ""
    as_of: Time = ""
    half_life: float = 0.0
    tokens: Annotated[Whole, Field(ge=1, le=MOST_TOKENS, description="The budget of the answer's text.")] = TOKENS
    automatic: Annotated[
        bool, Field(description="Nobody asked: words that ask for nothing, and hits that hardly fit, give nothing.")
    ] = False


class InEpisode(BaseModel):
    episode: str = ""
    step: Whole = Field(0, ge=0, le=10**9)


def _not_empty(name: str) -> JsonDict:
    value: JsonDict = {"type": ["string", "array", "integer"], "minLength": 1, "minimum": 1}
    return {"required": [name], "properties": {name: value}}


def _one_of(*names: str) -> JsonDict:
    return {"oneOf": [_not_empty(name) for name in names]}


def _filter(where: Mapping[str, Any] | str | None) -> Filter | None:
    """Parse a filter, given as a dictionary or as JSON. The error says that its field is `where`: the field cannot be told from
    the message, which may quote values of other fields. Raises InvalidFilter."""
    try:
        return parsed(from_text(where) if isinstance(where, str) else where)
    except errors.InvalidFilter as error:
        error.field = "where"
        raise


def _wrong(field: str, message: str, fix: str) -> errors.InvalidFilter:
    error = errors.InvalidFilter(message, fix)
    error.field = field
    return error


LONGEST_OF_READERS = 10_000
"""Characters of a task that are kept of who may only read, as many as of a logged query."""
ROW = 2048
"""Bytes that a logged search or step takes beside its texts, with its candidates, its vector and its places in indexes."""


def _logged(*texts: str) -> int:
    """Return about how many bytes the log grows by for something with these texts."""
    return ROW + sum(2 * len(text.encode("utf-8", "surrogatepass")) for text in texts)


def masked(item: Item) -> Item:
    """Return an item in quarantine without its text, key, metadata and provenance."""
    return replace(item, text=IN_QUARANTINE, key="", metadata={}, provenance=Provenance())


# -- items ------------------------------------------------------------------------------------------------------------


@verb("POST /items", "write", Writing, of=Memory.add, key="items", schema=_one_of("content", "texts"), writes=True)
def add_items(
    caller: VerbCaller,
    content: Annotated[
        str | list[dict[str, Any]] | None, Field(description="A text, or messages with role and content.")
    ] = None,
    texts: Annotated[
        list[str] | None, Field(max_length=MOST, description="Several texts: all of them or none.")
    ] = None,
    infer: Annotated[bool, Field(description="Let the writer of this server say what to keep of `content`.")] = False,
    provenances: Annotated[list[TextOrigin] | None, Field(max_length=MOST)] = None,
    **options: Any,
) -> list[Item]:
    """Remember a text, messages, or several texts."""
    if (content is None) == (texts is None):
        raise _wrong("content", "One of content and texts says what to remember.", "Give one of the two.")
    if texts is not None and infer:
        raise _wrong("infer", "infer is for messages, and texts are stored as they are.", "Give content.")
    if provenances is not None:
        options["provenances"] = [Provenance(**provenance) for provenance in provenances]  # type: ignore[arg-type]
    caller.open.touch(options.get("episode", ""))
    if texts is not None:
        made: Any = caller.memory.add_many(texts, **options)
    else:
        made = caller.memory.add(content, infer=infer, **options)  # type: ignore[arg-type]
    # An item that was there already, in quarantine, may have been written by somebody else.
    listed = made if isinstance(made, list) else [made]
    return [masked(item) if caller.withholds(item) else item for item in listed]


@verb("POST /put", "write", Bounds, of=Memory.put, key="item", writes=True)
def put_item(
    caller: VerbCaller,
    name: Annotated[dict[str, Any], Field(description="Metadata that no two current items of the scope share.")],
    text: Annotated[str | None, Field(description="The text, or null to delete what is under the name.")] = None,
    key: str = "",
    metadata: dict[str, Any] | None = None,
    source: str = "",
    episode: str = "",
    **bounds: Any,
) -> Item | None:
    """Store a text under a name in place of what is there, or delete that."""
    options: dict[str, Any] = {"key": key, "metadata": metadata, "source": source, "episode": episode}
    item = caller.memory.put(text, name=name, **options, **bounds)
    return None if item is None else caller.item(item)


@verb("GET /items", "read", Bounds, Page, of=Memory.get_all, key="items", pages=True)
def list_items(
    caller: VerbCaller,
    kinds: Kinds = "",
    newest: Annotated[bool, Field(description="The newest first.")] = False,
    all_states: Annotated[bool, Field(description="Superseded, deleted and held back items too.")] = False,
    where: Annotated[str, Field(max_length=MOST, description="A filter on metadata, as JSON.")] = "",
    **options: Any,
) -> list[Item]:
    """List items in order of writing, or the newest first, a page at a time."""
    matching = _filter(where or None)
    if matching is not None:  # whether a filter matches an item in quarantine would reveal its metadata
        matching = replace(matching, function=lambda item: not caller.withholds(item))
    options |= caller.nobody(options.get("user_id", ""))
    listed = [part for part in kinds.split(",") if part]
    page = caller.memory.get_all(kinds=listed, newest=newest, all_states=all_states, where=matching, **options)
    return [caller.item(item) for item in page]


@verb("DELETE /items", "write", Bounds, of=Memory.delete_all, key="deleted", writes=True)
def delete_items(caller: VerbCaller, **bounds: Any) -> int:
    """Delete every item of a user, an agent or a session."""
    return caller.memory.delete_all(**bounds)


@verb("GET /items/{id}", "read", of=Memory.get)
def get_item(caller: VerbCaller, id: str) -> Item:
    """Get an item in its latest state."""
    return caller.item(caller.memory.get(id))


@verb("PATCH /items/{id}", "write", of=Memory.update, writes=True)
def update_item(
    caller: VerbCaller,
    id: str,
    text: str | None = None,
    status: StatusName | None = None,
    trust: float | None = None,
    expires_at: Time | None = None,
    metadata: dict[str, Any] | None = None,
    repeat: bool = False,
    episode: str = "",
) -> Item:
    """Reword an item, or set its status, trust, expiry or metadata."""
    if (status is not None or metadata is not None) and caller.memory.get(id).status is Status.QUARANTINED:
        caller.access.require("admin")
    changes: dict[str, Any] = {"status": status, "trust": trust, "expires_at": expires_at, "metadata": metadata}
    return caller.item(caller.memory.update(id, text, repeat=repeat, episode=episode, **changes))


@verb("DELETE /items/{id}", "write", of=Memory.delete, key="deleted", writes=True)
def delete_item(caller: VerbCaller, id: str, episode: str = "") -> int:
    """Hide an item; it can be brought back by a rollback."""
    caller.memory.delete(id, episode=episode)
    return 1


@verb("POST /items/{id}/supersede", "write", of=Memory.supersede, writes=True)
def supersede_item(
    caller: VerbCaller,
    id: str,
    text: str,
    event_time: Time = "",
    key: str = "",
    expires_at: Time = "",
    metadata: dict[str, Any] | None = None,
    source: str = "",
    episode: str = "",
) -> Item:
    """Replace an item by a new one, because the fact changed."""
    options: dict[str, Any] = {"event_time": event_time, "expires_at": expires_at, "metadata": metadata}
    return caller.item(caller.memory.supersede(id, text, key=key, source=source, episode=episode, **options))


@verb("GET /items/{id}/history", "read", of=Memory.history, key="revisions")
def item_history(caller: VerbCaller, id: str) -> Any:
    """List everything that happened to an item, oldest first."""
    revisions = caller.memory.history(id)
    if revisions and revisions[-1].after is not None and caller.withholds(revisions[-1].after):
        caller.access.require("admin")  # an earlier wording may hold the secret, too
    return revisions


@verb("GET /items/{id}/worth", "read", of=Memory.worth)
def item_worth(caller: VerbCaller, id: str, query: str) -> Any:
    """Estimate from rewards how much showing an item adds."""
    return caller.memory.worth(id, query)


@verb("GET /quarantine", "admin", Page, of=Memory.quarantined, key="items", pages=True)
def list_quarantined(caller: VerbCaller, **page: Any) -> list[Item]:
    """List items in quarantine, which no search shows, a page at a time."""
    return caller.memory.quarantined(**page)


@verb("POST /items/{id}/release", "admin", of=Memory.release, writes=True)
def release_item(caller: VerbCaller, id: str) -> Item:
    """Let an item out of quarantine."""
    return caller.memory.release(id)


@verb("POST /forget", "write", of=Memory.forget, key="erased", writes=True)
def forget_items(
    caller: VerbCaller, ids: Annotated[list[str], Field(min_length=1, max_length=MOST)], purge_history: bool = False
) -> Any:
    """Delete items, or erase them for good (role admin)."""
    if purge_history:
        caller.access.require("admin")
    return caller.memory.forget(*ids, purge_history=purge_history)


# -- searches and outcomes --------------------------------------------------------------------------------------------


def _recalls(caller: VerbCaller, words: str, options: dict[str, Any]) -> bool:
    """Whether a search is carried out. One that nobody asked for is not, if its words ask for nothing, and else has a floor."""
    if not options.pop("automatic", False):
        return True
    options["floor"] = floor_of(caller.memory) if options.get("threshold") is None else 0.0
    return asks(words)


@verb("POST /search", "read", Searching, InEpisode, of=Memory.search)
def search(caller: VerbCaller, query: str, **options: Any) -> Any:
    """Find the items that fit a query, best first."""
    if not _recalls(caller, query, options):
        return Hits(query=query)
    size = _logged(query, *options.get("actions", ()))
    if options.get("episode"):
        caller.open.require_room(caller.access, size)
        caller.open.touch(options["episode"])
    logs = bool(options.get("episode")) or caller.open.logs(caller.access, size)
    memory = caller.memory if logs else caller.memory._unlogged()
    return memory.search(query, **caller.search(options.get("user_id", ""), options))


@verb("POST /episodes", "read", Bounds, of=Memory.episode, writes=True)
def begin_episode(caller: VerbCaller, by: str = "", task: str = "", explore: bool = True, **bounds: Any) -> Any:
    """Begin an episode: one attempt at a task."""
    if "write" not in caller.access.roles:
        task = task[:LONGEST_OF_READERS]
    caller.open.require_room(caller.access, _logged(task, by, *bounds.values()))
    live = caller.memory.episode(task, explore=explore, by=caller.access.person(by) or "", **bounds)
    caller.open.hold(live)
    return {"id": live.id, "task": live.task, "number": live.number, "scope": live.scope}


@verb("GET /episodes", "read", Bounds, Page, of=Memory.episodes, key="episodes", pages=True)
def list_episodes(caller: VerbCaller, **options: Any) -> list[str]:
    """List ids of episodes, oldest first, a page at a time."""
    return caller.memory.episodes(**options, **caller.nobody(options.get("user_id", "")))


@verb("GET /episodes/{id}", "read", of=Memory.episode_record)
def get_episode(caller: VerbCaller, id: str) -> Any:
    """Get the record of an episode."""
    memory = caller.memory
    record = memory.episode_record(id)
    if "admin" not in caller.access.roles:  # items that it wrote or was shown may be in quarantine
        concerned = episode_log.concerned_by(memory.store, id)
        held = {identifier: caller.withholds_id(identifier) for ids in concerned for identifier in ids}
        held |= {shown.item: caller.withholds_id(shown.item) for shown in record.shown}
        operations = [
            replace(event, operation=replace(event.operation, text=IN_QUARANTINE))
            if event.operation.text and any(held[identifier] for identifier in ids)
            else event
            for event, ids in zip(record.operations, concerned, strict=True)
        ]
        shown = [replace(shown, text=IN_QUARANTINE) if held[shown.item] else shown for shown in record.shown]
        record = replace(record, operations=tuple(operations), shown=tuple(shown))
    return episode_to_json(record)


@verb("GET /episodes/{id}/receipt", "read")
def get_receipt(caller: VerbCaller, id: str) -> Any:
    """List the items that were recalled for a call through the gateway, those that went upstream, and the text of these."""
    receipt = notes.body(caller.memory.store, notes.RECEIPT, caller.open.episode(id).id)
    if receipt is None:
        raise errors.UnknownEpisode(
            f"Episode {id!r:.40} has no receipt: it was no call through the gateway, or one of long ago.",
            "Calls through /v1/chat/completions have one.",
        )
    lines = receipt.get("lines", {})  # an erasure deletes them
    shown = (f"- {IN_QUARANTINE}" if caller.withholds_id(id) else line for id, line in lines.items())
    text = "\n".join([MARK, *shown]) if lines else ""
    return {name: value for name, value in receipt.items() if name != "lines"} | {"text": text}


@verb("POST /episodes/{id}/search", "read", Searching, of=LiveEpisode.search)
def episode_search(caller: VerbCaller, id: str, query: str = "", **options: Any) -> Any:
    """Search as part of an episode."""
    caller.open.require_room(caller.access, _logged(query, *options.get("actions", ())))
    live = caller.open.episode(id)
    if not _recalls(caller, query or live.task, options):
        return Hits(query=query)
    return live.search(query, **caller.search(options.get("user_id", "") or live.scope.user, options))


@verb("POST /episodes/{id}/act", "read", of=LiveEpisode.act, writes=True)
def episode_act(caller: VerbCaller, id: str, action: str) -> None:
    """Record what was done after the last searches."""
    caller.open.require_room(caller.access, _logged(action))
    caller.open.episode(id).act(action)


@verb("POST /episodes/{id}/step_reward", "reward", of=LiveEpisode.step_reward, writes=True)
def episode_step_reward(caller: VerbCaller, id: str, value: float) -> None:
    """Reward the last act alone."""
    caller.open.episode(id).step_reward(value)


@verb("POST /episodes/{id}/reward", "reward", of=LiveEpisode.reward, writes=True)
def episode_reward(caller: VerbCaller, id: str, value: float, by: str | None = None, source: str = "user") -> Any:
    """Reward an episode, which credits every item that it showed."""
    return caller.open.episode(id).reward(value, by=caller.access.person(by), source=source)


@verb("POST /episodes/{id}/end", "read", of=LiveEpisode.end, writes=True)
def episode_end(caller: VerbCaller, id: str, outcome: str = "") -> None:
    """Record that an episode is over."""
    caller.open.require_room(caller.access, _logged(outcome))
    caller.open.episode(id).end(outcome)


@verb("POST /rewards", "reward", of=Memory.reward, writes=True)
def reward(
    caller: VerbCaller,
    target: Annotated[str, Field(description="An episode's id, or the `decision` of a search.")],
    value: float,
    by: str | None = None,
    source: str = "user",
) -> Any:
    """Reward an episode, or one search, at once or days later."""
    return caller.memory.reward(target, value, by=caller.access.person(by), source=source)


@verb("GET /pending", "read", of=Memory.pending, key="episodes")
def pending(caller: VerbCaller) -> list[str]:
    """List episodes in which something was done and that have no reward."""
    return caller.memory.pending(**caller.nobody())


@verb("GET /ledger", "read", of=Memory.ledger)
def ledger(caller: VerbCaller, items: Ids = "", source: str = "", everything: bool = False) -> Any:
    """Estimate what showing each item added, from episodes in which chance decided whether it was shown."""
    memory, nobody = caller.memory, caller.nobody()
    ids = [part for part in items.split(",") if part] or None
    if ids is None and (nobody or not caller.access.whole):  # the ledger is of the whole tenant
        listed = memory.store.items(memory.scope, current=not everything)
        ids = [item.id for item in listed if not (nobody and item.scope.user)]
    return memory.ledger(items=ids, source=source, everything=everything)


# -- undo, and what belongs to a person -------------------------------------------------------------------------------


@verb("POST /snapshots", "admin", of=Memory.snapshot, key="snapshot")
def snapshot(caller: VerbCaller) -> str:
    """Name the present state, for a later diff or rollback."""
    return caller.memory.snapshot()


@verb("GET /diff", "admin", of=Memory.diff, key="differences")
def diff(caller: VerbCaller, one: str, other: str = "") -> Any:
    """List the items that differ between two snapshots."""
    return caller.memory.diff(one, other)


@verb(
    "POST /rollbacks",
    "admin",
    of=Memory.rollback,
    schema=_one_of("target", "source", "since", "rewarder", "entry"),
    writes=True,
)
def rollback(
    caller: VerbCaller, target: str = "", source: str = "", since: str = "", rewarder: str = "", entry: Entry = 0
) -> Any:
    """Undo an episode, a source, a person's rewards, one change, or all since a snapshot."""
    return caller.memory.rollback(target, source=source, since=since, rewarder=rewarder, entry=entry)


@verb("GET /export", "admin", Bounds, lines=True)
def export(caller: VerbCaller, user_id: Name = "", **bounds: Any) -> Iterator[dict[str, Any]]:
    """Export all items and episodes of a user, an agent or a session, as lines of JSON."""
    bounds["user_id"] = user_id or caller.access.user_id  # leaves out what other users share with the caller
    memory, after = caller.memory, ""
    while page := memory.get_all(limit=MOST, after=after, all_states=True, **bounds):
        yield from ({"item": item} for item in page)
        after = page[-1].id
    after = ""
    while ids := memory.episodes(limit=MOST, after=after, **bounds):
        yield from ({"episode": episode_to_json(memory.episode_record(id))} for id in ids)
        after = ids[-1]


@verb(
    "POST /erase",
    "admin",
    Bounds,
    of=Memory.erase,
    schema={"anyOf": [_not_empty(name) for name in Bounds.model_fields]},
    writes=True,
)
def erase(caller: VerbCaller, **bounds: Any) -> Any:
    """Erase a user, an agent or a session for good."""
    return caller.memory.erase(**bounds)


VERBS = tuple(value for value in list(globals().values()) if isinstance(value, Verb))
