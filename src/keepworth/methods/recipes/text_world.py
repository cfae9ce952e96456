"""A text world played with a memory that persists over tasks: the model that acts learns, the memory learns, or both do.

In a house the same things have to be put away again and again (TextWorld Commonsense, arXiv 2208.01174); or the tasks are those
of another stream. The model is shown what its memory chooses of earlier attempts and names an action; in a house it may be wrong
once. Memory is told how each episode went. Measured is in houses that were never trained in, each from an empty memory, over all
of its tasks.

| setting | what it is |
| --- | --- |
| `policy = "none"` | no memory |
| `policy = "exprag"` | plain search: the most similar attempts |
| `policy = "mixture"` or another that keeps cases | what is shown is learned from reward |
| `steps = 0` | the model stays as it is: frozen, or as the warm start left it |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field, model_validator

from keepworth.environments.scene import PROGRESS, SUCCESS
from keepworth.learning.collect.curriculum import position_of
from keepworth.recipes.recipe import Recipe
from keepworth.recipes.settings import SAMPLED, Count, Idle, Rate, Settings, Share
from keepworth.recipes.system import Measured, Pair, System
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.agents.acting import ModelActor
    from keepworth.agents.agent import Action, Agent, Caller
    from keepworth.environments.environment import Environment, Step
    from keepworth.environments.scene import Scene, Staged, Stream, StreamTask
    from keepworth.episodes import Episode, Task
    from keepworth.episodes.episode import Observation
    from keepworth.episodes.model import Encoder
    from keepworth.learning.run_folder import RunFolder
    from keepworth.memory.episode import AnyEpisode
    from keepworth.memory.policy.slots import Policy
    from keepworth.models.inprocess import InProcessModel
    from keepworth.rollouts.driver import Feedback, Limits, RolloutContext

WORLDS = {
    "house": ("held-out", "dev", "test"),
    **dict.fromkeys(("near-miss", "benign", "similarity-mid", "similarity-low"), ("dev", "dev", "held-out")),
}
"""Worlds, and their splits to train in, to measure while training, and to measure before and after."""
NONE, NO_MEMORY, ORACLE = "none", "no_memory", "oracle"
ROLE = "actor"
REINFORCED = (
    *(key for key in SAMPLED if key not in ("refill", "difficulty", "sampling", "temperature")),
    *("learning_rate", "group_size", "tasks_per_step", "stay", "progress", "evaluate_every", "checkpoint_every"),
)
"""Settings of reinforcement."""
TRAINED = ("temperature", "train", "rank", "alpha", "max_norm", "weight_decay", "token_budget", "checkpointing")
"""Settings of any training of the model."""
MAX_TURNS = 8
HOUSES = 100_000
"""More houses than any split has; the seed of one says which of a split it is."""
WARM = 90_000
"""The number of the first house whose right actions are imitated."""
HEADS = {
    "house": (
        "Put each thing where it belongs. Answer with one of the possible actions.\n\n"
        "Task: put away: clean red shirt\nPossible: put it in dresser; put it in oven; put it in sofa\n"
        "Action: put it in dresser\n\n"
        "Task: put away: old newspaper\nPossible: put it in bathtub; put it in recycling bin; put it in fridge\n"
        "Action: put it in recycling bin\n\n"
    ),
}
"""Worked examples before every prompt, by world: how an answer looks."""


class Config(Settings):
    """A step plays `tasks_per_step` tasks of a house; `stay` steps later comes the next house, where memory is empty."""

    temperature: float = Field(
        default=1.0,
        gt=0,
        le=4,
        allow_inf_nan=False,
        description="of every game, measured ones too; an untrained model plays greedily",
    )
    world: str = Field(default="house", description="a stream; keepworth eval stream --streams list names them")
    policy: str = Field(default="mixture", description="what memory is: a policy that keeps cases, or none")
    shown: int = Field(default=2, ge=1, le=8, description="attempts that memory shows")
    encoder: str = Field(default="default", description="of the memory: default, or hashing for none")
    steps: int = Field(default=48, ge=0)
    stay: Count = Field(default=2, description="steps in one house")
    tasks: Count = Field(default=40, description="tasks of a house that is measured, each met once, in order")
    test_houses: int = Field(default=10, ge=2)
    dev_houses: int = Field(default=4, ge=2)
    progress: Share = Field(default=0.25, description="what each step that the world calls right adds to the reward")
    max_tokens: int = Field(default=16, ge=2, description="of one action")
    warm_start: int = Field(default=32, ge=0, description="batches of right actions to imitate first")
    warm_start_batch: Count = 16
    warm_start_learning_rate: Rate = 1e-3
    learning_rate: Rate = 1e-4
    entropy: Share = 0.01

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        if not self.steps:
            yield REINFORCED, "with steps = 0", "set steps"
            if not self.warm_start:
                yield TRAINED, "with steps = 0 and warm_start = 0", "set steps"
        if not self.warm_start:
            yield ("warm_start_batch", "warm_start_learning_rate"), "with warm_start = 0", "set warm_start"
        if self.policy == NONE:
            yield ("shown", "encoder"), 'with policy = "none"', "name a policy"

    @model_validator(mode="after")
    def _known(self) -> Config:
        from keepworth.episodes.errors import UnknownName
        from keepworth.memory.by_name import policies, policies_of_cases, settings_of

        if self.world not in WORLDS:
            raise ValueError(str(UnknownName("world", self.world, WORLDS)))
        if self.policy not in (NONE, *policies()):
            raise ValueError(str(UnknownName("policy", self.policy, (NONE, *policies()))))
        if self.policy != NONE and not (self.policy in policies_of_cases() and "k" in settings_of(self.policy)):
            raise ValueError(
                f"policy {self.policy!r} keeps none, or cannot be told how many attempts to show: name another"
            )
        if self.sampling != "synchronous":
            raise ValueError(
                f"sampling = {self.sampling!r} would show what memory did not know yet, and play two games at one engine: set "
                "sampling = synchronous"
            )
        if self.questions is not None:
            raise ValueError("questions would cut houses short: set test_houses, dev_houses or tasks")
        if self.refill or self.difficulty is not None:
            raise ValueError(
                "refill and difficulty put other tasks in the place of a house's own, and each is met in its turn: leave them out"
            )
        return self


class Houses:
    """The worlds of one run: which task is met when, and its environment."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._tasks: dict[str, StreamTask] = {}
        self._houses: dict[tuple[int, int], Stream] = {}

    def house(self, part: int, number: int) -> Stream:
        """part: 0 to train in, 1 to measure while training, 2 to measure before and after. Houses of one split differ by seed."""
        from keepworth.environments.streams import opened

        if (part, number) in self._houses:
            return self._houses[part, number]
        config = self.config
        split = WORLDS[config.world][part]
        length = max(config.stay * config.tasks_per_step, 2 * config.warm_start_batch) if part == 0 else config.tasks
        seed = (config.seed * 3 + part) * HOUSES + number
        found = self._houses[part, number] = opened(config.world, split=split, seed=seed, length=length)
        self._tasks.update({task.key: task for task in (*found.tasks, *found.held_out)})
        return found

    def measured(self, part: int, count: int) -> list[list[Task]]:
        """The tasks of each house."""
        return [[task.task for task in self.house(part, number).tasks] for number in range(count)]

    def trained(self, position: int) -> Task:
        within = self.config.stay * self.config.tasks_per_step
        return self.house(0, position // within).tasks[position % within].task

    def environment(self, task: Task) -> Staged:
        if task.key not in self._tasks:  # a worker has made other houses than the controller
            part, number = divmod(int(house_of(task.key).rpartition("/")[2]), HOUSES)
            self.house(part - self.config.seed * 3, number)
        return _Weighed(self._tasks[task.key].environment(), self.config.progress)

    def begun(self, task: StreamTask) -> Scene:
        """The first decision as it is met, hidden side and all."""
        environment = task.environment()
        asyncio.run(environment.reset(task.task, 0))
        return environment.scene


def house_of(key: str) -> str:
    """The house of a task: all of its key but the number."""
    return key.rpartition("/")[0]


def system(config: Config, run: RunFolder) -> System:
    from keepworth.agents.acting import ModelActor
    from keepworth.learning.collect.memories import LivingMemory
    from keepworth.rollouts.driver import Limits, Play

    houses = Houses(config)
    limits = Limits(MAX_TURNS, config.environment_seconds)
    memory: LivingMemory | None = None

    def actor(remembers: AnyEpisode | None = None) -> ModelActor:
        return ModelActor(remembers, head=HEADS.get(config.world, ""), max_tokens=config.max_tokens)

    def policy() -> Policy:
        return settled(config.policy, config.shown, config.seed)

    def live(task: Task, context: RolloutContext) -> tuple[Agent, Feedback]:
        assert memory is not None
        feedback = memory.begin(house_of(task.key), task.input, context.id)
        return actor(feedback.memory), feedback

    if config.policy != NONE:
        memory = LivingMemory(run.path, ROLE, policy, encoder=config.encoder, seed=config.seed)
    play = Play(houses.environment, lambda task, bank: actor(), live=None if memory is None else live)

    def met(model: InProcessModel, tasks: Sequence[Task], way: str, label: str) -> list[Episode]:
        fresh = policy if way == "" and config.policy != NONE else None
        return met_in_order(model, tasks, houses, actor, limits, label, fresh, config, oracle=way == ORACLE)

    def measured(part: int, count: int, *controls: str) -> Measured:
        tasks = [task for house in houses.measured(part, count) for task in house]
        return Measured(tasks, dict.fromkeys(("", *controls), play), met)

    def imitated(model: InProcessModel) -> list[list[Pair]]:
        return [
            [
                (model.encode(actor().render(scene.seen, memory)), model.encode_continuation(f" {min(scene.right)}\n"))
                for scene, memory in demonstrated(houses, WARM + number, config)
            ]
            for number in range(config.warm_start)
        ]

    own = (NO_MEMORY, ORACLE) if config.policy != NONE else (ORACLE,)
    return System(
        role=ROLE,
        title="an actor learns to act with its memory" if config.policy != NONE else "an actor learns to act",
        train=[task.task for task in houses.house(0, 0).tasks],
        play=play,
        dev=measured(1, config.dev_houses),
        test={"new houses": measured(2, config.test_houses, *own)},
        metrics={SUCCESS: "success"},
        limits=limits,
        length_budget=config.max_tokens * MAX_TURNS,
        row_budget=config.max_tokens,
        imitated=imitated if config.warm_start else None,
        imitation_rate=config.warm_start_learning_rate,
        order=lambda group: houses.trained(position_of(group)),
        memory=memory,
        unit=house_of,
        note=f"{config.test_houses} houses of {config.tasks} tasks, each from an empty memory; intervals over houses.",
    )


def settled(policy: str, shown: int, seed: int) -> Policy:
    """The policy by name, showing at most `shown`. Whoever can be told to keeps failures and credits steps: that is what the
    tuner chose for plain search in worlds of several steps, and what `mixture` does anyway."""
    from keepworth.memory.by_name import seeded, settings_of

    both = {name: True for name in ("failures", "steps") if name in settings_of(policy)}
    return seeded(policy, seed, k=shown, **both)


def demonstrated(houses: Houses, number: int, config: Config) -> list[tuple[Scene, str]]:
    """First decisions of a house that is known by now, and what plain search shows there of earlier attempts, of which half were
    right and the others drawn at random; one decision in four is shown without. The same for every policy, so that all arms begin
    alike."""
    from keepworth.memory.memory import Memory

    generator = np.random.default_rng([config.seed, number])
    found = []
    with Memory(policy=lambda: settled("exprag", 2, config.seed), encoder="hashing", seed=config.seed) as memory:
        for place, task in enumerate(houses.house(0, number).tasks[: 2 * config.warm_start_batch]):
            scene = houses.begun(task)
            if not scene.right:
                continue
            right = min(scene.right)
            with memory.episode(scene.goal) as episode:
                shown = episode.search(scene.observation, actions=scene.actions).text
                if place >= config.warm_start_batch:
                    found.append((scene, shown if generator.random() < 0.75 else ""))
                tried = right if generator.random() < 0.5 else str(generator.choice(scene.actions))
                episode.act(tried)
                episode.reward(float(tried in scene.right))
    return found


def met_in_order(
    model: InProcessModel,
    tasks: Sequence[Task],
    houses: Houses,
    actor: Callable[[AnyEpisode | None], ModelActor],
    limits: Limits,
    label: str,
    policy: Callable[[], Policy] | None,
    config: Config,
    *,
    oracle: bool = False,
) -> list[Episode]:
    """The tasks of each house in order, houses side by side; memory learns from each before the next. Without memory all are
    played at once. Actions are sampled as in training: whoever always does what seems likeliest repeats what failed, and memory
    never holds what would have worked. A model that has learned nothing yet is played greedily: much that it would sample is no
    action at all. policy: of the memory that each house begins with, None for none; oracle: the agent is told a right action,
    as memory would tell it."""
    from keepworth.learning.collect.memories import encoder_of
    from keepworth.memory.memory import Memory
    from keepworth.rollouts.driver import Feedback, Play, play

    temperature = config.temperature if model.version else 0.0
    waiting: dict[str, list[Task]] = {}
    for task in tasks:
        waiting.setdefault(house_of(task.key), []).append(task)
    memories: dict[str, Memory] = {}
    encoder: Encoder | str = config.encoder
    for house in waiting if policy is not None else ():
        memories[house] = Memory(policy=policy, encoder=encoder, seed=config.seed)
        encoder = encoder_of(memories[house], encoder)  # one for all
    told: dict[str, Feedback] = {}
    met: dict[str, Staged] = {}

    def environment(task: Task) -> Environment:
        environment = houses.environment(task)
        if oracle:
            met[task.key] = environment
        return environment

    def agent(task: Task, bank: object) -> Agent:
        return _WithOracle(actor(None), met[task.key]) if oracle else actor(None)

    def live(task: Task, context: RolloutContext) -> tuple[Agent, Feedback]:
        feedback = told[context.id] = Feedback(memories[house_of(task.key)].episode(task.input))
        return actor(feedback.memory), feedback

    how = Play(environment, agent, live=live if memories else None)
    episodes: dict[str, Episode] = {}
    try:
        turns = [list(tasks)]  # without memory, in any order
        if memories:
            turns = [[each for each in turn if each is not None] for turn in zip_longest(*waiting.values())]
        for number, turn in enumerate(turns):
            drawn, ids = config.seed * len(tasks) + number, f"{label}{number}/"
            for group in play(model, turn, how, temperature=temperature, seed=drawn, limits=limits, label=ids):
                (episode,) = group.episodes
                episodes[group.task] = episode
                if episode.id in told:
                    told.pop(episode.id).ended(episode)
    finally:
        for memory in memories.values():
            memory.close()
    return [episodes[task.key] for task in tasks]


class _Weighed:
    """An environment, with what its progress counts for in training; its success is what memory is told and what is measured."""

    def __init__(self, inner: Staged, progress: float) -> None:
        self._inner, self._progress = inner, progress
        self.reset, self.close = inner.reset, inner.close

    @property
    def scene(self) -> Scene:
        return self._inner.scene

    async def step(self, action: str) -> Step:
        step = await self._inner.step(action)
        terms = tuple(
            replace(reward, weight=self._progress) if reward.name == PROGRESS else reward for reward in step.rewards
        )
        return replace(step, rewards=terms)


class _WithOracle:
    """An actor that is told a right action."""

    def __init__(self, actor: ModelActor, environment: Staged) -> None:
        self._actor, self._environment = actor, environment

    async def act(self, observation: Observation, model: Caller) -> Action:
        from keepworth.methods.policies._parts import Exemplars

        scene = self._environment.scene
        lines = [f"- (worked) {scene.text} -> {action}: it worked" for action in sorted(scene.right)]
        shown = "\n".join((Exemplars().heading, *lines)) if lines else ""
        return await self._actor.act(observation, model, extra=shown)


METHOD = Method(
    kind="recipe",
    name="text_world",
    title="Text world",
    about="a text world, played with a memory that persists over tasks: the model learns, the memory learns, or both do",
    differs="of this project, in the houses of TextWorld Commonsense (arXiv 2208.01174) or another stream",
    make=Recipe(Config, system),
    extra="train",
)
