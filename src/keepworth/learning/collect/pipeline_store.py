"""What collecting leaves on disk: its part of a checkpoint, and every finished group as soon as it is finished.

    runs/<name>/finished/<role>/after-000012.jsonl    groups finished since the checkpoint of step 12, one per line
    runs/<name>/checkpoints/step-000012/pipeline.json

A run that is killed goes on from its last checkpoint and finds there, and in the files since, every group that was ever
finished and that the weights of that checkpoint were not trained on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from keepworth.episodes.codec import episode_from_json, episode_to_json
from keepworth.episodes.episode import Group
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.collect.group_index import GroupOrder, candidate_of, position_of
from keepworth.learning.run.disk import disk
from keepworth.learning.run.json_rows import Fields, line, read_json, read_rows, write_json

STATE = "pipeline.json"
FOLDER = "finished"
_JOURNAL = re.compile(r"after-(\d{6,})\.jsonl")
_FIELDS: Fields = {
    "ticket": ("a whole number", (int,)),
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
    record = {"ticket": finished.index, "born": finished.born, "episodes": _episodes_to_json(finished.group)}
    if finished.rerolls or finished.awaited:
        record |= {"rerolls": [_episodes_to_json(each) for each in finished.rerolls], "awaited": finished.awaited}
    return record


def finished_from_json(record: Mapping[str, Any]) -> Finished:
    group = _group_from_json(record["episodes"])
    rerolls = tuple(_group_from_json(each) for each in record.get("rerolls", ()))
    return Finished(int(record["ticket"]), int(record["born"]), group, rerolls, bool(record.get("awaited")))


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

    def rotate(self, step: int, kept: Iterable[int]) -> None:
        """Begin the file of `step`, whose checkpoint is still to be written; drop those that no checkpoint of `kept` needs.
        Where there is none yet, nothing is dropped: a run that is killed now begins again, from these files alone."""
        self._step = step
        oldest = min(kept, default=0)
        for at, path in self._files():
            if at < oldest:
                path.unlink()

    def since(self, step: int) -> Iterator[Finished]:
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

    def found(self, finished: Finished, version: int) -> None:
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
