"""Records: tasks, what agents saw and did, their rewards, and all of it as one episode.

Only an `Episode` is stored, viewed, replayed and trained on. Read from the top: each type uses those above it. The last part
converts an episode to JSON and back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from keepworth.base.errors import KeepworthError
from keepworth.records.model import FinishReason, Grammar, Sample, Tokens, VersionSpan


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance of a conversation. `evidence` is part of the hidden key: no agent may read it. `date` is ISO 8601, where it
    is not the date of its session."""

    speaker: str
    text: str
    index: int
    evidence: bool = False
    date: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A dated part of a conversation. `date` is ISO 8601 (`2023-05-20T02:21`), to the minute."""

    id: str
    date: str
    turns: tuple[Turn, ...]

    def date_of(self, turn: Turn) -> str:
        return turn.date or self.date


@dataclass(frozen=True, slots=True)
class Task:
    """A task, which is immutable and serialisable.

    Attributes:
        key: Stable across machines and versions (`longmemeval/<question id>`).
        source: The data set it came from, with its variant (`longmemeval-oracle+50`).
        input: The question to the agent.
        answers: Hidden; any one of them counts as right.
        verifier: The name of the function in `keepworth.worlds` that scores an answer against `answers`.
        sessions: The haystack, in order of date.
        evidence: Hidden: ids of the sessions that hold the answer.
        tags: Labels for reporting (`type`, `split`, ...), never shown to an agent.
        options: The choices, where the answer is one of several; the answers are among them.
        row: Hidden: the user's row that the task was read from, for the user's reward.
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
    """A tool as an agent sees it: its name, the name of its argument, and what it does, in one sentence. `parameters` is the JSON
    schema of its arguments, where it takes other than one text; it is then called with a JSON object."""

    name: str
    argument: str
    does: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """What an agent sees.

    Attributes:
        text: The current text (a question, a tool's result, the next section of a document).
        question: The question to answer in the end, where `text` is not it.
        tools: The available tools, in the first observation only.
        answer_due: False where the agent is only to read.
        actions: All possible actions, where they can be listed.
        named: Actions that `text` names, where they have to be remembered.
        state: A key of the environment's state, equal for equal states and without step counters or times, for objectives that
            compare turns taken from one state ("": not comparable).
        messages: Where the text is the last of several messages of a conversation, all new ones, each with a role and a content.
    """

    text: str
    question: str = ""
    tools: tuple[ToolDescription, ...] = ()
    answer_due: bool = True
    actions: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    state: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()


class OperationKind(str, Enum):
    """Kinds of operations. UPDATE rewords the same fact (new revision, same id); SUPERSEDE closes a fact that changed and links
    its successor."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    SUPERSEDE = "SUPERSEDE"
    DELETE = "DELETE"
    NOOP = "NOOP"
    MERGE = "MERGE"
    LINK = "LINK"


class ParseStatus(str, Enum):
    """How a model's text was parsed as an operation. INVALID changes nothing and is counted."""

    OK = "ok"
    REPAIRED = "repaired"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on memory. `targets` are ids of the items it acts on, as the bank knows them; `text` is the new wording, if
    any."""

    kind: OperationKind
    targets: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class StatedFact(Operation):
    """An operation with a fact that somebody stated. `turn` is the index of the message that states it, -1 where it is not known;
    `speaker` the role of its author; `day` the date of the event in ISO 8601, where the text gives it, and `said_at` when it was
    said, where the message tells it."""

    turn: int = -1
    speaker: str = ""
    day: str = ""
    said_at: str = ""


class DecisionKind(str, Enum):
    SEARCH = "search"
    WRITE = "write"
    NOOP = "noop"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Decision:
    """A recorded choice.

    Attributes:
        candidates: Item ids with their retrieval scores, best first.
        chosen: Ids shown, in order.
        propensity: Probability of the ordered choice under `policy` at its version (1.0 where deterministic).
    """

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
    """A term of a reward: `value` times `weight` enters the sum; a weight of 0 logs the term without training on it.

    Attributes:
        scorer: The reader or judge, with its version, that produced it ("" for a plain function).
        segment: The index of the segment that earned it (scope "segment" only).
        shaping: Whether it rewards how the task is done (format, length, cost, novelty) and not whether it was done.
        role: The one role that it rewards, where an episode has several ("": all of them).
    """

    name: str
    value: float
    weight: float = 1.0
    scope: RewardScope = RewardScope.EPISODE
    scorer: str = ""
    segment: int | None = None
    shaping: bool = False
    role: str = ""


def combine_terms(terms: tuple[RewardTerm, ...]) -> float:
    """Returns the reward of an episode: the weighted sum of its terms."""
    return sum(term.value * term.weight for term in terms)


def is_silent(terms: tuple[RewardTerm, ...], name: str) -> bool:
    """Whether the episode has reward terms, but none of this name."""
    return bool(terms) and all(term.name != name for term in terms)


def metric(terms: tuple[RewardTerm, ...]) -> float:
    """Returns how well the task itself was done, before shaping, for filters, curricula and teachers.

    It is the weighted sum of the terms of the whole episode that are not shaping. Where all of these have weight 0, it is their
    sum; where there are none, the reward."""
    unshaped = [term for term in terms if term.scope is RewardScope.EPISODE and not term.shaping]
    trained = [term.value * term.weight for term in unshaped if term.weight]
    if trained:
        return sum(trained)
    return sum(term.value for term in unshaped) if unshaped else combine_terms(terms)


LARGEST_REWARD = 1e12
"""The largest reward, times its weight. Means and squares of larger ones are no numbers any more, in the precision of a GPU."""


def check_terms(terms: Iterable[RewardTerm]) -> tuple[RewardTerm, ...]:
    """Returns the terms of one episode with values and weights as Python floats, whatever scalars user code gave. Raises
    ValueError, naming the term, where one is not a finite number, or is larger than `LARGEST_REWARD`."""
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
        if not max(abs(value), abs(value * weight)) <= LARGEST_REWARD:
            raise ValueError(
                f"the reward {term.name!r}, which is {value:g} with the weight {weight:g}, beyond {LARGEST_REWARD:g}"
            )
        whole.append(replace(term, value=value, weight=weight))
    return tuple(whole)


def finite_number(value: object) -> float:
    """Converts `value` to a float, from a Python, NumPy or torch scalar, which users' reward functions return. Raises ValueError,
    which describes the value, for anything but one finite number."""
    if value is None or isinstance(value, str | bytes | bytearray):
        raise ValueError(f"{value!r:.60}, not a number")
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


@dataclass(frozen=True, slots=True)
class Segment:
    """One call of the model.

    Attributes:
        context: The ids the model saw.
        ids: The ids it drew (never decoded and re-encoded).
        logprobs: Log-probabilities under the policy that drew them, at `temperature`; () where they are not known (the learner
            then scores them with its weights before the update).
        text: The text, for people.
        memory_before, memory_after: Content hashes of the bank.
        state: A key of the environment's state before acting, as in `Observation`.
        grammar: What it was allowed to say, from which the learner makes the distributions again that its ids were drawn from;
            None where it was free.
        seconds: The time that the action it is part of took in the environment, None where it was not measured. Equal segments
            may differ in it.
    """

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
    grammar: Grammar | None = None
    seconds: float | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls, sample: Sample, role: str, prompt_id: str, context: Tokens, text: str, temperature: float, **rest: Any
    ) -> Segment:
        """Returns the call that drew a sample.

        Args:
            sample: What the engine drew: its ids, their log-probabilities, why it ended, and the versions of the weights.
            role: The name of the role that called the model.
            prompt_id: The name and the version of the wording of the prompt, such as "chat/v1-0a1b2c3d".
            context: The ids that the model was given.
            text: The sample's ids, decoded.
            temperature: The temperature that it was drawn at.
            rest: Further fields of the segment.
        """
        ids, logprobs, finish, spans = sample.ids, sample.logprobs, sample.finish, sample.spans
        return cls(role, prompt_id, context, ids, logprobs, temperature, finish, spans, text, **rest)


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
"""Ends of episodes that do not depend on the policy."""


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """An operation that an agent asked for, its parse status, and the bank's reply ("applied", "no-op: ...")."""

    operation: Operation
    status: ParseStatus
    outcome: str


@dataclass(frozen=True, slots=True)
class Shown:
    """An item as the model saw it, for people: id, retrieval score, text."""

    item: str
    score: float
    text: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """What an agent saw and did, where no model call drew the action."""

    seen: str
    done: str


@dataclass(frozen=True, slots=True)
class Episode:
    """One attempt at a task.

    Attributes:
        source: The data set of its task (`Task.source`), for statistics per kind of task.
        parent: For a re-roll, the id of the episode from whose middle it starts.
        variation: The name of the `Variation` under which it was played, "" for none.
        origin: The name of the `Source` that it comes from, "" where it was sampled for the update.
        signals: Outcomes that the tools of a program told, in order: names in the table `keepworth.memory.signals`.
    """

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
    signals: tuple[str, ...] = ()

    @property
    def reward(self) -> float:
        return combine_terms(self.rewards)

    def reward_of(self, role: str) -> float:
        """Returns the weighted sum of the terms that reward this role: its own, and those of all roles."""
        return combine_terms(tuple(term for term in self.rewards if term.role in ("", role)))

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


# Episode to JSON and back: one format for run folders, exports and the viewer.
#
# The form is the record itself: fields by their names, enumerations by their values, tuples as lists. Numbers survive
# exactly (JSON writes the shortest decimal that reads back as the same double; infinities and NaN are kept as Python
# writes them). Unknown fields are refused, so that reading a file of a later version never silently loses data.


Json = dict[str, Any]


def episode_to_json(episode: Episode) -> Json:
    """Converts an episode to a mapping of plain JSON values, with fields in the order of the record."""
    converted: Json = json.loads(json.dumps(episode, ensure_ascii=False, default=fields_of))
    return converted


def episode_from_json(record: Mapping[str, Any]) -> Episode:
    """Converts a mapping of `episode_to_json` back to an episode. Raises KeepworthError, naming the field, on anything else."""
    identity = record.get("id", "?")
    try:
        episode: Episode = _read(Episode, record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise KeepworthError(
            f"Record {identity!r} is not an episode of this version: {type(error).__name__}: {error}.",
            "Read it with the version of keepworth that wrote it, or write it again.",
        ) from error
    return episode


def make_failed_episode(task: Task, id: str, stop: StopReason, why: str) -> Episode:
    """Makes an episode without segments.

    Args:
        task: What it was about. Its question and its expected answers are kept.
        id: The id of the episode.
        stop: The reason why it ended.
        why: The sentence that becomes its only error.
    """
    return Episode(
        id=id,
        task=task.key,
        role="",
        question=task.input,
        segments=(),
        answer="",
        expected=task.answers,
        rewards=(),
        stop=stop,
        memory_snapshot="",
        policy_version=0,
        errors=(why,),
    )


def fields_of(record: Any) -> Json:
    """Returns the fields of a record by name, as JSON is written from them."""
    return {part.name: getattr(record, part.name) for part in fields(record)}


@cache
def _hints(record: type) -> dict[str, Any]:
    return get_type_hints(record)


def _read(hint: Any, value: Any) -> Any:
    """Reverses `episode_to_json`, by the type of the field."""
    if isinstance(hint, UnionType):
        if value is None:
            return None
        hint = next(kind for kind in get_args(hint) if kind is not NoneType)
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
