"""The systems that `keepworth eval run` knows by name: keepworth's memory under each policy, and systems to compare it with."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import KeepworthError, UnknownName, require_known
from keepworth.evaluation.foreign import ForeignSystem
from keepworth.evaluation.system import (
    Answered,
    AskedQuestion,
    Dense,
    FullContext,
    LatestEntries,
    Maker,
    MemorySystem,
    NoMemory,
    RandomEntries,
    as_remembered,
)
from keepworth.memory.item import Provenance
from keepworth.records.episode import Shown
from keepworth.worlds.benchmark import place
from keepworth.worlds.entries import MemoryEntry

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory
    from keepworth.records.model import Encoder


class OwnMemory:
    """Keepworth's memory: each entry is an item, which its search finds and its policy chooses. `policy` is a name, None for the
    search alone; `mode` is the search's, None for the policy's default."""

    def __init__(self, policy: str | None, encoder: Encoder | None, mode: str | None = None) -> None:
        self._policy, self._encoder, self._mode = policy, encoder, mode
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._memory: Memory | None = None
        self._places: dict[str, str] = {}
        self._items: dict[str, str] = {}
        self._decision = ""

    def begin(self, seed: int) -> None:
        from keepworth.memory.memory import Memory

        self.close()
        options: dict[str, Any] = {} if self._policy is None else {"seed": seed, "reward_range": (0.0, 1.0)}
        self._folder = tempfile.TemporaryDirectory(prefix="keepworth-eval-", ignore_cleanup_errors=True)
        self._memory = Memory(
            Path(self._folder.name, "eval.mem"), encoder=self._encoder, policy=self._policy, **options
        )
        self._places, self._items = {}, {}

    def write(self, entries: Sequence[MemoryEntry]) -> None:
        assert self._memory is not None
        sources = [Provenance("conversation", e.session, e.turn, e.speaker, e.date) for e in entries]
        items = self._memory.add_many([as_remembered(entry) for entry in entries], provenances=sources, repeat=True)
        self._places.update((item.id, place(entry)) for item, entry in zip(items, entries, strict=True))
        self._items = {place: id for id, place in self._places.items()}

    def ask(self, question: AskedQuestion) -> Answered:
        assert self._memory is not None
        if not self._places:
            return Answered()
        hits = self._memory.search(question.text, top_k=question.most, mode=self._mode)
        self._decision = hits.decision
        return Answered(tuple(Shown(self._places.get(hit.id, ""), hit.score, hit.text) for hit in hits))

    def learn(self, reward: float, shown: Sequence[str]) -> None:
        assert self._memory is not None
        if self._policy is not None and self._decision:
            self._memory.reward(self._decision, reward)

    def holds(self, ids: Sequence[str]) -> frozenset[str] | None:
        assert self._memory is not None
        return frozenset(id for id in ids if id in self._items and self._memory.get(self._items[id]).open)

    def size(self) -> int | None:
        assert self._folder is not None
        return sum(file.stat().st_size for file in Path(self._folder.name).rglob("*") if file.is_file())

    def close(self) -> None:
        if self._memory is not None and self._folder is not None:
            self._memory.close()
            self._folder.cleanup()


_SYSTEMS: Mapping[str, tuple[str, Callable[[Callable[[], Encoder]], MemorySystem]]] = {
    "none": ("no memory", lambda encoder: NoMemory()),
    "random": ("entries at random", lambda encoder: RandomEntries()),
    "latest": ("the newest entries", lambda encoder: LatestEntries()),
    "full": ("the whole haystack, where it fits", lambda encoder: FullContext()),
    "bm25": ("search by words alone", lambda encoder: OwnMemory(None, None, "lexical")),
    "dense": ("the nearest by cosine, without an engine", lambda encoder: Dense(encoder())),
    "search": ("our search by words and meaning, without a policy", lambda encoder: OwnMemory(None, encoder())),
    "keepworth": (
        "our memory as it is opened: search, and the default policy",
        lambda encoder: OwnMemory("default", encoder()),
    ),
}
NAMES = {name: about for name, (about, _) in _SYSTEMS.items()}
PATTERNS: Mapping[str, str] = {
    "policy:NAME": "our memory with another policy; listed below as arms",
    "command:WORDS": "a program that reads and writes JSON lines, in any language",
}


def maker(name: str, encoder: Callable[[], Encoder], patience: float = 60.0) -> Maker:
    """Returns the function that makes the system of a name. Raises UnknownName, and KeepworthError where the system needs
    something that is missing.

    Args:
        name: A name of `NAMES`, `policy:NAME`, or `command:` and the words of a program.
        encoder: It returns the one encoder of all systems that need one.
        patience: How many seconds a call to a program may take.
    """
    if name in _SYSTEMS:
        return partial(_SYSTEMS[name][1], encoder)
    kind, colon, rest = name.partition(":")
    if kind == "policy" and colon:
        from keepworth.memory.by_name import policies

        require_known("policy", rest, policies())
        return lambda: OwnMemory(rest, encoder())
    if kind == "command" and colon:
        words = _command(rest)
        return lambda: ForeignSystem(words, lambda texts: encoder().encode(texts), patience)
    raise UnknownName("system", name, [*NAMES, *PATTERNS])


def _command(line: str) -> list[str]:
    """Splits a command line into words. Raises KeepworthError where it is invalid, or its program does not exist."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise KeepworthError(f"command:{line} is no command line: {error}.", "Close the quotation.") from None
    if not words:
        raise KeepworthError("command: names no program.", 'Write "command:python my_memory.py".')
    if shutil.which(words[0]) is None:
        raise KeepworthError(
            f"there is no program {words[0]!r} here.", "Give its path, or install it: command:PROGRAM ARGUMENTS."
        )
    return words
