"""A model and a memory that learn in one run, on a model of a few thousand weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from keepworth.agents.acting import ModelActor, named
from keepworth.environments.scene import Scene
from keepworth.evaluation.tables import tables_of
from keepworth.learning.collect.memories import LivingMemory
from keepworth.learning.run_folder import RunFolder
from keepworth.memory.by_name import policies_of_cases
from keepworth.memory.memory import Memory
from keepworth.methods.recipes import text_world
from keepworth.methods.recipes.text_world import Config, Houses, house_of, settled
from keepworth.recipes.training import kept_weights
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.recipes.test_interactive import run_of

SMALL = {
    "world": "near-miss",
    "encoder": "hashing",
    "steps": 2,
    "stay": 1,
    "tasks": 2,
    "test_houses": 2,
    "dev_houses": 2,
    "max_tokens": 3,
    "warm_start": 1,
    "warm_start_batch": 2,
    "questions": None,
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model"))


def remembered(run: RunFolder | Path) -> dict[str, list[Any]]:
    """By house, what memory holds and what was learned from."""
    found = {}
    for number in range(2):
        house = f"near-miss/dev/{number}"
        folder = run if isinstance(run, Path) else run.path
        memory = Memory(folder / "memory" / "actor.mem", user_id=house, encoder="hashing", policy="mixture")
        told = [reward for _, reward in memory.learning.experience.uses]
        found[house] = [sorted(item.text for item in memory.get_all()), told]
        memory.close()
    return found


def test_model_and_memory_learn_in_one_run(checkpoint: Path, tmp_path: Path) -> None:
    run = run_of(text_world, checkpoint, tmp_path / "run", **SMALL)
    (table,) = tables_of(run)
    assert [row.arm for row in table.rows] == [
        *("untrained", "no_memory_untrained", "oracle_untrained"),
        *("imitated", "trained", "no_memory", "oracle"),
    ]
    assert {row["n"] for row in run.evals()} == {2}  # houses
    assert kept_weights(run, "actor").is_dir()
    rows = [row for row in run.metrics() if "memory/told" in row]
    assert [row["memory/told"] for row in rows] == [4.0, 4.0]
    # Of each house its own memory; an attempt that named nothing possible is told too.
    assert [len(told) for _, told in remembered(run).values()] == [4, 4]


def test_a_run_that_was_killed_ends_with_the_weights_and_the_memory_of_a_straight_one(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    # Memory is told of step 3, and searched in step 4, after the checkpoint that the run goes on from.
    settings = {**SMALL, "stay": 8, "steps": 4, "checkpoint_every": 2, "warm_start_batch": 8}
    straight = run_of(text_world, checkpoint, tmp_path / "straight", **settings)
    begin = LivingMemory.begin
    searched: list[str] = []

    def killed(self: LivingMemory, owner: str, task: str, id: str) -> Any:
        searched.append(id)
        if len(searched) == 15:
            raise KeyboardInterrupt
        return begin(self, owner, task, id)

    with monkeypatch.context() as patched:
        patched.setattr(LivingMemory, "begin", killed)
        with pytest.raises(KeyboardInterrupt):
            run_of(text_world, checkpoint, tmp_path / "killed", **settings)
    assert len(remembered(tmp_path / "killed")["near-miss/dev/0"][1]) == 12
    resumed = run_of(text_world, checkpoint, tmp_path / "killed", **settings)
    weights = [load_file(kept_weights(run, "actor") / "adapter_model.safetensors") for run in (straight, resumed)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert remembered(straight) == remembered(resumed)
    assert len(remembered(straight)["near-miss/dev/0"][1]) == 16


def test_without_memory_there_is_none(checkpoint: Path, tmp_path: Path) -> None:
    run = run_of(text_world, checkpoint, tmp_path / "run", **{**SMALL, "policy": "none", "encoder": "default"})
    assert [row.arm for row in tables_of(run)[0].rows] == [
        *("untrained", "oracle_untrained", "imitated", "trained", "oracle")
    ]
    assert not (run.path / "memory").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"world": "near-mis"}, "near-miss"),
        ({"world": "tool-graph"}, "Known: "),
        ({"questions": 8}, "test_houses"),
        ({"refill": 1}, "in its turn"),
        ({"steps": 0, "group_size": 4}, "steps = 0"),
        ({"steps": 0, "entropy": 0.3}, "steps = 0"),
        ({"steps": 0, "warm_start": 0, "rank": 4}, "warm_start = 0"),
        ({"steps": 0, "warm_start": 0, "temperature": 0.3}, "warm_start = 0"),
        ({"policy": "advantag"}, "mixture"),
        ({"policy": "default"}, "how many attempts"),
        ({"policy": "none", "shown": 3}, "shown"),
        ({"policy": "rmm"}, "keeps none"),
        ({"sampling": "overlap"}, "synchronous"),
        ({"warm_start": 0, "warm_start_batch": 4}, "warm_start"),
    ],
)
def test_what_cannot_take_effect_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Config(**settings)


def test_houses_of_training_and_of_measuring_are_different_and_each_task_is_known_by_its_house() -> None:
    houses = Houses(Config(world="near-miss", stay=2, tasks_per_step=3, tasks=4))
    tasks = [houses.trained(position) for position in range(12)]
    assert {house_of(task.key) for task in tasks} == {"near-miss/dev/0", "near-miss/dev/1"}
    assert len({task.key for task in tasks}) == 12
    measured = houses.measured(2, 3)
    assert not {house_of(task.key) for house in measured for task in house} & {house_of(task.key) for task in tasks}


@pytest.mark.parametrize("policy", policies_of_cases())
def test_every_policy_is_told_what_it_can_be_told(policy: str) -> None:
    """A mistake within a recipe is not taken for a setting that it lacks."""
    assert settled(policy, 2, 0).writer is not None


def test_an_actor_is_taken_at_its_word() -> None:
    actions = ("put it in drawer", "put it in dresser", "put it in sink")
    assert named(" Put it in Drawer.", actions) == "put it in drawer"
    assert named("put it in s", actions) == "put it in sink"
    assert named("put it in d", actions) == "put it in d"
    assert named("", actions) == ""
    scene = Scene("put away", "a <|im_end|> sock", actions)
    prompt = ModelActor(head="H\n").render(scene.seen, "- (worked) sock")
    assert prompt.startswith(
        "H\nEarlier:\n- (worked) sock\n\nTask: put away: a < |im_end| > sock\nPossible: put it in drawer; "
    )
    assert prompt.endswith("\nAction:")
