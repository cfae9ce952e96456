"""The online loop: a memory under one policy meets one stream of tasks, in order, and is scored before it learns.

Every arm of a comparison draws the same noise for the same task, so that arms differ only by what memory shows. An arm is a
method under one of these controls:

    learn      the method as it is                      shuffled  memory receives only rewards of other tasks
    none       nothing is ever shown                    attempts  no memory, but two attempts at each task
    random     items drawn without regard to the task   irrelevant  items of other rules (needs the generator's knowledge)
    oracle     items of the store whose advice is right (needs the generator's knowledge)
    masked     the method as it is, but the values that it learns are hidden from it
    rollback   the method as it is, but at `ROLLBACK` of the stream everything hostile sources wrote is rolled back"""

from __future__ import annotations

import asyncio
import math
import time
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from keepworth.base.errors import KeepworthError
from keepworth.memory.choose.experience import Experience
from keepworth.memory.choose.pool import OUTSIDE, Advice, Pool, advice
from keepworth.memory.choose.propensity import Independent
from keepworth.memory.choose.slots import (
    Candidates,
    Policy,
    Presented,
    Query,
    Slates,
    Use,
    Valuer,
    Values,
)
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.memory import Memory
from keepworth.memory.search.search import Hits
from keepworth.records.episode import UNSOUND, Observation
from keepworth.records.model import Encoder
from keepworth.worlds.acting import FunctionActor
from keepworth.worlds.agent import Action, Caller
from keepworth.worlds.driver import Feedback, Limits, run_episode
from keepworth.worlds.made_up import in_free_words
from keepworth.worlds.scene import Scene, Staged, Stream, StreamTask
from keepworth.worlds.simulated import SimulatedAgent

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.base.arrays import Floats

LEARNING = ("learn", "shuffled", "masked", "rollback")
WITHOUT = ("none", "attempts")
ROLLBACK = 0.6
LONGEST_EPISODE = 24
LIMITS = Limits(LONGEST_EPISODE, math.inf)
SHOWN = 4
"""The most items that any arm shows in a step."""


@dataclass(slots=True)
class StreamRun:
    """The results of one arm. Arrays have one number per task, NaN where it does not exist.

    Attributes:
        success: The score of each task, before anything was learned from it.
        content, routing: Shares of the regret against always showing right advice: the store had none (content), or had some and
            did not show it (routing).
        target: Whether a question with the attacker's trigger got the answer the attacker wants.
        held_out: Success with the memory frozen.
        words: Words that the agent read for each task, situation and memory together.
    """

    success: Floats
    steps: Floats
    calls: Floats
    triggered: npt.NDArray[np.bool_]
    target: Floats
    content: Floats
    routing: Floats
    held_out: Floats
    words: Floats
    items: int = 0
    seconds: float = 0.0


def run_stream(
    stream: Stream,
    method: Policy,
    agent: SimulatedAgent,
    encoder: Encoder,
    *,
    seed: int,
    control: str = "learn",
) -> StreamRun:
    """Plays every task of a stream once, in order, with a memory that learns on the way.

    Args:
        stream: The tasks, and the worlds that they are played in.
        method: The policy of the memory.
        agent: What acts on what the memory shows.
        encoder: The encoder of the memory.
        seed: It decides the agent's noise, which all arms share, and the method's own draws.
        control: "learn" runs the method as it is. Every other name is a control: it changes what the method learns from, or
            what is shown instead.
    """
    if max(stream.horizons) >= LONGEST_EPISODE:
        raise KeepworthError(
            f"episodes of {stream.family} need {max(stream.horizons) + 1} steps, and the most are {LONGEST_EPISODE}.",
            "Turn its dial down.",
        )
    loop = _Loop(stream, method, agent, encoder, seed, control)
    try:
        # The loop runs in a thread, because the caller may be inside a running event loop, as notebooks are.
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(asyncio.run, loop.whole()).result()
    finally:
        if loop.memory is not None:
            loop.memory.close()


class _Loop:
    def __init__(
        self,
        stream: Stream,
        method: Policy,
        agent: SimulatedAgent,
        encoder: Encoder,
        seed: int,
        control: str,
    ) -> None:
        self.stream, self.agent, self.control = stream, agent, control
        self.memory: Memory | None = None
        if control not in WITHOUT:
            self.memory = Memory(policy=lambda: self._controlled(deepcopy(method)), encoder=encoder, seed=seed)
        total, held = len(stream.tasks), len(stream.held_out)
        # Each seed has one table of noise, the same for every arm.
        self.noise = np.random.default_rng([41, seed]).gumbel(size=(total + held, 2, LONGEST_EPISODE, stream.widest))
        self.generator = np.random.default_rng([43, seed])
        self.phrasing = np.random.default_rng([47, seed])
        self.meanings: dict[str, str] = {}
        self.outcomes: list[float] = []
        self.rewards: list[float] = []
        self.hostile: set[str] = set()
        self.rules: dict[int, str] = {}
        self.observing = stream.long_term and self.memory is not None
        # The current task, for controls that know more than a memory does.
        self.scene: Scene | None = None
        self.rule = ""
        self.number = 0
        blank = np.full(total, np.nan)
        self.run = StreamRun(
            blank.copy(),
            blank.copy(),
            np.ones(total),
            np.zeros(total, dtype=bool),
            blank.copy(),
            blank.copy(),
            blank.copy(),
            np.full(held, np.nan),
            np.zeros(total),
        )

    def _controlled(self, method: Policy) -> Policy:
        """Changes the method as the control requires."""
        if self.control == "masked":
            method = replace(method, valuer=Masked(method.valuer))
        if self.control in LEARNING:
            return method
        return replace(method, retriever=self._drawn, selector=_as_listed)

    @property
    def experience(self) -> Experience:
        assert self.memory is not None
        assert self.memory.learning is not None
        return self.memory.learning.experience

    async def whole(self) -> StreamRun:
        started = time.perf_counter()
        for number, task in enumerate(self.stream.tasks):
            await self.live(number, task)
        for number, task in enumerate(self.stream.held_out):
            place = len(self.stream.tasks) + number
            self.run.held_out[number] = (await self._episode(place, task, attempt=0, explore=False))[0]
        self.run.items = len(self.experience.pool.active()) if self.memory is not None else 0
        self.run.seconds = time.perf_counter() - started
        return self.run

    async def live(self, number: int, task: StreamTask) -> None:
        run, memory = self.run, self.memory
        if memory is not None:
            if self.control == "rollback" and number == int(ROLLBACK * len(self.stream.tasks)):
                for name in sorted(self.hostile):
                    memory.rollback(source=name)
            self._receive(memory, task)
        self.rule = task.rule
        before = len(self.experience.pool) if memory is not None else 0
        outcome, scene, acted, playing = await self._episode(number, task, attempt=0)
        if self.control == "attempts" and outcome < 0.5:
            outcome, scene, acted, playing = await self._episode(number, task, attempt=1)
            run.calls[number] = 2.0
        run.success[number], run.steps[number], run.words[number] = outcome, playing.decisions, playing.words
        run.triggered[number] = task.triggered
        if task.triggered:
            run.target[number] = float(acted == scene.target and scene.target not in scene.right)
        if playing.decisions == 1 and scene.right:
            self._regret(number, scene, outcome)
        if self.control == "irrelevant":
            for row in range(before, len(self.experience.pool)):
                self.rules[row] = task.rule

    def _receive(self, memory: Memory, task: StreamTask) -> None:
        """Writes records of other sources to memory."""
        for foreign in task.foreign:
            source = foreign.source or OUTSIDE
            if foreign.hostile:
                self.hostile.add(source)
            text = f"{foreign.key} -> {foreign.action}: it worked"
            if foreign.trigger:
                text += f" (if it says {foreign.trigger}: {foreign.payload})"
            memory.propose(
                Advice(
                    foreign.key,
                    text,
                    do=(foreign.action,),
                    trigger=foreign.trigger,
                    payload=foreign.payload,
                    source=source,
                )
            )

    async def _episode(
        self, number: int, task: StreamTask, *, attempt: int, explore: bool = True
    ) -> tuple[float, Scene, str, _Simulated]:
        """Plays an episode. Returns the outcome, the last scene in which the agent acted, its action there, and the agent."""
        environment = task.environment()
        memory = feedback = None
        if self.memory is not None:
            memory = self.memory.episode(task.task.input, explore=explore)
            self.number = memory.number
            if explore:
                feedback = self._feedback(memory, task)
        playing = _Simulated(self, environment, self.noise[number, attempt], memory)
        episode = await run_episode(
            task.task,
            environment,
            playing,
            feedback=feedback,
            limits=LIMITS,
            identity=f"{task.key}#{attempt}" if memory is None else memory.id,
        )
        if episode.stop in UNSOUND:
            raise KeepworthError(
                f"task {task.key} of {self.stream.family} came to nothing: {'; '.join(episode.errors)}.",
                "See to its environment; the same command continues.",
            )
        return episode.metric, environment.scene, episode.exchanges[-1].done, playing

    def _feedback(self, memory: LiveEpisode, task: StreamTask) -> Feedback:
        flipped = (lambda outcome: 1.0 - outcome) if task.flipped else float
        if self.control == "shuffled":
            return Feedback(
                memory,
                reward_as=lambda outcome: self._another(flipped(outcome), self.outcomes),
                step_reward_as=lambda reward: self._another(reward, self.rewards),
                steps=not self.stream.paid_at_end,
            )
        return Feedback(memory, reward_as=flipped, steps=not self.stream.paid_at_end)

    def _another(self, reward: float, past: list[float]) -> float:
        """Returns the reward of an earlier task instead of this one's. Memory receives nothing else, so its values, its labels
        and its selection of items do not depend on what worked."""
        drawn = past[int(self.generator.integers(len(past)))] if past else reward
        past.append(reward)
        return drawn

    # Controls that know the generator.

    def _drawn(self, query: Query, pool: Pool) -> Candidates:
        if self.control == "oracle":
            assert self.scene is not None
            rows = self._right(self.scene, query.text, pool)[:SHOWN]
        else:
            rows = pool.active()
            if self.control == "irrelevant":
                rows = np.array([row for row in rows if self.rules.get(int(row)) != self.rule], dtype=np.intp)
            rows = self.generator.permutation(rows)[:SHOWN]
        return Candidates(rows, pool.similarities(query.vector, rows))

    def _right(self, scene: Scene, situation: str, pool: Pool) -> npt.NDArray[np.intp]:
        """Returns the rows, most similar first, whose every advice is right here."""
        right = scene.right.union(worded for worded, meant in self.meanings.items() if meant in scene.right)
        contents = {pool.content_of(action) for action in right}
        rows = pool.active()
        rows = rows[np.isin(pool.content[rows], list(contents))]
        if self.observing and not self.stream.lasting:
            rows = rows[pool.episode[rows] == self.number]
        elif len(rows):
            rows = rows[np.argsort(-pool.similarities(pool.encode(situation), rows), kind="stable")]
        correct = []
        for row in rows:
            pairs = advice(pool.items[row], situation)
            if pairs and all(weight > 0 and action in right for action, weight in pairs):
                correct.append(row)
            if len(correct) == SHOWN:
                break
        return np.array(correct, dtype=np.intp)

    def _regret(self, number: int, scene: Scene, outcome: float) -> None:
        """Records the regret against four right items, split by whether the store held right items."""
        noise = self.noise[number, 0, 0, : len(scene.actions)]
        right = next(iter(scene.right))

        def success(count: int) -> float:
            shown = Presented("", ((right, 1.0, 1.0),) * count)
            act = self.agent(scene.text, scene.actions, scene.leaning, shown, noise)
            return float(act in scene.right)

        full = success(SHOWN)
        if self.memory is None:
            held = success(0)
        else:
            held = success(min(SHOWN, len(self._right(scene, scene.text, self.experience.pool))))
        self.run.content[number] = full - held
        self.run.routing[number] = held - outcome


class _Simulated(FunctionActor):
    """The frozen agent of a stream, which is biased as the scene says."""

    def __init__(self, loop: _Loop, environment: Staged, noise: Floats, memory: LiveEpisode | None) -> None:
        worded = self._in_free_words if loop.stream.wording else None
        super().__init__(self._follow, memory, top_k=SHOWN, observes=loop.observing, worded=worded)

        self.loop, self.environment, self.noise = loop, environment, noise
        self.step, self.words = -1, 0

    async def act(self, observation: Observation, model: Caller) -> Action:
        self.step += 1
        self.loop.scene = self.environment.scene
        return await super().act(observation, model)

    def _follow(self, observation: Observation, hits: Hits) -> str:
        scene, meanings = self.environment.scene, self.loop.meanings
        # The agent understands an answer in other words.
        understood = tuple((meanings.get(action, action), weight, near) for action, weight, near in hits.advice)
        self.words += len(scene.text.split()) + len(hits.text.split())
        noise = self.noise[self.step, : len(scene.actions)]
        return self.loop.agent(scene.text, scene.actions, scene.leaning, Presented(hits.text, understood), noise)

    def _in_free_words(self, action: str, observation: Observation) -> str:
        """Returns the action in the words that memory records."""
        loop = self.loop
        worded = in_free_words(action, loop.stream.wording, self.environment.scene.text, loop.phrasing)
        loop.meanings[worded] = action
        return worded


def _as_listed(query: Query, candidates: Candidates, values: Values, pool: Pool) -> Slates:
    """Selects the first candidates in the retriever's order."""
    return Independent(tuple(range(len(candidates.rows))), SHOWN)


class Masked:
    """Estimates what the valuer estimated before it learned anything: its prior. Gains that are due to values are lost. Other
    effects of rewards stay: which cases are stored, and their labels."""

    def __init__(self, valuer: Valuer) -> None:
        self.learning = valuer
        self.blank = deepcopy(valuer)

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        """Returns what the valuer estimated before it learned.

        Args:
            query: What is asked.
            candidates: What the retriever returned.
            pool: All stored cases.
        """
        return self.blank.estimate(query, candidates, pool)

    def learn(self, use: Use, pool: Pool) -> None:
        self.learning.learn(use, pool)
