"""Rewards of the user: functions of four forms, told apart by their parameters, a verifier's name, or several with weights.

def score(answer, row): return float(answer.strip() == row["solution"])                   # ours
def score(answer, row, episode): return 1.0 / len(episode.segments)                       # ours, by the calls of the model
def score(episodes, row): return [...]                                                    # ours, of a whole group at once
def score(completions, solution, **_): return [float(...) for ...]                        # TRL's
def score(completion, answer, state): return float(...)                                   # verifiers'

The name "signals" stands for what the tools of a program told (`keepworth.training.tool_outcomes`).
Each may be asynchronous, and None instead of a number says nothing of an answer."""

from __future__ import annotations

import hashlib
import inspect
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from keepworth.base.errors import KeepworthError
from keepworth.records.episode import LARGEST_REWARD, Episode, RewardTerm, Task
from keepworth.training.collect.later_rewards import LaterReward, Services
from keepworth.training.tool_outcomes import SIGNALS, score_signals
from keepworth.worlds.environment import in_lasting_loop, in_thread
from keepworth.worlds.own import DataRow, MissingField, messages_of
from keepworth.worlds.verifiers import VERIFIERS, verifier, verify

RewardFunction = Callable[..., Any]
RewardForm = Literal["answer", "episode", "group", "trl", "verifiers"]

FORMS: tuple[tuple[RewardForm, frozenset[str]], ...] = (
    ("group", frozenset({"episodes"})),
    ("trl", frozenset({"completions", "completion_ids", "prompts"})),
    ("verifiers", frozenset({"completion", "state"})),
    ("episode", frozenset({"episode"})),
)
"""Parameters by which the form of a function is recognised: `reward_funcs` of TRL's trainers, `funcs` of verifiers' rubrics. A
function without any of them takes an answer and its row."""
TRIED_FOR = 2.0
"""Seconds for which rewards are tried on rows before training."""


class UnusableReward(KeepworthError, ValueError):
    """A reward cannot be called, or does not return a number. `ValueError`, so that an environment's error shows it."""


@dataclass(frozen=True, slots=True)
class Reward:
    """One reward function. `name` is that of its term; `form` says which arguments it takes."""

    name: str
    function: RewardFunction
    weight: float = 1.0
    form: RewardForm = "answer"

    def value(self, returned: Any, place: str) -> float | None:
        """Converts the function's result to a number; None where it gives no reward. Raises UnusableReward."""
        if self.form in ("trl", "group"):
            try:
                given = [] if isinstance(returned, str | Mapping) else list(returned)  # of an array or a tensor, too
                (one,) = given
            except (TypeError, ValueError):
                taken = "completion" if self.form == "trl" else "episode"
                raise UnusableReward(
                    f"The reward {self.name!r} returned {returned!r:.60} for one {taken} ({place}).",
                    f"A function that takes `{taken}s` returns a list with one number for each.",
                ) from None
            returned = one
        if returned is None:
            return None
        if hasattr(returned, "item") and not isinstance(returned, str):
            with suppress(Exception):  # of several numbers
                returned = returned.item()  # a number of numpy or torch
        if not isinstance(returned, bool | int | float):
            raise UnusableReward(
                f"The reward {self.name!r} returned {returned!r:.60}, which is no number but of type {type(returned).__name__} "
                f"({place}).",
                "Return a number, or True or False; None means no judgement.",
            )
        if not abs(returned) <= LARGEST_REWARD:
            raise UnusableReward(
                f"The reward {self.name!r} returned {returned:g} ({place}).",
                f"Return a finite number, not beyond {LARGEST_REWARD:g}; None means no judgement.",
            )
        return float(returned)


@dataclass(frozen=True, slots=True)
class Scoring:
    """The rewards as the score of a `keepworth.worlds.question.Question`. With `logged`, the score of the task's verifier
    is recorded as well, with weight 0. With `alone`, those that judge groups judge the episode by itself, as it is measured; else
    they wait until all members of its group have ended (`later`)."""

    rewards: tuple[Reward, ...]
    logged: bool = False
    alone: bool = False

    @property
    def of_groups(self) -> tuple[Reward, ...]:
        """The rewards that judge a whole group."""
        return tuple(reward for reward in self.rewards if reward.form == "group")

    def later(self) -> tuple[LaterReward, ...]:
        """Returns the rewards that judge a whole group, as terms that are computed once all members have ended."""
        single = len(self.of_groups) == len(self.rewards) == 1
        return tuple(
            LaterReward(reward.name, partial(_judge, reward), reward.weight, required=single)
            for reward in self.of_groups
        )

    async def terms(self, task: Task, answer: Any, episode: Episode | None = None) -> list[RewardTerm]:
        """Returns the term of each reward that gives one.

        Args:
            task: The task that was answered, with its row.
            answer: The answer: a text, or what a program that is the agent returned.
            episode: The episode, for rewards that take it.
        """
        terms = []
        for reward in self.rewards:
            if reward.form == "group" and not self.alone:
                continue
            returned = await in_thread(call_reward, reward, task, answer, episode)  # it may compute for long, or hang
            value = reward.value(
                await in_lasting_loop(returned) if inspect.isawaitable(returned) else returned, place_of(task)
            )
            if value is not None:
                terms.append(RewardTerm(reward.name, value, weight=reward.weight))
        return terms

    async def __call__(self, task: Task, answer: Any, episode: Episode | None = None) -> tuple[RewardTerm, ...]:
        terms = await self.terms(task, answer, episode)
        if not terms and (self.alone or not self.of_groups):
            raise UnusableReward(
                f"No reward says anything of an answer to {place_of(task)}: it is left out.",
                "One of them must return a number.",
            )
        if self.logged and task.answers and task.verifier and task.verifier not in {term.name for term in terms}:
            terms.append(RewardTerm(task.verifier, verify(task, _text_of(answer, episode)), weight=0.0))
        return tuple(terms)

    @property
    def digest(self) -> str:
        """The hash of the rewards' source text, because a run must be continued with the rewards that it began with."""
        sources = []
        for reward in self.rewards:
            try:
                sources.append(inspect.getsource(reward.function))
            except (OSError, TypeError):
                sources.append(getattr(reward.function, "__qualname__", repr(type(reward.function))))
        return hashlib.sha256("\x1f".join(sources).encode()).hexdigest()[:16]


def _text_of(answer: Any, episode: Episode | None) -> str:
    return answer if episode is None else episode.answer


def call_reward(reward: Reward, task: Task, answer: Any, episode: Episode | None = None) -> Any | Awaitable[Any]:
    """Calls a reward on an answer. The result may have to be awaited. Raises MissingField where a verifier has no answer to
    compare with.

    Args:
        reward: The reward and the form in which it is called.
        task: The task; the function gets a copy of its row.
        answer: What is judged: a text, or what a program that is the agent returned.
        episode: The episode, for rewards that take it; verifiers and rewards of TRL's form judge the text of its answer.
    """
    text = _text_of(answer, episode)
    if reward.name in VERIFIERS and reward.function is VERIFIERS[reward.name]:
        if not task.answers:
            raise MissingField(
                f"{place_of(task)} has no field 'answer', against which {reward.name} judges.",
                "Add it, or give a reward of your own.",
            )
        return reward.function(text, task.answers)
    row = row_of(task)
    if reward.form == "group":
        return _call_judge(reward, row, () if episode is None else (episode,))
    if reward.form == "episode":
        return reward.function(answer, row, episode=episode)
    if reward.form == "answer":
        return reward.function(answer, row)
    return _call_by_name(reward, task, row, text)


def _call_by_name(reward: Reward, task: Task, row: DataRow, text: str) -> Any:
    """Calls a function of TRL's or of verifiers' form with those of their arguments that it takes."""
    messages = deepcopy(messages_of(task))
    spoken = [{"role": "assistant", "content": text}]
    if reward.form == "trl":
        columns = {key: [value] for key, value in row.items() if key not in dict(FORMS)["trl"]}
        asked, completion = [list(messages) if messages else task.input], spoken if messages else text
        given = {
            "prompts": asked,
            "completions": [completion],
            **columns,
            "log_metric": _unlogged,
            "log_extra": _unlogged,
        }
    else:
        fields = {
            "answer": task.answers[0] if task.answers else "",
            "info": row.get("info") or {},
            "task": row.get("task", ""),
        }
        given = {
            **row,
            "prompt": list(messages) or [{"role": "user", "content": task.input}],
            "completion": spoken,
            **fields,
        }
        given["state"] = {**given, "responses": [], "turn": 1}
    takes = inspect.signature(reward.function).parameters
    if not any(take.kind is inspect.Parameter.VAR_KEYWORD for take in takes.values()):
        given = {key: value for key, value in given.items() if key in takes}
    for name, parameter in takes.items():
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and name not in given and parameter.default is parameter.empty:
            row[name]  # raises an error that names the field and the row
    return reward.function(**given)


def _call_judge(reward: Reward, row: DataRow, episodes: Sequence[Episode]) -> Any:
    takes = inspect.signature(reward.function).parameters
    return reward.function(
        **({"episodes": list(episodes), "row": row} if "row" in takes else {"episodes": list(episodes)})
    )


async def _judge(reward: Reward, task: Task, episodes: Sequence[Episode], services: Services) -> list[float | None]:
    """Calls a reward that compares the episodes of a group. Raises UnusableReward where it does not return a number for each."""
    returned = await in_thread(_call_judge, reward, row_of(task), episodes)
    values = await in_lasting_loop(returned) if inspect.isawaitable(returned) else returned
    try:
        listed = [] if isinstance(values, str | Mapping) else list(values)
    except TypeError:
        listed = []
    if len(listed) != len(episodes):
        raise UnusableReward(
            f"The reward {reward.name!r} returned {values!r:.60} for {len(episodes)} episodes ({place_of(task)}).",
            "A function that takes `episodes` returns a list with one number for each, or None where it says nothing.",
        )
    return [reward.value([value], place_of(task)) for value in listed]


def _unlogged(*values: Any, **named: Any) -> None:
    """Replaces TRL's `log_metric` and `log_extra`, and ignores the values. A reward of weight 0 is logged."""


def scoring(given: str | RewardFunction | Sequence[str | RewardFunction], weights: Sequence[float] = ()) -> Scoring:
    """Makes the rewards' scoring. Raises UnusableReward for what is not a reward, and where weights and rewards differ in
    number."""
    several = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not several:
        raise UnusableReward("There is no reward.", "Give a function of (answer, row), or a verifier's name.")
    if weights and len(weights) != len(several):
        raise UnusableReward(
            f"There are {len(several)} rewards and {len(weights)} weights.", "Give one weight for each."
        )
    rewards = tuple(map(_reward, several, weights or [1.0] * len(several)))
    names = [reward.name for reward in rewards]
    if len(set(names)) < len(names):
        raise UnusableReward(
            f"Two rewards are called {max(names, key=names.count)!r}.", "Give each function a name of its own."
        )
    return Scoring(rewards)


def _reward(given: str | RewardFunction, weight: float) -> Reward:
    if given == SIGNALS:
        return Reward(SIGNALS, score_signals, weight, "episode")
    if isinstance(given, str):
        return Reward(given, verifier(given), weight)
    if not callable(given):
        raise UnusableReward(f"{given!r:.60} is no reward.", "Give a function of (answer, row), or a verifier's name.")
    name = str(getattr(given, "__name__", type(given).__name__))
    signature = inspect.signature(given)
    taken = set(signature.parameters)
    form: RewardForm = next((form for form, names in FORMS if names & taken), "answer")
    arguments: dict[RewardForm, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "answer": (("", {}), {}),
        "episode": (("", {}), {"episode": None}),
        "group": ((), {name: None for name in ("episodes", "row") if name in taken}),
    }
    try:
        if form in arguments:
            positional, named = arguments[form]
            signature.bind(*positional, **named)
    except TypeError:
        raise UnusableReward(
            f"The reward {name!r} takes ({', '.join(signature.parameters)}).",
            "It is called with (answer, row), and with the episode where it takes `episode`; with (episodes, row) where it takes "
            "`episodes`; or, where it takes `completions` or `completion`, as TRL and verifiers call their functions.",
        ) from None
    return Reward(name, given, weight, form)


def row_of(task: Task) -> DataRow:
    """Returns a copy of a task's row, which user code may change. One of a task that has none holds its question, answers and
    labels."""
    if task.row:
        copied: DataRow = deepcopy(task.row)  # type: ignore[assignment]
        return copied
    row = DataRow(id=task.key, question=task.input, answers=list(task.answers), **task.tags)
    if task.answers:
        row["answer"] = task.answers[0]
    row.place = task.key
    return row


def try_rewards(score: Scoring, tasks: Sequence[Task], seconds: float = 30.0) -> None:
    """Calls every reward on rows for a short time, before anything is loaded. Asynchronous ones are called on one row. A line on
    standard error says so where that lasts. Raises MissingField for a field that a row lacks, UnusableReward for a reward
    that raises, returns no number, or takes too long.

    Args:
        score: The rewards.
        tasks: The tasks, the first of which are tried, each with its own answer or with "".
        seconds: How long all rewards of one answer may take.
    """
    import asyncio

    from keepworth.worlds.driver import OutOfTime, within

    name = ", ".join(reward.name for reward in score.rewards)
    begun, spoke, tried = time.monotonic(), False, list[Task]()
    waits = any(
        inspect.iscoroutinefunction(reward.function) or inspect.iscoroutinefunction(type(reward.function).__call__)
        for reward in score.rewards
    )
    for task in tasks:
        if tried and (waits or time.monotonic() - begun > TRIED_FOR):
            break
        tried.append(task)
        answer = task.answers[0] if task.answers else ""
        patience = threading.Timer(TRIED_FOR, _say_slow, (name, place_of(task), seconds))
        patience.daemon = True
        patience.start()
        try:
            spoke = bool(asyncio.run(within(score.terms(task, answer), seconds))) or spoke
        except KeepworthError:
            raise
        except OutOfTime as error:
            raise UnusableReward(
                f"The reward {name!r} did not answer in {seconds:g} s ({place_of(task)}).",
                "Make it quicker, or give it more time: environment_seconds.",
            ) from error
        except Exception as error:
            raise UnusableReward(
                f"The reward {name!r} fails on {place_of(task)} and the answer {answer!r:.40}: {type(error).__name__}: {error}.",
                "An answer may be any text, the empty one too: let the reward return a number for it. Rewards run in threads.",
            ) from error
        finally:
            patience.cancel()
    if tried and not spoke and not waits:
        raise UnusableReward(
            f"No reward says anything of the answers to {len(tried)} rows, from {place_of(tried[0])} on.",
            "Return a number. A function that ends without `return` returns None, which means no judgement.",
        )


def _say_slow(name: str, place: str, seconds: float) -> None:
    sys.stderr.write(f"Waiting for the reward {name!r}, which is tried on {place} first; it may take {seconds:g} s.\n")
    sys.stderr.flush()


def place_of(task: Task) -> str:
    """Returns the place of a task in its file, for messages."""
    return str(getattr(task.row, "place", "")) or task.key
