"""Several processes learn on one file: what each knows is what a replay of the journal says, kills or not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keepworth.memory.memory import Memory
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.store.maintenance import check

ROOT = Path(__file__).parents[3]
LEARNING = """
import sys
from keepworth.memory.memory import Memory
from keepworth.memory.policy.hashed_words import HashedWords
path, policy, name, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
memory = Memory(path, policy=policy, encoder=HashedWords(64))
for number in range(count):
    kind = ("torn", "late", "lost")[number % 3]
    with memory.episode(f"a {kind} thing of {name}") as episode:
        episode.search(f"what to do with a {kind} thing", actions=("refund", "replace"))
        episode.act(("refund", "replace")[number % 2])
        episode.reward(float((number % 3 + number) % 2))
    print(number, flush=True)
"""


def begun(path: Path, policy: str, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LEARNING, str(path), policy, name, str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def known(memory: Memory) -> object:
    """What decides what is shown next, in full."""
    experience = memory.learning.experience  # type: ignore[union-attr]
    if experience.policy.retriever is None:
        items = memory.get_all(limit=1000)
        return [memory.worth(item.id, f"what to do with a {kind} thing") for item in items for kind in ("torn", "late")]
    query = experience.query("a torn thing", "what to do with a torn thing")
    candidates = experience.policy.retriever(query, experience.pool)
    ids = [experience.pool.items[row].id for row in candidates.rows]
    values = experience.policy.valuer.estimate(query, candidates, experience.pool)
    return sorted(zip(ids, values.means.tolist(), strict=True)), len(experience.pool)


@pytest.mark.parametrize("policy", ["effect", "memrl", "kernel-mean"])
def test_two_processes_and_kills_leave_what_the_journal_says(tmp_path: Path, policy: str) -> None:
    path = tmp_path / "a.mem"
    watching = Memory(path, policy=policy, encoder=HashedWords(64), seed=1)
    watching.add_many(
        [f"a {kind} thing goes to the {place}" for kind in ("torn", "late") for place in ("shop", "post")]
    )
    known(watching)  # from here on it follows what others write
    said = 0
    for round_ in range(3):
        workers = [begun(path, policy, f"worker {number} of {round_}", 12) for number in range(2)]
        time.sleep(0.1)
        if round_ < 2:
            assert workers[0].stdout is not None
            workers[0].stdout.readline()
            workers[0].send_signal(signal.SIGKILL)
        for worker in workers:
            out, _ = worker.communicate(timeout=120)
            said += len(out.split())
    with Memory(path, policy=policy, encoder=HashedWords(64), seed=1) as fresh:
        assert known(fresh) == known(watching)
        rewards = sum(entry.kind == "REWARD" for entry in fresh.store.entries())
        assert rewards >= said
        assert check(fresh.store) == []
    watching.close()
