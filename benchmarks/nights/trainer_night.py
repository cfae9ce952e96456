"""A night of the trainer: a small training is killed, interrupted or refused the disk at drawn accesses to its run's folder, and
is continued; its numbers, episodes and weights are compared with those of a training that was left alone.

Python reports each access before it happens (`sys.addaudithook`), so what lies in the folder then is what a killed process
leaves. Which files were synced is noted, too: after a loss of power the others are empty, cut or zeros.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from transformers.utils.logging import disable_progress_bar

from benchmarks.nights.night import Failure, Step, Tally, play
from keepworth.base.errors import KeepworthError
from keepworth.records.episode import episode_to_json
from keepworth.training.collect.asynchrony import Asynchrony
from keepworth.training.collect.pipeline import Pipeline
from keepworth.training.run_folder import CheckpointCorrupt, RunFolder
from keepworth.training.trainer import Schedule, train
from keepworth.training.watch.progress import Progress
from tests.learning.letters import OBJECTIVE, Letters, settings
from tests.learning.turns import learner_of

VERBS = {"kill": 6, "torn": 4, "power": 6, "rot": 3, "interrupt": 3, "full": 3, "killed twice": 2}
"""How often each kind of trouble is drawn."""
ACCESSES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
Files = dict[str, bytes]


class Letter(Letters):
    """The task of the tests' small training, whose measurements are written to the run.

    Args:
        run: The folder of the run.
        turns: The model calls of an episode.
        measured: It is called before each measurement.
    """

    def __init__(self, run: RunFolder, turns: int, measured: Callable[[], None]) -> None:
        super().__init__(turns=turns)
        self._run, self._measured = run, measured

    def evaluate(self, step: int) -> None:
        self._measured()
        row = {"arm": "trained", "metric": "letters", "role": "speaker", "split": "dev"}
        self._run.append_eval(step, mean=0.1 * step, low=0.0, high=1.0, n=3, **row)


@dataclass(slots=True)
class Watch:
    """Counts the accesses to a folder, takes images of it at some of them, and makes trouble at one.

    Args:
        folder: What is watched.
        images: The numbers of the accesses before which an image is taken.
        trouble: What is called at the access `at`, and at all later ones if `lasting`; None for nothing.
    """

    folder: Path
    images: frozenset[int] = frozenset()
    trouble: Callable[[str], None] | None = None
    at: int = -1
    lasting: bool = False
    count: int = 0
    fired: str = ""
    taken: dict[int, tuple[str, Files, Files]] = field(default_factory=dict)
    """By the number of the access: what it was, the files after a kill, and those that a loss of power surely leaves."""
    synced: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By the number of a file in its file system: its size and its time of change when it was synced."""

    def access(self, name: str, path: str) -> None:
        """Note an access to a path, before it happens."""
        number, self.count = self.count, self.count + 1
        relative = re.sub(r"\d+-[0-9a-f]+|\d+", "N", os.path.relpath(path, self.folder))
        if number in self.images:
            self.taken[number] = (f"{name} {relative}", *self.present())
        if self.trouble is not None and (number == self.at or (self.lasting and number > self.at >= 0)):
            self.fired = self.fired or f"{name} {relative}"
            self.trouble(name)

    def sync(self, descriptor: int) -> None:
        """Note that a file was synced."""
        status = os.fstat(descriptor)
        self.synced[status.st_ino] = (status.st_size, status.st_mtime_ns)
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if path.startswith(str(self.folder)):
                self.access("sync", path)

    def present(self) -> tuple[Files, Files]:
        """Return the files that are there, and of each what was synced of it."""
        there, surely = Files(), Files()
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.name != ".lock":
                name, status = str(path.relative_to(self.folder)), path.stat()
                there[name] = path.read_bytes()
                size, changed = self.synced.get(status.st_ino, (0, 0))
                whole = (size, changed) == (status.st_size, status.st_mtime_ns)
                surely[name] = there[name] if whole else there[name][:size]
        return there, surely


WATCH: Watch | None = None
HOOKED: list[bool] = []
"""Whether Python reports accesses here already: it cannot be told to stop."""


def report(event: str, arguments: tuple[Any, ...]) -> None:
    """Tell the watch of an access to its folder. Python calls it for all that happens."""
    global WATCH
    watch = WATCH
    if watch is None or event not in ACCESSES:
        return
    path = arguments[0]
    if event == "os.rename":
        path = arguments[1]
    if not isinstance(path, str | os.PathLike):
        return
    text = os.fspath(path)
    if not isinstance(text, str) or not text.startswith(str(watch.folder)) or text.endswith(".lock"):
        return
    if event == "open" and not (arguments[2] or 0) & WRITING:
        return
    WATCH = None  # what the watch does itself is not watched
    try:
        watch.access(event.removeprefix("os."), text)
    finally:
        WATCH = watch


@contextlib.contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Let a watch know of the accesses to its folder."""
    global WATCH
    if not HOOKED:
        sys.addaudithook(report)
        HOOKED.append(True)
    fsync = os.fsync

    def syncs(descriptor: int) -> None:
        global WATCH
        fsync(descriptor)
        before, WATCH = WATCH, None
        try:
            watch.sync(descriptor)
        finally:
            WATCH = before

    WATCH = watch
    try:
        with patch.object(os, "fsync", syncs):
            yield
    finally:
        WATCH = None


def drawn_steps(seed: int, count: int) -> list[Step]:
    """Return the steps of the night with a seed."""
    draw = random.Random(f"trainer steps/{seed}")
    verbs = draw.choices([*VERBS], [*VERBS.values()], k=count)
    return [Step(number, verb, 0.0, (draw.random(), draw.random())) for number, verb in enumerate(verbs)]


class TrainerNight:
    """A night of one training in a folder.

    Args:
        seed: Of everything that is drawn.
        steps: What goes wrong.
        folder: Where the runs lie, best in memory.
        faulty: The numbers of the steps at which it goes wrong; None for all.
    """

    def __init__(self, seed: int, steps: Sequence[Step], folder: Path, *, faulty: set[int] | None = None) -> None:
        self.seed, self.folder = seed, folder.resolve()
        self.steps = [step for step in steps if faulty is None or step.number in faulty]
        self.tally = Tally()
        draw = random.Random(f"trainer night/{seed}")
        self.updates = draw.choice((3, 4, 5))
        self.save_every, self.measure_every = draw.choice((1, 1, 2, 3)), draw.choice((1, 2, 3))
        self.mode, self.turns = draw.choice(("serial", "serial", "turns")), draw.choice((1, 2))
        self.known: set[bytes] = set()
        self.present = ""

    def run(self) -> Tally:
        """Let each step go wrong, and continue. Raises Failure."""
        torch.set_num_threads(1)
        disable_progress_bar()
        warnings.filterwarnings("ignore", message="areal: Clip")
        counted = Watch(self.folder / "counted")
        with watching(counted):
            self.train(counted.folder)
        self.accesses = counted.count
        self.whole = self.result(counted.folder)
        imaged = frozenset(self.place(step) for step in self.steps if step.verb not in ("interrupt", "full"))
        watch = Watch(self.folder / "watched", imaged)
        with watching(watch):
            self.train(watch.folder)
        self.compare(watch.folder, "a training that was left alone, again")
        self.images = watch.taken
        for step in self.steps:
            self.tally.steps += 1
            try:
                self.take(step)
            except Failure as failure:
                failure.step, failure.place = step.number, failure.place or self.present
                raise
        return self.tally

    def place(self, step: Step) -> int:
        return min(self.accesses - 1, int(step.numbers[0] * self.accesses))

    def train(self, folder: Path, measured: Callable[[], None] = lambda: None) -> int | None:
        """Train in a folder, or continue what is there. Returns the step from which it continued."""
        learner = learner_of(OBJECTIVE, hidden=16, learning_rate=1e-2)
        plan: Asynchrony = settings(mode="serial") if self.mode == "serial" else settings()
        with RunFolder.create(folder, {"steps": self.updates}, clock=lambda: 0.0) as run:
            resumed = run.resumed_from
            collector = Pipeline(run, learner, Letter(run, self.turns, measured), plan)
            schedule = Schedule(self.updates, self.measure_every, self.save_every, checkpoint_seconds=0.0)
            train(run, learner, collector, schedule, Progress(), "letters")
        return resumed

    def take(self, step: Step) -> None:
        """Let one thing go wrong, continue, and compare."""
        draw = random.Random(f"trainer faults/{self.seed}/{step.number}")
        folder = self.folder / "image"
        shutil.rmtree(folder, ignore_errors=True)
        at = self.place(step)
        if step.verb in ("interrupt", "full"):
            self.disturb(step.verb, folder, at, lasting=step.numbers[1] < 0.5)
            self.resume(folder)
            return
        name, there, surely = self.images[at]
        files = dict(there)
        if step.verb == "torn" and (writing := self.being_written(files)):
            # What was synced is written whole: a checkpoint relies on it.
            content, least = files[writing], len(surely.get(writing, b""))
            files[writing] = content[: draw.randrange(least, len(content)) if len(content) > least else len(content)]
        elif step.verb == "power":
            for path, content in surely.items():
                if content != there[path]:
                    more = there[path][len(content) :]
                    files[path] = content + draw.choice(
                        (b"", more[: draw.randrange(len(more) + 1)], bytes(len(more)), more)
                    )
        rotten = self.rot(files, draw) if step.verb == "rot" else ""
        self.present = f"{step.verb} before access {at} ({name})"
        digest = hashlib.blake2b(repr(sorted(files.items())).encode(), digest_size=12).digest()
        if digest in self.known:
            self.tally.repeated += 1
            return
        self.known.add(digest)
        self.count(step.verb, self.mode, name)
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        if not files:
            folder.mkdir(parents=True)
        if step.verb == "killed twice":
            self.disturb("kill", folder, int(step.numbers[1] * self.accesses), lasting=True)
        self.resume(folder, rotten)

    def disturb(self, verb: str, folder: Path, at: int, lasting: bool) -> None:
        """Train in a folder until something goes wrong at an access."""

        def full(name: str) -> None:
            if name in ("open", "mkdir", "rename"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

        def interrupt(name: str) -> None:
            signal.raise_signal(signal.SIGINT)

        def kill(name: str) -> None:
            if not image:
                image.update(watch.present()[0])
            raise _Killed

        image = Files()
        watch = Watch(folder, trouble={"full": full, "interrupt": interrupt, "kill": kill}[verb], at=at)
        watch.lasting = lasting and verb != "interrupt"
        self.present = f"{verb} at access {at}{' and on' if watch.lasting else ''}"
        try:
            with watching(watch):
                self.train(folder)
        except KeyboardInterrupt:
            pass
        except _Killed:
            shutil.rmtree(folder)
            folder.mkdir()
            for path, content in image.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
        except KeepworthError as error:
            if verb != "full":
                raise Failure("a training is continued", f"{type(error).__name__}: {error}") from error
        except Exception as error:
            raise Failure("errors name the disk", f"{type(error).__name__}: {error}") from error
        self.present += f" ({watch.fired})"
        if watch.fired:
            self.count(verb, self.mode, watch.fired)

    def being_written(self, files: Files) -> str:
        """Return the file whose writing a kill may have cut: a part, or a row that was appended last; "" for none."""
        parts = [path for path in files if ".part" in path]
        rows = [path for path in files if path.endswith(".jsonl")]
        return (parts or rows or [""])[-1]

    def rot(self, files: Files, draw: random.Random) -> str:
        """Change a bit of the newest checkpoint. Returns the file; "" where there is none."""
        steps = sorted({match[0] for path in files if (match := re.match(r"checkpoints/step-\d+", path))})
        if not steps:
            return ""
        path = draw.choice(sorted(path for path in files if path.startswith(steps[-1] + "/")))
        content = bytearray(files[path])
        place = draw.randrange(len(content))
        content[place] ^= 1 << draw.randrange(8)
        files[path] = bytes(content)
        return path

    def resume(self, folder: Path, rotten: str = "") -> None:
        """Continue a training, and compare it with one that was left alone."""
        waiting = self.waiting(folder)
        try:
            resumed = self.train(folder)
        except CheckpointCorrupt as error:
            damaged = "/".join(rotten.split("/")[:2])
            if not rotten or str(folder / damaged) not in str(error):
                raise Failure("a training is continued", f"{type(error).__name__}: {error}") from error
            shutil.rmtree(folder / damaged)  # as the error says
            waiting = self.waiting(folder)
            resumed = self.train(folder)
            before = (int(damaged[-6:]) - 1) // self.save_every * self.save_every
            if before and resumed != before:
                place = f"it continued from {resumed}, not {before}"
                raise Failure("the checkpoint before is there", place) from None
        except KeepworthError as error:
            raise Failure("a training is continued", f"{type(error).__name__}: {error}") from error
        except Exception as error:
            raise Failure("errors are the trainer's own", f"{type(error).__name__}: {error}") from error
        else:
            if rotten and not rotten.endswith("manifest.json"):  # in which some bytes say nothing
                raise Failure("damage is found", f"{rotten} was changed, and the training continued from {resumed}")
        self.compare(folder, f"continued from {resumed}", waiting)

    # Claims.

    def count(self, kind: str, *place: str) -> None:
        self.tally.faults[kind] += 1
        self.tally.places[" / ".join((kind, *place))] += 1

    def waiting(self, folder: Path) -> dict[str, Any]:
        """Return the episodes that wait in the newest checkpoint, by their ids."""
        checkpoints = RunFolder(folder).checkpoints()
        if not checkpoints:
            return {}
        try:
            state = json.loads((checkpoints[-1].path / "pipeline.json").read_text())
        except (OSError, ValueError):
            return {}
        return {episode["id"]: episode for each in state["finished"] for group in each["groups"] for episode in group}

    def result(self, folder: Path) -> dict[str, Any]:
        """Return what a training left: numbers, measurements, episodes and weights."""
        run = RunFolder(folder)
        rows = [{name: value for name, value in row.items() if not name.startswith("seconds")} for row in run.metrics()]
        episodes = [
            (each.step, each.arm, json.loads(json.dumps(episode_to_json(each.episode)))) for each in run.episodes()
        ]
        last = run.checkpoints()[-1]
        last.verify()
        state = torch.load(last.path / "learner.pt", weights_only=True)
        return {
            "numbers": rows,
            "measurements": run.evals(),
            "episodes": episodes,
            "checkpoints": [each.step for each in run.checkpoints()],
            "weights": state["learner"],
        }

    def compare(self, folder: Path, place: str, waiting: dict[str, Any] | None = None) -> None:
        """Compare what a training left with what one left that nothing happened to."""
        self.tally.checks += 1
        result = self.result(folder)
        if [row["step"] for row in result["numbers"]] != list(range(1, self.updates + 1)):
            raise Failure("numbers are those of one training", f"{place}: {[row['step'] for row in result['numbers']]}")
        if result["measurements"] != self.whole["measurements"]:
            raise Failure("measurements are those of one training", f"{place}: {result['measurements']}")
        if self.mode == "serial":
            for name in ("numbers", "episodes", "weights"):
                if not same(result[name], self.whole[name]):
                    raise Failure(f"{name} are those of one training", place)
        episodes = [episode for _, arm, episode in result["episodes"] if arm == "train"]
        indices = [
            (step, int(episode["id"].split("/")[0])) for step, arm, episode in result["episodes"] if arm == "train"
        ]
        groups = [index for _, index in sorted(set(indices))]
        if len(groups) != len(set(groups)) or len(groups) != 4 * self.updates:
            raise Failure("each group is trained once", f"{place}: {groups}")
        trained = {episode["id"]: episode for episode in episodes}
        trained |= self.waiting(folder)
        for id, episode in (waiting or {}).items():
            if drawn_tokens(trained.get(id)) != drawn_tokens(episode):
                raise Failure("what waited is trained as it was drawn", f"{place}: {id}")
        leftovers = [path.name for path in folder.rglob("*.part")]
        if leftovers:
            raise Failure("nothing is left over", f"{place}: {leftovers}")


class _Killed(BaseException):
    """The process was killed here."""


def drawn_tokens(episode: dict[str, Any] | None) -> list[Any]:
    """Return the tokens that were drawn in an episode."""
    return [segment["ids"] for segment in (episode or {}).get("segments", [])]


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal to the last bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


run_night = partial(play, TrainerNight)
