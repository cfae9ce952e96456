"""The seven slots of a method, and the records that pass between them.

query = keyer(situation); candidates = retriever(query); values = valuer.estimate(...)
choice = selector(...)  (a distribution over slates);  text = presenter(...)
after the reward:  valuer.learn(use); drafts = writer(finished); maintainer(pool)

A writer also writes for `Memory.add(messages, infer=True)`: an extractor of facts, a policy's writer and the manager of a trained
run are called alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from keepworth.base.text import as_line
from keepworth.memory.choose.pool import Advice, Pool, advice
from keepworth.memory.choose.propensity import Slate
from keepworth.memory.choose.record import PolicyRecord
from keepworth.memory.errors import InvalidAdvice, InvalidPolicy, NothingToWrite
from keepworth.memory.item import Item
from keepworth.memory.search.passages import tokens_of
from keepworth.records.episode import Operation

if TYPE_CHECKING:
    from keepworth.base.arrays import Floats, Rows, Vectors
    from keepworth.memory.choose.ledger import Trial
    from keepworth.memory.memory import Memory
    from keepworth.memory.overlay import Bank
    from keepworth.memory.search.how_many import SetSize


MANY = 1_000_000_000
"""Stands for no limit."""


@dataclass(frozen=True, slots=True)
class Query:
    """A situation as memory sees it. time: by the memory's clock; episode: its number; step: within it.

    learning: whether what comes of the choice will be learned from; False where the memory is frozen. by: for whom memory is
    asked, "" where nobody said. most: how many items may be shown. size: where the memory decides how many, what the words of the
    question say of that."""

    text: str
    vector: Vectors
    time: int
    episode: int
    goal: str = ""
    observation: str = ""
    actions: tuple[str, ...] = ()
    step: int = 0
    learning: bool = True
    by: str = ""
    most: int = MANY
    size: SetSize | None = None


class ItemTable(Protocol):
    """The items of the memory, for candidates that a search has found."""

    def items_of(self, ids: Sequence[str]) -> list[Item]:
        """Return the items of these ids. Those that are gone are archived and have no text."""
        ...

    def vectors_of(self, items: Sequence[Item]) -> Vectors:
        """Return the vectors of items, shape (items, dimension)."""
        ...

    def rows_of(self, items: Sequence[Item]) -> Rows:
        """Return rows of the pool for items, which get there what rows they do not have yet."""
        ...


class Candidates:
    """What a policy chooses among, best first: items with their similarities.

    Attributes:
        similarities: The cosines of the items with the question, or their scores in the search.
        items: The items; () if only the pool has them.
    """

    __slots__ = ("_rows", "items", "similarities")

    def __init__(self, rows: Rows, similarities: Floats, items: Sequence[Item] = ()) -> None:
        self._rows, self.similarities, self.items = rows, similarities, items

    @property
    def rows(self) -> Rows:
        """Return their rows in the pool."""
        return self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def listed(self, pool: Pool) -> Sequence[Item]:
        """Return the items. Each has an id, a text and metadata."""
        return self.items or [pool.items[row] for row in self.rows.tolist()]

    def names(self, pool: Pool) -> list[str]:
        """Return by which name a record knows what each item says: its id, if it was never reworded."""
        return [item.id for item in self.listed(pool)]

    def at(self, places: Sequence[int], pool: Pool) -> list[Item]:
        """Return the items in these places."""
        items = self.listed(pool)
        return [items[place] for place in places]

    def vectors(self, pool: Pool) -> Vectors:
        """Return the vectors of the items, shape (candidates, dimension)."""
        vectors: Vectors = pool.vectors[self.rows]
        return vectors

    def actions(self, query: Query, pool: Pool) -> list[tuple[tuple[str, float], ...]]:
        """Return for each item the actions that it advises in this situation, each with +1 (do it) or -1 (avoid it)."""
        return [advice(item, query.text) for item in self.listed(pool)]

    def tokens(self, pool: Pool) -> list[int]:
        """Return for each item a bound on the number of tokens of its text in a prompt."""
        return [tokens_of(item.text) for item in self.listed(pool)]

    def among(self, admits: Callable[[int], bool]) -> Candidates:
        """Return those candidates whose rows `admits` admits."""
        admitted = np.array([index for index, row in enumerate(self.rows.tolist()) if admits(row)], dtype=np.intp)
        return Candidates(self.rows[admitted], self.similarities[admitted])


class SearchedCandidates(Candidates):
    """What the memory's own search has found, now or when a choice was logged.

    They are in no pool, and nothing is read from the file, until a slot asks for it. A policy that goes by the ids of items never
    does.

    Attributes:
        ids: Their ids.
    """

    __slots__ = ("_names", "_scores", "_similarities", "_table", "ids")

    def __init__(
        self,
        ids: Sequence[str],
        scores: Sequence[float] | Floats,
        table: ItemTable,
        items: Sequence[Item] = (),
        names: Sequence[str] = (),
    ) -> None:
        self.ids, self._scores, self.items, self._table, self._names = ids, scores, items, table, names

    @property
    def similarities(self) -> Floats:  # type: ignore[override]
        if not hasattr(self, "_similarities"):
            self._similarities = np.asarray(self._scores, dtype=np.float64)
        return self._similarities

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def rows(self) -> Rows:
        if not hasattr(self, "_rows"):
            self._rows = self._table.rows_of(self.items or self._table.items_of(self.ids))
        return self._rows

    def listed(self, pool: Pool) -> Sequence[Item]:
        self.items = self.items or self._table.items_of(self.ids)
        return self.items

    def names(self, pool: Pool) -> list[str]:
        return list(self._names or self.ids)

    def at(self, places: Sequence[int], pool: Pool) -> list[Item]:
        if self.items:
            return super().at(places, pool)
        return self._table.items_of([self.ids[place] for place in places])

    def vectors(self, pool: Pool) -> Vectors:
        return self._table.vectors_of(self.listed(pool))


@dataclass(frozen=True, slots=True)
class Values:
    """Estimated reward (or advantage, or gain) of showing each candidate, with its standard deviation."""

    means: Floats
    deviations: Floats
    better: Floats | None = None  # the probability with which each is tried first in order to learn
    expected: float = 0.0  # the expected reward of the situation


@dataclass(slots=True)
class Use:
    """One choice and what came of it."""

    query: Query
    candidates: Candidates
    values: Values
    choice: Slates | None
    slate: Slate  # positions among the candidates, in the order shown
    part: str  # of the mixture that drew it
    taken: str = ""  # the action after it
    outcome: float = 0.0  # of the episode
    reward: float = 0.0  # what this choice is credited with
    good: bool = False  # whether it was better than is usual
    logged: float | None = None  # the propensity, where it is known
    following: Use | None = None  # the episode's next choice
    by: str = ""  # who rewarded it, "" for the program itself
    share: float = 1.0  # how much that counts in what is learned for all
    decision: str = ""  # its id on file
    weight: float = 1.0  # 1 over how many choices share the reward
    learned: int = 0  # the number of the reward, which the choices that share it have in common
    logged_choice: LoggedChoice | None = (
        None  # what is on file about it; None if it was made in this process and is on no file
    )

    @property
    def rows(self) -> list[int]:
        return [int(self.candidates.rows[index]) for index in self.slate]

    def shown(self, pool: Pool) -> list[Item]:
        """Return the items that were shown, in order."""
        return self.candidates.at(self.slate, pool)

    def ids(self, pool: Pool) -> tuple[str, ...]:
        """Return the names of what was shown, in order (see `Candidates.names`)."""
        if self.logged_choice is not None:
            return self.logged_choice.shown
        names = self.candidates.names(pool)
        return tuple(names[index] for index in self.slate)

    def arm(self, pool: Pool) -> int | None:
        """Return the number of what the reward is credited to: the action that was taken, or, if none is known, the item that was
        shown first, unless it advises an action. None if there is neither."""
        if self.taken:
            return pool.content_of(self.taken)
        return int(pool.content[self.rows[0]]) if self.slate and pool.is_note(self.rows[0]) else None

    @property
    def propensity(self) -> float:
        if self.logged is None:
            assert self.choice is not None
            self.logged = self.choice.probability(self.slate)
        return self.logged


@dataclass(frozen=True, slots=True)
class LoggedChoice:
    """What is on file about a choice and its reward: the names of what was shown, and how far they are credited.

    Attributes:
        credit: How much the reward counts for what was shown; None for the weight.
        instead: The reward that was expected of the search's own order, if another was shown.
        roles: Those of the action; None if no item of the episode names actions.
        source: Where the reward came from: the person who gave it, or the program's channel.
        home: The user in whose scope the choice was made.
        stale: Whether it is too old to change the weights of estimates.
    """

    shown: tuple[str, ...]
    trial: Trial
    credit: float | None = None
    instead: float = math.nan
    roles: Sequence[int] | None = None
    source: str = ""
    home: str = ""
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """What a writer is given: an episode that has its outcome, or messages.

    uses: the choices of the episode in order; messages: what was said, and nothing else is
    known then. pool: the read view of the policy; bank: opens a bank of the memory, which shows what the writer wrote so far;
    memory: for which messages are written, source: under which name, said_at: when they were said, as a canonical time, and
    project: in which project, "" for none.
    """

    uses: tuple[Use, ...] = ()
    outcome: float = math.nan
    time: int = 0
    episode: int = 0
    success: bool = False
    messages: tuple[Mapping[str, Any], ...] = ()
    pool: Pool | None = None
    bank: Callable[[], Bank] | None = None
    memory: Memory | None = None
    source: str = ""
    said_at: str = ""
    project: str = ""

    @property
    def choices(self) -> tuple[Use, ...]:
        """Return the choices, for writers that keep them. Raises NothingToWrite for messages."""
        if self.messages:
            raise NothingToWrite(
                "this writer keeps choices of episodes, and messages hold none.",
                "Open the memory with a writer that reads messages, such as Facts(extract), or reward an episode.",
            )
        return self.uses

    @property
    def transcript(self) -> tuple[Mapping[str, Any], ...]:
        """Return, for writers that read, the messages that say something in words, or each situation of the episode with what was
        done in it."""
        if self.messages:
            contents = ((message, message.get("content")) for message in self.messages)
            return tuple(message for message, text in contents if isinstance(text, str) and text.strip())
        steps = ((("user", use.query.observation or use.query.goal), ("assistant", use.taken)) for use in self.uses)
        return tuple({"role": role, "content": text} for pair in steps for role, text in pair if text)

    def nearest(self, text: str, k: int) -> list[Item]:
        """Return the `k` items of the memory that are most like `text`."""
        return self.bank().nearest_to([text], k)[0] if self.bank is not None else []


Keyer = Callable[[str, str], str]
"""(goal, observation) -> the text that stands for the situation: what is embedded, and what cases are stored under."""


def whole(goal: str, observation: str) -> str:
    """Return goal and observation together, which is REMEMBERER's key and the text of a question."""
    return f"{goal} {observation}".strip()


Retriever = Callable[[Query, Pool], Candidates]


class Valuer(Protocol):
    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values: ...

    def learn(self, use: Use, pool: Pool) -> None: ...


class Slates(Protocol):
    """A distribution over slates, such as `propensity.Mixture`."""

    def draw(self, generator: np.random.Generator) -> tuple[Slate, str]:
        """Draw a slate, and say which part of the distribution it came from."""
        ...

    def probability(self, slate: Sequence[int]) -> float: ...

    def certain(self) -> Slates:
        """Return the same preferences without exploration."""
        ...

    def at_most(self, k: int) -> Slates:
        """Return the same preferences for fewer places."""
        ...

    def given(self, drawn: Mapping[int, tuple[float, bool]]) -> Slates:
        """Return the distribution later in the same episode, in which chance has decided already about these candidates."""
        ...

    @property
    def odds(self) -> Mapping[int, float]:
        """Return the probability of being shown of each candidate about which chance decides by itself."""
        ...


Selector = Callable[[Query, Candidates, Values, Pool], Slates]


@dataclass(frozen=True, slots=True)
class Presented:
    """text: for a model's prompt. advice: (action, weight, similarity), for policies that read no text; a negative weight
    discourages, similarity is the cosine of the situation with the one that the advice comes from."""

    text: str
    advice: tuple[tuple[str, float, float], ...] = ()


Presenter = Callable[[list[Item], Query, Sequence[float]], Presented]
"""(items, query, similarities) -> what their reader is given."""


def combined_advice(
    items: list[Item], query: Query, similarities: Sequence[float]
) -> tuple[tuple[str, float, float], ...]:
    """Return what the shown items would have their reader do, as (action, weight, similarity).

    Args:
        items: What is shown, in its order.
        query: What was asked, with the actions that are possible.
        similarities: The cosine of each item with the query.
    """
    return tuple(
        (action, weight, near)
        for item, near in zip(items, similarities, strict=True)
        for action, weight in advice(item, query.text)
    )


def lines(items: list[Item], query: Query, similarities: Sequence[float]) -> Presented:
    """Return one line for each item, in the order in which they are shown.

    Args:
        items: What is shown, in its order.
        query: What was asked, with the actions that are possible.
        similarities: The cosine of each item with the query.
    """
    return Presented(
        "\n".join(f"- {as_line(item.text)}" for item in items), combined_advice(items, query, similarities)
    )


class Writer(Protocol):
    """Turns messages, or an episode with its reward, into what memory does about it: advice becomes an item, and an operation is
    carried out at once, so that the next one is written with its result in view."""

    def __call__(self, finished: Finished) -> Iterable[Advice | Operation]: ...


def written(writer: Writer, finished: Finished) -> Iterator[Advice | Operation]:
    """Yield what a writer answers. Raises InvalidAdvice for anything but advice and operations."""
    answer: object = writer(finished)
    if isinstance(answer, (str, bytes, Mapping)) or not isinstance(answer, Iterable):
        raise InvalidAdvice(f"a writer gave {answer!r:.60} instead of operations or advice.", "Let it return a list.")
    for written_down in answer:
        if not isinstance(written_down, (Advice, Operation)):
            raise InvalidAdvice(
                f"a writer gave {written_down!r:.60}, which is no operation and no advice.",
                "Let it give Operation(...) or Advice(...).",
            )
        yield written_down


Maintainer = Callable[[Pool, Valuer, Use | None, int], None]
"""(pool, valuer, use, time): revises and retires items after an episode (`use` None) or after one of its choices."""


@dataclass(slots=True)
class Policy:
    """A policy, composed of slots. name identifies it in the log. writer: None for a policy that writes nothing.

    retriever: None for one that chooses among the hits of the memory's own search. rehearse: shows a logged choice again to a
    slot that learns while choosing. record: what the policy can say of rewards besides its order; None for nothing. It is the
    valuer itself.

    Raises:
        InvalidPolicy: There is no name, or the record is not the valuer.
    """

    name: str
    keyer: Keyer
    retriever: Retriever | None
    valuer: Valuer
    selector: Selector
    presenter: Presenter
    writer: Writer | None = None
    maintainers: tuple[Maintainer, ...] = ()
    rehearse: Callable[[Query, Candidates, Pool], object] | None = None
    record: PolicyRecord | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidPolicy(f"a policy was given the name {self.name!r:.60}.", "Give it a name: the log has it.")
        valuer: object = self.valuer
        if self.record is not None and self.record is not valuer:
            raise InvalidPolicy(
                f"the record of policy {self.name!r} is not its valuer, so it would learn nothing.",
                "Give the same object as both, or no record.",
            )

    @property
    def keeps(self) -> bool:
        """Return whether the policy writes items of its own when an episode gets its reward."""
        return self.writer is not None


def need(
    of: str,
    *,
    count: dict[str, int] | None = None,
    positive: dict[str, float] | None = None,
    rate: dict[str, float] | None = None,
) -> None:
    """Raise InvalidPolicy for a setting that is out of range.

    Args:
        of: What has the settings, for the message.
        count: By name, numbers that must be whole and at least 1.
        positive: By name, numbers that must be finite and above 0.
        rate: By name, numbers that must lie in [0, 1].
    """
    for values, kind, fits, fix in (
        (count, Integral, lambda value: value >= 1, "It must be a whole number, at least 1."),
        (positive, Real, lambda value: math.isfinite(value) and value > 0.0, "It must be finite and above 0."),
        (rate, Real, lambda value: 0.0 <= value <= 1.0, "It must lie in [0, 1]."),
    ):
        for name, value in (values or {}).items():
            if not (isinstance(value, kind) and fits(value)):
                raise InvalidPolicy(f"{name} of {of} is {value!r}.", fix)
