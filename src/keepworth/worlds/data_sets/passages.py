"""Shared code of loaders: passages as sessions, options and sessions in an uninformative order, and one shared haystack."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from keepworth.base.errors import KeepworthError
from keepworth.records.episode import Session, Task, Turn
from keepworth.worlds.json_lines import mark_evidence
from keepworth.worlds.splits import draw_order


def passage(
    id: str, texts: Iterable[str], speaker: str = "user", marked: Collection[int] = (), date: str = ""
) -> Session:
    """Returns texts as one session, a turn each.

    Args:
        id: The id of the session.
        texts: The text of each turn.
        speaker: The speaker of all turns.
        marked: The indices of the turns that hold the answer.
        date: The date of the session, "" where it has none.
    """
    return Session(id, date, tuple(Turn(speaker, text, index, index in marked) for index, text in enumerate(texts)))


def name_of(*parts: object) -> str:
    """Returns a short name by hash, so that the ids of sessions give nothing away."""
    return "s" + hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def with_evidence(task: Task) -> Task:
    """Returns the task with its evidence set to the ids of its sessions that have a marked turn."""
    marked = (session.id for session in task.sessions if any(turn.evidence for turn in session.turns))
    return replace(task, evidence=tuple(marked))


def mix_options(key: str, options: Iterable[str]) -> tuple[str, ...]:
    """Returns the distinct options in an order by hash, which gives nothing away."""
    return tuple(sorted(dict.fromkeys(options), key=lambda option: draw_order("options", key, option)))


def pool_haystacks(tasks: Sequence[Task], *parts: object) -> list[Task]:
    """Returns the questions over one haystack of all their sessions, each id once, ordered by date, else by hash.

    Each task keeps its own marks of evidence.
    """
    plain: dict[str, Session] = {}
    for task in tasks:
        for session in task.sessions:
            plain.setdefault(session.id, mark_evidence(session))
    order = sorted(plain, key=lambda id: draw_order("pool", *parts, id))
    if any(session.date for session in plain.values()):
        order.sort(key=lambda id: plain[id].date)
    places = {id: index for index, id in enumerate(order)}
    whole = [plain[id] for id in order]
    pooled_tasks = []
    for task in tasks:
        sessions = list(whole)
        for session in task.sessions:
            if any(turn.evidence for turn in session.turns):
                sessions[places[session.id]] = session
        pooled_tasks.append(replace(task, sessions=tuple(sessions), tags={**task.tags, "pooled": str(len(sessions))}))
    return pooled_tasks


def serves_as_memory(text: str) -> bool:
    """Returns whether a text of the train side is in the half that serves as memory."""
    return draw_order("remembered", text) < "8"


def draw_solved(name: str, examples: Iterable[str], count: int, seed: int) -> tuple[Session, ...]:
    """Returns solved examples as sessions, one each.

    Args:
        name: The data set, which takes part in the draw and in the names of the sessions.
        examples: The texts that may be drawn.
        count: How many are drawn, at most. A negative number raises KeepworthError.
        seed: The seed of the draw, by a hash.
    """
    if count < 0:
        raise KeepworthError(f"memories={count}: there are 0 or more.", "Write 0 or another number.")
    drawn = sorted(examples, key=lambda text: draw_order(name, seed, text))[:count]
    return tuple(passage(name_of(name, text), [text]) for text in drawn)
