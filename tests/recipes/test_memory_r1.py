"""The recipe's configuration and its two halves, whole, on a model of a few thousand weights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from recollect.evaluation.tables import tables_of
from recollect.learning.progress import SilentProgress
from recollect.learning.run_folder import RunFolder
from recollect.recipes import memory_r1
from recollect.recipes.memory_r1_parts import batch, kept_weights
from tests.end_to_end.tiny_folder import write_tiny_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(
    "settings",
    [
        {"data": "somewhere"},
        {"source": "locomo", "labels": "cloze"},
        {"reader": "run"},
        {"manager_reward": "answer"},
        {"method": "supervised", "style": "distil"},
        {"method": "supervised", "role": "manager"},
        {"stepz": 3},
        {"steps": 0},
    ],
)
def test_a_setting_that_cannot_take_effect_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        memory_r1.Config(**settings)  # type: ignore[arg-type]


def test_defaults_depend_on_the_role_and_are_shown_resolved() -> None:
    assert memory_r1.Config().steps == 45
    assert memory_r1.Config().train == "lora"
    assert memory_r1.Config(role="manager").entropy == 0.02
    assert memory_r1.Config(role="manager", entropy=0.0).entropy == 0.0


def test_batches_cover_every_item_once_per_pass_in_a_seeded_order() -> None:
    items = list(range(10))
    passed = [item for step in range(5) for item in batch(items, 4, step, seed=3)]
    assert Counter(passed[:10]) == Counter(items) == Counter(passed[10:])
    assert passed[:10] != passed[10:]
    assert batch(items, 4, 2, seed=3) == passed[8:12]
    assert batch(items, 4, 2, seed=4) != passed[8:12]


def small(checkpoint: Path, **settings: object) -> memory_r1.Config:
    common: dict[str, object] = {
        "model": str(checkpoint),
        "encoder": "hashing",
        "precision": "fp32",
        "threads": 1,
        "questions": 3,
        "memories": 1,
        "words": 10,
        "max_tokens": 3,
        "tasks_per_step": 2,
        "group_size": 2,
        "steps": 2,
        "evaluate_every": 2,
    }
    return memory_r1.Config(**{**common, **settings})  # type: ignore[arg-type]


def trained(config: memory_r1.Config, path: Path) -> RunFolder:
    with RunFolder.create(path, {"recipe": "memory_r1", **config.model_dump(mode="json")}) as run:
        memory_r1.train(config, run, SilentProgress())
    return run


@pytest.mark.parametrize("settings", [{}, {"labels": "mixed"}, {"method": "supervised"}])
def test_the_answerer_half_runs_whole(checkpoint: Path, tmp_path: Path, settings: dict[str, object]) -> None:
    run = trained(small(checkpoint, **settings), tmp_path / "run")
    (table,) = tables_of(run)
    assert [row.arm for row in table.rows] == [
        "no_memory_untrained",
        "untrained",
        "no_memory",
        "wrong_memory",
        "trained",
        "oracle_untrained",
        "oracle",
    ]
    assert [row["step"] for row in run.metrics()] == [1, 2]
    assert (kept_weights(run, "answerer") / "adapter_config.json").exists()


def test_the_manager_half_runs_whole_and_reads_with_a_trained_answerer(checkpoint: Path, tmp_path: Path) -> None:
    trained(small(checkpoint), tmp_path / "reader")
    config = small(checkpoint, role="manager", warm_start=8, warm_start_passes=1, reader="reader")
    run = trained(config, tmp_path / "manager")
    plain, near_misses, banks = tables_of(run)
    for operations in (plain, near_misses):
        assert [row.arm for row in operations.rows] == ["untrained", "warm_start", "reinforced"]
    assert [row.arm for row in banks.rows] == ["always_add", "untrained", "warm_start", "reinforced"]
    assert all(str(checkpoint) in row["reader"] for row in run.evals() if row["split"] == "banks, test")
    judged = small(checkpoint, role="manager", warm_start=0, manager_reward="answer", reader="reader", maintained=False)
    other = trained(judged, tmp_path / "judged")
    terms = {term.name for stored in other.episodes(arm="train") for term in stored.episode.rewards}
    assert terms == {"answer", "format"}
