"""The driver: runs agents in environments, many episodes at once, with one model. Errors are returned as values.

These failures can happen, with these consequences:

* an environment raises, takes longer than `Limits.environment_seconds`, or gives a reward that is not a finite number: the
  episode ends with StopReason.ENVIRONMENT_ERROR or TIMEOUT and the error in its `errors`. That does not depend on the policy, so
  the episode is not trained on;
* a context exceeds the window: CONTEXT_OVERFLOW, with the rewards until then; an answer does not end within its tokens:
  MAX_TOKENS, scored as it is; too many turns: MAX_TURNS. The policy causes these, so the episodes are trained on;
* an agent that is a program of somebody else's fails (`AgentStopped`): the episode ends as that says;
* the model or another agent fails: the error is raised to the caller, because no episode can continue.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from keepworth.base.errors import KeepworthError
from keepworth.base.model_errors import ContextOverflow
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.overlay import Bank
from keepworth.records.episode import (
    UNSOUND,
    Decision,
    Episode,
    Exchange,
    Group,
    MemoryEvent,
    Observation,
    RewardScope,
    RewardTerm,
    Segment,
    Shown,
    StopReason,
    Task,
    check_terms,
    finite_number,
    make_failed_episode,
)
from keepworth.records.model import ChatTemplate, FinishReason, Grammar, Model, Sample, SamplingParams, Tokens
from keepworth.worlds.agent import Action, Agent, AgentStopped, Caller
from keepworth.worlds.environment import Environment, JudgesTheEpisode, ScoresTheEnd, Step

# The context of a rollout, through which everything goes that takes time.
#
# A rollout is a coroutine that makes one episode of a task. It is the same for measuring (`together`) and for training
# (`keepworth.training.collect.pipeline.Pipeline`), which give it different contexts.


@dataclass(frozen=True, slots=True)
class Variation:
    """How one member of a group is played differently from the others.

    Attributes:
        name: Is recorded in the episode (`Episode.variation`).
        see: Changes each observation that the agent sees: adds a hint or noise, or another order.
        prefix: Words that its first answer begins with. They are read, not drawn, so they have no gradient.
        strip: Whether `see` and `prefix` are removed from what is trained on: the same draws then follow the prompts that the
            agent would have written without them.
    """

    name: str
    see: Callable[[Observation], Observation] = lambda observation: observation
    prefix: str = ""
    strip: bool = False


class RolloutContext(Protocol):
    """What a rollout uses to draw samples and to make slow calls.

    Attributes:
        group: The index of its group.
        seed: A seed for other random draws, such as an environment's.
        member: The position in its group; None where the episode is measured.
    """

    @property
    def id(self) -> str: ...

    @property
    def group(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def member(self) -> int | None: ...

    @property
    def variation(self) -> Variation | None: ...

    async def sample(self, prompt: Tokens, params: SamplingParams) -> Sample:
        """Draws one sample. `params.seed` is ignored: draws are seeded by the call that they are for."""
        ...

    async def call(
        self, function: Callable[..., Any], *arguments: Any, seconds: float | None = None, name: str = ""
    ) -> Any:
        """Calls a judge, a tool or another slow function, which may be asynchronous.

        Args:
            function: What is called; a plain function may block.
            arguments: The arguments that it gets.
            seconds: How long it may take; None for as long as it takes.
            name: What it is called in messages; "" takes the function's name.
        """
        ...

    async def with_group(
        self, name: str, function: Callable[[Sequence[Any]], Sequence[Any]], item: Any, seconds: float | None = None
    ) -> Any:
        """Calls a function once with the items of several members of the group, and returns the result for one of them.

        Args:
            name: The same name in each member tells that the calls belong together.
            function: It gets the items of the members and returns a result for each, in their order.
            item: What this member hands in.
            seconds: How long the function may take; None for as long as it takes.
        """
        ...

    async def shared(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns the result of a function that is called once for all members of the group.

        Args:
            name: The same name in each member tells that they share the result.
            function: The function, which may be asynchronous.
            arguments: The arguments that it gets, from the member that comes first.
        """
        ...


Rollout = Callable[[Task, RolloutContext], Awaitable[Episode]]
"""Makes one episode of a task, with the id `context.id`."""


# Batching: many episodes, one model. Calls that wait at the same time are sampled in one batch.
#
# A batch is drawn when every episode is waiting or has ended. So its members and its seed do not depend on how long anything
# took: the same arguments give the same episodes. Calls of a group's members with the same prompt (the first turn of a group)
# become one prompt with several samples, which an engine reads once.


def together(
    model: Model,
    tasks: Sequence[Task],
    rollout: Rollout,
    *,
    n: int = 1,
    seed: int = 0,
    label: str = "",
    indices: Sequence[int] | None = None,
) -> list[Group]:
    """Plays `n` episodes of every task to measure a model, and returns one group per task, in the order of `tasks`.

    Args:
        model: The model that the rollout calls.
        tasks: What is played; each task has a group.
        rollout: Makes one episode. What it raises is raised here.
        n: Members of a group.
        seed: The seed of the samples and of the members.
        label: A prefix of the episodes' ids, to tell them apart.
        indices: The indices of the groups, for a rollout that depends on them; 0, 1, 2 ... where None.
    """
    lockstep = Lockstep(model, seed)
    shared: list[dict[str, asyncio.Future[Any]]] = [{} for _ in tasks]
    episodes: dict[int, Episode] = {}

    async def member(index: int, position: int) -> None:
        try:
            number = index * n + position
            name = f"{label}{tasks[index].key}#{position}"
            group = index if indices is None else indices[index]
            context = Measuring(lockstep, name, group, number, seed * 1_000_003 + number, shared[index])
            episodes[number] = await rollout(tasks[index], context)
        finally:
            lockstep.leave()

    async def everybody() -> None:
        places = [(index, position) for index in range(len(tasks)) for position in range(n)]
        for _ in places:
            lockstep.enter()
        running = [asyncio.create_task(member(*position)) for position in places]
        try:
            await asyncio.gather(*running)
        finally:  # the first failure cancels the rest
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(everybody())
    groups = []
    for index, played in enumerate(tasks):
        members = tuple(episodes[index * n + position] for position in range(n))
        groups.append(Group(played.key, members[0].memory_snapshot, members))
    return groups


@dataclass(frozen=True, slots=True)
class Measuring:
    """The `RolloutContext` of an episode that is measured. `number` orders the episode in a batch."""

    lockstep: Lockstep
    id: str
    group: int
    number: int
    seed: int
    _shared: dict[str, asyncio.Future[Any]]
    member: None = None
    variation: None = None

    async def sample(self, prompt: Tokens, params: SamplingParams) -> Sample:
        return await self.lockstep.sample(WaitingCall(self.number, self.group, prompt, params))

    async def shared(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        if name not in self._shared:
            self._shared[name] = asyncio.ensure_future(await_result(function, *arguments))
        return await self._shared[name]

    async def call(
        self, function: Callable[..., Any], *arguments: Any, seconds: float | None = None, name: str = ""
    ) -> Any:
        return await await_result(function, *arguments)  # without a limit of time

    async def with_group(
        self, name: str, function: Callable[[Sequence[Any]], Sequence[Any]], item: Any, seconds: float | None = None
    ) -> Any:
        (result,) = function([item])
        return result


async def await_result(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the result of a function, and awaits it where it is awaitable."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that waits for its sample."""

    episode: int
    group: int
    prompt: Tokens
    params: SamplingParams


class Lockstep:
    """Draws samples when all episodes wait. Every episode calls `enter` before its first call and `leave` after its last."""

    def __init__(self, model: Model, seed: int) -> None:
        self._model, self._seed = model, seed
        self._inside = 0
        self._waiting: list[tuple[WaitingCall, asyncio.Future[Sample]]] = []
        self._round = 0

    def enter(self) -> None:
        self._inside += 1

    def leave(self) -> None:
        self._inside -= 1
        self._sample_if_all_wait()

    async def sample(self, call: WaitingCall) -> Sample:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sample] = loop.create_future()
        self._waiting.append((call, future))
        loop.call_soon(self._sample_if_all_wait)  # after other calls that the same episode makes at once
        return await future

    def _sample_if_all_wait(self) -> None:
        self._waiting = [waiting for waiting in self._waiting if not waiting[1].done()]  # done before: cancelled
        if not self._waiting or len({call.episode for call, _ in self._waiting}) < self._inside:
            return
        asked, self._waiting = sorted(self._waiting, key=lambda waiting: waiting[0].episode), []
        try:
            samples = _sampled(self._model, [call for call, _ in asked], f"{self._seed}/{self._round}")
        except Exception as error:  # a model that fails ends the run, not an episode
            for _, future in asked:
                if not future.done():
                    future.set_exception(error)
            return
        self._round += 1
        for (_, future), sample in zip(asked, samples, strict=True):
            if not future.done():  # cancelled while the model drew, by a signal that ends the run
                future.set_result(sample)


def _sampled(model: Model, calls: Sequence[WaitingCall], seed: str) -> list[Sample]:
    """Draws one sample per call, in the order of `calls`, with as few calls of the model as their limits allow. Calls with the
    same limits, and with as many that share their prompt, are one call of the model."""
    by_prompt: dict[tuple[SamplingParams, int, Tokens], list[int]] = {}
    for index, call in enumerate(calls):
        by_prompt.setdefault((replace(call.params, seed=0), call.group, call.prompt), []).append(index)
    batches: dict[tuple[SamplingParams, int], list[tuple[Tokens, list[int]]]] = {}
    for (params, _, prompt), members in by_prompt.items():
        batches.setdefault((params, len(members)), []).append((prompt, members))
    drawn: dict[int, Sample] = {}
    for number, ((params, copies), entries) in enumerate(batches.items()):
        seeded = int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:6], "big")
        sampled = model.sample([prompt for prompt, _ in entries], replace(params, n=copies, seed=seeded))
        for (_, members), samples in zip(entries, sampled, strict=True):
            drawn.update(zip(members, samples, strict=True))
    return [drawn[index] for index in range(len(calls))]


# Deadlines: limits of time for user code, distinct from timeouts that this code raises itself. A limit takes effect
# where the code awaits, so code that blocks belongs in a thread (`context.call`, `Blocking`).


T = TypeVar("T")
GRACE = 1.0
"""Seconds in which cancelled work may release its resources."""


class OutOfTime(Exception):
    """A deadline has passed, and the work was cancelled."""


async def within(work: Awaitable[T], seconds: float) -> T:
    """Returns the result of `work`, or raises its error, a TimeoutError of its own included. Raises OutOfTime after `seconds`.
    `asyncio.wait_for` raises the same error for both, and waits for ever for work that cannot be cancelled."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _stop(task)
        raise
    if not done:
        await _stop(task)
        raise OutOfTime
    if task.cancelled():  # by itself: a failure for the caller, not the end of the program
        raise RuntimeError("it cancelled itself")
    return task.result()


async def _stop(task: asyncio.Future[T]) -> None:
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=GRACE)
    if done and not task.cancelled():
        task.exception()  # read, so that asyncio does not warn of an error that was never retrieved


# Playing: an agent in an environment, turn by turn.


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an episode: `max_turns` calls of `act`, and `environment_seconds` for each reset, step and close."""

    max_turns: int = 16
    environment_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Play:
    """Makes a new environment and a new agent for each episode.

    Attributes:
        agent: Receives the task and, where there is a memory, its own fork of it.
        vary: Returns the variation of a member of a group, by its position. It is not called for measured episodes.
    """

    environment: Callable[[Task], Environment]
    agent: Callable[[Task, Bank | None], Agent]
    memory: Callable[[Task], Bank] | None = None
    vary: Callable[[Task, int], Variation | None] | None = None


def play(
    model: Model,
    tasks: Sequence[Task],
    how: Play,
    *,
    n: int = 1,
    temperature: float = 1.0,
    seed: int = 0,
    limits: Limits = Limits(),
    label: str = "",
) -> list[Group]:
    """Plays several episodes of every task, and returns one group per task, in the order of `tasks`; see `together`.

    Args:
        model: The model that agents call.
        tasks: What is played; each task has a group.
        how: The environment, the agent and the memory of each task.
        n: The number of episodes of each task.
        temperature: The temperature of the samples; 0 takes the likeliest token each time.
        seed: The seed of the samples and of the worlds.
        limits: The most calls of `act` in an episode, and the most seconds of a reset, a step or a close.
        label: A prefix of the episodes' ids, to tell them apart.
    """
    rollout = playing(model, how, temperature=temperature, limits=limits)
    return together(model, tasks, rollout, n=n, seed=seed, label=label)


def playing(model: Model, how: Play, *, temperature: float = 1.0, limits: Limits = Limits()) -> Rollout:
    """Returns the rollout of an agent in an environment. All episodes of a group start from forks of one memory.

    Args:
        model: The model that agents call.
        how: The environment, the agent and the memory of each task.
        temperature: The temperature of the samples; 0 takes the likeliest token each time.
        limits: The most calls of `act` in an episode, and the most seconds of a reset, a step or a close.
    """

    async def rollout(task: Task, context: RolloutContext) -> Episode:
        bank = None if how.memory is None else await context.shared("memory", how.memory, task)
        snapshot = "empty" if bank is None else bank.content_hash()
        try:
            environment = how.environment(task)
        except Exception as error:
            why = f"the environment could not be made: {type(error).__name__}: {error}"
            return replace(
                make_failed_episode(task, context.id, StopReason.ENVIRONMENT_ERROR, why), memory_snapshot=snapshot
            )
        varied = context.variation
        if varied is None and how.vary is not None and context.member is not None:
            varied = how.vary(task, context.member)
        if not isinstance(varied, Variation | None):
            raise TypeError(f"vary gave {varied!r:.60}, not a Variation")
        agent = how.agent(task, None if bank is None else bank.fork())
        caller = _Call(model, context, temperature, varied)
        seeing = agent if varied is None else _Seeing(agent, varied, caller)
        game = _Game(caller, environment, seeing, limits)
        episode = await game.play(task, context.seed, context.id, snapshot)
        if varied is None:
            return episode
        if varied.strip:
            other = how.agent(task, None if bank is None else bank.fork())
            episode = replace(episode, segments=await _asked_plainly(other, caller))
        return replace(episode, variation=varied.name)

    return rollout


class _Seeing:
    """An agent that sees observations as its variation changes them."""

    def __init__(self, agent: Agent, variation: Variation, caller: _Call) -> None:
        self._agent, self._variation, self._caller = agent, variation, caller

    async def act(self, observation: Observation, model: Caller) -> Action:
        self._caller.plain.append(observation)
        return await self._agent.act(self._variation.see(observation), model)


async def _asked_plainly(agent: Agent, caller: _Call) -> tuple[Segment, ...]:
    """Returns the draws of an episode, behind the prompts that its agent writes without the variation. A new agent sees the
    unchanged observations and is given the samples that were drawn. Their log-probabilities are empty, because they were not
    scored behind these prompts."""
    again = _Call(caller.model, _Redrawn(caller.samples), caller.temperature)
    for observation in caller.plain:
        again.state = observation.state
        try:
            await agent.act(observation, again)
        except ContextOverflow:  # the episode ended here, in the middle of the agent's turn
            break
    return tuple(replace(segment, logprobs=()) for segment in again.segments)


@dataclass(slots=True)
class _Redrawn:
    """Returns samples that were drawn before, in their order."""

    samples: list[Sample]

    async def sample(self, prompt: Tokens, params: SamplingParams) -> Sample:
        if not self.samples:
            raise ContextOverflow("there is no further sample")
        return self.samples.pop(0)


async def run_episode(
    task: Task,
    environment: Environment,
    agent: Agent,
    *,
    feedback: Feedback | None = None,
    limits: Limits = Limits(),
    seed: int = 0,
    identity: str = "",
) -> Episode:
    """Runs one episode of an agent that draws from no model here: a function, a scorer, an endpoint.

    Args:
        task: What the episode is about.
        environment: The world that it is played in.
        agent: What acts in it.
        feedback: It passes rewards on to the agent's memory; None passes none. An episode whose end does not depend on the
            agent (see `UNSOUND`) stays open there.
        limits: The most calls of `act`, and the most seconds of a reset, a step or a close.
        seed: The seed that the environment is reset with.
        identity: The id of the episode; "" takes the task's key.
    """
    game = _Game(NoModel(), environment, agent, limits, feedback)
    episode = await game.play(task, seed, identity or task.key)
    if feedback is not None:
        feedback.ended(episode)
    return episode


class NoModel:
    """The `Caller` of an agent that has no model to draw from."""

    context_limit = 0
    version = 0
    seed = 0
    state = ""
    seconds = 0.0

    def __init__(self) -> None:
        self.segments: list[Segment] = []

    def __getattr__(self, name: str) -> Any:
        raise KeepworthError("this agent calls a model, and was given none.", "Run it with `play(model, ...)`.")


class _Call:
    """The `Caller` of one episode: samples through its context, and records each call as a segment."""

    def __init__(
        self,
        model: Model,
        context: RolloutContext | _Redrawn,
        temperature: float,
        variation: Variation | None = None,
    ) -> None:
        self.model, self._context, self.temperature = model, context, temperature
        self._variation = variation
        self.plain: list[Observation] = []
        self.samples: list[Sample] = []
        self.seconds = 0.0
        self.segments: list[Segment] = []
        self.state = ""
        self.version = model.version
        self.seed = 0 if isinstance(context, _Redrawn) else context.seed
        self.context_limit = model.context_limit
        self.encode = model.encode
        self.encode_continuation = model.encode_continuation
        self.decode = model.decode
        self.stop_ids_for = model.stop_ids_for

    @property
    def chat(self) -> ChatTemplate:
        return self.model.chat

    async def call(
        self,
        prompt: Tokens,
        *,
        role: str,
        prompt_id: str,
        max_tokens: int,
        stop_ids: frozenset[int],
        stop: Sequence[str] = (),
        memory: str = "",
        grammar: str = "",
    ) -> Sample:
        varied = self._variation
        bound = Grammar(grammar, tuple(sorted(stop_ids))) if grammar else None
        begins = () if varied is None or self.segments else tuple(self.encode_continuation(varied.prefix))
        if bound is not None:
            self.model.check_grammar(bound)
            if begins:
                raise KeepworthError(
                    "This rollout's answers begin with a prefix of its variation, which no grammar describes.",
                    "Vary something else, or ask for the form in words.",
                )
        prompt = (*prompt, *begins)
        if len(prompt) + max_tokens > self.context_limit:
            raise ContextOverflow(
                f"call {len(self.segments) + 1} has {len(prompt)} tokens and may grow by {max_tokens}, past the "
                f"{self.context_limit} that {self.model.name} reads"
            )
        begun = time.perf_counter()
        params = SamplingParams(max_tokens, temperature=self.temperature, stop_ids=frozenset(stop_ids), grammar=bound)
        sample = await self._context.sample(prompt, params)
        if stop:
            sample = end_at(sample, stop, self.decode)
        self.seconds += time.perf_counter() - begun
        if varied is not None:
            self.samples.append(sample)
        text, around = self.decode(sample.ids), {"memory_before": memory, "memory_after": memory, "state": self.state}
        call = Segment.of(sample, role, prompt_id, prompt, text, self.temperature, grammar=bound, **around)
        self.segments.append(call)
        return sample if not begins else _begun_with(begins, sample)

    def remembers(self, memory: str) -> None:
        self.segments[-1] = replace(self.segments[-1], memory_after=memory)


def _begun_with(begins: Tokens, sample: Sample) -> Sample:
    """Returns the answer as its agent reads it: the prefix, then what was drawn."""
    shifted = tuple(replace(span, start=span.start + len(begins), end=span.end + len(begins)) for span in sample.spans)
    return Sample((*begins, *sample.ids), (*((0.0,) * len(begins)), *sample.logprobs), sample.finish, shifted)


def end_at(sample: Sample, stop: Sequence[str], decode: Callable[[Sequence[int]], str]) -> Sample:
    """Returns the sample up to the token that completes the first of some texts. A draw does not depend on later ones, so the
    result is the same as if sampling had checked after every token.

    Args:
        sample: What was drawn.
        stop: The texts that end a sample.
        decode: It returns the text of ids.
    """
    if not any(text in decode(sample.ids) for text in stop):
        return sample
    count = bisect_left(
        range(len(sample.ids)), True, key=lambda n: any(text in decode(sample.ids[:n]) for text in stop)
    )
    spans = tuple(replace(span, end=min(span.end, count)) for span in sample.spans if span.start < count)
    return Sample(sample.ids[:count], sample.logprobs[:count], FinishReason.STOP, spans)


class _Failed(Exception):
    """An environment failed; `stop` is how the episode ends."""

    def __init__(self, message: str, stop: StopReason = StopReason.ENVIRONMENT_ERROR) -> None:
        super().__init__(message)
        self.stop = stop


@dataclass(slots=True)
class _Game:
    """An episode while it is played, with its results so far. `seconds` is the time that the environment took."""

    caller: _Call | NoModel
    environment: Environment
    agent: Agent
    limits: Limits
    feedback: Feedback | None = None
    rewards: tuple[RewardTerm, ...] = ()
    errors: list[str] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    operations: list[MemoryEvent] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    answer: str = ""
    seconds: float = 0.0

    async def play(self, task: Task, seed: int, identity: str, snapshot: str = "") -> Episode:
        """Plays until the episode ends, and returns it."""
        try:
            stop = await self._turns(task, seed, identity, snapshot)
        except _Failed as failed:
            self.errors.append(str(failed))
            stop = failed.stop
        finally:
            try:
                await self._ask("close", self.environment.close)
            except _Failed as failed:  # the episode is complete: only `close` failed
                self.errors.append(str(failed))
        return self._record(task, identity, snapshot, stop)

    def _record(self, task: Task, identity: str, snapshot: str, stop: StopReason) -> Episode:
        segments = tuple(self.caller.segments)
        return Episode(
            id=identity,
            task=task.key,
            role=segments[-1].role if segments else "",
            question=task.input,
            segments=segments,
            answer=self.answer,
            expected=task.answers,
            rewards=self.rewards,
            stop=stop,
            memory_snapshot=snapshot,
            policy_version=self.caller.version,
            shown=tuple(self.shown),
            operations=tuple(self.operations),
            exchanges=tuple(self.exchanges),
            decisions=tuple(self.decisions) if self.feedback is None else self.feedback.memory.decisions,
            errors=tuple(self.errors),
            signals=tuple(self.signals),
            seconds={"environment": self.seconds, "sample": self.caller.seconds},
        )

    async def _turns(self, task: Task, seed: int, identity: str, snapshot: str) -> StopReason:
        """Plays until the episode ends, and returns why it ended."""
        caller, feedback, environment = self.caller, self.feedback, self.environment
        observation = self._check_observation(
            "reset", await self._ask("reset", lambda: self.environment.reset(task, seed))
        )
        for _ in range(self.limits.max_turns):
            caller.state = observation.state
            calls = len(caller.segments)
            if feedback is not None:
                feedback.before(observation)
            try:
                action = await self.agent.act(observation, caller)
            except ContextOverflow as overflow:
                self.errors.append(overflow.message)
                return await self._cut_off(StopReason.CONTEXT_OVERFLOW)
            except AgentStopped as stopped:
                self.errors += stopped.errors
                self.decisions += stopped.decisions
                if stopped.stop in UNSOUND:
                    raise _Failed(str(stopped), stopped.stop) from stopped
                self.errors.append(stopped.message)
                return await self._cut_off(stopped.stop)
            if len(caller.segments) == calls:
                self.exchanges.append(Exchange(f"{observation.question} {observation.text}".strip(), action.text))
            self.shown += action.shown
            self.operations += action.operations
            self.errors += action.errors
            self.decisions += action.decisions
            self.signals += action.signals
            if caller.segments and caller.segments[-1].finish is FinishReason.ABORTED:
                return StopReason.ABORTED
            begun = self.seconds
            asked = partial(environment.step, action.text)
            if isinstance(environment, JudgesTheEpisode):
                self.answer = action.text.strip()
                so_far = self._record(task, identity, snapshot, StopReason.COMPLETED)
                returned = action.text if action.returned is None else action.returned
                asked = partial(environment.judge, returned, so_far)
            step: Step = await self._ask("step", asked)
            if not isinstance(step, Step):
                raise _Failed(f"{self._named('step')} returned {type(step).__name__}, not a Step")
            lasted = self._lasted(step, self.seconds - begun)
            caller.segments[calls:] = [replace(segment, seconds=lasted) for segment in caller.segments[calls:]]
            self._earn(step.rewards, "step")
            if feedback is not None:
                feedback.after(observation, step)
            self.errors += step.errors
            self.answer = step.answer or self.answer
            if action.cut:
                return StopReason.MAX_TOKENS if step.stop is not None else await self._cut_off(StopReason.MAX_TOKENS)
            if step.stop is not None:
                return step.stop
            observation = self._check_observation("step", step.observation)
        return await self._cut_off(StopReason.MAX_TURNS)

    def _check_observation(self, what: str, observation: object) -> Observation:
        if not isinstance(observation, Observation):
            raise _Failed(f"{self._named(what)} gave {observation!r:.60} to see: it must be an Observation(text)")
        return observation

    async def _cut_off(self, stop: StopReason) -> StopReason:
        if isinstance(self.environment, ScoresTheEnd):
            self._earn(await self._ask("outcome", self.environment.outcome), "outcome")
        return stop

    def _earn(self, terms: Sequence[RewardTerm], where: str) -> None:
        try:
            self.rewards = check_terms((*self.rewards, *terms))
        except ValueError as error:
            raise _Failed(f"{self._named(where)} gave {error}") from None

    def _lasted(self, step: Step, clock: float) -> float:
        try:
            seconds = clock if step.seconds is None else finite_number(step.seconds)
            if seconds < 0:
                raise ValueError(f"{seconds}, below 0")
        except ValueError as error:
            raise _Failed(f"{self._named('step')} gave seconds that are {error}") from None
        return seconds

    async def _ask(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Awaits a method of the environment with a limit of time, converts every failure to `_Failed`, and adds up its time."""
        limit, begun = self.limits.environment_seconds, time.perf_counter()
        try:
            work = call()
            if not inspect.isawaitable(work):
                raise TypeError(
                    f"it returned {work!r:.60} at once: write `async def`, or wrap the environment in Blocking"
                )
            return await (work if math.isinf(limit) else within(work, limit))
        except OutOfTime as error:
            raise _Failed(f"{self._named(what)} took more than {limit:g} s", StopReason.TIMEOUT) from error
        except Exception as error:
            raise _Failed(f"{self._named(what)} failed: {type(error).__name__}: {error}") from error
        finally:
            self.seconds += time.perf_counter() - begun

    def _named(self, what: str) -> str:
        return f"{type(self.environment).__name__}.{what}"


# Feedback: the rewards that a memory receives for an episode in which it was used.


class Feedback:
    """Passes the rewards of an episode to its memory.

    Rewards are 0 to 1, and are scaled to the memory's range. A single step gets the environment's reward for it, else 1 where the
    situation changed and 0 where it did not, and for the last step the episode's reward. An episode with one known action gets
    the episode's reward alone.

    Args:
        reward_as, step_reward_as: Change the reward of the episode and of a step, for controls.
        steps: Whether single steps get rewards.
    """

    def __init__(
        self,
        memory: LiveEpisode,
        *,
        reward_as: Callable[[float], float] = float,
        step_reward_as: Callable[[float], float] = float,
        steps: bool = True,
    ) -> None:
        self.memory, self._steps = memory, steps
        self._reward_as, self._step_reward_as = reward_as, step_reward_as
        self._low, self._high = memory.reward_range or (0.0, 1.0)
        self._seen = ""
        self._progress: float | None = None
        self._credited = 0

    def before(self, observation: Observation) -> None:
        """Is called before the agent acts on `observation`."""
        if len(observation.actions) == 1:
            return
        if self.memory.acts > self._credited:
            moved = float(observation.text != self._seen)
            self._step(moved if self._progress is None else self._progress)
        self._seen, self._progress = observation.text, None

    def after(self, observation: Observation, step: Step) -> None:
        """Is called with the environment's answer to an action on `observation`."""
        if len(observation.actions) != 1:
            rewards = [term.value for term in step.rewards if term.scope is RewardScope.STEP]
            self._progress = sum(rewards) if rewards else None

    def ended(self, episode: Episode) -> None:
        """Is called at the end of the episode. An episode whose end does not depend on the agent stays open in memory."""
        if episode.stop in UNSOUND:
            return
        # Only rewards of the whole episode count; one that was cut off before them has a reward of 0.
        whole = (term for term in episode.rewards if term.scope is RewardScope.EPISODE and not term.shaping)
        reward = sum(term.value * term.weight for term in whole)
        if self.memory.acts > max(1, self._credited):
            self._step(reward if self._progress is None else self._progress)
        self.memory.reward(self._scaled(self._reward_as(reward)), by="")

    def _step(self, value: float) -> None:
        self._credited = self.memory.acts
        if self._steps:
            self.memory.step_reward(self._scaled(self._step_reward_as(value)))

    def _scaled(self, value: float) -> float:
        return self._low + value * (self._high - self._low)
