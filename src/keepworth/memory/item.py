"""`Item`, one thing remembered; `Scope`, whose it is; times as canonical text; and checks of what may be remembered."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from functools import lru_cache, partial
from json import encoder as json_encoders
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar

from keepworth.memory.errors import InvalidFilter, InvalidScope, InvalidText, InvalidTime

LONGEST_NAME = 512
PARTS = ("tenant", "user", "agent", "session")


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memory it is. "" as a part means all when reading, and nobody in particular when writing. Names are compared
    exactly, after Unicode normalisation (NFC). What is a name is checked where a caller gives it, by `narrowed`: a file may hold
    names of earlier rules."""

    tenant: str = ""
    user: str = ""
    agent: str = ""
    session: str = ""

    def __post_init__(self) -> None:
        for name in PARTS:
            value = getattr(self, name)
            if not isinstance(value, str):
                fix = "only leaving it out means all" if value is None else "pass str(...), or leave it out for all"
                raise InvalidScope(f"{name} of a scope must be text, got {type(value).__name__}: {fix}")
            if value != "":
                object.__setattr__(self, name, _storable(value, f"{name} of a scope"))

    def parts(self) -> tuple[str, str, str, str]:
        return (self.tenant, self.user, self.agent, self.session)

    def contains(self, other: Scope) -> bool:
        """Whether this scope sees everything in `other`. The tenant must always be equal: "" is a tenant too."""
        return (
            self.tenant == other.tenant
            and self.user in ("", other.user)
            and self.agent in ("", other.agent)
            and self.session in ("", other.session)
        )

    def narrowed(self, **parts: str) -> Scope:
        """Return this scope with more parts set. A part that is already set cannot be changed, and one that is ALL is left as it
        is. Raises InvalidScope."""
        chosen = dict(zip(PARTS, self.parts(), strict=True))
        for name, given in named_parts(**parts).items():
            value = checked_name(given, f"{name} of a scope") if given and isinstance(given, str) else given
            if name not in chosen:
                raise InvalidScope(f"a scope has no part {name!r}: use {', '.join(chosen)}")
            if chosen[name] not in ("", value):
                raise InvalidScope(f"{name} is already {chosen[name]!r} here and cannot become {value!r}: leave it out")
            chosen[name] = value
        return Scope(**chosen)

    def members(self) -> tuple[Scope, ...]:
        """The plain scopes that make up this one: itself, and in a `Reach` also those that are shared with it."""
        return (self,)


class LeftOut(str):
    """The class of ALL."""

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = LeftOut()
"""The value of a part of a scope that a call leaves out: everybody's. An empty text is refused, as an application whose visitor
has no name yet would else see what belongs to all."""


def named_parts(**parts: str) -> dict[str, str]:
    """Return the parts of a scope that a call names, by name: all that are not ALL. Raises InvalidScope for an empty one."""
    named = {name: value for name, value in parts.items() if not isinstance(value, LeftOut)}
    for name, value in named.items():
        if value == "":
            fix = "leave tenant out" if name == "tenant" else f"leave {name}_id out, which means all"
            raise InvalidScope(f"{name} of a scope is empty: pass a name, also for somebody without one, or {fix}")
    return named


one_spelling = partial(unicodedata.normalize, "NFC")
"""Returns the NFC form of a name that Unicode can write in several ways, such as Zoë."""


def checked_name(name: object, what: str) -> str:
    """Return a name in NFC. Raises InvalidScope if it is none; `what` says in the message what the name is of."""
    if not isinstance(name, str):
        fix = "leave it out" if name is None else "pass str(...), or leave it out"
        raise InvalidScope(f"{what} must be text, got {type(name).__name__}: {fix}")
    name = _storable(name, what)
    if not name.strip(_SPACES_AND_JOINERS):
        raise InvalidScope(f"{what} is blank: {name!r:.80}: write a name, or leave it out")
    if name != name.strip(_SPACES):  # it would be another person than the same name without them
        raise InvalidScope(f"{what} begins or ends with a space: {name!r:.80}: remove it")
    if not legible(name):
        raise InvalidScope(
            f"{what} has control characters or others that cannot be seen: {name!r:.80}: remove or decode them"
        )
    return name


def _storable(name: str, what: str) -> str:
    """Return a name in NFC. Raises InvalidScope if no file may hold it."""
    if len(name) > LONGEST_NAME:
        raise InvalidScope(f"{what} is {len(name)} characters long: shorten it, the limit is {LONGEST_NAME}")
    if not name.isprintable() and any(ord(c) < 32 or 0xD800 <= ord(c) <= 0xDFFF for c in name):
        raise InvalidScope(
            f"{what} has control characters or is not valid Unicode: {name!r:.80}: remove or decode them"
        )
    return one_spelling(name)


def legible(name: str) -> bool:
    """Return whether all characters of a name can be seen, but for spaces and the joiners that Persian and Indic letters need."""
    return name.isprintable() or all(
        character in _SPACES_AND_JOINERS or unicodedata.category(character) not in _UNSEEN for character in name
    )


_SPACES = " \u3000"
_SPACES_AND_JOINERS = f"{_SPACES}\u200c\u200d"
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")
"""Unicode's categories of control and format characters, halves of surrogate pairs, and separators."""


@dataclass(frozen=True, slots=True)
class Reach(Scope):
    """What a handle sees if other scopes are shared with it: its own scope and those. It is for reading only; a write goes into
    one plain scope."""

    others: tuple[Scope, ...] = ()

    def contains(self, other: Scope) -> bool:
        return any(scope.contains(other) for scope in self.members())

    def members(self) -> tuple[Scope, ...]:
        return (Scope(*self.parts()), *self.others)


EVERYWHERE = Scope()


Clock = Callable[[], str]
Timestamp = str | datetime | date | float | int


def timestamp(value: Timestamp | None) -> str:
    """Return a time as canonical text, "" for None or "". Times with an offset are converted to UTC; others are taken as UTC.

    >>> timestamp("2026-01-01"), timestamp("2023-05-20T02:21+02:00")
    ('2026-01-01T00:00:00', '2023-05-20T00:21:00')
    """
    if value is None or value == "":
        return ""
    try:
        if isinstance(value, bool):
            raise TypeError
        if isinstance(value, (int, float)):
            parsed = datetime.fromtimestamp(value, tz=UTC)
        elif isinstance(value, datetime):
            parsed = value
        elif isinstance(value, date):
            parsed = datetime(value.year, value.month, value.day)
        else:
            parsed = datetime.fromisoformat(value)
        if parsed.tzinfo is not None:
            parsed = parsed.astimezone(UTC).replace(tzinfo=None)
        return parsed.isoformat()
    except (ValueError, TypeError, AttributeError, OverflowError, OSError) as error:
        raise InvalidTime(
            f"{value!r:.60} is not a time: give ISO 8601 text such as '2026-01-31T09:00', a date or a datetime"
        ) from error


def is_before(one: str, other: str) -> bool:
    """Return whether the canonical time `one` is surely earlier than `other`: a time without hours stands for its whole day."""
    days = one.endswith(MIDNIGHT) or other.endswith(MIDNIGHT)
    return one[:10] < other[:10] if days else one < other


MIDNIGHT = "T00:00:00"


TIMES = ("event_time", "written_at", "valid_from", "valid_to", "ended_at", "expires_at")
"""The fields of an item that hold times."""


def with_zone(time: str) -> str:
    """Return a canonical time as it leaves: with its zone, which is UTC. What is none, such as "", is returned as it is.

    >>> with_zone("2026-01-01T07:00:00"), with_zone("")
    ('2026-01-01T07:00:00Z', '')
    """
    return f"{time}Z" if _CANONICAL.fullmatch(time) else time


def zoned(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of an item as it leaves: its times, and that of its provenance, with their zone."""
    times = {name: with_zone(record[name]) for name in TIMES if name in record}
    origin = record.get("provenance")
    return {**record, **times, **({"provenance": {**origin, "date": with_zone(origin["date"])}} if origin else {})}


def unzoned(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of an item that left with `zoned`."""
    times = {name: without_zone(record[name]) for name in TIMES if name in record}
    origin = record.get("provenance")
    date = {"date": without_zone(origin["date"])} if origin and "date" in origin else {}
    return {**record, **times, **({"provenance": {**origin, **date}} if origin else {})}


def without_zone(time: str) -> str:
    """Return a time that left with its zone as canonical text."""
    return time.removesuffix("Z") if _CANONICAL.fullmatch(time.removesuffix("Z")) else time


_CANONICAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?")


def new_id(kind: str) -> str:
    """Return a new random id of an episode (`kind` "e") or a decision ("d")."""
    return f"{kind}{secrets.token_hex(8)}"


def now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat()


def later(start: str, seconds: float) -> str:
    """Return the canonical time that is `seconds` after the canonical time `start`. Raises InvalidTime."""
    try:
        if isinstance(seconds, bool) or not seconds > 0:
            raise ValueError
        return (datetime.fromisoformat(start) + timedelta(seconds=seconds)).isoformat()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidTime(
            f"ttl must be a positive number of seconds, got {seconds!r:.40}: give one, or leave it out"
        ) from error


LONGEST_WORDING = 200_000
"""The most characters of a goal, an observation or an action. A case stores all three in one item, of at most a million."""
_CONTROLS = {code: " " for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\r\t"}


def worded(text: object, what: str) -> str:
    """Return `text` with control characters, such as a terminal's colours, replaced by spaces; line breaks and tabs stay. An item
    with control characters could not be stored. Raises InvalidText if it is no text, not valid Unicode, or too long."""
    wording = checked_label(text, what)
    if len(wording) > LONGEST_WORDING:
        raise InvalidText(f"{what} is {len(wording):,} characters long, the limit is {LONGEST_WORDING:,}: shorten it")
    return wording if wording.isprintable() else wording.translate(_CONTROLS)


def worded_actions(actions: object) -> tuple[str, ...]:
    """Return `actions`, each passed through `worded`. Raises InvalidText unless it is a sequence of texts; a single text is
    refused, as it would be read as a sequence of letters."""
    if isinstance(actions, (str, bytes)) or not isinstance(actions, Iterable):
        raise InvalidText(f"actions must be a sequence of texts, got {actions!r:.60}: put a single one into a list")
    return tuple(worded(action, f"action number {number}") for number, action in enumerate(actions, start=1))


def source_problem(source: object) -> str:
    if not isinstance(source, str) or not source.strip() or not legible(source) or len(source) > 1000:
        return f"its source {source!r:.60} is not a name: text that can be printed, at most 1,000 characters"
    return ""


OWN = "own"
"""The source of items that the memory learned from the program's own rewards. "own:NAME" is for rewards by a person."""


def on_word_of(by: str) -> str:
    """Return the source of what an episode taught: `OWN` if the program itself rewarded it ("" as `by`), else "own:NAME"."""
    return f"{OWN}:{by}" if by else OWN


def learned(source: str) -> bool:
    """Whether a source stands for an episode of this memory, whoever rewarded it, and not for a record from outside."""
    return source == OWN or source.startswith(f"{OWN}:")


SIGNAL = "signal:"
"""How the source of a reward begins that nobody gave: an outcome was read from what happened (see `memory.signals`)."""
EVALUATION = "evaluation:"
"""How the source of a reward begins that an evaluator gave, whose name follows (see `memory.evaluations`)."""


def reward_source(by: str, source: str) -> str:
    """Return the source of a reward that came through the channel `source` and stands for the person `by`.

    A person's own rewards are one source, whatever the channel. Each signal about a person's turns, and each evaluator that works
    for a person, is one of its own, so that none replaces what that person said, and each can be taken back alone.
    """
    if source.startswith((SIGNAL, EVALUATION)):
        return f"{source}:{by}" if by else source
    return on_word_of(by) if by else source


def channel_of(source: str) -> str:
    """Return a reward's source without the person whom it stands for, where the channel has a name: "signal:NAME" or
    "evaluation:NAME"; any other as it is."""
    return ":".join(source.split(":", 2)[:2]) if source.startswith((SIGNAL, EVALUATION)) else source


def signal_of(source: str) -> str:
    """Return the name of the signal that a reward's source stands for; "" if somebody gave the reward."""
    return source.split(":", 2)[1] if source.startswith(SIGNAL) else ""


def whose(source: str) -> str:
    """Return the person whose reward a source stands for; "" if that was the program itself, or if it is from outside."""
    if source.startswith((SIGNAL, EVALUATION)):
        return "".join(source.split(":", 2)[2:])
    return source.removeprefix(f"{OWN}:") if source.startswith(f"{OWN}:") else ""


def checked_source(source: object, what: str) -> str:
    """Return a source that a caller gives. Raises InvalidText if it is no text, or one that only the memory itself may use."""
    label = checked_label(source, what)
    if learned(label):
        raise InvalidText(
            f"{what} is {label!r:.60}, which stands for what memory learned itself: say where it comes from, such as "
            "'import:wiki'; whose judgement a reward is, `by` says"
        )
    if label.startswith((SIGNAL, EVALUATION)) and (label.count(":") > 1 or label in (SIGNAL, EVALUATION)):
        named = (
            ("a signal", "signal:check-passed") if label.startswith(SIGNAL) else ("an evaluator", "evaluation:helpful")
        )
        raise InvalidText(
            f"{what} is {label!r:.60}, which is no name of {named[0]}: give one such as {named[1]!r}; whose turn it was, "
            "`by` says"
        )
    return label


LONGEST_TEXT = 1_000_000
_ALLOWED_CONTROLS = frozenset("\n\r\t")


class ItemKind(str, Enum):
    """What an item is. Searches and lists take some of these as `kinds=`. An item of the kind core is in the text of every search
    of its scope, whatever is asked, and so is one that is pinned (see `PINNED`)."""

    FACT = "fact"
    EPISODE = "episode"
    CASE = "case"
    SKILL = "skill"
    LESSON = "lesson"
    CORE = "core"


class Status(str, Enum):
    CANDIDATE = "candidate"
    ACTIVE = "active"
    QUARANTINED = "quarantined"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where an item came from. `source` is a name such as "conversation" or "tool:web", by which it can be rolled back."""

    source: str = ""
    session: str = ""
    turn: int = -1
    speaker: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class ValueStatistics:
    """The rewards that came after showing an item: of the `shown` times, `credited` had a reward. The sums are over those."""

    shown: int = 0
    credited: int = 0
    total: float = 0.0
    total_squared: float = 0.0
    propensity_total: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.credited if self.credited else 0.0

    def after(self, reward: float, propensity: float) -> ValueStatistics:
        return ValueStatistics(
            self.shown + 1,
            self.credited + 1,
            self.total + reward,
            self.total_squared + reward * reward,
            self.propensity_total + propensity,
        )


PINNED = "pinned"
"""The name in an item's metadata that says, with the value True, that it is always shown, never left out to learn what it is
worth, and never deleted to keep a budget."""
TESTED = "tested"
"""The name in an item's metadata of the probability with which chance leaves it out, where somebody tests what it is worth."""
UNKNOWN = Provenance()
UNTRIED = ValueStatistics()


@dataclass(frozen=True, slots=True)
class Link:
    target: str
    relation: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing remembered. It is *current* while it is active, not closed and not deleted. Times are text, "" if unknown.

    Args:
        key: What searches match instead of the text (the task of a case, the trigger of a lesson); "" for the text itself.
        event_time, written_at: When it happened or was said, and when it was stored.
        valid_from, valid_to: The interval in which it was true, as far as that is known.
        ended_at: When the store closed it, because it was superseded or deleted.
        revision: How often it was reworded.
    """

    id: str
    text: str
    kind: ItemKind = ItemKind.FACT
    key: str = ""
    scope: Scope = EVERYWHERE
    event_time: str = ""
    written_at: str = ""
    valid_from: str = ""
    valid_to: str = ""
    ended_at: str = ""
    expires_at: str = ""
    superseded_by: str = ""
    links: tuple[Link, ...] = ()
    provenance: Provenance = UNKNOWN
    trust: float = 1.0
    status: Status = Status.ACTIVE
    deleted: bool = False
    revision: int = 0
    values: ValueStatistics = UNTRIED
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def searched_text(self) -> str:
        """The text that the encoder reads: the key if there is one, else the text."""
        return self.key or self.text

    @property
    def indexed_text(self) -> str:
        """The text that is searched by words: the key if there is one, and the text."""
        return f"{self.key}\n{self.text}" if self.key else self.text

    @property
    def standing(self) -> str:
        """The state in words, such as "deleted", "superseded by m18" or the status; "" for an active item."""
        if self.deleted:
            return "deleted"
        if self.superseded_by:
            return f"superseded by {self.superseded_by}"
        return "" if self.status is Status.ACTIVE else self.status.value

    def __repr__(self) -> str:
        """Only the fields that differ from their defaults."""
        fields = ", ".join(f"{name}={value!r}" for name, value in to_record(self).items())
        return f"Item({fields})"

    @property
    def said_at(self) -> str:
        """When it was said, else when it happened, as far as either is stated; "" if neither is."""
        date = ""
        with suppress(InvalidTime):  # imported dates may be written in any way
            date = timestamp(self.provenance.date)
        # What happens on a day to come was said before it was written.
        return date or (
            min(self.event_time, self.written_at) if self.event_time and self.written_at else self.event_time
        )

    @property
    def open(self) -> bool:
        """Whether it is neither closed by a successor nor deleted, so that operations may change it."""
        return not (self.deleted or self.superseded_by or self.ended_at)

    @property
    def current(self) -> bool:
        return self.open and self.status is Status.ACTIVE

    @property
    def pinned(self) -> bool:
        return bool(self.metadata.get(PINNED))

    @property
    def tested(self) -> float:
        """With which probability chance leaves it out, because somebody tests what it is worth; 0 where nobody does."""
        share = self.metadata.get(TESTED, 0.0) if not self.always else 0.0
        return float(share) if isinstance(share, (int, float)) and 0.0 < share <= 0.5 else 0.0

    @property
    def always(self) -> bool:
        """Whether every search of its scope shows it: it is of the kind core, or pinned."""
        return self.kind is ItemKind.CORE or self.pinned

    def valid_at(self, time: str) -> bool:
        """Whether it was held true at `time` (canonical): from the start of its interval on, and before the end."""
        start = self.valid_from or self.event_time or self.written_at
        end = self.valid_to or self.ended_at
        return not self.deleted and start <= time and (not end or time < end)

    def visible(self, time: str) -> bool:
        """Whether a plain search at `time` may return it: it is current, not expired, and inside its stated validity."""
        return self.current and self.in_force(time)

    def in_force(self, time: str) -> bool:
        """Whether it is neither expired at `time` nor outside its stated validity. The ends count as in `valid_at`."""
        return (
            not (self.expires_at and self.expires_at <= time)
            and not (self.valid_to and self.valid_to <= time)
            and self.valid_from <= time
        )


def text_problem(text: object) -> str | None:
    """Return why `text` cannot be remembered, or None. Line breaks and tabs are the only control characters allowed."""
    if not isinstance(text, str):
        fix = "decode it" if isinstance(text, bytes) else "give a text"
        return f"text must be str, got {type(text).__name__}: {fix}"
    if not text.strip():
        return "text is empty: give it at least one character that is not white space"
    if len(text) > LONGEST_TEXT:
        return f"text is {len(text):,} characters long, the limit is {LONGEST_TEXT:,}: split it"
    if not text.isprintable():
        for position, character in enumerate(text):
            code = ord(character)
            if 0xD800 <= code <= 0xDFFF:
                return f"text is not valid Unicode at character {position}: decode it with errors='replace'"
            if (code < 32 and character not in _ALLOWED_CONTROLS) or 127 <= code < 160:
                return f"text has control character U+{code:04X} at character {position}: remove it"
    return None


def checked_provenance(given: Provenance) -> Provenance:
    """Return a provenance that a caller gives, checked. Raises InvalidText."""
    checked_source(given.source, "source of a provenance")
    for part in ("session", "speaker", "date"):
        checked_label(getattr(given, part), f"{part} of a provenance")
    if isinstance(given.turn, bool) or not isinstance(given.turn, int):
        raise InvalidText(f"turn of a provenance must be a whole number, got {given.turn!r:.40}")
    return given


def checked_text(text: object, what: str = "text") -> str:
    problem = text_problem(text)
    if problem is not None:
        raise InvalidText(f"{what}{problem.removeprefix('text')}; nothing was stored")
    assert isinstance(text, str)
    return text


def checked_label(label: object, what: str) -> str:
    """Return a source, speaker, task or the like: any text that a file can hold, also "". Raises InvalidText."""
    if not isinstance(label, str):
        raise InvalidText(f"{what} must be text, got {type(label).__name__}: pass str(...)")
    if not label.isprintable() and any("\ud800" <= character <= "\udfff" for character in label):
        raise InvalidText(f"{what} is not valid Unicode: {label!r:.80}: decode it with errors='replace'")
    return label


DEEPEST_METADATA = 50
"""How deep lists and dictionaries may be nested."""


def _flat(name: object, value: object) -> bool:
    """Whether an entry of metadata surely comes back from the file unchanged: a quick check that most entries pass."""
    if type(name) is not str or not name.isascii():
        return False
    if type(value) is str:
        return value.isascii()
    return value is None or type(value) is bool or (type(value) is int and -(2**63) <= value < 2**63)


def plain_metadata(metadata: Mapping[str, Any] | None, what: str = "metadata") -> dict[str, Any]:
    """Return metadata, which the caller gave as `what`, as the file will give it back. Raises InvalidText if it is not plain."""
    if metadata is None or metadata == {}:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidText(
            f"{what} is no dictionary but {metadata!r:.40}: give names with values, such as {{'topic': 'food'}}"
        )
    if type(metadata) is dict and all(_flat(name, value) for name, value in metadata.items()):
        return metadata.copy()
    try:
        if _deeper_than(DEEPEST_METADATA, metadata):
            raise ValueError(
                f"lists and dictionaries lie more than {DEEPEST_METADATA} deep in each other, or in themselves"
            )
        text = json.dumps(dict(metadata), allow_nan=False, ensure_ascii=False)
        text.encode("utf-8")
    except (TypeError, ValueError) as error:
        raise InvalidText(
            f"metadata is not plain data ({error}): give text, numbers, lists and dictionaries"
        ) from error
    plain: dict[str, Any] = json.loads(text)
    return plain


def _deeper_than(depth: int, value: object) -> bool:
    if not isinstance(value, (Mapping, list, tuple)):
        return False
    parts = value.values() if isinstance(value, Mapping) else value
    return depth == 0 or any(_deeper_than(depth - 1, part) for part in parts)


Option = TypeVar("Option", Status, ItemKind)


def member(options: type[Option], value: Option | str) -> Option:
    """Return the status or the kind that `value` names. Raises InvalidFilter."""
    try:
        return options(value)
    except ValueError:
        name = "status" if options is Status else "kind"
        raise InvalidFilter(
            f"{name} {value!r:.40} does not exist: use one of {', '.join(option.value for option in options)}"
        ) from None


def duplicate_key(item: Item) -> bytes:
    """Return 16 bytes that are equal for exact duplicates: same scope, kind, key and text, after NFC and whitespace folding.

    For an episode or a case the event time counts too, as the same thing may happen twice.
    """
    global _last_key
    last, key = _last_key  # read both at once: another thread may change it meanwhile
    if last is item:
        return key
    key = duplicate_key_of(item.text, item)
    _last_key = (item, key)
    return key


class Described(Protocol):
    """What tells duplicates apart beside the text: of an item, or of the draft of one."""

    @property
    def kind(self) -> ItemKind: ...
    @property
    def key(self) -> str: ...
    @property
    def scope(self) -> Scope: ...
    @property
    def event_time(self) -> str: ...


def duplicate_key_of(text: str, like: Described) -> bytes:
    """Return the `duplicate_key` of an item with this text and, as to the rest, like another or like a draft."""
    time = like.event_time if like.kind in DATED else ""
    scope, mark = _scope_mark(like.scope)
    parts = (scope, like.kind, time, folded(like.key) if like.key else "", folded(text))
    digest = hashlib.blake2b("\x00".join(parts).encode(), digest_size=13).digest()
    # An index sorts by the first eight bytes as a little-endian number, so bytes 5 to 7, of the scope, count most: the writes of
    # one user then touch few pages of the index rather than nearly all.
    return digest[:5] + mark + digest[5:]


_last_key: tuple[Item | None, bytes] = (None, b"")
"""The item whose key was computed last, and the key, since a write needs the key of an item several times in a row."""


DATED = (ItemKind.EPISODE, ItemKind.CASE)


@lru_cache(maxsize=4096)
def _scope_mark(scope: Scope) -> tuple[str, bytes]:
    """Return the names of a scope as one text, and a digest of three bytes."""
    names = "\x00".join(scope.parts())
    return names, hashlib.blake2b(names.encode(), digest_size=3).digest()


def folded(text: str) -> str:
    """Return `text` in NFC, with each run of white space replaced by one space and none at the ends."""
    text = one_spelling(text)
    # Printable text holds no white space but blanks.
    return text.strip() if text.isprintable() and "  " not in text else " ".join(text.split())


def indents(text: str) -> tuple[int, ...]:
    """Return the indentation of each line that is not blank, in columns more than the line that is indented least.

    >>> indents("if ready:\\n    go()\\nstop()")
    (0, 4, 0)
    """
    lines = [line for line in text.expandtabs().splitlines() if line.strip()]
    depths = [len(line) - len(line.lstrip()) for line in lines]
    return tuple(indent - min(depths) for indent in depths)


def indented_alike(one: str, other: str) -> bool:
    """Whether two texts with the same words have the same relative indents, which carry meaning in code. Also True if either is
    one line, or if they have different numbers of lines, as then the lines only break elsewhere."""
    if "\n" not in one or "\n" not in other:
        return True
    mine, theirs = indents(one), indents(other)
    return len(mine) != len(theirs) or mine == theirs


HASH_MODULUS = 1 << 256
"""Content hashes are sums modulo this."""


def content_digest(item: Item, metadata: str | None = None) -> int:
    """Return a hash of 256 bits over an item without its clocks and value statistics. A bank's hash is the sum of these, modulo
    2**256. `metadata` is the text of the item's metadata, if the caller has it already."""
    global _last_rest
    # The parts that items of one batch have in common are joined once, which saves a fifth of the time of a batch.
    common = (*_common(item), item.ended_at == "") if item.trust == 1.0 else None
    last, lengths, joined = _last_rest  # read all at once: another thread may change it meanwhile
    if common is None or last != common:
        lengths, joined = _rest(item)
        _last_rest = (common, lengths, joined)
    metadata = metadata_text(item.metadata) if metadata is None else metadata
    if not metadata.isascii() or "\x7f" in metadata:
        metadata = json.dumps(dict(item.metadata), sort_keys=True)
    lengths, joined = f"{lengths},{len(metadata)}", joined + metadata
    # The lengths in front make the joined parts unambiguous.
    body = f"{len(item.id)},{len(item.text)},{lengths}\x00{item.id}{item.text}{joined}"
    return int.from_bytes(hashlib.blake2b(body.encode("utf-8", "surrogatepass"), digest_size=32).digest(), "little")


_last_rest: tuple[object, str, str] = (None, "", "")
_common = attrgetter(
    *("kind", "key", "scope", "event_time", "superseded_by", "provenance", "status", "deleted", "revision", "links")
)


def drop_memos() -> None:
    """Drop the cached texts: what is erased on purpose must not stay in memory either."""
    global _last_key, _last_rest
    _last_key = (None, b"")
    _last_rest = (None, "", "")


def _rest(item: Item) -> tuple[str, str]:
    """Return the lengths and the joined text of the parts of the digest, without id, text and metadata."""
    provenance = item.provenance
    parts = (
        item.kind.value,
        item.key,
        *item.scope.parts(),
        item.event_time,
        item.superseded_by,
        provenance.source,
        provenance.session,
        f"{provenance.turn:d}",
        provenance.speaker,
        provenance.date,
        repr(float(item.trust)),
        item.status.value,
        f"{item.deleted:d}{item.open:d}{item.revision:d}",
        *(f"{link.target}\x00{link.relation}" for link in item.links),
    )
    return ",".join([str(len(part)) for part in parts]), "".join(parts)


compact_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Writes JSON without blanks, faster than `json.dumps`, which makes its encoder anew for each call."""
_in_order = json.JSONEncoder(ensure_ascii=False, sort_keys=True)


def encoder_of_trees(encoder: json.JSONEncoder) -> Callable[[Any], str]:
    """Return what `encoder.encode` does, in half the time, for data that were checked to hold no circle: that method makes an
    encoder in C anew for each call, to look for circles."""
    make = getattr(json_encoders, "c_make_encoder", None)
    if make is None:  # an interpreter without it
        return encoder.encode
    made = make(
        None,
        encoder.default,
        json_encoders.encode_basestring,
        None,
        encoder.key_separator,
        encoder.item_separator,
        encoder.sort_keys,
        encoder.skipkeys,
        encoder.allow_nan,
    )
    return lambda tree: "".join(made(tree, 0))


_metadata_text = encoder_of_trees(_in_order)


def metadata_text(metadata: Mapping[str, Any]) -> str:
    """Return metadata as the JSON text that the file holds."""
    return _metadata_text(dict(metadata)) if metadata else ""


def to_record(item: Item) -> dict[str, Any]:
    """Return an item as plain data without defaults: for exports, and for the journal, which stores it before a change."""
    listed = zip(_NAMES, _values(item), _USUAL, strict=True)
    record = {name: value for name, value, usual in listed if value is not usual and value != usual}
    record["kind"] = item.kind.value
    if "status" in record:
        record["status"] = item.status.value
    for name in _PARTS:
        if name in record:
            record[name] = {part.name: getattr(record[name], part.name) for part in fields(record[name])}
    if "links" in record:
        record["links"] = [[link.target, link.relation] for link in item.links]
    if "metadata" in record:
        record["metadata"] = dict(item.metadata)
    return record


def from_record(record: Mapping[str, Any]) -> Item:
    """Return the item that `to_record` made into plain data. Raises InvalidText for unknown fields, as they would be lost."""
    unknown = set(record) - set(_NAMES)
    if unknown:
        raise InvalidText(f"an item record has unknown fields {sorted(unknown)}: it may come from a newer version")
    values = dict(record)
    for name, of in (("kind", ItemKind), ("status", Status)):
        if name in values:
            values[name] = of(values[name])
    for name, parts in _PARTS.items():
        if name in values:
            values[name] = parts(**values[name])
    if "links" in values:
        values["links"] = tuple(Link(target, relation) for target, relation in values["links"])
    return Item(**values)


_NAMES = tuple(part.name for part in fields(Item))
_PARTS: dict[str, type[Scope | Provenance | ValueStatistics]] = {
    "scope": Scope,
    "provenance": Provenance,
    "values": ValueStatistics,
}
_values = attrgetter(*_NAMES)
_USUAL = (None, None, None, *_values(Item("", ""))[3:])
"""The values that a record leaves out; id, text and kind are always in it."""
