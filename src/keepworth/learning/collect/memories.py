"""Episodes of a training that are remembered to reward others; they are in every checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from keepworth.episodes.episode import Episode, Group
from keepworth.learning.collect.episode_credit import EpisodicReward, with_episodic_reward
from keepworth.learning.run_folder import Checkpoint, read_json, write_json
from keepworth.learning.trainer import Collected, Collector


class TrainingMemory(Protocol):
    """A memory of a training's own, such as `RememberedEpisodes`."""

    def open(self, checkpoint: Checkpoint | None) -> None: ...

    def keep(self, groups: Sequence[Group], step: int) -> dict[str, float]: ...

    def save(self, folder: Path) -> None: ...

    def close(self) -> None: ...


class Remembering:
    """Another collector whose trained groups leave something in a memory; checkpoints hold both."""

    def __init__(self, inner: Collector, memory: TrainingMemory) -> None:
        self._inner, self.memory = inner, memory
        self._groups: list[Group] = []
        self._step = 0
        self._open = False

    def begin(self, checkpoint: Checkpoint | None, first: int, done: int) -> None:
        if checkpoint is not None or not self._open:
            self.memory.open(checkpoint)
        self._open = True
        self._inner.begin(checkpoint, first, done)

    def collect(self, step: int) -> Collected:
        collected = self._inner.collect(step)
        # Re-rolls are for comparing: what they write was never the memory of the group.
        self._groups = [group for group in collected.groups if not group.episodes[0].parent]
        self._step = step
        return collected

    def publish(self) -> dict[str, float]:
        # Before the groups that the publication starts: they begin with what was learned.
        measured = self.memory.keep(self._groups, self._step)
        self._groups = []
        return {**measured, **self._inner.publish()}

    def save(self, folder: Path, step: int) -> None:
        self.memory.save(folder)
        self._inner.save(folder, step)

    def evaluate(self, step: int) -> None:
        if not self._open:  # measured before the first step
            self.memory.open(None)
            self._open = True
        self._inner.evaluate(step)

    def close(self) -> None:
        self._inner.close()
        self.memory.close()


# Episodes that are remembered to reward others, and are shown to nobody (Memory-R+, arXiv 2504.02273).
#
#     runs/<name>/checkpoints/step-000012/episodic.json      successes, failures and windows as they were then


class RememberedEpisodes:
    """An `EpisodicReward` in a training: its `after_group` gives every episode of a group its term, before the group is
    trained on and then remembered; every checkpoint holds what is remembered.

    made: a fresh one; encode: texts to vectors [n, D]; compared: what of an episode is; weight: of the term `episodic`."""

    def __init__(
        self,
        made: Callable[[], EpisodicReward],
        encode: Callable[[Sequence[str]], Any],
        compared: Callable[[Episode], str],
        weight: float = 1.0,
    ) -> None:
        self.aid, self._made = made(), made
        self._encode, self._compared, self._weight = encode, compared, weight

    def after_group(self, step: int, group: Group) -> Group:
        (scored,) = with_episodic_reward([group], self.aid, self._encode, weight=self._weight, compared=self._compared)
        return scored

    def open(self, checkpoint: Checkpoint | None) -> None:
        """As it was at the checkpoint; empty where there is none, or one without it."""
        self.aid = self._made()
        if checkpoint is not None and (checkpoint.path / EPISODIC_STATE).exists():
            fix = "Delete the checkpoint's folder: the one before it is taken."
            self.aid.restore(read_json(checkpoint.path / EPISODIC_STATE, fix))

    def keep(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        """How many responses are remembered; they were when their group was scored."""
        kinds = {"successes": self.aid.successes, "failures": self.aid.failures}
        return {
            f"episodic/{name}": float(sum(len(responses) for _, responses in memory.entries.values()))
            for name, memory in kinds.items()
        }

    def save(self, folder: Path) -> None:
        write_json(folder / EPISODIC_STATE, self.aid.state())

    def close(self) -> None:
        """It has no file of its own."""


EPISODIC_STATE = "episodic.json"
