"""A killed asynchronous training keeps the finished groups of its checkpoint; in serial mode it ends like a straight one."""

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
from pathlib import Path
from typing import Any

import pytest
import torch

from keepworth.methods.recipes._bank.rerolls import rolled_again
from keepworth.training.run_folder import RunFolder
from tests.learning.letters import Letters, Stops, again, index_of, metrics, settings, train_letters, trained

STEPS = 8
SERIAL = {"mode": "serial"}
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


def run(folder: Path, mode: str) -> None:
    """On the tiny model, with groups that are replaced and calls that are rolled again."""
    torch.set_num_threads(1)
    asynchrony = settings(**(SERIAL if mode == "serial" else OVERLAP))
    refill = 2 if mode == "serial" else 0
    regroup = rolled_again(again, 2, 0.3, seed=0, refill=refill)
    train_letters(folder, STEPS, asynchrony, letters(), checkpoint_every=3, refill=refill, regroup=regroup)


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


def finished(folder: Path) -> set[int]:
    """Indices of the groups that wait in the last checkpoint."""
    return {each["group"] for each in state(folder)["finished"]} if RunFolder(folder).checkpoints() else set()


def state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RunFolder(folder).checkpoints()[-1].path / "pipeline.json").read_text())
    return found


def indices(folder: Path) -> list[int]:
    """Of the groups that were trained, as often as they were."""
    return [index for _, index in {(step, index_of(episode)) for step, episode in trained(folder)}]


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
    assert metrics(tmp_path / "straight") == metrics(tmp_path / "killed")
    assert same(weights(tmp_path / "straight"), weights(tmp_path / "killed"))


@pytest.mark.slow
def test_resumed_overlapping_run_trains_each_group_once(tmp_path: Path) -> None:
    generator = random.Random(5)
    waiting: set[int] = set()
    kills = 0
    for _ in range(3):
        kills += kill_once(tmp_path / "run", "overlap", 0.5 * generator.random())
        waiting |= finished(tmp_path / "run")
    assert kills >= 2, "it was too quick to be killed"
    run(tmp_path / "run", "overlap")
    groups = indices(tmp_path / "run")
    assert len({episode.id for _, episode in trained(tmp_path / "run") if episode.parent}) > 10
    assert len(groups) == 4 * STEPS
    assert max(Counter(groups).values()) == 1
    assert waiting <= set(groups) | finished(tmp_path / "run")


def test_finished_groups_of_the_checkpoint_are_trained_as_they_were(tmp_path: Path) -> None:
    """Stop at step 2, look at what waits, go on: what was drawn then is what is trained."""
    asynchrony = settings(max_staleness=3, pipeline_depth=3.0, slots=24)
    with pytest.raises(KeyboardInterrupt):
        train_letters(tmp_path, 5, asynchrony, Stops(turns=2), checkpoint_every=1)
    waiting = {each["group"]: each["groups"][0] for each in state(tmp_path)["finished"]}
    assert waiting
    train_letters(tmp_path, 5, asynchrony, Letters(turns=2), checkpoint_every=1)
    episodes = {episode.id: episode for _, episode in trained(tmp_path)}
    assert len(indices(tmp_path)) == len(set(indices(tmp_path))) == 4 * 5
    for record in (record for records in waiting.values() for record in records):
        if record["id"] in episodes:
            drawn = [list(segment.ids) for segment in episodes[record["id"]].segments]
            assert drawn == [segment["ids"] for segment in record["segments"]]
