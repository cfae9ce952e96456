"""Systems that `keepworth eval run` knows by name: our own memory under each policy, and what it is measured against."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.episodes.episode import Shown
from keepworth.episodes.errors import KeepworthError, UnknownName, require_known
from keepworth.episodes.text import as_line
from keepworth.evaluation.foreign import ForeignSystem
from keepworth.evaluation.reading import CHOICE, chosen_option
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
from keepworth.tasks.benchmark import place
from keepworth.tasks.entries import MemoryEntry

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.episodes.model import Encoder
    from keepworth.memory.memory import Memory
    from keepworth.models.chat import ChatModel

    Bools = npt.NDArray[np.bool_]
    Vectors = npt.NDArray[np.float32]


class OwnMemory:
    """Our own memory: each entry an item, found by its search and chosen by its policy.

    policy: by name, None for the search alone. mode: of the search, None for the policy's own."""

    def __init__(self, policy: str | None, encoder: Encoder | None, mode: str | None = None) -> None:
        self._policy, self._encoder, self._mode = policy, encoder, mode
        self._folder = Path(tempfile.mkdtemp(prefix="keepworth-eval-"))
        self._memory: Memory | None = None
        self._places: dict[str, str] = {}
        self._items: dict[str, str] = {}
        self._decision, self._number = "", 0

    def begin(self, seed: int) -> None:
        from keepworth.memory.memory import Memory

        if self._memory is not None:
            self._memory.close()
            for file in self._folder.iterdir():
                file.unlink() if file.is_file() else shutil.rmtree(file)
        options: dict[str, Any] = {} if self._policy is None else {"seed": seed, "reward_range": (0.0, 1.0)}
        self._number += 1
        path = self._folder / f"{self._number}.mem"
        self._memory = Memory(path, encoder=self._encoder, policy=self._policy, **options)
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
        return sum(file.stat().st_size for file in self._folder.rglob("*") if file.is_file())

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Endpoint:
    """An agent with a memory of its own behind an OpenAI-compatible URL. What is written goes to it as messages, one request a
    session, and it answers by itself. Whose memory it is says the field `user`, which is new for every haystack: a server that
    ignores it, or that remembers nothing, is measured as such."""

    def __init__(self, chat: ChatModel) -> None:
        self.versions = {"model": chat.model}
        self._chat, self._user, self._calls = chat, "", 0

    def begin(self, seed: int) -> None:
        self._user = f"keepworth-{uuid.uuid4().hex}"

    def write(self, entries: Sequence[MemoryEntry]) -> None:
        from keepworth.models.errors import ChatError

        for _, session in itertools.groupby(entries, key=lambda entry: entry.session):
            messages = [{"role": "user", "content": as_remembered(entry)} for entry in session]
            self._calls += 1
            # What it says to that, and whether it was cut, is nobody's answer.
            with contextlib.suppress(ChatError):
                self._chat.complete(messages, user=self._user)

    def ask(self, question: AskedQuestion) -> Answered:
        text = question.text
        if question.options:
            listed = "\n".join(f"{number}. {as_line(each)}" for number, each in enumerate(question.options, start=1))
            text = f"{text}\n\n{CHOICE.format(options=listed)}"
        answer = self._chat.complete([{"role": "user", "content": text}], user=self._user).strip()
        if question.options:
            pick = chosen_option(answer, question.options)
            answer = answer if pick is None else question.options[pick]
        calls, self._calls = self._calls + 1, 0
        return Answered((), answer, calls)

    def learn(self, reward: float, shown: Sequence[str]) -> None:
        """The protocol has no word for it."""

    def holds(self, ids: Sequence[str]) -> frozenset[str] | None:
        return None

    def size(self) -> int | None:
        return None

    def close(self) -> None:
        self._chat.close()


NAMES: Mapping[str, str] = {
    "none": "no memory",
    "random": "entries at random",
    "latest": "the newest entries",
    "full": "the whole haystack, where it fits",
    "bm25": "search by words alone",
    "dense": "the nearest by cosine, without an engine",
    "search": "our search by words and meaning, without a policy",
    "keepworth": "our memory as it is opened: search, and the default policy",
}
PATTERNS: Mapping[str, str] = {
    "policy:NAME": "our memory with another policy; keepworth eval stream --arms list names them",
    "command:WORDS": "a program that reads and writes JSON lines, in any language",
    "endpoint:URL": "an agent with its own memory behind an OpenAI-compatible URL; --model names it",
}


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What an endpoint needs. model: its name there; key_variable: the environment variable that holds its key. patience: seconds
    that a program has for a call."""

    model: str = ""
    key_variable: str = ""
    patience: float = 60.0


def maker(name: str, encoder: Callable[[], Encoder], elsewhere: Elsewhere | None = None) -> Maker:
    """How a system is made by its name. encoder: one for all who need one. Raises UnknownName, and KeepworthError where what it
    takes is not there."""
    plain: dict[str, Callable[[], MemorySystem]] = {
        "none": NoMemory,
        "random": RandomEntries,
        "latest": LatestEntries,
        "full": FullContext,
        "bm25": lambda: OwnMemory(None, None, "lexical"),
        "dense": lambda: Dense(encoder()),
        "search": lambda: OwnMemory(None, encoder()),
        "keepworth": lambda: OwnMemory("default", encoder()),
    }
    if name in plain:
        return plain[name]
    places = elsewhere or Elsewhere()
    kind, colon, rest = name.partition(":")
    if kind == "policy" and colon:
        from keepworth.memory.by_name import policies

        require_known("policy", rest, policies())
        return lambda: OwnMemory(rest, encoder())
    if kind == "command" and colon:
        words = _command(rest)
        return lambda: ForeignSystem(words, lambda texts: encoder().encode(texts), places.patience)
    if kind == "endpoint" and colon:
        return _endpoint(rest, places)
    raise UnknownName("system", name, [*NAMES, *PATTERNS])


def _endpoint(url: str, places: Elsewhere) -> Maker:
    """Raises KeepworthError where the URL or the model is missing."""
    from keepworth.models.chat import ChatModel

    if not url.startswith(("http://", "https://")):
        raise KeepworthError(f"endpoint:{url} is no URL.", "Write endpoint:http://HOST:PORT.")
    if not places.model:
        raise KeepworthError("an endpoint serves several models.", "Name one with --model.")

    def made() -> Endpoint:
        return Endpoint(ChatModel(url, places.model, key_variable=places.key_variable, max_tokens=256))

    made().close()  # a key that is missing is said before anything runs
    return made


def _command(line: str) -> list[str]:
    """The words of a command line. Raises KeepworthError where it is none, or its program is not here."""
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


def chosen(names: Sequence[str]) -> list[str]:
    """Names without repeats; raises KeepworthError where a name comes twice."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise KeepworthError(f"the system {twice!r} is named twice.", "Name each once.")
    return list(names)
