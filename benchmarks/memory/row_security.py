"""What row-level security costs: the owner's searches of a memory in which a role has rights, and of an equal one without;
and those of the role beside the owner's who names the same person.

    python -m benchmarks.memory.row_security --json benchmarks/memory/row_security.json

Needs `requirements/postgres.txt`. Both memories hold the same items, lie on one server of its own, and are asked the same
question one after the other, in an order that is drawn. A round counts by its medians; the interval is over rounds, of the ratio
of the two in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.crash import Drawn
from benchmarks.memory.postgres import server, text_of
from keepworth.evaluation.engine import machine
from keepworth.memory.memory import Memory
from keepworth.memory.rights import grant

USERS = 20
PAIRS = {
    "owner, all": ("with", "without", ""),
    "owner, one of 20 users": ("with", "without", "u3"),
    "the role, beside the owner of the same memory": ("role", "with", "u3"),
}
"""Who is measured, beside whom, and for which user."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--asked", type=int, default=25, help="questions a round")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    import psycopg

    record: dict[str, Any] = {"machine": machine(), "seed": 1, "psycopg": psycopg.__version__}
    record |= {"items": arguments.items, "rounds": arguments.rounds, "asked a round": arguments.asked, "searches": {}}
    with server() as running, psycopg.connect(running.get_uri(), autocommit=True) as admin:
        record["postgres"] = admin.info.server_version
        address = {}
        for side in ("with", "without"):
            admin.execute(f'CREATE ROLE "{side}" LOGIN'.encode())
            admin.execute(f'CREATE SCHEMA m_{side} AUTHORIZATION "{side}"'.encode())
            address[side] = f"{running.get_uri().replace('://postgres:@', f'://{side}:@')}&schema=m_{side}"
            _fill(address[side], arguments.items)
        admin.execute("CREATE ROLE role LOGIN")
        grant(address["with"], "role", user_id="u3")
        address["role"] = address["with"].replace("://with:@", "://role:@")
        admin.execute("VACUUM ANALYZE")
        memories = {side: _opened(path) for side, path in address.items()}
        draw = random.Random(2)
        for name, (one, other, user) in PAIRS.items():
            rounds = [_asked(memories, (one, other), user, arguments.asked, draw) for _ in range(arguments.rounds + 1)]
            record["searches"][name] = _figures(np.array(rounds[1:]))  # the first fills caches
            print(name, record["searches"][name], flush=True)
        for memory in memories.values():
            memory.close()
    record["load_average_at_end"] = os.getloadavg()[0]
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


def _opened(path: str) -> Memory:
    return Memory(path, encoder=Drawn(), policy=None, log="off")


def _fill(path: str, items: int) -> None:
    draw = random.Random(1)
    with _opened(path) as memory:
        for number in range(0, items, 100):
            texts = [text_of(draw) for _ in range(100)]
            memory.add_many(texts, user_id=f"u{number // 100 % USERS}")


def _asked(
    memories: dict[str, Memory], sides: tuple[str, str], user: str, asked: int, draw: random.Random
) -> list[float]:
    """Median milliseconds of each side, for the same questions."""
    spent: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(asked):
        question, found = text_of(draw), {}
        for side in draw.sample(sides, 2):
            start = time.perf_counter()
            hits = memories[side].search(question, user_id=user)
            spent[side].append(1e3 * (time.perf_counter() - start))
            found[side] = [hit.text for hit in hits]
        assert "role" in sides or found[sides[0]] == found[sides[1]], question
    return [float(np.median(spent[side])) for side in sides]


def _figures(rounds: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Median milliseconds of a search, and the ratio with its 95% interval by resampling rounds."""
    logs = np.log(rounds[:, 0] / rounds[:, 1])
    drawn = np.random.default_rng(0).choice(logs, (10_000, len(logs))).mean(1)
    low, high = np.exp(np.quantile(drawn, (0.025, 0.975)))
    one, other = np.median(rounds, 0)
    return {
        "ms": float(one),
        "ms_beside": float(other),
        "ratio": float(np.exp(logs.mean())),
        "interval": [float(low), float(high)],
    }


if __name__ == "__main__":
    main()
