"""Compares neural and written memory on the same texts: a network that remembers in its state, and a memory that stores notes.

A world of texts (`t-maze`, `key-door`) is played episode by episode. `default` and `mixture` are `keepworth.Memory` with these
policies, and a simulated agent that follows the shown notes, as in `keepworth eval stream`. `gru` is recurrent PPO over hashed
words of each text, with one action for each door; a single possible action is taken automatically. Names and words are those of
one seed, the same in all episodes; the signs, notes and keys are drawn for each. Controls: each without a memory, `nothing
written` and `mlp`. Success is that of the episodes between E / 2 and E while learning, and `at last` that of held-out episodes
with learning stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, differences, rows_of, wrap_names
from keepworth.models.threads import threads_set
from keepworth.registry import Method

if TYPE_CHECKING:
    import gymnasium

    from keepworth.control.ppo import Trainer
    from keepworth.worlds.scene import Stream, StreamTask

T = TypeVar("T")
WRITTEN = {"default": ("default", "learn"), "mixture": ("mixture", "learn"), "nothing written": ("default", "none")}
"""Arm -> the policy of the memory, and the control of the stream."""
TRAINING: dict[str, Any] = {
    "envs": 32,
    "rollout": 32,
    "chunk": 32,
    "width": 32,
    "learning_rate": 2e-3,
    "action_input": False,
}


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that never waits, such as those of generated worlds."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise RuntimeError("The world waits for something.")


def text_worlds(
    tasks: Sequence[StreamTask], done: list[float], dimension: int, shards: int
) -> Callable[[], gymnasium.Env[Any, int]]:
    """Returns a function that makes worlds which share the tasks, one after another and again from the first.

    Args:
        tasks: The tasks that are played.
        done: Gets the success of every finished episode, in order.
        dimension: Dimension of hashed words.
        shards: Number of worlds.
    """
    import gymnasium
    from gymnasium import spaces

    from keepworth.memory.choose.hashed_words import HashedWords
    from keepworth.worlds.scene import SUCCESS, Scene

    encoder, first = HashedWords(dimension), count()
    widest = max(len(scene.actions) for scene in scenes_of(tasks[0]))

    class Texts(gymnasium.Env[Any, int]):
        observation_space = spaces.Box(-1.0, 1.0, (dimension,), np.float32)
        action_space: gymnasium.Space[Any] = spaces.Discrete(widest)

        def __init__(self) -> None:
            self.numbers = count(next(first), shards)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            task = tasks[next(self.numbers) % len(tasks)]
            self.place = task.environment()
            at_once(self.place.reset(task.task, 0))
            return self.see(self.place.scene), {}

        def see(self, scene: Scene) -> Any:
            return encoder.encode([scene.text])[0]

        def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            actions = self.place.scene.actions
            step = at_once(self.place.step(actions[0] if len(actions) == 1 else actions[action]))
            reward = sum(term.value for term in step.rewards if term.name == SUCCESS)
            over = step.stop is not None
            if over:
                done.append(reward)
            return self.see(self.place.scene), reward, over, False, {}

    return Texts


def scenes_of(task: StreamTask) -> list[Any]:
    """Returns the scenes of an episode in which every action is right."""
    place, scenes = task.environment(), []
    at_once(place.reset(task.task, 0))
    while True:
        scenes.append(place.scene)
        if at_once(place.step(next(iter(place.scene.right)))).stop is not None:
            return scenes


def learn(stream: Stream, memory: str, seed: int, dimension: int = 128) -> tuple[list[float], float]:
    """Returns the success of every episode of training, in order, and of held-out episodes with the most probable actions.

    Args:
        stream: The tasks of training, and the held-out ones.
        memory: The name of the network's memory.
        seed: That of the network and its training.
        dimension: The size of the vectors of texts.
    """
    from keepworth.control.ppo import Trainer
    from keepworth.control.settings import PpoSettings

    length = len(scenes_of(stream.tasks[0]))
    settings = PpoSettings(stream.family, memory, steps=len(stream.tasks) * length, seed=seed, **TRAINING)
    done: list[float] = []
    trainer = Trainer(settings, text_worlds(stream.tasks, done, dimension, settings.envs))
    for _ in trainer.train():
        pass
    return done, play(trainer, stream.held_out, dimension)


def play(trainer: Trainer, tasks: Sequence[StreamTask], dimension: int) -> float:
    """Returns the success in tasks with the most probable actions.

    Args:
        trainer: The trained network.
        tasks: Those that are played, in order.
        dimension: The size of the vectors of texts.
    """
    from keepworth.control.run import TrainedAgent

    agent, done = TrainedAgent(trainer.network, trainer.worlds), list[float]()
    world = text_worlds(tasks, done, dimension, 1)()
    for _ in tasks:
        (seen, _), state, over = world.reset(), None, False
        while not over:
            action, state = agent.predict(seen, state)
            seen, _, over, _, _ = world.step(action)
    return float(np.mean(done))


def write(stream: Stream, episodes: int, seed: int, name: str, control: str) -> tuple[list[float], float]:
    """Returns the success of the first `episodes` episodes with a written memory, and of the held-out ones with that memory
    frozen.

    Args:
        stream: The tasks, and the held-out ones.
        episodes: How many tasks it learns from.
        seed: That of the agent.
        name: The policy of memory.
        control: The control under which rewards reach it, such as permuted ones; "" for none.
    """
    from keepworth import policy
    from keepworth.memory.choose.hashed_words import HashedWords
    from keepworth.worlds.simulated import TabularAgent
    from keepworth.worlds.stream import run_stream

    first = replace(stream, tasks=stream.tasks[:episodes])
    met = run_stream(first, policy(name), TabularAgent(), HashedWords(), seed=seed, control=control)
    return met.success.tolist(), float(met.held_out.mean())


@threads_set(1)
def run(*, worlds: str = "t-maze", written: int = 200, neural: int = 4000, seeds: int = 2, first_seed: int = 0) -> Rows:
    """Measures success after increasing numbers of episodes, with written and with neural memory, with and without it.

    Args:
        worlds: Names of worlds of texts, with commas: "t-maze", "key-door".
        written: Episodes of the written memory.
        neural: Training episodes of the network.
        seeds: Vocabularies, each with its own memory and network.
        first_seed: The first of them.
    """
    from keepworth.worlds.streams import open_stream

    if not 4 <= written <= neural:
        raise KeepworthError(
            f"written={written}, neural={neural}: success is measured over quarters of the episodes, of which the written memory "
            "meets 4 or more and the network as many or more.",
            "Write written=200 and neural=4000, say.",
        )
    rows: Rows = []
    for world in worlds.split(","):
        scores: dict[str, list[float]] = {}
        for seed in range(first_seed, first_seed + seeds):
            stream = open_stream(world, split="held-out", seed=seed, length=neural)
            for arm, chosen in WRITTEN.items():
                add(scores, arm, *write(stream, written, seed, *chosen), written)
            for memory in ("gru", "mlp"):
                add(scores, memory, *learn(stream, memory, seed), neural)
        clusters = [str(seed) for seed in range(seeds)]
        at_last = {arm: scores[f"{arm}, at last"] for arm in ("default", "mixture", "gru")}
        gaps = differences(at_last, [("default", "gru"), ("mixture", "gru")], clusters)
        rows += wrap_names(rows_of(scores, clusters) + wrap_names(gaps, after=", at last"), f"{world}: ")
    return rows


def add(scores: dict[str, list[float]], arm: str, success: Sequence[float], at_last: float, episodes: int) -> None:
    """Adds the success of an arm at a quarter, a half and the whole of its episodes, and at last.

    Args:
        scores: By arm, the scores of all seeds; the new ones are added.
        arm: The name of the arm.
        success: The success in each episode of training.
        at_last: The success in held-out episodes.
        episodes: The number of episodes of training.
    """
    for parts in (4, 2, 1):
        until = episodes // parts
        scores.setdefault(f"{arm}, to {until}", []).append(float(np.mean(success[until // 2 : until])))
    scores.setdefault(f"{arm}, at last", []).append(at_last)


METHOD = Method(
    kind="study",
    name="written_or_neural",
    title="Neural against written memory",
    about="The same texts to a network with a GRU and to a memory that keeps notes, by the number of episodes",
    tags=("latent", "token", "working", "retrieval"),
    differs="The agent that reads the notes is simulated, and texts are made of words that mean nothing.",
    label="small",
    make=Study(run, "share of episodes that succeed"),
    extra="control",
)
