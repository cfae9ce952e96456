"""Attempt: one episode being run, as its rollout sees it. Everything that takes time or may fail goes through it.

An attempt keeps a tape: the drafts of its model calls and the results it was asked to remember. A rollout that was
interrupted, also by the end of the process, is continued by running it again from its start: calls that are on the
tape are answered from it, the first that is not finished goes on where it stopped. So a rollout has to be a function of
its task and of what the attempt gives it; one that is not leaves the tape where it differs, and samples anew from there.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from keepworth.environments.blocking import in_thread
from keepworth.episodes.episode import Episode, StopReason
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens, VersionSpan
from keepworth.episodes.reward import RewardTerm, checked_terms, finite_number
from keepworth.episodes.task import Task
from keepworth.learning.collect.stages import Stage
from keepworth.models.continuous import Draft
from keepworth.models.errors import ContextOverflow
from keepworth.rollouts.deadline import OutOfTime, within
from keepworth.rollouts.driver import UNSOUND

T = TypeVar("T")


class CallFailed(KeepworthError):
    """A call of an environment, a tool or a reward raised; `stop` says how the episode ends."""

    stop = StopReason.ENVIRONMENT_ERROR


class CallTimedOut(CallFailed):
    """A call did not answer in time. One that runs in a thread is left to itself: Python cannot end it."""

    stop = StopReason.TIMEOUT


class BadReward(CallFailed):
    """A reward function returned something that is no finite number."""


class Sampler(Protocol):
    """Goes on with a draft until it ends; the draft holds what was drawn, also while it is waited for."""

    async def sample(self, draft: Draft) -> Sample: ...


@dataclass(slots=True)
class Remembered:
    """A result on the tape: any value that JSON can hold."""

    name: str
    value: Any


@dataclass(slots=True)
class Tape:
    """What an attempt has done, in order. tries: how often it was begun anew; diverged: how often it left the tape."""

    entries: list[Draft | Remembered] = field(default_factory=list)
    tries: int = 0
    diverged: int = 0

    def oldest(self) -> int | None:
        """The version of the oldest token drawn under weights that have been replaced; None where there is none."""
        spans = [s.version for each in self.entries if isinstance(each, Draft) for s in each.spans]
        return min(spans, default=None)


class Attempt:
    """What a rollout is given. `id` is the episode's; `seed` differs between attempts and between tries.

    seconds: how long a call may take where it does not say itself. stage: which of the training's stages the group belongs to;
    its `horizon` is the rollout's to keep.
    """

    def __init__(
        self,
        sampler: Sampler,
        tape: Tape,
        ticket: int,
        member: int,
        seed: int,
        seconds: float,
        failed: float | None,
        stage: Stage | None = None,
    ) -> None:
        self.id = f"{ticket}/{member}"
        self.ticket = ticket
        self.member = member
        self.tape = tape
        self.stage = stage
        self.seed = int(np.random.SeedSequence((seed, ticket, member, tape.tries)).generate_state(1)[0])
        self.errors: list[str] = []
        self._sampler = sampler
        self._seconds = seconds
        self._failed = failed
        self._position = 0
        self._calls = 0

    async def sample(self, prompt: Tokens, params: SamplingParams) -> Sample:
        """One sample. Its draws depend on (params.seed, ticket, member, try, call): never on who is sampled beside it."""
        stream = (self.ticket, self.member, self.tape.tries, self._calls)
        self._calls += 1
        found = self._on_tape()
        if not (
            isinstance(found, Draft) and (found.prompt, found.params, found.stream) == (tuple(prompt), params, stream)
        ):
            found = Draft(tuple(prompt), params, stream)
            self._record(found)
        self._position += 1
        return await self._sampler.sample(found)

    async def call(
        self, function: Callable[..., T | Awaitable[T]], *arguments: Any, seconds: float | None = None, name: str = ""
    ) -> T:
        """An environment's, a tool's or a judge's answer. A plain function runs in a thread of its own; what is asynchronous,
        an object whose call is included, is awaited.

        Raises CallTimedOut after `seconds`, CallFailed where the function raises."""
        limit = self._seconds if seconds is None else seconds
        called = name or getattr(function, "__name__", type(function).__name__)
        try:
            return await within(_called(function, *arguments), limit, f"{called} of episode {self.id}")
        except OutOfTime as error:
            raise CallTimedOut(f"{called} of episode {self.id} did not answer in {limit:g} s.") from error
        except (CallFailed, ContextOverflow):
            raise
        except Exception as error:
            raise CallFailed(f"{called} of episode {self.id} raised {type(error).__name__}: {error}") from error

    async def remember(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """The same for a call whose result, a value that JSON can hold, is all there is to it: continued later, the
        attempt gets the same result without the call. Not for the steps of an environment that keeps a state."""
        found = self._on_tape()
        if isinstance(found, Remembered) and found.name == name:
            self._position += 1
            return found.value
        value = await self.call(function, *arguments, name=name)
        json.dumps(value)  # raises TypeError here, where it can be mended, and not when the run is saved
        self._record(Remembered(name, value))
        self._position += 1
        return value

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
        if self._failed is None:
            raise problem
        self.errors.append(str(problem))
        return RewardTerm(name, self._failed, weight)

    def horizon(self, otherwise: int) -> int:
        """How far the episode may go: what its stage says; where that says nothing, `otherwise`."""
        return (self.stage.horizon if self.stage else None) or otherwise

    def _on_tape(self) -> Draft | Remembered | None:
        return self.tape.entries[self._position] if self._position < len(self.tape.entries) else None

    def _record(self, entry: Draft | Remembered) -> None:
        if self._position < len(self.tape.entries):
            self.tape.diverged += 1
            del self.tape.entries[self._position :]
        self.tape.entries.append(entry)


Rollout = Callable[[Task, Attempt], Awaitable[Episode]]
"""Runs one episode of a task: awaits the attempt for every model call and whatever else takes time."""


async def run_attempt(rollout: Rollout, task: Task, attempt: Attempt, seconds: float) -> Episode:
    """The rollout's episode, or one without segments whose `stop` and `errors` say what went wrong: errors are values."""
    try:
        episode = await within(rollout(task, attempt), seconds, f"The rollout of episode {attempt.id}")
        episode = _checked(episode, task, attempt)
    except OutOfTime:
        return _failed(task, attempt, StopReason.TIMEOUT, f"episode {attempt.id} took longer than {seconds:g} s")
    except ContextOverflow as error:
        return _failed(task, attempt, StopReason.CONTEXT_OVERFLOW, str(error))
    except CallFailed as error:
        return _failed(task, attempt, error.stop, str(error))
    except (Exception, SystemExit) as error:
        return _failed(task, attempt, StopReason.ENVIRONMENT_ERROR, f"{type(error).__name__}: {error}")
    return replace(episode, errors=(*episode.errors, *attempt.errors)) if attempt.errors else episode


async def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await function(*arguments)
    result = await in_thread(function, *arguments)
    return await result if inspect.isawaitable(result) else result


def has_failed(episode: Episode) -> bool:
    """Whether there is nothing to train on, or an ending that says nothing about the policy."""
    return not episode.segments or episode.stop in UNSOUND


def _checked(episode: object, task: Task, attempt: Attempt) -> Episode:
    """The episode with its rewards as plain floats. Raises CallFailed where it is not what a rollout has to return."""
    if not isinstance(episode, Episode):
        raise CallFailed(f"The rollout of episode {attempt.id} returned {type(episode).__name__}, not an Episode.")
    if (episode.id, episode.task) != (attempt.id, task.key):
        raise CallFailed(
            f"The rollout of episode {attempt.id!r} of task {task.key!r} returned one called {episode.id!r} "
            f"of task {episode.task!r}."
        )
    if not episode.segments:
        raise CallFailed(f"The rollout of episode {attempt.id} returned an episode without a model call.")
    try:
        return replace(episode, rewards=checked_terms(episode.rewards))
    except ValueError as error:
        raise BadReward(f"The rollout of episode {attempt.id} gave {error}.") from None


def _failed(task: Task, attempt: Attempt, stop: StopReason, why: str) -> Episode:
    return Episode(
        id=attempt.id,
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
        errors=(*attempt.errors, why),
    )


# -- tapes on disk --------------------------------------------------------------------------------------------------


def tape_to_json(tape: Tape, version: int) -> dict[str, Any]:
    """version: of the weights that the drafts' latest tokens were drawn under."""
    return {
        "tries": tape.tries,
        "diverged": tape.diverged,
        "entries": [
            _draft_to_json(each, version) if isinstance(each, Draft) else {"name": each.name, "value": each.value}
            for each in tape.entries
        ],
    }


def tape_from_json(record: Mapping[str, Any]) -> Tape:
    entries: Sequence[Mapping[str, Any]] = record["entries"]
    return Tape(
        [_draft_from_json(each) if "prompt" in each else Remembered(each["name"], each["value"]) for each in entries],
        int(record["tries"]),
        int(record["diverged"]),
    )


def _draft_to_json(draft: Draft, version: int) -> dict[str, Any]:
    drawn, params = draft.sample(version), draft.params
    return {
        "prompt": list(draft.prompt),
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "seed": params.seed,
        "stop_ids": sorted(params.stop_ids),
        "stream": list(draft.stream),
        "ids": list(drawn.ids),
        "logprobs": list(drawn.logprobs),
        "spans": [[span.version, span.start, span.end] for span in drawn.spans],
        "finish": draft.finish.value if draft.finish else None,
    }


def _draft_from_json(record: Mapping[str, Any]) -> Draft:
    return Draft(
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
    )
