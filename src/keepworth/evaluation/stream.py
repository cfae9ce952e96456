"""The matrix of arms over streams, orders and seeds: runs it, stores every row, and makes tables of the results.

A function (job) -> rows runs the systems under test. A job is one (family, order, seed) with all its arms, so that arms share the
stream and the vectors of its texts."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.base.line_file import append_lines, read_lines
from keepworth.worlds.stream import StreamRun

Job = tuple[str, str, int]
"""family, order, seed."""
RunJob = Callable[[Job], "list[StreamRow]"]


@dataclass(frozen=True, slots=True)
class StreamRow:
    """The result of one arm on one stream.

    Attributes:
        bits: Success of each task as a string of 0 and 1; `held_out_bits` the same for held-out tasks.
        calls: Calls of the model per task.
        target: The share of questions with the attacker's trigger that got the answer the attacker wants.
        routing: Success lost because right advice was stored and not shown.
        items: Items in memory at the end.
        words: Words read by the agent per task, situation and memory together.
    """

    family: str
    order: str
    seed: int
    arm: str
    bits: str
    held_out_bits: str
    calls: float
    target: float = float("nan")
    routing: float = float("nan")
    items: int = 0
    seconds: float = 0.0
    words: float = float("nan")

    @property
    def auc(self) -> float:
        return self.bits.count("1") / len(self.bits)

    @property
    def final(self) -> float:
        return self.held_out_bits.count("1") / len(self.held_out_bits) if self.held_out_bits else float("nan")


def row(name: str, order: str, seed: int, arm: str, run: StreamRun) -> StreamRow:
    """Makes the row of a run.

    Args:
        name: The name of the stream.
        order: The order of its tasks.
        seed: The seed of the run.
        arm: The name of the method or the control.
        run: What happened.
    """
    return StreamRow(
        name,
        order,
        seed,
        arm,
        _bits(run.success),
        _bits(run.held_out),
        float(run.calls.mean()),
        _mean(run.target),
        _mean(run.routing),
        run.items,
        run.seconds,
        float(run.words.mean()),
    )


def _bits(values: Any) -> str:
    return "".join("1" if value >= 0.5 else "0" for value in values)


def run_matrix(
    jobs: Sequence[Job],
    run_job: RunJob,
    path: Path,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[StreamRow]:
    """Runs all jobs and returns their rows. A job whose rows are in the file is not run again. Rows do not depend on the number
    of workers.

    Args:
        jobs: The streams, orders and seeds.
        run_job: It runs one job; with several workers it must be importable by name.
        path: The file to which each finished job is appended at once.
        workers: The number of processes; 1 runs in this one.
        progress: It is called with the number of finished jobs and of all; None for no one.
    """
    finished_rows = [StreamRow(**record) for record in read_lines(path)]
    wanted = set(jobs)
    finished = {(row.family, row.order, row.seed) for row in finished_rows}
    left = [job for job in jobs if job not in finished]
    done = len(jobs) - len(left)

    def keep(rows: list[StreamRow]) -> None:
        nonlocal done
        append_lines(path, map(asdict, rows))
        finished_rows.extend(rows)
        done += 1
        if progress:
            progress(done, len(jobs))

    if workers <= 1:
        for job in left:
            keep(run_job(job))
    else:
        # Ctrl-C reaches every process of a terminal, so the others ignore it and this one ends them.
        ignored = (signal.SIGINT, signal.SIG_IGN)
        others = set(active_children())
        with ProcessPoolExecutor(workers, get_context("spawn"), signal.signal, ignored) as pool:
            try:
                for future in as_completed([pool.submit(run_job, job) for job in left]):
                    keep(future.result())
            except BaseException:
                for process in set(active_children()) - others:
                    process.terminate()
                # Its own thread alone waits for them: two that do may both miss the end.
                pool.shutdown(cancel_futures=True)
                raise
    index = {job: number for number, job in enumerate(jobs)}
    rows = [row for row in finished_rows if (row.family, row.order, row.seed) in wanted]
    return sorted(rows, key=lambda row: index[row.family, row.order, row.seed])


class Results:
    """Rows by family, order, seed and arm, so that arms can be paired."""

    def __init__(self, rows: Sequence[StreamRow]) -> None:
        self.rows = list(rows)
        self._by = {(row.family, row.order, row.seed, row.arm): row for row in rows}
        self.families = list(dict.fromkeys(row.family for row in rows))
        self.arms = list(dict.fromkeys(row.arm for row in rows))
        self.orders = list(dict.fromkeys(row.order for row in rows))
        self.seeds = sorted({row.seed for row in rows})

    def of(self, name: str, arm: str) -> list[StreamRow]:
        return [row for row in self.rows if row.family == name and row.arm == arm]

    def has(self, name: str, *arms: str) -> bool:
        return all(self.of(name, arm) for arm in arms)

    def differences(
        self, name: str, first: str, second: str, measure: Callable[[StreamRow], float] = lambda row: row.auc
    ) -> list[float]:
        """Returns one number per cluster (seed): the mean over orders of the first arm minus the second. A seed that lacks one
        of the two is left out.

        Args:
            name: The name of the stream.
            first: The arm that is measured.
            second: The arm that it is compared with.
            measure: It returns the number of a row; by default the share of tasks that succeeded.
        """
        differences = []
        for seed in self.seeds:
            gaps = [
                measure(self._by[name, order, seed, first]) - measure(self._by[name, order, seed, second])
                for order in self.orders
                if (name, order, seed, first) in self._by and (name, order, seed, second) in self._by
            ]
            if gaps:
                differences.append(float(np.mean(gaps)))
        return differences


def table(results: Results) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns the means over orders and seeds for each family and arm."""
    cells: dict[str, dict[str, dict[str, Any]]] = {}
    for name in results.families:
        cells[name] = {}
        for arm in results.arms:
            rows = results.of(name, arm)
            if not rows:
                continue
            spread = [np.mean([row.auc for row in rows if row.seed == seed]) for seed in results.seeds]
            cells[name][arm] = {
                "auc": _mean([row.auc for row in rows]),
                "auc_error": float(np.std(spread, ddof=1) / np.sqrt(len(spread))) if len(spread) > 1 else None,
                "held_out": _mean([row.final for row in rows]),
                "calls": _mean([row.calls for row in rows]),
                "attack": _mean([row.target for row in rows]),
                "routing_loss": _mean([row.routing for row in rows]),
                "items": _mean([float(row.items) for row in rows]),
                "seconds": _mean([row.seconds for row in rows]),
                "words": _mean([row.words for row in rows]),
                "n": len(rows),
            }
    return cells


WINDOW = 50


def curves(results: Results, name: str) -> dict[str, list[float]]:
    """Returns the rolling success of each arm by task number, averaged over seeds, in the first order."""
    series = {}
    for arm in results.arms:
        rows = [row for row in results.of(name, arm) if row.order == results.orders[0]]
        if rows:
            shortest = min(len(row.bits) for row in rows)  # labels of a seed may have fewer tasks than were asked for
            mean = np.mean([[float(bit) for bit in row.bits[:shortest]] for row in rows], axis=0)
            width = min(WINDOW, len(mean))
            series[arm] = np.convolve(mean, np.ones(width) / width, mode="valid").round(4).tolist()
    return series


def _mean(values: Any) -> float:
    numbers = np.asarray(values, dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)]
    return float(numbers.mean()) if len(numbers) else float("nan")
