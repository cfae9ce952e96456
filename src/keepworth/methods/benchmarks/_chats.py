"""Haystacks of conversations of LongMemEval, for benchmarks that are made from them."""

from __future__ import annotations

from dataclasses import replace

from keepworth.episodes.episode import Session
from keepworth.tasks.longmemeval import sessions_of
from keepworth.tasks.passages import name_of
from keepworth.tasks.splits import draw_order

TEXTS = {"train": 20, "dev": 10, "test": 20}
"""Haystacks of a side."""


def chats(split: str, number: int, count: int, seed: int) -> list[Session]:
    """`count` sessions of a side in order of date, drawn for haystack `number`, under names that say nothing."""
    drawn = sorted(sessions_of(split), key=lambda session: draw_order("chats", seed, number, session.id))[:count]
    drawn.sort(key=lambda session: (session.date, session.id))
    return [replace(session, id=name_of("chats", split, seed, number, session.id)) for session in drawn]
