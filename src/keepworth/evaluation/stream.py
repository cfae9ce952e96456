"""The matrix of arms over streams, orders and seeds: run it, keep every row, and lay out what was measured.

The systems under test are handed in as a function (arm, seed, family) -> one run; nothing here knows a recipe. A job is one
(family, order, seed) with all its arms, so that arms share the stream and the vectors made of it.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.evaluation.statistics import calibration
from keepworth.rollouts.stream import ROLLBACK, StreamRun

Job = tuple[str, str, int]
"""family, order, seed."""
RunJob = Callable[[Job], "list[StreamRow]"]


@dataclass(frozen=True, slots=True)
class StreamRow:
    """One arm on one stream. bits: success per task as a string of 0 and 1; held_out_bits: the same for held-out tasks, checks:
    at the checkpoints before; words: read by the agent for one task, situation and memory; detection: per hostile source, as in
    StreamRun."""

    family: str
    order: str
    seed: int
    arm: str
    bits: str
    held_out_bits: str
    calls: float
    target: float
    triggered: int
    clean: float
    content: float
    routing: float
    items: int
    seconds: float
    overhead: float
    predicted: tuple[float, ...] = ()
    realised: tuple[float, ...] = ()
    target_late: float = float("nan")
    won_late: float = float("nan")
    words: float = float("nan")
    checks: tuple[str, ...] = ()
    detection: tuple[float, ...] = ()

    @property
    def auc(self) -> float:
        return self.bits.count("1") / len(self.bits)

    @property
    def final(self) -> float:
        return self.held_out_bits.count("1") / len(self.held_out_bits) if self.held_out_bits else float("nan")

    @property
    def forgotten(self) -> float:
        """Share of held-out tasks solved at some checkpoint and failed at the end."""
        if not self.checks or not self.held_out_bits:
            return float("nan")
        solved = ["1" in before for before in zip(*self.checks, strict=True)]
        return sum(was and now == "0" for was, now in zip(solved, self.held_out_bits, strict=True)) / len(
            self.held_out_bits
        )


def row(name: str, order: str, seed: int, arm: str, run: StreamRun) -> StreamRow:
    """What is kept of a run. clean: success on the tasks without the attacker's trigger; target_late, won_late: what the
    attacker got, and success, on triggered tasks after the time at which the rollback arm rolls back."""
    plain = run.success[~run.triggered]
    late = run.triggered.copy()
    late[: int(ROLLBACK * len(late))] = False
    return StreamRow(
        name,
        order,
        seed,
        arm,
        _bits(run.success),
        _bits(run.held_out),
        float(run.calls.mean()),
        float(np.nanmean(run.target)) if run.triggered.any() else float("nan"),
        int(run.triggered.sum()),
        float(plain.mean()) if len(plain) else float("nan"),
        _mean(run.content),
        _mean(run.routing),
        run.items,
        run.seconds,
        1000.0 * float(np.median(run.overhead)) if run.overhead else float("nan"),
        tuple(round(value, 4) for value in run.predicted),
        tuple(run.realised),
        float(np.nanmean(run.target[late])) if late.any() else float("nan"),
        float(run.success[late].mean()) if late.any() else float("nan"),
        float(run.words.mean()),
        tuple(_bits(check) for check in run.checks),
        tuple(run.detection),
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
    """All rows. Each finished job is appended to `path` at once and is not run again when the matrix is started anew.

    `run_job` must be importable by name where workers > 1; rows do not depend on the number of workers."""
    kept = load(path) if path.exists() else []
    wanted = set(jobs)
    finished = {(each.family, each.order, each.seed) for each in kept}
    left = [job for job in jobs if job not in finished]
    done = len(jobs) - len(left)
    with path.open("a", encoding="utf-8") as file:

        def keep(rows: list[StreamRow]) -> None:
            file.write("".join(line(each) for each in rows))
            file.flush()
            kept.extend(rows)

        if workers <= 1:
            for number, job in enumerate(left, start=1):
                keep(run_job(job))
                if progress:
                    progress(done + number, len(jobs))
        else:
            # Ctrl-C reaches every process of a terminal: this one tells the others.
            ignored = (signal.SIGINT, signal.SIG_IGN)
            others = set(active_children())
            with ProcessPoolExecutor(workers, get_context("spawn"), signal.signal, ignored) as pool:
                try:
                    waiting = [pool.submit(run_job, job) for job in left]
                    for number, future in enumerate(as_completed(waiting), start=1):
                        keep(future.result())
                        if progress:
                            progress(done + number, len(jobs))
                except BaseException:
                    for each in set(active_children()) - others:
                        each.terminate()
                    pool.shutdown(
                        cancel_futures=True
                    )  # its own thread alone waits for them: two that do may both miss the end
                    raise
    place = {job: number for number, job in enumerate(jobs)}
    rows = [each for each in kept if (each.family, each.order, each.seed) in wanted]
    return sorted(rows, key=lambda each: place[each.family, each.order, each.seed])


def line(each: StreamRow) -> str:
    return json.dumps({name: getattr(each, name) for name in StreamRow.__slots__}) + "\n"


def load(path: Path) -> list[StreamRow]:
    """Rows of a matrix; a torn last line (a run that was killed) is dropped."""
    found = []
    for part in path.read_text(encoding="utf-8").split("\n")[:-1]:
        values: dict[str, Any] = json.loads(part)
        for name, each in values.items():
            values[name] = tuple(each) if isinstance(each, list) else each
        found.append(StreamRow(**values))
    return found


class Results:
    """Rows by name, paired by (family, order, seed)."""

    def __init__(self, rows: Sequence[StreamRow]) -> None:
        self.rows = list(rows)
        self._by = {(each.family, each.order, each.seed, each.arm): each for each in rows}
        self.families = list(dict.fromkeys(each.family for each in rows))
        self.arms = list(dict.fromkeys(each.arm for each in rows))
        self.orders = list(dict.fromkeys(each.order for each in rows))
        self.seeds = sorted({each.seed for each in rows})

    def of(self, name: str, arm: str) -> list[StreamRow]:
        return [each for each in self.rows if each.family == name and each.arm == arm]

    def has(self, name: str, *arms: str) -> bool:
        return all(self.of(name, arm) for arm in arms)

    def differences(
        self, name: str, first: str, second: str, measure: Callable[[StreamRow], float] = lambda each: each.auc
    ) -> list[float]:
        """One number per cluster (seed): the mean over orders of first minus second."""
        found = []
        for seed in self.seeds:
            gaps = [
                measure(self._by[name, order, seed, first]) - measure(self._by[name, order, seed, second])
                for order in self.orders
                if (name, order, seed, first) in self._by and (name, order, seed, second) in self._by
            ]
            if gaps:
                found.append(float(np.mean(gaps)))
        return found

    def held_out(self, name: str, arm: str) -> list[float]:
        return [float(bit) for each in self.of(name, arm) for bit in each.held_out_bits]


def table(results: Results) -> dict[str, dict[str, dict[str, Any]]]:
    """Per family and arm: means over orders and seeds, and how calibrated the values were.

    transfer: held-out success less that without memory; forgetting: less that of the arm `none`, where it was run."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in results.families:
        found[name] = {}
        for arm in results.arms:
            rows = results.of(name, arm)
            if not rows:
                continue
            per_order = [np.mean([each.auc for each in rows if each.order == order]) for order in results.orders]
            spread = [np.mean([r.auc for r in rows if r.seed == seed]) for seed in results.seeds]
            found[name][arm] = {
                "auc": _mean([each.auc for each in rows]),
                "auc_error": float(np.std(spread, ddof=1) / np.sqrt(len(spread))) if len(spread) > 1 else None,
                "held_out": _mean([each.final for each in rows]),
                "held_out_per_order": {
                    order: _mean([each.final for each in rows if each.order == order]) for order in results.orders
                },
                "transfer": _mean(results.differences(name, arm, "none", lambda each: each.final)),
                "forgetting": _mean([each.forgotten for each in rows])
                - (_mean([each.forgotten for each in results.of(name, "none")]) if results.has(name, "none") else 0.0),
                "order_gap": float(np.ptp(per_order)),
                "calls": _mean([each.calls for each in rows]),
                "success_per_call": _mean([each.auc / each.calls for each in rows]),
                "words": _mean([each.words for each in rows]),
                "success_per_1000_words": _mean([1000.0 * each.auc / each.words for each in rows if each.words]),
                "attack": _mean([each.target for each in rows]),
                "clean": _mean([each.clean for each in rows]),
                "content_loss": _mean([each.content for each in rows]),
                "routing_loss": _mean([each.routing for each in rows]),
                "items": _mean([float(each.items) for each in rows]),
                "seconds": _mean([each.seconds for each in rows]),
                "recall_ms": _mean([each.overhead for each in rows]),
                "calibration": calibration(
                    [value for each in rows for value in each.predicted],
                    [value for each in rows for value in each.realised],
                ),
                "n": len(rows),
            }
    return found


WINDOW = 50


def curves(results: Results, name: str) -> dict[str, list[float]]:
    """Rolling success by task number, mean over seeds: the learning curve of each arm, in the first order that was asked for."""
    found = {}
    for arm in results.arms:
        rows = [each for each in results.of(name, arm) if each.order == results.orders[0]]
        if rows:
            shortest = min(len(each.bits) for each in rows)  # labels of a seed may have fewer tasks than were asked for
            mean = np.mean([[float(bit) for bit in each.bits[:shortest]] for each in rows], axis=0)
            width = min(WINDOW, len(mean))
            found[arm] = np.convolve(mean, np.ones(width) / width, mode="valid").round(4).tolist()
    return found


def _mean(values: Any) -> float:
    kept = np.asarray(values, dtype=np.float64)
    kept = kept[np.isfinite(kept)]
    return float(kept.mean()) if len(kept) else float("nan")
