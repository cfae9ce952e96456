"""Each setting that chooses tasks has its effect in the recipe, or is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from keepworth.learning.collect.curriculum import CANDIDATES, SPAN, batch, draw_seed, drawn_task, group_at
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import SilentProgress
from keepworth.methods.recipes.memory_r1 import METHOD, Config
from keepworth.recipes.configuration import as_toml, load_toml, resolve
from keepworth.recipes.settings import curriculum_of
from tests.end_to_end.tiny_folder import write_tiny_checkpoint

SETTINGS: dict[str, Any] = {
    "balance": True,
    "refill": 2,
    "difficulty": (0.0, 0.9),
    "retry": 3,
    "stages": ({"steps": 1, "max_tokens": 2}, {"steps": 1, "weights": {"exact_match": 1.0}}),
}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"retry": 3}, "retry = 3 has no effect without difficulty"),
        ({"method": "supervised", "refill": 1}, "with method = supervised"),
        ({"method": "supervised", "difficulty": (0.1, 0.9)}, "with method = supervised"),
        ({"method": "supervised", "stages": ({"steps": 1},)}, "with method = supervised"),
        ({"role": "manager", "manager_reward": "answer", "balance": True}, "whose tasks are of one type"),
        ({"role": "manager", "stages": ({"steps": 1, "max_tokens": 4},)}, "a stage's max_tokens has no effect"),
        ({"stages": ({"steps": 45}, {"steps": 1})}, "Stage 2 begins after step 45, and the training has 45"),
        ({"stages": ({"steps": 1, "weights": {"format": 1.0}},)}, "the reward's terms are token_f1 and exact_match"),
        ({"difficulty": (0.9, 0.1)}, "no task can lie between difficulty 0.9 and 0.1"),
        ({"stages": ({"steps": 1, "words": 3},)}, "extra"),
        ({"refill": 9}, "less than or equal to 8"),
    ],
)
def test_what_cannot_take_effect_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Config(**settings)


def test_settings_become_a_curriculum() -> None:
    config = Config(**SETTINGS, steps=5)
    found = curriculum_of(config, config.curriculum_stages)
    assert (found.refill, found.tasks_per_step) == (2, 8)
    assert found.band is not None
    assert (found.band.low, found.band.high, found.band.retry) == (0.0, 0.9, 3)
    assert [(stage.steps, stage.horizon, dict(stage.weights)) for stage in found.stages] == [
        (1, 2, {}),
        (1, None, {"exact_match": 1.0}),
    ]
    plain = curriculum_of(Config())
    assert (plain.band, plain.stages, plain.refill) == (None, (), 0)


def test_stages_are_written_as_toml_and_read_back(tmp_path: Path) -> None:
    config = Config(**SETTINGS)
    (tmp_path / "c.toml").write_text(as_toml(config))
    assert load_toml(tmp_path / "c.toml")["stages"][1]["weights"] == {"exact_match": 1.0}
    assert resolve(Config, file=tmp_path / "c.toml") == config
    assert resolve(Config, assignments=["stages=[{steps=3}]", "difficulty=[0.2, 0.8]"]) == Config(
        stages=({"steps": 3},),
        difficulty=(0.2, 0.8),  # type: ignore[arg-type]
    )


def test_a_positions_own_task_is_the_one_it_always_had_and_others_are_others() -> None:
    items = list(range(20))

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


@pytest.mark.parametrize("role", ["answerer", "manager"])
def test_a_run_with_a_curriculum_says_what_it_did(role: str, tmp_path: Path) -> None:
    common: dict[str, Any] = {
        "model": str(write_tiny_checkpoint(tmp_path / "model")),
        "precision": "fp32",
        "threads": 1,
        "questions": 2,
        "tasks_per_step": 2,
        "group_size": 2,
        "steps": 2,
        "evaluate_every": 2,
        "refill": 1,
        "difficulty": (0.0, 0.9),
    }
    if role == "answerer":
        more = {"memories": 1, "words": 10, "max_tokens": 3, "stages": SETTINGS["stages"]}
    else:
        more = {
            "warm_start": 0,
            "maintained": False,
            "stages": ({"steps": 1}, {"steps": 1, "weights": {"format": 1.0}}),
        }
    config = Config(role=role, **common, **more)  # type: ignore[arg-type]
    with RunFolder.create(tmp_path / "run", config.model_dump(mode="json")) as run:
        METHOD.make.train(config, run, SilentProgress())
    rows = run.metrics()
    assert [row["curriculum/stage"] for row in rows] == [0, 1]
    assert all(row["curriculum/sampled_groups"] >= 2 for row in rows)
    outcomes = [row for row in run.curriculum() if row["what"] == "outcome"]
    assert len(outcomes) == sum(row["curriculum/sampled_groups"] for row in rows)
    first, second = (list(run.episodes(step=step, arm="train")) for step in (1, 2))
    if role == "answerer":
        assert max(len(each.episode.segments[0].ids) for each in first) <= 2
        assert {term.weight for e in second for term in e.episode.rewards if term.name == "exact_match"} == {1.0}
    assert {term.weight for e in first for term in e.episode.rewards if term.name == "exact_match"} <= {0.0}
