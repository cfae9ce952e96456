"""OpenGroup: a group that is being sampled, from its first request to its last reward, also across the end of a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.episodes.codec import episode_from_json, episode_to_json
from recollect.episodes.episode import Episode
from recollect.episodes.errors import RecollectError
from recollect.episodes.task import Task
from recollect.learning.attempt import Tape, has_failed, tape_from_json, tape_to_json


@dataclass(slots=True)
class OpenGroup:
    """The members' tapes, and the episodes of those that are done. born: the version of the weights at its start."""

    ticket: int
    born: int
    task: Task
    tapes: list[Tape]
    done: dict[int, Episode] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.tapes)

    def missing(self) -> list[int]:
        """Members that are not done."""
        return [member for member in range(self.size) if member not in self.done]

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
    return {
        "ticket": group.ticket,
        "born": group.born,
        "task": group.task.key,
        "tapes": [tape_to_json(tape, version) for tape in group.tapes],
        "episodes": {str(member): episode_to_json(each) for member, each in sorted(group.done.items())},
    }


def open_from_json(record: Mapping[str, Any], task: Task) -> OpenGroup:
    """task: of this ticket, as it is now. Raises RecollectError where it is another than it was."""
    if task.key != record["task"]:
        raise RecollectError(
            f"Group {record['ticket']} was of task {record['task']!r} when the checkpoint was written and is of "
            f"{task.key!r} now.",
            "Continue with the tasks that the run began with, or start over with --fresh.",
        )
    done = {int(member): episode_from_json(each) for member, each in record["episodes"].items()}
    tapes = [tape_from_json(each) for each in record["tapes"]]
    return OpenGroup(int(record["ticket"]), int(record["born"]), task, tapes, done)
