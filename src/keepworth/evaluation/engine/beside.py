"""Other memory stores beside the engine, on the same texts and vectors, in one run, each in a process of its own.

Each store is filled one item at a time, as agents write, until it holds `size` items or its time is up. On the way, at `common`
items, where every store can be compared, and at the end it answers queries, over everything and for one user. Where `strace`
is at hand, a short run of its own counts how often each store has the disk sync per add: that is its durability.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepworth.evaluation.engine.corpus import USERS, Corpus, corpus
from keepworth.evaluation.engine.stores import ENGINE, MEM0, POWER_SAFE, STORES, Peer, Store, named
from keepworth.evaluation.engine.timing import Figure, at, reading_limit, sync_limit, timed

ASKED = 100
SEARCHING = 10.0
"""Seconds of searching after which no further query is asked."""
SYNCED = (50, 150)
"""Sizes of the two fillings whose difference in syncs, over that in items, is the syncs of one add."""
KEYS = ("add", "search", "search one user")
SYNCS = "fsync,fdatasync,msync,sync_file_range"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far each store is filled: `size` items, or `seconds` of adding, with a look at `common` items on the way.

    slower_sync: milliseconds that every sync of the disk takes longer than it does, by strace: how the stores compare on another
    disk."""

    size: int
    common: int = 500
    seconds: float = 600.0
    seed: int = 0
    slower_sync: float = 0.0


def beside(bounds: Bounds, stores: Sequence[Store] = STORES) -> Iterator[dict[str, Any]]:
    """One record per store, in turn: how far it came and what it took, or why it "did not run"."""
    matrix = corpus(bounds.size, seed=bounds.seed).vectors
    for store in stores:
        record = _one(store, bounds)
        if "did not run" not in record:
            record["syncs per add"] = syncs_per_add(store)
            for where in ("at common size", "at the end"):
                if where in record:
                    record[where]["reading limit"] = reading_limit(matrix[: record[where]["items"]])
        yield record


def _one(store: Store, bounds: Bounds) -> dict[str, Any]:
    absent = store.absent()
    if absent:
        return {"name": store.name, "did not run": f"not installed: pip install {' '.join(absent)}"}
    given = json.dumps([store.name, bounds.size, bounds.common, bounds.seconds, bounds.seed])
    command = [*_slowed(bounds.slower_sync), *_command("measured"), given]
    done = subprocess.run(command, capture_output=True, text=True, env=_quiet())
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        # Where in whose build it was raised says nothing elsewhere.
        return {"name": store.name, "did not run": re.split(r",? /\S*/", reason)[0][:200]}
    record: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return record


def _slowed(milliseconds: float) -> list[str]:
    """The words before a command whose syncs are to take so much longer. Raises FileNotFoundError without strace."""
    if not milliseconds:
        return []
    strace = shutil.which("strace")
    if strace is None:
        raise FileNotFoundError("slower syncs need the program strace: install it, or leave slower_sync at 0")
    delay = f"inject={SYNCS}:delay_exit={round(1e3 * milliseconds)}"
    return [strace, "-f", "--seccomp-bpf", "-qq", "-e", f"trace={SYNCS}", "-e", delay, "-o", os.devnull]


def measured(given: str) -> None:
    """For a process of its own: fill one store, ask it, and write the record to standard output."""
    name, *rest = json.loads(given)
    store, bounds = named(name), Bounds(*rest)
    data = corpus(bounds.size, queries=ASKED, seed=bounds.seed)
    with tempfile.TemporaryDirectory() as folder:
        peer = store.open(data, Path(folder))
        adds: list[float] = []
        record: dict[str, Any] = {"name": name, "versions": store.versions()}
        spent = 0.0
        for number in range(bounds.size):
            start = time.perf_counter()
            peer.add(number)
            took = time.perf_counter() - start
            spent += took
            adds.append(1e3 * took)
            if number + 1 == bounds.common:
                record["at common size"] = {"items": bounds.common, **_figures(peer, store, adds)}
            if spent > bounds.seconds:
                break
        record["seconds of adding"] = spent
        record["at the end"] = {"items": len(adds), **_figures(peer, store, adds)}
        if not peer.search(0, "u1"):
            raise SystemExit(f"{name} found nothing for a user that has {len(adds) // USERS} items")
    sys.stdout.write(json.dumps(record) + "\n")


def _figures(peer: Peer, store: Store, adds: list[float]) -> dict[str, Any]:
    tail = sorted(adds[-max(200, len(adds) // 10) :])
    out: dict[str, Any] = {"add": (at(tail, 0.5), at(tail, 0.95)), "n_adds": len(tail)}
    users = (("search", None), ("search one user", "u1"))
    for name, user in users if store.everywhere else users[1:]:
        times = _search_times(peer, user)
        out[name] = at(times, 0.5), at(times, 0.95)
        out[f"n {name}"] = len(times)
    return out


def _search_times(peer: Peer, user: str | None) -> list[float]:
    """Milliseconds, sorted, of up to ASKED searches after ten to warm up; fewer where they take more than SEARCHING seconds."""
    end = time.perf_counter() + SEARCHING
    times: list[float] = []
    for query in range(ASKED):
        times += timed([lambda query=query: peer.search(query, user)], warm=0)  # type: ignore[misc]
        if time.perf_counter() > end and len(times) > 14:
            break
    return sorted(times[10:])


def filled(name: str, size: str) -> None:
    """For a process of its own: add `size` items and leave. For counting system calls."""
    with tempfile.TemporaryDirectory() as folder:
        data: Corpus = corpus(int(size), queries=ASKED)
        peer = named(name).open(data, Path(folder))
        for number in range(int(size)):
            peer.add(number)
        os._exit(0)  # no closing, which may sync too


def syncs_per_add(store: Store) -> float | None:
    """Calls of fsync, fdatasync and the like per add, from two fillings of different length; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    counts = []
    for size in SYNCED:
        with tempfile.NamedTemporaryFile("r", suffix=".strace") as log:
            command = [strace, "-f", "-e", f"trace={SYNCS}", "-o", log.name, *_command("filled"), store.name, str(size)]
            subprocess.run(command, capture_output=True, check=True, env=_quiet())
            text = Path(log.name).read_text()
            counts.append(len(re.findall(r"^\d+ +(?:fsync|fdatasync|msync|sync_file_range)\(", text, re.MULTILINE)))
    return (counts[1] - counts[0]) / (SYNCED[1] - SYNCED[0])


def _command(function: str) -> list[str]:
    code = f"import sys; from keepworth.evaluation.engine.beside import {function}; {function}(*sys.argv[1:])"
    return [sys.executable, "-c", code]


def _quiet() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def lines(records: Sequence[dict[str, Any]], sync: float) -> Iterator[Figure]:
    """The records of stores that ran, as lines of the engine's own table. sync: milliseconds of one sync of the disk."""
    for record in records:
        if "did not run" in record:
            continue
        end = record["at the end"]
        syncs = record["syncs per add"]
        note = f"at {end['items']:,} items, where {record['seconds of adding']:.0f} s of adding led"
        if syncs is not None:
            note += f"; {syncs:.0f} disk syncs per add"
        for key, name in zip(KEYS, ("add one", "search by meaning", "search one user"), strict=True):
            if key in end:
                limit = {"add": syncs * sync if syncs else None, "search": end["reading limit"]}.get(key)
                p50, p95 = end[key]
                yield Figure(f"{record['name']}: {name}", "ms", p50, p95, limit=limit, note=note, n=end["n_adds"])
    for name, store, target in (("as each comes", ENGINE, ">= 100"), ("both power-safe", POWER_SAFE, ">= 5")):
        times = ratio(records, store)
        if times is not None:
            note = f"one sync takes {sync:.2g} ms here"
            yield Figure(f"add: mem0 / this engine, {name}", "ratio", times, target=target, note=note)


def ratio(records: Sequence[dict[str, Any]], store: Store) -> float | None:
    """How many times as long an add takes mem0; None where either did not run."""
    adds = {record["name"]: record["at the end"]["add"][0] for record in records if "at the end" in record}
    if MEM0.name not in adds or store.name not in adds:
        return None
    return float(adds[MEM0.name] / adds[store.name])


def sync_here() -> float:
    """Milliseconds of one sync where temporary files lie."""
    with tempfile.TemporaryDirectory() as folder:
        return sync_limit(Path(folder))
