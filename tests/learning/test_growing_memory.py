"""A memory that grows while a model is trained: one member's writes are kept, and a resumed run has what it had."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from keepworth.episodes import (
    Episode,
    Group,
    Operation,
    OperationKind,
    ParseStatus,
    RewardTerm,
    StopReason,
)
from keepworth.episodes.episode import MemoryEvent
from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.learning.collect.memories import BANK_STATE, GrowingMemory
from keepworth.learning.run_folder import CheckpointCorrupt, RunFolder
from tests.learning.letters import Letters, settings, train_letters

CLOCK = lambda: "2026-01-01T00:00:00"  # noqa: E731


def opened(folder: Path, rule: str = "best") -> GrowingMemory:
    memory = GrowingMemory(folder, "speaker", rule, clock=CLOCK)  # type: ignore[arg-type]
    memory.open(None)
    return memory


def said(memory: GrowingMemory, index: int, *members: tuple[str, float]) -> Group:
    """A group whose members each write one text and earn a reward."""
    root = memory.root(index).content_hash()
    episodes = tuple(
        Episode(
            id=f"{index}/{number}",
            task="t",
            role="speaker",
            question="",
            segments=(),
            answer="",
            expected=(),
            rewards=(RewardTerm("r", reward),),
            stop=StopReason.COMPLETED,
            memory_snapshot=root,
            policy_version=0,
            operations=(MemoryEvent(Operation(OperationKind.ADD, text=text), ParseStatus.OK, "applied"),),
        )
        for number, (text, reward) in enumerate(members)
    )
    return Group("t", root, episodes)


def texts(memory: GrowingMemory) -> list[str]:
    return [item.text for item in memory.root(10_000).items()]


@pytest.mark.parametrize(("rule", "kept"), [("first", "a"), ("best", "b")])
def test_one_members_writes_are_kept_and_say_where_they_came_from(tmp_path: Path, rule: str, kept: str) -> None:
    memory = opened(tmp_path, rule)
    measured = memory.keep([said(memory, 0, ("a", 0.0), ("b", 1.0), ("c", 1.0))], 0)
    (item,) = memory.root(1).items()
    assert item.text == kept
    assert item.provenance.source == "training:t"
    assert measured == {
        "memory/kept": 1.0,
        "memory/no_longer_apply": 0.0,
        "memory/roots_gone": 0.0,
        "memory/items": 1.0,
    }


def test_a_sampled_member_is_a_function_of_seed_step_and_place(tmp_path: Path) -> None:
    chosen = []
    for number in range(2):
        memory = opened(tmp_path / str(number), "sampled")
        for step in range(6):
            memory.keep([said(memory, step, *((f"{step}{letter}", 0.0) for letter in "abcd"))], step)
        chosen.append(texts(memory))
    assert chosen[0] == chosen[1]
    assert len({text[-1] for text in chosen[0]}) > 1


def test_a_group_keeps_its_root_while_the_memory_grows(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    before = memory.root(0).content_hash()
    memory.keep([said(memory, 1, ("a", 1.0))], 0)
    assert memory.root(0).content_hash() == before != memory.root(2).content_hash()


def test_an_operation_on_what_is_gone_is_counted(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    memory.keep([said(memory, 0, ("a", 1.0))], 0)
    (item,) = memory.root(1).items()
    deleting = MemoryEvent(Operation(OperationKind.DELETE, (item.id,)), ParseStatus.OK, "applied")
    groups = [
        replace(group, episodes=(replace(group.episodes[0], operations=(deleting,)),))
        for group in (said(memory, 1, ("", 1.0)), said(memory, 2, ("", 1.0)))
    ]
    assert memory.keep(groups, 1) == {
        "memory/kept": 1.0,
        "memory/no_longer_apply": 1.0,
        "memory/roots_gone": 0.0,
        "memory/items": 0.0,
    }


def test_a_saved_memory_opens_as_it_was_with_its_journal_and_its_roots(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {}) as run:
        memory = opened(run.path)
        memory.keep([said(memory, 0, ("a", 1.0))], 0)
        hashes, position = (memory.content_hash(), memory.root(0).content_hash()), memory.store.head()
        with run.checkpoint(1) as folder:
            memory.save(folder)
        memory.keep([said(memory, 1, ("b", 1.0))], 1)
        assert memory.content_hash() != hashes[0]
        memory.open(run.latest_checkpoint())
        assert (memory.content_hash(), memory.root(0).content_hash()) == hashes
        assert memory.store.head() == position
        last = run.latest_checkpoint()
        assert last is not None
        state = json.loads((last.path / BANK_STATE).read_text())
        (last.path / BANK_STATE).write_text(json.dumps({**state, "position": position + 1}))
        with pytest.raises(CheckpointCorrupt, match="is not what was saved"):
            memory.open(last)


def test_misuse_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="best"):
        GrowingMemory(tmp_path, "speaker", "bset")  # type: ignore[arg-type]
    with pytest.raises(KeepworthError, match="not open"):
        GrowingMemory(tmp_path, "speaker", "best").root(0)
    memory = opened(tmp_path)
    group = said(memory, 0, ("a", 1.0))
    lost = replace(group, memory_snapshot="f" * 64, episodes=(replace(group.episodes[0], memory_snapshot="f" * 64),))
    with pytest.raises(KeepworthError, match="which no group was given"):
        memory.keep([lost], 0)


def test_a_group_whose_root_went_with_a_kill_writes_on_the_memory_that_is_there(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    memory.keep([said(memory, 0, ("a", 1.0))], 0)
    finished = said(memory, 1, ("b", 1.0))
    memory.open(None)  # killed before the first checkpoint: what was kept is gone, the finished group is on disk
    measured = memory.keep([finished], 0)
    assert texts(memory) == ["b"]
    assert measured == {
        "memory/kept": 1.0,
        "memory/no_longer_apply": 0.0,
        "memory/roots_gone": 1.0,
        "memory/items": 1.0,
    }


def test_a_training_stopped_half_way_ends_with_the_same_memory(tmp_path: Path) -> None:
    class Stop(Letters):
        def evaluate(self, step: int) -> None:
            if step == 2:
                raise KeyboardInterrupt

    serial = settings(mode="serial")
    train_letters(tmp_path / "straight", 5, serial, checkpoint_every=1, remember=True)
    with pytest.raises(KeyboardInterrupt):
        train_letters(tmp_path / "stopped", 2, serial, Stop(), checkpoint_every=1, remember=True)
    # What a longer run would be asked for: its configuration is the same but for the steps.
    record = json.loads((tmp_path / "straight" / "config.json").read_text())
    (tmp_path / "stopped" / "config.json").write_text(json.dumps(record))
    train_letters(tmp_path / "stopped", 5, serial, checkpoint_every=1, remember=True)
    found = []
    for name in ("straight", "stopped"):
        last = RunFolder(tmp_path / name).latest_checkpoint()
        assert last is not None
        found.append(json.loads((last.path / BANK_STATE).read_text()))
    assert found[0] == found[1]
    assert found[0]["position"] > 0
