"""What the public doors of two revisions cost, measured in turn on the same machine: is this one slower than an earlier one?

    git worktree add ../before REVISION
    python -m benchmarks.beside ../before --rounds 9 --json benchmarks/beside.json

Each round runs both revisions, each in processes of its own, the order changing from round to round. Times are medians within a
process; the ratio (this revision / the other) is taken in each round, and its median and range over rounds are given. Both use
the same interpreter and packages. The encoder hashes words; the model is SmolLM2-135M; the upstream answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.record import arguments, save

ROOT = Path(__file__).parents[1]
ITEMS, SEARCHES, REWARDS, CALLS, STEPS = 3_000, 150, 400, 150, 4


def median_ms(calls: int, call: Callable[[int], Any]) -> float:
    """The median time of a call in milliseconds, after one that is not counted."""
    call(calls)
    times = []
    for number in range(calls):
        start = time.perf_counter()
        call(number)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def measure_memory(folder: Path) -> dict[str, float]:
    """Milliseconds for an add, a search, a search after rewards, and a reward."""
    from keepworth import Memory

    topics = [f"subject{number % 500} of part {number % 37}" for number in range(ITEMS)]
    with Memory(folder / "a.mem", encoder="hashing") as memory:
        start = time.perf_counter()
        memory.add_many([f"Note {number} is about {topic}." for number, topic in enumerate(topics)])
        figures = {"add_many, each of 3,000": 1e3 * (time.perf_counter() - start) / ITEMS}
        figures["add"] = median_ms(SEARCHES, lambda n: memory.add(f"Another note {n} on {topics[n]}."))
        figures["search"] = median_ms(SEARCHES, lambda n: memory.search(f"what is {topics[n * 7]}", top_k=5))
        decisions = [memory.search(f"what is {topics[n % 40]}", top_k=5).decision for n in range(REWARDS + 1)]
        figures["reward"] = median_ms(REWARDS, lambda n: memory.reward(decisions[n], float(n % 3 > 0)))
        figures["search after 400 rewards"] = median_ms(
            SEARCHES, lambda n: memory.search(f"what is {topics[n % 40]}", top_k=5)
        )
    return figures


def measure_gateway(folder: Path) -> dict[str, float]:
    """Milliseconds for a chat call with a new conversation, from a client's socket and back."""
    from benchmarks.agents.load import TOKEN, instant_upstream, memory_server

    with (
        instant_upstream() as upstream,
        memory_server(folder / "g.mem", upstream.url, "--encoder", "hashing") as server,
    ):

        def ask(number: int) -> None:
            words = f"I like train {number}." if number % 4 == 0 else f"When does train {number} leave?"
            body = json.dumps({"model": "m", "messages": [{"role": "user", "content": words}]}).encode()
            head = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", "X-Keepworth-User": "ana"}
            asked = urllib.request.Request(f"{server.url}/v1/chat/completions", body, head)
            with urllib.request.urlopen(asked) as answer:
                answer.read()
            time.sleep(0.02)  # what is kept after an answer is not part of the next call

        for number in range(40):
            ask(number)
        return {"gateway call": median_ms(CALLS, ask) - 20}


def measure_training(folder: Path) -> dict[str, float]:
    """Milliseconds for sampling and for learning in one step of `keepworth train strings`."""
    settings = {"steps": STEPS, "tasks_per_step": 2, "group_size": 4, "max_tokens": 8, "questions": 2, "threads": 2}
    settings |= {"warm_start": 1, "evaluate_every": STEPS, "checkpoint_every": STEPS, "entropy": 0.1, "refill": 0}
    command = [sys.executable, "-m", "keepworth", "train", "strings", "--runs", str(folder), "--name", "run"]
    command += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "seconds/learn" in row][1:]  # the first step warms up
    return {
        "training step, sampling": 1e3 * statistics.median(row["seconds/sample"] for row in steps),
        "training step, learning": 1e3 * statistics.median(row["seconds/learn"] for row in steps),
    }


PARTS = {"memory": measure_memory, "gateway": measure_gateway, "training": measure_training}


def measured(checkout: Path, part: str, packages: Path | None) -> dict[str, float]:
    """The figures of one part for one checkout, measured in a new process."""
    path = [str(checkout / "src"), *([str(packages)] if packages else []), str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--part", part]
    answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(answer.stdout.splitlines()[-1]))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("other", type=Path, nargs="?", help="a checkout of the other revision")
    parser.add_argument("--packages", type=Path, help="a folder of packages that only the other revision needs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=PARTS, nargs="*", default=list(PARTS))
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(PARTS[options.part](Path(folder))))
        return
    if options.other is None or not (options.other / "src" / "keepworth").is_dir():
        raise SystemExit(f"{options.other} holds no src/keepworth: give a checkout of the other revision")
    from benchmarks.memory.engine import machine

    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(options.rounds):
        row: dict[str, dict[str, float]] = {"this": {}, "other": {}}
        for part in options.only:
            for side in ("this", "other") if number % 2 else ("other", "this"):
                row[side] |= (
                    measured(ROOT, part, None) if side == "this" else measured(options.other, part, options.packages)
                )
        rounds.append(row)
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
    table = {}
    for name in rounds[0]["this"]:
        ratios = sorted(row["this"][name] / row["other"][name] for row in rounds)
        table[name] = {
            "this_ms": round(statistics.median(row["this"][name] for row in rounds), 4),
            "other_ms": round(statistics.median(row["other"][name] for row in rounds), 4),
            "ratio": round(statistics.median(ratios), 3),
            "ratio_range": [round(ratios[0], 3), round(ratios[-1], 3)],
        }
        print("{:28} {this_ms:10.3f} {other_ms:10.3f}   {ratio:.2f} {ratio_range}".format(name, **table[name]))
    if options.json:
        git = ["git", "-C", str(options.other), "rev-parse", "--short", "HEAD"]
        other = subprocess.run(git, capture_output=True, text=True).stdout.strip()
        result = {"other": other, "rounds": options.rounds, "table": table, "machine": machine(), "all": rounds}
        save(options.json, result)


if __name__ == "__main__":
    main()
