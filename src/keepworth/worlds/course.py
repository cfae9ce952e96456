"""Parts of worlds: scenes with a single action, scenes in a fixed order, and tasks with their tags."""

from __future__ import annotations

from collections.abc import Callable

from keepworth.records.episode import Observation, Task
from keepworth.worlds.environment import Step
from keepworth.worlds.scene import SUCCESS, Scene, Staged, StreamTask, ends, goes_on


def only_way(goal: str, observation: str, action: str, named: tuple[str, ...] = ()) -> Scene:
    """Returns a scene with a single action, which is right.

    Args:
        goal: What is to be reached.
        observation: What the agent sees.
        action: The one action that the agent may choose.
        named: Actions that the observation names, where they have to be remembered.
    """
    return Scene(goal, observation, (action,), named=named, right=frozenset({action}), leaning=(0.0,))


class Course:
    """Scenes in a fixed order. A scene with a single action is passed; a wrong answer to any other loses the episode."""

    __slots__ = ("_place", "_scenes")

    def __init__(self, *scenes: Scene) -> None:
        self._scenes = scenes
        self._place = 0

    @property
    def scene(self) -> Scene:
        return self._scenes[self._place]

    async def reset(self, task: Task, seed: int) -> Observation:
        self._place = 0
        return self.scene.seen

    async def step(self, action: str) -> Step:
        scene = self.scene
        progress = None if len(scene.actions) == 1 else float(action in scene.right)
        if progress == 0.0 or self._place == len(self._scenes) - 1:
            return ends(float(progress != 0.0), progress)
        self._place += 1
        return goes_on(self.scene, progress)

    async def close(self) -> None:
        """Does nothing: the world holds no resources."""


def stream_task(
    key: str, environment: Callable[[], Staged], rule: str, difficulty: float, goal: str = ""
) -> StreamTask:
    """Returns a task of a stream.

    Args:
        key: The key of the task, whose first part, up to a slash, names the stream.
        environment: It makes the world of the task.
        rule: The rule that the task follows, by which results are grouped.
        difficulty: How hard the task is, on the scale of the stream.
        goal: What is to be reached, where it is the same in all scenes; "" where scenes differ.
    """
    tags = {"rule": rule, "difficulty": f"{difficulty:.6g}"}
    return StreamTask(Task(key, key.split("/")[0], goal, (), SUCCESS, tags=tags), environment, rule, difficulty)
