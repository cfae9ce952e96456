"""Topics of sessions as memories: the prospective half of RMM (arXiv 2503.08026). Rules stand in for the paper's model calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keepworth.memory.errors import InvalidAdvice
from keepworth.memory.facts import facts_of_turn
from keepworth.memory.item import Item
from keepworth.records.episode import Session, Turn

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory

Message = Mapping[str, Any]
Extract = Callable[[Sequence[Message]], Iterable[tuple[str, Sequence[int]]]]
"""Messages of a session -> topics: (summary, numbers of the messages that it is about)."""
Decide = Callable[[str, Sequence[tuple[Item, float]]], "tuple[str, str] | None"]
"""(summary, the most similar topics with their cosines) -> (id of the topic to merge into, merged summary); None adds a topic."""

ALIKE = 0.5
"""Cosine from which the rule merges a topic into the nearest one."""


def stated(messages: Sequence[Message]) -> list[tuple[str, list[int]]]:
    """Makes each statement of the user (`writers._facts`) a topic: the rule in place of the paper's extraction by a model."""
    session = Session("", "", ())
    topics = []
    for number, message in enumerate(messages):
        turn = Turn(str(message.get("role", "")), str(message.get("content", "")), number)
        topics += [(fact.statement, [number]) for fact in facts_of_turn(turn, session)]
    return topics


def nearest_topic(summary: str, near: Sequence[tuple[Item, float]]) -> tuple[str, str] | None:
    """Merges into the nearest topic if its cosine is at least `ALIKE`: the rule in place of the paper's decision by a model."""
    if not near or near[0][1] < ALIKE:
        return None
    return near[0][0].id, f"{near[0][0].key} {summary}"


def reflect(
    memory: Memory,
    messages: Sequence[Message],
    extract: Extract = stated,
    decide: Decide = nearest_topic,
    *,
    k: int = 5,
    session: str = "",
    episode: str = "",
) -> list[Item]:
    """Turns the topics of a finished session into items, or merges them into items of the same topic. Returns the changed items.

    An item's key, by which it is searched, is its summary; its text is the turns. metadata["turns"] names each as
    `session#number`. A merge closes the old item and links the new one; where `episode` is given, `memory.rollback(episode)`
    undoes all of it.

    Args:
        k: How many similar topics `decide` is given.

    Raises:
        InvalidAdvice: For a topic without messages, or with numbers of messages that do not exist.
        UnknownItem: For a decision to merge into an item that does not exist.
    """
    became: dict[str, Item] = {}
    for summary, numbers in extract(messages):
        if not numbers or not all(0 <= number < len(messages) for number in numbers):
            raise InvalidAdvice(
                f"the topic {summary!r:.60} is about the messages {list(numbers)}, and there are {len(messages)}.",
                "Number them from 0.",
            )
        lines = [f"{messages[n].get('role', '')}: {messages[n].get('content', '')}" for n in numbers]
        turns = [f"{session}#{number}" for number in numbers]
        bank = memory.bank()
        near = [(hit.item, hit.score) for hit in bank.search(summary, k, mode="dense")] if len(bank) else []
        into = decide(summary, [pair for pair in near if "turns" in pair[0].metadata])
        if into is None:
            item = memory.add_many(
                ["\n".join(lines)],
                key=summary,
                metadata={"turns": turns},
                source="reflection",
                repeat=True,
                episode=episode,
            )[0]
        else:
            id, merged = into
            old = memory.get(id)
            has = old.metadata.get("turns", ())
            fresh = [(turn, line) for turn, line in zip(turns, lines, strict=True) if turn not in has]
            item = memory.supersede(
                id,
                "\n".join([old.text, *(line for _, line in fresh)]),
                key=merged,
                metadata={**old.metadata, "turns": [*has, *(turn for turn, _ in fresh)]},
                source="reflection",
                episode=episode,
            )
            became.pop(id, None)
        became[item.id] = item
    return list(became.values())
