"""Groups of episodes: the context that their rollouts get, the group while it is open, and the finished group.

A rollout is a coroutine that calls its context for whatever takes time. Rollouts in this process and in workers use the same
context; only the sampler behind it differs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from keepworth.base.errors import KeepworthError
from keepworth.base.model_errors import ContextOverflow
from keepworth.records.episode import (
    UNSOUND,
    Episode,
    Group,
    RewardTerm,
    StopReason,
    Task,
    check_terms,
    episode_from_json,
    episode_to_json,
    finite_number,
    make_failed_episode,
)
from keepworth.records.model import Sample, SamplingParams, Tokens
from keepworth.training.collect.curriculum import draw_seed, position_of
from keepworth.training.collect.partial_sample import PartialSample
from keepworth.worlds.driver import OutOfTime, Variation, await_result, within
from keepworth.worlds.environment import call_function

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.training.collect.asynchrony import Asynchrony

T = TypeVar("T")


class CallFailed(KeepworthError):
    """A call of an environment, a tool or a reward raised. `stop` is the stop reason of the episode."""

    stop = StopReason.ENVIRONMENT_ERROR


class CallTimedOut(CallFailed):
    """A call did not return in time. One that runs in a thread keeps running, because Python cannot end it."""

    stop = StopReason.TIMEOUT


GroupCall = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
"""Maps the items of several members to one result for each."""

Draw = Callable[[PartialSample], Awaitable[Sample]]
"""Continues a draft until it ends. The draft holds the tokens drawn so far at any time."""


class EpisodeContext:
    """The `RolloutContext` of a training episode. `id` is the episode's; `seed` differs between episodes and tries."""

    def __init__(self, draw: Draw, group: OpenGroup, member: int, settings: Asynchrony, tries: int = 0) -> None:
        self.id = f"{group.index}/{member}"
        self.group, self.member, self.tries = group.index, member, tries
        self.variation = group.variations.get(member)
        self.seed = int(np.random.SeedSequence((settings.seed, group.index, member, tries)).generate_state(1)[0])
        self.shared = group.share
        self._draw, self._settings, self._group = draw, settings, group
        self._calls = 0

    async def sample(self, prompt: Tokens, params: SamplingParams) -> Sample:
        """Draws one sample. Its random numbers depend on the training's seed, the group, the member, the try and the number of
        the call, never on which samples are drawn with it, nor on `params.seed`."""
        step, position = divmod(position_of(self.group), self._settings.staleness.groups)
        again = (self.tries, self._calls) if self.tries or self._calls else ()
        self._calls += 1
        params = replace(params, seed=draw_seed(self._settings.seed, step, self.group))
        draft = PartialSample(tuple(prompt), params, (position, self.member, *again), group=self.group)
        return await self._draw(draft)

    async def with_group(
        self, name: str, function: Callable[[Sequence[Any]], Sequence[Any]], item: Any, seconds: float | None = None
    ) -> Any:
        """Calls a function once for all members of the group, each of which passes an item, and returns this member's result.
        Members that are done are not waited for.

        Args:
            name: The same name in each member tells that the calls belong together.
            function: It gets the items in the order of the members, and returns one result for each.
            item: What this member passes.
            seconds: How long the function may take, without the wait for the others; None takes `call_seconds` of the
                settings.
        """
        call = partial(self.call, function, seconds=seconds, name=name)
        return await self._group.ask_together(name, self.member, call, item)

    async def call(
        self, function: Callable[..., T | Awaitable[T]], *arguments: Any, seconds: float | None = None, name: str = ""
    ) -> T:
        """Calls an environment, a tool or a judge. Raises CallTimedOut where it does not return in time, CallFailed where it
        raises.

        Args:
            function: A plain function runs in a thread; an asynchronous one, or an object with an asynchronous `__call__`, is
                awaited.
            arguments: The arguments that it gets.
            seconds: How long it may take; None takes `call_seconds` of the settings.
            name: What messages call it; the function's name by default.
        """
        limit = self._settings.call_seconds if seconds is None else seconds
        what = f"{name or getattr(function, '__name__', type(function).__name__)} of episode {self.id}"
        try:
            return await within(call_function(function, *arguments), limit)
        except OutOfTime as error:
            raise CallTimedOut(f"{what} did not answer in {limit:g} s.") from error
        except (CallFailed, ContextOverflow):
            raise
        except Exception as error:
            raise CallFailed(f"{what} raised {type(error).__name__}: {error}") from error

    async def reward(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        weight: float = 1.0,
        seconds: float | None = None,
    ) -> RewardTerm:
        """Calls a function and returns its result as a reward term. Raises CallFailed where it raises, does not return in time
        or returns no finite number.

        Args:
            name: The name of the term.
            function: The function, as for `call`.
            arguments: The arguments that it gets.
            weight: The term counts so many times in the episode's reward.
            seconds: How long it may take; None takes `call_seconds` of the settings.
        """
        value = await self.call(function, *arguments, seconds=seconds, name=name)
        try:
            return RewardTerm(name, finite_number(value), weight)
        except ValueError as error:
            raise CallFailed(f"Reward {name} of episode {self.id} is {error}.") from None


TrainedRollout = Callable[[Task, EpisodeContext], Awaitable[Episode]]
"""Runs one episode of a task, and awaits the context for every model call and whatever else takes time."""

GroupRollout = Callable[[Task, EpisodeContext, "InProcessModel"], Awaitable[Sequence[Episode]]]
"""Maps (task, context, model) to all episodes of a group at once, such as the paths of a tree. The model only scores and encodes;
the context samples. The episodes get their ids from the group."""


@dataclass(frozen=True, slots=True)
class Again:
    """What a `regroup` may use to change a group that has ended.

    Attributes:
        index: The group's index, which is the same whenever it is sampled; use it as a seed.
        play: Maps (variations, rollout) to one more episode of the task for each variation; None is a variation without a change.
            Episodes that failed are left out. A rollout that replaces the training's may start from another memory.
    """

    index: int
    play: Callable[..., Awaitable[list[Episode]]]


Regroup = Callable[[Task, Group, Again], Awaitable["Group | Sequence[Group] | None"]]
"""Maps (task, group, again) to the group that is trained on, or to several, the members of each compared with each other; None
samples another group instead.

It may play more members, add episodes of a pool, leave members out, or change their rewards. The result may depend only on its
arguments and on the content of a `Source`: then a run that is killed repeats it."""


async def run_rollout(rollout: TrainedRollout, task: Task, context: EpisodeContext, seconds: float) -> Episode:
    """Runs a rollout and returns its episode. A failure returns an episode without segments, with `stop` and `errors` set.

    Args:
        rollout: The function that makes the episode.
        task: The task of its group.
        context: What the rollout may call, and the id that its episode must have.
        seconds: How long it may take.
    """
    try:
        episode = await within(rollout(task, context), seconds)
        return _check(episode, task, context.id)
    except OutOfTime:
        return make_failed_episode(task, context.id, StopReason.TIMEOUT, f"{context.id} took longer than {seconds:g} s")
    except ContextOverflow as error:
        return make_failed_episode(task, context.id, StopReason.CONTEXT_OVERFLOW, str(error))
    except CallFailed as error:
        return make_failed_episode(task, context.id, error.stop, str(error))
    except (Exception, SystemExit) as error:
        return make_failed_episode(task, context.id, StopReason.ENVIRONMENT_ERROR, f"{type(error).__name__}: {error}")


async def run_member(
    group: OpenGroup,
    member: int,
    rollout: TrainedRollout,
    draw: Draw,
    settings: Asynchrony,
    note_failed: Callable[[Episode], None],
) -> None:
    """Runs one member of a group to its end, and again where it fails, as often as the settings say. A prompt that is too long
    is not tried again.

    Args:
        group: The group, which gets the episode.
        member: The position of the member, from 0 on.
        rollout: The function that makes the episode.
        draw: What draws samples for it.
        settings: The limits of time and the number of retries.
        note_failed: It receives the episode of each failed try that is followed by another.
    """
    for tries in range(settings.retries + 1):
        context = EpisodeContext(draw, group, member, settings, tries)
        episode = await run_rollout(rollout, group.task, context, settings.episode_seconds)
        if not has_failed(episode) or episode.stop is StopReason.CONTEXT_OVERFLOW or tries == settings.retries:
            break
        note_failed(episode)
    group.end(member, episode)


async def run_whole_group(
    group: OpenGroup, rollout: GroupRollout, draw: Draw, settings: Asynchrony, model: InProcessModel
) -> None:
    """Runs a rollout that makes all episodes of a group. The episodes that it returns become the group's members.

    Args:
        group: The group, which gets the episodes.
        rollout: The function that makes them. One that returns none has failed.
        draw: What draws samples for it.
        settings: The limits of time and the number of retries.
        model: The model, which the rollout may call by itself.
    """

    async def make(task: Task, context: EpisodeContext) -> Episode:
        episodes = list(await rollout(task, context, model))
        if not episodes:
            raise CallFailed(f"The rollout of group {group.index} returned no episode.")
        members[:] = [
            _check(replace(episode, id=f"{group.index}/{number}"), task, f"{group.index}/{number}")
            for number, episode in enumerate(episodes)
        ]
        return members[0]

    members: list[Episode] = []
    first = await run_rollout(make, group.task, EpisodeContext(draw, group, 0, settings), settings.episode_seconds)
    for member, episode in enumerate(members[1:], start=1):
        group.done[member] = episode
    group.size = max(1, len(members))
    group.end(0, first)


def has_failed(episode: Episode) -> bool:
    """Whether an episode has no segments, or ended for a reason that does not depend on the policy."""
    return not episode.segments or episode.stop in UNSOUND


def _check(episode: object, task: Task, id: str) -> Episode:
    """Returns the episode with its rewards as plain floats. Raises CallFailed where it is not a valid result of a rollout."""
    if not isinstance(episode, Episode):
        raise CallFailed(f"The rollout of episode {id} returned {type(episode).__name__}, not an Episode.")
    if (episode.id, episode.task) != (id, task.key):
        raise CallFailed(
            f"The rollout of episode {id!r} of task {task.key!r} returned one called {episode.id!r} "
            f"of task {episode.task!r}."
        )
    if not episode.segments and not episode.errors:
        raise CallFailed(f"The rollout of episode {id} returned an episode without a model call.")
    try:
        return replace(episode, rewards=check_terms(episode.rewards))
    except ValueError as error:
        raise CallFailed(f"The rollout of episode {id} gave {error}.") from None


@dataclass(slots=True)
class OpenGroup:
    """A group while it is sampled.

    Attributes:
        born: The version of the weights when it was started.
        waiting_elsewhere: Members that are done in a worker, or wait there for the others.
        variations: Variations of members that a `regroup` asked for.
        changed: Is called whenever more members are done or wait for the others.
    """

    index: int
    born: int
    task: Task
    size: int
    done: dict[int, Episode] = field(default_factory=dict)
    waiting_elsewhere: int = 0
    variations: dict[int, Variation | None] = field(default_factory=dict)
    changed: Callable[[], None] = lambda: None
    _shared: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    _asked: dict[str, dict[int, tuple[Any, asyncio.Future[Any]]]] = field(default_factory=dict)
    _calls: dict[str, GroupCall] = field(default_factory=dict)
    _answering: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def waiting(self) -> int:
        """The number of members that wait for the others."""
        return sum(map(len, self._asked.values())) + self.waiting_elsewhere

    async def share(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns the result of a function that is called once for all members, and again only where it failed.

        Args:
            name: The same name in each member tells that they share the result.
            function: A plain function must be quick, because it runs on the event loop; it may also be asynchronous.
            arguments: The arguments that it gets, from the member that comes first.
        """
        if name not in self._shared:
            self._shared[name] = asyncio.ensure_future(await_result(function, *arguments))
        future = self._shared[name]
        try:
            return await asyncio.shield(future)
        except Exception:
            if self._shared.get(name) is future:
                del self._shared[name]
            raise

    async def ask_together(self, name: str, member: int, call: GroupCall, item: Any) -> Any:
        """Makes one call with the items of all members that are not done, in order, and returns this member's result.

        Args:
            name: The same name in each member tells that the calls belong together.
            member: The position of this member, from 0 on.
            call: The call, from the items to one result for each.
            item: What this member passes.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[name] = call
        self._asked.setdefault(name, {})[member] = item, future
        self._progress()
        try:
            return await future
        finally:
            if self._asked[name].get(member, (None, None))[1] is future:
                del self._asked[name][member]
                self.changed()

    def end(self, member: int, episode: Episode) -> None:
        self.done[member] = episode
        self._progress()

    def _progress(self) -> None:
        """Starts the calls that no member is missing from, once a member is done or asks."""
        for name, asked in self._asked.items():
            if asked and len(asked) >= self.size - len(self.done):
                self._asked[name] = {}
                task = asyncio.get_running_loop().create_task(_answer(self._calls[name], asked))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
        self.changed()

    def add(self, variations: Sequence[Variation | None]) -> list[int]:
        """Adds one member for each variation, and returns their positions."""
        members = list(range(self.size, self.size + len(variations)))
        self.variations.update(zip(members, variations, strict=True))
        self.size += len(variations)
        return members

    def outcome(self) -> tuple[tuple[Episode, ...], list[Episode]]:
        """Divides the episodes of a group whose members are all done into those to train on and those that are left out. Those to
        train on start from the most common memory snapshot, because a baseline must compare episodes of one snapshot."""
        episodes = [self.done[member] for member in range(self.size)]
        snapshots = Counter(episode.memory_snapshot for episode in episodes if not has_failed(episode))
        common = snapshots.most_common(1)[0][0] if snapshots else ""
        whole = [not has_failed(episode) and episode.memory_snapshot == common for episode in episodes]
        complete = tuple(episode for episode, is_whole in zip(episodes, whole, strict=True) if is_whole)
        return complete, [episode for episode, is_whole in zip(episodes, whole, strict=True) if not is_whole]


async def _answer(call: GroupCall, asked: Mapping[int, tuple[Any, asyncio.Future[Any]]]) -> None:
    members = [asked[member] for member in sorted(asked)]
    try:
        results = await call([item for item, _ in members])
        for (_, future), result in zip(members, results, strict=True):
            if not future.done():
                future.set_result(result)
    except Exception as error:
        for _, future in members:
            if not future.done():
                future.set_exception(error)


def reason_of(episodes: Sequence[Episode]) -> str:
    """Returns why a group failed, from the errors of one of its members."""
    errors = (episode.errors[-1] for episode in episodes if episode.errors)
    return next(errors, "its episodes start from different memories" if episodes else "regroup returned None")


@dataclass(frozen=True, slots=True)
class FinishedGroup:
    """A group that waits to be trained on.

    Attributes:
        index: See `keepworth.training.collect.curriculum`.
        born: The version of the weights when it was started; no token of it is older.
        groups: The group, then those that a `regroup` made from it.
    """

    index: int
    born: int
    groups: tuple[Group, ...]


def group_to_json(finished: FinishedGroup) -> dict[str, Any]:
    """Converts a group to a record that `group_from_json` reads."""
    groups = [[episode_to_json(episode) for episode in group.episodes] for group in finished.groups]
    return {"group": finished.index, "born": finished.born, "groups": groups}


def group_from_json(record: Mapping[str, Any]) -> FinishedGroup:
    """Reads a record of `group_to_json`."""
    groups = (
        Group(episodes[0].task, episodes[0].memory_snapshot, episodes)
        for episodes in (tuple(map(episode_from_json, rows)) for rows in record["groups"])
    )
    return FinishedGroup(int(record["group"]), int(record["born"]), tuple(groups))
