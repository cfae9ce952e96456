"""What is kept beside the file is what a replay of the journal gives, to the last bit, or is not used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepworth.memory.by_name import policies_of_cases, policy
from keepworth.memory.errors import CannotEvaluate
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Assignment, Draft
from keepworth.memory.policy import learning
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.learned_state import _reads_items, pack
from keepworth.memory.store import learned_file
from keepworth.memory.store.connection import scalar
from keepworth.memory.store.maintenance import backup, check, compact
from keepworth.methods.policies.advantage import SETTINGS

KINDS = ("torn", "0badcafe", "lost", "broken", "wet")
OFFERED = ("refund", "replace", "escalate")
FREE = ("give the money back", "send another one", "ask the boss", "give all of the money back", "say sorry")
REVISED = ("amem", "rememberer")
"""Policies that reword old items, so that the numbers of their actions depend on when they are read."""


@pytest.fixture(autouse=True)
def _kept_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "KEPT_FROM", 1)


def opened(path: Path, policy: Any, **options: Any) -> Memory:
    return Memory(path, policy=policy, encoder=HashedWords(64), seed=1, **{"reward_range": (0.0, 2.0), **options})


def play(memory: Memory, generator: np.random.Generator, *, free: bool) -> str:
    """An episode or a single choice, by somebody, with rewards of some size."""
    kind = KINDS[generator.integers(len(KINDS))]
    by = ("", "", "", "ana", "bo")[generator.integers(5)]
    if generator.random() < 0.2:
        hits = memory.search(f"what to do with a {kind} thing", actions=() if free else OFFERED)
        memory.reward(hits.decision, float(generator.integers(2)), by=by)
        return ""
    with memory.episode(f"a {kind} thing from {generator.integers(3)}") as episode:
        for _ in range(int(generator.integers(1, 4))):
            episode.search(f"what to do with a {kind} thing", actions=() if free else OFFERED)
            episode.act(str(generator.choice(FREE if free else OFFERED)))
            if generator.random() < 0.3:
                episode.step_reward(round(float(generator.random()), 2))
        episode.reward(round(float(generator.random() * generator.choice([1, 1, 2])), 2), by=by)
    return episode.id


def everything(memory: Memory) -> tuple[Any, ...]:
    """All that decides what is shown next: what was learned, and the columns that it goes by."""
    assert memory.learning is not None
    experience = memory.learning.experience
    learned, arrays = pack(experience)
    pool, n = experience.pool, len(experience.pool)
    columns = [getattr(pool, name)[:n] for name in ("vectors", "words", "status", "born", "episode", "good", "warns")]
    contents = [pool.actions._texts[number] if number >= 0 else "" for number in pool.content[:n].tolist()]
    people = {number: name for name, number in pool.people.items()}
    persons = [people.get(number, str(number)) for number in pool.person[:n].tolist()]
    items = [(item.id, item.key, item.status, dict(item.metadata)) for item in pool.items]
    actions = learned.pop("actions")
    if experience.policy.name in REVISED:
        learned.pop("people")
    else:
        columns += [pool.content[:n], pool.person[:n]]
        learned["actions"] = [actions["fields"][name] for name in ("_texts", "_numbers")]
    query = experience.query("a torn thing", "what to do with a torn thing")
    candidates = experience.policy.retriever(query, pool)
    values = experience.policy.valuer.estimate(query, candidates, pool)
    judged = [candidates.rows, values.means, values.deviations]
    # In the order of names: arrays that a policy has none of are none here.
    return (
        json.dumps(learned),
        [np.array(each).tobytes() for each in (*arrays, *columns, *judged)],
        contents,
        persons,
        items,
    )


def replayed(path: Path, policy: Any, folder: Path, **options: Any) -> tuple[Any, ...]:
    """As one learns who has the memory file and nothing beside it."""
    copy = folder / "replayed.mem"
    for each in folder.glob("replayed.mem*"):
        each.unlink()
    copy.write_bytes(path.read_bytes())
    with opened(copy, policy, **options) as memory:
        return everything(memory)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Entries of the journal up to which what was kept was used."""
    heads: list[int] = []
    read = learning.Beside.read

    def noted(self: Any, experience: Any) -> int:
        heads.append(read(self, experience))
        return heads[-1]

    monkeypatch.setattr(learning.Beside, "read", noted)
    return heads


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("name", policies_of_cases())
def test_what_is_kept_is_what_a_replay_gives(name: str, free: bool, tmp_path: Path, used: list[int]) -> None:
    generator = np.random.default_rng(len(name) + free)
    path = tmp_path / "m.mem"
    with opened(path, name) as memory:
        memory.add_many([f"a {kind} thing wants care" for kind in KINDS])
        for _ in range(8):
            play(memory, generator, free=free)
    for _ in range(2):
        used.clear()
        with opened(path, name) as memory:
            for _ in range(int(generator.integers(1, 5))):
                play(memory, generator, free=free)
            memory.learning._due = learning.NEVER  # as if it were killed: nothing is kept when it closes
        again = replayed(path, name, tmp_path)
        used.clear()
        with opened(path, name) as memory:
            assert everything(memory) == again
            reworded = _reads_items(memory.learning.experience.policy)  # by an episode that came after what was kept
        assert used == [used[0]]
        assert used[0] > 0 or reworded or name in REVISED


def learned(path: Path, policy: Any = "advantage", episodes: int = 8, **options: Any) -> list[Path]:
    """Files beside a memory in which something was learned."""
    generator = np.random.default_rng(5)
    with opened(path, policy, **options) as memory:
        memory.add_many([f"a {kind} thing wants care" for kind in KINDS])
        for _ in range(episodes):
            play(memory, generator, free=False)
    return learned_file.learned_files(path)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "header", "text", "folder"])
def test_a_damaged_file_is_not_used_and_made_again(damage: str, tmp_path: Path, used: list[int]) -> None:
    path = tmp_path / "m.mem"
    (beside,) = learned(path)
    there = beside.read_bytes()
    with opened(path, "advantage") as memory:
        assert everything(memory) == replayed(path, "advantage", tmp_path)
        assert list(check(memory.store)) == []
    beside.unlink()
    if damage == "folder":
        beside.mkdir()
    else:
        flipped = bytearray(there)
        flipped[-100] ^= 1
        header = bytearray(there)
        header[60] ^= 1
        beside.write_bytes(
            {"cut": there[:-70], "flipped": flipped, "empty": b"", "header": header, "text": b"hello" * 100}[damage]
        )
    used.clear()
    with opened(path, "advantage") as memory:
        assert any(beside.name in problem for problem in check(memory.store))
        assert everything(memory) == replayed(path, "advantage", tmp_path)
        assert used[0] == 0
    used.clear()
    if damage != "folder":
        with opened(path, "advantage") as memory:
            memory.search("anything")
        assert used[0] > 0


def test_a_file_of_another_memory_policy_or_setting_is_not_used(tmp_path: Path, used: list[int]) -> None:
    path, other = tmp_path / "m.mem", tmp_path / "n.mem"
    (beside,) = learned(path)
    (foreign,) = learned(other, episodes=9)
    foreign.write_bytes(beside.read_bytes())
    for where, chosen, options, fits in [
        (path, "advantage", {}, True),
        (other, "advantage", {}, False),
        (path, {"advantage": lambda: policy("advantage", k=2)}, {}, True),  # a selector learns nothing
        (path, {"advantage": lambda: policy("advantage", settings=replace(SETTINGS, noise=0.3))}, {}, False),
        (path, "advantage", {"reward_range": (0.0, 4.0)}, False),
        (path, "advantage", {"trusted": ("ana",)}, False),
        (path, "advantage", {"user_id": "eve"}, False),
        (path, "memrl", {}, False),
    ]:
        before = beside.read_bytes(), foreign.read_bytes()
        used.clear()
        with opened(where, chosen, **options) as memory:
            assert everything(memory) == replayed(where, chosen, tmp_path, **options)
        assert (used[0] > 0) is fits, (chosen, options)
        beside.write_bytes(before[0])
        foreign.write_bytes(before[1])


def test_another_version_reads_the_log(tmp_path: Path, used: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.mem"
    learned(path)
    monkeypatch.setattr("keepworth.memory.policy.learned_state._code", lambda *files: "another")
    with opened(path, "advantage") as memory:
        memory.search("anything")
    assert used[0] == 0


@pytest.mark.parametrize("name", ["advantage", "memrl"])
def test_after_a_rollback_what_was_kept_is_learned_again(name: str, tmp_path: Path, used: list[int]) -> None:
    path = tmp_path / "m.mem"
    learned(path, name)
    with opened(path, name) as memory:
        done = play(memory, np.random.default_rng(1), free=False)
        memory.rollback(done)
        assert everything(memory)[2:] == replayed_now(memory, name, tmp_path)[2:]
    used.clear()
    with opened(path, name) as memory:
        assert everything(memory) == replayed(path, name, tmp_path)


def replayed_now(memory: Memory, name: str, folder: Path) -> tuple[Any, ...]:
    target = folder / "backup.mem"
    backup(memory.store, target)
    with opened(target, name) as copy:
        return everything(copy)


@pytest.mark.parametrize("name", ["advantage", "mixture", "memrl"])
def test_an_item_that_says_something_else_now_is_learned_from_as_it_is(
    name: str, tmp_path: Path, used: list[int]
) -> None:
    path = tmp_path / "m.mem"
    learned(path, name)
    with opened(path, name) as memory:
        first = next(item for item in memory.get_all(limit=100) if "do" in item.metadata)
        memory.learning._due = learning.NEVER
        said = (*first.metadata["do"], *first.metadata["avoid"])
        other = next(action for action in OFFERED if action not in said)
        act = Assignment(first.id, {"metadata": {**first.metadata, "do": [other], "avoid": []}})
        memory.store.perform(memory.scope, [(act, Draft(scope=first.scope))])
    used.clear()
    with opened(path, name) as memory:
        assert everything(memory) == replayed(path, name, tmp_path)
    assert used[0] == 0


@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_what_is_kept_does_not_depend_on_the_type_of_a_number(kind: Any, tmp_path: Path, used: list[int]) -> None:
    path = tmp_path / "m.mem"
    learned(path, "memrl", reward_range=(0.0, 2.0))
    used.clear()
    with opened(path, "memrl", reward_range=tuple(np.array([0, 2], kind))) as memory:
        assert everything(memory) == replayed(path, "memrl", tmp_path, reward_range=(0.0, 2.0))
    assert used[0] > 0


def test_a_policy_that_is_given_twice_is_not_taught_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught = []
    for kept_from in (1, 1_000):
        monkeypatch.setattr(learning, "KEPT_FROM", kept_from)
        made = policy("memrl")
        with opened(tmp_path / f"{kept_from}.mem", lambda made=made: made) as memory:
            memory.add("a torn thing")
            for _ in range(6):
                memory.reward(memory.search("a torn thing").decision, 1.0)
                if memory.learning._keeper is not None:
                    memory.learning._keeper.join()
            taught.append(made.valuer.q.data[:2].tolist())
    assert taught[0] == taught[1]
    assert "gave the same one again" in caplog.text


def test_the_decision_up_to_which_candidates_were_dropped_never_goes_back(tmp_path: Path) -> None:
    with opened(tmp_path / "m.mem", "memrl") as memory:

        def said(through: int) -> str | None:
            def work(connection: Any) -> str | None:
                learned_file.shorten(connection, through)
                return scalar(connection, "SELECT value FROM facts_of_file WHERE name = ?", (learned_file.SHORTENED,))

            return memory.store.database.write(work)

        assert [said(through) for through in (-3, 0, 15, 12, 16)] == [None, None, "15", "15", "16"]


@pytest.mark.parametrize("how", ["keep", "compact"])
def test_choices_that_lost_their_candidates_are_read_as_they_are(how: str, tmp_path: Path, used: list[int]) -> None:
    path = tmp_path / "m.mem"
    learned(path)
    with opened(path, "advantage", **({"keep_candidates": 2} if how == "keep" else {})) as memory:
        memory.learning._due = learning.NEVER
        memory.search("anything else")
        if how == "compact":
            compact(memory.store, keep_decisions=2)
    used.clear()
    with opened(path, "advantage") as memory:
        assert everything(memory) == replayed(path, "advantage", tmp_path)
    assert used[0] == 0


def test_slots_of_somebody_else_are_read_from_the_log(tmp_path: Path) -> None:
    def mine() -> Any:
        made = policy("memrl")
        made.keyer = lambda goal, observation: f"{goal} / {observation}"
        return made

    assert learned(tmp_path / "m.mem", {"mine": mine}) == []


def test_what_is_erased_is_in_no_file_beside_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.mem"
    with opened(path, "advantage") as memory:
        id = memory.add("the code of the zanzibar safe").id
        for number in range(6):
            with memory.episode("open the zanzibar safe") as episode:
                episode.search("zanzibar")
                episode.act("turn the zanzibar wheel")
                episode.reward(float(number % 2), by="zanzibar")
    (beside,) = learned_file.learned_files(path)
    assert b"zanzibar" in beside.read_bytes()
    late = learned_file.learned_path(path, "0badcafe")
    with opened(path, "advantage") as memory:
        assert memory.learning.experience.count
        late_write = kept_of(memory)
        memory.forget(id, purge_history=True)
        for item in memory.get_all(limit=100, all_states=True):
            memory.forget(item.id, purge_history=True)
        assert learned_file.learned_files(path) == []
        assert not learned_file.write_learned(memory.store, "0badcafe", *late_write)  # a process that was slow
        assert not late.exists()
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def kept_of(memory: Memory) -> tuple[dict[str, Any], list[Any]]:
    packed, arrays = pack(memory.learning.experience)
    with memory.store.database.reading() as connection:
        state = learned_file.state_of(memory.store, connection, memory.store.head())
    return {"learned": packed, "state": state}, arrays


def test_a_memory_that_is_read_only_reads_what_is_kept_and_writes_nothing(tmp_path: Path, used: list[int]) -> None:
    path = tmp_path / "m.mem"
    (beside,) = learned(path)
    there = beside.read_bytes()
    used.clear()
    with opened(path, "advantage", read_only=True) as memory:
        assert everything(memory) == replayed(path, "advantage", tmp_path)
    assert used[0] > 0
    beside.unlink()
    with opened(path, "advantage", read_only=True) as memory:
        memory.search("anything")
    assert not beside.exists()
    assert there


def test_judging_another_policy_and_rewards_of_another_size_read_the_log(tmp_path: Path) -> None:
    path = tmp_path / "m.mem"
    learned(path, episodes=30, reward_range=(0.0, 50.0))
    copy = tmp_path / "copy.mem"
    copy.write_bytes(path.read_bytes())
    judged = []
    for each in (path, copy):
        with opened(each, "advantage", reward_range=(0.0, 50.0)) as memory:
            with pytest.raises(CannotEvaluate) as refused:
                memory.evaluate("advantage")
            judged.append(str(refused.value))  # the numbers are in it
            with memory.episode("a torn thing") as episode:
                episode.search("what to do", actions=OFFERED)
                episode.act("refund")
                episode.reward(50.0)
            judged.append(everything(memory))
    assert judged[0] == judged[2]
    assert judged[1][2:] == judged[3][2:]


def test_much_that_is_learned_is_kept_while_the_memory_is_open(tmp_path: Path, used: list[int]) -> None:
    path, generator = tmp_path / "m.mem", np.random.default_rng(2)
    with opened(path, "memrl") as memory:
        memory.add("a thing")
        for _ in range(12):
            play(memory, generator, free=False)
        memory.learning._keeper.join()
        (beside,) = learned_file.learned_files(path)
        copy = tmp_path / "killed.mem"
        memory.learning._due = learning.NEVER
    copy.write_bytes(path.read_bytes())
    learned_file.learned_path(copy, beside.name.rpartition("-")[2]).write_bytes(beside.read_bytes())
    used.clear()
    with opened(copy, "memrl") as memory:
        there = everything(memory)
    assert used[0] > 0
    assert there == replayed(path, "memrl", tmp_path)


KILLED = """
import sys
import numpy as np
from pathlib import Path
from keepworth.memory.policy import learning
from tests.memory.policy.test_learned_state import opened, play
learning.KEPT_FROM = 1
generator = np.random.default_rng(int(sys.argv[3]))
with opened(Path(sys.argv[1]), sys.argv[2]) as memory:
    for number in range(10**6):
        play(memory, generator, free=False)
        print(number, flush=True)
"""


@pytest.mark.parametrize(
    ("name", "rounds"),
    [("advantage", 2), *(pytest.param(name, 4, marks=pytest.mark.slow) for name in ("advantage", "mixture"))],
)
def test_processes_that_are_killed_leave_what_the_journal_says(
    name: str, rounds: int, tmp_path: Path, used: list[int]
) -> None:
    path = tmp_path / "m.mem"
    with opened(path, name) as memory:
        memory.add("a thing")
    rewarded = 0
    for seed in range(rounds):
        running = [
            subprocess.Popen([sys.executable, "-c", KILLED, path, name, str(2 * seed + each)], stdout=subprocess.PIPE)
            for each in range(2)
        ]
        for process in running:
            for _ in range(4 + seed):
                assert process.stdout.readline()
        for process in running:
            process.send_signal(signal.SIGKILL)
            said = process.stdout.read().split()
            rewarded += 4 + seed + len(said)
            process.wait()
            process.stdout.close()
        used.clear()
        with opened(path, name) as memory:
            there = everything(memory)
            assert len(memory.learning.experience.uses) == memory.learning.experience.count
            memory.learning._due = learning.NEVER
        assert there == replayed(path, name, tmp_path)
        with opened(path, name) as memory:
            assert everything(memory) == there
            assert all("a writer that was killed left it" in problem for problem in check(memory.store))
    with opened(path, name) as memory:
        compact(memory.store)
        assert list(check(memory.store)) == []
        assert everything(memory) == there
    assert rewarded >= 9 * rounds
