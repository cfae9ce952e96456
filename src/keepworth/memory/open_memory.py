"""OpenMemory: a memory file with its bounds, its encoder and its log of decisions. The verbs are in the files that follow."""

from __future__ import annotations

import logging
import os
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from keepworth.episodes.decision import Decision, DecisionKind
from keepworth.episodes.encoder import Encoder, EncoderIdentity
from keepworth.memory import purge
from keepworth.memory.database import first
from keepworth.memory.decision_log import DecisionLog, Logged
from keepworth.memory.embedding import Embedder
from keepworth.memory.errors import (
    InvalidFilter,
    NoEncoder,
    UnknownEpisode,
    UnknownItem,
)
from keepworth.memory.item import Item, folded
from keepworth.memory.moment import Clock, now
from keepworth.memory.near_duplicates import NearDuplicates, likeness
from keepworth.memory.ranking import Fusion, Hit, Hits, Selected
from keepworth.memory.scope import Scope
from keepworth.memory.store import Store

_LOG = logging.getLogger("keepworth.memory")
Message = Mapping[str, Any]
Extractor = Callable[[Sequence[Message]], Iterable[str]]
RECALLED = 4096
SCOPES = 4096


def _new_id() -> str:
    return uuid.uuid4().hex[:16]


Opened = TypeVar("Opened", bound="OpenMemory")


class OpenMemory:
    """What `Memory` stands on; see there for the arguments."""

    encoder_named: Callable[[str, EncoderIdentity | None], Encoder] | None = None
    """Finds an encoder by name, or the one with a given identity. `keepworth.Memory` has one; this room knows of no models."""

    def __init__(
        self,
        path: str | os.PathLike[str] = ":memory:",
        *,
        encoder: Encoder | str | None = "default",
        tenant: str = "",
        user_id: str = "",
        agent_id: str = "",
        session_id: str = "",
        durability: str = "process",
        read_only: bool = False,
        fusion: Fusion | None = None,
        index: str = "exact",
        log: str = "background",
        log_share: float = 1.0,
        keep_candidates: int | None = None,
        extractor: Extractor | None = None,
        max_items: int | None = None,
        dedupe: bool | float = False,
        clock: Clock = now,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        if log not in ("background", "off"):
            raise InvalidFilter(f"log={log!r} does not exist: use 'background' or 'off'")
        if not isinstance(log_share, (int, float)) or not 0.0 <= log_share <= 1.0:
            raise InvalidFilter(f"log_share must lie in [0, 1], got {log_share!r:.40}")
        if max_items is not None and (not isinstance(max_items, int) or max_items < 1):
            raise InvalidFilter(f"max_items must be a whole number of at least 1, got {max_items!r:.40}")
        self.scope = Scope(tenant, user_id, agent_id, session_id)
        self.fusion = fusion or Fusion()
        self._extractor = extractor
        self._clock = clock
        self._new_id = new_id
        self._log_share = log_share if log == "background" else 0.0
        self.store = Store(path, durability=durability, read_only=read_only, index=index, clock=clock)
        self.store.max_items = max_items
        found = self._named(encoder) if isinstance(encoder, str) else encoder
        if found is not None:
            self.store.use(Embedder(found))
        if self.read_only:
            _LOG.warning("%s is read-only: searches work but are not logged, so no reward can reach them", self.path)
        self._decisions = DecisionLog(self.store, keep=keep_candidates)
        self._recalled: OrderedDict[str, str] = OrderedDict()
        self._known_episodes: set[str] = set()
        self._near = self._merging(dedupe) if dedupe else None
        self._scopes: dict[tuple[str, str, str], Scope] = {}
        self._draws = _uniform(self.store.store_id())

    @property
    def path(self) -> str:
        return self.store.database.path

    @property
    def read_only(self) -> bool:
        return self.store.database.read_only

    def close(self) -> None:
        """Write what is waiting and let go of the file."""
        if self._near is not None:
            self._near.close()
        if not self.read_only:
            self._decisions.close()
        self.store.close()

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self.store.sums(self.scope)[1]

    def get(self, id: str) -> Item:
        """An item in its latest state, closed and deleted ones too. Raises UnknownItem."""
        item = self.store.fetch(self.scope, [id])[id] if isinstance(id, str) else None
        if item is None:
            erased = isinstance(id, str) and purge.is_tombstone(self.store, self.scope, id)
            if erased:
                raise UnknownItem(f"{id} was erased on purpose, for good: nothing of it is left in {self.path}")
            raise UnknownItem(
                f"no item {id!r:.80} in this scope of {self.path}: searches and lists give the ids there are"
            )
        return item

    def _log(
        self,
        queries: Sequence[str],
        results: list[Hits],
        choices: list[tuple[list[Hit], Selected]],
        scope: Scope,
        episode: str,
        step: int,
    ) -> None:
        if self.read_only or (not episode and not self._log_share):
            return
        entries = []
        for query, hits, (listed, choice) in zip(queries, results, choices, strict=True):
            if not episode and self._log_share < 1.0 and next(self._draws) >= self._log_share:
                continue
            hits.decision = f"d{self._new_id()}"
            decision = Decision(
                id=hits.decision,
                kind=DecisionKind.SEARCH,
                query=query[:10_000],
                candidates=tuple((hit.id, hit.score) for hit in listed),
                chosen=tuple(hit.id for hit in hits),
                propensity=choice.propensity,
                policy=choice.policy,
                step=step,
            )
            entries.append(Logged(self._clock(), scope, episode, decision))
        if episode:
            self._decisions.write(entries)
        else:
            for entry in entries:
                self._decisions.later(entry)

    def _merging(self, dedupe: bool | float) -> NearDuplicates:
        try:
            bound = likeness(dedupe)
            if self.store.embedder is None:
                raise NoEncoder("dedupe compares meanings and needs an encoder: open the memory with one")
            if self.read_only:
                raise InvalidFilter(f"{self.path} is read-only: dedupe cannot merge anything in it")
            return NearDuplicates(self.store, self.scope, bound)
        except BaseException:
            self.store.close()
            raise

    def _narrowed(self, user_id: str, agent_id: str, session_id: str) -> Scope:
        given = (user_id, agent_id, session_id)
        # Only "" means everybody's: a user 0, or None, is a mistake, and must not become a look at the whole memory.
        if given == ("", "", ""):
            return self.scope
        # What is not text may not be hashable either; `Scope` says what is wrong with it.
        plain = all(isinstance(part, str) for part in given)
        known = self._scopes.get(given) if plain else None
        if known is None:
            parts = zip(("user", "agent", "session"), given, strict=True)
            known = self.scope.narrowed(**{name: value for name, value in parts if value != ""})
            if len(self._scopes) >= SCOPES:
                self._scopes.clear()
            self._scopes[given] = known
        return known

    def _check_episode(self, id: str) -> None:
        """Raise UnknownEpisode for what is neither "" nor the id of an episode of this scope."""
        if id == "" or (isinstance(id, str) and id in self._known_episodes):
            return
        row = None
        if isinstance(id, str) and id.isascii():
            with self.store.database.reading() as connection:
                row = first(connection, "SELECT scope FROM episodes WHERE id = ?", (id,))
                if row is not None and not self.scope.contains(self.store.scope_named(connection, row[0])):
                    row = None
        if row is None:
            raise UnknownEpisode(
                f"no episode {id!r:.80} in this memory: `with memory.episode() as ep` begins one; nothing was done"
            )
        if len(self._known_episodes) >= SCOPES:
            self._known_episodes.clear()
        self._known_episodes.add(id)

    def _open_item(self, id: str) -> Item:
        item = self.get(id)
        if not item.open:
            raise UnknownItem(
                f"{id} is closed ({'deleted' if item.deleted else 'superseded by ' + item.superseded_by})"
            )
        return item

    def _note_recalled(self, item: Item) -> None:
        self._recalled[folded(item.text)] = item.id
        while len(self._recalled) > RECALLED:
            self._recalled.popitem(last=False)

    def _named(self, name: str) -> Encoder:
        """An encoder by name; "default" is the one that made the vectors on file, else the usual one."""
        try:
            find = type(self).encoder_named
            if find is None:
                raise NoEncoder(
                    f"encoder {name!r} is a name and this class knows none: use `from keepworth import Memory`, "
                    "pass an encoder, or encoder=None to search by words only"
                )
            return find(name, self.store.encoder_identity() if name == "default" else None)
        except BaseException:
            self.store.close()
            raise


def _uniform(seed: str) -> Iterator[float]:
    import random

    draw = random.Random(seed + str(os.getpid()))
    while True:
        yield draw.random()
