"""What the gateway adds to a call and how many calls a second it takes.

    python -m benchmarks.agents.latency --json benchmarks/agents/latency.json

100 people have 1,000 items each in one file of 100,000. Every call is the first turn of a new conversation, so that each one
recalls, begins an episode and is noted; one in four is a statement, and kept. The upstream answers at once, vectors are of
hashed words: neither a model nor an encoder is measured. The server, the upstream and the client are processes of their own.

Open loop: 100 calls a second, and 20, over 50 connections, each at its time whether or not those before are answered; times run
from when a call was to be sent. Saturated: `wrk` with 50 connections, a compiled client. Beside it, in the same rounds: the
upstream alone, a proxy of the same parts without memory, and the gateway with memory off. Rounds alternate; of each figure the
median over rounds is given, and all of them are in the JSON. CPU is what the server's process used, in user and kernel mode.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.agents import page
from benchmarks.agents.load import (
    CONNECTIONS,
    USERS,
    Started,
    Turns,
    bare_proxy,
    fill,
    instant_upstream,
    memory_server,
    open_loop,
    request,
    saturated,
)
from benchmarks.memory.engine import at, machine
from benchmarks.record import arguments, save

ITEMS, RATE, LOW_RATE = 100_000, 100.0, 20.0
PACKAGES = ("httpx", "starlette", "uvicorn", "h11", "pydantic")
FAST = ("upstream alone", "bare proxy", "memory off", "memory on")
"""What is asked at the full rate."""
SLOW = ("memory off", "memory on", "memory on, no person", "search over REST, whole store")
"""What is asked at the low rate, at which nothing queues where the full one is more than the machine has room for."""
SATURATED = FAST[1:]
ARMS = tuple(dict.fromkeys(FAST + SLOW))


class Standing:
    """The processes of a measurement, and how each arm is asked."""

    def __init__(self, upstream: Started, proxy: Started, server: Started) -> None:
        self.upstream, self.proxy, self.server = upstream, proxy, server
        self.turns = Turns()

    def process(self, arm: str) -> Started:
        return {"upstream alone": self.upstream, "bare proxy": self.proxy}.get(arm, self.server)

    def sent(self, arm: str) -> Callable[[], bytes]:
        """What makes the next call of an arm."""
        url = self.process(arm).url

        def make() -> bytes:
            user, body = self.turns.next()
            if arm == "search over REST, whole store":
                query = json.loads(body)["messages"][-1]["content"]
                body = json.dumps({"query": query, "top_k": 8}).encode()
                return request(url, user, body, path="/v1/memory/search")
            if arm == "memory on, no person":
                return request(url, "", body)
            return request(url, user, body, mode="on" if arm == "memory on" else "off")

        return make


@contextmanager
def standing(file: Path) -> Iterator[Standing]:
    """All processes, warm: whatever is read once has been read."""
    with (
        instant_upstream() as upstream,
        bare_proxy(upstream) as proxy,
        memory_server(file, upstream.url, "--encoder", "hashing") as server,
    ):
        servers = Standing(upstream, proxy, server)
        for arm in ARMS:
            # What one person said is held from the second question on, and there are 100 of them.
            open_loop(servers.process(arm).url, servers.sent(arm), rate=25, seconds=36 if arm == "memory on" else 1)
            settled(servers.process(arm))
        yield servers


def open_round(servers: Standing, arm: str, *, rate: float, seconds: float) -> dict[str, Any]:
    process = servers.process(arm)
    before = process.cpu_seconds()
    times = sorted(open_loop(process.url, servers.sent(arm), rate=rate, seconds=seconds))
    time.sleep(0.5)  # what is noted beside belongs to it
    return {
        "n": len(times),
        "p50_ms": round(at(times, 0.5), 2),
        "p95_ms": round(at(times, 0.95), 2),
        "p99_ms": round(at(times, 0.99), 2),
        "cpu_ms": round(1e3 * (process.cpu_seconds() - before) / len(times), 2),
    }


def saturated_round(servers: Standing, arm: str, *, seconds: float) -> dict[str, Any]:
    process = servers.process(arm)
    before, run = process.cpu_seconds(), str(time.time_ns())
    result = saturated(process.url, seconds=seconds, run=run, mode="on" if arm == "memory on" else "off")
    settled(process)
    used = process.cpu_seconds() - before
    return {
        "n": int(result["requests"]),
        "per_second": round(result["requests"] / result["seconds"], 1),
        "p50_ms": round(result["p50_ms"], 1),
        "p95_ms": round(result["p95_ms"], 1),
        "cpu_ms": round(1e3 * used / result["requests"], 2),
        "cores": round(used / result["seconds"], 2),
    }


def settled(process: Started) -> None:
    """Until the process has done what is left to do beside, for two minutes at most."""
    end = time.monotonic() + 120.0
    while time.monotonic() < end:
        before = process.cpu_seconds()
        time.sleep(0.5)
        if process.cpu_seconds() - before < 0.05:
            return


def measured(file: Path, *, rounds: int, seconds: float) -> dict[str, Any]:
    """Figures of each arm, by round."""
    kinds = ("open", "open at a low rate", "saturated")
    by_arm: dict[str, dict[str, list[dict[str, Any]]]] = {arm: {kind: [] for kind in kinds} for arm in ARMS}
    loads = []

    def note(arm: str, kind: str, row: dict[str, Any]) -> None:
        by_arm[arm][kind].append(row)
        print(arm, kind, row, flush=True)
        settled(servers.process(arm))

    with standing(file) as servers:
        for _ in range(rounds):
            loads.append(round(os.getloadavg()[0], 1))
            for arm in SLOW:
                note(arm, "open at a low rate", open_round(servers, arm, rate=LOW_RATE, seconds=seconds))
            for arm in FAST:
                note(arm, "open", open_round(servers, arm, rate=RATE, seconds=seconds))
            for arm in SATURATED:
                note(arm, "saturated", saturated_round(servers, arm, seconds=seconds / 2))
    return {
        "arms": {
            arm: {kind: summed(repeats) for kind, repeats in kinds.items() if repeats} for arm, kinds in by_arm.items()
        },
        "rounds": by_arm,
        "load_average": loads,
    }


def summed(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """The median over rounds of each figure, and the sum of calls."""
    names = [name for name in rounds[0] if name != "n"]
    return {
        "n": sum(one["n"] for one in rounds),
        **{name: statistics.median(one[name] for one in rounds) for name in names},
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of one open loop; a saturated one takes half of it"
    )
    options = parser.parse_args()
    about = {**machine(), "packages": {name: version(name) for name in PACKAGES}}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "agents.mem"
        fill(file, options.items)
        result = measured(file, rounds=options.rounds, seconds=options.seconds)
    asked = {"items": options.items, "people": USERS, "rate": RATE, "low_rate": LOW_RATE}
    whole = {**asked, "connections": CONNECTIONS, "seed": 0, **result, "machine": about}
    print(page.latency(whole))
    save(options.json, whole)


if __name__ == "__main__":
    main()
