"""A killed asynchronous training loses no finished group, trains none twice, and in serial mode ends like a straight one."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from keepworth.episodes import Group
from keepworth.learning.collect import pipeline as pipelines
from keepworth.learning.collect.curriculum import Band, Branches, Curriculum, Stage
from keepworth.learning.collect.groups import Journal, finished_from_json
from keepworth.learning.run_folder import RunFolder
from tests.learning.letters import Letters, again, settings, train_letters

STEPS = 8
SERIAL = {"mode": "serial", "max_staleness": 2, "pipeline_depth": 2.0}
OVERLAP = {"mode": "overlap", "max_staleness": 2, "pipeline_depth": 3.0}
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "transformers", "tests.learning.letters"])


def letters(**changes: Any) -> Letters:
    """Long answers in every third group, two turns each, environments that take their time."""
    return Letters(
        lengths=lambda index: 25 if index % 3 == 0 else 4,
        turns=2,
        latency=lambda index, member: 0.003 * ((5 * index + member) % 4),
        **changes,
    )


def unlucky(group: Group) -> str:
    """A rule that rejects about a third of all groups."""
    first = group.episodes[0].segments[0].ids[0]
    return f"it begins with {first}" if first % 3 == 0 else ""


def run(folder: Path, mode: str) -> None:
    """On the tiny model, in two stages, with a curriculum and calls that are rolled again."""
    torch.set_num_threads(1)
    asynchrony = settings(**(SERIAL if mode == "serial" else OVERLAP))
    stages = (Stage(3, horizon=5), Stage(1, weights={"low": 2.0}))
    # A group that is rejected is finished and not trained: not what the overlapping run is asked about.
    branches = Branches(again, 2, 0.3)
    curriculum = Curriculum(4, stages, Band(0.38, 1.5, retry=2), branches=branches)
    if mode == "serial":
        curriculum = replace(curriculum, refill=2, reject=unlucky)
    train_letters(folder, STEPS, asynchrony, letters(), checkpoint_every=3, curriculum=curriculum)


def kill_once(folder: Path, mode: str, seconds: float, training: Callable[[Path, str], None] = run) -> bool:
    """Start, kill `seconds` after it has begun to write; False where it had ended before."""
    before = newest(folder)
    running = FORKS.Process(target=training, args=(folder, mode))
    running.start()
    end = time.monotonic() + 1800
    while running.is_alive() and newest(folder) <= before:
        assert time.monotonic() < end
        time.sleep(0.02)
    running.join(seconds)
    running.kill()
    running.join()
    assert running.exitcode in (0, -signal.SIGKILL)
    return running.exitcode != 0


def newest(folder: Path) -> float:
    """When anything but the lock was last written there."""
    found = 0.0
    for inside, _, names in os.walk(folder):  # which passes over folders that were replaced meanwhile
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found = max(found, os.stat(os.path.join(inside, name)).st_mtime if name != ".lock" else 0.0)
    return found


def journalled(folder: Path, role: str = "speaker") -> set[int]:
    """GroupOrder of the groups that stand on disk as finished: in the files since the last checkpoint, and in it."""
    last = RunFolder(folder).checkpoints()
    step = last[-1].step if last else 0
    found = {each["group"] for each in state(folder)["finished"]} if last else set()
    found |= {each["group"] for each in state(folder)["open"] if "rerolls" in each} if last else set()
    for path in (folder / "finished" / role).glob("after-*.jsonl"):
        if int(path.stem.split("-")[1]) >= step:
            for text in path.read_bytes().split(b"\n")[:-1]:  # a torn last line was not finished
                found.add(json.loads(text)["group"])
    return found


def state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RunFolder(folder).checkpoints()[-1].path / "pipeline.json").read_text())
    return found


def trained(folder: Path) -> list[int]:
    if not (folder / "config.json").exists():  # killed before there was a run
        return []
    steps = {
        (stored.step, int(stored.episode.id.split("/")[0])) for stored in RunFolder.open(folder).episodes(arm="train")
    }
    return [index for _, index in steps]


def without_times(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in RunFolder.open(folder).metrics()]


def weights(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(RunFolder(folder).checkpoints()[-1].path / "learner.pt", weights_only=True)
    return found["learner"]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.slow
def test_a_serial_training_killed_five_times_ends_like_a_straight_one(tmp_path: Path) -> None:
    begun = time.monotonic()
    run(tmp_path / "straight", "serial")
    whole = time.monotonic() - begun
    generator = random.Random(4)
    kills = sum(kill_once(tmp_path / "killed", "serial", 0.5 * whole * generator.random()) for _ in range(5))
    assert kills >= 2, "it was too quick to be killed"
    run(tmp_path / "killed", "serial")
    assert without_times(tmp_path / "straight") == without_times(tmp_path / "killed")
    assert same(weights(tmp_path / "straight"), weights(tmp_path / "killed"))
    said = RunFolder.open(tmp_path / "straight").curriculum()
    assert {row["what"] for row in said} == {"outcome", "aside", "rejected"}
    assert said == RunFolder.open(tmp_path / "killed").curriculum()


@pytest.mark.slow
def test_an_overlapping_training_loses_no_finished_group_and_trains_none_twice(tmp_path: Path) -> None:
    generator = random.Random(5)
    finished: set[int] = set()
    kills = 0
    for _ in range(3):
        kills += kill_once(tmp_path / "run", "overlap", 0.5 * generator.random())
        known = journalled(tmp_path / "run") | set(trained(tmp_path / "run"))
        assert finished <= known, "a group that was finished before the last kill is gone"
        finished = known
    assert kills >= 2, "it was too quick to be killed"
    run(tmp_path / "run", "overlap")
    groups = trained(tmp_path / "run")
    assert len({s.episode.id for s in RunFolder.open(tmp_path / "run").episodes(arm="train") if s.episode.parent}) > 10
    assert len(groups) == 4 * STEPS
    assert max(Counter(groups).values()) == 1
    assert finished <= set(groups) | journalled(tmp_path / "run")


def drawn(folder: Path) -> dict[int, list[tuple[int, ...]]]:
    """What the members of each group on disk drew, by index."""
    return {
        each.index: [segment.ids for episode in each.group.episodes for segment in episode.segments]
        for each in Journal(folder, "speaker", 0).since(0)
    }


def killed_in_first_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pipelines, "write_state", killed)
        with pytest.raises(KeyboardInterrupt):
            train_letters(folder, 2, settings(), checkpoint_every=1)


def test_a_kill_while_the_first_checkpoint_is_written_loses_no_finished_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint needs the groups of the first file until there is one: until then the file is all there is."""
    folder = tmp_path / "run"
    killed_in_first_checkpoint(folder, monkeypatch)
    before = drawn(folder)
    assert len(before) >= 4, "a group that was finished before the kill is gone"
    train_letters(folder, 2, settings(), checkpoint_every=1)
    first = [s.episode for s in RunFolder.open(folder).episodes(arm="train") if s.step == 1]
    assert first
    for episode in first:
        index, member = map(int, episode.id.split("/")[:2])
        assert episode.segments[0].ids == before[index][member]


def test_a_group_that_awaited_rerolls_which_are_no_longer_asked_for_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    killed_in_first_checkpoint(folder, monkeypatch)
    (file,) = (folder / "finished" / "speaker").glob("after-000000.jsonl")
    rows = [json.loads(text) for text in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({**row, "rerolls": [], "awaited": True}) + "\n" for row in rows))
    before = drawn(folder)
    train_letters(folder, 2, settings(), checkpoint_every=1)
    first = [s.episode for s in RunFolder.open(folder).episodes(arm="train") if s.step == 1]
    assert first
    for episode in first:
        index, member = map(int, episode.id.split("/")[:2])
        assert episode.segments[0].ids == before[index][member]


def test_a_line_that_a_kill_cut_off_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train_letters(folder, 2, settings(), checkpoint_every=1)
    record = state(folder)["finished"][0]
    for step in (2, 3):  # also a file of a step that is still to come, where the run went back to an earlier checkpoint
        (folder / "finished" / "speaker" / f"after-{step:06d}.jsonl").write_bytes(b'{"group": 900, "born')
    journal = Journal(folder, "speaker", 2)
    journal.append(finished_from_json(record))
    journal.rotate(3, [2])
    journal.append(finished_from_json({**record, "group": 901}))
    assert [each.index for each in Journal(folder, "speaker", 2).since(2)] == [record["group"], 901]


def test_parked_episodes_go_on_with_the_very_tokens_they_had(tmp_path: Path) -> None:
    """Stop at step 2, look at what is parked, go on: what was drawn then is what those episodes begin with."""
    # Some are in the middle when a batch is full.
    long = Letters(lengths=lambda index: 20 + 8 * (index % 5), turns=2)
    settings_ = settings(max_staleness=3, pipeline_depth=2.0, slots=24)

    class Stop(Letters):
        def evaluate(self, step: int) -> None:
            if step:
                raise KeyboardInterrupt

    stopping = Stop(long.lengths, 2)
    with pytest.raises(KeyboardInterrupt):
        train_letters(tmp_path / "run", 5, settings_, stopping, checkpoint_every=1)
    parked = {
        f"{group['group']}/{member}": log["entries"]
        for group in state(tmp_path / "run")["open"]
        for member, log in enumerate(group["call_logs"])
        if str(member) not in group["episodes"]
    }
    assert any(entries and entries[0]["ids"] for entries in parked.values())
    train_letters(tmp_path / "run", 5, settings_, long, checkpoint_every=1)
    episodes = {stored.episode.id: stored.episode for stored in RunFolder.open(tmp_path / "run").episodes(arm="train")}
    checked = 0
    for name, entries in parked.items():
        if name in episodes:
            for entry, segment in zip(entries, episodes[name].segments, strict=False):
                count = len(entry["ids"])
                assert segment.ids[:count] == tuple(entry["ids"])
                assert segment.logprobs[:count] == tuple(entry["logprobs"])
                checked += count
    assert checked > 0
