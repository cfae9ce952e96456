"""Dials of chance on any environment: actions that come out as others, rewards that do not count, rules that change, views that
hide a part.

After STORI (repository ARY2260/stori), which sorts the stochasticity of reinforcement learning: noise that depends on the action,
random events that do not, drift, and partial observation. What a memory claims under the first two tests credit, under drift
forgetting, under partial views recall.

Every draw is a function of the dials' seed, the task, the seed of the episode, the step and the dial. So the same actions lead to
the same course whatever ran before, arms of a comparison meet the same chance, turning one dial leaves the draws of the others as
they are, and an episode is restored by playing its actions again (`keepworth.environments.scene.Replayed` does).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial

import numpy as np

from keepworth.environments.environment import Environment, Step
from keepworth.environments.scene import Scene, Staged, Stream, StreamTask
from keepworth.episodes.episode import Observation, RewardTerm, Task
from keepworth.episodes.errors import KeepworthError, UnknownName

HIDDEN = "..."
"""Stands for a word that is not seen."""


@dataclass(frozen=True, slots=True)
class Dials:
    """swap: the chance that another of the offered actions is carried out (STORI type 1; 0.3 there).
    event: the chance that the reward of a step does not count (type 2.1; 0.25 there).
    drift: the time from which each action does what another one did before (type 2.2; 300 steps there), 0 for never; cycle: the
    time after which that is turned back, and so on, 0 where it stays (600 there).
    hidden, lasting, window: the share of an observation's words that is not seen (type 3.2; 0.7 there): drawn anew at each step;
    the same words always; all but a window that moves on with each step. At most one of the three."""

    swap: float = 0.0
    event: float = 0.0
    drift: int = 0
    cycle: int = 0
    hidden: float = 0.0
    lasting: float = 0.0
    window: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in SHARES:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise KeepworthError(f"the dial {name}={getattr(self, name)} is no share.", "Give one from 0 to 1.")
        if self.drift < 0 or self.cycle < 0:
            raise KeepworthError("a dial of time cannot be below 0.", "Give steps, or tasks of a stream; 0 for never.")
        if self.cycle and not self.drift:
            raise KeepworthError("the dial cycle turns a drift back, and there is none.", "Set drift, too.")
        if sum(bool(getattr(self, name)) for name in VIEWS) > 1:
            raise KeepworthError(f"only one of {', '.join(VIEWS)} can hide words.", "Choose one.")


SHARES = ("swap", "event", "hidden", "lasting", "window")
VIEWS = ("hidden", "lasting", "window")
USUAL: Mapping[str, float] = {"swap": 0.3, "event": 0.25, "hidden": 0.7, "lasting": 0.7, "window": 0.7}
"""What a dial is set to where no number is given: STORI's."""


def parsed(text: str, length: int = 0) -> Dials:
    """Dials as they are written behind the name of a stream: `swap~hidden=0.5`. drift alone means half of `length`.

    UnknownName, KeepworthError for what is no number or out of range."""
    given: dict[str, float] = {}
    known = [each.name for each in fields(Dials)]
    for part in text.split("~"):
        name, equals, number = part.partition("=")
        if name not in known:
            raise UnknownName("dial", name, known)
        try:
            if equals:
                given[name] = float(number) if name in SHARES else int(number)
            elif name in USUAL or (name == "drift" and length > 1):
                given[name] = USUAL.get(name, length // 2)
            else:
                raise ValueError
        except ValueError:
            raise KeepworthError(f"the dial {part!r} has no number.", f"Write it as {name}=NUMBER.") from None
    return Dials(**given)  # type: ignore[arg-type]


@dataclass(slots=True)
class Chance:
    """The draws of one episode."""

    key: tuple[int, ...] = ()
    place: int = 0

    def draw(self, dial: str) -> np.random.Generator:
        return np.random.default_rng((*self.key, self.place, *_words_of(dial)))


@dataclass(slots=True)
class Dialled:
    """`environment` under `dials`.

    time: of the whole episode, where time is counted in tasks (of a stream); None where it is counted in steps of the episode.
    happened: what the dials did in this episode, as (step, dial), for people and tests. KeepworthError where a dial needs the
    actions to be listed and they are not."""

    environment: Environment
    dials: Dials
    time: int | None = None
    happened: list[tuple[int, str]] = field(default_factory=list, init=False)
    _chance: Chance = field(default_factory=Chance, init=False)
    _offered: tuple[str, ...] = field(default=(), init=False)

    async def reset(self, task: Task, seed: int) -> Observation:
        self._chance = Chance((self.dials.seed, *_words_of(task.key), seed), 0)
        self.happened = []
        observation = await self.environment.reset(task, seed)
        self._offered = observation.actions
        if (self.dials.swap or self.dials.drift) and not self._offered and observation.answer_due:
            raise KeepworthError(
                f"the environment of {task.key} does not list its actions, so none can take the place of another.",
                "Leave the dials swap and drift out.",
            )
        return self._seen(observation)

    async def step(self, action: str) -> Step:
        place, dials, offered = self._chance.place, self.dials, self._offered
        done = self._meant(action, offered)
        if done != action:
            self.happened.append((place, "drift"))
        draw = self._chance.draw("swap")
        others = [each for each in offered if each != done]
        if others and draw.random() < dials.swap:
            done = others[int(draw.integers(len(others)))]
            self.happened.append((place, "swap"))
        step = await self.environment.step(done)
        rewards = step.rewards
        if rewards and self._chance.draw("event").random() < dials.event:
            rewards = tuple(uncounted for term in rewards for uncounted in _uncounted(term))
            self.happened.append((place, "event"))
        self._chance.place += 1
        self._offered = step.observation.actions
        return replace(step, observation=self._seen(step.observation), rewards=rewards)

    async def close(self) -> None:
        await self.environment.close()

    @property
    def scene(self) -> Scene:
        """Of a task of a stream: what is seen of it, and which actions are right as things are now."""
        staged: Staged = self.environment  # type: ignore[assignment]
        scene = staged.scene
        right = frozenset(each for each in scene.actions if self._meant(each, scene.actions) in scene.right)
        target = next(
            (each for each in scene.actions if self._meant(each, scene.actions) == scene.target), scene.target
        )
        text = self._shown(scene.observation)
        return replace(scene, observation=text, named=_told(scene.named, text), right=right, target=target)

    def _meant(self, action: str, offered: Sequence[str]) -> str:
        """What the action does now: after a drift, what the next of the offered ones in order of the alphabet did."""
        if not self._drifted or action not in offered:
            return action
        order = sorted(offered)
        return order[(order.index(action) + 1) % len(order)]

    @property
    def _drifted(self) -> bool:
        now = self._chance.place if self.time is None else self.time
        if not self.dials.drift or now < self.dials.drift:
            return False
        return not self.dials.cycle or (now - self.dials.drift) // self.dials.cycle % 2 == 0

    def _seen(self, observation: Observation) -> Observation:
        if not any(getattr(self.dials, name) for name in VIEWS):
            return observation
        text = self._shown(observation.text)
        return replace(observation, text=text, named=_told(observation.named, text))

    def _shown(self, text: str) -> str:
        """The text with the words that are not seen now replaced."""
        dials, words = self.dials, text.split(" ")
        if dials.hidden:
            lots = self._chance.draw("hidden").random(len(words))
            return " ".join(HIDDEN if lot < dials.hidden else word for word, lot in zip(words, lots, strict=True))
        if dials.lasting:
            return " ".join(HIDDEN if _lot(dials.seed, word) < dials.lasting else word for word in words)
        if dials.window:
            width = max(1, math.ceil((1.0 - dials.window) * len(words)))
            begin = self._chance.place * width % len(words)
            seen = {(begin + step) % len(words) for step in range(width)}
            return " ".join(word if place in seen else HIDDEN for place, word in enumerate(words))
        return text


def dialled(stream: Stream, dials: Dials) -> Stream:
    """`stream` with every task under `dials`. Time is counted in tasks, so it does not depend on how many steps an agent takes;
    held-out tasks come after all others.

    KeepworthError for a drift that comes after the last task."""
    if dials.drift >= len(stream.tasks):
        raise KeepworthError(
            f"the drift at task {dials.drift} never comes: {stream.family} has {len(stream.tasks)} tasks.",
            "Set it lower, or make the stream longer.",
        )

    def under(task: StreamTask, time: int) -> StreamTask:
        return replace(task, environment=partial(_made, task.environment, dials, time))

    after = len(stream.tasks)
    return replace(
        stream,
        tasks=tuple(under(task, place) for place, task in enumerate(stream.tasks)),
        held_out=tuple(under(task, after) for task in stream.held_out),
    )


def _made(make: Callable[[], Staged], dials: Dials, time: int) -> Staged:
    return Dialled(make(), dials, time)


def _uncounted(term: RewardTerm) -> tuple[RewardTerm, ...]:
    """The term with nothing in it, and what it was, for the record alone."""
    return replace(term, value=0.0), replace(term, name=f"{term.name} not counted", weight=0.0, shaping=True)


def _told(named: Sequence[str], text: str) -> tuple[str, ...]:
    """Of the actions that an observation tells of, those that can still be read."""
    return tuple(each for each in named if each in text)


def _words_of(text: str) -> tuple[int, ...]:
    digest = hashlib.sha256(text.encode()).digest()
    return tuple(int.from_bytes(digest[place : place + 4], "big") for place in (0, 4))


def _lot(seed: int, word: str) -> float:
    return _words_of(f"{seed}/{word}")[0] / 2**32
