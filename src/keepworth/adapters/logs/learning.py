"""Learns from the sessions of logs: each turn is an episode, what the user stated is kept by the memory's writer, what was done
is a case with how it ended, and outcomes reward what a memory showed, where the log says which search that was.

How a turn ended follows from the table of signals (`keepworth.memory.signals`) and from scores in the log. A turn has an id that
follows from the log, and how much of it was read is kept in the file: what was learned once is not learned again, and a turn
that went on since is only brought up to date.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from keepworth.adapters.logs.session import LogOutcome, LogSession, LogStep, LogTurn
from keepworth.memory.changing import ItemOptions
from keepworth.memory.errors import InvalidScope, MemoryProblem, UnknownEpisode
from keepworth.memory.evaluations import grade, is_first
from keepworth.memory.item import ItemKind, Provenance, Scope, checked_name, with_zone
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Draft
from keepworth.memory.signals import Signal, find_signal, last_of_families, read_reply, read_tool, sum_up, tell_mended
from keepworth.memory.speech import clean
from keepworth.memory.store import episode_log, notes
from keepworth.memory.store.connection import AMONG, among, select
from keepworth.records.episode import Operation, OperationKind

SOURCE = "log:"
"""How the source of what a log taught begins; its file follows, and for a score "#" and its name."""
BATCH = 256
"""How many turns are learned from together: their texts are encoded as one batch."""
STEPS_SHOWN, LONGEST_TASK, LONGEST_STEP = 10, 600, 160
"""The most steps in the text of a case, and the most characters of its task and of a step."""
NEAR = timedelta(hours=1)
"""How far from the time of a turn in a log the episode may have begun that a hook recorded for it."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended: its signals, each with the number of steps before it, and the scores that the log gives it."""

    signals: tuple[tuple[int, Signal], ...]
    scores: tuple[LogOutcome, ...]

    def value(self, low: float, high: float) -> float | None:
        """Return the outcome from 0 to 1: that of the scores that are rewards, else what the last signal of each family says, by
        their weights; None if nothing says it."""
        grades = [grade(score.value, score.label, low, high) for score in self.scores]
        if numbers := [number for number in grades if number is not None]:
            return (sum(numbers) / len(numbers) - low) / ((high - low) or 1.0)
        return sum_up(signal for _, signal in self.signals)


def read_end(session: LogSession, index: int, allowed: Iterable[str]) -> TurnEnd:
    """Read how a turn of a session ended.

    Args:
        session: Its next turn and its scores say more of the end.
        index: Which turn.
        allowed: The signals that may count.
    """
    turn, seen = session.turns[index], list[tuple[int, Signal]]()
    for number, step in enumerate(turn.steps):
        if step.failed is None:
            continue
        name = read_tool(step.command, failed=step.failed, output=step.output)
        name = tell_mended(name, [signal.name for _, signal in seen])
        if name:
            seen.append((number, find_signal(name)))
    closing = ["interrupt"] * turn.interrupted + ["revert"] * turn.taken_back
    closing += [read_reply(turn.reply, turn.asked, turn.answer)] if turn.reply else []
    seen += [(len(turn.steps), find_signal(name)) for name in closing if name]
    last = index == len(session.turns) - 1
    scores = [score for score in session.outcomes if score.turn == index or (score.turn < 0 and last)]
    names = set(allowed)
    return TurnEnd(tuple((number, signal) for number, signal in seen if signal.name in names), tuple(scores))


def case_text(turn: LogTurn, end: TurnEnd, value: float | None) -> str:
    """Return a turn as a case: what was asked, what was done, and how it ended; "" if nothing was done and it has no score.

    Args:
        turn: Its steps and its answer become lines.
        end: Its signals and scores.
        value: Its outcome from 0 to 1, as `TurnEnd.value` returns it.
    """
    if not turn.steps and not end.scores:
        return ""
    lines = [f"Task: {_short(turn.asked, LONGEST_TASK)}"]
    if turn.steps:
        lines.append(f"Done: {'; '.join(_worded_steps(turn.steps))}")
    if turn.answer:
        lines.append(f"Answer: {_short(turn.answer, LONGEST_TASK)}")
    reasons = [signal.about for signal in last_of_families(signal for _, signal in end.signals)]
    reasons += [
        f"{score.name}: {score.value[:80]}" if isinstance(score.value, str) else f"{score.name} {score.value:g}"
        for score in end.scores
    ]
    how = (
        "not known"
        if value is None
        else "well"
        if value >= 0.6
        else "badly"
        if value <= 0.4
        else "neither well nor badly"
    )
    lines.append(f"Ended: {how}{' (' if reasons else ''}{'; '.join(reasons)}{')' if reasons else ''}.")
    return "\n".join(lines)


def _worded_steps(steps: Sequence[LogStep]) -> list[str]:
    """Return steps in words: of many the first and the last, and what was done twice in a row once."""
    listed = list[str]()
    for step in steps:
        shell = bool(step.command) or not step.tool
        words = _short(step.done if shell else f"{step.tool} {step.done}".strip(), LONGEST_STEP)
        words += " (failed)" if step.failed else ""
        if not listed or listed[-1] != words:
            listed.append(words)
    half = STEPS_SHOWN // 2
    return listed if len(listed) <= STEPS_SHOWN else [*listed[:half], "...", *listed[-half:]]


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 4]} ..."


@dataclass(slots=True)
class TurnNames:
    """Names each turn of a log, so that the same turn has the same name whenever and in whatever file it is read."""

    file: str = ""
    copies: Counter[str] = field(default_factory=Counter)

    def name(self, session: LogSession, index: int) -> str:
        """Return the id of the episode of a turn."""
        turn = session.turns[index]
        if turn.key:
            return _digest("e", session.format, turn.key)
        if session.id:
            return _digest("e", session.format, session.id, session.before + index, turn.asked)
        if session.file != self.file:
            self.file, self.copies = session.file, Counter()
        same = _digest("", session.format, turn.asked, turn.time, [step.done for step in turn.steps], turn.answer)
        self.copies[same] += 1
        return _digest("e", same, self.copies[same])


def _digest(kind: str, *parts: Any) -> str:
    return kind + hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(slots=True)
class LogLearned:
    """What was learned, or would be: turns that are new, that went on since, and that were learned from before; cases and facts
    that were written; messages that the writer read; scores that became rewards of their episodes, rewards of what was shown, and
    scores that are texts or outside the range of rewards, by name."""

    new: int = 0
    longer: int = 0
    repeated: int = 0
    cases: int = 0
    messages: int = 0
    facts: int = 0
    shown: int = 0
    scores: Counter[str] = field(default_factory=Counter)
    rewards: Counter[str] = field(default_factory=Counter)
    unusable: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Turn:
    """A turn with what is to be done about it."""

    session: LogSession
    turn: LogTurn
    id: str
    end: TurnEnd
    size: int
    before: str = ""
    spoken: str = ""


class LogLearner:
    """Learns from sessions.

    Args:
        memory: Its writer, if it has one, reads what users said.
        user: Whose sessions they are; "" for whom the log names.
        dry: Only count what would be learned.
    """

    def __init__(self, memory: Memory, *, user: str = "", dry: bool = False) -> None:
        self.memory, self.user, self.dry = memory, user, dry
        self.learned = LogLearned()
        self._names, self._sizes = TurnNames(), dict[str, int]()
        learning = memory.learning
        self._range = (0.0, 1.0) if learning is None else learning.reward_range
        self._recorded: dict[str, list[tuple[str, str]]] = {}
        with memory.store.database.reading() as connection:
            for id, task, began in episode_log.tasks_of_others(connection):
                self._recorded.setdefault(_digest("", task), []).append((id, began))

    def learn(self, sessions: Iterable[LogSession]) -> Iterator[int]:
        """Learn from sessions, and yield the number of turns after each batch."""
        batch = list[_Turn]()
        for session in sessions:
            batch += self._turns_of(session)
            if len(batch) >= BATCH:
                yield self._learn_batch(batch)
                batch = []
        if batch:
            yield self._learn_batch(batch)

    def _turns_of(self, session: LogSession) -> Iterator[_Turn]:
        for index, turn in enumerate(session.turns):
            id = self._names.name(session, index)
            end = read_end(session, index, self.memory.signals)
            parts = (turn.answer, turn.reply, turn.interrupted, *turn.steps, *turn.receipts, *end.scores)
            size = 1 + sum(map(bool, parts)) + sum(step.failed is not None for step in turn.steps)
            before = session.turns[index - 1].answer if index else ""
            yield _Turn(session, turn, id, end, size, before, self._said(turn.asked))

    def _said(self, text: str) -> str:
        """Return what was said without lines that hold a secret."""
        if self.memory.store.scan is None or self.memory.store.scan.redacted(text) == text:
            return text
        return "\n".join(line for line in text.splitlines() if self.memory.store.scan.redacted(line) == line).strip()

    def _learn_batch(self, batch: list[_Turn]) -> int:
        ids = [entry.id for entry in batch]
        with self.memory.store.database.reading() as connection:
            query = f"SELECT id FROM episodes WHERE id {AMONG} AND outcome = 'erased'"
            erased = {id for (id,) in select(connection, query, (among(ids),))}
            self._sizes = {**notes.bodies(connection, notes.LEARNED, ids), **self._sizes}
        fresh = [entry for entry in batch if entry.id not in erased and self._sizes.get(entry.id, 0) < entry.size]
        if not self.dry:  # all texts in one batch; what is written then has its vector already
            self.memory.store.encode([self._key(entry) for entry in fresh if entry.turn.steps or entry.end.scores])
        for entry in fresh:
            before = self._sizes.get(entry.id, 0)
            if entry.size <= before:  # the same turn stands in the batch twice
                continue
            self._sizes[entry.id] = entry.size
            try:
                self._learn_turn(entry, before > 0)
            except MemoryProblem as problem:
                self.learned.problems.append(f"{entry.session.file}: {problem}")
        self.learned.repeated = len(self._sizes) - self.learned.new
        return len(batch)

    def _learn_turn(self, entry: _Turn, again: bool) -> None:
        session, turn = entry.session, entry.turn
        entry = self._ask_model(entry)
        self.learned.longer += again
        self.learned.new += not again
        scope = self._scope(session)
        began = turn.time or session.started or session.ended
        if not self.dry:
            task = self.memory._unsaid(clean(turn.asked))
            began = began or self.memory.store.clock()
            episode_log.record(self.memory.store, scope, entry.id, task, scope.user, began, session.ended or began)
        hooked = bool(self._recorded_as(entry))  # a hook has kept what was said
        if not (again or hooked) and self.memory.writer is not None and entry.spoken:
            self._write_facts(entry, scope)
        self._write_case(entry, scope, again)
        self._reward(entry, scope)
        if not self.dry:
            notes.keep_learned(self.memory.store, entry.id, entry.size)

    def _ask_model(self, entry: _Turn) -> _Turn:
        """Return a turn with what the memory's model says of the user's next message, if the rules do not tell."""
        turn, seen, model = entry.turn, entry.end.signals, self.memory.model_signals
        if self.dry or model is None or not turn.reply:
            return entry
        if any(signal.family == "reply" and signal.weight > 0.0 for _, signal in seen):
            return entry
        texts = [self.memory._unsaid(clean(text)) for text in (turn.reply, turn.asked, turn.answer)]
        name = model.read(self.memory.store, *texts)
        if name not in self.memory.signals:
            return entry
        return replace(entry, end=replace(entry.end, signals=(*seen, (len(turn.steps), find_signal(name)))))

    def _scope(self, session: LogSession) -> Scope:
        """Return the scope of a session: its user, and its project as the agent."""
        names = {"user": self.user or session.person, "agent": session.folder}
        usable = {part: name for part, name in names.items() if name and _is_name(name)}
        return self.memory.scope.narrowed(**usable)

    def _write_facts(self, entry: _Turn, scope: Scope) -> None:
        self.learned.messages += 1
        if self.dry:
            return
        asked = {"role": "user", "content": entry.spoken}
        if entry.turn.time:
            asked["said_at"] = with_zone(entry.turn.time)
        before = [{"role": "assistant", "content": entry.before}] if entry.before else []
        options = ItemOptions(source=SOURCE + entry.session.file, episode=entry.id)
        if scope.user:
            options["user_id"] = scope.user
        if scope.agent:
            options["agent_id"] = scope.agent
        facts = self.memory.add([*before, asked], infer=True, **options)
        self.learned.facts += len(facts)

    def _key(self, entry: _Turn) -> str:
        return self.memory._unsaid(clean(_short(entry.turn.asked, LONGEST_TASK)))

    def _write_case(self, entry: _Turn, scope: Scope, again: bool) -> None:
        value = entry.end.value(*self._range)
        text = clean(case_text(entry.turn, entry.end, value))
        if not text:
            return
        self.learned.cases += 1
        if self.dry:
            return
        text, session = self.memory._unsaid(text), entry.session
        metadata: dict[str, Any] = {"log": session.format, "turn": entry.id, "steps": len(entry.turn.steps)}
        metadata |= {"session": session.id} if session.id else {}
        metadata |= {} if value is None else {"outcome": round(value, 3)}
        if again and (there := self.memory.get_all(where={"turn": entry.id}, limit=1)):
            self.memory.update(there[0].id, text, metadata=metadata)
            return
        draft = Draft(
            kind=ItemKind.CASE,
            key=self._key(entry),
            scope=scope,
            event_time=entry.turn.time,
            provenance=Provenance(SOURCE + session.file, session=session.id[:500], date=entry.turn.time),
            metadata=metadata,
        )
        act = Operation(OperationKind.ADD, text=text)
        vectors = self.memory.store.encode([draft.key])
        self.memory.store.perform(scope, [(act, draft)], episode=entry.id, vectors=vectors)

    def _reward(self, entry: _Turn, scope: Scope) -> None:
        """Give the scores to the episode, and scores and signals to what a memory showed in the turn."""
        low, high = self._range
        shown = self._shown_in(entry)
        self.learned.shown += len(shown)
        for score in entry.end.scores:
            name, value = score.name, grade(score.value, score.label, low, high)
            if value is None:
                self.learned.unusable[name] += 1
                continue
            source = f"{SOURCE}{entry.session.file}#{name[:80]}"
            self.learned.scores[name] += 1
            if not self.dry:
                self.memory.reward(entry.id, value, by="", source=source)
            if not score.key or is_first(self.memory, score.key, dry=self.dry):  # else a server received it
                for decision, _ in shown:
                    self._give(decision, value, "", source, name)
        for place, (decision, start) in enumerate(shown):
            until = shown[place + 1][1] if place + 1 < len(shown) else len(entry.turn.steps)
            about = [
                (number, signal)
                for number, signal in entry.end.signals
                if number >= start and (signal.of != "search" or number < until)
            ]
            for signal in last_of_families(signal for _, signal in about):
                if signal.weight > 0.0:
                    self._give(decision, low + signal.value * (high - low), scope.user, signal.source, signal.source)

    def _give(self, target: str, value: float, by: str, source: str, name: str) -> None:
        if self.dry:
            self.learned.rewards[name] += 1
            return
        with suppress(UnknownEpisode):  # a search of somebody else's
            self.learned.rewards[name] += self.memory.reward(target, value, by=by, source=source).applied

    def _recorded_as(self, entry: _Turn) -> list[str]:
        """Return the episodes that hooks recorded for a turn: those with its words as their task, begun near its time."""
        there = self._recorded.get(_digest("", entry.turn.asked), []) if entry.turn.time else []
        if not there:
            return []
        at = datetime.fromisoformat(entry.turn.time)
        return [id for id, began in there if id != entry.id and abs(datetime.fromisoformat(began) - at) <= NEAR]

    def _shown_in(self, entry: _Turn) -> list[tuple[str, int]]:
        """Return the searches of this memory that a turn names, each with the number of steps before it. Those whose outcome a
        hook has sent already are left out."""
        starts = dict(entry.turn.receipts)
        ids = [id for id in starts if id != entry.id]
        ids += self._recorded_as(entry) if entry.session.marked else []
        if not ids:
            return []
        with self.memory.store.database.reading() as connection:
            listed = episode_log.shown_under(connection, ids)
            sent = {
                decision
                for episode in {episode for _, episode in listed if episode}
                for decision, _ in episode_log.signals_in(connection, episode)[1]
            }
        places = [(decision, starts.get(decision, starts.get(episode, 0))) for decision, episode in listed]
        return sorted(
            ((decision, start) for decision, start in places if decision not in sent), key=lambda pair: pair[1]
        )


def _is_name(name: str) -> bool:
    try:
        return bool(checked_name(name, "a name"))
    except InvalidScope:
        return False
