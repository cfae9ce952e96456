"""The calls that a served memory answers ("verbs"), each defined once: route, role, typed fields, documentation and function.

The HTTP routes, their OpenAPI description, the clients, the commands of `keepworth memory` and simple tools of MCP are made from
this table: a new verb is a function here, and a method of `Memory`. Here is also decided what a caller sees: only admins see the
text of items in quarantine, and where no person is named, others see only what was stored without a person.

The table is made without the memory itself, so that the help of commands is quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, ValidationError, WithJsonSchema, WrapValidator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from keepworth.base.errors import KeepworthError
from keepworth.memory import errors
from keepworth.memory.automatic import asks, floor_of
from keepworth.memory.headline import MARK, TOKENS
from keepworth.memory.item import ALL, LONGEST_NAME, Item, ItemKind, Provenance, Status
from keepworth.memory.search import MODES
from keepworth.memory.search.where import Filter, from_text, from_texts, parsed
from keepworth.serving.verb import (
    EPISODE,
    LEARN,
    OWN_ENCODER,
    POLICY,
    READ,
    UNDO,
    WRITE,
    Help,
    StrictFields,
    Verb,
    command,
    tool,
    verb,
)

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory
    from keepworth.memory.search.search import Hits

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
        # Of a person's token, what it sees is that person's.
        nobody = {"nobody": False} if self.memory.scope.user else self.nobody(person)
        return {**options, "where": _filter(options.get("where")), **nobody}


# -- fields -----------------------------------------------------------------------------------------------------------


def _whole(value: Any) -> Any:
    """Convert a float such as 1.0 to an int, as JSON Schema counts it as a whole number; leave other values as they are."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _read_number(typed: str) -> int | str:
    """Convert digits to a number; leave other words as they are."""
    return int(typed) if typed.isdecimal() else typed


_KINDS: list[Any] = [kind.value for kind in ItemKind]
_STATUSES: list[Any] = [status.value for status in Status]
# Where `Memory` checks a value itself, with a better message, the limit stands only in the description.
Name = Annotated[
    str,
    Field(
        default_factory=lambda: ALL,
        description="Left out, it stands for all.",
        max_length=LONGEST_NAME,
        json_schema_extra={"pattern": r"^[^\u0000-\u001f]+$", "minLength": 1},
    ),
]
Kind = Annotated[str, Field(json_schema_extra={"enum": _KINDS})]
StatusName = Annotated[str, Field(json_schema_extra={"enum": _STATUSES})]
Whole = Annotated[int, BeforeValidator(_whole)]


def pass_auto(value: Any, check: Callable[[Any], int]) -> Any:
    """Return "auto" as it is, and another value as it is checked; the error for another text names "auto"."""
    if value == "auto":
        return value
    try:
        return check(value)
    except ValidationError as error:
        if any(one["type"].startswith("int_") for one in error.errors(include_url=False, include_context=False)):
            raise PydanticCustomError("number_or_auto", 'Input should be a whole number, or "auto"') from error
        raise


def number_or_auto(most: int) -> JsonDict:
    """Return the JSON Schema of a number of hits up to `most`, or "auto"."""
    return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": most}, {"type": "string", "const": "auto"}]}


HowMany = Annotated[
    int,
    BeforeValidator(_whole),
    Field(ge=1, le=MOST),
    WrapValidator(pass_auto),
    PlainSerializer(lambda value: value),
    WithJsonSchema(number_or_auto(MOST)),
]
ItemId = Annotated[str, Help("An item's id, such as m17.", "ID")]
EpisodeId = Annotated[str, Help("Its id, as `begin` printed it.", "EPISODE")]
Source = Annotated[str, Help("Where it came from; one can roll back by it.", default="command line")]
YES = Help("Do not ask.", "--yes -y", kind=bool)
WHERE = Help(
    "Metadata, as NAME=VALUE or as JSON; several have to hold together.",
    "--where FILTER",
    kind=list[str] | None,
    read=lambda texts: parsed(from_texts(texts, place="--where")),
)
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


class Page(BaseModel, defer_build=True):
    limit: Annotated[int, Help("At most this many.", "-n N")] = Field(100, ge=1, le=MOST)
    after: str = Field("", description="`next` of the page before.")


class Bounds(BaseModel, defer_build=True):
    user_id: Name
    agent_id: Name
    session_id: Name


class TextOrigin(StrictFields):
    """The place that a text comes from: source, session, turn, speaker and date."""

    source: str = ""
    session: str = ""
    turn: Whole = Field(-1, ge=-1, le=2**53)
    speaker: str = ""
    date: str = ""


class Writing(Bounds):
    kind: Annotated[Kind, Help("fact, episode, case, skill, lesson or core.")] = "fact"
    key: str = ""
    event_time: Annotated[Time, Help("When it happened (ISO 8601).", "--at TIME")] = ""
    valid_from: Time = ""
    valid_to: Time = ""
    expires_at: Time = ""
    ttl: float | None = None
    trust: float = 1.0
    status: StatusName = "active"
    metadata: dict[str, Any] | None = None
    source: Source = ""
    repeat: bool = False
    episode: str = ""


class Searching(Bounds):
    top_k: Annotated[
        HowMany,
        Help('How many, or "auto": those that answer, and none where none does.', "-k N", "10", str, _read_number),
    ] = 10
    mode: Annotated[
        Annotated[str, Field(json_schema_extra={"enum": list(MODES)})] | None,
        Help("hybrid, lexical or dense; by default hybrid where there is an encoder."),
    ] = None
    threshold: float | None = None
    actions: list[str] = Field([], max_length=MOST)
    explain: Annotated[bool, Help("Say how each score comes about.")] = False
    kinds: Annotated[list[Kind] | None, Field(max_length=100, description="All if left out.")] = None
    statuses: list[StatusName] = Field(["active"], max_length=100)
    where: dict[str, Any] | None = None
    since: Time = ""
    until: Time = ""
    as_of: Annotated[Time, Help("What was held true then (ISO 8601).", "TIME")] = ""
    half_life: float = 0.0
    exact: Annotated[bool, Help("Score all items by meaning, in a large memory too.")] = False
    present: list[str] = Field(
        [],
        max_length=MOST,
        description="Ids of items that the model's context holds already: chance leaves none of them out.",
    )
    tokens: Annotated[Whole, Field(ge=1, le=MOST_TOKENS, description="The budget of the answer's text.")] = TOKENS
    automatic: Annotated[
        bool, Field(description="Nobody asked: words that ask for nothing, and hits that hardly fit, give nothing.")
    ] = False
    nobody: Annotated[bool, Field(description="Leave out what belongs to a person, but for the one of the token.")] = (
        False
    )


class InEpisode(BaseModel, defer_build=True):
    episode: str = ""
    step: Whole = Field(0, ge=0, le=10**9)
    explore: bool = True


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


# -- find -------------------------------------------------------------------------------------------------------------


def _no_hits(query: str) -> Hits:
    from keepworth.memory.search.search import Hits

    return Hits(query=query)


def _recalls(caller: VerbCaller, words: str, options: dict[str, Any]) -> bool:
    """Whether a search is carried out. One that nobody asked for is not, if its words ask for nothing, and else has a floor."""
    if not options.pop("automatic", False):
        return True
    options["floor"] = floor_of(caller.memory) if options.get("threshold") is None else 0.0
    return asks(words)


@verb("POST /search", "read", Searching, InEpisode, of="search")
@command(
    "search query --top_k --mode --as_of --where --explain",
    READ,
    help="Find what was remembered, best first, in the order that rewards taught. Nothing is logged, and nothing is tried out."
    "\n\n`keepworth memory episode search` finds as an agent does: rewards reach what was shown.",
    bounds=True,
    encoder=True,
    policy=POLICY,
    log="off",
    where=WHERE,
)
def search(caller: VerbCaller, query: Annotated[str, Help("What to look for.")], **options: Any) -> Any:
    """Find the items that fit a query, best first.

    $ keepworth memory search "what to cook" --user ana
    $ keepworth memory search tofu --top-k 3 --explain
    $ keepworth memory search tofu --where kind=recipe --json
    """
    if not _recalls(caller, query, options):
        return _no_hits(query)
    size = _logged(query, *options.get("actions", ()))
    if options.get("episode"):
        caller.open.require_room(caller.access, size)
        caller.open.touch(options["episode"])
    logs = bool(options.get("episode")) or caller.open.logs(caller.access, size)
    memory = caller.memory if logs else caller.memory._unlogged()
    return memory.search(query, **caller.search(options.get("user_id", ""), options))


@verb("GET /items", "read", Bounds, Page, of="get_all", key="items", pages=True)
@command(
    "list --limit --after --all_states --where",
    READ,
    help="List items in order of writing.",
    bounds=True,
    after=Help("Go on after this id.", "ID"),
    where=WHERE,
)
def list_items(
    caller: VerbCaller,
    kinds: Kinds | None = None,
    newest: Annotated[bool, Field(description="The newest first.")] = False,
    all_states: Annotated[bool, Help("Superseded, deleted and held back items too.", "--all")] = False,
    where: Annotated[str, Field(max_length=MOST, description="A filter on metadata, as JSON.")] = "",
    **options: Any,
) -> list[Item]:
    """List items in order of writing, or the newest first, a page at a time.

    $ keepworth memory list --user ana
    $ keepworth memory list --all --limit 20 --after m17
    $ keepworth memory list --where '{"year": {"$gte": 2020}}' --json
    """
    matching = _filter(where or None)
    if matching is not None:  # whether a filter matches an item in quarantine would reveal its metadata
        matching = replace(matching, function=lambda item: not caller.withholds(item))
    options |= caller.nobody(options.get("user_id", ""))
    listed = None if kinds is None else [part for part in kinds.split(",") if part]
    page = caller.memory.get_all(kinds=listed, newest=newest, all_states=all_states, where=matching, **options)
    return [caller.item(item) for item in page]


@verb("GET /items/{id}", "read", of="get")
@command("show id", READ)
def get_item(caller: VerbCaller, id: ItemId) -> Item:
    """Show everything about an item.

    $ keepworth memory show m17
    """
    return caller.item(caller.memory.get(id))


@verb("GET /items/{id}/history", "read", of="history", key="revisions")
@command("history id", READ)
def item_history(caller: VerbCaller, id: ItemId) -> Any:
    """Show what happened to an item, oldest first.

    $ keepworth memory history m17
    """
    revisions = caller.memory.history(id)
    if revisions and revisions[-1].after is not None and caller.withholds(revisions[-1].after):
        caller.access.require("admin")  # an earlier wording may hold the secret, too
    return revisions


# -- write ------------------------------------------------------------------------------------------------------------


@verb("POST /items", "write", Writing, of="add", key="items", schema=_one_of("content", "texts"), writes=True)
@command(
    "add content --kind --event_time --source --infer",
    WRITE,
    help="Remember a text as it stands, or what it states.",
    bounds=True,
    encoder=True,
    opens=None,
    content=Help("What to remember; - reads one text per line.", "TEXT", kind=str),
    infer=Help(
        "Keep what TEXT states, and facts by OPENAI_MODEL at OPENAI_BASE_URL if it is set. It may correct items."
    ),
)
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
    """Remember a text, messages, or several texts.

    $ keepworth memory add "Ana likes tofu" --user ana
    $ keepworth memory add "I moved to Bergen" --user ana --infer
    $ cat facts.txt | keepworth memory add - --source facts.txt
    """
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


@verb("PATCH /items/{id}", "write", of="update", writes=True)
@command("update id text --trust --expires_at", WRITE, encoder=True)
def update_item(
    caller: VerbCaller,
    id: ItemId,
    text: Annotated[str | None, Help("What it says from now on.")] = None,
    status: StatusName | None = None,
    trust: Annotated[float | None, Help("From 0 to 1.", "NUMBER")] = None,
    expires_at: Annotated[Time | None, Help("When it is hidden (ISO 8601).", "--expires TIME")] = None,
    metadata: dict[str, Any] | None = None,
    repeat: bool = False,
    episode: str = "",
) -> Item:
    """Word an item better: same id, same time. Where the fact changed, use `supersede`.

    $ keepworth memory update m17 "Ana likes smoked tofu"
    $ keepworth memory update m17 --trust 0.5
    """
    if (status is not None or metadata is not None) and caller.memory.get(id).status is Status.QUARANTINED:
        caller.access.require("admin")
    changes: dict[str, Any] = {"status": status, "trust": trust, "expires_at": expires_at, "metadata": metadata}
    return caller.item(caller.memory.update(id, text, repeat=repeat, episode=episode, **changes))


@verb("POST /items/{id}/supersede", "write", of="supersede", writes=True)
@command(
    "supersede id text --event_time --source",
    WRITE,
    help="Say that a fact changed: searches find the new one, and the old one with --as-of.",
    encoder=True,
)
@tool(
    "supersede_memory id text event_time",
    "Replace a memory by a new one because the fact changed; the old one stays in the history.",
    changes=True,
)
def supersede_item(
    caller: VerbCaller,
    id: ItemId,
    text: Annotated[str, Help("What is true now.")],
    event_time: Annotated[Time, Help("Since when (ISO 8601).", "--at TIME")] = "",
    key: str = "",
    expires_at: Time = "",
    metadata: dict[str, Any] | None = None,
    source: Source = "",
    episode: str = "",
) -> Item:
    """Replace an item by a new one, because the fact changed.

    $ keepworth memory supersede m17 "Ana lives in Bergen" --at 2026-06-01
    """
    options: dict[str, Any] = {"event_time": event_time, "expires_at": expires_at, "metadata": metadata}
    return caller.item(caller.memory.supersede(id, text, key=key, source=source, episode=episode, **options))


@verb("POST /put", "write", Bounds, of="put", key="item", writes=True)
@command(
    "put name text --source",
    WRITE,
    bounds=True,
    encoder=True,
    name=Help("Under which there is one text, as `name` in the metadata.", kind=str),
)
def put_item(
    caller: VerbCaller,
    name: Annotated[dict[str, Any], Field(description="Metadata that no two current items of the scope share.")],
    text: Annotated[str | None, Help("What is there from now on; without it, what is there goes.")] = None,
    key: str = "",
    metadata: dict[str, Any] | None = None,
    source: Source = "",
    episode: str = "",
    **bounds: Any,
) -> Item | None:
    """Store a text under a name in place of what is there, or delete that.

    $ keepworth memory put diet "eats no meat" --user ana
    $ keepworth memory put diet --user ana
    """
    options: dict[str, Any] = {"key": key, "metadata": metadata, "source": source, "episode": episode}
    item = caller.memory.put(text, name=name, **options, **bounds)
    return None if item is None else caller.item(item)


@verb("DELETE /items/{id}", "write", of="delete", key="deleted", writes=True)
@tool("delete_memory id", "Hide a memory that is wrong or unwanted.", changes=True)
def delete_item(caller: VerbCaller, id: ItemId, episode: str = "") -> int:
    """Hide an item; it can be brought back by a rollback."""
    caller.memory.delete(id, episode=episode)
    return 1


@verb("DELETE /items", "write", Bounds, of="delete_all", key="deleted", writes=True)
def delete_items(caller: VerbCaller, **bounds: Any) -> int:
    """Delete every item of a user, an agent or a session."""
    return caller.memory.delete_all(**bounds)


@verb("POST /forget", "write", of="forget", key="erased", writes=True)
@command(
    "forget ids --purge_history --older_than --yes",
    WRITE,
    help="Delete items, which `rollback` brings back. With --purge, erase them, which nothing brings back; asks before."
    "\n\n--older-than takes items of a person, an agent, a session or everybody: for a retention rule that cron runs.",
    bounds=True,
    within=True,
    opens=None,
    ids=Help("Items to forget.", "ID", kind=list[str] | None),
    older_than=Help("In place of ids: what was written more days ago than this.", "DAYS", kind=float | None),
    yes=YES,
)
def forget_items(
    caller: VerbCaller,
    ids: Annotated[list[str], Field(min_length=1, max_length=MOST)],
    purge_history: Annotated[bool, Help("Erase for good: journal, indexes and vectors too.", "--purge")] = False,
) -> Any:
    """Delete items, or erase them for good (role admin).

    $ keepworth memory forget m17 m18
    $ keepworth memory forget --older-than 90 --user ana --purge --yes
    """
    if purge_history:
        caller.access.require("admin")
    return caller.memory.forget(*ids, purge_history=purge_history)


@verb(
    "POST /erase",
    "admin",
    Bounds,
    of="erase",
    schema={"anyOf": [_not_empty(name) for name in Bounds.model_fields]},
    writes=True,
)
@command("erase --yes", WRITE, bounds=True, opens=None, yes=YES)
def erase(caller: VerbCaller, **bounds: Any) -> Any:
    """Erase a person, an agent or a session: all that was written, asked and learned there. Nothing brings it back.

    $ keepworth memory erase --user ana
    """
    return caller.memory.erase(**bounds)


@verb("GET /quarantine", "admin", Page, of="quarantined", key="items", pages=True)
def list_quarantined(caller: VerbCaller, **page: Any) -> list[Item]:
    """List items in quarantine, which no search shows, a page at a time."""
    return caller.memory.quarantined(**page)


@verb("POST /items/{id}/release", "admin", of="release", writes=True)
def release_item(caller: VerbCaller, id: ItemId) -> Item:
    """Let an item out of quarantine."""
    return caller.memory.release(id)


@verb("GET /export", "admin", Bounds, lines=True)
def export(caller: VerbCaller, **bounds: Any) -> Iterator[dict[str, Any]]:
    """Export all items and episodes of a user, an agent or a session, as lines of JSON."""
    from keepworth.records.episode import episode_to_json

    if caller.access.user_id:  # leaves out what other users share with the caller
        bounds.setdefault("user_id", caller.access.user_id)
    memory, after = caller.memory, ""
    while page := memory.get_all(limit=MOST, after=after, all_states=True, **bounds):
        yield from ({"item": item} for item in page)
        after = page[-1].id
    after = ""
    while ids := memory.episodes(limit=MOST, after=after, **bounds):
        yield from ({"episode": episode_to_json(memory.episode_record(id))} for id in ids)
        after = ids[-1]


# -- undo -------------------------------------------------------------------------------------------------------------


@verb("POST /snapshots", "admin", of="snapshot", key="snapshot")
@command("snapshot", UNDO, help="Print the name of the present state, for `diff` and `rollback --since`.")
def snapshot(caller: VerbCaller) -> str:
    """Name the present state, for a later diff or rollback.

    $ keepworth memory snapshot
    """
    return caller.memory.snapshot()


@verb("GET /diff", "admin", of="diff", key="differences")
@command("diff one other", UNDO)
def diff(
    caller: VerbCaller,
    one: Annotated[str, Help("A state by name, such as s12: see `snapshot`.", "SNAPSHOT")],
    other: Annotated[str, Help("The later one; now if not given.", "SNAPSHOT")] = "",
) -> Any:
    """List the items that differ between two states, or between one and now.

    $ keepworth memory diff s12
    $ keepworth memory diff s12 s20 --json
    """
    return caller.memory.diff(one, other)


@verb(
    "POST /rollbacks",
    "admin",
    of="rollback",
    schema=_one_of("target", "source", "since", "rewarder", "entry"),
    writes=True,
)
@command("rollback target --source --since --rewarder --entry", UNDO, opens=OWN_ENCODER)
def rollback(
    caller: VerbCaller,
    target: Annotated[str, Help("An episode's or a rollback's id.", "EPISODE|ROLLBACK")] = "",
    source: Annotated[str, Help("Undo everything from this source.")] = "",
    since: Annotated[str, Help("Undo everything since this state (see `snapshot`).", "SNAPSHOT")] = "",
    rewarder: Annotated[str, Help("Undo everything that follows from the rewards of this person.", "NAME")] = "",
    entry: Annotated[Entry, Help("Undo one change, by its number in `history`.", "N")] = 0,
) -> Any:
    """Undo an episode, a source, one change, a person's rewards, or everything since a state. Can be undone itself.

    $ keepworth memory rollback e4f0c1
    $ keepworth memory rollback --source facts.txt
    $ keepworth memory rollback --since s12
    """
    return caller.memory.rollback(target, source=source, since=since, rewarder=rewarder, entry=entry)


# -- rewards ----------------------------------------------------------------------------------------------------------


# An agent opens the memory with the policy that chooses and learns, and so do the commands of these verbs.


@verb("POST /rewards", "reward", of="reward", writes=True)
@command("reward target value --by --source", LEARN, encoder=True, policy=POLICY)
@tool(
    "report_outcome target value",
    "Report how a task came out: 1 for success, 0 for failure. target: the id of an episode, or the decision of a search.",
)
def reward(
    caller: VerbCaller,
    target: Annotated[str, Help("The id of an episode, or of one search in it.", "EPISODE|DECISION")],
    value: Annotated[float, Help("How good it was, as a number.")],
    by: Annotated[str | None, Help("Who gives the reward; if not given, who the episode names.", "NAME")] = None,
    source: Annotated[str, Help("The channel that it came through.", default="command line")] = "user",
) -> Any:
    """Reward an episode, at once or days later: the policy learns what was worth showing.

    $ keepworth memory reward e4f0c1 1
    $ keepworth memory reward e4f0c1 0.5
    $ keepworth memory reward d12 0 --by ana
    """
    return caller.memory.reward(target, value, by=caller.access.person(by), source=source)


@verb("GET /pending", "read", of="pending", key="episodes")
@command("pending", LEARN, bounds=True, within=True)
def pending(caller: VerbCaller) -> list[str]:
    """List the episodes in which something was done and that have no reward yet, oldest first.

    $ keepworth memory pending --json
    """
    return caller.memory.pending(**caller.nobody())


@verb("GET /items/{id}/worth", "read", of="worth")
@command("worth id query", LEARN, encoder=True, policy=POLICY)
def item_worth(caller: VerbCaller, id: ItemId, query: Annotated[str, Help("What is asked.")]) -> Any:
    """Estimate from rewards what showing one item adds for a question.

    $ keepworth memory worth m17 "how to refund"
    """
    return caller.memory.worth(id, query)


@verb("GET /ledger", "read", of="ledger")
@command(
    "ledger --items --source --everything",
    LEARN,
    bounds=True,
    within=True,
    policy=POLICY,
    items=Help("One item, such as m17.", "--item ID"),
)
def ledger(
    caller: VerbCaller,
    items: Ids = "",
    source: Annotated[str, Help("All items from there.")] = "",
    everything: Annotated[bool, Help("Items that are gone or were never shown with a reward, too.", "--all")] = False,
) -> Any:
    """Say what showing each item added, and what finding out has cost: the policy leaves items out by chance.

    You may look at the interval after every reward: it holds the effect in 19 of 20 memories, whenever you look.

    $ keepworth memory ledger
    $ keepworth memory ledger --source manual --all
    """
    memory, nobody = caller.memory, caller.nobody()
    ids = [part for part in items.split(",") if part] or None
    if ids is None and (nobody or not caller.access.whole):  # the ledger is of the whole tenant
        listed = memory.store.items(memory.scope, current=not everything)
        ids = [item.id for item in listed if not (nobody and item.scope.user)]
    return memory.ledger(items=ids, source=source, everything=everything)


@verb("GET /review", "read", Bounds, of="review")
@command(
    "review --retire --keep --pin --undo",
    LEARN,
    help="Say what each note has earned or cost, and which were never needed, with the evidence, and what a decision would need."
    "\n\nOn a terminal it then asks of each, and a key retires, keeps or pins it; options do the same in a script. All of it can "
    "be undone, with --undo or `keepworth memory rollback --source review`.",
    bounds=True,
    within=True,
    opens=OWN_ENCODER,
    policy=POLICY,
    retire=Help("Delete this note. May be repeated, as the next three.", "--retire ID", kind=list[str] | None),
    keep=Help("Keep it as it is: asked again where rewards come to say something else.", "ID", kind=list[str] | None),
    pin=Help("Show it always, and never leave it out to learn what it is worth.", "ID", kind=list[str] | None),
    undo=Help("Take back the last of these three.", "ID", kind=list[str] | None),
)
def review(caller: VerbCaller, **bounds: Any) -> Any:
    """Say what each note has earned or cost, and which were never needed, with the evidence.

    $ keepworth memory review
    $ keepworth memory review --user ana --json
    $ keepworth memory review --retire m3 --retire m9 --pin m4
    """
    return caller.memory.review(**bounds, **caller.nobody(bounds.get("user_id", "")))


@verb("POST /review", "write", of="settle", key="items", writes=True)
def settle_items(
    caller: VerbCaller,
    retire: Annotated[list[str] | None, Field(max_length=MOST, description="Ids of notes to delete.")] = None,
    keep: Annotated[list[str] | None, Field(max_length=MOST, description="Ids of notes that stay as they are.")] = None,
    pin: Annotated[list[str] | None, Field(max_length=MOST, description="Ids of notes to show always.")] = None,
    undo: Annotated[
        list[str] | None, Field(max_length=MOST, description="Ids whose last such change is taken back.")
    ] = None,
) -> list[Item]:
    """Retire, keep or pin notes after a review, or take that back."""
    choices = {"retire": retire, "keep": keep, "pin": pin, "undo": undo}
    items = caller.memory.settle(**{name: ids or () for name, ids in choices.items()})
    return [caller.item(item) for item in items]


@verb("GET /outcomes", "read", Bounds, of="outcomes", key="sources")
@command("outcomes", LEARN, bounds=True, within=True)
def list_outcomes(caller: VerbCaller, **bounds: Any) -> Any:
    """List where rewards came from: people, evaluators, signals, and how many there were of each.

    $ keepworth memory outcomes
    $ keepworth memory outcomes --user ana --json
    """
    return caller.memory.outcomes(**bounds, **caller.nobody(bounds.get("user_id", "")))


@verb("GET /promotion", "read", of="promotion", key="trials")
@command("promotion", LEARN, bounds=True, within=True)
def list_trials(caller: VerbCaller) -> Any:
    """Say how far each policy that is tried in place of another has replaced it, with the evidence.

    A trial begins with `keepworth serve --policy NAME --replaces OLD`, or `Memory(policy=NAME, replaces=OLD)`.

    $ keepworth memory promotion
    """
    return caller.memory.promotion()


# -- episodes ---------------------------------------------------------------------------------------------------------


@verb("POST /episodes", "read", Bounds, of="episode", writes=True)
@command(
    "begin task --by",
    EPISODE,
    help="Begin an episode, and print its id.",
    bounds=True,
    opens="default",
    policy=POLICY,
    make=True,
)
def begin_episode(
    caller: VerbCaller,
    by: Annotated[str, Help("Who will judge it, where its rewards do not say.", "NAME")] = "",
    task: Annotated[str, Help("What is attempted, in words.")] = "",
    explore: bool = True,
    **bounds: Any,
) -> Any:
    """Begin an episode: one attempt at a task.

    $ keepworth memory episode begin "answer a refund request" --user ana
    """
    if "write" not in caller.access.roles:
        task = task[:LONGEST_OF_READERS]
    caller.open.require_room(caller.access, _logged(task, by, *bounds.values()))
    live = caller.memory.episode(task, explore=explore, by=caller.access.person(by) or "", **bounds)
    caller.open.hold(live)
    return {"id": live.id, "task": live.task, "number": live.number, "scope": live.scope}


@verb("POST /episodes/{id}/search", "read", Searching, of="episode.search")
@command("search id query --top_k", EPISODE, encoder=True, policy=POLICY)
def episode_search(
    caller: VerbCaller,
    id: EpisodeId,
    query: Annotated[str, Help("What is looked for; the task if not given.")] = "",
    **options: Any,
) -> Any:
    """Find as an agent does: the policy chooses, and a reward of the episode reaches what was shown.

    $ keepworth memory episode search e4f0c1 "how to refund" --top-k 3
    """
    caller.open.require_room(caller.access, _logged(query, *options.get("actions", ())))
    live = caller.open.episode(id)
    if not _recalls(caller, query or live.task, options):
        return _no_hits(query)
    return live.search(query, **caller.search(options.get("user_id", "") or live.scope.user, options))


@verb("POST /episodes/{id}/act", "read", of="episode.act", writes=True)
@command("act id action", EPISODE, opens="default", policy=POLICY)
def episode_act(caller: VerbCaller, id: EpisodeId, action: Annotated[str, Help("What was done.")]) -> None:
    """Note what was done after the last searches.

    $ keepworth memory episode act e4f0c1 "sent form B"
    """
    caller.open.require_room(caller.access, _logged(action))
    caller.open.episode(id).act(action)


@verb("POST /episodes/{id}/signal", "reward", of="episode.signal", writes=True)
@command("signal id name", EPISODE, opens="default", policy=POLICY)
def episode_signal(
    caller: VerbCaller,
    id: EpisodeId,
    name: Annotated[str, Help("A signal of the table, such as check-passed.")] = "",
    reply: Annotated[str, Help("The user's next message.")] = "",
    command: Annotated[str, Help("The command line that a tool ran.")] = "",
    failed: Annotated[bool | None, Field(description="Whether a tool failed.")] = None,
    output: Annotated[str, Help("What the tool printed.")] = "",
    by: str | None = None,
) -> Any:
    """Take what was seen, such as a test that passed, for the outcome of an episode.

    $ keepworth memory episode signal e4f0c1 check-passed
    """
    seen: dict[str, Any] = {"reply": reply, "command": command, "failed": failed, "output": output}
    return caller.open.episode(id).signal(name, **seen, by=caller.access.person(by))


@verb("POST /episodes/{id}/step_reward", "reward", of="episode.step_reward", writes=True)
def episode_step_reward(caller: VerbCaller, id: EpisodeId, value: float) -> None:
    """Reward the last act alone."""
    caller.open.episode(id).step_reward(value)


@verb("POST /episodes/{id}/reward", "reward", of="episode.reward", writes=True)
def episode_reward(caller: VerbCaller, id: EpisodeId, value: float, by: str | None = None, source: str = "user") -> Any:
    """Reward an episode, which credits every item that it showed."""
    return caller.open.episode(id).reward(value, by=caller.access.person(by), source=source)


@verb("POST /episodes/{id}/end", "read", of="episode.end", writes=True)
@command("end id --outcome", EPISODE, opens="default", policy=POLICY)
def episode_end(
    caller: VerbCaller, id: EpisodeId, outcome: Annotated[str, Help("How it ended.", "TEXT", default="completed")] = ""
) -> None:
    """Note that an episode is over. Rewards may still come.

    $ keepworth memory episode end e4f0c1
    """
    caller.open.require_room(caller.access, _logged(outcome))
    caller.open.episode(id).end(outcome)


@verb("GET /episodes", "read", Bounds, Page, of="episodes", key="episodes", pages=True)
@command(
    "list --limit --after",
    EPISODE,
    help="List episodes, oldest first: the id, the reward, the task.",
    bounds=True,
    after=Help("Go on after this one.", "EPISODE"),
)
def list_episodes(caller: VerbCaller, **options: Any) -> list[str]:
    """List ids of episodes, oldest first, a page at a time.

    $ keepworth memory episode list --user ana --limit 20
    """
    return caller.memory.episodes(**options, **caller.nobody(options.get("user_id", "")))


@verb("GET /episodes/{id}", "read", of="episode_record")
@command("show id", EPISODE)
def get_episode(caller: VerbCaller, id: EpisodeId) -> Any:
    """Show an episode: the task, what was shown, written and done, and its rewards.

    $ keepworth memory episode show e4f0c1
    """
    from keepworth.memory.store import episode_log
    from keepworth.records.episode import episode_to_json

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
def get_receipt(caller: VerbCaller, id: EpisodeId) -> Any:
    """List the items that were recalled for a call through the gateway, those that went upstream, and the text of these."""
    from keepworth.memory.store import notes

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


VERBS = tuple(value for value in list(globals().values()) if isinstance(value, Verb))
