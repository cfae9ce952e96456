"""Groups that independent runs share through a folder: published as plain data, believed in nothing, learned from after a replay.

    FOLDER/<node>/<group>.json      one finished group of one run: token ids of every model call, and where they are from

After "Sharing is Caring: Efficient LM Post-Training with Collective RL Experience Sharing" (SAPO, arXiv 2509.08721): of the
groups of an update some are the node's own, and the others were sampled by other nodes. Here a foreign group is *replayed*: the
node's own agent plays its own task in its own environment, and where it would draw from the model it is handed the ids of the
file. So prompts, rewards and endings are the node's own, and so are the log-probabilities: those of its own weights. The ids are
all that is taken over. A reward that is claimed is written down and never used. Nothing is executed or unpickled.

What does not fit is refused with its reason, written to the run's shared.jsonl, and left where it lies: the folder is not ours.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import math
import os
import random
import re
import secrets
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from keepworth.episodes.episode import Episode, Group, Task
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import FinishReason, Sample, VersionSpan
from keepworth.episodes.text import one_line
from keepworth.learning.collect.curriculum import without_signal
from keepworth.learning.collect.groups import (
    CallLog,
    OpenGroup,
    RecordedContext,
    RecordedRollout,
    Terms,
    has_failed,
    run_rollout,
)
from keepworth.learning.run_folder import Checkpoint, DiskTrouble, RunFolder, disk, read_json, replacing, write_json
from keepworth.learning.trainer import Collected, Collector

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.models.partial_sample import PartialSample

FORMAT = 1
SHARED_STATE = "shared.json"
MOST_BYTES = 1 << 20
"""Of a file. A longer group is not published, and not read."""
KEPT = 64
"""Groups that a node leaves in its folder, its newest: what others find there is never older than that."""
MOST_NODES, MOST_FILES, TRIES = 64, 4096, 8
"""Folders and names that are looked at; files of one node that are tried for an update. Flooding costs no more than that."""
FAR = 2.0
"""Nats a token by which a group may be less likely here than tokens drawn at random, which untrained policies are near to."""
AHEAD = 600.0
"""Seconds by which the clock of another machine may be ahead of this one's."""

_NODE = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_FILE = re.compile(r"(0|[1-9]\d{0,18})\.json")
_Id = Annotated[int, Field(ge=0, lt=2**31)]
_Number = Annotated[int, Field(ge=0, lt=10**19)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Refused(Exception):
    """Why a group of another node is not trained on, in words."""


class _Plain(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class SharedMember(_Plain):
    """calls: the ids that each model call of the episode drew, in order. reward: what the node says that it earned."""

    calls: Annotated[
        tuple[Annotated[tuple[_Id, ...], Field(min_length=1, max_length=1 << 17)], ...],
        Field(min_length=1, max_length=1024),
    ]
    reward: float


class SharedGroup(_Plain):
    """What stands in a file. run: as it was named. version: updates of the weights that drew it. time: seconds since 1970.
    tokenizer, task_digest: see `tokenizer_digest` and `task_digest`. digest: of everything else here."""

    format: Literal[1]
    node: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    run: Annotated[str, Field(max_length=200)]
    group: _Number
    version: _Number
    time: float
    model: Annotated[str, Field(max_length=500)]
    tokenizer: _Digest
    task: Annotated[str, Field(min_length=1, max_length=1000)]
    task_digest: _Digest
    members: Annotated[tuple[SharedMember, ...], Field(min_length=2, max_length=1024)]
    digest: _Digest

    @property
    def name(self) -> str:
        return f"{self.node}/{self.group}"

    @property
    def answers(self) -> str:
        """Digest of the task and what was answered: equal for a group that is handed in under another name."""
        return _sha256([self.task, [each.calls for each in self.members]])


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def digest_of(record: Mapping[str, Any]) -> str:
    """Of a group's fields, but for the digest itself. It finds files that were damaged, not nodes that lie."""
    return _sha256({name: value for name, value in record.items() if name != "digest"})


def task_digest(task: Task) -> str:
    """Of what makes two tasks of one key the same question."""
    return _sha256([task.key, task.input, list(task.options)])


def tokenizer_digest(model: InProcessModel) -> str:
    """Of what every id of the model's vocabulary stands for."""
    size, tokenizer = vocabulary_of(model), model.tokenizer
    if hasattr(tokenizer, "get_vocab"):
        return _sha256([size, sorted(tokenizer.get_vocab().items())])
    return _sha256([size, [tokenizer.decode([each]) for each in range(size)]])


def vocabulary_of(model: InProcessModel) -> int:
    return int(model.network.config.vocab_size)


def shared_group(data: bytes, node: str, group: int) -> SharedGroup:
    """What `data` says, which lay under these names. Raises Refused."""
    try:
        found = SharedGroup.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise Refused(f"not a group of this version ({_short(place)}: {_short(first['msg'])})") from None
    if (found.node, found.group) != (node, group):
        raise Refused(f"says that it is group {found.group} of {found.node}, which its place is not")
    if found.digest != digest_of(found.model_dump(mode="json")):
        raise Refused("does not have the digest that it names: it was damaged, or changed")
    return found


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= 120 else f"{line[:117]}..."


def _read(path: Path) -> bytes:
    """A plain file of our size, and not what a link or a pipe of its name leads to. Raises Refused."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Refused("not a plain file")
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Refused(f"cannot be read ({error.strerror})") from None
    if len(data) > MOST_BYTES:
        raise Refused(f"longer than {MOST_BYTES} bytes")
    return data


# The folder: a node writes below its own name and reads below the others'.


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file of another node; changed: when, in nanoseconds, and how long it is. Only its names were looked at."""

    node: str
    group: int
    path: Path
    changed: tuple[int, int]

    @property
    def name(self) -> str:
        return f"{self.node}/{self.group}"

    def read(self) -> SharedGroup:
        """Raises Refused."""
        return shared_group(_read(self.path), self.node, self.group)


class SharedFolder:
    """Raises DiskTrouble where the node's own folder cannot be made."""

    def __init__(self, path: Path, node: str) -> None:
        self.path, self.node = path, node
        self.own = path / node
        with disk(self.own):
            self.own.mkdir(parents=True, exist_ok=True)

    def publish(self, record: Mapping[str, Any]) -> bool:
        """Writes a group, whole or not at all, and drops the oldest of this node past `KEPT`. False where it stands there
        already, or is too long. Raises DiskTrouble."""
        path = self.own / f"{record['group']}.json"
        data = json.dumps(record, separators=(",", ":")).encode()
        if path.exists() or len(data) > MOST_BYTES:
            return False
        with disk(self.own):
            with replacing(path) as temporary:
                temporary.write_bytes(data)
            for old in sorted(self._files(self.own), key=lambda each: (each.changed, each.group))[:-KEPT]:
                old.path.unlink(missing_ok=True)
        return True

    def others(self) -> dict[str, list[SharedFile]]:
        """By node, newest first. What has another name than a group's is nobody's: ignored. Raises OSError."""
        with os.scandir(self.path) as entries:
            some = list(itertools.islice(entries, MOST_FILES))
        nodes = sorted(
            each.name
            for each in some
            if _NODE.fullmatch(each.name) and each.name != self.node and each.is_dir(follow_symlinks=False)
        )
        listed = {}
        for name in nodes:
            try:
                files = list(self._files(self.path / name))
            except OSError:
                continue  # gone, or not ours to read
            if files:
                listed[name] = sorted(files, key=lambda each: (each.changed, each.group), reverse=True)[:KEPT]
        return listed

    def _files(self, folder: Path) -> Iterator[SharedFile]:
        with os.scandir(folder) as entries:
            for each in itertools.islice(entries, MOST_FILES):
                if match := _FILE.fullmatch(each.name):
                    try:
                        found = each.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    changed = (found.st_mtime_ns, found.st_size)
                    yield SharedFile(folder.name, int(match.group(1)), folder / each.name, changed)


# The replay: an episode of this node in which another's answers are given.


class GivenAnswers:
    """In the place of a sampler: the calls of one member, in order. Its samples end by the node's own rules; one that by these
    would go on is marked ABORTED, unless the agent's own stop text ends it. Raises Refused."""

    def __init__(self, member: SharedMember, vocabulary: int, version: int) -> None:
        self._calls, self._vocabulary, self._version = member.calls, vocabulary, version
        self.used = 0
        self.problem = ""

    async def sample(self, draft: PartialSample) -> Sample:
        try:
            return self._sample(draft)
        except Refused as error:
            self.problem = self.problem or str(error)
            raise

    def _sample(self, draft: PartialSample) -> Sample:
        if self.used == len(self._calls):
            raise Refused(f"an answer of {self.used} calls ends before the episode does")
        ids, params = self._calls[self.used], draft.params
        self.used += 1
        if len(ids) > params.max_tokens:
            raise Refused(f"a call of {len(ids)} tokens where {params.max_tokens} are allowed")
        if max(ids) >= self._vocabulary:
            raise Refused(f"token id {max(ids)}, and the vocabulary ends at {self._vocabulary - 1}")
        if any(each in params.stop_ids for each in ids[:-1]):
            raise Refused("a call that goes on behind its end")
        finish = (
            FinishReason.STOP
            if ids[-1] in params.stop_ids
            else FinishReason.LENGTH
            if len(ids) == params.max_tokens
            else FinishReason.ABORTED
        )
        return Sample(ids, (0.0,) * len(ids), finish, (VersionSpan(self._version, 0, len(ids)),))


@dataclass(frozen=True, slots=True)
class SharingTerms:
    """What a node takes. foreign: groups of an update, at most. group_size: members of each. seed: of the order of nodes.
    terms, episode_seconds: what replayed episodes are run under."""

    foreign: int
    group_size: int
    seed: int = 0
    terms: Terms = field(default_factory=Terms)
    episode_seconds: float = 600.0


class Sharing:
    """Another collector whose groups are published, and to which groups of other nodes are added.

    tasks: what may be learned from, and nothing else. rollout: of the recipe. A group that was trained on is never trained on
    again, nor is one with the same answers: checkpoints hold which, so that a run that continues knows what its weights know.
    Staleness is of the node's own tokens alone: what is replayed has the version of the weights that scored it.
    Raises DiskTrouble."""

    def __init__(
        self,
        inner: Collector,
        run: RunFolder,
        folder: Path,
        model: InProcessModel,
        rollout: RecordedRollout,
        tasks: Sequence[Task],
        settings: SharingTerms,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._inner, self._run, self._model, self._rollout = inner, run, model, rollout
        self._tasks = {task.key: task for task in tasks}
        self._settings, self._clock = settings, clock
        self.folder = SharedFolder(folder, node_of(run))
        self._tokenizer = tokenizer_digest(model)
        self._trained: dict[str, str] = {}
        self._refused: dict[str, tuple[int, int]] = {}
        self._first = 0
        self._noted: set[str] = set()

    def begin(self, checkpoint: Checkpoint | None, first: int, done: int) -> None:
        self._first = first
        self._trained = {}
        if checkpoint is not None and (path := checkpoint.path / SHARED_STATE).exists():
            fix = f"Delete {checkpoint.path}: the run continues from the checkpoint before it."
            trained = read_json(path, fix).get("trained")
            if not isinstance(trained, dict):
                raise KeepworthError(f"{path} does not say what was trained on.", fix)
            self._trained = {str(answers): str(name) for answers, name in trained.items()}
        self._inner.begin(checkpoint, first, done)

    def collect(self, step: int) -> Collected:
        collected = self._inner.collect(step)
        number = self._first + step + 1
        notes: list[str] = list(collected.notes)
        published = self._publish(collected.groups, notes)
        begun = time.perf_counter()
        taken, reasons = self._foreign(number, notes)
        rewards = [each.reward for group in taken for each in group.episodes]
        own = [each.reward for group in collected.groups for each in group.episodes]
        measured = {
            "shared/published": float(published),
            "shared/foreign": float(len(taken)),
            "shared/refused": float(sum(reasons.values())),
            "seconds/replay": time.perf_counter() - begun,
            **({"reward_local": sum(own) / len(own)} if own else {}),
            **({"reward_foreign": sum(rewards) / len(rewards)} if rewards else {}),
        }
        groups = [*collected.groups, *taken]
        return Collected(groups, collected.failed, {**collected.metrics, **measured}, tuple(notes))

    def publish(self) -> dict[str, float]:
        return self._inner.publish()

    def save(self, folder: Path, step: int) -> None:
        self._inner.save(folder, step)
        write_json(folder / SHARED_STATE, {"format": 1, "trained": self._trained})

    def evaluate(self, step: int) -> None:
        self._inner.evaluate(step)

    def close(self) -> None:
        self._inner.close()

    # -- what goes out ----------------------------------------------------------------------------------------------

    def _publish(self, groups: Sequence[Group], notes: list[str]) -> int:
        """The groups that teach something, for others. A folder that cannot be written costs a note, and not the run."""
        count = 0
        for group in groups:
            first = group.episodes[0]
            if without_signal(group) or first.parent or group.task not in self._tasks:
                continue
            record = self._record(group, int(first.id.split("/")[0]))
            answers = SharedGroup.model_construct(
                task=group.task, members=tuple(SharedMember.model_construct(**each) for each in record["members"])
            ).answers
            self._trained.setdefault(answers, f"{self.folder.node}/{record['group']}")
            try:
                count += self.folder.publish(record)
            except DiskTrouble as error:
                self._tell(notes, f"nothing is published: {error.message}")
                break
        return count

    def _record(self, group: Group, index: int) -> dict[str, Any]:
        record = {
            "format": FORMAT,
            "node": self.folder.node,
            "run": self._run.name[:200],
            "group": index,
            "version": max(each.policy_version for each in group.episodes),
            "time": float(self._clock()),
            "model": self._model.name[:500],
            "tokenizer": self._tokenizer,
            "task": group.task,
            "task_digest": task_digest(self._tasks[group.task]),
            "members": [
                {"calls": [list(each.ids) for each in episode.segments], "reward": float(episode.reward)}
                for episode in group.episodes
            ],
        }
        return {**record, "digest": digest_of(record)}

    # -- what comes in ----------------------------------------------------------------------------------------------

    def _foreign(self, step: int, notes: list[str]) -> tuple[list[Group], Counter[str]]:
        """Up to `foreign` groups, one node after the other; no node gives more than its even share while others have something.
        Every group that was taken or refused is a row of the run."""
        wanted, reasons = self._settings.foreign, Counter[str]()
        if not wanted:
            return [], reasons
        try:
            waiting = self._unseen()
        except OSError as error:
            self._tell(notes, f"the shared folder cannot be read: {error.strerror}")
            return [], reasons
        order = sorted(waiting)
        random.Random(f"shared/{self._settings.seed}/{step}").shuffle(order)
        # Of too many nodes, those that gave something before, and any others: folders of junk hide nobody for long, as what was
        # refused is not waiting any more.
        known = {name.partition("/")[0] for name in self._trained.values()}
        order = sorted(order, key=lambda node: node not in known)[:MOST_NODES] if len(order) > MOST_NODES else order
        quota = math.ceil(wanted / max(1, len(order)))
        taken: list[Group] = []
        given, tried = Counter[str](), Counter[str]()
        while order and len(taken) < wanted:
            node = order.pop(0)
            candidate = waiting[node].pop(0)
            tried[node] += 1
            try:
                shared = candidate.read()
                group = self._replayed(shared, step * wanted + len(taken))
            except Refused as error:
                self._refused[candidate.name] = candidate.changed
                reasons[str(error)] += 1
                self._run.append_shared(step, what="refused", name=candidate.name, reason=str(error))
                self._tell(notes, f"a group of {node} is refused: {error}")
            else:
                taken.append(group)
                given[node] += 1
                self._trained[shared.answers] = shared.name
                self._write_down(step, shared, group)
            if waiting[node] and given[node] < quota and tried[node] < TRIES:
                order.append(node)
        return taken, reasons

    def _unseen(self) -> dict[str, list[SharedFile]]:
        """Files that were not trained on, nor refused as they are. Raises OSError."""
        known = set(self._trained.values())
        found = {
            node: [each for each in files if each.name not in known and self._refused.get(each.name) != each.changed]
            for node, files in self.folder.others().items()
        }
        return {node: files for node, files in found.items() if files}

    def _replayed(self, shared: SharedGroup, index: int) -> Group:
        """The group as this node plays it. Raises Refused."""
        self._check(shared)
        task = self._tasks[shared.task]
        given = [GivenAnswers(each, vocabulary_of(self._model), self._model.version) for each in shared.members]
        open_group = OpenGroup(index, self._model.version, task, [CallLog() for _ in given])
        asyncio.run(self._play(open_group, given))
        episodes = [open_group.done[member] for member in range(len(given))]
        for answers, member, episode in zip(given, shared.members, episodes, strict=True):
            if answers.problem:
                raise Refused(answers.problem)
            if any(each.finish is FinishReason.ABORTED for each in episode.segments):
                raise Refused("a call that stops in the middle, neither at an end nor at its limit")
            if has_failed(episode):
                why = episode.errors[-1] if episode.errors else episode.stop.value
                raise Refused(f"the environment or reward here fails on it: {_short(why)}")
            if answers.used < len(member.calls):
                raise Refused(f"an answer goes on where the episode ended, after {answers.used} calls")
        if len({each.memory_snapshot for each in episodes}) > 1:
            raise Refused("its members start from different memories here")
        named = tuple(replace(each, id=f"{shared.name}/{member}") for member, each in enumerate(episodes))
        group = Group(task.key, episodes[0].memory_snapshot, named)
        if why := without_signal(group):
            raise Refused(f"nothing to learn by the reward here: {why}")
        return self._scored(group)

    def _check(self, shared: SharedGroup) -> None:
        """What can be seen without playing it. Raises Refused."""
        now, size = self._clock(), self._settings.group_size
        task = self._tasks.get(shared.task)
        if shared.answers in self._trained:
            raise Refused(f"the same answers as {self._trained[shared.answers]}")
        if shared.time > now + AHEAD:
            raise Refused(f"from the future: its clock is {shared.time - now:.0f} s ahead of this one")
        if shared.tokenizer != self._tokenizer:
            raise Refused(f"of another tokenizer (model {_short(shared.model)}): its ids mean something else here")
        if task is None:
            raise Refused(f"task {_short(shared.task)} is none of those that are trained on here")
        if shared.task_digest != task_digest(task):
            raise Refused(f"task {_short(shared.task)} asks something else there")
        if len(shared.members) != size:
            raise Refused(f"{len(shared.members)} members, and groups here have {size}")
        if len({each.calls for each in shared.members}) == 1:
            raise Refused("all of its members say the same")

    async def _play(self, group: OpenGroup, given: Sequence[GivenAnswers]) -> None:
        async def member(number: int) -> None:
            log = group.logs[number]
            context = RecordedContext(given[number], log, group.index, number, self._settings.terms, group.companions)
            episode = await run_rollout(self._rollout, group.task, context, self._settings.episode_seconds)
            group.end(number, episode)

        await asyncio.gather(*map(member, range(group.size)))

    def _scored(self, group: Group) -> Group:
        """With log-probabilities under this node's weights in the place of those that drew it. Raises Refused where it is less
        likely than tokens drawn at random, and more (`FAR`): no policy near this one wrote that."""
        segments = [each for episode in group.episodes for each in episode.segments]
        contexts = list(dict.fromkeys(each.context for each in segments))
        branches = [[each.ids for each in segments if each.context == context] for context in contexts]
        scores = self._model.score(contexts, branches, temperature=segments[0].temperature)
        found = {
            (context, ids): logprobs
            for context, these, scored in zip(contexts, branches, scores, strict=True)
            for ids, logprobs in zip(these, scored, strict=True)
        }
        every = [value for logprobs in found.values() for value in logprobs]
        mean, chance = sum(every) / len(every), -math.log(vocabulary_of(self._model))
        if not mean >= chance - FAR:  # a NaN is refused, too
            raise Refused(f"{mean:.1f} nats a token here, far below chance ({chance:.1f})")

        def scored(episode: Episode) -> Episode:
            own = tuple(replace(each, logprobs=found[each.context, each.ids]) for each in episode.segments)
            return replace(episode, segments=own)

        return replace(group, episodes=tuple(map(scored, group.episodes)))

    def _write_down(self, step: int, shared: SharedGroup, group: Group) -> None:
        count = len(group.episodes)
        self._run.append_shared(
            step,
            what="trained",
            name=shared.name,
            task=shared.task,
            node=shared.node,
            run=shared.run,
            model=shared.model,
            version=shared.version,
            age=round(self._clock() - shared.time, 3),
            digest=shared.digest,
            reward=sum(each.reward for each in group.episodes) / count,
            claimed=sum(each.reward for each in shared.members) / count,
        )

    def _tell(self, notes: list[str], text: str) -> None:
        """Once: every refusal stands in the run's folder."""
        if text not in self._noted and len(self._noted) < 100:
            self._noted.add(text)
            notes.append(text)


def node_of(run: RunFolder) -> str:
    """The name of a run among those it shares with: made once, and kept in its record."""
    known = run.environment.get("node")
    if isinstance(known, str) and _NODE.fullmatch(known):
        return known
    plain = re.sub(r"[^a-z0-9]+", "-", run.name.lower()).strip("-")[:40].strip("-")
    node = f"{plain or 'run'}-{secrets.token_hex(4)}"
    run.record_environment(node=node)
    return node
