"""Kill -9, ten times each, of every part of a run: a rollout worker, a learner, an engine, a raylet, the controller.

worker, learner: synchronous runs, in which after every step one of them is killed at a random instant of the next. What the run
leaves is compared with a run of the same parts that was left alone.
raylet: as many runs, in each of which one is killed while a worker under it rewards; compared with a run of one process.
engine: the training of the engines' test, which samples ahead at two engines.
controller: a run with two workers is killed, and begun again by the same call; in serial mode its end is compared, and with
overlap what was finished is counted.
Each: what was lost, trained twice or too old, messages that name part and host, and processes that are left over.

    python -m benchmarks.cluster.kills [--kills 10] [--only raylet]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.asynchrony.kills import overlap, serial
from benchmarks.cluster.setting import HERE, ROLE, SIZE, described, episodes, said, trained, write
from keepworth.learning.collect.workers import RolloutWorkers
from keepworth.learning.learner_group import LeadingLearner
from keepworth.recipes.workers import Origin
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.learning.test_engine_pool import episodes as episodes_at_engines
from tests.learning.test_engine_pool import finished, sound, train_with_killed_engines, until
from tests.learning.test_pipeline_resume import STEPS
from tests.recipes.test_workers import OWN, Noting, run_of

FILE = "kills.json"
MARK = "KEEPWORTH_KILLS"
"""A variable of the environment: whoever has it was begun by this command."""


def left_over(within: float = 20.0) -> list[str]:
    """Workers, actors and raylets of this command that run although nobody needs them any more."""
    until_ = time.monotonic() + within
    while (found := list(_ours())) and time.monotonic() < until_:
        time.sleep(0.2)
    return found


def _ours() -> Iterator[str]:
    kinds = ("keepworth.cluster.process", "ray::", "raylet", "ModelServer")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            mine = f"{MARK}={os.environ[MARK]}".encode() in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mine and state != "Z" and any(kind in command for kind in kinds):
            yield command[:80]


class Striking(Noting):
    """After each step, until it has killed so often: kills at a random instant of the next one. strike: kills, or says that
    there is nobody; ready: waits until somebody is there."""

    def __init__(
        self, kills: int, chance: random.Random, strike: Callable[[], bool], ready: Callable[[], object]
    ) -> None:
        super().__init__()
        self.kills, self.done = kills, 0
        self._chance, self._strike, self._ready = chance, strike, ready
        self._timer: threading.Timer | None = None
        self._before = time.monotonic()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        took = time.monotonic() - self._before
        if self._timer is not None:
            self._timer.join()
        if self.done < self.kills:
            self._ready()
            self._timer = threading.Timer(took * self._chance.random(), self._struck)
            self._timer.start()
        self._before = time.monotonic()

    @property
    def deaths(self) -> int:
        """That were noticed. One that comes while nothing is played is, at the next step."""
        return sum("begin again" in each for each in self.notes)

    def _struck(self) -> None:
        self.done += self._strike()


def killed(pid: int) -> bool:
    os.kill(pid, signal.SIGKILL)
    return True


@contextmanager
def noted(kind: Any, name: str, after: Callable[[Any, Any], None]) -> Iterator[None]:
    """While it lasts, `after` is told of what a method was called on, and what it returned."""
    method = getattr(kind, name)

    def told(self: Any, *given: Any) -> Any:
        found = method(self, *given)
        after(self, found)
        return found

    setattr(kind, name, told)
    try:
        yield
    finally:
        setattr(kind, name, method)


def disturbed(part: str, steps: int, folder: Path, progress: Striking, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A run in which parts are killed, beside one that is left alone."""
    checkpoint = folder / "model"
    alone, _ = trained(checkpoint, folder / f"{part}-alone", steps=steps, **settings)
    run, notes = trained(checkpoint, folder / part, steps=steps, progress=progress, **settings)
    kept = episodes(run)
    groups = Counter((step, each.id.split("/")[0]) for step, each in kept)
    lags = [step - 1 - min(span.version for each in one.segments for span in each.spans) for step, one in kept]
    host = socket.gethostname()
    deaths = [each for each in notes if "begin again" in each or "begun again" in each]
    one, other = said(alone), said(run)
    return {
        "kills": progress.done,
        "steps": steps,
        "lost": SIZE["tasks_per_step"] * steps - len(groups),
        "trained_twice": len(groups)
        - len({index for _, index in groups})
        + len(kept)
        - len({each.id for _, each in kept}),
        "longest_lag": max(lags),
        "bound": 0,
        "deaths_noted": len(deaths),
        "deaths_that_name_part_and_host": sum(
            host in each and ("worker " in each or "learner " in each) for each in deaths
        ),
        "failed_episodes": len(list(run.episodes(arm="failed"))),
        "equal": {name: one[name] == other[name] for name in one},
        "an_example": deaths[0] if deaths else "",
    }


def workers(kills: int, folder: Path, chance: random.Random) -> dict[str, Any]:
    standing: list[Any] = []

    struck: list[int] = []  # a worker is taken for alive until its end was noticed

    def strike() -> bool:
        found = [each.pid for each in standing if each.alive and each.pid not in struck]
        if len(found) < 2:
            return False
        struck.append(chance.choice(found))
        return killed(struck[-1])

    # Two of the run that is left alone, two to begin with, and whoever took the place of another.
    striking = Striking(kills, chance, strike, lambda: until(lambda: len(standing) == 4 + striking.deaths, 90))
    with noted(RolloutWorkers, "_spawned", lambda _, worker: standing.append(worker)):
        return disturbed("worker", 3 * kills, folder, striking, {"workers": 2}) | {"left_over": left_over()}


def learners(kills: int, folder: Path, chance: random.Random) -> dict[str, Any]:
    group: list[LeadingLearner] = []
    struck: list[int] = []

    def strike() -> bool:
        pids = [each.pid for each in group[-1]._others if each.alive] if group else []  # type: ignore[attr-defined]
        if not pids or pids[0] in struck:
            return False
        struck.append(pids[0])
        return killed(pids[0])

    with noted(LeadingLearner, "_meet", lambda leading, _: group.append(leading)):
        striking = Striking(kills, chance, strike, lambda: None)
        return disturbed("learner", 2 * kills, folder, striking, {"learners": 2}) | {"left_over": left_over()}


class Ordering(Noting):
    """After one step, orders that whoever rewards next kills the raylet that it runs under."""

    def __init__(self, order: Path, after: int) -> None:
        super().__init__()
        self._order, self._after = order, after

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if step == self._after:
            self._order.write_text(f"raylet {os.getpid()}")


def raylets(kills: int, folder: Path, chance: random.Random) -> dict[str, Any]:
    """So many runs, in each of which a raylet is killed by a reward that runs under it, after a step that is drawn. There is room
    for one worker more than there are."""
    from ray.cluster_utils import Cluster

    checkpoint, recipe, steps = folder / "model", folder / "mine.py", 4
    recipe.write_text(OWN)
    origin, size = Origin(str(recipe)), {**SIZE, "steps": steps, "evaluate_every": steps}
    alone, _ = run_of(origin, checkpoint, folder / "alone", **size)
    expected, deaths, equal, lost, twice, failed = said(alone), list[str](), Counter[str](), 0, 0, 0
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(3):
            nodes.add_node(num_cpus=1)
        for number in range(kills):
            progress = Ordering(recipe.with_name("kill"), chance.randrange(1, steps))
            settings = {**size, "workers": 2, "cluster": "ray", "ray_address": nodes.address}
            run, notes = run_of(origin, checkpoint, folder / f"run-{number}", progress, **settings)
            deaths += [each for each in notes if "begin again" in each]
            equal.update(name for name, value in said(run).items() if value == expected[name])
            ids = [each.id for _, each in episodes(run)]
            lost += len(episodes(alone)) - len(set(ids))
            twice += len(ids) - len(set(ids))
            failed += len(list(run.episodes(arm="failed")))
            nodes.add_node(num_cpus=1)
            print(f"raylet: {number + 1} runs, {len(deaths)} deaths, equal: {dict(equal)}", flush=True)
    finally:
        nodes.shutdown()
    return {
        "kills": kills,
        "runs": kills,
        "steps": steps,
        "lost": lost,
        "trained_twice": twice,
        "longest_lag": 0,
        "bound": 0,
        "deaths_noted": len(deaths),
        "deaths_that_name_part_and_host": sum("worker " in each and "node " in each for each in deaths),
        "failed_episodes": failed,
        "equal": {name: equal[name] == kills for name in expected},
        "an_example": deaths[0] if deaths else "",
        "left_over": left_over(),
    }


def engines(kills: int, folder: Path, chance: random.Random) -> dict[str, Any]:
    path = folder / "engine"
    pool, urls, waiting, steps = train_with_killed_engines(path, kills)
    sound(path, steps)  # raises where anything was trained twice or begun anew, or is too old
    trained_ = {int(each.id.split("/")[0]) for _, each in episodes_at_engines(path)}
    left = [each for each in pool.told.lines if "left the pool" in each]
    back = [each for each in pool.told.lines if "is back in the pool" in each]
    return {
        "kills": len(urls),
        "steps": steps,
        "lost": len(finished(path) - trained_ - waiting),
        "trained_twice": 0,
        "longest_lag": max(
            step - 1 - min(span.version for each in one.segments for span in each.spans)
            for step, one in episodes_at_engines(path)
        ),
        "bound": 1,
        "deaths_noted": len(left),
        "deaths_that_name_part_and_host": sum(url in each for url, each in zip(urls, left, strict=True)),
        "came_back": len(back),
        "left_over": left_over(),
        "an_example": left[0],
    }


def controlled(folder: Path, mode: str) -> None:
    """A controller that can be killed, with two workers."""
    torch.set_num_threads(1)
    trained(folder.parent / "model", folder, steps=STEPS, workers=2, sampling=mode, max_staleness=2)


def controllers(kills: int, folder: Path, chance: random.Random) -> dict[str, Any]:
    found = {"serial": serial(kills, folder, chance, controlled)}
    return {**found, "overlap": overlap(kills, folder, chance, controlled, ROLE), "left_over": left_over()}


PARTS = {"worker": workers, "learner": learners, "engine": engines, "raylet": raylets, "controller": controllers}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--kills", type=int, default=10)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--only", choices=PARTS)
    options = asked.parse_args()
    torch.set_num_threads(1)
    os.environ[MARK] = str(os.getpid())
    path = HERE / FILE
    found: dict[str, Any] = json.loads(path.read_text()) if options.only and path.exists() else {}
    found |= {"machine": described(), "model": "tiny, random weights", "seed": options.seed, **SIZE}
    for part in [options.only] if options.only else PARTS:
        with tempfile.TemporaryDirectory() as folder:
            write_tiny_checkpoint(Path(folder) / "model")
            found[part] = PARTS[part](options.kills, Path(folder), random.Random(options.seed))
        print(part, found[part], flush=True)
        write(FILE, found)


if __name__ == "__main__":
    main()
