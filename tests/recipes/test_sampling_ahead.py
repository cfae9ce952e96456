"""Recipes that sample ahead of the learner, with bounded lag; the task of a position is the one it always had."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

from keepworth.learning.collect.curriculum import CANDIDATES, SPAN, batch, draw_seed, drawn_task, group_at
from keepworth.methods.recipes import memory_r1, overwrite_reading, strings
from tests.recipes.tiny_runs import READING, STRINGS, run_of

Settings = dict[str, object]
LONG = {"steps": 3, "evaluate_every": 3}
ANSWERING = {"memories": 1, "words": 10, "max_tokens": 3, "balance": True}
AHEAD = [pytest.param("turns", marks=pytest.mark.slow), "overlap"]
"""Every recipe is sampled in step with the learner in tests/methods/test_recipes.py."""


@pytest.mark.parametrize(("recipe", "own"), [
    (strings, STRINGS),
    pytest.param(overwrite_reading, READING, marks=pytest.mark.slow),
    pytest.param(memory_r1, ANSWERING, marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.parametrize("sampling", AHEAD)
def test_samples_ahead(checkpoint: Path, tmp_path: Path, recipe: ModuleType, own: Settings, sampling: str) -> None:
    run = run_of(recipe, checkpoint, tmp_path / "run", sampling=sampling, slots=8, **LONG, **own)
    assert run.result()
    assert [row["episodes"] for row in run.metrics()] == [4.0] * 3
    trained = list(run.episodes(arm="train"))
    assert len({stored.episode.id for stored in trained}) == 12
    spans = [(stored.step, span) for stored in trained for call in stored.episode.segments for span in call.spans]
    first = min(span.version for step, span in spans if step == 1)  # of the training: imitation makes versions, too
    assert max(step - 1 - (span.version - first) for step, span in spans) <= 1


@pytest.mark.slow
def test_values_of_tasks_are_measured_with_the_rollouts_of_the_training(checkpoint: Path, tmp_path: Path) -> None:
    run = run_of(memory_r1, checkpoint, tmp_path / "run", objective="a_star_po", **LONG, **ANSWERING)
    assert [row["episodes"] for row in run.metrics()] == [4.0] * 3
    trained = {stored.episode.task for stored in run.episodes(arm="train")}
    last = run.latest_checkpoint()
    assert last is not None
    assert set(torch.load(last.path / "learner.pt", weights_only=True)["learner"]["soft_values"]) == trained


def test_a_positions_own_task_is_the_one_it_always_had_and_others_are_others() -> None:
    items = list(range(20))
    passed = [item for step in range(5) for item in batch(items[:10], 4, step, 3)]
    assert sorted(passed[:10]) == sorted(passed[10:]) == items[:10]

    def kind_of(item: int) -> str:
        return "rare" if item < 2 else "common"

    own = [drawn_task(items, None, 3, position) for position in range(32, 40)]
    assert own == batch(items, 8, 4, 3)
    others = [drawn_task(items, None, 3, group_at(position, 4)) for position in range(32, 40)]
    assert others != own
    assert others == [drawn_task(items, None, 3, group_at(position, 4)) for position in range(32, 40)]
    even = [drawn_task(items, kind_of, 3, position) for position in range(32, 40)]
    assert sum(item < 2 for item in even) == 4
    assert draw_seed(3, 4, 32) == 3 * 1_000_003 + 4
    retried = [group_at(8 * step, CANDIDATES * retry) for step in range(50) for retry in range(9)]
    assert len({draw_seed(3, group % SPAN // 8, group) for group in retried}) == 450
