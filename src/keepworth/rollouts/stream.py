"""The online loop: one method meets one stream of tasks, in order, scored before it learns.

Every arm of a comparison draws the same noise for the same task, so that arms differ by what memory shows and nothing
else. Arms are a method under one of these controls:

    learn      the method as it is                      shuffled  all that memory is told are rewards of other tasks
    none       nothing is ever shown                    attempts  no memory, but two attempts at each task
    random     items drawn without regard to the task   irrelevant  items of other rules (needs the generator's knowledge)
    oracle     items of the store whose advice is right (needs the generator's knowledge)
    masked     the method as it is, but nobody sees the values that it learns
    rollback   the method as it is, but at `ROLLBACK` of the stream everything hostile sources wrote is rolled back
    unnamed    the method as it is, but nobody tells it who asks and rewards
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from keepworth.agents.simulated import Agent
from keepworth.environments.free_words import in_free_words
from keepworth.environments.scene import Scene, Stream, StreamTask, Visit
from keepworth.episodes.encoder import Encoder
from keepworth.memory.item import ItemKind
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.masked import Masked
from keepworth.memory.policy.pool import ACTIVE, CANDIDATE, OUTSIDE, OWN, Advice, advice, on_word_of
from keepworth.memory.policy.propensity import Mixture
from keepworth.memory.policy.retrievers import NOTHING
from keepworth.memory.policy.slots import Candidates, Policy, Presented, Use, Values

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


Cache: TypeAlias = "dict[str, tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]"
CONTROLS = ("learn", "shuffled", "masked", "none", "attempts", "random", "irrelevant", "oracle", "rollback", "unnamed")
LEARNING = ("learn", "shuffled", "masked", "rollback", "unnamed")
ROLLBACK = 0.6
LONGEST_EPISODE = 24


@dataclass(slots=True)
class StreamRun:
    """What one arm did. Arrays follow the tasks; nan where a number does not exist.

    success: of each task, scored before anything was learned from it; content, routing: shares of the regret against
    showing right advice always (content: the store had none; routing: it had some and it was not shown);
    target: whether a question with the attacker's trigger got what the attacker wants; held_out: success with the memory
    frozen; checks: the same after shares of the stream, on copies; predicted, realised: value estimates at held-out uses against
    what happened; words: read by the agent, situation and memory together, for each task; detection: per hostile source, how
    many tasks after its first record memory put something of it aside (nan: never).
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
    checks: list[Floats] = field(default_factory=list)
    detection: list[float] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)
    realised: list[float] = field(default_factory=list)
    items: int = 0
    seconds: float = 0.0
    overhead: list[float] = field(default_factory=list)


def run_stream(
    stream: Stream,
    method: Policy,
    agent: Agent,
    encoder: Encoder,
    *,
    seed: int,
    control: str = "learn",
    cache: Cache | None = None,
    measure_regret: bool = True,
    checkpoints: tuple[float, ...] = (),
) -> StreamRun:
    """Meet every task once. `seed` decides the agent's noise (shared by arms) and the method's own draws.

    checkpoints: shares of the stream after which the held-out tasks are met with a frozen copy of the memory; the run itself
    does not depend on them.
    """
    if control not in CONTROLS:
        raise ValueError(f"control {control!r} is not one of {', '.join(CONTROLS)}")
    started = time.perf_counter()
    loop = _Loop(stream, method, agent, encoder, seed, control, cache, measure_regret)
    marks = {round(share * len(stream.tasks)) for share in checkpoints}
    for number, task in enumerate(stream.tasks):
        if number in marks:
            loop.check()
        loop.live(number, task)
    loop.run.detection = loop.detection()
    for number, task in enumerate(stream.held_out):
        loop.frozen(number, task)
    run = loop.run
    run.items = len(loop.experience.pool.active())
    run.seconds = time.perf_counter() - started
    return run


class _Loop:
    def __init__(
        self,
        stream: Stream,
        method: Policy,
        agent: Agent,
        encoder: Encoder,
        seed: int,
        control: str,
        cache: Cache | None,
        measure_regret: bool,
    ) -> None:
        self.stream, self.agent, self.control = stream, agent, control
        if control == "masked":
            method = replace(method, valuer=Masked(method.valuer))
        self.experience = Experience(method, encoder, seed=seed)
        if cache is not None:
            self.experience.share_cache(cache)
        total, held = len(stream.tasks), len(stream.held_out)
        # One table of noise per (seed): the same for every arm.
        self.noise = np.random.default_rng([41, seed]).gumbel(size=(total + held, 2, LONGEST_EPISODE, stream.widest))
        self.generator = np.random.default_rng([43, seed])
        self.phrasing = np.random.default_rng([47, seed])
        self.meanings: dict[str, str] = {}
        self.visitors = np.random.default_rng([59, seed])
        self.outcomes: list[float] = []
        self.rewards: list[float] = []
        self.hostile: dict[str, int] = {}
        self.rules: dict[int, str] = {}
        self.observing = stream.long_term
        self.measure_regret = measure_regret
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
        self.read = 0

    def live(self, number: int, task: StreamTask) -> None:
        run, experience = self.run, self.experience
        if self.control == "rollback" and number == int(ROLLBACK * len(self.stream.tasks)):
            for name in sorted(self.hostile):
                experience.roll_back_source(name)
        for record in task.foreign:
            if record.hostile:
                self.hostile.setdefault(record.source or OUTSIDE, experience.clock.now)
            text = f"{record.key} -> {record.action}: it worked"
            if record.trigger:
                text += f" (if it says {record.trigger}: {record.payload})"
            draft = Advice(record.key, text, do=(record.action,), trigger=record.trigger, payload=record.payload)
            experience.observe(replace(draft, source=record.source) if record.source else draft)
        for visit in task.visits if self.control not in ("none", "attempts") else ():
            self._visit(visit)
        before = len(experience.pool)
        self.read = 0
        outcome, taken, scene, act = self._episode(number, task, frozen=False, attempt=0)
        steps = self._signals(taken, outcome)
        if self.control == "attempts" and outcome < 0.5:
            outcome, taken, scene, act = self._episode(number, task, frozen=False, attempt=1)
            run.calls[number] = 2.0
        run.success[number], run.steps[number], run.words[number] = outcome, len(taken), self.read
        run.triggered[number] = task.triggered
        if task.triggered:
            run.target[number] = float(act == scene.target and scene.target not in scene.right)
        if self.measure_regret and len(taken) == 1 and scene.right:
            self._regret(number, scene, outcome)
        told = 1.0 - outcome if task.flipped else outcome
        if self.control in ("none", "attempts"):
            experience.time += 1
            return
        if self.control == "shuffled":
            told, steps = self._permuted(told, steps)
        experience.finish(taken, told, per_step=steps, by=self._by(task.by))
        if self.control == "irrelevant":
            for row in range(before, len(experience.pool)):
                self.rules[row] = task.rule

    def _permuted(self, told: float, steps: list[float] | None) -> tuple[float, list[float] | None]:
        """Rewards of other tasks in place of this one's, of the episode and of every step: memory is told nothing else, so its
        values, its labels and what it keeps know nothing of what worked."""
        kinds = (([told], self.outcomes), (steps or [], self.rewards))
        drawn = []
        for own, past in kinds:
            drawn.append(
                [past[int(place)] for place in self.generator.integers(len(past), size=len(own))] if past else own
            )
            past.extend(own)
        return drawn[0][0], drawn[1] if steps is not None else None

    def _visit(self, visit: Visit) -> None:
        """An episode of somebody who is not scored."""
        experience, scene, by = self.experience, visit.scene, self._by(visit.by)
        if by:
            self.hostile.setdefault(on_word_of(by), experience.clock.now)
        use = experience.recall(scene.goal, scene.observation, scene.actions, by=by)
        noise = self.visitors.gumbel(size=len(scene.actions))
        action = visit.action or self.agent(scene.text, scene.actions, scene.leaning, experience.present(use), noise)
        experience.finish([(use, action)], float(action == visit.wanted), by=by)

    def _by(self, name: str) -> str:
        return "" if self.control == "unnamed" else name

    def _signals(self, taken: list[tuple[Use, str]], outcome: float) -> list[float] | None:
        """Rewards of the single steps of a longer episode, from the next state: what the world says of each, else 1 where
        the situation moved on, 0 where it stayed as it was, and the outcome for the last. Every valuer of every arm gets
        them."""
        if len(taken) < 2:
            return None
        if all("signal" in use.bonus for use, _ in taken):
            return [use.bonus["signal"] for use, _ in taken]
        texts = [use.query.text for use, _ in taken]
        return [float(now != then) for now, then in pairwise(texts)] + [outcome]

    def frozen(self, number: int, task: StreamTask) -> None:
        place = len(self.stream.tasks) + number
        outcome, taken, _, _ = self._episode(place, task, frozen=True, attempt=0)
        self.run.held_out[number] = outcome
        if self.control in LEARNING and len(taken) == 1 and taken[0][0].slate:
            use = taken[0][0]
            self.run.predicted.append(self._predicted(use))
            self.run.realised.append(outcome)

    def detection(self) -> list[float]:
        pool = self.experience.pool
        found = []
        for name, arrived in self.hostile.items():
            # A change keeps the status before it, so what it led to is what the next one of its row found.
            after = {row: int(pool.status[row]) for row in range(len(pool)) if pool.source[row] == pool.source_of(name)}
            aside = []
            for change in reversed(pool.history):
                if change.what == "status" and change.row in after:
                    if after[change.row] not in (ACTIVE, CANDIDATE) and "rollback" not in change.why:
                        aside.append(change.time)
                    after[change.row] = change.before
            found.append(float(min(aside) - arrived) if aside else float("nan"))
        return found

    def check(self) -> None:
        """Success on the held-out tasks as it would be if learning ended here."""
        kept, state = self.experience, self.generator.bit_generator.state
        self.experience = kept.copy()
        total = len(self.stream.tasks)
        self.run.checks.append(
            np.array(
                [
                    self._episode(total + number, task, frozen=True, attempt=0)[0]
                    for number, task in enumerate(self.stream.held_out)
                ]
            )
        )
        self.experience = kept
        self.generator.bit_generator.state = state

    def _predicted(self, use: Use) -> float:
        """The success that the valuer expects with what was shown."""
        mean = float(use.values.means[list(use.slate)].mean())
        valuer = self.experience.policy.valuer
        without: Callable[[object], float] | None = getattr(valuer, "success_without", None)
        if without is not None:
            return mean + without(use.query)
        return (mean + 1.0) / 2.0 if hasattr(valuer, "rate") else mean

    def _episode(
        self, number: int, task: StreamTask, *, frozen: bool, attempt: int
    ) -> tuple[float, list[tuple[Use, str]], Scene, str]:
        """The outcome, the choices with the actions taken, and the last scene that was acted in with its action."""
        world = task.world()
        scene = world.reset()
        taken: list[tuple[Use, str]] = []
        last, action = scene, ""
        for step in range(LONGEST_EPISODE):
            if self.observing and self.control not in ("none", "attempts"):
                # Working memory of this episode: kept even where learning is off.
                self._observe(scene)
            if len(scene.actions) == 1:
                action = scene.actions[0]
            else:
                use = self._recall(scene, task, step, frozen)
                shown = self._understood(self.experience.present(use))
                self.read += len(scene.text.split()) + len(shown.text.split())
                noise = self.noise[number, attempt, step, : len(scene.actions)]
                action = self.agent(scene.text, scene.actions, scene.leaning, shown, noise)
                taken.append((use, self._worded(action, scene)))
            last = scene
            scene = world.act(action)
            if scene.signal is not None and len(last.actions) > 1:
                taken[-1][0].bonus["signal"] = scene.signal
            if scene.done:
                break
        if frozen:
            self.experience.time += 1
        return scene.reward, taken, last, action

    def _worded(self, action: str, scene: Scene) -> str:
        """What memory is told was done."""
        if not self.stream.wording:
            return action
        said = in_free_words(action, self.stream.wording, scene.text, self.phrasing)
        self.meanings[said] = action
        return said

    def _understood(self, shown: Presented) -> Presented:
        """What the agent makes of it: it reads what an answer in other words meant."""
        if not self.meanings:
            return shown
        advice = tuple((self.meanings.get(action, action), weight, near) for action, weight, near in shown.advice)
        return replace(shown, advice=advice)

    def _observe(self, scene: Scene) -> None:
        if scene.named:
            self.experience.observe(
                Advice(scene.observation, scene.observation, do=scene.named, kind=ItemKind.EPISODE, source=OWN)
            )

    def _recall(self, scene: Scene, task: StreamTask, step: int, frozen: bool) -> Use:
        experience = self.experience
        # An agent that answers in words of its own chooses from no list that memory knows.
        offered = () if self.stream.wording else scene.actions
        if self.control in LEARNING:
            clock = time.perf_counter()
            by = self._by(task.by)
            use = experience.recall(scene.goal, scene.observation, offered, step=step, frozen=frozen, by=by)
            self.run.overhead.append(time.perf_counter() - clock)
            return use
        query = experience.query(scene.goal, scene.observation, offered, step)
        if self.control in ("none", "attempts"):
            rows = NOTHING.rows
        else:
            rows = experience.pool.active()
            if self.control == "irrelevant":
                rows = np.array([row for row in rows if self.rules.get(int(row)) != task.rule], dtype=np.intp)
            if self.control == "oracle":
                rows = self._right(scene, query.text)[:4]
            else:
                rows = self.generator.permutation(rows)[:4]
        candidates = Candidates(rows, experience.pool.similarities(query.vector, rows))
        scores = -np.arange(len(rows), dtype=np.float64)
        slate = tuple(range(len(rows)))
        values = Values(scores, np.zeros(len(rows)))
        return Use(query, candidates, values, Mixture("greedy", scores, values.deviations, 4), slate, self.control)

    def _right(self, scene: Scene, situation: str) -> npt.NDArray[np.intp]:
        """Rows, most similar first, whose every advice is right here."""
        pool = self.experience.pool
        right = scene.right.union(said for said, meant in self.meanings.items() if meant in scene.right)
        contents = {pool.content_of(action) for action in right}
        rows = pool.active()
        rows = rows[np.isin(pool.content[rows], list(contents))]
        if self.observing and not self.stream.lasting:
            rows = rows[pool.episode[rows] == self.experience.time]
        elif len(rows):
            rows = rows[np.argsort(-pool.similarities(pool.encode(situation), rows), kind="stable")]
        kept = []
        for row in rows:
            pairs = advice(pool.items[row], situation)
            if pairs and all(weight > 0 and action in right for action, weight in pairs):
                kept.append(row)
            if len(kept) == 4:
                break
        return np.array(kept, dtype=np.intp)

    def _regret(self, number: int, scene: Scene, outcome: float) -> None:
        """What four right items would have given, and what the right items of this store would have given."""
        noise = self.noise[number, 0, 0, : len(scene.actions)]
        right = next(iter(scene.right))

        def success(count: int) -> float:
            shown = Presented("", ((right, 1.0, 1.0),) * count)
            act = self.agent(scene.text, scene.actions, scene.leaning, shown, noise)
            return float(act in scene.right)

        full = success(4)
        if self.control in ("none", "attempts"):
            held = success(0)
        else:
            held = success(min(4, len(self._right(scene, scene.text))))
        self.run.content[number] = full - held
        self.run.routing[number] = held - outcome
