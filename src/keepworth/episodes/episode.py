"""The record of what happened: tasks, what agents saw and did, what it was worth, and all of it as one episode.

An `Episode` is the only thing that is stored, viewed, replayed and trained on. Read from the top: each type is made of those
above it. At the end: an episode as JSON and back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import FinishReason, Tokens, VersionSpan


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance of a conversation. `evidence` is part of the hidden key: no agent may read it.

    date: when it was said, ISO 8601, where that is not the date of its session."""

    speaker: str
    text: str
    index: int
    evidence: bool = False
    date: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A dated stretch of conversation. `date` is ISO 8601 (`2023-05-20T02:21`), minutes resolution."""

    id: str
    date: str
    turns: tuple[Turn, ...]

    def date_of(self, turn: Turn) -> str:
        return turn.date or self.date


@dataclass(frozen=True, slots=True)
class Task:
    """Immutable and serialisable.

    key: stable across machines and versions (`longmemeval/<question id>`).
    source: the data set it came from, with its variant (`longmemeval-oracle+50`).
    input: what the agent is asked.
    answers: hidden; any one of them counts as right.
    verifier: name of the function in `keepworth.tasks` that scores an answer against `answers`.
    sessions: the haystack, in order of date.
    evidence: ids of the sessions that hold the answer (hidden).
    tags: labels for reporting (`type`, `split`, ...), never shown to an agent.
    options: what there is to choose from, where the answer is one of several; the answers are among them.
    row: what the task was read from, of one's own making, for a reward of one's own (hidden).
    """

    key: str
    source: str
    input: str
    answers: tuple[str, ...]
    verifier: str
    asked_at: str = ""
    sessions: tuple[Session, ...] = ()
    evidence: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    row: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool as an agent is told of it: its name, what its argument is called, and what it does, in one sentence.

    parameters: the JSON schema of its arguments, where it takes other than one text; it is then called with a JSON object."""

    name: str
    argument: str
    does: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """text: what there is to see now (a question, a tool's result, the next section of a document).

    question: what is to be answered in the end, where `text` is not it. tools: what may be used, in the first
    observation only. answer_due: False where the agent is only to read. actions: all that can be done
    now, where they can be listed. named: those that `text` tells of, where it is something to be
    kept for later. state: key of the environment's state, equal for equal states and without step counters or times, for
    objectives that compare turns taken from one state ("": not comparable). messages: where the text is the last of several
    messages of a conversation, all that are new, each with a role and a content."""

    text: str
    question: str = ""
    tools: tuple[ToolDescription, ...] = ()
    answer_due: bool = True
    actions: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    state: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()


class OperationKind(str, Enum):
    """UPDATE rewords the same fact (new revision, same id); SUPERSEDE closes a fact that changed and links its successor."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    SUPERSEDE = "SUPERSEDE"
    DELETE = "DELETE"
    NOOP = "NOOP"
    MERGE = "MERGE"
    LINK = "LINK"


class ParseStatus(str, Enum):
    """How a model's text became an operation. INVALID changes nothing and is counted."""

    OK = "ok"
    REPAIRED = "repaired"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Operation:
    """kind; `targets`: ids of the items it acts on, as the bank knows them; `text`: the new wording, if any."""

    kind: OperationKind
    targets: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class StatedFact(Operation):
    """An operation with what somebody stated. turn: index of the message that states it, -1 where that is not known; speaker: the
    role of who said it; day: ISO 8601, when it happened, where the words say so."""

    turn: int = -1
    speaker: str = ""
    day: str = ""


class DecisionKind(str, Enum):
    SEARCH = "search"
    WRITE = "write"
    NOOP = "noop"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Decision:
    """candidates: item ids with their retrieval scores, best first; chosen: ids shown, in order;
    propensity: probability of the ordered choice under `policy` at its version (1.0 where deterministic)."""

    id: str
    kind: DecisionKind
    query: str
    candidates: tuple[tuple[str, float], ...]
    chosen: tuple[str, ...]
    propensity: float
    policy: str
    step: int = 0


class RewardScope(str, Enum):
    TOKEN = "token"
    STEP = "step"
    SEGMENT = "segment"
    EPISODE = "episode"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class RewardTerm:
    """`value` times `weight` enters the sum; a weight of 0 logs the term without training on it.
    `scorer` names the reader or judge, with its version, that produced it ("" for a plain function).
    `segment`: index among the episode's segments of the one that earned it (scope "segment" only).
    `shaping`: it steers how the task is done (format, length, cost, novelty) and says nothing about whether it was done.
    `role`: the one role that it rewards, where an episode has several ("": all of them)."""

    name: str
    value: float
    weight: float = 1.0
    scope: RewardScope = RewardScope.EPISODE
    scorer: str = ""
    segment: int | None = None
    shaping: bool = False
    role: str = ""


def combined(terms: tuple[RewardTerm, ...]) -> float:
    """The reward that credit starts from: the weighted sum of the episode's terms."""
    return sum(term.value * term.weight for term in terms)


def is_silent(terms: tuple[RewardTerm, ...], name: str) -> bool:
    """Whether others said something of the episode, and nothing of this name was said."""
    return bool(terms) and all(term.name != name for term in terms)


def metric(terms: tuple[RewardTerm, ...]) -> float:
    """How well the task itself was done, before shaping: what filters, curricula and teachers go by.

    The weighted sum of the terms of the whole episode that are no shaping. Where those are logged with weight 0 alone, their
    sum; where there is none, the reward."""
    unshaped = [term for term in terms if term.scope is RewardScope.EPISODE and not term.shaping]
    trained = [term.value * term.weight for term in unshaped if term.weight]
    if trained:
        return sum(trained)
    return sum(term.value for term in unshaped) if unshaped else combined(terms)


def checked_terms(terms: Iterable[RewardTerm]) -> tuple[RewardTerm, ...]:
    """The terms of one episode with values and weights as Python floats, whatever scalars people's code gave.

    Raises ValueError, naming the term, where one is not a finite number, or their weighted sum is not."""
    whole = []
    for term in terms:
        if not isinstance(term, RewardTerm):
            raise ValueError(f"a reward that is a {type(term).__name__}, not a RewardTerm")
        try:
            value = finite_number(term.value)
        except ValueError as error:
            raise ValueError(f"the reward {term.name!r}, which is {error}") from None
        try:
            weight = finite_number(term.weight)
        except ValueError as error:
            raise ValueError(f"the reward {term.name!r} a weight that is {error}") from None
        whole.append(replace(term, value=value, weight=weight))
    if not math.isfinite(combined(tuple(whole))):
        raise ValueError("rewards whose weighted sum is not a finite number")
    return tuple(whole)


def finite_number(value: object) -> float:
    """`value` as a float: a Python, NumPy or torch scalar alike, which is what people's reward functions return.

    Raises ValueError, saying what it is, for anything but one finite number."""
    if value is None or isinstance(value, str | bytes | bytearray):
        raise ValueError(f"{_short(value)}, not a number")
    if tuple(getattr(value, "shape", ())) != ():
        raise ValueError(f"a {type(value).__name__} of shape {tuple(value.shape)}, not one number")  # type: ignore[attr-defined]
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise ValueError("a number too large for a float") from None
    except Exception:  # whatever people's types raise
        raise ValueError(f"a {type(value).__name__}, not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{number}, not a finite number")
    return number


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, slots=True)
class Segment:
    """context: the ids the model saw; ids: what it drew (never decoded and re-encoded); logprobs: under the policy
    that drew them, at `temperature`, or () where that is not known (the learner then scores them with its weights before the
    update); text: for people to read; memory_before, memory_after: content hashes of the bank;
    state: key of the environment's state before acting, equal for equal states and without step counters or times ("":
    not comparable); seconds: that the action it is part of took in the environment, None where nobody measured them; a clock's
    reading, which two equal segments need not share."""

    role: str
    prompt_id: str
    context: Tokens
    ids: Tokens
    logprobs: tuple[float, ...]
    temperature: float
    finish: FinishReason
    spans: tuple[VersionSpan, ...]
    text: str
    memory_before: str = ""
    memory_after: str = ""
    state: str = ""
    seconds: float | None = field(default=None, compare=False)


class StopReason(str, Enum):
    COMPLETED = "completed"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    CONTEXT_OVERFLOW = "context_overflow"
    PARSE_ERROR = "parse_error"
    TOOL_STOP = "tool_stop"
    TIMEOUT = "timeout"
    ENVIRONMENT_ERROR = "environment_error"
    ABORTED = "aborted"


UNSOUND = frozenset({StopReason.ENVIRONMENT_ERROR, StopReason.TIMEOUT, StopReason.ABORTED})
"""How episodes end that say nothing about the policy."""


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """An operation an agent asked for, how its text parsed, and what the bank answered ("applied", "no-op: ...")."""

    operation: Operation
    status: ParseStatus
    outcome: str


@dataclass(frozen=True, slots=True)
class Shown:
    """An item as it was shown to the model, for people to read: id, retrieval score, text."""

    item: str
    score: float
    text: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """What an agent was told, and what it did, where it called no model that drew the action."""

    seen: str
    done: str


@dataclass(frozen=True, slots=True)
class Episode:
    """One attempt at a task. source: the data set of its task (`Task.source`), for statistics per kind of task.
    parent: of a re-roll, the id of the episode from whose middle it starts. variation: the name of the `Variation` under which it
    was played, "" for none. origin: the name of the `Source` that it comes from, "" where it was sampled for the update."""

    id: str
    task: str
    role: str
    question: str
    segments: tuple[Segment, ...]
    answer: str
    expected: tuple[str, ...]
    rewards: tuple[RewardTerm, ...]
    stop: StopReason
    memory_snapshot: str
    policy_version: int
    shown: tuple[Shown, ...] = ()
    decisions: tuple[Decision, ...] = ()
    operations: tuple[MemoryEvent, ...] = ()
    errors: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    parent: str = ""
    exchanges: tuple[Exchange, ...] = ()
    variation: str = ""
    origin: str = ""

    @property
    def reward(self) -> float:
        return combined(self.rewards)

    def reward_of(self, role: str) -> float:
        """The weighted sum of the terms that reward this role: its own, and those of no role in particular."""
        return combined(tuple(term for term in self.rewards if term.role in ("", role)))

    @property
    def metric(self) -> float:
        return metric(self.rewards)


@dataclass(frozen=True, slots=True)
class Group:
    """Episodes of one task that start from the same memory snapshot and share a baseline."""

    task: str
    memory_snapshot: str
    episodes: tuple[Episode, ...]

    def __post_init__(self) -> None:
        for episode in self.episodes:
            if episode.task != self.task or episode.memory_snapshot != self.memory_snapshot:
                raise ValueError(
                    f"group of task {self.task!r} at snapshot {self.memory_snapshot!r} was given episode "
                    f"{episode.id!r} of task {episode.task!r} at snapshot {episode.memory_snapshot!r}"
                )


# Episode to JSON and back: one form for run folders, exports and the viewer.
#
# The form is the record itself: fields by their names, enumerations by their values, tuples as lists. Numbers survive
# exactly (JSON writes the shortest decimal that reads back as the same double; infinities and NaN are kept as Python
# writes them). Unknown fields are refused, so a file of a later version is never read with something silently lost.


Json = dict[str, Any]


def episode_to_json(episode: Episode) -> Json:
    """A mapping of plain JSON values, fields in the order of the record."""
    encoded = _plain(episode)
    assert isinstance(encoded, dict)
    return encoded


def episode_from_json(record: Mapping[str, Any]) -> Episode:
    """The inverse of `episode_to_json`. Raises KeepworthError, naming the field, on anything else."""
    identity = record.get("id", "?")
    try:
        episode: Episode = _read(Episode, record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise KeepworthError(
            f"Record {identity!r} is not an episode of this version: {type(error).__name__}: {error}.",
            "Read it with the version of keepworth that wrote it, or write it again.",
        ) from error
    return episode


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value


@cache
def _hints(record: type) -> dict[str, Any]:
    return get_type_hints(record)


def _read(hint: Any, value: Any) -> Any:
    """The inverse of `_plain`, by the type that a field has."""
    if is_dataclass(hint):
        hints = _hints(hint)  # type: ignore[arg-type]
        if unknown := sorted(set(value) - set(hints)):
            raise ValueError(f"unknown field {unknown[0]!r}")
        return hint(**{name: _read(hints[name], part) for name, part in value.items()})  # type: ignore[operator]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if parts in ((int, ...), (float, ...), (str, ...)):
            return tuple(value)
        return tuple(_read(parts[0] if parts[-1] is ... else parts[index], part) for index, part in enumerate(value))
    return value
