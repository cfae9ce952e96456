"""What the measurements of control share: rows that are measured one by one, each written with those before it."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch

from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine

Row = dict[str, Any]
T = TypeVar("T")
"""The rows that a cell gives: one, or several."""


def cell_arguments(about: str | None, *, steps: int = 0, **lists: Sequence[str]) -> ArgumentParser:
    """A parser of seeds and of what the cells are made of, all of it where nothing is named. steps: of a cell, by default."""
    parser = arguments(about)
    for name, values in lists.items():
        parser.add_argument(f"--{name}", nargs="*", default=list(values))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--processes", type=int, default=1, help="that measure cells beside one another, where cells allow it"
    )
    if steps:
        parser.add_argument("--steps", type=int, default=steps, help="of all worlds of a cell together")
    return parser


def spread(measure: Callable[..., T], cells: Sequence[tuple[Any, ...]], processes: int) -> Iterator[T]:
    """Measures cells in several processes of one thread each, and yields what was measured in order.

    Args:
        measure: Measures a cell, of what it is made of.
        cells: What each cell is made of.
        processes: How many processes.
    """
    if processes < 2:
        yield from (measure(*cell) for cell in cells)
    else:
        with ProcessPoolExecutor(processes, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(measure, *zip(*cells, strict=True))


def collect(
    name: str,
    words: Sequence[str] | None,
    path: Path | None,
    rows: Iterable[Row],
    report: Callable[[list[Row]], Row],
    packages: Sequence[str] = ("torch", "gymnasium", "numpy"),
) -> None:
    """Prints each row, and writes all that are there.

    Args:
        name: Of the measurement.
        words: What the command was given; of this process where None.
        path: The file to write.
        rows: Measured as they are asked for.
        report: From the rows so far to what is written beside command and machine.
        packages: Whose versions are written.
    """
    torch.set_num_threads(1)
    given = " ".join(sys.argv[1:] if words is None else words)
    done: list[Row] = []
    about = {"command": f"python -m benchmarks.control.{name} {given}".strip(), "machine": machine(1, packages)}
    for row in rows:
        done.append(row)
        print(json.dumps(row), flush=True)
        save(path, {**about, **report(done)})
