"""Recipes that sample ahead of the learner: one setting, the same tables, bounded lag, and a refusal where it is idle."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from pydantic import ValidationError

from recollect.learning.progress import SilentProgress
from recollect.learning.run_folder import RunFolder
from recollect.recipes import memory_r1, overwrite_reading, strings
from tests.end_to_end.tiny_folder import write_tiny_checkpoint

TINY = {
    "precision": "fp32",
    "threads": 1,
    "steps": 3,
    "tasks_per_step": 2,
    "group_size": 2,
    "evaluate_every": 3,
    "checkpoint_every": 1,
    "questions": 2,
}
STRINGS = {"warm_start": 2, "warm_start_batch": 2, "tasks": 8, "held_out": 4, "max_tokens": 4}
ANSWERING = {"memories": 1, "words": 10, "max_tokens": 3, "balance": True}
READING = {"memory_tokens": 4, "answer_tokens": 3, "sections": 2, "warm_start": 0}


@pytest.mark.parametrize(("recipe", "own"), [(strings, STRINGS), (overwrite_reading, READING), (memory_r1, ANSWERING)])
@pytest.mark.parametrize("sampling", ["turns", "overlap"])
def test_a_recipe_samples_ahead(tmp_path: Path, recipe: ModuleType, own: dict[str, object], sampling: str) -> None:
    model = write_tiny_checkpoint(tmp_path / "model")
    config = recipe.Config(model=str(model), sampling=sampling, slots=8, **TINY, **own)
    with RunFolder.create(tmp_path / "run", config.model_dump(mode="json")) as run:
        recipe.train(config, run, SilentProgress())
        assert run.result()
        assert [row["episodes"] for row in run.metrics()] == [4.0] * 3
        trained = list(run.episodes(arm="train"))
        assert len({stored.episode.id for stored in trained}) == 12
        lags = [
            s.step - 1 - (span.version - first_version(run))
            for s in trained
            for e in s.episode.segments
            for span in e.spans
        ]
        assert max(lags) <= 1
        assert all(row["pipeline/over_bound"] == 0 for row in run.metrics())


def first_version(run: RunFolder) -> int:
    """Of the weights that training began with: imitation makes versions, too."""
    return min(span.version for s in run.episodes(step=1, arm="train") for e in s.episode.segments for span in e.spans)


@pytest.mark.parametrize(
    ("recipe", "settings", "says"),
    [
        (strings, {"max_staleness": 3}, "max_staleness = 3 has no effect with sampling = synchronous"),
        (strings, {"sampling": "overlap", "refill": 3}, "refill = 3 has no effect with sampling = overlap"),
        (memory_r1, {"slots": 8}, "slots = 8 has no effect with sampling = synchronous"),
        (memory_r1, {"sampling": "turns", "difficulty": (0.1, 0.9)}, "difficulty = .* has no effect with sampling"),
        (memory_r1, {"sampling": "turns", "stages": ({"steps": 1},)}, "stages = .* has no effect with sampling"),
        (memory_r1, {"role": "manager", "sampling": "turns"}, "sampling = 'turns' has no effect with role = manager"),
        (memory_r1, {"method": "supervised", "sampling": "turns"}, "no effect with method = supervised"),
        (memory_r1, {"method": "supervised", "temperature": 0.5}, "no effect with method = supervised"),
    ],
)
def test_a_setting_that_would_be_idle_is_refused(recipe: ModuleType, settings: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        recipe.Config(**settings)
