"""A replay of sequences: rows of what was played or logged, in rings, from which windows of consecutive rows are drawn.

A row is a step: its observation, whether an episode starts with it, its action, reward, and whether the episode terminated. An
episode that was cut off ends with a row that has its last observation and no step. So the row after a step has its next
observation, unless the episode terminated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from keepworth.base.needs import needs_control

import torch
from torch import Tensor

from keepworth.control.memory_base import SequenceMemory, State
from keepworth.control.settings import SettingError

Columns = dict[str, Tensor]
"""By name the values of rows, [rows, ...]."""
PLAY = "play"
"""The source of what the learner plays itself."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of rows of a replay.

    Attributes:
        rows: The places of their rows, [windows, rows]. Each window has a row more than it has steps to learn from.
        before: The places of the rows before those, [windows, rows]; of those before a start any.
        lead: The places of the rows that are run before each window to compute the memory's state, [windows, most].
        lead_before: The places of the rows before those.
        lead_mask: Which of `lead` there are, [windows, most], from the left.
    """

    rows: Tensor
    before: Tensor
    lead: Tensor
    lead_before: Tensor
    lead_mask: Tensor

    def take(self, which: Tensor) -> Windows:
        """Returns some of the windows. which: their numbers."""
        return Windows(
            self.rows[which], self.before[which], self.lead[which], self.lead_before[which], self.lead_mask[which]
        )


class SequenceReplay:
    """Rows in rings, one ring per world or log. A full ring forgets its oldest row.

    Attributes:
        columns: The rows' values: those of the blank row, `source`, the number of its source, and `age`, steps since the start
            of its episode.
        sources: The names of the sources.
    """

    def __init__(self, blank: Columns, rings: Mapping[str, Sequence[int]]) -> None:
        """Makes empty rings.

        Args:
            blank: A row of each column, [1, ...], which gives its shape and type.
            rings: By source, the rows of each of its rings.

        Raises:
            SettingError: The rows are more than the free memory holds.
        """
        self.sources = list(rings)
        sizes = [size for of_source in rings.values() for size in of_source]
        _check_memory(blank, sum(sizes), sum(rings.get(PLAY, ())))
        self._sizes = torch.tensor(sizes)
        self._offsets = self._sizes.cumsum(0) - self._sizes
        self._source_of_ring = torch.tensor([i for i, part in enumerate(rings.values()) for _ in part])
        self._next, self._count = torch.zeros_like(self._sizes), torch.zeros_like(self._sizes)
        self.columns = {name: torch.zeros(sum(sizes), *row.shape[1:], dtype=row.dtype) for name, row in blank.items()}
        self.columns["source"] = self._source_of_ring.to(torch.int16).repeat_interleave(self._sizes)
        self.columns["age"] = torch.zeros(sum(sizes), dtype=torch.int32)

    def write(self, rings: Sequence[int], values: Columns) -> None:
        """Appends a row to each of some rings.

        Args:
            rings: The numbers of the rings, each at most once.
            values: The rows' values, [rings, ...].
        """
        at = torch.as_tensor(rings, dtype=torch.long)
        last = self._offsets[at] + (self._next[at] - 1) % self._sizes[at]
        age = torch.where(values["starts"] | (self._count[at] == 0), 0, self.columns["age"][last] + 1)
        places = self._offsets[at] + self._next[at]
        for name, column in values.items():
            self.columns[name][places] = column
        self.columns["age"][places] = age.to(torch.int32)
        self._next[at] = (self._next[at] + 1) % self._sizes[at]
        self._count[at] = torch.minimum(self._count[at] + 1, self._sizes[at])

    def fill(self, ring: int, values: Columns) -> None:
        """Appends consecutive rows, which begin with the start of an episode, to a ring that has room for them.

        Args:
            ring: The number of the ring.
            values: The rows' values, [rows, ...].
        """
        count = len(values["starts"])
        first = int(self._offsets[ring] + self._next[ring])
        for name, column in values.items():
            self.columns[name][first : first + count] = column
        rows = torch.arange(count)
        begins = torch.where(values["starts"], rows, 0).cummax(0).values
        self.columns["age"][first : first + count] = (rows - begins).to(torch.int32)
        self._next[ring] = (self._next[ring] + count) % self._sizes[ring]
        self._count[ring] += count

    def cut(self) -> None:
        """Marks the newest row of each ring of what was played as no step, where new episodes begin without their ends."""
        played = (self._source_of_ring == self.sources.index(PLAY)) & (self._count > 0)
        self.columns["valid"][self._offsets[played] + (self._next[played] - 1) % self._sizes[played]] = False

    def windows(self, length: int) -> Tensor:
        """Returns how many windows of `length` steps each ring has, [rings]. A full ring's oldest row only precedes others."""
        return (self._count - length - (self._count == self._sizes).long()).clamp(min=0)

    def count(self, source: str, length: int) -> int:
        """Returns how many windows of `length` steps a source has."""
        return int(self.windows(length)[self._source_of_ring == self.sources.index(source)].sum())

    def episodes(self, source: str) -> list[Tensor]:
        """Returns the places of the steps of each whole episode of a source. The last one counts once another has begun."""
        whole = list[Tensor]()
        for ring in (self._source_of_ring == self.sources.index(source)).nonzero().ravel().tolist():
            rows, _ = self._places(torch.tensor([ring]), torch.tensor([0]), int(self._count[ring]))
            begins = self.columns["starts"][rows[0]].nonzero().ravel()
            for first, after in pairwise(begins.tolist()):
                places = rows[0, first:after]
                whole.append(places[self.columns["valid"][places]])
        return whole

    def draw(self, batch: int, length: int, lead: int, shares: Mapping[str, float], draw: torch.Generator) -> Windows:
        """Draws windows with replacement.

        Args:
            batch: How many.
            length: Steps of a window, which has a row more.
            lead: The most rows of the same episode that are run before a window.
            shares: The share of each source; without any, all windows are as likely.
            draw: The source of the random numbers.
        """
        counts = self.windows(length)
        if shares:
            ends = torch.tensor(list(shares.values()), dtype=torch.float64).cumsum(0).mul(batch).round().long()
            numbers = ends.diff(prepend=torch.zeros(1, dtype=torch.long)).tolist()
            drawn = [
                self._draw(number, counts * (self._source_of_ring == self.sources.index(name)), draw)
                for name, number in zip(shares, numbers, strict=True)
                if number
            ]
            ring, first = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        else:
            ring, first = self._draw(batch, counts, draw)
        first = first + (self._count == self._sizes).long()[ring]
        rows, before = self._places(ring, first, length + 1)
        if not lead:
            none = rows[:, :0]
            return Windows(rows, before, none, none, none.bool())
        ages = self.columns["age"][rows[:, 0]].long()
        of_lead = torch.minimum(torch.minimum(ages, first), torch.tensor(lead))
        # The oldest row of a full ring has no row before it, so that it is not run.
        of_lead -= ((of_lead == first) & (self._count == self._sizes)[ring]).long()
        most = int(of_lead.max())
        lead_rows, lead_before = self._places(ring, first - of_lead, most)
        return Windows(rows, before, lead_rows, lead_before, torch.arange(most) < of_lead.unsqueeze(1))

    def _draw(self, batch: int, counts: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws rings and the numbers of windows in them, all windows as likely."""
        ends = counts.cumsum(0)
        number = torch.randint(int(ends[-1]), (batch,), generator=draw)
        ring = torch.searchsorted(ends, number, right=True)
        return ring, number - (ends - counts)[ring]

    def _places(self, ring: Tensor, first: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """The places of rows and of those before them; `first` counts from the oldest row of a ring."""
        begin = (self._next - self._count)[ring] + first
        places = begin.unsqueeze(1) + torch.arange(-1, length)
        places = self._offsets[ring].unsqueeze(1) + places % self._sizes[ring].unsqueeze(1)
        return places[:, 1:], places[:, :-1]

    def save(self) -> dict[str, Any]:
        """Returns the rows that there are."""
        filled = torch.cat([torch.arange(int(n)) + int(at) for n, at in zip(self._count, self._offsets, strict=True)])
        columns = {name: column[filled].clone() for name, column in self.columns.items() if name != "source"}
        return {"next": self._next.clone(), "count": self._count.clone(), "columns": columns}

    def load(self, saved: dict[str, Any]) -> None:
        """Takes the result of `save` of a replay of the same rings."""
        self._next, self._count = saved["next"].clone(), saved["count"].clone()
        filled = torch.cat([torch.arange(int(n)) + int(at) for n, at in zip(self._count, self._offsets, strict=True)])
        for name, column in saved["columns"].items():
            self.columns[name][filled] = column


def run_lead(memory: SequenceMemory, inputs: Tensor, starts: Tensor, mask: Tensor) -> State:
    """Returns the memory's state after some rows, without a gradient; the initial one after none.

    Args:
        memory: The sequence memory that is run.
        inputs: Its inputs at those rows, [batch, rows, input_size].
        starts: Where episodes start, [batch, rows], Boolean.
        mask: Which rows there are, [batch, rows], from the left.
    """
    state = memory.initial_state(len(mask))
    if not mask.shape[1]:
        return state
    with torch.no_grad():
        _, after = memory(inputs, state, starts, mask)
    some = mask.any(1)
    return tuple(torch.where(some.view(-1, *(1,) * (b.ndim - 1)), a, b) for a, b in zip(after, state, strict=True))


def _check_memory(blank: Columns, rows: int, played: int) -> None:
    of_row = sum(row.numel() * row.element_size() for row in blank.values()) + 6
    free = free_bytes()
    if free is None or rows * of_row <= free:
        return
    least = free - (rows - played) * of_row
    if least <= 0:
        raise SettingError(
            f"The logs have {rows - played} rows of {of_row} bytes, and {free / 1e9:.3g} GB of memory are free.",
            f"Read the first episodes alone, such that they have {int(free / of_row * 0.8)} rows or less: "
            "read_logs(folder, episodes=...).",
        )
    raise SettingError(
        f"capacity = {played} makes a replay of {rows * of_row / 1e9:.3g} GB ({of_row} bytes per row), and "
        f"{free / 1e9:.3g} GB of memory are free.",
        f"Set capacity to {int(least / of_row * 0.8)} or less.",
    )


def free_bytes() -> int | None:
    """Returns the bytes of memory that are free, None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
