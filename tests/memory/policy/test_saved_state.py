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

from keepworth.memory.by_name import policy
from keepworth.memory.choose import learning
from keepworth.memory.choose.experience import Experience
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.errors import StorageFull
from keepworth.memory.memory import Memory
from keepworth.memory.store import saved_state
from keepworth.memory.store.maintenance import check
from keepworth.methods.policies.default import record
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


# A state in pieces, of a policy that remembers few rewards.


PEOPLE = ("", "ana", "ben")
LATE: dict[str, list[str]] = {}
"""By path, episodes whose rewards are corrected later."""


@pytest.fixture
def small(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are cut into pieces that a few rewards fill."""
    monkeypatch.setattr(saved_state, "PIECE", 512)
    monkeypatch.setattr(saved_state, "LONG", 8)


def remembering(path: Path, newest: int = 60, **options: Any) -> Memory:
    make = policy("default", newest=newest, least=2, withhold=0.2)
    return Memory(path, encoder="hashing", policy=make, seed=0, **options)


def live_through(memory: Memory, numbers: range) -> None:
    """Rewards of all kinds: of searches and episodes, from people, signals and the program, and corrections, also late."""
    late = list[str]()
    for number in numbers:
        question, by = f"{QUESTIONS[number % 7]} on day {number % 3}", PEOPLE[number % 3]
        right = float((number * number + number // 7) % 3 == 0)
        if number % 5 == 0:
            with memory.episode(question) as episode:
                for step in range(2):
                    episode.search(f"{question} at {step}", actions=("wait", "run"), top_k=3)
                    episode.act(("wait", "run")[(number + step) % 2])
                episode.reward(right, by=by)
            late.append(episode.id)
        else:
            decision = memory.search(question, top_k=3).decision
            if number % 5 == 1:
                memory.reward(decision, right, by="", source="signal:check-passed")
            memory.reward(decision, right, by=by)
            if number % 5 == 2:
                memory.reward(decision, 1.0 - right, by=by)
    LATE.setdefault(memory.path, []).append(late[-1])
    for episode in LATE[memory.path][-3:]:
        memory.reward(episode, 0.5, by="cleo")


def everything_known(memory: Memory) -> tuple[Any, ...]:
    advice = [memory.search(question, actions=("wait", "run"), explore=False).advice for question in QUESTIONS]
    return expected(memory), repr(memory.ledger(everything=True)), advice


def pieces(path: Path) -> list[tuple[object, ...]]:
    return behind_its_back(path, "SELECT name, value FROM facts_of_file WHERE name LIKE 'learned piece%'")


def test_cold_opens_know_the_same_to_the_bit_as_a_live_process(path: Path, small: None) -> None:
    with remembering(path) as live:
        live.add_many([f"Train {number % 7} leaves at {number}." for number in range(21)])
        opened_cold = []
        for begin in range(0, 200, 25):
            live_through(live, range(begin, begin + 25))
            opened_cold.append(remembering(path))
            assert everything_known(opened_cold[-1]) == everything_known(live)
        # Those that were opened earlier went on from there, and dropped rows when the live one did.
        for cold in opened_cold:
            assert everything_known(cold) == everything_known(live)
            cold.close()
    assert len(pieces(path)) > 10


def test_a_new_process_reads_no_reward_behind_the_saved_state(path: Path, small: None) -> None:
    with remembering(path, newest=1000) as memory:
        memory.add_many([f"Train {number % 7} leaves at {number}." for number in range(21)])
        live_through(memory, range(150))
        before = everything_known(memory)
    with remembering(path, newest=1000) as memory:
        assert everything_known(memory) == before
    behind_its_back(path, "UPDATE decisions SET chosen = '[]', candidates = '[]' WHERE n < 100")
    with remembering(path, newest=1000) as memory:
        assert everything_known(memory) == before


BROKEN = ("UPDATE facts_of_file SET value = substr(value, 9) || substr(value, 1, 8)", "DELETE FROM facts_of_file")


@pytest.mark.parametrize("broken", BROKEN)
def test_a_damaged_piece_voids_the_state_until_it_is_written_anew(broken: str, path: Path, small: None) -> None:
    known = teach(path, 90)
    behind_its_back(
        path, f"{broken} WHERE name = (SELECT min(name) FROM facts_of_file WHERE name LIKE 'learned piece%')"
    )
    with opened(path) as memory:
        assert memory.learning is not None
        assert expected(memory) == known
        assert memory.learning.experience.learned == 90
        memory.search(QUESTIONS[0])  # after which all is written again
    behind_its_back(path, "UPDATE decisions SET chosen = '[]', candidates = '[]'")
    assert known_at(path) == known


def test_a_state_of_other_rules_or_settings_is_learned_anew(
    path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = teach(path, 70)
    monkeypatch.setattr(record, "_RULES", record._RULES + 1)
    assert known_at(path) == known
    with opened(path) as memory:
        memory.search(QUESTIONS[0])
    assert len({name for name, _ in saved(path) if "piece" not in str(name)}) == 2, (
        "each version has a state of its own"
    )
    others = []
    for newest in range(30, 36):
        with remembering(path, newest=newest) as memory:
            memory.search(QUESTIONS[0])
            others.append(expected(memory))
        with remembering(path, newest=newest) as memory:
            assert expected(memory) == others[-1]
    assert len({name for name, _ in saved(path) if "piece" not in str(name)}) == saved_state.VERSIONS


def test_erasing_deletes_all_pieces_and_no_process_saves_a_state_of_before(path: Path, small: None) -> None:
    with opened(path) as other:
        teach(path, 70, by="somebody")
        expected(other)
        with opened(path) as memory:
            memory.forget("m1", purge_history=True)
        assert pieces(path) == saved(path) == []
        assert expected(other) == known_at(path)
        other.search(QUESTIONS[0])
        assert "m1 " not in str(saved(path))
    assert known_at(path) == known_at(path)


def test_a_rollback_after_the_save_reaches_every_process(path: Path, small: None) -> None:
    teach(path, 70)
    with opened(path) as other, opened(path) as memory:
        expected(other)
        memory.rollback(since="s60")
        known = expected(memory)
        assert known_at(path) == known
        memory.search(QUESTIONS[0])
        assert expected(other) == known_at(path) == known


def test_an_erasure_between_learning_and_saving_prevents_the_save(
    path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, erased = Experience.save, []

    def meanwhile(experience: Experience) -> Any:
        packed = pack(experience)
        if not erased:
            erased.append(other.forget("m1", purge_history=True))
        return packed

    teach(path, 10)
    with opened(path) as other:
        monkeypatch.setattr(Experience, "save", meanwhile)
        teach(path, 10)
    assert erased
    assert saved(path) == []


def test_questions_that_were_encoded_again_are_saved_to_the_bit(path: Path, small: None) -> None:
    teach(path, 70)
    behind_its_back(path, "DELETE FROM facts_of_file WHERE name LIKE 'learned%'")
    behind_its_back(path, "UPDATE decisions SET vector = NULL")
    with opened(path) as memory:
        known = expected(memory)
        memory.search(QUESTIONS[0])
    behind_its_back(path, "UPDATE decisions SET query = ''")
    assert known_at(path) == known


def test_a_process_that_only_searches_saves_a_state_learned_anew(path: Path, small: None) -> None:
    known = teach(path, 70)
    behind_its_back(path, "DELETE FROM facts_of_file WHERE name LIKE 'learned%'")
    with Memory(path, encoder="hashing", read_only=True) as reader:
        reader.search(QUESTIONS[0])
    assert saved(path) == []
    with opened(path) as memory:
        memory.search(QUESTIONS[0])
    assert saved(path) != []
    behind_its_back(path, "UPDATE decisions SET chosen = '[]', candidates = '[]'")
    assert known_at(path) == known


def test_rewards_are_on_file_where_the_state_cannot_be_saved(
    path: Path, often: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise StorageFull("no room left")

    with monkeypatch.context() as full:
        full.setattr(saved_state, "save", refused)
        known = teach(path, 30)
    assert "could not be saved: no room left" in caplog.text
    assert saved(path) == []
    assert known_at(path) == known


def test_writes_of_unchanged_pieces_are_left_out(path: Path, small: None) -> None:
    teach(path, 60)
    before = dict(pieces(path))
    teach(path, 20)
    after = dict(pieces(path))
    assert len(before.keys() & after.keys()) > len(before) // 3
    assert before.keys() - after.keys(), "pieces of no state are deleted"


SLOWER = [pytest.param(policy, marks=pytest.mark.slow) for policy in ("memrl", "kernel-mean")]


@pytest.mark.parametrize("policy", ["default", *SLOWER])
def test_learned_state_equals_the_journal_after_kills(tmp_path: Path, policy: str) -> None:
    found = learned_and_killed(tmp_path / "a.mem", policy=policy, rewards=25, kills=6)
    assert found["acknowledged"] == 100
    assert found["kills"] >= 3


def test_killed_processes_leave_no_state_that_does_not_fit(path: Path) -> None:
    found = learned_and_killed(path, rewards=25, kills=6, saved_every=5)
    assert found["acknowledged"] == 100
    assert saved(path) != []


# Several processes learn on one file and are killed again and again: what is known is what a replay of the journal says.


KINDS = ("torn", "late", "lost", "broken")
WORKER = """
import sys
from tests.memory.policy.test_saved_state import worked
worked(*sys.argv[1:3], *map(int, sys.argv[3:]))
"""


def asked(kind: str) -> str:
    return f"what to do with a {kind} thing"


def worked(path: str, policy: str, begin: int, count: int, saved_every: int) -> None:
    """For a process of its own: reward number `begin` up to `count`, and say each that is on file."""
    learning.SAVED_EVERY = saved_every
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

    def __init__(self, path: Path, policy: str, count: int, saved_every: int) -> None:
        self.path, self.policy, self.count, self.saved_every = path, policy, count, saved_every
        self.done = 0
        self.kills = 0
        self.running: subprocess.Popen[str] | None = None

    def work(self) -> None:
        while self.done < self.count:
            numbers = map(str, (self.done, self.count, self.saved_every))
            command = [sys.executable, "-c", WORKER, str(self.path), self.policy, *numbers]
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
    path: Path,
    *,
    policy: str = "default",
    processes: int = 4,
    rewards: int = 1000,
    kills: int = 50,
    seed: int = 0,
    saved_every: int = learning.SAVED_EVERY,
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
    workers = [Worker(path, policy, rewards, saved_every) for _ in range(processes)]
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
