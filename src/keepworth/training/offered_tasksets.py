"""Tasks of this package as a taskset of `verifiers` (version 1), for those who train or measure there.

A file `my_questions.py`, which `verifiers` finds by its name (`--env.taskset.id my_questions`):

    from keepworth.training.offered_tasksets import taskset_of

    MyTaskset = taskset_of("questions.jsonl")
    __all__ = ["MyTaskset"]

and the same with worlds, whose tasks are played in turns:

    MyTaskset, MyEnv = world_of(offer("tool-graph"))     # from keepworth.worlds.offered
    __all__ = ["MyTaskset", "MyEnv"]"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from keepworth.base.needs import needs_verifiers

import verifiers.v1 as vf

from keepworth.records.episode import Task
from keepworth.worlds.offered import OfferedGame, OfferedWorld
from keepworth.worlds.own import own_tasks
from keepworth.worlds.verifiers import verify


def taskset_of(
    tasks: str | Path | Iterable[Mapping[str, Any] | Task], *, split: str = "", verifier: str = "token_f1"
) -> type[vf.Taskset]:
    """Returns a class of tasks, whose answers are judged as here.

    Args:
        tasks: A file of JSON lines, rows, or tasks, such as those of a benchmark.
        split: "train", "dev" or "test"; "" for all tasks.
        verifier: Judges the answers of tasks that name no verifier.
    """
    read = own_tasks(tasks)
    chosen = read.by_split[split] if split else read.all
    judged = [task if task.verifier else replace(task, verifier=verifier) for task in chosen]

    class Question(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
        @vf.reward  # type: ignore[untyped-decorator]
        async def verified(self, trace: vf.Trace) -> float:
            return verify(judged[self.data.idx], (trace.last_reply or "").strip())

    class Questions(vf.Taskset[Question, vf.TasksetConfig]):  # type: ignore[misc]
        def load(self) -> Iterable[Question]:
            for task in judged:
                yield Question(vf.TaskData(name=task.key, prompt=task.input), self.config.task)

    return Questions


class _WorldData(vf.TaskData):  # type: ignore[misc]
    world: str
    key: str


class _WorldEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    player: vf.AgentConfig = vf.AgentConfig()


def world_of(world: OfferedWorld) -> tuple[type[vf.Taskset], type[vf.Env]]:
    """Returns a class of tasks and one of the environment that plays them: the world speaks as the user, each answer of the
    model's is an action, and the world's rewards are those of the trace.

    Args:
        world: The world (`keepworth.worlds.offered.offer`).
    """

    class Scene(vf.Task[_WorldData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
        pass

    class Scenes(vf.Taskset[Scene, vf.TasksetConfig]):  # type: ignore[misc]
        def load(self) -> Iterable[Scene]:
            for task in world.tasks:
                yield Scene(_WorldData(name=task.key, prompt=None, world=world.name, key=task.key), self.config.task)

    class Played(vf.Env[_WorldEnvConfig]):  # type: ignore[misc]
        async def run(self, task: Any, agents: Any) -> None:
            game = OfferedGame(world, world.place(task.data.key))
            try:
                text = await game.begin()
                async with agents.player.interaction(task) as interaction:
                    turn = await interaction.turn(text)
                    while not turn.terminated:
                        text = await game.act(turn.last_reply or "")
                        if game.done:
                            break
                        turn = await interaction.turn(text)
            finally:
                await game.close()
            for name, value in (game.rewards or {"reward": 0.0}).items():
                interaction.trace.record_reward(name, value, 1.0)

    return Scenes, Played
