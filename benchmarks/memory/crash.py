"""Kill -9 during concurrent writes, again and again; then nothing acknowledged may be lost and the file must be sound.

python -m benchmarks.memory.crash --rounds 500
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WRITER = """
import sys, threading
from recollect.memory.memory import Memory
path, writers, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3]
m = Memory(path, encoder=None)
out = threading.Lock()
def write(number):
    count = 0
    while True:
        text = f"round {seed} writer {number} line {count}"
        if count % 5 == 4:
            items = m.add_many([f"{text} part {part}" for part in range(5)])
        elif count % 7 == 6:
            items = [m.supersede(items[-1].id, text)]
        else:
            items = [m.add(text)]
        with out:
            for item in items:
                print(item.id, item.text, sep="\\t", flush=True)
        count += 1
threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
[t.start() for t in threads]
[t.join() for t in threads]
"""


def crash_rounds(
    path: Path, rounds: int, *, writers: int = 2, seconds: float = 0.3, seed: int = 0, deep_every: int = 10
) -> dict[str, int]:
    """Each round: start a process with `writers` threads, kill it at a random moment, open the file, look for every line it
    had acknowledged. Returns counts; raises AssertionError where anything is lost or unsound."""
    from recollect.memory.memory import Memory
    from recollect.memory.upkeep import check

    draw = random.Random(seed)
    acknowledged: dict[str, str] = {}
    for number in range(rounds):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(writers), str(number)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        lines = [process.stdout.readline()]  # it is writing: now the clock starts
        time.sleep(seconds * draw.random())
        os.kill(process.pid, signal.SIGKILL)
        lines.extend(process.stdout.read().splitlines(keepends=True))
        process.wait()
        for line in lines:
            if line.endswith("\n"):
                id, text = line.rstrip("\n").split("\t")
                acknowledged[id] = text
        with Memory(path, encoder=None) as memory:
            present = {item.id: item.text for item in memory.get_all(limit=10**9, all_states=True)}
            lost = [id for id, text in acknowledged.items() if present.get(id) != text]
            assert not lost, f"round {number}: {len(lost)} acknowledged items lost, first {lost[0]}"
            problems = check(memory.store, deep=number % deep_every == deep_every - 1 or number == rounds - 1)
            assert not problems, f"round {number}: {problems}"
    return {"rounds": rounds, "acknowledged": len(acknowledged), "lost": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = crash_rounds(Path(folder) / "crash.mem", arguments.rounds, writers=arguments.writers)
    print(
        f"{result['rounds']} kills, {result['acknowledged']} acknowledged items, {result['lost']} lost, every check sound"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
