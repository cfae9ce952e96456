"""From opening a memory with many logged decisions to its first answer, in a new process.

    python -m benchmarks.memory.opening --decisions 100000 --json benchmarks/memory/opening.json

A file is filled with 1,000 items and `decisions` episodes of one search and one action, of which a share was rewarded: 2,000
searches are asked, and what they logged is logged again and again, under ids of its own. Then new processes open it with each
policy: `from_the_log` where nothing that was learned is kept beside the file; `kept` where all of it is; `after_a_kill` where
`LATE` rewards came since. Times are wall clock, after the imports; beside the first answer also processor time, which other
programs do not lengthen.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.memory.engine import machine
from keepworth.memory.by_name import policies_of_cases
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Credit, Draft
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.store import log
from keepworth.memory.store.learned_file import learned_files
from keepworth.memory.store.log import Logged
from keepworth.memory.store.transaction import Transaction

ITEMS = 1000
ASKED = 2000
LATE = 500
ACTIONS = ("oil it", "tighten it", "replace it", "leave it")
POLICIES = policies_of_cases()
OPENED = """
import json, sys, time
from benchmarks.memory.opening import opened
print(json.dumps(opened(sys.argv[1], sys.argv[2] or None)))
"""


def query(number: int) -> str:
    return f"what helps with part {number * 7919 % ITEMS} of machine {number * 31 % 97}"


def filled(path: Path, begin: int, end: int, every: int, *, batch: int = 1000) -> float:
    """Log episodes `begin` to `end`. Seconds it took. every: one of so many is rewarded."""
    start = time.perf_counter()
    with Memory(path, encoder=HashedWords(384)) as memory:
        if not begin:
            memory.add_many(
                [f"part {number} of machine {number * 31 % 97} wants oil {number % 7}" for number in range(ITEMS)]
            )
        kept: list[Logged] = []
        memory._decisions.later = kept.append  # type: ignore[method-assign]
        for first in range(0, ASKED, 500):
            memory.search_many([query(number) for number in range(first, first + 500)], top_k=5)
        for first in range(begin, end, batch):
            numbers = range(first, min(first + batch, end))
            memory.store.change(
                memory.scope, lambda transaction, numbers=numbers: _log(transaction, kept, numbers, every)
            )
    return time.perf_counter() - start


def _log(transaction: Transaction, kept: list[Logged], numbers: range, every: int) -> None:
    for number in numbers:
        one, id = kept[number % ASKED], f"e{number:016x}"
        decision = replace(one.decision, id=f"d{number:016x}")
        details = json.dumps({**json.loads(one.details), "actions": ACTIONS})
        transaction.connection.execute(
            "INSERT INTO episodes(id, scope, task, began) VALUES(?,?,?,?)",
            (id, transaction.book.row(one.scope).id, decision.query, one.at),
        )
        row = log._row(transaction, replace(one, decision=decision, episode=id, details=details))
        transaction.connection.execute(log._INSERT, row)
        log.note(transaction, one.scope, one.at, "act", episode=id, action=ACTIONS[number * 31 % 4])
        if number % every == 0:
            credit = Credit(float(number % 3 == 0), tuple((item, 1.0) for item in decision.chosen), "user")
            transaction.perform(credit, Draft(), now=one.at, episode=id)


def opened(path: str, policy: str | None) -> dict[str, Any]:
    """Milliseconds from opening to the first answer, of which what learning took, and of the second answer."""
    encoder = HashedWords(384)
    encoder.encode(["warm"])
    start, busy = time.perf_counter(), time.process_time()
    memory = Memory(path, encoder=encoder, policy=policy)
    made = time.perf_counter()
    first = memory.search(query(1), top_k=5)
    answered, busy = time.perf_counter(), time.process_time() - busy
    memory.search(query(2), top_k=5)
    again = time.perf_counter()
    memory.close()
    return {
        "opened_ms": 1e3 * (made - start),
        "first_answer_ms": 1e3 * (answered - start),
        "first_answer_processor_ms": 1e3 * busy,
        "largest_resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "second_answer_ms": 1e3 * (again - answered),
        "hits": len(first),
    }


def measured(path: Path, policy: str, rounds: int) -> list[dict[str, Any]]:
    """Each time with what lies beside the file as it is now."""
    beside = {each: each.read_bytes() for each in learned_files(path)}
    runs = []
    for _ in range(rounds):
        command = [sys.executable, "-c", OPENED, str(path), policy]
        runs.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        if rounds > 1:
            for each in learned_files(path):
                each.unlink()
            for each, there in beside.items():
                each.write_bytes(there)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--every", type=int, nargs="+", default=[1, 10], help="one of so many decisions is rewarded")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policies", nargs="+", default=["default", "", *POLICIES])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    record: dict[str, Any] = {"machine": machine(), "decisions": options.decisions, "items": ITEMS, "files": []}
    with tempfile.TemporaryDirectory() as folder:
        for every in options.every:
            path = Path(folder) / f"decisions_{options.decisions}_{every}.mem"
            early = options.decisions - min(LATE * every, options.decisions // 2)
            made = filled(path, 0, early, every)
            runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
            for policy in options.policies:
                runs[policy] = {
                    "from_the_log": measured(path, policy, 1),
                    "kept": measured(path, policy, options.rounds),
                }
                print(f"{policy or 'no policy'}: {said(runs[policy])}", flush=True)
            made += filled(path, early, options.decisions, every)
            for policy in options.policies:
                runs[policy]["after_a_kill"] = measured(path, policy, options.rounds)
            beside = sum(each.stat().st_size for each in learned_files(path))
            one = {
                "one_rewarded_of": every,
                "filled_seconds": made,
                "bytes": path.stat().st_size,
                "beside_bytes": beside,
            }
            record["files"].append({**one, "opened": {policy or "no policy": runs[policy] for policy in runs}})
            for policy, states in runs.items():
                print(f"1 of {every} rewarded, {policy or 'no policy'}: {said(states)}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(record, indent=1) + "\n")


def said(states: dict[str, list[dict[str, Any]]]) -> str:
    """Medians, in milliseconds of the processor."""
    times = {state: sorted(run["first_answer_processor_ms"] for run in runs) for state, runs in states.items()}
    return ", ".join(f"{state} {each[len(each) // 2]:.0f} ms" for state, each in times.items())


if __name__ == "__main__":
    main()
