"""A `Memory` that learns beside the model that is trained; it is in every checkpoint."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from keepworth.episodes.episode import UNSOUND, Episode, Group
from keepworth.episodes.model import Encoder
from keepworth.learning.collect.episode_credit import EpisodicReward, with_episodic_reward
from keepworth.learning.collect.workers import MemoryImage
from keepworth.learning.run_folder import Checkpoint, disk, read_json, replacing, write_json
from keepworth.learning.trainer import Collected, Collector
from keepworth.memory.episode import HeldEpisode
from keepworth.memory.item import now
from keepworth.memory.memory import Memory
from keepworth.memory.policy.slots import Policy
from keepworth.memory.store.maintenance import backup
from keepworth.rollouts.driver import Feedback


class TrainingMemory(Protocol):
    """A memory of a training's own, such as `LivingMemory`."""

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


# A memory that learns from reward while a model is trained to act with it.
#
#     runs/<name>/memory/<role>.mem                 the memory as it is
#     runs/<name>/checkpoints/step-000012/living.mem
#                                                   as it was then: a copy
#
# Members of a group only read the memory (`HeldEpisode`): what they are shown follows from what it was when their group began,
# and from draws that are an episode's own. What they did comes back in their episodes, and is written once the group is trained
# on, with their rewards, group by group and member by member. So all groups of a step are shown what was learned in the steps
# before, whether they ran in this process or in workers, which read images of the file. A run that is killed goes on with the
# memory of its checkpoint; what the groups since then did is done again.


MEMORY_COPY = "living.mem"


def encoder_of(memory: Memory, otherwise: Encoder | str) -> Encoder | str:
    """The encoder that a memory has, for the next: a model that is loaded once serves all."""
    return otherwise if memory.store.embedder is None else memory.store.embedder.encoder


class LivingMemory:
    """The memory of one training, in its run's folder: of each owner (such as a house) its own, in one file. policy: makes a
    fresh policy; seed: of its draws."""

    def __init__(
        self, run: Path, role: str, policy: Callable[[], Policy], *, encoder: Encoder | str = "default", seed: int = 0
    ) -> None:
        self.path = run / "memory" / f"{role}.mem"
        self.policy = policy
        self._encoder, self._seed = encoder, seed
        self._owners: dict[str, Memory] = {}
        self._lock = threading.Lock()
        self._image: MemoryImage | None = None
        self._time = ""  # for all who read it at once, "" while it is written
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def open(self, checkpoint: Checkpoint | None) -> None:
        """As it was at the checkpoint; empty where there is none, or one without a memory."""
        self.close()
        self._fresh()
        if checkpoint is not None and (checkpoint.path / MEMORY_COPY).exists():
            with disk(self.path), replacing(self.path) as temporary:
                shutil.copyfile(checkpoint.path / MEMORY_COPY, temporary)

    def _fresh(self) -> None:
        """No file, and none of what lies beside one: its log, its layout of vectors."""
        with disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for path in list(self.path.parent.glob(f"{self.path.name}*")):
                path.unlink()

    def close(self) -> None:
        self._close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _close(self) -> None:
        for memory in self._owners.values():
            memory.close()
        self._owners, self._image, self._time = {}, None, ""

    def image(self) -> MemoryImage:
        """The file as it is, for rollouts elsewhere; the same until something is written."""
        with self._lock:
            if self._image is None:
                self._image = MemoryImage(self._bytes(), self._now())
                self._time = self._image.time
            return self._image

    def _bytes(self) -> bytes:
        with disk(self.path), tempfile.TemporaryDirectory(dir=self.path.parent) as folder:
            self.save(Path(folder))
            copy = Path(folder) / MEMORY_COPY
            return copy.read_bytes() if copy.exists() else b""

    def read(self, image: MemoryImage) -> None:
        """In a process that plays episodes: from here on it is this image, in a file of its own."""
        self._close()
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="keepworth-memory-")
            self.path = Path(self._scratch.name) / self.path.name
        self._fresh()
        if image.data:
            with disk(self.path):
                self.path.write_bytes(image.data)
        self._time = image.time

    def of(self, owner: str) -> Memory:
        """The memory of one owner."""
        known = self._owners.get(owner)
        if known is None:
            settings: dict[str, Any] = {"policy": self.policy, "seed": self._seed, "clock": self._now}
            known = Memory(self.path, user_id=owner, encoder=self._encoder, **settings)
            self._encoder = encoder_of(known, self._encoder)
            self._owners[owner] = known
        return known

    def _now(self) -> str:
        return self._time or now()

    def begin(self, owner: str, task: str, id: str) -> Feedback:
        """The episode `id` of a training, in the owner's memory: its rollout searches in `Feedback.memory`, and it is told once
        the episode is trained on."""
        with self._lock:
            self._time = self._now()
            return Feedback(HeldEpisode(self.of(owner), id, task, owner=owner, seed=self._seed))

    def keep(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        """Write what the episodes of trained groups did, and how they went; nothing of those that say nothing about the agent."""
        with self._lock:
            self._time, told = "", 0
            used: set[str] = set()
            for episode in (episode for group in groups for episode in group.episodes):
                if episode.memory_steps:
                    owner = episode.memory_steps[0].name
                    used.add(owner)
                    if episode.stop not in UNSOUND:
                        Feedback.of(self.of(owner), episode).ended(episode)
                        told += 1
            items = sum(len(self.of(owner)) for owner in used)
            if told:
                self._close()  # whoever reads it next, here, elsewhere or after a kill, reads what the file says
            return {"memory/told": float(told), "memory/items": float(items)}

    def save(self, folder: Path) -> None:
        """A copy, where there is a file."""
        if self._owners or self.path.exists():
            self._copy(folder / MEMORY_COPY)

    def _copy(self, target: Path) -> None:
        opened = next(iter(self._owners.values()), None)
        with disk(target.parent):
            if opened is None:  # as a checkpoint left it
                shutil.copyfile(self.path, target)
            else:
                backup(opened.store, target)
