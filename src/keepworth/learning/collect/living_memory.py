"""A memory that learns from reward while a model is trained to act with it.

    runs/<name>/memory/<role>.mem                 the memory as it is
    runs/<name>/checkpoints/step-000012/living.mem, living.json
                                                  as it was then: a copy, and where its draws stand

Members of a group act with the memory as it is, each in an episode of its own. It is told their rewards once the group is
trained on, group by group and member by member, so what all groups of a step are shown was learned in the steps before. A run
that is killed goes on with the memory of its checkpoint; what the groups since then did is done again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from keepworth.episodes.encoder import Encoder
from keepworth.episodes.episode import Group
from keepworth.learning.run.checkpoint import Checkpoint
from keepworth.learning.run.disk import disk, read_json, replacing, write_json
from keepworth.memory.memory import Memory
from keepworth.memory.policy.slots import Policy
from keepworth.memory.store.maintenance import backup
from keepworth.rollouts.feedback import Feedback

COPY, STATE = "living.mem", "living.json"


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
        self._policy, self._encoder, self._seed = policy, encoder, seed
        self._owners: dict[str, Memory] = {}
        self._draws: dict[str, Any] = {}
        self._feedback: dict[str, Feedback] = {}
        self._used: set[str] = set()

    def open(self, checkpoint: Checkpoint | None) -> None:
        """As it was at the checkpoint; empty where there is none, or one without a memory."""
        self.close()
        with disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for each in list(self.path.parent.glob(f"{self.path.name}*")):
                each.unlink()
        self._draws = {}
        if checkpoint is not None and (checkpoint.path / STATE).exists():
            state = read_json(checkpoint.path / STATE, "Delete the checkpoint's folder: the one before it is taken.")
            self._draws = state["draws"]
            with disk(self.path), replacing(self.path) as temporary:
                shutil.copyfile(checkpoint.path / COPY, temporary)

    def close(self) -> None:
        for memory in self._owners.values():
            memory.close()
        self._owners, self._feedback = {}, {}

    def of(self, owner: str) -> Memory:
        """The memory of one owner."""
        self._used.add(owner)
        known = self._owners.get(owner)
        if known is None:
            known = Memory(self.path, user_id=owner, encoder=self._encoder, policy=self._policy, seed=self._seed)
            self._encoder = encoder_of(known, self._encoder)
            if owner in self._draws and known.learning is not None:
                known.learning.draws = self._draws[owner]
            self._owners[owner] = known
        return known

    def begin(self, owner: str, task: str, id: str) -> Feedback:
        """What tells the owner's memory of the episode `id` of a training, whose rollout searches in `Feedback.memory`."""
        self._feedback[id] = Feedback(self.of(owner).episode(task))
        return self._feedback[id]

    def keep(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        """Tell the memory how the episodes of trained groups went."""
        told = 0
        for group in groups:
            for episode in group.episodes:
                feedback = self._feedback.pop(episode.id, None)
                if feedback is not None:
                    feedback.ended(episode)
                    told += 1
        self._feedback.clear()  # episodes that were not trained on stay open in memory
        items = sum(len(self._owners[owner]) for owner in self._used)
        for owner in self._owners.keys() - self._used:  # the training has moved on
            memory = self._owners.pop(owner)
            self._draws[owner] = memory.learning.draws if memory.learning is not None else {}
            memory.close()
        self._used.clear()
        return {"memory/told": float(told), "memory/items": float(items)}

    def save(self, folder: Path) -> None:
        """A copy, and where the draws of each owner's policy stand."""
        first = next(iter(self._owners.values()), None)
        if first is None:
            return
        with disk(folder):
            backup(first.store, folder / COPY)
        draws = {owner: memory.learning.draws for owner, memory in self._owners.items() if memory.learning is not None}
        write_json(folder / STATE, {"draws": {**self._draws, **draws}})
