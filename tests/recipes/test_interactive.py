"""The recipes whole on a model of a few thousand weights, and the one thing they are for: that reward reaches contexts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from keepworth.methods.objectives.tis import Truncate
from keepworth.methods.recipes import arithmetic, datamind, overwrite_reading, strings
from keepworth.records import RewardTerm, StopReason, Task
from keepworth.records.episode import Observation
from keepworth.training.configuration import as_toml, resolve
from keepworth.training.objective import options
from keepworth.training.objective.parts import Clip, KlLoss, Outcome
from keepworth.training.objective.presets import presets
from keepworth.training.passes import BudgetTooSmall
from keepworth.training.run_folder import RunFolder
from keepworth.training.settings import objective_of
from keepworth.training.trained import find_weights
from keepworth.training.watch.progress import Progress
from keepworth.training.watch.tables import tables_of
from keepworth.worlds.driver import Play
from keepworth.worlds.environment import Step
from keepworth.worlds.verifiers import same_words
from tests.recipes.tiny_runs import READING, STRINGS, TINY, Interrupted, Notes, run_of, same, trained, weights_of

IMITATING = {**READING, "warm_start": 2, "warm_start_batch": 4, "tasks": 8}
READ = ("no_memory", "wrong_memory", "whole_text", "oracle")


@pytest.mark.parametrize(("recipe", "settings", "controls", "when"), [
    (strings, STRINGS, (), ("untrained", "imitated", "trained")),
    (overwrite_reading, READING, READ, ("untrained", "trained")),
    (overwrite_reading, IMITATING, READ, ("untrained", "imitated", "trained")),
    (arithmetic, {"max_tokens": 4, "answer": "calculator"}, ("no_tool",), ("untrained", "trained")),
    (arithmetic, {"max_tokens": 4, "train": "full"}, (), ("untrained", "trained")),
])  # fmt: skip
def test_tables_hold_controls_before_and_after_training(
    checkpoint: Path, tmp_path: Path, recipe: ModuleType, settings: dict[str, Any], controls: tuple[str, ...], when: Any
) -> None:
    run = run_of(recipe, checkpoint, tmp_path / "run", **settings)
    arms = ["untrained", *(f"{control}_untrained" for control in controls), *when[1:], *controls]
    tables = tables_of(run)
    assert [[row.arm for row in table.rows] for table in tables] == [arms] * len(tables)
    assert len(tables) == (4 if recipe is strings else 1)
    assert [row["step"] for row in run.evals() if row["split"] == "dev"][:1] == [0]
    if recipe is overwrite_reading:  # two sections and the answer; two steps of two groups of two
        assert [len(stored.episode.segments) for stored in run.episodes(arm="train")] == [3] * 8


class Answered:
    """Pays by the length of the answer, so that groups differ: the tiny model is never right."""

    async def reset(self, task: Task, seed: int) -> Observation:
        return Observation(task.input, state=task.key)

    async def step(self, action: str) -> Step:
        return Step(rewards=(RewardTerm("math", sum(action.encode()) % 7 / 7),), stop=StopReason.COMPLETED)

    async def close(self) -> None: ...


RunAnswered = Callable[..., RunFolder]


@pytest.fixture
def run_answered(checkpoint: Path, tmp_path: Path) -> RunAnswered:
    """Arithmetic in the world above: the name of a run, who listens, the world if it is another one, and settings."""
    own = {"steps": 1, "evaluate_every": 1, "group_size": 4, "max_tokens": 4, "learning_rate": 1e-2}

    def run(name: str = "run", progress: Progress | None = None, world: Any = Answered, **more: Any) -> RunFolder:
        config = arithmetic.Config(model=str(checkpoint), **{**TINY, **own, **more})
        system = arithmetic.system(config)
        with RunFolder.create(tmp_path / name, {"recipe": "arithmetic", **config.model_dump(mode="json")}) as folder:
            play = Play(lambda task: world(), system.play.agent)
            replace(system, play=play).learn(config, folder, progress or Progress())
        return folder

    return run


def test_episodes_that_died_are_kept_apart_and_said(run_answered: RunAnswered) -> None:
    begun: list[str] = []

    class Dies(Answered):
        async def reset(self, task: Task, seed: int) -> Observation:
            begun.append(task.key)
            if task.key == begun[0] and begun.count(task.key) in (1, 5):  # both tries of one member
                raise ConnectionError("gone")
            return await super().reset(task, seed)

    progress = Notes()
    run = run_answered(progress=progress, world=Dies)
    assert [len(list(run.episodes(arm=arm))) for arm in ("train", "failed")] == [7, 2]
    said = [note for note in progress.notes if note.startswith("Step")]
    assert said == ["Step 1: 2 episodes are not trained on: Dies.reset failed: ConnectionError: gone."]


FED_BY_NONE = {
    "gigpo": "needs states of turns.*arithmetic with answer = calculator",
    "fine_mem": "needs rewards of turns.*the recipe fine_mem do",
    "memory_r_plus": "needs a reward term 'episodic'.*the recipe memory_r_plus do",
    "memory_r2": "needs re-rolls.*the recipe memory_r2 do",
    "kdrl": "needs lp_teacher.*Set teacher",
}


@pytest.mark.parametrize("recipe", [strings, overwrite_reading, arithmetic])
@pytest.mark.parametrize("name", sorted(presets()))
def test_preset_without_its_inputs_is_refused_first(recipe: ModuleType, name: str) -> None:
    if name in FED_BY_NONE:
        with pytest.raises(ValidationError, match=f"objective '{name}' {FED_BY_NONE[name]}"):
            recipe.Config(objective=name)
    else:
        recipe.Config(objective=name)


def test_objective_inputs_given_by_settings_are_accepted() -> None:
    arithmetic.Config(objective="gigpo", answer="calculator")
    strings.Config(objective="kdrl", teacher="smollm2-360m-instruct")
    with pytest.raises(ValidationError, match=r"'a_star_po' needs soft_value.*sampling = synchronous"):
        strings.Config(objective="a_star_po", sampling="overlap")


@pytest.mark.parametrize(("passes", "minibatches"), [(1, 1), (3, 1), (1, 2)])
def test_passes_are_made_and_an_idle_clip_is_said(run_answered: RunAnswered, passes: int, minibatches: int) -> None:
    progress = Notes()
    settings = {"passes": passes, "minibatches": minibatches, "warmup_steps": 1}
    run = run_answered(progress=progress, objective="lite_ppo", **settings)
    said = [note for note in progress.notes if "Clip(0.2, 0.2) changes nothing with passes = 1" in note]
    (table,) = tables_of(run)
    (row,) = run.metrics()
    if passes * minibatches == 1:
        assert len(said) == 1
        assert "changes nothing with passes = 1" in table.note
        assert row["ratio_max"] == pytest.approx(1.0)
    else:
        assert not said
        assert "passes" not in table.note
        assert row["ratio_max"] > 1.01


@pytest.mark.parametrize("settings", [
    {"objective": "grpo", "passes": 2},
    {"objective": "ppo", "passes": 2, "critic_learning_rate": 1e-2, "critic_rank": 2, "critic_warmup": 1, "steps": 2},
    {"objective": "archer", "critic_replay": 64},
    {"objective": "duration", "passes": 2, "critic_level": "turn", "critic_frozen": True, "critic_warmup": 1, "steps": 2},
    {"objective": "a_star_po"},
    {"objective": "a_star_po", "train": "full"},
    {"objective": "gigpo", "answer": "calculator", "passes": 2},
    {"objective": "kdrl", "passes": 2, "teacher": "taught"},
    {"objective": "kdrl", "teacher": "CHECKPOINT"},
    {"objective": "prorl", "minibatches": 2},
], ids=lambda each: " ".join(map(str, each.values())))  # fmt: skip
def test_objectives_that_need_more(run_answered: RunAnswered, checkpoint: Path, settings: dict[str, Any]) -> None:
    settings = {key: str(checkpoint) if value == "CHECKPOINT" else value for key, value in settings.items()}
    if settings.get("teacher") == "taught":
        run_answered("taught")
    run = run_answered(**settings)
    row = list(run.metrics())[-1]
    assert row["trained_rows"] > 0
    assert find_weights(run, "policy").is_dir()
    if settings["objective"] == "ppo":
        assert "value_loss" in row
    if settings["objective"] == "kdrl":
        # The run that taught has other weights than the student; the checkpoint is what the student began as.
        assert (row["teacher_loss"] > 0) is (settings["teacher"] == "taught")


@pytest.mark.slow
@pytest.mark.parametrize("settings", [
    {"objective": "ppo", "passes": 2, "critic_rank": 2},
    {"objective": "a_star_po", "train": "full"},
    {"objective": "kdrl", "teacher": "CHECKPOINT"},
], ids=lambda each: " ".join(map(str, each.values())))  # fmt: skip
def test_two_learner_processes_equal_one(run_answered: RunAnswered, checkpoint: Path, settings: Any) -> None:
    """A whole recipe; the second learner is made of its settings, in a process of its own."""
    settings = {key: str(checkpoint) if value == "CHECKPOINT" else value for key, value in settings.items()}
    runs = [run_answered(str(count), steps=2, learners=count, **settings) for count in (1, 2)]
    first, second = map(weights_of, runs)
    # Where a gradient is next to nothing, AdamW makes steps of its rounding.
    assert all(torch.allclose(first[name], second[name], atol=1e-4, rtol=0) for name in first)
    assert [row["seconds/all_reduce"] > 0 for row in runs[1].metrics()] == [True, True]


def test_a_run_with_values_of_tasks_that_was_killed_ends_like_a_straight_one(run_answered: RunAnswered) -> None:
    settings = {"objective": "a_star_po", "steps": 3, "tasks_per_step": 2}
    straight = run_answered("straight", **settings)
    with pytest.raises(KeyboardInterrupt):
        run_answered("killed", Interrupted(), **settings)
    resumed = run_answered("killed", **settings)
    assert same(weights_of(straight), weights_of(resumed))


def test_a_budget_that_cannot_be_kept_is_refused_before_a_model_is_looked_for(tmp_path: Path) -> None:
    settings = {"max_tokens": 4096, "checkpointing": "off"}
    config = strings.Config(model=str(tmp_path / "nowhere"), **settings)  # type: ignore[arg-type]
    with pytest.raises(BudgetTooSmall, match=r"2048, and one answer of 4096 tokens .* needs a budget of 4352"):
        trained(strings, config, tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    # A run that was stopped by its budget goes on with a larger one, or with layers recomputed.
    RunFolder.create(run.path, {**run.config, "token_budget": 4352}).close()
    RunFolder.create(run.path, {**run.config, "checkpointing": "auto"}).close()


@pytest.mark.parametrize(("recipe", "settings", "calls"), [
    (strings, {**STRINGS, "warm_start": 1}, 1),
    (datamind, {**STRINGS, "warm_start": 1}, 1),
    (overwrite_reading, {**READING, "held_out": 4, "tasks": 16}, 3),
])  # fmt: skip
def test_the_supervised_arm_imitates_as_many_right_answers_as_are_sampled(
    checkpoint: Path, tmp_path: Path, recipe: ModuleType, settings: dict[str, Any], calls: int
) -> None:
    run = run_of(recipe, checkpoint, tmp_path / "run", method="supervised", learning_rate=1e-2, **settings)
    shown = [stored.episode for stored in run.episodes(arm="train")]
    assert len(shown) == 2 * 4  # two steps of two tasks, in groups of two
    assert {len(episode.segments) for episode in shown} == {calls}
    assert {episode.reward for episode in shown} == {1.0}
    last = shown[0].segments[-1].text
    assert last.strip() == shown[0].expected[0] if recipe is overwrite_reading else same_words(last, shown[0].expected)
    losses = [row["loss"] for row in run.metrics()]
    assert losses[1] < losses[0]
    assert find_weights(run, shown[0].role).is_dir()


def test_intervals_of_strings_are_over_compositions(checkpoint: Path, tmp_path: Path) -> None:
    run = run_of(strings, checkpoint, tmp_path / "run", **{**STRINGS, "held_out": 87, "questions": None, "steps": 1})
    counts = {row["split"]: row["n"] for row in run.evals()}
    assert counts["unseen compositions of 2"] == 29  # 87 questions
    assert counts["single functions"] == 12


def test_options_of_an_objective_are_settings(run_answered: RunAnswered, tmp_path: Path) -> None:
    texts = ["objective=grpo", "objective.surrogate=Clip(0.2, 0.28)", "objective.advantage=Outcome(group)", "passes=2"]
    config = resolve(strings.Config, assignments=texts)
    objective = objective_of(config)
    assert (objective.name, objective.surrogate, objective.advantage) == ("grpo", Clip(0.2, 0.28), Outcome("group"))
    (tmp_path / "config.toml").write_text(as_toml(config))
    assert resolve(strings.Config, file=tmp_path / "config.toml") == config
    other = resolve(strings.Config, assignments=["objective=grpo", "objective.kl=KlLoss(k3, 0.1)", "passes=2"])
    assert objective_of(other).kl == KlLoss("k3", 0.1)
    untaught = resolve(strings.Config, assignments=["objective=kdrl", "objective.teacher=none", "passes=2"])
    assert objective_of(untaught).teacher is None
    own = resolve(strings.Config, assignments=["objective.correction=Truncate(3.0)"])  # of the recipe's own
    assert (objective_of(own).name, objective_of(own).correction) == ("group_relative", Truncate(3.0))
    bare = ["objective=dapo", "objective.overlong=none"]
    assert objective_of(resolve(strings.Config, assignments=bare)).overlong is None
    run = run_answered(**config.model_dump(include={"objective", "passes"}))
    assert run.config["objective"] == {"preset": "grpo", "surrogate": "Clip(0.2, 0.28)", "advantage": "Outcome(group)"}


@pytest.mark.parametrize(("texts", "says"), [
    (["objective=grpo", "objective.surogate=Plain"], "did you mean 'surrogate'"),
    (["objective.preset=gropo"], "Did you mean 'grpo'"),
    (["objective=grpo", "objective.surrogate=Clip(0.2, 0.28)"], "changes nothing with passes = 1 and minibatches = 1"),
    (["objective=grpo", "objective.surrogate=Clap(0.2, 0.28)"], "did you mean 'Clip'"),
    (["objective.entropy=EntropyBonus(0.1)", "entropy=0.2"], "entropy = 0.2 has no effect with objective.entropy"),
])  # fmt: skip
def test_an_option_of_an_objective_that_cannot_take_effect_is_refused_by_name(texts: list[str], says: str) -> None:
    with pytest.raises(Exception, match=says):
        resolve(strings.Config, assignments=texts)


def test_measurements_on_dev_reach_a_reset(run_answered: RunAnswered, monkeypatch: pytest.MonkeyPatch) -> None:
    """ProRL's reference moves where validation has stopped improving; a random model's never begins to."""
    seen: list[tuple[float | None, bool]] = []
    advance = options.advance

    def watched(controls: Any, objective: Any, **measured: Any) -> Any:
        following = advance(controls, objective, **measured)
        seen.append((measured["validation"], following.reset))
        return following

    monkeypatch.setattr("keepworth.training.learner.advance", watched)
    settings = {"steps": 4, "evaluate_every": 1, "minibatches": 2}
    objective = {"preset": "prorl", "kl": "KlLoss(k2, 1e-4, Reset(1e9, 1))"}
    run = run_answered(objective=objective, **settings)
    scores = [row["mean"] for row in run.evals() if row["split"] == "dev" and row["step"]]
    assert [score for score, _ in seen] == [None, *scores[:3]]
    best, expected = -1.0, []
    for score, _ in seen[1:]:
        expected.append(score <= best)
        best = max(best, score)
    assert [reset for _, reset in seen] == [False, *expected]
    assert True in expected
