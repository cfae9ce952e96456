"""The record of rewards as columns, which are saved in the file: a process that opens it goes on as the one before would have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory.choose.named import ROLES
from keepworth.memory.choose.pool import grown
from keepworth.memory.choose.rewards import Trust
from keepworth.memory.search.index import of_eight_bits
from keepworth.methods.policies.default.choices import DIGEST, INTEGERS, NUMBERS, Choices

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Vectors

_NAMES = ("numbered", "actions", "persons", "sources", "holders")
_SUMS = ("total", "size", "slates", "steps", "tried", "hoped", "sum", "squares", "number")
EXACT = float(1 << 24)
"""Up to here, sums of whole numbers are exact in 32 bits, in whatever order they are added."""


class SavedChoices(Choices):
    """Choices that can be saved and loaded to the bit."""

    def save(self) -> dict[str, Any]:
        """Return the rows, the numbers of names, the sums, the ledger and what the estimates' predictions earned."""
        count, end, names = self._count, int(self._ends[self._count]), self._numbers
        places, trust, uneven = self._places, self._trust, self._uneven[: len(names)]
        return {
            "integers": np.stack([getattr(self, f"_{name}")[:count] for name in INTEGERS], axis=1).astype("<i4"),
            "numbers": np.stack([getattr(self, f"_{name}")[:count] for name in NUMBERS], axis=1),
            "flags": np.column_stack([self._counts[:count], self._roles[:count]]),
            "lengths": np.diff(self._ends[: count + 1]).astype("<i4"),
            "shown": self._shown[:end],
            "room": [len(self._rewards), len(self._shown), len(self._place)],
            "codes": self._codes[: len(names)],
            "uneven": uneven,
            "vectors": self._questions[: len(names)][uneven],
            "keys": np.frombuffer(b"".join(key or bytes(DIGEST) for key in names), np.uint8).reshape(-1, DIGEST),
            "names": [list(getattr(self, f"_{name}")) for name in _NAMES],
            "sums": [getattr(self, f"_{name}") for name in _SUMS],
            "pairs": np.array(list(self._pairs), "<i4").reshape(-1, 2),
            "of_pairs": np.array(list(self._pairs.values()), "<f8").reshape(-1, 2),
            "acted_for": sorted(self._acted_for),
            "decisions": list(places),
            "places": np.array([row for rows in places.values() for row in rows], "<i4"),
            "rows": np.array([len(rows) for rows in places.values()], "<i4"),
            "holders": [self._losses, self._by_holder],
            "trust": [dict(trust.doubts), dict(trust.standing), list(trust.numbers), trust.spoken],
            "likelihood": self._likelihood,
            "ledger": self.ledger.save(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `save` returned. Columns get the room that they had, so that rows are dropped when they would be."""
        room, shown_room, places_room = state["room"]
        for names, columns in ((INTEGERS, state["integers"].astype(np.int64)), (NUMBERS, state["numbers"])):
            for name, column in zip(names, columns.T, strict=True):
                setattr(self, f"_{name}", grown(column, room))
        self._counts, self._roles = grown(state["flags"][:, 0], room), grown(state["flags"][:, 1:], room, len(ROLES))
        self._count, lengths = len(state["integers"]), state["lengths"].astype(np.int64)
        self._ends = grown(np.concatenate([[0], lengths.cumsum()]), room + 1)
        self._shown, self._place = grown(state["shown"], shown_room), np.full(places_room, -1)
        self._codes, self._uneven, keys = state["codes"], state["uneven"], state["keys"].tobytes()
        self._questions = _decoded(self._codes)
        self._questions[self._uneven] = state["vectors"]
        listed = [keys[begin : begin + DIGEST] for begin in range(0, len(keys), DIGEST)]
        self._numbers = {key if any(key) else b"": number for number, key in enumerate(listed)}
        for attribute, names in zip(_NAMES, state["names"], strict=True):
            setattr(self, f"_{attribute}", {name: number for number, name in enumerate(names)})
        self._reworded = {}
        for name in [name for name in self._numbered if "~" in name]:
            self._number_of_item(name)
        for attribute, value in zip(_SUMS, state["sums"], strict=True):
            setattr(self, f"_{attribute}", value)
        pairs = zip(map(tuple, state["pairs"].tolist()), map(tuple, state["of_pairs"].tolist()), strict=True)
        self._pairs, self._acted_for, self._names = dict(pairs), set(state["acted_for"]), []
        ends, rows = state["rows"].cumsum().tolist(), state["places"].tolist()
        begins_and_ends = zip(state["decisions"], [0, *ends], ends, strict=False)
        self._places = {decision: tuple(rows[begin:end]) for decision, begin, end in begins_and_ends}
        self._losses, self._by_holder = (column.copy() for column in state["holders"])
        self._trust = Trust()
        self._trust.doubts, self._trust.standing, speakers, spoken = state["trust"]
        self._trust.numbers, self._trust.spoken = {name: number for number, name in enumerate(speakers)}, spoken.copy()
        self._likelihood = state["likelihood"].copy()
        self.ledger.load(state["ledger"])
        self._weights.clear()
        self._nearest = None


def _decoded(codes: npt.NDArray[np.int8]) -> Vectors:
    """Return the unit vectors of quantised ones, bit for bit as `of_eight_bits` does."""
    rough = codes.astype(np.float32)
    squares = np.vecdot(rough, rough)
    lengths = np.sqrt(squares)
    lengths[lengths == 0.0] = 1.0
    vectors: Vectors = rough / lengths[:, None]
    for row in (squares >= EXACT).nonzero()[0]:
        vectors[row] = of_eight_bits(codes[row])
    return vectors
