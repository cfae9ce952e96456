from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from keepworth.base import extras
from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.methods.worlds import science
from keepworth.methods.worlds._label_sets import KINDS, LABEL_SETS
from keepworth.methods.worlds.household import available, household
from keepworth.methods.worlds.labelled import LABELLED, LABELS, labelled
from keepworth.worlds import java
from keepworth.worlds.scene import Stream
from keepworth.worlds.streams import missing, open_stream
from tests.environments.game import Game


def folder(place: Path) -> Path:
    for name, count in (("train", 12), ("test", 3)):
        with gzip.open(place / f"{name}.csv.gz", "wt", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["text", "category"])
            for label in range(40):
                texts = (f"{name} query {label} {n} {'abcd'[label % 4] * 3} {label // 2}" for n in range(count))
                rows.writerows([text, f"intent {label}"] for text in texts)
    return place


def right_of(stream: Stream) -> list[frozenset[str]]:
    return [Game(task).reset().right for task in stream.tasks]


def test_half_of_the_labels_are_renamed_half_way(tmp_path: Path) -> None:
    stream = labelled("banking77", folder(tmp_path), variant="drift", seed=1, length=80)
    change = int(stream.notes["change"])
    before = {task.rule: Game(task).reset().right for task in stream.tasks[:change]}
    after = {task.rule: Game(task).reset().right for task in stream.tasks[change:]}
    both = before.keys() & after.keys()
    assert len(both) == 8
    assert sum(before[rule] != after[rule] for rule in both) == 4
    assert not {Game(t).reset().text for t in stream.tasks} & {Game(t).reset().text for t in stream.held_out}
    clean = labelled("banking77", tmp_path, seed=1, length=80)
    assert right_of(clean)[:change] == right_of(stream)[:change]
    assert "change" not in clean.notes


def test_held_out_rules_are_absent_from_dev_streams(tmp_path: Path) -> None:
    folder(tmp_path)

    def rules_of(split: str) -> set[str]:
        streams = (labelled("banking77", tmp_path, split=split, seed=seed) for seed in range(6))
        return {task.rule for stream in streams for task in stream.tasks}

    rules = {split: rules_of(split) for split in ("dev", "held-out")}
    assert min(map(len, rules.values())) >= LABELS
    assert not rules["dev"] & rules["held-out"]
    with pytest.raises(KeepworthError, match="kept for final runs"):
        labelled("kinds", timebench(tmp_path))
    stream = labelled("kinds", tmp_path, split="held-out")
    assert len(stream.tasks) == 64
    assert {task.rule for task in stream.tasks} < set(KINDS)


def timebench(place: Path) -> Path:
    for kind in KINDS:
        with gzip.open(place / f"{kind}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(json.dumps({"question": f"question of {kind} {number}"}) for number in range(10)))
    return place


def test_texts_are_split_where_labels_are_few() -> None:
    dev, held = (labelled("question-types", split=split) for split in ("dev", "held-out"))
    assert {task.rule for task in dev.tasks} == {task.rule for task in held.tasks}
    texts = [{Game(task).reset().text for task in (*each.tasks, *each.held_out)} for each in (dev, held)]
    assert not texts[0] & texts[1]


def test_alike_labels_come_in_pairs(tmp_path: Path) -> None:
    stream = labelled("banking77", folder(tmp_path), variant="near-miss", length=96)
    numbers = {int(task.rule.removeprefix("intent ")) for task in stream.tasks}
    assert len(numbers) == LABELS
    # A label's texts share a word with those of its neighbour, or of every fourth label, and with no others.
    assert all(
        any(other != number and (other // 2 == number // 2 or other % 4 == number % 4) for other in numbers)
        for number in numbers
    )


def test_noise_variant_flips_a_tenth_of_the_labels(tmp_path: Path) -> None:
    folder(tmp_path)
    streams = (labelled("banking77", tmp_path, variant="noise", seed=seed) for seed in range(6))
    flipped = [task.flipped for stream in streams for task in stream.tasks]
    assert 0.05 < sum(flipped) / len(flipped) < 0.15
    assert not any(task.flipped for task in labelled("banking77", tmp_path).tasks)


def test_a_folder_that_holds_the_sets_will_do(tmp_path: Path) -> None:
    (tmp_path / "banking77").mkdir()
    folder(tmp_path / "banking77")
    assert right_of(labelled("banking77", tmp_path)) == right_of(labelled("banking77", tmp_path / "banking77"))


def test_labelled_streams_name_missing_data() -> None:
    for name, (of, _) in LABELLED.items():
        assert (missing(name) is None) == (not LABEL_SETS[of].folder), name


def test_missing_or_foreign_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeepworthError, match=r"not found.*train\.csv\.gz"):
        labelled("banking77", tmp_path)
    with gzip.open(tmp_path / "train.csv.gz", "wt") as file:
        file.write("a,b\n1,2\n")
    with pytest.raises(KeepworthError, match="columns text and category"):
        labelled("banking77", tmp_path)


@pytest.mark.skipif(bool(available()), reason=f"household needs {available()}")
def test_the_household_is_won_by_putting_things_where_they_belong() -> None:
    stream = household(length=3, held_out=1)
    again = household(length=3, held_out=1)
    first = Game(stream.tasks[0]).reset()
    assert first == Game(again.tasks[0]).reset()
    assert all(action.startswith("put it in ") for action in first.actions)
    engine, _, number = stream.tasks[0].environment.args[0].args  # type: ignore[attr-defined]
    engine.reset(seed=number, gameFold="dev", generateGoldPath=True)
    path = [step for step in engine.getGoldActionSequence() if step.startswith("put ")]
    belongs = dict(step.removeprefix("put ").split(" in ", 1) for step in path)
    world = Game(stream.tasks[0])
    scene = world.reset()
    signals = []
    while not scene.done:
        scene = world.act(f"put it in {belongs[scene.observation]}")
        signals.append(scene.signal)
    assert (scene.reward, signals) == (1.0, [1.0, 1.0])
    lost = Game(stream.tasks[0])
    scene = lost.reset()
    wrong = [action for action in scene.actions if action != f"put it in {belongs[scene.observation]}"][:2]
    for action in wrong:
        scene = lost.act(action)
        assert action not in scene.actions
    assert (scene.done, scene.reward, scene.signal) == (len(wrong) == 2, 0.0, 0.0)


@pytest.mark.skipif(bool(science.available()), reason=f"science needs {science.available()}")
def test_science_is_won_by_the_facts_of_its_world() -> None:
    stream = science.science(length=6, held_out=2)
    rules = {task.rule for task in stream.tasks}
    assert science.CONDUCTIVITY in rules
    assert len(rules) > 1
    for task in stream.tasks[:4]:
        world = Game(task)
        first = scene = world.reset()
        assert first == Game(task).reset()
        steps = 0
        while not scene.done:
            assert scene.right < set(scene.actions)
            scene = world.act(next(iter(scene.right)))
            steps += 1
        assert (scene.reward, scene.signal) == (1.0, 1.0)
        assert steps == (2 if "then" in task.rule else 1)
        lost = Game(task)
        lost.reset()
        scene = lost.act(next(action for action in first.actions if action not in first.right))
        assert (scene.done, scene.reward, scene.signal) == (True, 0.0, 0.0)


@pytest.mark.parametrize("name", ["baby baby wolf", "egg wolf", "wolf egg", "juvenile wolf", "wolf"])
def test_an_animal_is_known_at_every_stage_of_its_life(name: str) -> None:
    assert science.animal(name) == "wolf"


@pytest.mark.parametrize("name", ["household", "science"])
def test_a_world_that_needs_java_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda found: object())
    monkeypatch.setattr(java.shutil, "which", lambda program: None)
    for opened in (lambda: open_stream(name), {"household": household, "science": science.science}[name]):
        with pytest.raises(KeepworthError, match="Java"):
            opened()
    assert missing("near-miss") is None
    with pytest.raises(UnknownName, match="household"):
        missing("houshold")
