from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from keepworth.base.errors import KeepworthError
from keepworth.worlds.made_up import ORDERS
from keepworth.worlds.scene import Scene
from keepworth.worlds.streams import open_stream, worlds
from tests.environments.game import Game, Met

GENERATED = sorted(name for name, world in worlds().items() if world.generated)
MADE_UP = re.compile(r"(?![chqxy])[a-z][aeiou][lmnrst][aeiou][lmnrst]")  # those of one split, not those that all share


@pytest.mark.parametrize("family", GENERATED)
def test_splits_share_no_rule_words(family: str) -> None:
    def initials(split: str) -> Counter[str]:
        stream = open_stream(family, split=split, seed=0, length=60)
        said = [word for task in stream.tasks for word in Game(task).reset().text.split()]
        return Counter(word[0] for word in said if MADE_UP.fullmatch(word))

    dev, held = set(initials("dev")), set(initials("held-out"))
    assert dev
    assert held
    assert dev <= set("bdgklmnp")
    assert held <= set("frstvwzj")


@pytest.mark.parametrize("family", ["benign", "drift", "tool-graph"])
def test_orders_hold_the_same_tasks(family: str) -> None:
    texts = []
    for order in ORDERS:
        stream = open_stream(family, seed=1, order=order, length=80)
        half = stream.tasks if family != "drift" else stream.tasks[: int(stream.notes["change"])]
        texts.append(sorted(Game(task).reset().text for task in half))
        if order == "easy-to-hard":
            hardness = [task.difficulty for task in half]
            assert hardness == sorted(hardness)
    assert texts[0] == texts[1] == texts[2]


def test_the_leaning_gives_the_stated_base_rate() -> None:
    for task in open_stream("benign", seed=0).tasks[:50]:
        scene = Game(task).reset()
        weights = np.exp(scene.leaning)
        chance = sum(w for w, a in zip(weights, scene.actions, strict=True) if a in scene.right) / weights.sum()
        assert chance == pytest.approx(1.0 - task.difficulty)


def test_noise_and_attacks_come_at_their_rates() -> None:
    noisy = open_stream("noisy-reward", seed=0, length=2000)
    assert np.mean([t.flipped for t in noisy.tasks]) == pytest.approx(0.25, abs=0.05)
    attacked = open_stream("injection", seed=0)
    records = [record for task in attacked.tasks for record in task.foreign]
    assert (sum(r.hostile for r in records), len(records)) == (60, 96)
    triggered = [Game(task).reset().text for task in attacked.tasks if task.triggered]
    assert all(text.endswith(attacked.notes["trigger"]) for text in triggered)
    assert len(triggered) / 300 == pytest.approx(0.08, abs=0.05)
    late = open_stream("delayed-trigger", seed=0)
    assert not any(task.triggered for task in late.tasks[:150])
    assert np.mean([task.triggered for task in late.tasks[150:]]) == pytest.approx(0.16, abs=0.09)


def test_switches_leave_the_questions_of_a_world_alone() -> None:
    plain, tampered = open_stream("benign", seed=5), open_stream("tampered-10", seed=5)
    assert [Game(t).reset() for t in plain.tasks] == [Game(t).reset() for t in tampered.tasks]
    safe, attacked = open_stream("partners", seed=5), open_stream("injection", seed=5)
    assert [Game(t).reset() for t in safe.tasks] == [Game(t).reset() for t in attacked.tasks]


def passed(world: Game) -> list[Met]:
    """All scenes of an episode, answered rightly; the last is the end."""
    scenes = [world.reset()]
    while not scenes[-1].done:
        scenes.append(world.act(next(iter(scenes[-1].right))))
    return [*scenes[:-1], replace(scenes[-1], scene=Scene("", "", ()))]


def test_key_door_explains_the_key_beyond_the_visible_window() -> None:
    stream = open_stream("key-door", seed=1, length=40)
    assert stream.long_term
    met = set()
    for task in stream.tasks:
        scenes = passed(Game(task))
        key = scenes[10].observation.split()[3]
        notes = [place for place, scene in enumerate(scenes) if scene.named and scene.observation.split()[1] == key]
        assert len(notes) == 1
        assert frozenset(scenes[notes[0]].named) == scenes[10].right
        met.add(10 - notes[0])
    assert met <= set(stream.horizons)
    assert len(met) > 3


def test_events_are_answered_by_the_last_report() -> None:
    stream = open_stream("events", seed=2)
    last: dict[str, str] = {}
    met = Counter[str]()
    for task in (*stream.tasks, *stream.held_out):
        scenes = passed(Game(task))
        reports = [scene for scene in scenes if scene.named]
        for scene in reports:
            last[scene.observation.split()[1]] = scene.named[0]
        ask = scenes[len(reports)]
        asked = ask.observation.split()[-1]
        assert ask.right == {last.get(asked, "say nobody knows")}
        assert not reports or reports[-1].observation.split()[1] != asked
        met[task.rule] += 1
    assert {"0", "1", "2", "6+"} <= set(met)
    other = open_stream("events", seed=2, order="easy-to-hard")
    told = [[s.observation.split()[1] for s in passed(Game(t)) if s.named] for t in other.tasks]
    assert told == [[s.observation.split()[1] for s in passed(Game(t)) if s.named] for t in stream.tasks]


def nearest(text: str, records: Collection[str]) -> str:
    """The record other than `text` that shares most words with it, the shorter of two that share as many."""
    others = (record for record in records if record != text)
    return max(others, key=lambda record: (len({*record.split()} & {*text.split()}), -len(record)))


@pytest.mark.parametrize("order", ["random", "easy-to-hard"])
def test_linked_stream_needs_two_hops_of_similarity(order: str) -> None:
    stream = open_stream("linked", seed=2, length=160, order=order)
    records: dict[str, str] = {}
    met = Counter[str]()
    for task in (*stream.tasks, *stream.held_out):
        first, *others = passed(Game(task))[:-1]
        if task.rule == "facts":
            records |= {scene.observation: min(scene.right) for scene in (first, *others)}
            continue
        person = nearest(first.observation, records)
        thing = nearest(person, records)
        assert records[person] == "note"
        assert {records[thing]} == first.right
        assert not {*first.observation.split()} & {*thing.split()}
        met[task.rule] += 1
    assert min(met["room earlier"], met["room later"]) > 0.4 * met.total() > 70


def test_the_name_of_a_stream_turns_dials_of_its_world() -> None:
    long = open_stream("t-maze:length=16:doors=3", seed=1, length=5)
    assert (long.family, long.horizons, len(long.tasks)) == ("t-maze:length=16:doors=3", (17,), 5)
    assert long.tasks[0].difficulty == 1.0 - 1.0 / 3, "one of three doors"
    usual, noisy = (open_stream(name, seed=1, length=40) for name in ("benign", "benign:noise=0.5"))
    assert [task.rule for task in noisy.tasks] == [task.rule for task in usual.tasks], "the same questions"
    assert not any(task.flipped for task in usual.tasks)
    assert any(task.flipped for task in noisy.tasks)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("t-maze:len=3", "no setting 'len'"),
        ("t-maze:length=x", "length=x is no number"),
        ("t-maze:length", "'length' sets nothing"),
        ("updates:length=3", "updates has no dials"),
        ("no-maze:length=3", "no-maze"),
        ("linked:people=3", "words for 3 persons and 91390 things, and needs 380"),
    ],
)
def test_a_dial_that_cannot_be_turned_is_named(name: str, says: str) -> None:
    with pytest.raises(KeepworthError, match=says):
        open_stream(name)
