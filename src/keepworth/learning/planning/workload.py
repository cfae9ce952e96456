"""What a pipeline has to do: how much each call of the model reads and draws, and how long an episode waits in between.

It comes from the episodes of a run, from a file of one group a line, or from distributions that somebody states:

    {"members": [[{"prompt": 900, "drawn": 310, "wait": 1.5}, {"prompt": 1400, "drawn": 80}], ...]}
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepworth.episodes.episode import Episode
from keepworth.episodes.errors import KeepworthError


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of the model. prompt: tokens that it reads. drawn: tokens that it draws, at least one. wait: seconds between its
    end and the episode's next call, or its end: environments, tools, judges."""

    prompt: int
    drawn: int
    wait: float = 0.0


Member = tuple[ModelCall, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """The calls of each group's members. After the last group the first comes again, so that a short record lasts.

    Members of a group begin with the same prompt."""

    groups: tuple[tuple[Member, ...], ...]

    def of(self, index: int) -> tuple[Member, ...]:
        return self.groups[index % len(self.groups)]

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        return tuple(call for group in self.groups for member in group for call in member)


def learned_tokens(group: Sequence[Member]) -> int:
    """What the learner computes of a group: the prompt that its members begin with once, and everything else of each.

    The metric `tokens` of a run counts the same."""
    first = max((member[0].prompt for member in group), default=0)
    return first + sum(sum(call.prompt for call in member[1:]) + drawn_tokens([member]) for member in group)


def drawn_tokens(group: Sequence[Member]) -> int:
    return sum(call.drawn for member in group for call in member)


def recorded(groups: Iterable[Sequence[Episode]]) -> Workload:
    """What the episodes of a run did. The time that an episode says its environment took is spread evenly over its calls.

    Raises KeepworthError where no episode holds a call."""
    traced = []
    for episodes in groups:
        members = []
        for episode in episodes:
            segments = [each for each in episode.segments if each.ids]
            wait = float(episode.seconds.get("environment", 0.0)) / max(1, len(segments))
            members.append(tuple(ModelCall(len(each.context), len(each.ids), wait) for each in segments))
        if whole := tuple(member for member in members if member):
            traced.append(whole)
    if not traced:
        raise KeepworthError(
            "No episode of the run holds a call of the model: there is no work to plan.",
            "Name another run, or --trace.",
        )
    return Workload(tuple(traced))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """median; sigma: of the logarithm, 0 for always the median; longest: what is longer is cut there."""

    median: float
    sigma: float = 0.0
    longest: float = math.inf

    def __post_init__(self) -> None:
        if not (0 <= self.median < math.inf and 0 <= self.sigma < math.inf and self.longest >= self.median):
            raise KeepworthError(
                f"{self.median:g}:{self.sigma:g}:{self.longest:g} is no distribution: a median and a sigma from 0 on, and "
                "a longest that is not below the median.",
                "Write MEDIAN:SIGMA:LONGEST, such as 300:1:4096.",
            )

    def draw(self, generator: random.Random) -> float:
        return min(self.longest, self.median * math.exp(self.sigma * generator.gauss(0.0, 1.0)))


def stated(
    lengths: LogNormal, waits: LogNormal, *, prompt: int, group_size: int, groups: int, seed: int = 0
) -> Workload:
    """One call an episode, of a length and with a wait that are drawn from the distributions."""
    generator = random.Random(seed)

    def member() -> Member:
        return (ModelCall(prompt, max(1, round(lengths.draw(generator))), waits.draw(generator)),)

    return Workload(tuple(tuple(member() for _ in range(group_size)) for _ in range(groups)))


def read_trace(path: Path) -> Workload:
    """Groups from a file of JSON lines. Raises KeepworthError naming file and line of what is no group."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise KeepworthError(f"{path} cannot be read ({error}).", "Name a file with one group a line.") from error
    groups = []
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            members = json.loads(text)["members"]
            groups.append(tuple(tuple(_call(call) for call in member) for member in members))
            if not groups[-1] or not all(groups[-1]):
                raise ValueError("a group needs members, and a member calls")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise KeepworthError(
                f"{path} line {number} is not a group ({type(error).__name__}: {error}).",
                'Write {"members": [[{"prompt": 900, "drawn": 310, "wait": 1.5}]]}, one group a line.',
            ) from error
    if not groups:
        raise KeepworthError(f"{path} holds no group.", "Write one group a line.")
    return Workload(tuple(groups))


def _call(record: Mapping[str, Any]) -> ModelCall:
    if unknown := sorted(set(record) - {"prompt", "drawn", "wait"}):
        raise ValueError(f"a call has prompt, drawn and wait, and no {unknown[0]}")
    call = ModelCall(int(record["prompt"]), int(record["drawn"]), float(record.get("wait", 0.0)))
    if call.prompt < 0 or call.drawn < 1 or not 0 <= call.wait < math.inf:
        raise ValueError("prompt and wait are from 0 on, and drawn from 1 on")
    return call
