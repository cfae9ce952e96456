"""Measures the rows of docs/appendix/speed.md that are missing, and goes on where it was stopped.

    python -m benchmarks.speed.run --list
    python -m benchmarks.speed.run --minutes 55 --trl-python /path/to/python     # again, until nothing is missing
    python -m benchmarks.speed.run --only "sampling"
    python -m benchmarks.pages speed

On an idle machine: nothing else may compute, and the load average is written down with every round. --trl-python is a Python
that has TRL (`pip install trl datasets`) and the same torch; without it, rows beside TRL are left out.
"""

from __future__ import annotations

import os
import time

from benchmarks.record import arguments
from benchmarks.speed import episodes, sampling, training_step
from benchmarks.speed.rows import Row
from benchmarks.speed.setting import machine

LONG = 3.0
"""Minutes of a round from which on a row waits for TRL's."""
BUSY = 0.7
"""Load average from which on a machine is not idle."""


def all_rows(trl_python: str) -> list[Row]:
    """In the order in which they are measured: the quick ones first, but TRL's settings before the steps that use them."""
    alone = [*sampling.rows(), *episodes.rows(), *training_step.recomputed_rows()]
    steps = training_step.rows(trl_python) if trl_python else []
    settings = training_step.setting_rows(trl_python) if trl_python else []
    short = [row for row in alone if row.minutes < LONG]
    return (
        short + settings + sorted([*(row for row in alone if row.minutes >= LONG), *steps], key=lambda row: row.minutes)
    )


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--minutes", type=float, default=55.0, help="begin nothing that would end later")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as this process has cores")
    parser.add_argument("--only", default="", help="rows whose table and name contain this")
    parser.add_argument("--list", action="store_true", help="what is measured, and how long the rest takes")
    parser.add_argument("--busy", action="store_true", help="measure although the machine is busy: to try it out")
    parser.add_argument("--trl-python", default=os.environ.get("TRL_PYTHON", ""), help="a Python that has TRL")
    options = parser.parse_args()
    chosen = [row for row in all_rows(options.trl_python) if options.only in f"{row.table}, {row.name}"]
    if options.list:
        for row in chosen:
            done = len(row.record()["rounds"])
            print(f"{row.table}, {row.name}: {done} of {row.rounds} rounds, {row.left():.0f} minutes left")
        print(f"together: {sum(row.left() for row in chosen):.0f} minutes left")
        return
    import torch

    threads = options.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    about = machine(threads)
    if about["load_average_at_start"] > BUSY and not options.busy:
        raise SystemExit(
            f"load average {about['load_average_at_start']:.1f}: wait until the machine is idle, or give --busy"
        )
    ends = time.monotonic() + 60 * options.minutes
    missing = [row for row in chosen if not row.measure(about, ends)]
    for row in missing:
        print(f"missing: {row.table}, {row.name}: {row.left():.0f} minutes")
    print("Run the same command again." if missing else "Complete: python -m benchmarks.pages speed")


if __name__ == "__main__":
    main()
