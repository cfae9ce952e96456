"""The rewarded choices that the default policy remembers, as columns, with sums that change with each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from keepworth.memory.choose.ledger import Ledger
from keepworth.memory.choose.named import ROLES
from keepworth.memory.choose.pool import grown
from keepworth.memory.choose.record import QUORUM, PolicyRecord
from keepworth.memory.choose.rewards import Trust
from keepworth.memory.choose.slots import need
from keepworth.memory.choose.wordings import item_of
from keepworth.memory.search.index import in_eight_bits, of_eight_bits
from keepworth.methods.policies.default.constants import BANDWIDTH
from keepworth.methods.policies.default.models import CREDITS, MODELS, _Near, _Weights

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Vectors = npt.NDArray[np.float32]
    Rows = npt.NDArray[np.int64]


NEWEST = 20_000
"""Number of rewarded choices that are remembered: the latest ones, of which nobody pushes out those of who gave fewer. It bounds
the memory that a process needs, and the time of a search."""
INTEGERS = ("question", "lead", "action", "person", "voice", "holder", "source", "at")
NUMBERS = ("rewards", "weight", "credit", "lost", "claims", "parts")
"""Names of the columns of rows."""
DIGEST = 16
"""Bytes that stand for a question."""


class Choices(PolicyRecord):
    """The `newest` rewarded choices. What items say goes by `Candidates.names`. `bounds` are the lowest and the highest possible
    reward; for `bandwidth` see `BANDWIDTH`."""

    def __init__(
        self,
        bandwidth: float = BANDWIDTH,
        newest: int = NEWEST,
        bounds: tuple[float, float] = (0.0, 1.0),
        *,
        roles: bool = True,
        quorum: int = QUORUM,
    ) -> None:
        need("the record of rewards", positive={"bandwidth": bandwidth}, count={"newest": newest})
        if quorum != 0:
            need("the record of rewards", count={"quorum": quorum})
        self.quorum = quorum
        self.bandwidth, self.newest, self.bounds, self.roles = bandwidth, newest, bounds, roles
        self._questions: Vectors = np.zeros((0, 0), dtype=np.float32)
        self._codes: npt.NDArray[np.int8] = np.zeros(
            (0, 0), dtype=np.int8
        )  # the same in eight bits, as they are logged
        self._uneven = np.zeros(0, dtype=bool)  # whether a question is not exactly what its eight bits say
        self._numbers: dict[bytes, int] = {}
        self._question, self._lead, self._action, self._person, self._voice, self._holder, self._source, self._at = (
            np.zeros(0, dtype=np.int64) for _ in range(8)
        )
        self._rewards, self._weight, self._credit, self._lost = (np.zeros(0) for _ in range(4))
        # What the source of each row may count at most, and how much of it counts beside others about the same decision.
        self._claims, self._parts = np.zeros(0), np.zeros(0)
        self._counts = np.zeros(0, dtype=bool)  # whether each row counts, or was replaced or pushed out
        self._count = self._total = self._size = 0
        self._numbered: dict[str, int] = {"": 0}  # items that were shown and what stood first, by number
        self._reworded: dict[
            str, dict[int, None]
        ] = {}  # the numbers of what items said after they were reworded, by id
        self._place: Rows = np.zeros(0, dtype=np.int64)  # by item: its place in a list that is being looked up, else -1
        self._shown: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)  # the items of all rows, joined
        self._ends: Rows = np.zeros(1, dtype=np.int64)  # row r has the entries from _ends[r] to _ends[r + 1]
        self._actions: dict[str, int] = {"": 0}  # number by name; `_action` has that of each row
        self._roles = np.zeros((0, len(ROLES)), dtype=bool)  # the roles of the action of each row
        self._persons: dict[str, int] = {}  # number by name; `_person` has that of each row
        self._acted_for: set[int] = set()  # the persons for whom actions were taken
        self._places: dict[str, tuple[int, ...]] = {}  # by decision: its rows, one for each source of a reward
        self._sources: dict[
            str, int
        ] = {}  # number by name: whoever rewarded, or the channel of the program's own rewards
        self._names: list[str] = []  # the names of items by number, as far as they were needed
        self._nearest: tuple[Vectors, _Near] | None = None  # a question, and what is near it, until the next reward
        self._holders: dict[str, int] = {}  # number by name: in whose share of the window and of the budget a row is
        self._losses: Floats = np.zeros(64)  # by holder: what departures have cost in rows that count
        self._by_holder: Rows = np.zeros(64, dtype=np.int64)  # by holder: number of rows that count
        self._trust = Trust()
        self._slates = self._steps = False
        self._likelihood = np.zeros(2 + CREDITS * len(MODELS))
        self._weights: dict[int, _Weights] = {}  # until the next reward, as the next
        # By question and what stood first there: number and sum of rewards; and of all pairs, each of which counts once at most.
        self._pairs: dict[tuple[int, int], tuple[float, float]] = {}
        self._tried = self._hoped = 0.0
        self._sum = self._squares = self._number = 0.0
        self.ledger = Ledger()

    def __len__(self) -> int:
        return self._size

    def _rows_about(self, decision: str) -> list[int]:
        """Return the rows that count of the rewards of a decision."""
        return [row for row in self._places.get(decision, ()) if self._counts[row]] if decision else []

    def _next_to_go(self) -> int:
        """Return the oldest row of whoever has the most rows: nobody's rewards push out those of who gave fewer."""
        rows = self._counts[: self._count].nonzero()[0]
        held = self._by_holder[self._holder[rows]]
        return int(rows[(held == held.max()).argmax()])

    def _retire(self, row: int, *, pushed_out: bool = False) -> None:
        """Let a row count no more, as another replaces it or has pushed it out of the window."""
        self._count_in(row, -1.0)
        self._weight[row] = self._credit[row] = 0.0
        self._counts[row] = False
        if pushed_out:
            self.ledger.withdraw(int(self._at[row]))

    def _reweigh(self, row: int, counted: float) -> None:
        """Let a row count by another share, as it is one of several rewards about the same decision."""
        if counted == self._parts[row]:
            return
        factor, self._parts[row] = counted / self._parts[row], counted
        self._count_in(row, -1.0)
        self._weight[row] *= factor
        self._credit[row] *= factor
        self._count_in(row, 1.0)

    def _count_in(self, row: int, sign: float) -> None:
        """Add a row to the sums (sign 1), or take it out (-1)."""
        weight, reward = sign * float(self._weight[row]), float(self._rewards[row])
        pair = int(self._question[row]), int(self._lead[row])
        times, earned = self._pairs.get(pair, (0.0, 0.0))
        self._pairs[pair] = (more, gained) = times + weight, earned + weight * reward
        self._tried += min(1.0, more) - min(1.0, times)
        self._hoped += gained / max(1.0, more) - earned / max(1.0, times)
        self._number += weight
        self._trust.spoken[self._voice[row]] += weight
        self._sum += weight * reward
        self._squares += weight * reward * reward
        self._losses[self._holder[row]] += weight * float(self._lost[row])
        self._by_holder[self._holder[row]] += int(sign)
        self._size += int(sign)

    def _number_of(self, vector: Vectors) -> int:
        """Return the number of a question; a new question gets the next one."""
        codes = in_eight_bits(vector)
        key = blake2b(codes.tobytes(), digest_size=DIGEST).digest() if vector.any() else b""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            if number == len(self._questions):
                self._questions = grown(self._questions, max(64, 2 * number), len(vector))
                self._codes = grown(self._codes, max(64, 2 * number), len(vector))
                self._uneven = grown(self._uneven, max(64, 2 * number))
            self._questions[number], self._codes[number] = vector, codes
            self._uneven[number] = (self._questions[number] != of_eight_bits(codes)).any()
        return number

    def _number_of_holder(self, name: str) -> int:
        """Return the number of whoever has a share of the window and of the budget; a new one gets the next number."""
        number = self._holders.setdefault(name, len(self._holders))
        if number == len(self._by_holder):
            self._by_holder, self._losses = grown(self._by_holder, 2 * number), grown(self._losses, 2 * number)
        return number

    def _number_of_item(self, id: str) -> int:
        """Return the number of what an item says, or of an action that stood in for it; a new one gets the next number."""
        number = self._numbered.setdefault(id, len(self._numbered))
        if number >= len(self._place):
            self._place = np.full(max(64, 2 * number), -1)
        if "~" in id:
            self._reworded.setdefault(item_of(id), {})[number] = None
        return number

    def _append_shown(self, row: int, items: Sequence[int]) -> None:
        """Store the numbers of the items that a row showed."""
        begin, end = int(self._ends[row]), int(self._ends[row]) + len(items)
        if end > len(self._shown):
            self._shown = grown(self._shown, 2 * end)
        self._shown[begin:end], self._ends[row + 1] = items, end

    def _make_room(self, rows: Sequence[int] = ()) -> list[int]:
        """Grow the columns and drop rows that count no more. Rows and questions get new numbers; returned are the new numbers of
        `rows`."""
        live, lengths = self._counts[: self._count].nonzero()[0], np.diff(self._ends[: self._count + 1])
        moved = np.full(self._count, -1)
        moved[live] = np.arange(len(live))
        self._shown = self._shown[: self._ends[self._count]][self._counts[: self._count].repeat(lengths)]
        questions, self._question[live] = np.unique(self._question[live], return_inverse=True)
        again = {int(number): index for index, number in enumerate(questions)}
        self._questions, self._codes = self._questions[questions], self._codes[questions]
        self._uneven = self._uneven[questions]
        self._numbers = {key: again[number] for key, number in self._numbers.items() if number in again}
        self._pairs = {(again[of], first): pair for (of, first), pair in self._pairs.items() if of in again}
        places = ((id, tuple(int(moved[row]) for row in of if moved[row] >= 0)) for id, of in self._places.items())
        self._places = {id: of for id, of in places if of}
        size = max(64, 2 * len(live))
        for name in (*INTEGERS, *NUMBERS, "counts", "roles"):
            setattr(self, f"_{name}", grown(getattr(self, f"_{name}")[live], size))
        self._ends = grown(np.concatenate([[0], lengths[live].cumsum()]), size + 1)
        self._count = len(live)
        self.ledger.forget(int(self._at[0]))
        return [int(moved[row]) for row in rows]

    def _rows_of(self, action: str, person: int | None = None) -> Rows:
        """Return the rows, of the newest, in which an action was taken, for this person or for anybody."""
        number = self._actions.get(action) or -1
        rows: Rows = (self._action[: self._count] == number).nonzero()[0]
        return rows if person is None else rows[self._person[rows] == person]

    def _scaled(self, reward: float) -> float:
        """Map a reward to the scale 0 to 1; beyond the bounds it counts as the bound."""
        low, high = self.bounds
        return (min(max(reward, low), high) - low) / (high - low)

    def in_rewards(self, scaled: float) -> float:
        """Map a reward from the scale 0 to 1 to the scale on which it was given."""
        return self.bounds[0] + scaled * self.span

    @property
    def reach(self) -> tuple[float, float]:
        """The range in which rewards vary, on the scale 0 to 1.

        Rewards of 0 and 1 whose mean is m have the variance m (1 - m). Where rewards vary less, as those of a judge who says .5
        of what is wrong and .6 of what is right, the range around m is as much narrower as their standard deviation is smaller,
        so that a reward within it says as much as one of 0 or 1. Two imagined rewards, 0 and 1, let few narrow it by less.
        """
        mean, squares = (self._sum + 1.0) / (self._number + 2.0), (self._squares + 1.0) / (self._number + 2.0)
        width = math.sqrt((squares - mean * mean) / (mean * (1.0 - mean)))
        return (0.0, 1.0) if width > 0.999 else (mean * (1.0 - width), mean + (1.0 - mean) * width)

    def _within_reach(self, rewards: Floats) -> Floats:
        """Map rewards from the range in which they vary to the scale 0 to 1; beyond it they count as its ends."""
        low, high = self.reach
        within: Floats = ((rewards - low) / (high - low)).clip(0.0, 1.0) if high - low < 1.0 else rewards
        return within

    @property
    def span(self) -> float:
        return self.bounds[1] - self.bounds[0]

    @property
    def all_same(self) -> bool:
        """Return whether all rewards so far are equal, so that they cannot tell items apart."""
        return self._number * self._squares - self._sum * self._sum <= 1e-9 * self._number * self._number

    @property
    def all_lowest(self) -> bool:
        """Return whether all rewards so far are the lowest possible, so that nothing is lost by trying something else."""
        return self._number > 0.0 and self._squares <= 1e-9 * self._number
