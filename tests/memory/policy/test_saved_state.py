"""What was learned is saved in the file: a new process goes on from there, and knows exactly what the one before knew."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from keepworth.memory.choose import learning
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import check
from tests.memory.helpers import behind_its_back

QUESTIONS = [f"when does train {number} leave" for number in range(7)]


def opened(path: Path) -> Memory:
    return Memory(path, encoder="hashing", seed=0)


def teach(path: Path, rewards: int, by: str = "") -> list[list[tuple[str, float]]]:
    """Reward searches; returns what is expected afterwards where each question is asked."""
    with opened(path) as memory:
        if not len(memory):
            memory.add_many([f"Train {number % 7} leaves at {number}." for number in range(21)])
        for number in range(rewards):
            hits = memory.search(QUESTIONS[number % 7], top_k=3)
            memory.reward(hits.decision, float(hits[0].text.endswith(("1.", "3.", "7."))), by=f"{by}{number % 3}")
        return expected(memory)


def expected(memory: Memory) -> list[list[tuple[str, float]]]:
    items = [item.id for item in memory.get_all()]
    return [[(id, memory.worth(id, question).with_it) for id in items] for question in QUESTIONS]


def known_at(path: Path) -> list[list[tuple[str, float]]]:
    with opened(path) as memory:
        return expected(memory)


def saved(path: Path) -> list[tuple[object, ...]]:
    return behind_its_back(path, "SELECT name, value FROM facts_of_file WHERE name LIKE 'learned%'")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "SAVED_EVERY", 20)


def test_saved_state_restores_exact_estimates(path: Path, often: None) -> None:
    known = teach(path, 70, by="person")
    assert len(saved(path)) == 1
    assert known_at(path) == known
    behind_its_back(path, "DELETE FROM facts_of_file WHERE name LIKE 'learned%'")
    assert known_at(path) == known, "judging all rewards anew comes to the same"


def test_saved_state_is_void_after_a_rollback(path: Path, often: None) -> None:
    teach(path, 70)
    with opened(path) as memory:
        memory.rollback(since="s60")
        known = expected(memory)
    assert known_at(path) == known


DAMAGES = ("replace(value, '0.', '1.')", "substr(value, 1, 90)", "'[1]'", "'5'", "''")


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_saved_state_is_ignored(damage: str, path: Path, often: None) -> None:
    known = teach(path, 70)
    behind_its_back(path, f"UPDATE facts_of_file SET value = {damage} WHERE name LIKE 'learned%'")
    assert known_at(path) == known


def test_erasing_deletes_the_saved_state(path: Path, often: None) -> None:
    teach(path, 70, by="somebody")
    assert "somebody" in str(saved(path))
    with opened(path) as memory:
        memory.forget("m1", purge_history=True)
    assert saved(path) == []


SLOWER = [pytest.param(policy, marks=pytest.mark.slow) for policy in ("memrl", "kernel-mean")]


@pytest.mark.parametrize("policy", ["default", *SLOWER])
def test_learned_state_equals_the_journal_after_kills(tmp_path: Path, policy: str) -> None:
    found = learned_and_killed(tmp_path / "a.mem", policy=policy, rewards=25, kills=6)
    assert found["acknowledged"] == 100
    assert found["kills"] >= 3


# Several processes learn on one file and are killed again and again: what is known is what a replay of the journal says.


KINDS = ("torn", "late", "lost", "broken")
WORKER = """
import sys
from tests.memory.policy.test_saved_state import worked
worked(*sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]))
"""


def asked(kind: str) -> str:
    return f"what to do with a {kind} thing"


def worked(path: str, policy: str, begin: int, count: int) -> None:
    """For a process of its own: reward number `begin` up to `count`, and say each that is on file."""
    with Memory(path, policy=policy, encoder=HashedWords(64)) as memory:
        for number in range(begin, count):
            kind = KINDS[number % len(KINDS)]
            with memory.episode(f"a {kind} thing") as episode:
                episode.search(asked(kind), actions=("refund", "replace"), top_k=3)
                episode.act(("refund", "replace")[number % 2])
                episode.reward(float((number % 3 + number) % 2))
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


def known(memory: Memory) -> Any:
    """What decides what is shown next, in full."""
    assert memory.learning is not None
    experience = memory.learning.experience
    if experience.policy.retriever is None:
        items = memory.get_all(limit=1000)
        return [memory.worth(item.id, asked(kind)) for item in items for kind in KINDS]
    query = experience.query("a torn thing", asked("torn"))
    candidates = experience.policy.retriever(query, experience.pool)
    ids = [experience.pool.items[row].id for row in candidates.rows]
    values = experience.policy.valuer.estimate(query, candidates, experience.pool)
    return sorted(zip(ids, values.means.tolist(), strict=True)), len(experience.pool)


class Worker:
    """One of the processes that learn, and who follows it when it is killed."""

    def __init__(self, path: Path, policy: str, count: int) -> None:
        self.path, self.policy, self.count = path, policy, count
        self.done = 0
        self.kills = 0
        self.running: subprocess.Popen[str] | None = None

    def work(self) -> None:
        while self.done < self.count:
            command = [sys.executable, "-c", WORKER, str(self.path), self.policy, str(self.done), str(self.count)]
            self.running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert self.running.stdout is not None
            for line in self.running.stdout:
                self.done += line.endswith("\n")
            if self.running.wait() not in (0, -9):
                raise AssertionError(f"a process ended with {self.running.returncode}")

    def kill(self) -> bool:
        if self.running is None or self.running.poll() is not None or self.done >= self.count:
            return False
        self.running.kill()
        self.kills += 1
        return True


def learned_and_killed(
    path: Path, *, policy: str = "default", processes: int = 4, rewards: int = 1000, kills: int = 50, seed: int = 0
) -> dict[str, int]:
    """Counts of what was done. Raises AssertionError where a reward is lost or what is known is another thing.

    Each process searches, acts and rewards until its share is done; one that is killed is followed by another, which goes on
    from the acknowledged rewards. Meanwhile one memory stays open and follows. In the end: every acknowledged reward is in the
    journal, and no more than one per kill beside them; the items, replayed from the journal, are those of the view; the credits
    of the items are the rewards; and what the watching memory has learned is what one learns that opens the file anew.
    """
    draw = random.Random(seed)
    watching = Memory(path, policy=policy, encoder=HashedWords(64), seed=1)
    watching.add_many([f"a {kind} thing goes to the {place}" for kind in KINDS for place in ("shop", "post", "bin")])
    known(watching)  # from here on it follows what others write
    workers = [Worker(path, policy, rewards) for _ in range(processes)]
    threads = [threading.Thread(target=worker.work) for worker in workers]
    for thread in threads:
        thread.start()
    done, total, killed = 0, processes * rewards, 0
    while any(thread.is_alive() for thread in threads):
        done = sum(worker.done for worker in workers)
        # Spread over the work: the next one when its share is done, at a moment drawn.
        if killed < kills and done >= total * (killed + 0.5) / (kills + 1):
            time.sleep(0.02 * draw.random())
            killed += draw.choice(workers).kill()
            known(watching)
        else:
            time.sleep(0.005)
    for thread in threads:
        thread.join()
    assert all(worker.done == rewards for worker in workers)
    with Memory(path, policy=policy, encoder=HashedWords(64), seed=1) as fresh:
        problems = check(fresh.store, deep=True)
        assert not problems, problems
        entries = [entry for entry in fresh.store.entries() if entry.kind == "REWARD"]
        assert total <= len(entries) <= total + killed, (total, len(entries), killed)
        credited = sum(len(json.loads(entry.payload or "{}")["items"]) for entry in entries)
        assert sum(item.values.credited for item in fresh.get_all(limit=10**6, all_states=True)) == credited
        assert known(fresh) == known(watching)
    watching.close()
    return {"acknowledged": total, "kills": killed}
