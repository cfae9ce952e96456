"""Groups that independent runs share through a folder (SAPO, arXiv 2509.08721, "Sharing is Caring").

    FOLDER/<node>/<group>.json      one finished group of one run: the token ids of every model call

Of the groups of an update some are the run's own, and others were sampled by other runs. Here a foreign group is replayed:
the run's own agent plays its own task in its own environment, and where it would draw from the model it is given the ids of
the file. So prompts, rewards and log-probabilities are the run's own; the reward of the file is only written down.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from keepworth.episodes.episode import Episode, Group, Task
from keepworth.episodes.model import FinishReason, Sample, VersionSpan
from keepworth.learning.collect.curriculum import without_signal
from keepworth.learning.collect.groups import OpenGroup, Terms, TrainedRollout, has_failed, run_member
from keepworth.learning.run_folder import Checkpoint, RunFolder, disk, read_json, replacing, write_json
from keepworth.learning.trainer import Collected, Collector

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.models.partial_sample import PartialSample

STATE = "shared.json"
KEPT = 64
"""Groups that a run leaves in its folder, its newest."""


class Refused(Exception):
    """Why a foreign group is not trained on."""


class SharedMember(BaseModel):
    """The ids that each model call of an episode drew, in order, and what it earned there."""

    model_config = ConfigDict(strict=True, frozen=True)
    calls: tuple[tuple[NonNegativeInt, ...], ...]
    reward: float


class SharedGroup(BaseModel):
    """What a file says."""

    model_config = ConfigDict(strict=True, frozen=True)
    run: str
    tokenizer: str
    task: str
    question: str
    members: tuple[SharedMember, ...]


class GivenAnswers:
    """In the place of a sampler: the calls of one member, in order. Samples end by the run's own rules."""

    def __init__(self, member: SharedMember, vocabulary: int, version: int) -> None:
        self._calls, self._vocabulary, self._version = member.calls, vocabulary, version
        self.used = 0
        self.problem = ""

    async def sample(self, draft: PartialSample) -> Sample:
        ids = self._calls[self.used] if self.used < len(self._calls) else ()
        self.used += 1
        params = draft.params
        stops = [number for number, token in enumerate(ids) if token in params.stop_ids]
        if (
            not ids
            or len(ids) > params.max_tokens
            or max(ids) >= self._vocabulary
            or stops[:1] not in ([], [len(ids) - 1])
        ):
            self.problem = f"call {self.used} is none that this run's model could have drawn"
            raise Refused(self.problem)
        finish = (
            FinishReason.STOP
            if stops
            else FinishReason.LENGTH
            if len(ids) == params.max_tokens
            else FinishReason.ABORTED
        )
        return Sample(ids, (0.0,) * len(ids), finish, (VersionSpan(self._version, 0, len(ids)),))


class Sharing:
    """Another collector whose groups are published, and to which groups of other runs are added: of `tasks` alone, each once."""

    def __init__(
        self,
        inner: Collector,
        run: RunFolder,
        folder: Path,
        model: InProcessModel,
        rollout: TrainedRollout,
        tasks: Sequence[Task],
        *,
        foreign: int,
        group_size: int,
        seed: int = 0,
        episode_seconds: float = 600.0,
    ) -> None:
        self._inner, self._run, self._model, self._rollout = inner, run, model, rollout
        self._tasks = {task.key: task for task in tasks}
        self._wanted, self._size, self._seed = foreign, group_size, seed
        self._terms, self._folder, self._node = Terms(seed, episode_seconds=episode_seconds), folder, node_of(run)
        vocabulary = [model.decode([number]) for number in range(int(model.network.config.vocab_size))]
        self._tokenizer = hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()
        self._trained: set[str] = set()
        self._seen: set[str] = set()
        self._first = 0
        with disk(folder):
            (folder / self._node).mkdir(parents=True, exist_ok=True)

    def begin(self, checkpoint: Checkpoint | None, first: int, done: int) -> None:
        self._first = first
        if checkpoint is not None and (path := checkpoint.path / STATE).exists():
            fix = f"Delete {checkpoint.path}: the run continues from the checkpoint before it."
            self._trained = set(read_json(path, fix)["trained"])
            self._seen = set(self._trained)
        self._inner.begin(checkpoint, first, done)

    def collect(self, step: int) -> Collected:
        collected = self._inner.collect(step)
        notes = list(collected.notes)
        for group in collected.groups:
            self._publish(group)
        begun = time.perf_counter()
        foreign = self._foreign(self._first + step + 1, notes)
        measured = {
            "shared/foreign": float(len(foreign)),
            "seconds/replay": time.perf_counter() - begun,
        }
        groups = [*collected.groups, *foreign]
        return Collected(groups, collected.failed, {**collected.metrics, **measured}, tuple(notes))

    def publish(self) -> dict[str, float]:
        return self._inner.publish()

    def save(self, folder: Path, step: int) -> None:
        self._inner.save(folder, step)
        write_json(folder / STATE, {"trained": sorted(self._trained)})

    def evaluate(self, step: int) -> None:
        self._inner.evaluate(step)

    def close(self) -> None:
        self._inner.close()

    def _publish(self, group: Group) -> None:
        """Write a group that teaches something, and drop the oldest of this run past `KEPT`."""
        first = group.episodes[0]
        task = self._tasks.get(group.task)
        if task is None or without_signal(group) or first.parent:
            return
        record = SharedGroup(
            run=self._run.name,
            tokenizer=self._tokenizer,
            task=group.task,
            question=task.input,
            members=tuple(
                SharedMember(calls=tuple(segment.ids for segment in episode.segments), reward=float(episode.reward))
                for episode in group.episodes
            ),
        )
        folder = self._folder / self._node
        with disk(folder):
            with replacing(folder / f"{first.id.split('/')[0]}.json") as temporary:
                temporary.write_text(record.model_dump_json(), encoding="utf-8")
            for old in _newest_first(folder)[KEPT:]:
                old.unlink()

    def _foreign(self, step: int, notes: list[str]) -> list[Group]:
        """Up to `foreign` groups, one run after the other, the newest of each first."""
        nodes = [path for path in sorted(self._folder.iterdir()) if path.is_dir() and path.name != self._node]
        random.Random(f"shared/{self._seed}/{step}").shuffle(nodes)
        waiting = [(node.name, _newest_first(node)) for node in nodes] if self._wanted else []
        groups: list[Group] = []
        while waiting and len(groups) < self._wanted:
            node, files = waiting.pop(0)
            file = next((file for file in files if f"{node}/{file.stem}" not in self._seen), None)
            if file is None:
                continue
            waiting.append((node, files))
            name = f"{node}/{file.stem}"
            self._seen.add(name)
            try:
                shared = SharedGroup.model_validate_json(file.read_bytes())
                group = self._replayed(shared, name, step * self._wanted + len(groups))
            except (OSError, ValidationError, Refused) as error:
                reason = str(error) if isinstance(error, Refused) else "it is not a group of this version"
                self._run.append_shared(step, what="refused", name=name, reason=reason)
                notes.append(f"group {name} is refused: {reason}")
                continue
            groups.append(group)
            self._trained.add(name)
            rewards = {"reward": fmean(each.reward for each in group.episodes)}
            rewards |= {"claimed": fmean(each.reward for each in shared.members)}
            self._run.append_shared(step, what="trained", name=name, run=shared.run, task=shared.task, **rewards)
        return groups

    def _replayed(self, shared: SharedGroup, name: str, index: int) -> Group:
        """The group as this run plays it. Raises Refused."""
        task = self._tasks.get(shared.task)
        if task is None or task.input != shared.question:
            raise Refused("it is of a task that is not trained on here")
        if shared.tokenizer != self._tokenizer:
            raise Refused("its ids are of another tokenizer")
        if len(shared.members) != self._size:
            raise Refused(f"it has {len(shared.members)} members, and groups here have {self._size}")
        version, vocabulary = self._model.version, int(self._model.network.config.vocab_size)
        answers = [GivenAnswers(member, vocabulary, version) for member in shared.members]
        played = OpenGroup(index, version, task, len(answers))
        asyncio.run(self._play(played, answers))
        episodes = [played.done[member] for member in range(len(answers))]
        for member, given, episode in zip(shared.members, answers, episodes, strict=True):
            if given.problem or given.used < len(member.calls) or has_failed(episode):
                raise Refused(given.problem or (episode.errors or ("it does not end where the episode ends here",))[-1])
            if any(segment.finish is FinishReason.ABORTED for segment in episode.segments):
                raise Refused("one of its calls stops in the middle")
        snapshot = episodes[0].memory_snapshot
        if reason := without_signal(Group(task.key, snapshot, tuple(episodes))):
            raise Refused(f"nothing to learn by the reward here: {reason}")
        named = (replace(self._scored(each), id=f"{name}/{member}") for member, each in enumerate(episodes))
        return Group(task.key, snapshot, tuple(named))

    async def _play(self, group: OpenGroup, given: Sequence[GivenAnswers]) -> None:
        def ignore(failed: Episode) -> None:
            """A try is not begun again."""

        await asyncio.gather(
            *(
                run_member(group, member, self._rollout, answers, self._terms, ignore)
                for member, answers in enumerate(given)
            )
        )

    def _scored(self, episode: Episode) -> Episode:
        """With log-probabilities under this run's weights."""
        parts = episode.segments
        contexts, answers = [part.context for part in parts], [[part.ids] for part in parts]
        scores = self._model.score(contexts, answers, temperature=parts[0].temperature)
        scored = (replace(part, logprobs=logprobs) for part, (logprobs,) in zip(parts, scores, strict=True))
        return replace(episode, segments=tuple(scored))


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.json"), key=lambda path: (path.stat().st_mtime_ns, int(path.stem)), reverse=True)


def node_of(run: RunFolder) -> str:
    """The name of a run among those it shares with: made once, and kept in its record."""
    node = run.environment.get("node")
    if not node:
        node = f"{run.name.lower()[:40]}-{secrets.token_hex(4)}"
        run.record_environment(node=node)
    return str(node)
