"""Let a function, such as a model, say in one text what items that belong together say.

A rewrite is a MERGE under a source of its own, `rewrite:m17`. What it rewrites, its originals, are closed and not erased:
`rollback(source="rewrite:m17")` brings them back as they were. A rewrite quotes its originals, so it is taken back where one of
them is deleted, and erased where one is erased.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.episodes.text import as_line
from keepworth.memory.errors import InvalidFilter, NoEncoder
from keepworth.memory.item import Item, ItemKind, Provenance, Scope, Status, text_problem, timestamp
from keepworth.memory.operations import Draft, new_item
from keepworth.memory.store import undo

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store
    from keepworth.memory.store.transaction import Transaction

Rewriter = Callable[[Sequence[str]], str]
"""Texts that belong together -> one text in their place."""
NEIGHBOURS, BATCH = 32, 128
PROMPT = """These notes belong together:
{lines}

Write one note that says all of it, and nothing else. Keep every name, number, date, condition and "not". \
It must be shorter than the notes together. Answer with the note alone."""
_ORDERS = re.compile(
    r"\b(ignore|disregard|forget|override)\b[^.\n]{0,40}\b(previous|above|prior|earlier|preceding|all)\b"
    r"|\bsystem prompt\b|\byou are now\b|\bnew instructions?\b|\bdo not (tell|reveal|mention)\b"
    r"|^\s*(system|assistant|developer)\s*:|<\|?\s*/?\s*(system|assistant|im_start|im_end|tool_call)\b|\[/?INST\]",
    re.I | re.M,
)
"""Signs of a text that gives orders to who reads it. A list of signs and no proof."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """item: id of what stands in the place of `originals`; source: what `Memory.rollback(source=...)` takes."""

    item: str
    text: str
    originals: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Consolidation:
    """What one `Memory.consolidate` did. refused: the ids of each group that stays as it is, and why."""

    rewrites: tuple[Rewrite, ...]
    refused: tuple[tuple[tuple[str, ...], str], ...]


def consolidate(
    store: Store,
    scope: Scope,
    rewrite: Rewriter,
    groups: Sequence[Sequence[str]] | None,
    near: float,
    most: int,
    limit: int,
) -> Consolidation:
    """The verb `Memory.consolidate`, which describes the arguments."""
    store.database.check_writable()
    if not callable(rewrite):
        raise InvalidFilter(f"rewrite must be a function of several texts that gives one, got {rewrite!r:.60}")
    if not 0.0 < near <= 1.0 or most < 2 or limit < 1:
        raise InvalidFilter("near is a cosine in (0, 1], most at least 2, and limit at least 1")
    if groups is None and store.embedder is None:
        raise NoEncoder("what belongs together is found by meaning: open the memory with an encoder, or give groups=")
    made: list[Rewrite] = []
    refused: list[tuple[tuple[str, ...], str]] = []
    for group in _groups(store, scope, near, most) if groups is None else map(tuple, groups):
        if len(made) + len(refused) == limit:
            break
        there = store.fetch(scope, group)
        items = [item for item in there.values() if item is not None and _is_plain(item, timestamp(store.clock()))]
        if len(items) < 2 or len(items) < len(group) or not all(_belong(items[0], item) for item in items):
            refused.append((group, "a group is two or more plain, current items of one scope, kind and metadata"))
            continue
        try:
            text = rewrite([item.text for item in items])
        except Exception as error:
            refused.append((group, f"the rewriter raised {type(error).__name__}"))
            continue
        why = _problem(text, [item.text for item in items])
        done = why or _merge(store, items, text.strip())
        if isinstance(done, str):
            refused.append((group, done))
        else:
            made.append(done)
    return Consolidation(tuple(made), tuple(refused))


def merged_by(complete: Callable[[str], str]) -> Rewriter:
    """A rewriter that asks a model. complete: a prompt -> what the model says, such as a chat endpoint or a model in process."""

    def rewrite(texts: Sequence[str]) -> str:
        return complete(PROMPT.format(lines="\n".join(f"- {as_line(text)}" for text in texts)))

    return rewrite


def _groups(store: Store, scope: Scope, near: float, most: int) -> Iterator[tuple[str, ...]]:
    """Ids of items that are near in meaning, each in one group at most."""
    import numpy as np

    taken: set[str] = set()
    after, time = 0, timestamp(store.clock())
    while part := list(store.items(scope, after=after, limit=BATCH, current=True)):
        after = int(part[-1].id[1:])
        vectors = store.vectors_for(part)
        for home in dict.fromkeys(item.scope for item in part):
            there = [item for item in part if item.scope == home and item.id in vectors]
            if not there:
                continue
            lines = store.view(home).by_meaning(np.stack([vectors[item.id][0] for item in there]), NEIGHBOURS)
            known = store.fetch(scope, list({id for line in lines for id, _ in line}))
            for item, line in zip(there, lines, strict=True):
                if item.id in taken or not _is_plain(item, time):
                    continue
                close = [known[id] for id, cosine in line if cosine >= near and id not in {item.id, *taken}]
                alike = [other for other in close if other and _is_plain(other, time) and _belong(item, other)]
                group = [item.id, *(other.id for other in alike[: most - 1])]
                if len(group) > 1:
                    taken.update(group)
                    yield tuple(sorted(group, key=lambda id: int(id[1:])))


def _is_plain(item: Item, time: str) -> bool:
    """A text that stands for itself: not a case, a core item, what ends, what is found by a key or what a policy reads."""
    plain = item.kind not in (ItemKind.CASE, ItemKind.CORE) and not item.key and "do" not in item.metadata
    return plain and item.visible(time) and not (item.valid_to or item.expires_at) and item.status is Status.ACTIVE


def _belong(one: Item, other: Item) -> bool:
    return (one.scope, one.kind, one.metadata) == (other.scope, other.kind, other.metadata)


def _problem(text: object, originals: Sequence[str]) -> str:
    """Why a text cannot stand in the place of `originals`; "" where it can."""
    if not isinstance(text, str) or not text.strip():
        return "the rewriter gave no text"
    if len(text.strip()) > sum(map(len, originals)):
        return "the rewrite is longer than its originals together"
    if text_problem(text.strip()) is not None:
        return "the rewrite cannot be remembered"
    if _ORDERS.search(text) and not any(map(_ORDERS.search, originals)):
        return "the rewrite gives orders to who reads it, and its originals do not"
    return ""


def _merge(store: Store, items: Sequence[Item], text: str) -> Rewrite | str:
    """In one transaction. Or why it was not done."""

    def work(transaction: Transaction) -> Rewrite | str:
        for item in items:
            present = transaction.get(item.id)
            if present is None or not present.current or present.revision != item.revision:
                return f"{item.id} changed while the rewriter was at work"
        first, now, id = items[0], store.clock(), f"m{transaction.seq}"
        source = f"{undo.REWRITE}:{id}"
        draft = Draft(kind=first.kind, scope=first.scope, metadata=first.metadata, provenance=Provenance(source))
        act = Operation(OperationKind.MERGE, tuple(item.id for item in items), text)
        if not set(transaction.duplicates_of(new_item(text, draft, new_id=id, now=now))) <= set(act.targets):
            return "another item says the same as the rewrite"
        outcome = transaction.perform(act, draft, now=now)
        return Rewrite(outcome.item, text, act.targets, source) if outcome.applied else outcome.reason

    done: Rewrite | str = store.change(items[0].scope, work, store.encode([text]))
    return done
