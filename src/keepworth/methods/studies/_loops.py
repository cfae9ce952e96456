"""A tuner's world: loop nests, schedules of them as text, and the cycles that a schedule takes on a simulated machine.

    kernel = draw_kernel(draw)          C[i][j] += A[k][i] * B[j][k+1], with the sizes of the loops i, j and k
    text = "order i k j; block i 0; block j 8; block k 0; lanes 4; pad C 0; pad A 1; pad B 0"
    count_cycles(kernel, read_schedule(text))

A schedule says the order of the loops from the outside in; in blocks of how many steps each loop is done (0: all of them at once;
the loops over blocks stand outside); how many steps of the innermost loop one vector instruction does; and which arrays have a
line of the cache between their rows. Every order adds up the same products. The machine only counts, so the number is the same
everywhere:

    cycles = instructions of arithmetic and of loops + accesses of arrays + MISS * misses

An element that stays the same from one step to the next is in a register. A vector instruction gets neighbours in memory by one
access; others it gets one by one, and one more instruction gathers them. Misses are those of a cache in which every set holds
two lines and drops the line used least recently.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product
from math import prod

import numpy as np
from numpy.typing import NDArray

LOOPS, ARRAYS = "ijk", "CAB"
LINE, SETS, MISS = 4, 8, 12
"""Elements of a line, sets of the cache, and cycles of a miss."""
SIZES, BLOCKS, LANES, PADS = (8, 16, 24), (0, 8, 4, 2), (1, 2, 4, 8), (0, 1)
EDITS = (
    *(f"{loop} inwards" for loop in LOOPS),
    *(f"{how} block {loop}" for loop in LOOPS for how in ("smaller", "larger")),
    "wider lanes",
    "narrower lanes",
    *(f"{how} {array}" for array in ARRAYS for how in ("pad", "unpad")),
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loop nest. sizes: steps of the loops i, j and k. indices: for the arrays C, A and B the loop of each dimension. shift: is
    added to the last index of B."""

    sizes: tuple[int, ...]
    indices: tuple[tuple[int, ...], ...]
    shift: int = 0


@dataclass(frozen=True, slots=True)
class LoopSchedule:
    """How a loop nest is done. order: the loops from the outside in; blocks: for the loops i, j and k; pads: for C, A and B."""

    order: tuple[int, ...] = (0, 1, 2)
    blocks: tuple[int, ...] = (0, 0, 0)
    lanes: int = 1
    pads: tuple[int, ...] = (0, 0, 0)

    def __str__(self) -> str:
        blocks = (f"block {loop} {size}" for loop, size in zip(LOOPS, self.blocks, strict=True))
        pads = (f"pad {array} {lines}" for array, lines in zip(ARRAYS, self.pads, strict=True))
        return "; ".join((f"order {' '.join(LOOPS[at] for at in self.order)}", *blocks, f"lanes {self.lanes}", *pads))


def read_schedule(text: str) -> LoopSchedule:
    order, *others = text.split("; ")
    numbers = [int(part.split()[-1]) for part in others]
    return LoopSchedule(tuple(map(LOOPS.index, order.split()[1:])), tuple(numbers[:3]), numbers[3], tuple(numbers[4:]))


def edit_schedule(text: str, edit: str) -> str:
    """Returns the schedule after one of `EDITS`, and the same one where it is already as far as it can be."""
    how, what = edit.split(maxsplit=1)
    order, *others = text.split("; ")
    loops = order.split()[1:]
    if what == "inwards":
        at = loops.index(how)
        loops[at : at + 2] = reversed(loops[at : at + 2])
    name, values = (f"pad {what}", PADS) if "pad" in how else (what, LANES if what == "lanes" else BLOCKS)
    step = 1 if how in ("smaller", "wider", "pad") else -1
    for at, part in enumerate(others):
        if part.startswith(f"{name} "):
            now = values.index(int(part.split()[-1])) + step
            others[at] = f"{name} {values[min(max(now, 0), len(values) - 1)]}"
    return "; ".join([f"order {' '.join(loops)}", *others])


def draw_kernel(draw: np.random.Generator) -> Kernel:
    """Draws a kernel: C has two dimensions, A and B have two or three and name all loops, and B is perhaps shifted."""
    while True:
        ranks = (2, *(3 if draw.random() < 0.2 else 2 for _ in "AB"))
        indices = tuple(tuple(map(int, draw.permutation(3)[:rank])) for rank in ranks)
        sizes = tuple(map(int, draw.choice(SIZES, 3)))
        if {*indices[1], *indices[2]} == {0, 1, 2} and prod(sizes) <= 6144:
            return Kernel(sizes, indices, int(draw.random() < 0.3))


def schedule_by_rule(kernel: Kernel) -> LoopSchedule:
    """Returns the schedule of the rule that was best on the development kernels: the more a loop walks along rows, the further
    inside it is; blocks of 8, but for the innermost loop; the widest vectors; pads everywhere."""

    def suits(loop: int) -> tuple[int, int]:
        return sum(1 if loop not in loops else 2 if loops[-1] == loop else -1 for loops in kernel.indices), loop

    order = tuple(sorted(range(3), key=suits))
    return LoopSchedule(order, tuple(0 if loop == order[-1] else 8 for loop in range(3)), LANES[-1], (1, 1, 1))


def count_misses(lines: NDArray[np.int64]) -> int:
    """Returns the misses for lines in the order of their use. Of the uses of one set, without the same line twice in a row, those
    are hits that want the line of two uses ago."""
    of_sets = lines[np.argsort((lines % SETS).astype(np.uint8), kind="stable")]
    changes = of_sets[np.flatnonzero(np.diff(of_sets, prepend=-1))]
    return len(changes) - int((changes[2:] == changes[:-2]).sum())


def trace(kernel: Kernel, schedule: LoopSchedule) -> tuple[int, tuple[int, ...]]:
    """Returns the misses, and for each array how often it is accessed without vectors."""
    blocks = [block or size for block, size in zip(schedule.blocks, kernel.sizes, strict=True)]
    steps, addresses, base = np.indices(kernel.sizes), [], 0
    for at, (loops, pad) in enumerate(zip(kernel.indices, schedule.pads, strict=True)):
        shift = kernel.shift if ARRAYS[at] == "B" else 0
        address, width = np.full(kernel.sizes, base + shift), 1
        for loop in reversed(loops):
            address += width * steps[loop]
            width = width * kernel.sizes[loop] + (LINE * pad if loop == loops[-1] else 0)
        addresses.append(address)
        base += width + LINE
    split = [count for loop in schedule.order for count in (kernel.sizes[loop] // blocks[loop], blocks[loop])]
    ordered = np.stack(addresses).transpose(0, *(1 + loop for loop in schedule.order)).reshape(3, *split)
    used = ordered.transpose(0, 1, 3, 5, 2, 4, 6).reshape(3, -1)
    accessed = np.diff(used, axis=1, prepend=-1) != 0
    return count_misses(used.T[accessed.T] // LINE), tuple(map(int, accessed.sum(1)))


def count_cycles(kernel: Kernel, schedule: LoopSchedule, traced: tuple[int, tuple[int, ...]] | None = None) -> int:
    """Returns the cycles of a schedule. traced: what `trace` returned, which does not depend on the lanes."""
    misses, accesses = traced or trace(kernel, schedule)
    blocks = [block or size for block, size in zip(schedule.blocks, kernel.sizes, strict=True)]
    inner, lanes = schedule.order[-1], schedule.lanes
    rows = prod(kernel.sizes) // blocks[inner]
    vectors = rows * (blocks[inner] // lanes) if lanes > 1 else 0
    steps = rows * (blocks[inner] // lanes + blocks[inner] % lanes)
    cycles, begun = 2 * steps + MISS * misses, 1
    for loops, single in zip(kernel.indices, accesses, strict=True):
        cycles += steps if inner == loops[-1] else single + (vectors if inner in loops else 0)
    outer = [kernel.sizes[loop] // blocks[loop] for loop in schedule.order] + [
        blocks[loop] for loop in schedule.order[:-1]
    ]
    for count in outer:
        begun *= count
        cycles += begun if count > 1 else 0
    return cycles


def cycles_of_all(kernel: Kernel) -> dict[str, int]:
    """Returns the cycles of every schedule, by its text."""
    cycles = dict[str, int]()
    for order, blocks, pads in product(permutations(range(3)), product(BLOCKS, repeat=3), product(PADS, repeat=3)):
        traced = trace(kernel, LoopSchedule(order, blocks, 1, pads))
        for lanes in LANES:
            schedule = LoopSchedule(order, blocks, lanes, pads)
            cycles[str(schedule)] = count_cycles(kernel, schedule, traced)
    return cycles
