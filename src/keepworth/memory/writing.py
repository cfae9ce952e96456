"""Turns messages into items: the writer of a memory decides what to keep, and its operations are done in one transaction.

If the writer fails, what people said is stored word for word, marked in its metadata ("extraction": "failed").
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

from keepworth import registry
from keepworth.base.errors import KeepworthError
from keepworth.memory.choose.slots import Finished, Writer, written
from keepworth.memory.errors import (
    InvalidAdvice,
    InvalidFilter,
    InvalidText,
    InvalidTime,
    MemoryProblem,
    NothingToWrite,
)
from keepworth.memory.forget_requests import asks_not_to_keep, takes_back
from keepworth.memory.headline import joined_without_blocks, without_blocks
from keepworth.memory.item import LONGEST_TEXT, Item, Scope, new_id, timestamp
from keepworth.memory.operations import Act, Draft, OperationOutcome
from keepworth.memory.overlay import Bank, ChangedMeanwhile, is_kept
from keepworth.memory.speech import clean, spoken_sentences
from keepworth.memory.store.decision_log import Logged
from keepworth.records.episode import Operation, OperationKind, StatedFact

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory

_LOG = logging.getLogger("keepworth.memory")
Message = Mapping[str, Any]
TRIES, TRIES_OF_A_MODEL = 20, 3
"""How often a writer decides at most where others write to the same scope meanwhile; its last decision is carried out."""
MARK = "extraction"
"""The key in the metadata of an item that holds a whole message, because the writer failed at it."""
TIMES_OF_MESSAGES = ("timestamp", "created_at", "create_time", "event_time", "date")
"""Fields by which exports of chats say when a message was sent, beside `said_at`."""
MILLISECONDS = 1e11
"""A number above this is a time in milliseconds, as JavaScript counts it."""
NOT_OF_PEOPLE = ("assistant", "system", "tool", "developer", "function")
"""Roles whose messages are not stored word for word."""


def write(
    memory: Memory, content: str | Sequence[Message], *, writer: Writer | None = None, **options: Any
) -> list[tuple[Item, OperationKind]]:
    """Let a writer turn messages into items, in one transaction. If it fails, store the messages word for word.

    A message in which somebody asks not to keep what it says is left out, whatever the writer is. Returns what became of each
    item (see `_became`). Raises what `Memory.add` raises.

    Args:
        memory: The memory that is written.
        content: A text, or messages.
        writer: The writer; None for that of the memory.
        **options: Those of `Memory.add`.
    """
    messages = [_dated(message) for message in map(_clean, messages_of(content)) if not _is_private(message)]
    writer = memory.writer if writer is None else writer
    if writer is None:
        raise MemoryProblem(
            "infer=True needs something that says what to keep: open the memory with writer=..., such as "
            "Facts(extract), or store the text as it is with infer=False"
        )
    # Asking a model costs money: what would be refused afterwards is refused before.
    memory.store.database.check_writable()
    if options.get("provenances") is not None:
        raise InvalidFilter("provenances has no effect with infer=True: say where it all comes from with source=")
    draft, episode = memory._drafted(cast(Any, {"source": "writer", **options})), options.get("episode", "")
    # Rules read one state of the memory. A model takes long, and no read transaction is held open meanwhile.
    by_rules = getattr(writer, "by_rules", False)
    with contextlib.ExitStack() as turn:
        for left in reversed(range(TRIES if by_rules else TRIES_OF_A_MODEL)):
            try:
                with memory.store.database.reading() if by_rules else contextlib.nullcontext():
                    bank, asked = _asked(memory, writer, messages, draft)
            except WriterFailed as problem:
                _LOG.warning("What was said is kept as it is, because %s", problem)
                return _kept_raw(memory, messages, draft, episode)
            if not asked:
                return []
            try:
                return _carried_out(memory, bank(), asked, draft.scope, episode, as_read=left > 0)
            except ChangedMeanwhile:
                # What was decided may contradict what others wrote just now. Whoever was too late decides again, one at a time.
                turn.enter_context(memory.store.turn)
    raise AssertionError


def _is_private(message: Message) -> bool:
    """Return whether a person asks in a message not to keep what it says. One that takes back what was said before is none."""
    text = message.get("content")
    if str(message.get("role", "user")) in NOT_OF_PEOPLE or not isinstance(text, str):
        return False
    sentences = spoken_sentences(text)
    return asks_not_to_keep(sentences) and not takes_back(sentences)


def load_writer(memory: Memory) -> None:
    """Load the rules, the encoder and the word lists, so that the first note of a process does not wait for them: two statements
    are written to a bank that is thrown away. No chat model is asked."""
    draft = Draft(scope=memory.scope.narrowed(session="loading"))
    messages = [{"role": "user", "content": text} for text in ("I live in Oslo.", "I moved to Bergen.")]
    _asked(memory, registry.part("notes of statements")(), messages, draft)


class WriterFailed(MemoryProblem):
    """A writer raised an error, which the message quotes."""


def _carried_out(
    memory: Memory,
    bank: Bank,
    asked: Sequence[tuple[Operation, OperationOutcome]],
    scope: Scope,
    episode: str,
    *,
    as_read: bool,
) -> list[tuple[Item, OperationKind]]:
    """Carry out on the memory what was done on a bank of it, and return what became of each item. With `as_read`, raises
    ChangedMeanwhile if what the bank was read from has changed."""
    done = list(_done(memory, bank, asked, episode, as_read))
    _log_withdrawals(memory, done, scope)
    became = _became(done)
    items = memory.store.fetch(scope, list(became))
    return [(item, kind) for id, kind in became.items() if (item := items[id]) is not None]


def _log_withdrawals(memory: Memory, done: Sequence[tuple[Operation, OperationOutcome]], scope: Scope) -> None:
    """Log the items that a `Keeper` withdrew, as decisions outside any episode, so that no reward of a search credits them."""
    gone = [
        (operation, outcome.changed[0])
        for operation, outcome in done
        if outcome.applied and hasattr(operation, "decision")
    ]
    if not gone:
        return
    at = memory._clock()
    decisions = [operation.decision(new_id("d"), id) for operation, id in gone]
    memory._decisions.write([Logged(at, scope, "", decision, details) for decision, details in decisions])


def _asked(
    memory: Memory, writer: Writer, messages: Sequence[Message], draft: Draft
) -> tuple[Callable[[], Bank], list[tuple[Operation, OperationOutcome]]]:
    """Carry out on a bank, which is opened when it is first needed, what the writer asks for. Returns a function that gives the
    bank, and the operations with their outcomes there."""
    bank = cache(partial(memory.bank, draft.scope))
    asked: list[tuple[Operation, OperationOutcome]] = []
    stated = next((message["said_at"] for message in messages if message.get("said_at")), "")
    at = draft.event_time or timestamp(stated) or timestamp(memory._clock())
    finished = Finished(
        messages=tuple(messages),
        bank=bank,
        memory=memory,
        source=draft.provenance.source,
        said_at=at,
        project=str(draft.metadata.get("project") or ""),
    )
    for operation in _answers(writer, finished):
        drafted = _draft_of(operation, draft, at)
        if drafted.event_time and isinstance(operation, StatedFact) and not (operation.targets or operation.day):
            drafted = _date_repeat(operation.text, drafted, bank())
        outcome = bank().perform(operation, drafted)
        if not outcome.applied and not outcome.item and operation.kind is not OperationKind.NOOP:
            _LOG.warning("what a writer asked for was not done: %s", outcome.reason)
        asked.append((operation, outcome))
    return bank, asked


def _answers(writer: Writer, finished: Any) -> Iterator[Operation]:
    """Yield the operations that a writer asks for. Raises WriterFailed, and InvalidAdvice or NothingToWrite for a writer that is
    not made for messages."""
    try:
        for asked in written(writer, finished):
            if not isinstance(asked, Operation):
                raise InvalidAdvice(
                    f"a writer of messages gave {asked!r:.60}, which is no operation.",
                    "Advice is for propose(), or for the writer of a policy.",
                )
            yield asked
    except (InvalidAdvice, NothingToWrite):
        raise
    except Exception as error:
        # The error's fix is left out: it is advice for the model, not for whoever wrote the messages.
        message = error.message if isinstance(error, KeepworthError) else error
        raise WriterFailed(f"a writer failed, {type(error).__name__}: {message}"[:500]) from error


def _draft_of(operation: Operation, draft: Draft, at: str) -> Draft:
    """Return `draft` with the turn and the speaker that stated a fact, and the day on which it happened."""
    if not isinstance(operation, StatedFact):
        return draft
    date = operation.said_at or at
    source = replace(draft.provenance, turn=operation.turn, speaker=operation.speaker, date=date)
    return replace(
        draft, provenance=source, event_time=draft.event_time or timestamp(operation.day) or operation.said_at
    )


def _date_repeat(text: str, draft: Draft, bank: Bank) -> Draft:
    """Return `draft` with the time at which the same was said before on that day, so that it counts as told once more. What is
    said again on another day may have happened again."""
    for item in bank.with_same_words(text, draft):
        if item.event_time[:10] == draft.event_time[:10] and item.event_time <= draft.event_time:
            return replace(draft, event_time=item.event_time)
    return draft


def _done(
    memory: Memory, bank: Bank, asked: Sequence[tuple[Operation, OperationOutcome]], episode: str, as_read: bool
) -> Iterator[tuple[Operation, OperationOutcome]]:
    """Commit `bank` to the memory in one transaction, and yield each operation with its outcome there."""
    committed = bank.commit_to(memory.store, episode, as_read=as_read) if bank.journal else ()
    there_now, names = iter(committed), dict[str, str]()
    for operation, outcome in asked:
        if is_kept(operation, outcome):
            now = next(there_now)
            names[outcome.item] = now.item
            yield operation, now
        else:
            yield operation, replace(outcome, item=names.get(outcome.item, outcome.item))


def messages_of(content: object) -> Sequence[Message]:
    """Return a text, a message or messages as messages with text as content. Raises InvalidText for anything else."""
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    coded = isinstance(content, (bytes, bytearray))
    if coded or not isinstance(content, Iterable):
        fix = "decode it" if coded else "give one of them"
        raise InvalidText(f"add takes a text or messages, got {type(content).__name__}: {fix}")
    return [_in_words(*numbered) for numbered in enumerate([content] if isinstance(content, Mapping) else content)]


def _clean(message: Message) -> Message:
    """Return a message without what no item may hold: commands to a terminal, control characters, halves of emoji; and without
    blocks of recalled notes, which nobody says. What people paste is never a reason to lose what they say."""
    content = message.get("content")
    text = without_blocks(clean(content)) if isinstance(content, str) else content
    return message if text == content else {**message, "content": text}


def _dated(message: Message) -> Message:
    """Return a message with `said_at` as canonical text, from another field of a time if it has none: exports of chats name
    it in their own ways. Raises InvalidTime if `said_at` is no time; what another field holds beside times is left alone."""
    if message.get("said_at"):
        return {**message, "said_at": timestamp(message["said_at"])}
    for name in TIMES_OF_MESSAGES:
        value = message.get(name)
        with contextlib.suppress(InvalidTime, OverflowError):
            if isinstance(value, (int, float)) and value > MILLISECONDS:
                value = value / 1000.0
            if at := timestamp(value):
                return {**message, "said_at": at}
    return message


def _in_words(number: int, message: object) -> Message:
    """Return a message whose content is text, or None beside calls of tools: texts of several parts are joined. Raises
    InvalidText."""
    if not isinstance(message, Mapping):
        raise InvalidText(
            f"message {number} must be a dictionary with role and content, got {type(message).__name__}: "
            "use add_many for several texts"
        )
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        for part in content:
            if not isinstance(part, (str, Mapping)):
                raise InvalidText(
                    f"message {number} has a part of type {type(part).__name__}: give texts, or dictionaries with type and text"
                )
        texts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
        return {**message, "content": joined_without_blocks(text for text in texts if isinstance(text, str))}
    if not isinstance(content, str) and (content is not None or "text" in message):
        raise InvalidText(
            f"message {number} needs a text as its content, got {type(content).__name__}: write what was said as its content"
        )
    return message


def _became(done: Iterable[tuple[Operation, OperationOutcome]]) -> dict[str, OperationKind]:
    """Return what became of each item, by id: ADD if it is new, UPDATE if it was reworded or replaces an older one, DELETE, and
    NOOP if it was there already. Items that were made and then replaced or deleted are left out."""
    became: dict[str, OperationKind] = {}
    for operation, outcome in done:
        gone = [id for id in outcome.changed if id != outcome.item]
        was = {id: became.pop(id, None) for id in gone}
        made_and_gone = [id for id in gone if was[id] is OperationKind.ADD]
        if operation.kind is OperationKind.DELETE:
            became.update((id, OperationKind.DELETE) for id in gone if id not in made_and_gone)
        elif outcome.item and not outcome.applied:
            became.setdefault(outcome.item, OperationKind.NOOP)
        elif outcome.item and became.get(outcome.item) is not OperationKind.ADD:
            makes = operation.kind in (OperationKind.SUPERSEDE, OperationKind.MERGE) and outcome.item in outcome.changed
            new = operation.kind is OperationKind.ADD or (makes and gone == made_and_gone)
            became[outcome.item] = OperationKind.ADD if new else OperationKind.UPDATE
    return became


def _kept_raw(
    memory: Memory, messages: Sequence[Message], draft: Draft, episode: str
) -> list[tuple[Item, OperationKind]]:
    """Store the messages of people word for word, marked, and return the items."""
    words = [
        (number, text[:LONGEST_TEXT], str(message.get("role", "user"))[:512], str(message.get("said_at") or ""))
        for number, message in enumerate(messages)
        if isinstance(text := message.get("content"), str)
        and text.strip()
        and message.get("role", "user") not in NOT_OF_PEOPLE
    ]
    present, marked = timestamp(memory._clock()), {**draft.metadata, MARK: "failed"}
    acts: list[tuple[Act, Draft]] = []
    for number, text, speaker, said_at in words:
        at = draft.event_time or said_at
        origin = replace(draft.provenance, turn=number, speaker=speaker, date=at or present)
        item_draft = replace(draft, metadata=marked, key="", provenance=origin, event_time=at)
        acts.append((Operation(OperationKind.ADD, text=text), item_draft))
    vectors = memory.store.encode([text for _, text, *_ in words]) if words else {}
    done = memory.store.perform(draft.scope, acts, episode=episode, vectors=vectors)
    return [(item, OperationKind.ADD) for _, item in done if item is not None]
