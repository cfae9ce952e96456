"""Evaluations by way of OpenTelemetry: what an evaluator says of an answer becomes the reward of what a memory showed for it.

An evaluation is the event `gen_ai.evaluation.result` of the GenAI conventions, in a span or as a record of a log. It names a
search or an episode (`keepworth.decision`, `keepworth.episode`), else an answer that went through the gateway, or else the trace
that it stands in or is linked to. Its rewards have a source for each evaluator ("evaluation:NAME"), by which they can be taken
back. The server and the reader of logs read requests of OTLP with this module.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from keepworth.memory.errors import ClosedEpisode, UnknownEpisode
from keepworth.memory.item import EVALUATION, Scope
from keepworth.memory.store import episode_log, notes, traces
from keepworth.memory.store.connection import AnyConnection

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory

EVENT = "gen_ai.evaluation.result"
DECISION, EPISODE = "keepworth.decision", "keepworth.episode"
"""Attributes of spans and evaluations: the search, and the episode, that they are about."""
LABELS = {
    **dict.fromkeys(("pass", "passed", "correct", "relevant"), True),
    **dict.fromkeys(("fail", "failed", "incorrect", "not_relevant", "irrelevant"), False),
}
"""Whether a label speaks for the answer: those of the conventions, and other forms of them."""
LONGEST_NAME = 80
"""The most characters of an evaluator's name that are kept."""


# -- what is sent -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A result of an evaluator.

    Args:
        name: That of the evaluator, or of what it judges.
        value: Its score; None if there is none that is a number.
        label: What it says in a word; "" for nothing.
        time: In nanoseconds since 1970, as it was sent; "" if that is not known.
        places: (trace, span) where it stands, and those that its span is linked to; the span may be "".
        response: The id of the answer that was evaluated; "" if it is not named.
        targets: Ids of the search and the episode that it names.
        failed: Whether the evaluation itself failed, and says nothing.
    """

    name: str
    value: float | None
    label: str = ""
    time: str = ""
    places: tuple[tuple[str, str], ...] = ()
    response: str = ""
    targets: tuple[str, ...] = ()
    failed: bool = False

    @property
    def source(self) -> str:
        """The source of its rewards."""
        shown = "".join(sign if sign.isprintable() and sign != ":" else "." for sign in self.name[:LONGEST_NAME])
        return EVALUATION + (shown.strip() or "unnamed")

    @property
    def key(self) -> str:
        """What the same event has, whichever way it comes."""
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()[:32]


def attributes_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span, an event or a record of a log as plain values."""
    out = dict[str, Any]()
    for pair in entry.get("attributes") or ():
        value = pair.get("value") if isinstance(pair, dict) else None
        if isinstance(value, dict) and value:
            kind, plain = next(iter(value.items()))
            out[str(pair.get("key"))] = int(plain) if kind == "intValue" and str(plain).lstrip("-").isdigit() else plain
    return out


def spans_in(request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the spans in a request of OTLP."""
    for resource in request.get("resourceSpans") or ():
        for scope in resource.get("scopeSpans") or ():
            yield from scope.get("spans") or ()


def hex_id(id: object) -> str:
    """Return the id of a trace or a span in hexadecimal digits, which OTLP has in JSON, also where it is in base64, as protobuf
    writes bytes in JSON; "" if there is none."""
    text = str(id or "")
    if len(text) not in (12, 24):
        return text.lower()
    try:
        return base64.b64decode(text, validate=True).hex()
    except (binascii.Error, ValueError):
        return text.lower()


def named_in(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids of the search and the episode that attributes name."""
    return tuple(str(attributes[name]) for name in (DECISION, EPISODE) if attributes.get(name))


def evaluations_in(request: Mapping[str, Any]) -> Iterator[Evaluation]:
    """Yield the evaluations in a request of OTLP: events of its spans, and records of its logs."""
    for span in spans_in(request):
        around, places = attributes_of(span), [_place(span), *map(_place, span.get("links") or ())]
        for event in span.get("events") or ():
            if event.get("name") == EVENT:
                yield _evaluation(attributes_of(event), around, event, places)
    for resource in request.get("resourceLogs") or ():
        for scope in resource.get("scopeLogs") or ():
            for record in scope.get("logRecords") or ():
                attributes = attributes_of(record)
                if EVENT in (record.get("eventName"), attributes.get("event.name")):
                    yield _evaluation(attributes, {}, record, [_place(record)])


def _place(entry: Mapping[str, Any]) -> tuple[str, str]:
    return hex_id(entry.get("traceId")), hex_id(entry.get("spanId"))


def _evaluation(
    attributes: Mapping[str, Any],
    around: Mapping[str, Any],
    event: Mapping[str, Any],
    places: Sequence[tuple[str, str]],
) -> Evaluation:
    return Evaluation(
        str(attributes.get("gen_ai.evaluation.name") or ""),
        _number(attributes.get("gen_ai.evaluation.score.value")),
        str(attributes.get("gen_ai.evaluation.score.label") or ""),
        str(event.get("timeUnixNano") or ""),
        tuple(place for place in places if place[0].strip("0")),
        str(attributes.get("gen_ai.response.id") or around.get("gen_ai.response.id") or ""),
        named_in(attributes) or named_in(around),
        "error.type" in attributes,
    )


def _number(value: object) -> float | None:
    """Return a score, which some write as a text; None if it is no number."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def grade(value: float | str | None, label: str, low: float, high: float) -> float | None:
    """Return the reward that a score is; None if it is none.

    No event says what a score means: its range, and which end is good. So one within the range of rewards counts as it is, unless
    a label speaks for the other half of the range. Then, and where there is no such score, the label decides: the answer was as
    good or as bad as can be.

    Args:
        value: The score, or a label in its place.
        label: What the evaluator says in a word; "" for nothing.
        low: The lowest reward.
        high: The highest reward.
    """
    number = None if isinstance(value, str) or value is None or not low <= value <= high else float(value)
    good = LABELS.get((label or (value if isinstance(value, str) else "")).strip().casefold())
    if good is None:
        return number
    if number is not None and (number >= (low + high) / 2.0 if good else number <= (low + high) / 2.0):
        return number
    return high if good else low


# -- what it is the reward of -----------------------------------------------------------------------------------------

COUNTS = ("rewarded", "repeated", "unknown", "unusable")
"""What becomes of an evaluation: it was a reward, it came before, it names nothing here, or it has no score that is a reward."""


@dataclass(slots=True)
class EvaluationCounts:
    """What became of evaluations, by the name of their evaluator, and for those that became no reward, the reasons."""

    rewarded: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    unusable: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def count(self, evaluation: Evaluation, what: str, reason: str = "") -> None:
        """Count an evaluation.

        Args:
            evaluation: What an evaluator said.
            what: What became of it, one of `COUNTS`.
            reason: Why nothing became of it; "" for no reason.
        """
        getattr(self, what)[evaluation.source.removeprefix(EVALUATION)] += 1
        if reason:
            self.reasons[reason] += 1

    @property
    def refused(self) -> int:
        """How many became no reward, and did not come before."""
        return self.unknown.total() + self.unusable.total()


def join_spans(memory: Memory, request: Mapping[str, Any]) -> None:
    """Note the traces of the searches and episodes that the spans of a request name, for evaluations of these traces."""
    listed = dict[str, traces.TraceContext]()
    for span in spans_in(request):
        trace, inner = _place(span)
        if trace and (ids := named_in(attributes_of(span))):
            spans = tuple(filter(None, (inner, hex_id(span.get("parentSpanId")))))
            listed.update(dict.fromkeys(ids, traces.TraceContext(trace, spans)))
    if not listed:
        return
    store = memory.store
    memory.flush()
    with store.database.reading() as connection:
        new = [id for id, trace in listed.items() if traces.trace_of(connection, id) != trace.trace]
    ours = [id for id in new if _is_here(memory, id)]

    def work(connection: AnyConnection) -> None:
        for id in ours:
            traces.join(connection, listed[id], id, store.clock())

    if ours:
        store.database.write(work)


def _is_here(memory: Memory, id: str) -> bool:
    try:
        episode_log.rewarded(memory.store, memory.scopes.changeable, id)
    except UnknownEpisode:
        return False
    return True


def reward_by(memory: Memory, evaluations: Iterable[Evaluation], by: str = "") -> EvaluationCounts:
    """Give evaluations as rewards of what they are about, inside the scope of a memory. One that comes again counts once.

    Args:
        memory: What its scope does not hold is unknown.
        evaluations: In any order; of several by one evaluator about one thing the latest counts.
        by: In whose name they are; "" for the program itself.
    """
    counts, store, digests = EvaluationCounts(), memory.store, dict[str, Evaluation]()
    low, high = (0.0, 1.0) if memory.learning is None else memory.learning.reward_range
    for evaluation in sorted(evaluations, key=lambda evaluation: evaluation.time.zfill(20)):
        digest = _digest(memory.scope, by, evaluation.key)
        if digest in digests:
            counts.count(evaluation, "repeated")
        elif not evaluation.failed:
            digests[digest] = evaluation
    memory.flush()
    with store.database.reading() as connection:
        before = notes.bodies(connection, notes.EVALUATED, list(digests))
        targets = {digest: _targets(connection, evaluation) for digest, evaluation in digests.items()}
    values, rewards = dict[str, float](), dict[tuple[str, str], list[str]]()
    for digest, evaluation in digests.items():
        value = grade(evaluation.value, evaluation.label, low, high)
        if digest in before:
            counts.count(evaluation, "repeated")
        elif value is None:
            counts.count(evaluation, "unusable", _why_unusable(evaluation, low, high))
        else:
            values[digest] = value
            for target in targets[digest]:
                rewards.setdefault((target, evaluation.source), []).append(digest)
    done, closed = set[str](), set[str]()
    for (target, source), about in rewards.items():
        try:
            memory.reward(target, values[about[-1]], by=by, source=source)
            done.update(about)
        except UnknownEpisode:  # it is of somebody else, or was erased
            continue
        except ClosedEpisode:
            closed.update(about)
    for digest in values:
        evaluation = digests[digest]
        if digest in done:
            counts.count(evaluation, "rewarded")
        elif digest in closed:
            counts.count(evaluation, "unusable", "an episode has its final reward already")
        else:
            counts.count(evaluation, "unknown", _why_unknown(evaluation))
    numbers = {what: getattr(counts, what) for what in COUNTS}
    if any(numbers.values()):
        store.database.write(
            lambda connection: notes.keep_evaluations(connection, memory.scope, done, numbers, store.clock())
        )
    return counts


def _targets(connection: AnyConnection, evaluation: Evaluation) -> Sequence[str]:
    """Return the searches and episodes that an evaluation is about. A name that no id can be names nothing."""
    if evaluation.targets:
        return [id for id in evaluation.targets[:1] if id.isalnum()]
    answer = evaluation.response if evaluation.response.isprintable() else ""
    if episode := traces.episode_of_answer(connection, answer):
        return [episode]
    members = (traces.members(connection, trace, span) for trace, span in evaluation.places if trace.isalnum())
    return next(filter(None, members), [])


def is_first(memory: Memory, key: str, *, dry: bool = False) -> bool:
    """Return whether an evaluation has not been given yet by the program itself, and note that it is.

    Args:
        memory: The memory that takes the reward.
        key: What tells the evaluation from all others.
        dry: Whether nothing is noted.
    """
    digest, store = _digest(memory.scope, "", key), memory.store
    with store.database.reading() as connection:
        before = notes.bodies(connection, notes.EVALUATED, [digest])
    if not (before or dry):
        store.database.write(lambda connection: notes.keep_evaluated(connection, [digest], store.clock()))
    return not before


def _digest(scope: Scope, by: str, key: str) -> str:
    return hashlib.sha256(json.dumps([scope.parts(), by, key]).encode()).hexdigest()[:32]


def _why_unusable(evaluation: Evaluation, low: float, high: float) -> str:
    score = f"{evaluation.value:g}" if evaluation.value is not None else repr(evaluation.label[:40])
    if evaluation.value is None and not evaluation.label:
        return f"{evaluation.source.removeprefix(EVALUATION)} has no score"
    return (
        f"{evaluation.source.removeprefix(EVALUATION)} has a score that is no reward from {low:g} to {high:g} ({score})"
    )


def _why_unknown(evaluation: Evaluation) -> str:
    answers = [f"answer {evaluation.response}"] if evaluation.response else []
    named = [*evaluation.targets[:1], *(f"trace {trace}" for trace, _ in evaluation.places), *answers]
    if not named:
        return f"{evaluation.source.removeprefix(EVALUATION)} names no search, no episode, no trace and no answer"
    return f"{named[0][:60]} is nothing in this memory"
