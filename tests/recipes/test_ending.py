"""With what a run computes, how it ends, killed anywhere or not, and which settings reach what is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keepworth.methods.recipes import arithmetic, memory_r1
from keepworth.records import Episode
from keepworth.training import run as training
from keepworth.training.run_folder import RunFolder
from keepworth.training.system import Playing, System
from keepworth.training.watch.progress import Progress
from tests.recipes.tiny_runs import run_of, same, weights_of

SCORES = (0.9, 0.2, 0.5, 0.3, 0.5, 0.4, 0.6, 0.1)
"""On dev before training and after each step."""
SETTINGS = {
    "precision": "fp32", "threads": 1, "steps": 7, "tasks_per_step": 2, "group_size": 2, "max_tokens": 4, "evaluate_every": 1,
    "checkpoint_every": 3, "questions": 2, "learning_rate": 1e-2, "objective": {"preset": "grpo", "kl": "KlLoss(k2, 0.1)"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = Playing._measure

    def measured(self: Playing, step: int, split: str, arm: str, way: str, of: Any) -> list[Episode]:
        if split != "dev":
            return measure(self, step, split, arm, way, of)
        score = {"mean": SCORES[step], "low": None, "high": None, "n": 1}
        self.run.append_eval(step, arm=arm, metric="m", role="policy", split=split, **score)  # type: ignore[arg-type]
        return []

    monkeypatch.setattr(Playing, "_measure", measured)
    monkeypatch.setattr(System, "rollout", rewarded(System.rollout))


def rewarded(rollout: Any) -> Any:
    """A tiny model is never right: paid is what it says, so that every step moves its weights."""

    async def paid(played: Any) -> Any:
        episode = await played
        value = sum(episode.segments[0].ids) % 7 / 7
        return replace(episode, rewards=tuple(replace(reward, value=value) for reward in episode.rewards))

    return lambda *given: lambda task, context: paid(rollout(*given)(task, context))


class Killed(BaseException):
    pass


def events(monkeypatch: pytest.MonkeyPatch, kill_at: int) -> list[str]:
    """What a run writes, in order; it is killed before it writes the one of that number."""
    seen: list[str] = []

    def before(name: str) -> None:
        if len(seen) == kill_at:
            raise Killed
        seen.append(name)

    def watch(method: str, name: Callable[..., str]) -> None:
        done = getattr(RunFolder, method)

        def watched(self: RunFolder, *given: Any, **more: Any) -> Any:
            before(name(*given))
            return done(self, *given, **more)

        monkeypatch.setattr(RunFolder, method, watched)

    for method in ("append_metrics", "append_eval", "writing_weights", "write_result"):
        watch(method, lambda *given, method=method: method)
    watch("checkpoint", lambda step: f"checkpoint {step}")
    return seen


def said_by(run: RunFolder) -> tuple[list[Any], list[Any], str]:
    """What was measured, what was earned, and what the first table says of it."""
    measured = [(row["step"], row["arm"], row["split"], row["mean"]) for row in run.evals()]
    return measured, [row["reward"] for row in run.metrics()], run.result()["tables"][0]["note"]  # type: ignore[index]


def ends_alike(checkpoint: Path, tmp_path: Path, kills: list[int], straight: RunFolder) -> None:
    for kill in kills:
        with pytest.MonkeyPatch.context() as patched:
            events(patched, kill)
            with pytest.raises(Killed):
                run_of(arithmetic, checkpoint, tmp_path / f"killed-{kill}", **SETTINGS)
        resumed = run_of(arithmetic, checkpoint, tmp_path / f"killed-{kill}", **SETTINGS)
        assert same(weights_of(resumed), weights_of(straight)), kill
        measured, rewards, notes = zip(*map(said_by, (straight, resumed)), strict=True)
        assert measured[0] == measured[1], kill
        assert rewards[0] == rewards[1], kill
        assert notes[0] == notes[1], kill


def straight_run(checkpoint: Path, tmp_path: Path) -> tuple[RunFolder, list[str]]:
    with pytest.MonkeyPatch.context() as patched:
        seen = events(patched, -1)
        return run_of(arithmetic, checkpoint, tmp_path / "straight", **SETTINGS), seen


def test_a_run_that_is_killed_ends_where_it_would_have(checkpoint: Path, tmp_path: Path) -> None:
    """Before a checkpoint is written, and when nothing is left but to measure."""
    straight, seen = straight_run(checkpoint, tmp_path)
    assert [each for each in seen if each.startswith("checkpoint")] == [f"checkpoint {step}" for step in (3, 6, 7)]
    ends_alike(checkpoint, tmp_path, [seen.index("checkpoint 3"), seen.index("checkpoint 7") + 1], straight)


@pytest.mark.slow
def test_a_run_that_is_killed_anywhere_ends_where_it_would_have(checkpoint: Path, tmp_path: Path) -> None:
    straight, seen = straight_run(checkpoint, tmp_path)
    ends_alike(checkpoint, tmp_path, list(range(len(seen))), straight)


def test_recipe_settings_reach_the_learner(checkpoint: Path, tmp_path: Path) -> None:
    more = {"steps": 2, "schedule": "linear", "lora_targets": ["v_proj"], "train_embeddings": True}
    run = run_of(arithmetic, checkpoint, tmp_path / "run", **{**SETTINGS, **more})
    names = {name.removeprefix("base_model.model.").split(".lora_")[0] for name in weights_of(run)}
    adapted = {f"model.layers.{layer}.self_attn.v_proj" for layer in (0, 1)}
    assert names == {*adapted, "model.embed_tokens.weight", "lm_head.weight"}
    assert [row["learning_rate"] for row in run.metrics()] == pytest.approx([1e-2, 0.5e-2])


def test_a_run_goes_on_with_the_threads_and_the_type_of_number_it_began_with(checkpoint: Path, tmp_path: Path) -> None:
    """Nothing is timed."""
    asked: list[int] = []
    measured: list[str] = []
    model = str(checkpoint)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(training, "settle_threads", lambda model, threads=0: asked.append(threads) or 2)
        patched.setattr(training, "faster_type", lambda: measured.append("fp32") or "fp32")
        for _ in range(2):
            with RunFolder.create(tmp_path / "run", {"recipe": "memory_r1"}) as run:
                settled = training.settle_model(memory_r1.Config(model=model), run, Progress())
                assert settled.precision == run.environment["precision"] == "fp32"
    assert asked == [0, 2]  # the usual number, then what it began with
    assert measured == ["fp32"]  # once
