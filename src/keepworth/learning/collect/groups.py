"""Groups on their way: while they are sampled, while they wait to be trained, and what of both stands on disk.

    runs/<name>/finished/<role>/after-000012.jsonl    groups finished since the checkpoint of step 12, one per line
    runs/<name>/checkpoints/step-000012/pipeline.json

A run that is killed goes on from its last checkpoint and finds there, and in the files since, every group that was ever
finished and that the weights of that checkpoint were not trained on.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from keepworth.episodes.codec import episode_from_json, episode_to_json
from keepworth.episodes.episode import Episode, Group
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.task import Task
from keepworth.learning.collect.context import CallLog, InGroup, has_failed, log_from_json, log_to_json
from keepworth.learning.collect.group_index import GroupOrder, candidate_of, position_of
from keepworth.learning.objective.branching import require_same_state
from keepworth.learning.run.disk import Fields, disk, line, read_json, read_rows, write_json


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


BEFORE = {"ticket": "group", "tapes": "call_logs"}
"""What the fields of a group were called in run folders of before."""


def renamed(record: Mapping[str, Any]) -> dict[str, Any]:
    """A group as it stands on disk, under the names of today."""
    return {BEFORE.get(name, name): value for name, value in record.items()}


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
    record = renamed(record)
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
    require_same_state({number: [before, *(episode.memory_snapshot for episode in episodes)]})
    strays = [episode.id for episode in episodes if episode.parent != anchor.id]
    if strays:
        raise ValueError(f"re-rolls of {anchor.id!r} name another parent: {strays[:3]}")


STATE = "pipeline.json"
FOLDER = "finished"
_JOURNAL = re.compile(r"after-(\d{6,})\.jsonl")
_FIELDS: Fields = {
    "group": ("a whole number", (int,)),
    "born": ("a whole number", (int,)),
    "episodes": ("a list", (list,)),
}


@dataclass(frozen=True, slots=True)
class Finished:
    """A group that waits to be trained. index: see `keepworth.learning.collect.group_index`. born: the version of the weights
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


def finished_to_json(finished: Finished) -> dict[str, Any]:
    record = {"group": finished.index, "born": finished.born, "episodes": _episodes_to_json(finished.group)}
    if finished.rerolls or finished.awaited:
        record |= {"rerolls": [_episodes_to_json(each) for each in finished.rerolls], "awaited": finished.awaited}
    return record


def finished_from_json(record: Mapping[str, Any]) -> Finished:
    record = renamed(record)
    group = _group_from_json(record["episodes"])
    rerolls = tuple(_group_from_json(each) for each in record.get("rerolls", ()))
    return Finished(int(record["group"]), int(record["born"]), group, rerolls, bool(record.get("awaited")))


def _episodes_to_json(group: Group) -> list[dict[str, Any]]:
    return [episode_to_json(each) for each in group.episodes]


def _group_from_json(records: Sequence[Mapping[str, Any]]) -> Group:
    episodes = tuple(episode_from_json(each) for each in records)
    return Group(episodes[0].task, episodes[0].memory_snapshot, episodes)


class Journal:
    """Appends finished groups; a new file begins with every checkpoint. A torn last line, of a process that was killed, is
    cut off at the start: the next group would be written behind it, into the same line. Raises DiskTrouble."""

    def __init__(self, run: Path, role: str, step: int) -> None:
        self.folder = run / FOLDER / role
        self._step = step
        with disk(run):
            self.folder.mkdir(parents=True, exist_ok=True)
            for _, path in self._files():
                _cut_torn_line(path)

    def append(self, finished: Finished) -> None:
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

    def since(self, step: int) -> Iterator[Finished]:
        """Every group written since the checkpoint of `step`, oldest file first; a torn last line is dropped."""
        for at, path in sorted(self._files()):
            if at >= step:
                for row in read_rows(path, _FIELDS, BEFORE):
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


class Waiting:
    """The finished groups that wait to be trained, by index. journal: where each stands the moment it is finished; None where
    what was finished after a checkpoint is sampled again, the same to the last bit."""

    def __init__(self, order: GroupOrder) -> None:
        self.groups: dict[int, Finished] = {}
        self.journal: Journal | None = None
        self._order = order

    def __len__(self) -> int:
        return len(self.groups)

    def keep(self, finished: Finished) -> None:
        """A group that has ended; one whose re-rolls are awaited is on disk, and not ready."""
        if self.journal is not None:
            self.journal.append(finished)
        if not finished.awaited:
            self.groups[finished.index] = finished

    def restore(self, finished: Finished, version: int) -> None:
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

    def take(self, indices: Iterable[int]) -> list[Finished]:
        return [self.groups.pop(index) for index in indices]

    def take_awaited(self) -> list[Finished]:
        """Those that were found and whose re-rolls have to begin again."""
        return self.take([each.index for each in self.groups.values() if each.awaited])


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    write_json(folder / STATE, state)


def read_state(folder: Path) -> dict[str, Any] | None:
    """None where the checkpoint holds none: synchronous training did not always write one. Raises KeepworthError."""
    path = folder / STATE
    if not path.exists():
        return None
    state = read_json(path, "Delete the checkpoint's folder: the run continues from the one before it.")
    if state.get("format") != 1:
        raise KeepworthError(
            f"{path} has format {json.dumps(state.get('format'))}, not 1.", "Continue with the version that wrote it."
        )
    return state
