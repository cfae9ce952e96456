"""Rewards that are computed after the episodes of a group have ended, by a judge, a rubric, an encoder or a frozen reader.

A `LaterReward` gets a whole group at once and asks services. Answers of services are cached by (version, text): a run asks the
same question once, and a run that is continued gets the same answers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from keepworth.base.errors import KeepworthError, called_as, require_known
from keepworth.base.line_file import append_lines, read_lines
from keepworth.records.episode import Episode, Group, RewardTerm, Task, check_terms
from keepworth.worlds.environment import call_function

Answerer = Callable[[Sequence[str]], Sequence[Any] | Awaitable[Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class Service:
    """A model or function that answers many texts at once, such as a judge or an encoder.

    Attributes:
        version: Names the model and its prompt. It is stored with each reward, and another version asks again.
        answer: Maps texts to one JSON value each. It may be asynchronous; else it runs in a thread.
    """

    version: str
    answer: Answerer


class Services:
    """Services by name, with a file that caches their answers. `asked` counts the texts that were not in the cache."""

    def __init__(self, services: Mapping[str, Service], file: Path | None = None) -> None:
        self._services, self._file = dict(services), file
        self._asking = asyncio.Lock()  # two groups may ask the same at once
        self.asked = 0
        self._known = {} if file is None else {record["key"]: record["answer"] for record in read_lines(file)}

    def version(self, name: str) -> str:
        """Returns the version of a service. Raises UnknownName."""
        require_known("service", name, self._services)
        return self._services[name].version

    async def ask(self, name: str, texts: Sequence[str]) -> list[Any]:
        """Returns one answer for each text. Raises UnknownName, and KeepworthError where the service returns another number of
        answers."""
        version = self.version(name)
        keys = [hashlib.sha256(f"{name}\x1f{version}\x1f{text}".encode()).hexdigest() for text in texts]
        async with self._asking:
            new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
            if new:
                with called_as(f"The service {name!r}"):
                    answers = list(await call_function(self._services[name].answer, list(new.values())))
                if len(answers) != len(new):
                    raise KeepworthError(
                        f"The service {name!r} gave {len(answers)} answers to {len(new)} texts.", "Let it answer each."
                    )
                self.asked += len(new)
                self._known |= zip(new, answers, strict=True)
                if self._file is not None:
                    append_lines(self._file, [{"key": key, "answer": self._known[key]} for key in new])
        return [self._known[key] for key in keys]


Score = Callable[[Task, Sequence[Episode], Services], Awaitable[Sequence[float | None]]]
"""Maps (task, episodes of its group, services) to a number for each episode, None for no reward."""


@dataclass(frozen=True, slots=True)
class LaterReward:
    """A reward term of every episode of a group, computed once all of them have ended.

    Attributes:
        combine: "sum" adds the term. "gate" adds it with weight 0 and sets the other terms' weights to 0 where it is below
            `threshold`. "condition" gives it weight 0 where the term `given` is below `threshold`.
        threshold: The threshold of a gate or a condition.
        given: The term that a condition reads.
        service: The service whose version is stored with the term.
        shaping: See `RewardTerm`.
        required: Whether an episode of which it says nothing is left out.
    """

    name: str
    score: Score
    weight: float = 1.0
    combine: Literal["sum", "gate", "condition"] = "sum"
    threshold: float = 0.5
    given: str = ""
    service: str = ""
    shaping: bool = False
    required: bool = False

    def __post_init__(self) -> None:
        require_known("combination", self.combine, ("sum", "gate", "condition"))
        if (self.combine == "condition") != bool(self.given):
            raise KeepworthError(
                f"The reward {self.name!r} with combine = {self.combine!r} and given = {self.given!r} says two things.",
                "Name the term that a condition reads, and none otherwise.",
            )


async def add_later_rewards(task: Task, group: Group, later: Sequence[LaterReward], services: Services) -> Group:
    """Returns the group with the later terms added to each episode, in order, without those of which a required one says nothing.
    Raises KeepworthError where a score returns another number of values than there are episodes, or no finite number.

    Args:
        task: The task of the group.
        group: The group, whose episodes have all ended.
        later: The terms that are added, the first first, because a condition reads those before it.
        services: What the scores may call; the version of a term's service is stored with it.
    """
    for reward in later:
        with called_as(f"The later reward {reward.name!r} of task {task.key!r}"):
            scored = await reward.score(task, group.episodes, services)
            values = [None if value is None else float(value) for value in scored]
        if len(values) != len(group.episodes):
            raise KeepworthError(
                f"The reward {reward.name!r} gave {len(values)} values to {len(group.episodes)} episodes.",
                "Let it give one for each, None where it has nothing to say.",
            )
        scorer = services.version(reward.service) if reward.service else ""
        episodes = [
            episode if value is None else replace(episode, rewards=_combined(reward, episode, value, scorer))
            for episode, value in zip(group.episodes, values, strict=True)
            if not (value is None and reward.required)
        ]
        group = replace(group, episodes=tuple(episodes))
    return group


def _combined(reward: LaterReward, episode: Episode, value: float, scorer: str) -> tuple[RewardTerm, ...]:
    terms, weight = episode.rewards, reward.weight
    if reward.combine == "gate":
        weight = 0.0
        if value < reward.threshold:
            terms = tuple(replace(term, weight=0.0) for term in terms)
    elif reward.combine == "condition":
        reached = sum(term.value for term in terms if term.name == reward.given)
        weight = reward.weight if reached >= reward.threshold else 0.0
    try:
        return check_terms((*terms, RewardTerm(reward.name, value, weight, scorer=scorer, shaping=reward.shaping)))
    except ValueError as error:
        raise KeepworthError(f"Episode {episode.id} got {error}.", "Let the score give finite numbers.") from None
