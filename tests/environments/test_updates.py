from __future__ import annotations

import pytest

from keepworth.methods.worlds.updates import OFFERED, SIDES, _read_updates, updates
from tests.environments.game import Game


@pytest.mark.parametrize("order", ["random", "hard-to-easy"])
def test_a_question_is_asked_only_after_old_and_new_were_read(order: str) -> None:
    stream = updates(seed=1, order=order)
    assert stream.lasting
    read: list[str] = []
    asked: set[str] = set()
    for task in stream.tasks:
        world = Game(task)
        scene = world.reset()
        while len(scene.actions) == 1:
            read += scene.named
            scene = world.act(scene.actions[0])
        assert len(scene.actions) == OFFERED == len(set(scene.actions))
        assert scene.right
        assert set(scene.right) < set(scene.actions)
        assert set(scene.right) <= set(read)
        asked.add(task.rule)
    # Every note was read once, and held-out questions were read about but never asked.
    assert len(read) == len(set(read))
    assert not asked & {task.rule for task in stream.held_out}
    for task in stream.held_out:
        assert set(Game(task).reset().right) <= set(read)
    assert len(asked) > 20


def test_old_evidence_is_read_before_new_and_is_mostly_wrong() -> None:
    stream = updates(split="held-out", seed=0)
    when: dict[str, int] = {}
    for number, task in enumerate(stream.tasks):
        world = Game(task)
        scene = world.reset()
        while len(scene.actions) == 1:
            when[scene.named[0]] = number
            scene = world.act(scene.actions[0])
    known = _read_updates(SIDES["held-out"])
    gaps = [
        min(when[note.label] for note in each.latest) - max(when[note.label] for note in each.earlier)
        for each in known
        if each.earlier
    ]
    assert sorted(gaps)[:2] == [0, 0]  # the two that the first tasks need
    assert min(sorted(gaps)[2:]) == len(stream.tasks) // 10
    latest = [any(note.right for note in each.latest) for each in known]
    assert 0.6 < sum(latest) / len(latest) < 1.0  # some questions ask for what was said first


def test_splits_share_no_question() -> None:
    names = [{task.rule for task in (*s.tasks, *s.held_out)} for s in (updates(), updates(split="held-out"))]
    assert not names[0] & names[1]
