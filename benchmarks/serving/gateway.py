"""What a call costs at the gateway: calls a second, processor time of the server, and both beside a proxy without memory.

    python -m benchmarks.serving.gateway --json benchmarks/serving/gateway.json

100,000 notes in one file, of 100 people with 1,000 each and of 10,000 people with 10 each, with vectors of hashed words and of
MiniLM. Every call is the first turn of a new conversation with words that were never sent before, so that each one recalls,
begins an episode and is recorded; one in four is a statement, and kept. The upstream answers at once. Client, upstream, proxy and
server are processes of their own, and share the machine with whatever else runs on it: so the arms take turns in short parts, and
ratios are of the parts of one round. The processor time is that of the server's processes until what they record beside is done.

For MiniLM each note has the vector of one of 2,000 texts of its kind, as encoding 100,000 measures nothing here; the messages are
encoded by the server. Files are kept in --folder, and made where they are missing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.agents.load import (
    Started,
    Turns,
    bare_proxy,
    content_length,
    fill,
    instant_upstream,
    memory_server,
    request,
)
from benchmarks.memory.engine import at, machine
from benchmarks.record import arguments, save

ITEMS, DISTINCT = 100_000, 2_000
POPULATIONS = (100, 10_000)
"""Numbers of people who share the notes."""
ENCODERS = ("hashing", "minilm")
ARMS = ("bare proxy", "memory off", "memory on")
CLIENTS = (1, 8, 32)
PACKAGES = ("httpx", "starlette", "uvicorn", "h11", "onnxruntime")


class SameVectors:
    """An encoder that gives texts the vectors of others of their kind, which another encoder made."""

    def __init__(self, encoder: Any, texts: Sequence[str]) -> None:
        self.identity, self._vectors, self._next = encoder.identity, encoder.encode(texts), 0

    def encode(self, texts: Sequence[str]) -> Any:
        import numpy as np

        rows = np.arange(self._next, self._next + len(texts)) % len(self._vectors)
        self._next += len(texts)
        return self._vectors[rows]


def filled(folder: Path, encoder: str, people: int) -> Path:
    """The file of a population, which is made if it is not there."""
    file = folder / f"{encoder}-{people}.mem"
    if not file.exists():
        made: Any = encoder
        if encoder != "hashing":
            from benchmarks.memory.engine import corpus
            from keepworth.encoders.local import encoder as opened

            made = SameVectors(opened(encoder), corpus(DISTINCT).texts)
        with tempfile.TemporaryDirectory(
            dir=folder
        ) as unfinished:  # with the logs of writes of a filling that was stopped
            fill(Path(unfinished) / file.name, ITEMS, people, made)
            shutil.move(Path(unfinished) / file.name, file)
    return file


async def closed_loop(url: str, make: Callable[[], bytes], *, clients: int, calls: int) -> list[float]:
    """Milliseconds of each of `calls` calls, by clients that ask again as soon as they are answered."""
    host, port = url.removeprefix("http://").split(":")
    times, left = list[float](), calls

    async def client() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection(host, int(port))
        while left > 0:
            left -= 1
            begun = time.perf_counter()
            writer.write(make())
            head = await reader.readuntil(b"\r\n\r\n")
            length = content_length(head)
            if length is None or head[9:12] != b"200":
                raise SystemExit(f"a call was not answered: {head!r:.200}")
            await reader.readexactly(length)
            times.append(1e3 * (time.perf_counter() - begun))
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return times


def part(process: Started, make: Callable[[], bytes], *, clients: int, calls: int) -> dict[str, float]:
    """One part of one arm."""
    before, begun = process.cpu_seconds(), time.perf_counter()
    times = sorted(asyncio.run(closed_loop(process.url, make, clients=clients, calls=calls)))
    seconds = time.perf_counter() - begun
    settled(process)
    return {
        "per_second": calls / seconds,
        "cpu_ms": 1e3 * (process.cpu_seconds() - before) / calls,
        "p50_ms": at(times, 0.5),
        "p95_ms": at(times, 0.95),
    }


def settled(process: Started) -> None:
    """Until the process has recorded what is left, for some seconds at most."""
    for _ in range(40):
        before = process.cpu_seconds()
        time.sleep(0.1)
        if process.cpu_seconds() - before < 0.02:
            return


def measured(file: Path, encoder: str, people: int, *, rounds: int, calls: int, workers: int) -> dict[str, Any]:
    """The medians over rounds of each arm and number of clients, and their ratios to the bare proxy of the same round."""
    turns = Turns(seed=1, people=people)
    options = ("--workers", str(workers), *(("--encoder", encoder) if encoder == "hashing" else ()))
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        copy = Path(shutil.copy(file, folder))
        with (
            instant_upstream() as upstream,
            bare_proxy(upstream) as proxy,
            memory_server(copy, upstream.url, *options) as server,
        ):

            def asked(arm: str) -> tuple[Started, Callable[[], bytes]]:
                process, mode = (proxy if arm == "bare proxy" else server), ("on" if arm == "memory on" else "off")

                def make() -> bytes:
                    user, body = turns.next()
                    return request(process.url, user, body, mode=mode)

                return process, make

            for arm in ARMS:  # what one person said is held from the second question on
                process, make = asked(arm)
                part(process, make, clients=8, calls=3 * min(people, 200) if arm == "memory on" else 100)
            rows = [
                {"arm": arm, "clients": clients, "round": number, **part(*asked(arm), clients=clients, calls=calls)}
                for number in range(rounds)
                for clients in CLIENTS
                for arm in ARMS
            ]
    return {
        f"{clients} clients": {arm: summed([r for r in rows if r["clients"] == clients], arm) for arm in ARMS}
        for clients in CLIENTS
    }


def summed(rows: list[dict[str, Any]], arm: str) -> dict[str, float]:
    """The medians of an arm over rounds, and what it has beside the bare proxy."""
    bare = {row["round"]: row for row in rows if row["arm"] == "bare proxy"}
    mine = [row for row in rows if row["arm"] == arm]
    out = {
        name: round(statistics.median(row[name] for row in mine), 2)
        for name in ("per_second", "cpu_ms", "p50_ms", "p95_ms")
    }
    ratios = [row["per_second"] / bare[row["round"]]["per_second"] for row in mine]
    added = [row["p50_ms"] - bare[row["round"]]["p50_ms"] for row in mine]
    return {
        **out,
        "ratio_to_bare": round(statistics.median(ratios), 3),
        "added_p50_ms": round(statistics.median(added), 2),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/gateway"), help="where the files of notes are kept")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--calls", type=int, default=300, help="of one part: one arm of one round with one number of clients"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes of the server")
    parser.add_argument("--fill", action="store_true", help="only make the files")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    settings = [
        (encoder, people, filled(options.folder, encoder, people)) for encoder in ENCODERS for people in POPULATIONS
    ]
    if options.fill:
        return
    results: dict[str, Any] = {}
    for encoder, people, file in settings:
        load = round(os.getloadavg()[0], 1)
        row = measured(file, encoder, people, rounds=options.rounds, calls=options.calls, workers=options.workers)
        results[f"{encoder}, {people:,} people"] = {"load_average": load, **row}
        for clients, arms in row.items():
            for arm, figures in arms.items():
                print(f"{encoder}, {people:,} people, {clients}, {arm}: {figures}", flush=True)
    about = {**machine(), "packages": {name: version(name) for name in PACKAGES}}
    asked = {"items": ITEMS, "rounds": options.rounds, "calls": options.calls, "workers": options.workers}
    save(options.json, {**asked, "statements": "1 of 4", "results": results, "machine": about})


if __name__ == "__main__":
    main()
