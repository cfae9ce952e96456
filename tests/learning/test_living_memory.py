"""A memory that learns while a model is trained: what episodes read of it, here or of an image elsewhere, and what is written."""

from __future__ import annotations

import itertools
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from keepworth.episodes import Episode, Group, RewardTerm, StopReason
from keepworth.episodes.episode import MemoryStepKind, episode_from_json, episode_to_json
from keepworth.learning.collect.memories import LivingMemory
from keepworth.memory.by_name import policies_of_cases, seeded
from keepworth.memory.episode import HeldEpisode, written
from keepworth.memory.errors import ClosedEpisode, InvalidPolicy
from keepworth.memory.memory import Memory
from tests.memory.stub_encoder import WordEncoder

ACTIONS = ("open the door", "take the lamp", "wait", "go north")
TASKS = ("find the lamp", "leave the cellar", "feed the cat", "open the chest")
TIMES = {"at", "chain", "began", "ended", "written_at", "made"}


def living(folder: Path, policy: Callable[[], Any], seed: int = 3) -> LivingMemory:
    return LivingMemory(folder, "actor", policy, encoder=WordEncoder(), seed=seed)


def untimed(value: Any) -> Any:
    """An item as it was before a change says when it was written."""
    return re.sub(r'"\w+": "\d{4}-\d\d-\d\dT[^"]*"', "", value) if isinstance(value, str) else value


def contents(path: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows of a memory's file, but for times, what is chained over them, and the name of the file."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%words%' AND name NOT LIKE 'word_%'"
    found = {}
    for (name,) in list(connection.execute(query)):
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
        rows = [dict(zip(columns, row, strict=True)) for row in connection.execute(f"SELECT * FROM {name}")]
        found[name] = [{each: untimed(value) for each, value in row.items() if each not in TIMES} for row in rows]
    del found["facts_of_file"]
    connection.close()
    return found


def played(memory: LivingMemory, group: int, member: int) -> Episode:
    """Two steps, in the second of which something is done that nobody offered."""
    task = TASKS[group % len(TASKS)]
    feedback = memory.begin(f"house {group % 2}", task, f"{group}/{member}")
    held = feedback.memory
    shown: list[str] = []
    for step in range(2):
        hits = held.search(f"step {step} of {task}", actions=ACTIONS[: 2 + group % 3], top_k=3)
        shown += [hit.id for hit in hits]
        held.act(ACTIONS[(group + member + len(hits)) % 4] if step == 0 else f"say {task} {member} times")
        held.step_reward(float((group + member + step) % 2))
    reward = RewardTerm("success", float((group * 7 + member) % 3 == 0))
    return Episode(
        id=f"{group}/{member}",
        task=str(group),
        role="actor",
        question=task,
        segments=(),
        answer="",
        expected=(),
        rewards=(reward,),
        stop=StopReason.COMPLETED,
        memory_snapshot="",
        policy_version=0,
        decisions=feedback.decisions,
        memory_steps=feedback.taken,
    )


def grouped(episodes: Sequence[Episode]) -> list[Group]:
    by_task = itertools.groupby(
        sorted(episodes, key=lambda each: (int(each.task), each.id)), key=lambda each: each.task
    )
    return [Group(task, "", tuple(own)) for task, own in by_task]


def policies() -> dict[str, Callable[[], Any]]:
    named: dict[str, Callable[[], Any]] = {
        name: (lambda name=name: seeded(name, 3)) for name in (*policies_of_cases(), "default")
    }
    return {name: make for name, make in named.items() if make().rehearse is None and make().writer is not None}


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("advantage", "mixture", "remem") else pytest.param(name, marks=pytest.mark.slow)
        for name in policies()
    ],
)
def test_episodes_that_read_images_are_those_that_read_the_memory_and_so_is_what_is_written(
    name: str, tmp_path: Path
) -> None:
    make = policies()[name]
    alone, controller = living(tmp_path / "alone", make), living(tmp_path / "controller", make)
    readers = [living(tmp_path / "nowhere", make) for _ in range(2)]
    alone.open(None)
    controller.open(None)
    for step in range(4):
        ids = [(4 * step + number, member) for number in range(4) for member in range(2)]
        here = {f"{group}/{member}": played(alone, group, member) for group, member in ids}
        there: dict[str, Episode] = {}
        for place, reader in enumerate(readers):
            reader.read(pickle.loads(pickle.dumps(controller.image())))
            for group, member in reversed(ids):  # in another order, and only some of them
                if group % 2 == place:
                    played_there = played(reader, group, member)
                    there[played_there.id] = episode_from_json(episode_to_json(played_there))
        assert there == here
        assert alone.keep(grouped(list(here.values())), step) == controller.keep(grouped(list(there.values())), step)
    for each in (alone, controller, *readers):
        each.close()
    assert contents(alone.path) == contents(controller.path)
    assert not (tmp_path / "nowhere").exists()
    shown = sum(len(row["chosen"]) > 2 for row in contents(alone.path)["decisions"])
    assert shown, "nothing was shown: nothing was compared"


def test_an_episode_that_is_held_writes_nothing_and_is_written_once(tmp_path: Path) -> None:
    memory = living(tmp_path, policies()["advantage"])
    memory.open(None)

    def head() -> int:
        return memory.of("house 0").store.head()

    before = head()
    episode = played(memory, 0, 0)
    assert head() == before
    assert not contents(memory.path)["decisions"]
    kinds = [step.kind for step in episode.memory_steps]
    once = [MemoryStepKind.SEARCH, MemoryStepKind.ACT, MemoryStepKind.REWARD]
    assert kinds == [MemoryStepKind.BEGIN, *once, *once]
    assert memory.keep(grouped([episode]), 0)["memory/told"] == 1.0
    after = head()
    assert after > before
    with pytest.raises(ClosedEpisode, match="begun before"):
        memory.keep(grouped([episode]), 1)
    assert head() == after
    # What says nothing about the agent is not written.
    failed = replace(played(memory, 0, 1), stop=StopReason.ENVIRONMENT_ERROR)
    assert memory.keep(grouped([failed]), 2)["memory/told"] == 0.0
    assert head() == after
    memory.close()


def test_a_held_episode_refuses_what_it_could_not_read_again() -> None:
    with Memory(policy=policies()["advantage"], encoder=WordEncoder(), seed=1) as memory:
        held = HeldEpisode(memory, "1/0", "find the lamp")
        for write in (lambda: held.remember("a lamp"), lambda: held.reward(1.0)):
            with pytest.raises(InvalidPolicy, match="writes nothing itself"):
                write()
        with pytest.raises(ClosedEpisode, match="without searching"):
            held.act("wait")
        held.search("a dark room", actions=ACTIONS)
        held.act("wait")
        live = written(memory, held.id, held.taken, held.decisions)
        assert live.acts == 1
        assert live.decisions == held.decisions
        assert memory.pending() == [live.id]


def test_a_checkpoint_holds_the_memory_also_where_nothing_was_read_since_the_last(tmp_path: Path) -> None:
    memory = living(tmp_path / "run", policies()["advantage"])
    memory.open(None)
    memory.keep(grouped([played(memory, 0, 0)]), 0)
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    memory.save(one)
    memory.open(type("Checkpoint", (), {"path": one})())
    memory.save(two)
    whole = memory.image()
    memory.close()
    assert contents(one / "living.mem") == contents(two / "living.mem")
    assert len(contents(one / "living.mem")["episodes"]) == 1
    assert whole.data
