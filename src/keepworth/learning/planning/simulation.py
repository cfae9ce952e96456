"""A training pipeline played with numbers in the place of models: who waits for whom, and how long an update takes.

Which groups are started and which are trained is decided by the pipeline's own rule (`Staleness`). Engines decode in slots
and read a prompt once for its group, the learner learns and publishes, and episodes wait for their environments between two
calls. Nothing is drawn by chance here: the same work and the same costs give the same forecast.

`ASSUMPTIONS` says what it takes for granted. What is measured, and how far off it was, is in docs/appendix/asynchrony.md.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from keepworth.episodes.errors import KeepworthError
from keepworth.learning.collect.admission import Staleness
from keepworth.learning.planning.workload import Workload, drawn_tokens, learned_tokens

ASSUMPTIONS = (
    "A decoding step takes as long as its number of sequences says, however long they are.",
    "Reading takes a time per token. A prompt that a group begins with is read once on its engine for each version of the "
    "weights; later calls of an episode are read whole.",
    "All members of a group are drawn on one engine: the one with the fewest episodes when the group starts.",
    "Several learners share the tokens of an update evenly, and sum their gradients in a ring: 2 (n - 1) / n times the time that "
    "the gradients take over the slowest link.",
    "Engines draw nothing while weights are published. Then unfinished sequences are read again (caches recompute), or go on "
    "with the keys and values that they have (caches keep).",
    "No episode fails, and no group is rejected. Nothing is lost, restarted or measured in between.",
    "Calls are those of the run, the trace or the distributions, whatever the policy learns.",
)

Mode = Literal["turns", "overlap", "apart"]
CACHES = ("recompute", "keep")


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds. step: of a decoding step, as pairs of (sequences, seconds), in between on straight lines. read: of one token that
    is read; call: of one call of an engine, whatever it draws. learn: of one token that is learned; update: of one update
    besides. gradient: that the gradients take over the slowest link between learners, once. publish: of bringing new weights
    into service. between: of what the trainer does between two updates, such as writing episodes down. contention: by how much
    engine and learner slow each other down when both compute on one machine; 1 is not at all.

    Raises KeepworthError for what is no cost."""

    step: tuple[tuple[float, float], ...]
    read: float = 0.0
    call: float = 0.0
    learn: float = 0.0
    update: float = 0.0
    gradient: float = 0.0
    publish: float = 0.0
    between: float = 0.0
    contention: float = 1.0

    def __post_init__(self) -> None:
        counts = [count for count, _ in self.step]
        if not counts or counts != sorted(set(counts)) or counts[0] < 0:
            raise KeepworthError(
                f"step = {list(self.step)} is no curve: it needs pairs of (sequences, seconds), by rising sequences.",
                "Such as [[1, 0.012], [64, 0.031]].",
            )
        if any(not 0 < seconds < math.inf for _, seconds in self.step):
            raise KeepworthError(f"step = {list(self.step)}: a decoding step takes more than 0 seconds.", "Measure it.")
        for name in ("read", "call", "learn", "update", "gradient", "publish", "between"):
            if not 0 <= getattr(self, name) < math.inf:
                raise KeepworthError(f"{name} = {getattr(self, name)} is no time in seconds.", "Set it to 0 or more.")
        if not 1 <= self.contention < math.inf:
            raise KeepworthError(f"contention = {self.contention} is below 1.", "1 is: neither slows the other down.")

    def step_seconds(self, sequences: int) -> float:
        """Of a decoding step. Beyond the ends of the curve the line of its last two points goes on, never below the lowest
        time on it."""
        points = self.step
        if len(points) == 1:
            return points[0][1]
        place = next((i for i, (count, _) in enumerate(points[1:-1], 1) if sequences <= count), len(points) - 1)
        (low, first), (high, second) = points[place - 1], points[place]
        line = first + (second - first) * (sequences - low) / (high - low)
        return max(line, min(seconds for _, seconds in points))

    def learn_seconds(self, tokens: float, learners: int) -> float:
        """Of one update by so many learners, with the sum of their gradients."""
        return self.update + self.learn * tokens / learners + self.gradient * 2 * (learners - 1) / learners


@dataclass(frozen=True, slots=True)
class Candidate:
    """Machines and settings to try. slots: of each engine. mode: sampler and learner take "turns" in one process, "overlap"
    there, or are "apart", each on machines of its own. caches, refill: as of the pipeline's settings. Raises KeepworthError."""

    staleness: Staleness
    engines: int = 1
    learners: int = 1
    slots: int = 32
    mode: Mode = "apart"
    caches: Literal["recompute", "keep"] = "recompute"
    refill: int = 1

    def __post_init__(self) -> None:
        for name in ("engines", "learners", "slots", "refill"):
            if getattr(self, name) < 1:
                raise KeepworthError(f"{name} = {getattr(self, name)} is below 1.", "Set it to 1 or more.")
        if self.refill > self.slots:
            raise KeepworthError(f"refill = {self.refill} of {self.slots} slots never happens.", "Lower refill.")
        if self.mode not in ("turns", "overlap", "apart") or self.caches not in CACHES:
            raise KeepworthError(
                f"mode = {self.mode!r} with caches = {self.caches!r} is unknown.",
                "Modes are turns, overlap and apart; caches are recompute and keep.",
            )
        if self.mode != "apart" and (self.engines, self.learners) != (1, 1):
            raise KeepworthError(
                f"mode = {self.mode!r} is one process with one engine and one learner, not {self.engines} and {self.learners}.",
                "Plan several with mode apart.",
            )


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a candidate does once its pipeline is full: means over `updates` of them.

    tokens_per_second: drawn tokens of the groups that were trained. engine_idle, learner_idle: shares of the time. sequences: in
    a decoding step. wait: seconds of an update in which the learner has nothing to learn from. lags: of trained episodes, by
    their oldest token. started, trained, evicted, waiting, running: groups of the whole play, by what became of them."""

    updates: int
    seconds_per_update: float
    tokens_per_second: float
    engine_idle: float
    learner_idle: float
    sequences: float
    wait: float
    mean_lag: float
    largest_lag: int
    started: int
    trained: int
    evicted: int
    waiting: int
    running: int

    @property
    def updates_per_hour(self) -> float:
        return 3600 / self.seconds_per_update


def simulated(workload: Workload, costs: Costs, candidate: Candidate, *, updates: int = 20, skip: int = 0) -> Forecast:
    """Play until `updates` are made after the first `skip`, which fill the pipeline; 0 is as many as the staleness needs.

    Takes time with the number of calls, not of tokens."""
    return _Play(workload, costs, candidate, skip or candidate.staleness.max_staleness + 3, updates).forecast()


def fitted_contention(
    workload: Workload, costs: Costs, candidate: Candidate, seconds_per_update: float, *, updates: int, skip: int = 0
) -> float:
    """The contention with which the forecast takes as long as was measured; 1 where even none is slower, at most 4."""

    def seconds(contention: float) -> float:
        own = replace(costs, contention=contention)
        return simulated(workload, own, candidate, updates=updates, skip=skip).seconds_per_update

    low, high = 1.0, 4.0
    if seconds(low) >= seconds_per_update:
        return low
    if seconds(high) <= seconds_per_update:
        return high
    while high - low > 0.002:
        middle = (low + high) / 2
        low, high = (middle, high) if seconds(middle) < seconds_per_update else (low, middle)
    return (low + high) / 2


# The play. Events are calls of methods at a time; what happens at one time happens in the order in which it was foreseen.


@dataclass(slots=True)
class _Group:
    """A group under way. oldest: of each member, the version that drew its first token."""

    index: int
    born: int
    engine: _Engine
    left: int
    oldest: list[int | None]


@dataclass(slots=True, order=True)
class _Draft:
    """A call that is to be drawn, by its place in the queue. end: the engine's step after which it is done."""

    key: tuple[int, int]
    call: int = field(compare=False)
    group: _Group = field(compare=False)
    prompt: int = field(compare=False)
    left: int = field(compare=False)
    wait: float = field(compare=False)
    drawn: int = field(compare=False, default=0)


@dataclass(slots=True)
class _Engine:
    """live: the drafts in slots, by the step after which they end. stretch: what it is doing until something changes: when it
    began to read, when to decode, the seconds of a step, and the number of steps."""

    number: int
    queue: list[_Draft] = field(default_factory=list)
    live: list[tuple[int, _Draft]] = field(default_factory=list)
    read: set[int] = field(default_factory=set)
    steps: int = 0
    stretch: tuple[float, float, float, int] | None = None
    serial: int = 0
    waking: bool = False
    interrupted: bool = False
    episodes: int = 0
    busy: float = 0.0
    decoded: int = 0
    drawn: int = 0


class _Play:
    def __init__(self, workload: Workload, costs: Costs, candidate: Candidate, skip: int, updates: int) -> None:
        self.workload, self.costs, self.candidate = workload, costs, candidate
        self.rule = candidate.staleness
        self.skip, self.updates = skip, updates
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.scheduled = 0
        self.engines = [_Engine(number) for number in range(candidate.engines)]
        self.version = self.started = self.evicted = 0
        self.open: dict[int, _Group] = {}
        self.running: dict[int, int] = {}
        self.finished: dict[int, int] = {}
        self.ended: dict[int, _Group] = {}
        self.taken: list[int] = []
        self.collecting = self.learning = self.paused = self.complete = False
        self.asked = self.waited = 0.0
        self.begun = math.inf
        self.lags: list[int] = []
        self.tokens = 0
        self.work = (0.0, 0.0, 1.0)
        self.pace = 0

    def forecast(self) -> Forecast:
        if self.candidate.mode != "turns":
            self._start_groups()
        self._collect()
        while not self.complete:
            if not self.events:
                raise RuntimeError("the pipeline stands still: nothing is under way and no batch is complete")
            self.now, _, event = heapq.heappop(self.events)
            event()
        seconds = max(self.now - self.begun, 1e-12)  # updates of what was ready, at no cost, take no time
        for engine in self.engines:
            self._account(engine)
        steps, drawn = sum(each.decoded for each in self.engines), sum(each.drawn for each in self.engines)
        return Forecast(
            updates=self.updates,
            seconds_per_update=seconds / self.updates,
            tokens_per_second=self.tokens / seconds,
            engine_idle=1 - sum(each.busy for each in self.engines) / seconds / len(self.engines),
            learner_idle=self.waited / seconds,
            sequences=drawn / steps if steps else 0.0,
            wait=self.waited / self.updates,
            mean_lag=sum(self.lags) / len(self.lags),
            largest_lag=max(self.lags),
            started=self.started,
            trained=self.version * self.rule.groups,
            evicted=self.evicted,
            waiting=len(self.finished),
            running=len(self.running),
        )

    def _at(self, time: float, event: Callable[[], None]) -> None:
        self.scheduled += 1
        heapq.heappush(self.events, (time, self.scheduled, event))

    # -- groups -----------------------------------------------------------------------------------------------------

    def _start_groups(self) -> None:
        trained = self.version * self.rule.groups
        accepted = trained + len(self.finished) + len(self.taken)
        for _ in range(
            self.rule.capacity(version=self.version, accepted=accepted, running=len(self.running), consumed=trained)
        ):
            index, self.started = self.started, self.started + 1
            members = self.workload.of(index)
            engine = min(self.engines, key=lambda each: (each.episodes, each.number))
            engine.episodes += len(members)
            group = _Group(index, self.version, engine, len(members), [None] * len(members))
            self.open[index], self.running[index] = group, self.version
            for member in range(len(members)):
                self._ask(group, member, 0)

    def _ask(self, group: _Group, member: int, call: int) -> None:
        """The next call of an episode, or its end."""
        calls = self.workload.of(group.index)[member]
        if call < len(calls):
            asked = calls[call]
            draft = _Draft((group.index, member), call, group, asked.prompt, asked.drawn, asked.wait)
            heapq.heappush(group.engine.queue, draft)
            self._wake(group.engine)
            return
        group.left -= 1
        group.engine.episodes -= 1
        if not group.left:
            del self.open[group.index], self.running[group.index]
            self.finished[group.index], self.ended[group.index] = group.born, group
            self._evict()
            self._take()

    def _drawn(self, draft: _Draft) -> None:
        member = draft.key[1]
        if draft.wait:
            self._at(self.now + draft.wait, partial(self._ask, draft.group, member, draft.call + 1))
        else:
            self._ask(draft.group, member, draft.call + 1)

    def _evict(self) -> None:
        if self.rule.on_stale != "evict":
            return
        for index in [i for i in self.finished if self._lag(min(self._oldest(i))) > self.rule.max_staleness]:
            del self.finished[index], self.ended[index]
            self.evicted += 1
        self._start_groups()

    def _oldest(self, index: int) -> list[int]:
        group = self.ended[index]
        return [group.born if each is None else each for each in group.oldest]

    def _lag(self, version: int) -> int:
        return self.rule.lag(self.version, version)

    # -- the learner ------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Ask for the groups of the next update."""
        self.asked, self.collecting = self.now, True
        self._start_groups()
        for engine in self.engines:
            self._wake(engine)
        self._evict()
        self._take()

    def _take(self) -> None:
        """Learn from the oldest groups that are ready, where there are enough."""
        indices = self.rule.choose(self.version, self.finished, self.running) if self.collecting else None
        if indices is None:
            return
        self.collecting = False
        groups = [self.workload.of(index) for index in indices]
        if self.now >= self.begun:
            self.waited += self.now - self.asked
            self.tokens += sum(map(drawn_tokens, groups))
            self.lags += [self._lag(each) for index in indices for each in self._oldest(index)]
        for index in indices:
            del self.finished[index], self.ended[index]
        self.taken = indices
        begins = max(map(self._cut, self.engines)) if self.candidate.mode == "turns" else self.now
        seconds = self.costs.learn_seconds(sum(map(learned_tokens, groups)), self.candidate.learners)
        self._at(begins, partial(self._learn, seconds))

    def _learn(self, seconds: float) -> None:
        self.learning = True
        self.work = (self.now, seconds, 1.0)
        if self._shared:
            for engine in self.engines:
                self._cut(engine)
        self._pace()

    @property
    def _shared(self) -> bool:
        return self.candidate.mode == "overlap" and self.costs.contention > 1

    def _pace(self) -> None:
        """When the learner will be done, at the speed that the engine beside it leaves it."""
        if not self.learning:
            return
        since, left, slower = self.work
        left = max(0.0, left - (self.now - since) / slower)
        slower = self.costs.contention if self._shared and any(each.stretch for each in self.engines) else 1.0
        self.work = (self.now, left, slower)
        self.pace += 1
        self._at(self.now + left * slower, partial(self._learned, self.pace))

    def _learned(self, pace: int) -> None:
        """Publish, once every engine has made its step. Foreseen at a pace that has changed since, it is not now."""
        if pace != self.pace:
            return
        self.learning, self.paused = False, True
        self.pace += 1
        self._at(max(map(self._cut, self.engines)) + self.costs.publish, self._published)

    def _published(self) -> None:
        self.version, self.taken, self.paused = self.version + 1, [], False
        for engine in self.engines:
            engine.interrupted = True
        if self.candidate.mode != "turns":  # in turns nobody would go on with them before the next batch is asked for
            self._start_groups()
        for engine in self.engines:
            self._wake(engine)
        self._at(self.now + self.costs.between, self._stepped)

    def _stepped(self) -> None:
        """The end of one update, and the beginning of the next."""
        if self.version == self.skip:
            self.begun = self.now
        if self.version == self.skip + self.updates:
            self.complete = True
        else:
            self._collect()

    # -- engines ----------------------------------------------------------------------------------------------------

    def _may_draw(self) -> bool:
        return not self.paused and (self.candidate.mode != "turns" or self.collecting)

    def _wake(self, engine: _Engine) -> None:
        """Look for what to draw once everything that happens at this time has happened."""
        if not engine.waking:
            engine.waking = True
            self._at(self.now, partial(self._woken, engine))

    def _woken(self, engine: _Engine) -> None:
        engine.waking = False
        free = self.candidate.slots - len(engine.live)
        if engine.stretch is None:
            self._go_on(engine)
        elif engine.queue and free >= self.candidate.refill:
            self._cut(engine)

    def _go_on(self, engine: _Engine) -> None:
        """Fill free slots and decode until the first sequence ends, where it may."""
        if engine.interrupted:
            self._interrupt(engine)
        if self._may_draw():
            slower = self.costs.contention if self._shared and self.learning else 1.0
            free = self.candidate.slots - len(engine.live)
            reading = self._fill(engine, free) if free >= self.candidate.refill or not engine.live else 0.0
            if engine.live:
                step = self.costs.step_seconds(len(engine.live)) * slower
                begins = self.now + reading * slower
                engine.stretch = (self.now, begins, step, engine.live[0][0] - engine.steps)
                self._schedule(engine)
        if self._shared:
            self._pace()

    def _fill(self, engine: _Engine, free: int) -> float:
        """Drafts into free slots; returns the seconds that it takes to read them."""
        tokens = calls = 0
        while engine.queue and calls < free:
            draft = heapq.heappop(engine.queue)
            calls += 1
            if draft.call or draft.group.index not in engine.read:
                tokens += draft.prompt
            if not draft.call:
                engine.read.add(draft.group.index)
            tokens += draft.drawn
            if draft.group.oldest[draft.key[1]] is None:
                draft.group.oldest[draft.key[1]] = self.version
            heapq.heappush(engine.live, (engine.steps + draft.left, draft))
        return self.costs.read * tokens + self.costs.call * calls

    def _interrupt(self, engine: _Engine) -> None:
        """New weights: prompts are read again, and with caches "recompute" what is unfinished is, too."""
        engine.interrupted = False
        engine.read.clear()
        if self.candidate.caches == "recompute":
            for end, draft in engine.live:
                left = end - engine.steps
                draft.drawn, draft.left = draft.drawn + draft.left - left, left
                heapq.heappush(engine.queue, draft)
            engine.live = []

    def _schedule(self, engine: _Engine) -> None:
        assert engine.stretch is not None
        engine.serial += 1
        _, begins, step, steps = engine.stretch
        self._at(begins + steps * step, partial(self._boundary, engine, engine.serial))

    def _cut(self, engine: _Engine) -> float:
        """Let the engine stop after the step that it is making; returns when that is."""
        if engine.stretch is None:
            return self.now
        since, begins, step, steps = engine.stretch
        made = max(1, math.ceil((self.now - begins) / step - 1e-6))
        if made < steps:
            engine.stretch = (since, begins, step, made)
            self._schedule(engine)
        return begins + min(made, steps) * step

    def _boundary(self, engine: _Engine, serial: int) -> None:
        """The end of a stretch: some sequences have ended, or there is something else to do."""
        if serial != engine.serial:  # it was cut short meanwhile
            return
        self._account(engine)
        assert engine.stretch is not None
        engine.steps += engine.stretch[3]
        engine.stretch = None
        done = []
        while engine.live and engine.live[0][0] <= engine.steps:
            done.append(heapq.heappop(engine.live)[1])
        for draft in done:
            self._drawn(draft)
        if engine.live or engine.queue:
            self._wake(engine)
        elif self._shared:
            self._pace()

    def _account(self, engine: _Engine) -> None:
        """Time and steps of a stretch, as far as it lies behind the first updates."""
        if engine.stretch is None or self.now <= self.begun:
            return
        since, begins, step, steps = engine.stretch
        engine.busy += self.now - max(since, self.begun)
        counted = min(steps, max(0, round((self.now - max(begins, self.begun)) / step)))
        engine.decoded += counted
        engine.drawn += counted * len(engine.live)


def split(gpus: int) -> Sequence[tuple[int, int]]:
    """Engines and learners that so many GPUs can be, one each: the learners a power of two."""
    if gpus < 2:
        raise KeepworthError(f"{gpus} GPU has no room for an engine and a learner.", "Plan 2 or more, or --mode turns.")
    learners = [2**power for power in range(gpus.bit_length()) if 2**power < gpus]
    return [(gpus - each, each) for each in learners]
