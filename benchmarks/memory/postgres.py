"""A memory in a file and one on a Postgres server, side by side; and what is lost where clients or the server are killed.

    python -m benchmarks.memory.postgres --json benchmarks/memory/postgres.json

Needs `requirements/postgres.txt`: the server is one of its own, in a folder that goes with it, over a socket. Side by side: the
same items and questions, one after the other, for each durability. Clients: rounds of four writing processes that are killed, as
in `benchmarks.memory.crash`. Server: four writing processes with durability "power"; the server is killed and started again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.memory.crash import WRITER, Drawn, crash_rounds
from benchmarks.memory.engine import at, machine
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import check

ITEMS, ASKED, UNDONE = 2000, 500, 50
"""How many are written, searched for, and rolled back, each alone."""
WORDS = [f"word{number}" for number in range(3000)]


@contextlib.contextmanager
def server() -> Iterator[Any]:
    """A Postgres server of its own, as pgserver starts it."""
    import pgserver

    with tempfile.TemporaryDirectory(prefix="keepworth-postgres-") as folder:
        os.chmod(folder, 0o755)
        running = pgserver.get_server(Path(folder) / "data", cleanup_mode=None)
        try:
            yield running
        finally:
            _killed(running)


def address_on(running: Any) -> str:
    """Of a memory that is not there yet."""
    return f"{running.get_uri()}&schema=m_{uuid.uuid4().hex}"


def text_of(draw: random.Random) -> str:
    """Some words, common ones more often."""
    return " ".join(WORDS[min(int(draw.expovariate(1 / 300)), len(WORDS) - 1)] for _ in range(12))


def timed(work: Callable[[int], object], times: int, warm: int = 20) -> dict[str, float]:
    """Milliseconds of each call."""
    listed = []
    for number in range(times + warm):
        start = time.perf_counter()
        work(number)
        if number >= warm:
            listed.append(1e3 * (time.perf_counter() - start))
    listed.sort()
    return {"p50_ms": at(listed, 0.5), "p95_ms": at(listed, 0.95), "n": times}


def side(path: str, durability: str, items: int, asked: int, undone: int) -> dict[str, Any]:
    """What each verb takes in the memory at `path`."""
    draw = random.Random(1)
    with Memory(path, encoder=Drawn(), durability=durability, policy=None, log="off") as memory:
        figures = {"add": timed(lambda n: memory.add(text_of(draw), user_id=f"u{n % 20}"), items)}
        figures["search, all"] = timed(lambda n: memory.search(text_of(draw)), asked)
        figures["search, one of 20 users"] = timed(lambda n: memory.search(text_of(draw), user_id=f"u{n % 20}"), asked)
        batches = timed(lambda n: memory.add_many([text_of(draw) for _ in range(100)]), 20, warm=2)
        figures["add_many, each of 100"] = {
            name: value / 100 if name != "n" else value for name, value in batches.items()
        }

        def undo(_: int) -> None:
            before = memory.snapshot()
            memory.add(text_of(draw))
            memory.rollback(since=before)

        figures["add and rollback"] = timed(undo, undone, warm=2)
        return figures


def _killed(running: Any) -> None:
    """Ends the server at once, as a lost machine would but for its disk."""
    pid = int((Path(running.pgdata) / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        while True:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.05)
    time.sleep(1.0)  # its children end once they find it gone


def _started(running: Any) -> None:
    """Again, after it was killed; it may still be ending, or going through its log. pgserver may take the killed one to be
    running still, so that it answers is what counts."""
    import psycopg

    for _ in range(60):
        try:
            running.ensure_postgres_running()
            psycopg.connect(running.get_uri()).close()
            return
        except Exception:
            time.sleep(1.0)
    raise RuntimeError("the server did not start again")


def server_rounds(running: Any, rounds: int, processes: int = 4) -> dict[str, int]:
    """Raises AssertionError where anything that was acknowledged is lost, or the memory is unsound."""
    path = address_on(running)
    Memory(path, encoder=Drawn(), durability="power").close()
    draw = random.Random(2)
    acknowledged: dict[str, str] = {}
    for number in range(rounds):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, path, "2", f"round {number} process {each}", "power"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for each in range(processes)
        ]
        lines = [writer.stdout.readline() for writer in writers if writer.stdout is not None]
        time.sleep(draw.random())
        _killed(running)
        for writer in writers:
            assert writer.stdout is not None
            lines.extend(writer.stdout.read().splitlines(keepends=True))
            writer.wait()
        for line in lines:
            if line.endswith("\n"):
                id, text = line.rstrip("\n").split("\t")
                acknowledged[id] = text
        _started(running)
        with Memory(path, encoder=Drawn()) as memory:
            present = {item.id: item.text for item in memory.get_all(limit=10**9, all_states=True)}
            lost = [id for id, text in acknowledged.items() if present.get(id) != text]
            assert not lost, f"round {number}: {len(lost)} acknowledged items lost, first {lost[0]}"
            problems = check(memory.store)
            assert not problems, f"round {number}: {problems}"
    return {"server_kills": rounds, "processes": processes, "acknowledged": len(acknowledged), "lost": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--client-rounds", type=int, default=25, help="each kills four processes")
    parser.add_argument("--server-rounds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    import psycopg

    record: dict[str, Any] = {"machine": machine(), "items": arguments.items, "side_by_side": {}}
    asked, undone = min(ASKED, arguments.items), min(UNDONE, arguments.items)
    with server() as running, tempfile.TemporaryDirectory() as folder:
        with psycopg.connect(running.get_uri()) as connection:
            record["postgres"] = connection.info.server_version
        record["psycopg"] = psycopg.__version__
        for durability in ("process", "power"):
            places = {"file": str(Path(folder) / f"{durability}.mem"), "postgres": address_on(running)}
            for name, path in places.items():
                figures = side(path, durability, arguments.items, asked, undone)
                record["side_by_side"].setdefault(durability, {})[name] = figures
                for verb, figure in figures.items():
                    print(
                        f"{durability:8} {name:9} {verb:24} {figure['p50_ms']:8.2f} {figure['p95_ms']:8.2f} ms",
                        flush=True,
                    )
        if arguments.client_rounds:
            done = crash_rounds(address_on(running), arguments.client_rounds, processes=4)
            record["clients_killed"] = done
            print(done, flush=True)
        if arguments.server_rounds:
            record["server_killed"] = server_rounds(running, arguments.server_rounds)
            print(record["server_killed"], flush=True)
    record["load_average_at_end"] = os.getloadavg()[0]
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
