"""Groups that runs share through a folder: what is learned from, what is refused and why, and that nothing of it ends a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from keepworth.episodes import Task
from keepworth.learning.collect.pipeline import Pipeline, synchronous
from keepworth.learning.collect.shared_groups import Sharing, SharingTerms
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.trainer import Schedule, train
from keepworth.learning.watch.progress import SilentProgress
from keepworth.models.adapter import unfreeze
from tests.learning.letters import OBJECTIVE, Letters
from tests.models.tiny import tiny_model


def letters() -> Letters:
    return Letters(lengths=lambda index: 6)


def tasks() -> list[Task]:
    return [letters().task(index) for index in range(5)]


def node(root: Path, name: str, steps: int, foreign: int = 2, seed: int = 0) -> tuple[RunFolder, Learner]:
    """Trains a run that shares through root/shared, or continues it."""
    model = tiny_model(hidden=16)
    learner = Learner(model, unfreeze(model), OBJECTIVE, Optimisation(learning_rate=1e-2), "speaker")
    played = letters()
    with RunFolder.create(root / name, {}) as run:
        inner = Pipeline(run, learner, played, synchronous(2, 3, seed=seed))
        terms = SharingTerms(foreign, 3, seed=seed)
        collector = Sharing(inner, run, root / "shared", model, played.rollout, tasks(), terms)
        train(run, learner, collector, Schedule(steps, 100, 2), SilentProgress(), "shared")
    return run, learner


def published(root: Path) -> list[Path]:
    return sorted((root / "shared").glob("*/*.json"))


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("donor")
    node(root, "b", 3, foreign=0, seed=5)
    return root


@pytest.fixture
def root(donor: Path, tmp_path: Path) -> Path:
    """A folder with what one other run has published."""
    for path in published(donor):
        copy = tmp_path / path.relative_to(donor)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    assert len(published(tmp_path)) >= 4
    return tmp_path


def test_groups_of_another_run_are_trained_on_once_and_named(root: Path) -> None:
    offered = {f"{path.parent.name}/{path.stem}" for path in published(root)}
    run, _ = node(root, "a", 4)
    rows = [row for row in run.shared() if row["what"] == "trained"]
    names = [row["name"] for row in rows]
    assert set(names) == offered
    assert len(names) == len(set(names))
    for row in rows:
        trained = [each.episode for each in run.episodes(arm="train", step=row["step"])]
        foreign = [each for each in trained if each.id.startswith(f"{row['name']}/")]
        record = json.loads((root / "shared" / f"{row['name']}.json").read_text())
        assert [[list(segment.ids) for segment in each.segments] for each in foreign] == [
            each["calls"] for each in record["members"]
        ]
        assert row["reward"] == pytest.approx(row["claimed"])
        assert row["run"] == "b"
    counted = [int(row["shared/foreign"]) for row in run.metrics()]
    assert [row["episodes"] for row in run.metrics()] == [3 * (2 + count) for count in counted]
    assert counted[0] == 2


def test_a_run_that_is_continued_trains_nothing_twice(root: Path) -> None:
    node(root, "a", 2)
    run, _ = node(root, "a", 4)
    names = [row["name"] for row in run.shared() if row["what"] == "trained"]
    assert len(names) == len(set(names)) > 0


def test_with_nothing_foreign_the_run_is_the_one_that_shares_nothing(tmp_path: Path) -> None:
    _, one = node(tmp_path / "one", "a", 2, foreign=0)
    _, other = node(tmp_path / "other", "a", 2, foreign=2)
    for ours, theirs in zip(one.master_weights.named.values(), other.master_weights.named.values(), strict=True):
        assert torch.equal(ours, theirs)


def longer(record: dict[str, Any]) -> None:
    record["members"][0]["calls"].append([1])


def fewer(record: dict[str, Any]) -> None:
    del record["members"][0]["calls"][-1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda record: record.pop("members"), "not a group of this version"),
        (lambda record: record.update(tokenizer="another"), "another tokenizer"),
        (lambda record: record.update(task="letters/99"), "a task that is not trained on here"),
        (lambda record: record.update(question="another?"), "a task that is not trained on here"),
        (lambda record: record["members"].pop(), "2 members, and groups here have 3"),
        (
            lambda record: record["members"][0]["calls"].__setitem__(0, [10**6]),
            "none that this run's model could have drawn",
        ),
        (longer, "does not end where the episode ends here"),
        (fewer, "none that this run's model could have drawn"),
        (lambda record: record["members"].__setitem__(slice(None), record["members"][:1] * 3), "nothing to learn"),
    ],
)
def test_what_does_not_fit_is_refused_and_ends_nothing(
    root: Path, change: Callable[[dict[str, Any]], Any], reason: str
) -> None:
    first, *others = published(root)
    for path in others:
        path.unlink()
    record = json.loads(first.read_text())
    change(record)
    first.write_text(json.dumps(record))
    run, _ = node(root, "a", 1)
    (row,) = run.shared()
    assert row["what"] == "refused"
    assert reason in row["reason"]
    assert [row["shared/foreign"] for row in run.metrics()] == [0.0]


def test_a_claimed_reward_has_no_effect(root: Path) -> None:
    for path in published(root):
        record = json.loads(path.read_text())
        for member in record["members"]:
            member["reward"] = 1000.0
        path.write_text(json.dumps(record))
    run, _ = node(root, "a", 1)
    rows = [row for row in run.shared() if row["what"] == "trained"]
    assert all(row["claimed"] == 1000.0 for row in rows)
    assert all(row["reward"] <= 1.0 for row in rows)
