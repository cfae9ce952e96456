"""A group of episodes on its way: its index, what its rollouts are given and what they have called, the group while it is
open, and what is on disk once it is finished.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from keepworth.environments.environment import in_thread
from keepworth.episodes.episode import (
    UNSOUND,
    Episode,
    Group,
    RewardTerm,
    StopReason,
    Task,
    checked_terms,
    episode_from_json,
    episode_to_json,
    finite_number,
)
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens, VersionSpan
from keepworth.learning.collect.curriculum import GroupOrder, candidate_of, draw_seed, position_of
from keepworth.learning.run_folder import Fields, disk, line, read_json, read_rows, write_json
from keepworth.models.errors import ContextOverflow
from keepworth.models.partial_sample import PartialSample
from keepworth.rollouts.driver import OutOfTime, made, within

if TYPE_CHECKING:
    from keepworth.learning.collect.curriculum import Stage


# RecordedContext: what a rollout is given while a model is trained. Everything that takes time or may fail goes through it.
#
# It keeps a call log: the drafts of the episode's model calls and the results it was asked to remember. A rollout that was
# interrupted, also by the end of the process, is continued by running it again from its start: calls that are in the
# log are answered from it, the first that is not finished goes on where it stopped. So a rollout has to be a function of
# its task and of what the context gives it; one that is not leaves the log where it differs, and samples anew from there.


T = TypeVar("T")


class CallFailed(KeepworthError):
    """A call of an environment, a tool or a reward raised; `stop` says how the episode ends."""

    stop = StopReason.ENVIRONMENT_ERROR


class CallTimedOut(CallFailed):
    """A call did not answer in time. One that runs in a thread is left to itself: Python cannot end it."""

    stop = StopReason.TIMEOUT


class BadReward(CallFailed):
    """A reward function returned something that is no finite number."""


class DraftSampler(Protocol):
    """Goes on with a draft until it ends; the draft holds what was drawn, also while it is waited for."""

    async def sample(self, draft: PartialSample) -> Sample: ...


@dataclass(slots=True)
class Remembered:
    """A result in the call log: any value that JSON can hold."""

    name: str
    value: Any


@dataclass(slots=True)
class CallLog:
    """What an episode has asked for, in order. tries: how often it was begun anew; diverged: how often it left the log."""

    entries: list[PartialSample | Remembered] = field(default_factory=list)
    tries: int = 0
    diverged: int = 0

    def oldest(self) -> int | None:
        """The version of the oldest token drawn under weights that have been replaced; None where there is none."""
        spans = [s.version for each in self.entries if isinstance(each, PartialSample) for s in each.spans]
        return min(spans, default=None)


AskedTogether = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
"""The items of several members -> one result for each, in their order."""


class InGroup:
    """What the members of a group do together. missing: how many of them are not done."""

    def __init__(self, missing: Callable[[], int]) -> None:
        self._missing = missing
        self._made: dict[str, asyncio.Future[Any]] = {}
        self._asked: dict[str, dict[int, tuple[Any, asyncio.Future[Any]]]] = {}
        self._functions: dict[str, AskedTogether] = {}
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Members that wait for the others."""
        return sum(len(asked) for asked in self._asked.values())

    async def shared(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns, called once; again only where it failed."""
        if name not in self._made:
            self._made[name] = asyncio.ensure_future(made(function, *arguments))
        future = self._made[name]
        try:
            return await asyncio.shield(future)
        except Exception:
            if self._made.get(name) is future:
                del self._made[name]
            raise

    async def together(self, name: str, member: int, function: AskedTogether, item: Any) -> Any:
        """This member's part of what `function` makes of the items of all members that are not done, in their order."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._functions[name] = function
        self._asked.setdefault(name, {})[member] = item, future
        self.look()
        try:
            return await future
        finally:
            if self._asked.get(name, {}).get(member, (None, None))[1] is future:
                del self._asked[name][member]

    def look(self) -> None:
        """Begin what nobody is missing for. To be called whenever a member is done."""
        for name, asked in self._asked.items():
            if asked and len(asked) >= self._missing():
                self._asked[name] = {}
                task = asyncio.get_running_loop().create_task(self._answer(self._functions[name], asked))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    async def _answer(self, function: AskedTogether, asked: Mapping[int, tuple[Any, asyncio.Future[Any]]]) -> None:
        members = [asked[member] for member in sorted(asked)]
        try:
            results = await function([item for item, _ in members])
            answers = list(zip(members, results, strict=True))
        except Exception as error:
            for _, future in members:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in answers:
            if not future.done():
                future.set_result(result)


@dataclass(frozen=True, slots=True)
class Terms:
    """What an episode is run under. run_seed: of the training. groups: of an update. seconds: how long a call may take
    where it does not say itself. failed: what a reward that fails is worth; None fails its episode. stage: which of the
    training's stages the group belongs to; its `horizon` is the rollout's to keep."""

    run_seed: int = 0
    groups: int = 1
    seconds: float = 60.0
    failed: float | None = None
    stage: Stage | None = None


class RecordedContext:
    """The `RolloutContext` of an episode that is trained on. `id` is the episode's; `seed` differs between episodes and
    between tries."""

    def __init__(
        self, sampler: DraftSampler, log: CallLog, group: int, member: int, terms: Terms, companions: InGroup
    ) -> None:
        self.id = f"{group}/{member}"
        self.group = group
        self.member = member
        self.log = log
        self.stage = terms.stage
        self.seed = int(np.random.SeedSequence((terms.run_seed, group, member, log.tries)).generate_state(1)[0])
        self.errors: list[str] = []
        self._sampler = sampler
        self._terms = terms
        self._companions = companions
        self._position = 0
        self._calls = 0

    async def sample(self, prompt: Tokens, params: SamplingParams) -> Sample:
        """One sample. Its draws depend on the training's seed, the group, the member, the try and the number of the call:
        never on who is sampled beside it, nor on `params.seed`."""
        step, position = divmod(position_of(self.group), self._terms.groups)
        again = (self.log.tries, self._calls) if self.log.tries or self._calls else ()
        stream = (position, self.member, *again)
        params = replace(params, seed=draw_seed(self._terms.run_seed, step, self.group))
        self._calls += 1
        found = self._logged()
        if not (
            isinstance(found, PartialSample)
            and (found.prompt, found.params, found.stream) == (tuple(prompt), params, stream)
        ):
            found = PartialSample(tuple(prompt), params, stream, group=self.group)
            self._record(found)
        self._position += 1
        return await self._sampler.sample(found)

    async def shared(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns, called once for all members of the group. It may be asynchronous; one that is not runs
        on the loop, so it has to be quick."""
        return await self._companions.shared(name, function, *arguments)

    async def with_group(
        self, name: str, function: Callable[[Sequence[Any]], Sequence[Any]], item: Any, seconds: float | None = None
    ) -> Any:
        """A call for all members of the group at once, each of whom hands in an item: `function` returns one result for each,
        in their order. Who is done is not waited for; the time of the wait does not count."""

        async def asked(items: Sequence[Any]) -> Sequence[Any]:
            return await self.call(function, items, seconds=seconds, name=name)

        return await self._companions.together(name, self.member, asked, item)

    async def call(
        self, function: Callable[..., T | Awaitable[T]], *arguments: Any, seconds: float | None = None, name: str = ""
    ) -> T:
        """An environment's, a tool's or a judge's answer. A plain function runs in a thread of its own; what is asynchronous,
        an object whose call is included, is awaited.

        Raises CallTimedOut after `seconds`, CallFailed where the function raises."""
        limit = self._terms.seconds if seconds is None else seconds
        called = name or getattr(function, "__name__", type(function).__name__)
        try:
            return await within(_called(function, *arguments), limit)
        except OutOfTime as error:
            raise CallTimedOut(f"{called} of episode {self.id} did not answer in {limit:g} s.") from error
        except (CallFailed, ContextOverflow):
            raise
        except Exception as error:
            raise CallFailed(f"{called} of episode {self.id} raised {type(error).__name__}: {error}") from error

    async def remember(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """The same for a call whose result, a value that JSON can hold, is all there is to it: continued later, the
        episode gets the same result without the call. Not for the steps of an environment that keeps a state."""
        known, value = self.recalled(name)
        if not known:
            value = await self.call(function, *arguments, name=name)
            self.keep(name, value)
        return value

    def recalled(self, name: str) -> tuple[bool, Any]:
        """Whether the log has a result of that name here, and the result."""
        found = self._logged()
        if not (isinstance(found, Remembered) and found.name == name):
            return False, None
        self._position += 1
        return True, found.value

    def keep(self, name: str, value: Any) -> None:
        json.dumps(value)  # raises TypeError here, where it can be put right, and not when the run is saved
        self._record(Remembered(name, value))
        self._position += 1

    async def reward(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        weight: float = 1.0,
        seconds: float | None = None,
    ) -> RewardTerm:
        """What the function returns, as a term. Where it raises, hangs or returns no finite number, the episode fails, or
        gets the reward that was set for failures, and its `errors` say why."""
        try:
            return RewardTerm(
                name, finite_number(await self.call(function, *arguments, seconds=seconds, name=name)), weight
            )
        except CallFailed as error:
            problem = error
        except ValueError as error:
            problem = BadReward(f"Reward {name} of episode {self.id} is {error}.")
        if self._terms.failed is None:
            raise problem
        self.errors.append(str(problem))
        return RewardTerm(name, self._terms.failed, weight)

    def horizon(self, otherwise: int) -> int:
        """How far the episode may go: what its stage says; where that says nothing, `otherwise`."""
        return (self.stage.horizon if self.stage else None) or otherwise

    def _logged(self) -> PartialSample | Remembered | None:
        return self.log.entries[self._position] if self._position < len(self.log.entries) else None

    def _record(self, entry: PartialSample | Remembered) -> None:
        if self._position < len(self.log.entries):
            self.log.diverged += 1
            del self.log.entries[self._position :]
        self.log.entries.append(entry)


RecordedRollout = Callable[[Task, RecordedContext], Awaitable[Episode]]
"""Runs one episode of a task: awaits the context for every model call and whatever else takes time."""


async def run_rollout(rollout: RecordedRollout, task: Task, context: RecordedContext, seconds: float) -> Episode:
    """The rollout's episode, or one without segments whose `stop` and `errors` say what went wrong: errors are values."""
    try:
        episode = await within(rollout(task, context), seconds)
        episode = _checked(episode, task, context)
    except OutOfTime:
        return failed_episode(task, context, StopReason.TIMEOUT, f"episode {context.id} took longer than {seconds:g} s")
    except ContextOverflow as error:
        return failed_episode(task, context, StopReason.CONTEXT_OVERFLOW, str(error))
    except CallFailed as error:
        return failed_episode(task, context, error.stop, str(error))
    except (Exception, SystemExit) as error:
        return failed_episode(task, context, StopReason.ENVIRONMENT_ERROR, f"{type(error).__name__}: {error}")
    return replace(episode, errors=(*episode.errors, *context.errors)) if context.errors else episode


async def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await function(*arguments)
    result = await in_thread(function, *arguments)
    return await result if inspect.isawaitable(result) else result


def has_failed(episode: Episode) -> bool:
    """Whether there is nothing to train on, or an ending that says nothing about the policy."""
    return not episode.segments or episode.stop in UNSOUND


def _checked(episode: object, task: Task, context: RecordedContext) -> Episode:
    """The episode with its rewards as plain floats. Raises CallFailed where it is not what a rollout has to return."""
    if not isinstance(episode, Episode):
        raise CallFailed(f"The rollout of episode {context.id} returned {type(episode).__name__}, not an Episode.")
    if (episode.id, episode.task) != (context.id, task.key):
        raise CallFailed(
            f"The rollout of episode {context.id!r} of task {task.key!r} returned one called {episode.id!r} "
            f"of task {episode.task!r}."
        )
    if not episode.segments and not episode.errors:
        raise CallFailed(f"The rollout of episode {context.id} returned an episode without a model call.")
    try:
        return replace(episode, rewards=checked_terms(episode.rewards))
    except ValueError as error:
        raise BadReward(f"The rollout of episode {context.id} gave {error}.") from None


def failed_episode(task: Task, context: RecordedContext, stop: StopReason, why: str) -> Episode:
    """An episode without segments that says why."""
    return Episode(
        id=context.id,
        task=task.key,
        role="",
        question=task.input,
        segments=(),
        answer="",
        expected=task.answers,
        rewards=(),
        stop=stop,
        memory_snapshot="",
        policy_version=0,
        errors=(*context.errors, why),
    )


# -- call logs on disk --------------------------------------------------------------------------------------------------


def log_to_json(log: CallLog, version: int) -> dict[str, Any]:
    """version: of the weights that the drafts' latest tokens were drawn under."""
    return {
        "tries": log.tries,
        "diverged": log.diverged,
        "entries": [
            _draft_to_json(each, version)
            if isinstance(each, PartialSample)
            else {"name": each.name, "value": each.value}
            for each in log.entries
        ],
    }


def log_from_json(record: Mapping[str, Any]) -> CallLog:
    entries: Sequence[Mapping[str, Any]] = record["entries"]
    return CallLog(
        [_draft_from_json(each) if "prompt" in each else Remembered(each["name"], each["value"]) for each in entries],
        int(record["tries"]),
        int(record["diverged"]),
    )


def _draft_to_json(draft: PartialSample, version: int) -> dict[str, Any]:
    drawn, params = draft.sample(version), draft.params
    return {
        "prompt": list(draft.prompt),
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "seed": params.seed,
        "stop_ids": sorted(params.stop_ids),
        "stream": list(draft.stream),
        "group": draft.group,
        "ids": list(drawn.ids),
        "logprobs": list(drawn.logprobs),
        "spans": [[span.version, span.start, span.end] for span in drawn.spans],
        "finish": draft.finish.value if draft.finish else None,
    }


def _draft_from_json(record: Mapping[str, Any]) -> PartialSample:
    return PartialSample(
        tuple(record["prompt"]),
        SamplingParams(
            record["max_tokens"],
            temperature=record["temperature"],
            seed=record["seed"],
            stop_ids=frozenset(record["stop_ids"]),
        ),
        tuple(record["stream"]),
        list(record["ids"]),
        list(record["logprobs"]),
        [VersionSpan(*each) for each in record["spans"]],
        FinishReason(record["finish"]) if record["finish"] else None,
        int(record.get("group", record["stream"][0])),
    )


# Groups on their way: while they are sampled, while they wait to be trained, and what of both stands on disk.
#
#     runs/<name>/finished/<role>/after-000012.jsonl    groups finished since the checkpoint of step 12, one per line
#     runs/<name>/checkpoints/step-000012/pipeline.json
#
# A run that is killed goes on from its last checkpoint and finds there, and in the files since, every group that was ever
# finished and that the weights of that checkpoint were not trained on.


@dataclass(frozen=True, slots=True)
class Rerolls:
    """What a group does once its own members are done: `trunk` is the group as it is kept, `calls` are the segments of its
    first episode that are rolled again, `size` times each, by further members; `members` are the trunk's own."""

    trunk: Group
    calls: tuple[int, ...]
    members: int
    size: int

    @property
    def anchor(self) -> Episode:
        return self.trunk.episodes[0]

    def call_of(self, member: int) -> int:
        return self.calls[(member - self.members) // self.size]

    def outcome(self, done: Mapping[int, Episode], enough: int) -> tuple[tuple[Group, ...], list[Episode]]:
        """A group for each call of which enough re-rolls are whole, and the episodes that are left out.

        Raises ValueError where a re-roll starts from another memory than the call it repeats, or names another parent."""
        groups, left_out = [], []
        for number, call in enumerate(self.calls, 1):
            first = self.members + (number - 1) * self.size
            episodes = [done[member] for member in range(first, first + self.size)]
            good = tuple(each for each in episodes if not has_failed(each))
            require_rerolls(self.anchor, call, good, number)
            kept = good if len(good) >= min(enough, self.size) else ()
            left_out += [each for each in episodes if all(each is not one for one in kept)]
            if kept:
                groups.append(Group(self.trunk.task, kept[0].memory_snapshot, kept))
        return tuple(groups), left_out


@dataclass(slots=True)
class OpenGroup:
    """The members' call logs, and the episodes of those that are done. born: the version of the weights at its start."""

    index: int
    born: int
    task: Task
    logs: list[CallLog]
    done: dict[int, Episode] = field(default_factory=dict)
    rerolls: Rerolls | None = None
    companions: InGroup = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self.companions = InGroup(lambda: len(self.missing()))

    @property
    def size(self) -> int:
        return len(self.logs)

    def end(self, member: int, episode: Episode) -> None:
        self.done[member] = episode
        self.companions.look()

    def missing(self) -> list[int]:
        """Members that are not done."""
        first = 0 if self.rerolls is None else self.rerolls.members
        return [member for member in range(first, self.size) if member not in self.done]

    def branched(self, trunk: Group, calls: Sequence[int], size: int) -> OpenGroup:
        """The group as it goes on: with its own members behind it, and the re-rolls before it."""
        rerolls = Rerolls(trunk, tuple(calls), self.size, size)
        logs = [*self.logs, *(CallLog() for _ in range(len(calls) * size))]
        return replace(self, logs=logs, done={}, rerolls=rerolls)

    def outcome(self) -> tuple[tuple[Episode, ...], list[Episode]]:
        """Of a group whose members are all done: episodes to train on, which start from the memory that most of them start
        from, because a baseline compares like with like; and those that are left out."""
        episodes = [self.done[member] for member in range(self.size)]
        good = [each for each in episodes if not has_failed(each)]
        counts = Counter(each.memory_snapshot for each in good)
        whole = tuple(each for each in good if each.memory_snapshot == counts.most_common(1)[0][0])
        return whole, [each for each in episodes if all(each is not kept for kept in whole)]


def reason_of(episodes: Sequence[Episode]) -> str:
    """Why a group came to nothing, in the words of one of its members."""
    return next((each.errors[-1] for each in episodes if each.errors), "its episodes start from different memories")


def open_to_json(group: OpenGroup, version: int) -> dict[str, Any]:
    """version: of the weights that the latest tokens were drawn under."""
    record = {
        "group": group.index,
        "born": group.born,
        "task": group.task.key,
        "call_logs": [log_to_json(log, version) for log in group.logs],
        "episodes": {str(member): episode_to_json(each) for member, each in sorted(group.done.items())},
    }
    if (rerolls := group.rerolls) is not None:
        record["rerolls"] = {
            "trunk": [episode_to_json(each) for each in rerolls.trunk.episodes],
            "calls": list(rerolls.calls),
            "members": rerolls.members,
            "size": rerolls.size,
        }
    return record


def open_from_json(record: Mapping[str, Any], task: Task) -> OpenGroup:
    """task: of this group, as it is now. Raises KeepworthError where it is another than it was."""
    if task.key != record["task"]:
        raise KeepworthError(
            f"Group {record['group']} was of task {record['task']!r} when the checkpoint was written and is of "
            f"{task.key!r} now.",
            "Continue with the tasks that the run began with, or start over with --fresh.",
        )
    done = {int(member): episode_from_json(each) for member, each in record["episodes"].items()}
    logs = [log_from_json(each) for each in record["call_logs"]]
    rerolls = None
    if (of := record.get("rerolls")) is not None:
        episodes = tuple(episode_from_json(each) for each in of["trunk"])
        trunk = Group(task.key, episodes[0].memory_snapshot, episodes)
        rerolls = Rerolls(trunk, tuple(of["calls"]), int(of["members"]), int(of["size"]))
    return OpenGroup(int(record["group"]), int(record["born"]), task, logs, done, rerolls)


def require_rerolls(anchor: Episode, index: int, episodes: Sequence[Episode], number: int = 0) -> None:
    """Raises ValueError where one of them starts from another memory than the call it repeats, or names another parent.

    number: of their group, for the message."""
    before = anchor.segments[index].memory_before
    states = {before, *(episode.memory_snapshot for episode in episodes)}
    if len(states) > 1:
        raise ValueError(f"group {number} compares episodes that start from {len(states)} memory states")
    strays = [episode.id for episode in episodes if episode.parent != anchor.id]
    if strays:
        raise ValueError(f"re-rolls of {anchor.id!r} name another parent: {strays[:3]}")


PIPELINE_STATE = "pipeline.json"
FINISHED_FOLDER = "finished"
_JOURNAL = re.compile(r"after-(\d{6,})\.jsonl")
_FIELDS: Fields = {
    "group": ("a whole number", (int,)),
    "born": ("a whole number", (int,)),
    "episodes": ("a list", (list,)),
}


@dataclass(frozen=True, slots=True)
class FinishedGroup:
    """A group that waits to be trained. index: see `keepworth.learning.collect.groups`. born: the version of the weights
    when it was: no token of it is older. rerolls: of its first episode's calls; awaited: they are still being sampled."""

    index: int
    born: int
    group: Group
    rerolls: tuple[Group, ...] = ()
    awaited: bool = False

    def oldest(self) -> int:
        """Version of the oldest token."""
        episodes = [episode for group in (self.group, *self.rerolls) for episode in group.episodes]
        return min((span.version for e in episodes for s in e.segments for span in s.spans), default=self.born)


def finished_to_json(finished: FinishedGroup) -> dict[str, Any]:
    record = {"group": finished.index, "born": finished.born, "episodes": _episodes_to_json(finished.group)}
    if finished.rerolls or finished.awaited:
        record |= {"rerolls": [_episodes_to_json(each) for each in finished.rerolls], "awaited": finished.awaited}
    return record


def finished_from_json(record: Mapping[str, Any]) -> FinishedGroup:
    group = _group_from_json(record["episodes"])
    rerolls = tuple(_group_from_json(each) for each in record.get("rerolls", ()))
    return FinishedGroup(int(record["group"]), int(record["born"]), group, rerolls, bool(record.get("awaited")))


def _episodes_to_json(group: Group) -> list[dict[str, Any]]:
    return [episode_to_json(each) for each in group.episodes]


def _group_from_json(records: Sequence[Mapping[str, Any]]) -> Group:
    episodes = tuple(episode_from_json(each) for each in records)
    return Group(episodes[0].task, episodes[0].memory_snapshot, episodes)


class Journal:
    """Appends finished groups; a new file begins with every checkpoint. A torn last line, of a process that was killed, is
    cut off at the start: the next group would be written behind it, into the same line. Raises DiskTrouble."""

    def __init__(self, run: Path, role: str, step: int) -> None:
        self.folder = run / FINISHED_FOLDER / role
        self._step = step
        with disk(run):
            self.folder.mkdir(parents=True, exist_ok=True)
            for _, path in self._files():
                _cut_torn_line(path)

    def append(self, finished: FinishedGroup) -> None:
        with disk(self.folder), open(self.folder / f"after-{self._step:06d}.jsonl", "ab") as lines:
            lines.write(line(finished_to_json(finished)))

    def rotate(self, step: int, checkpoints: Iterable[int]) -> None:
        """Begin the file of `step`, whose checkpoint is still to be written; drop those that none of `checkpoints` needs.
        Where there is none yet, nothing is dropped: a run that is killed now begins again, from these files alone."""
        self._step = step
        oldest = min(checkpoints, default=0)
        for at, path in self._files():
            if at < oldest:
                path.unlink()

    def since(self, step: int) -> Iterator[FinishedGroup]:
        """Every group written since the checkpoint of `step`, oldest file first; a torn last line is dropped."""
        for at, path in sorted(self._files()):
            if at >= step:
                for row in read_rows(path, _FIELDS):
                    yield finished_from_json(row)

    def _files(self) -> list[tuple[int, Path]]:
        return [
            (int(match.group(1)), path)
            for path in self.folder.glob("after-*")
            if (match := _JOURNAL.fullmatch(path.name))
        ]


def _cut_torn_line(path: Path) -> None:
    """Leave the lines that end with a newline."""
    with open(path, "rb+") as lines:
        text = lines.read()
        if not text.endswith(b"\n"):
            lines.truncate(text.rfind(b"\n") + 1)


class WaitingGroups:
    """The finished groups that wait to be trained, by index. journal: where each stands the moment it is finished; None where
    what was finished after a checkpoint is sampled again, the same to the last bit."""

    def __init__(self, order: GroupOrder) -> None:
        self.groups: dict[int, FinishedGroup] = {}
        self.journal: Journal | None = None
        self._order = order

    def __len__(self) -> int:
        return len(self.groups)

    def keep(self, finished: FinishedGroup) -> None:
        """A group that has ended; one whose re-rolls are awaited is on disk, and not ready."""
        if self.journal is not None:
            self.journal.append(finished)
        if not finished.awaited:
            self.groups[finished.index] = finished

    def restore(self, finished: FinishedGroup, version: int) -> None:
        """A group that stands on disk: perhaps twice, or beside one that it replaces. Of weights that are lost, it
        counts as born under `version`, that of those the run continues from."""
        index = finished.index
        beside = [each for each in self.groups.values() if position_of(each.index) == position_of(index)]
        later = [each for each in beside if (candidate_of(each.index), not each.awaited) >= (candidate_of(index), True)]
        if later or index in self._order.done:
            return
        for each in beside:
            del self.groups[each.index]
            self._order.done |= {each.index} - {index}
        self._order.fill(index)
        self.groups[index] = replace(finished, born=min(finished.born, version))

    def fills(self, index: int) -> bool:
        """Whether one of them has the position of this group."""
        return any(position_of(each) == position_of(index) for each in self.groups)

    def take(self, indices: Iterable[int]) -> list[FinishedGroup]:
        return [self.groups.pop(index) for index in indices]

    def take_awaited(self) -> list[FinishedGroup]:
        """Those that were found and whose re-rolls have to begin again."""
        return self.take([each.index for each in self.groups.values() if each.awaited])


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    write_json(folder / PIPELINE_STATE, state)


def read_state(folder: Path) -> dict[str, Any] | None:
    """None where the checkpoint holds none: synchronous training did not always write one. Raises KeepworthError."""
    path = folder / PIPELINE_STATE
    if not path.exists():
        return None
    state = read_json(path, "Delete the checkpoint's folder: the run continues from the one before it.")
    if state.get("format") != 1:
        raise KeepworthError(
            f"{path} has format {json.dumps(state.get('format'))}, not 1.", "Continue with the version that wrote it."
        )
    return state
