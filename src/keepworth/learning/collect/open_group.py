"""OpenGroup: a group that is being sampled, from its first request to its last reward, also across the end of a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from keepworth.episodes.codec import episode_from_json, episode_to_json
from keepworth.episodes.episode import Episode, Group
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.task import Task
from keepworth.learning.collect.branches import require_rerolls
from keepworth.learning.collect.context import CallLog, InGroup, has_failed, log_from_json, log_to_json


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


def said(episodes: Sequence[Episode]) -> str:
    """Why a group came to nothing, in the words of one of its members."""
    return next((each.errors[-1] for each in episodes if each.errors), "its episodes start from different memories")


def open_to_json(group: OpenGroup, version: int) -> dict[str, Any]:
    """version: of the weights that the latest tokens were drawn under."""
    record = {
        "ticket": group.index,
        "born": group.born,
        "task": group.task.key,
        "tapes": [log_to_json(log, version) for log in group.logs],
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
            f"Group {record['ticket']} was of task {record['task']!r} when the checkpoint was written and is of "
            f"{task.key!r} now.",
            "Continue with the tasks that the run began with, or start over with --fresh.",
        )
    done = {int(member): episode_from_json(each) for member, each in record["episodes"].items()}
    logs = [log_from_json(each) for each in record["tapes"]]
    rerolls = None
    if (of := record.get("rerolls")) is not None:
        episodes = tuple(episode_from_json(each) for each in of["trunk"])
        trunk = Group(task.key, episodes[0].memory_snapshot, episodes)
        rerolls = Rerolls(trunk, tuple(of["calls"]), int(of["members"]), int(of["size"]))
    return OpenGroup(int(record["ticket"]), int(record["born"]), task, logs, done, rerolls)
