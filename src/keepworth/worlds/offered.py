"""Worlds of this package, or environments as `train` takes them, for those who play them elsewhere: verifiers
(`keepworth.training.offered_tasksets`) and OpenEnv (`keepworth.worlds.openenv_server`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keepworth.base.errors import KeepworthError, require_known
from keepworth.records.episode import Observation, Task
from keepworth.worlds.bridges import adapt
from keepworth.worlds.environment import Environment, ScoresTheEnd, Step
from keepworth.worlds.own import own_tasks
from keepworth.worlds.streams import open_stream


@dataclass(frozen=True, slots=True)
class OfferedWorld:
    """Tasks with their environments.

    Attributes:
        name: The name of the world.
        tasks: Its tasks.
        make: Makes the environment of a task.
        turns: The most actions in one task.
    """

    name: str
    tasks: tuple[Task, ...]
    make: Callable[[Task], Environment]
    turns: int

    def place(self, key: str) -> int:
        """Returns the place of a task. Raises UnknownName."""
        keys = {task.key: place for place, task in enumerate(self.tasks)}
        return keys[require_known("task", key, keys)]


def offer(
    world: str | Callable[..., Any],
    tasks: str | Path | Iterable[Mapping[str, Any] | Task] = (),
    *,
    split: str = "",
    seed: int = 0,
    turns: int = 32,
) -> OfferedWorld:
    """Returns a world to be played elsewhere.

    Args:
        world: The name of a stream (`keepworth eval list`), such as "tool-graph:routines=4"; or what `train(environment=)` takes,
            with its tasks.
        tasks: A file of JSON lines, or rows, of an environment of your own.
        split: "dev" or "held-out" of a stream, "train", "dev" or "test" of tasks; "" for the dev split of a stream, and for all
            tasks.
        seed: The seed of a stream.
        turns: The most actions in one task.

    Raises:
        KeepworthError: There is no such world, or its tasks are missing.
    """
    if isinstance(world, str):
        if tasks != ():
            raise KeepworthError(f"the stream {world} brings its tasks.", "Leave the tasks out.")
        stream = open_stream(world, split=split or "dev", seed=seed)
        by_key = {task.key: task for task in stream.tasks}
        return OfferedWorld(
            world, tuple(task.task for task in stream.tasks), lambda task: by_key[task.key].environment(), turns
        )
    if tasks == ():
        raise KeepworthError("an environment of your own has no tasks.", "Give rows, or a file of JSON lines.")
    if seed:
        raise KeepworthError("seed is for the stream of a name.", "Leave it out: rows name their seeds.")
    read = own_tasks(tasks, by_row=True)
    of_split = read.by_split[require_known("split", split, read.by_split)] if split else read.all
    if not of_split:
        raise KeepworthError(f"{read.name} has no task in its split {split!r}.", "Choose another split.")
    return OfferedWorld(read.name, of_split, adapt(world, of_split[0]), turns)


@dataclass(slots=True)
class OfferedGame:
    """One task that is being played, in texts.

    Attributes:
        done: Whether it has ended.
        rewards: The weighted sum of each reward so far, by name.
    """

    world: OfferedWorld
    place: int
    done: bool = False
    rewards: dict[str, float] = field(default_factory=dict)
    _environment: Environment | None = None
    _seen: Observation = field(default_factory=lambda: Observation(""))
    _turns: int = 0

    async def begin(self) -> str:
        """Begins the task, and returns what is seen."""
        task = self.world.tasks[self.place]
        self._environment = self.world.make(task)
        self._seen = await self._environment.reset(task, self.place)
        return _text_of(self._seen)

    async def act(self, text: str) -> str:
        """Takes an action, and returns what is seen then; "" at the end of the task. The case of letters and full stops make no
        difference where the possible actions are listed."""
        if self._environment is None:
            raise ValueError("The task has ended, or has not begun.")
        plain = {action.casefold(): action for action in self._seen.actions}
        step = await self._environment.step(plain.get(text.strip().rstrip(".").casefold(), text.strip()))
        self._earn(step)
        self._turns += 1
        if step.stop is None and self._turns == self.world.turns:
            if isinstance(self._environment, ScoresTheEnd):
                self._earn(Step(rewards=await self._environment.outcome()))
            self.done = True
        elif step.stop is not None:
            self.done = True
        else:
            self._seen = step.observation
            return _text_of(self._seen)
        await self.close()
        return ""

    async def close(self) -> None:
        """Releases what the task holds."""
        environment, self._environment = self._environment, None
        if environment is not None:
            await environment.close()

    def _earn(self, step: Step) -> None:
        for term in step.rewards:
            self.rewards[term.name] = self.rewards.get(term.name, 0.0) + term.value * term.weight


def _text_of(seen: Observation) -> str:
    """Returns an observation as one text, with the possible actions where it does not list them itself."""
    spoken = "\n\n".join(str(message["content"]) for message in seen.messages) or seen.text
    listed = f"Actions: {', '.join(seen.actions)}" if seen.actions else ""
    asked = "" if seen.question in spoken else seen.question
    return "\n".join(filter(None, (spoken, asked, "" if listed in spoken else listed)))
