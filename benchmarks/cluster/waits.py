"""Who waits: threads of one process, processes of this machine or actors of Ray, on one trace; and two half-batches in flight.

The first part repeats the trace of `benchmarks.asynchrony.latency`: 64 episodes an update, each of which takes its time once,
log-normal with sigma 1. There are four kinds: the environment waits; the judge waits, as one behind HTTP does; the environment
computes in Python, which lets one thread of a process compute at a time; the judge computes in a library that leaves Python free
meanwhile. The median of a wait is 0.2 times an update's compute. What they compute is as much an update as the model's own.
Compute is counted in processor seconds, which a busy machine hardly changes. All but the reference sample ahead (overlap,
staleness 4); the arms differ in who takes the time: environments in rollout workers, judges in scorers. The model is tiny.

The second part is SmolLM2-135M with episodes of several turns: one whole batch an update, in two optimiser steps, beside two
half-batches in flight, of each of which an update is made. Tokens, updates and the groups in flight are as many.

Every round goes through all arms, in changing order, so that arms are compared under nearly the same load. Prints what it finds
and writes waits.json and halves.json.

python -m benchmarks.cluster.waits [--part waits|halves] [--rounds 5]     (with keepworth[train,ray])
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.asynchrony.setting import ROLE, World, learner_of, lognormal, run, share, small, tiny
from benchmarks.speed.setting import machine, ratio
from keepworth.environments.environment import in_thread
from keepworth.episodes import Episode, RewardTerm, SamplingParams, Segment, StopReason, Task
from keepworth.learning.collect.groups import RecordedContext
from keepworth.learning.collect.pipeline import Asynchrony, Pipeline, Staleness, synchronous
from keepworth.learning.collect.workers import Rollouts, RolloutWorkers
from keepworth.learning.objective.parts import GroupStd, Outcome
from keepworth.learning.objective.presets import preset, varied
from keepworth.learning.placement import ONE_CORE, Cluster, Needs, Part, Worker
from keepworth.recipes.scorers import Scorers

HERE = Path(__file__).parent
OBJECTIVE = varied(preset("areal"), advantage=Outcome("group", GroupStd()))
GROUPS, MEMBERS, TOKENS = 8, 8, 16
PADDING = "a few words to read first. " * 3
STEPS, SKIP = 12, 3
WORKERS = 2

Kind = Literal["environment waits", "judge waits", "environment computes in Python", "judge computes in a library"]
KINDS: tuple[Kind, ...] = (
    "environment waits",
    "judge waits",
    "environment computes in Python",
    "judge computes in a library",
)
Place = Literal["threads", "processes", "ray"]
REFERENCE = "a batch at once"
ARMS: dict[str, tuple[Place, int, float]] = {
    REFERENCE: ("threads", 0, 1.0),
    "threads": ("threads", 4, 4.0),
    f"{WORKERS} processes": ("processes", 4, 4.0),
    f"{WORKERS} actors of Ray": ("ray", 4, 4.0),
}


# -- what an episode waits for --------------------------------------------------------------------------------------------


def in_python(loops: int) -> None:
    total = 0
    for each in range(loops):
        total += each & 3


@cache
def _matrix() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((192, 192)).astype(np.float32)


def in_library(products: int) -> None:
    matrix = _matrix()
    for _ in range(products):
        matrix @ matrix


def rate(function: Any, units: int) -> float:
    """Units in a second of one processor."""
    function(units // 10)
    begun = time.thread_time()
    function(units)
    return units / (time.thread_time() - begun)


def spent(kind: Kind, wait: float, rate: float) -> float:
    """Takes so many seconds, and is worth nothing. rate: of what is computed, units a second."""
    if kind == "environment computes in Python":
        in_python(round(wait * rate))
    elif kind == "judge computes in a library":
        in_library(max(1, round(wait * rate)))
    else:
        time.sleep(wait)
    return 0.0


@dataclass(frozen=True, slots=True)
class Slow(World):
    """kind: who takes its time, and how. scorers: are the judge."""

    kind: Kind = "environment waits"
    rate: float = 0.0
    scorers: Scorers | None = None

    async def spend(self, wait: float, context: RecordedContext) -> None:
        if not self.kind.startswith("judge"):
            await context.call(spent, self.kind, wait, self.rate)
        elif self.scorers is None:
            await context.reward("judge", spent, self.kind, wait, self.rate)
        else:
            await self.scorers.terms(f"{context.group}/{context.member}", "")


class Playing(Rollouts):
    """What a rollout worker holds."""

    def __init__(self, kind: Kind, median: float, seed: int, rate: float) -> None:
        waits = lognormal(median, 1.0, seed)
        super().__init__(Slow(lambda *_: TOKENS, waits, padding=PADDING, kind=kind, rate=rate).rollout)

    def processor(self) -> float:
        return time.process_time()


class Judging:
    """What a scorer holds: in threads, as `keepworth.recipes.rollout_worker.RewardWorker` does."""

    def __init__(self, kind: Kind, median: float, seed: int, rate: float) -> None:
        self._kind, self._rate, self._waits = kind, rate, lognormal(median, 1.0, seed)

    async def terms(self, task: str, answer: str) -> list[RewardTerm]:
        group, member = map(int, task.split("/"))
        await in_thread(spent, self._kind, self._waits(group, member), self._rate)
        return []

    def processor(self) -> float:
        return time.process_time()


# -- who takes the time -----------------------------------------------------------------------------------------------


@dataclass
class Kept:
    """A cluster, and what it began."""

    inner: Cluster
    began: list[Worker] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.inner.address

    def spawn(self, part: Part, name: str, needs: Needs = ONE_CORE) -> Worker:
        worker = self.inner.spawn(part, name, needs)
        self.began.append(worker)
        return worker

    def hosts(self) -> Sequence[str]:
        return self.inner.hosts()

    def close(self) -> None:
        self.inner.close()

    def processors(self) -> float:
        return sum(float(each.call("processor").result(60.0)) for each in self.began)


@contextmanager
def pool(
    place: Place, given: dict[str, Any]
) -> Iterator[tuple[RolloutWorkers | None, Scorers | None, Callable[[], float]]]:
    """Workers for environments or scorers for judges, and the processor seconds that they have used."""
    if place == "threads":
        yield None, None, lambda: 0.0
        return
    inner: Cluster
    if place == "ray":
        from keepworth.cluster.ray import RayCluster

        inner = RayCluster()
    else:
        from keepworth.cluster.local import LocalCluster

        inner = LocalCluster()
    kept = Kept(inner)
    try:
        if given["kind"].startswith("judge"):
            part = Part("benchmarks.cluster.waits:Judging", given)
            yield None, Scorers(kept, part, WORKERS, print, ONE_CORE), kept.processors
        else:
            part = Part("benchmarks.cluster.waits:Playing", given)
            yield RolloutWorkers(kept, part, WORKERS, print), None, kept.processors
    finally:
        kept.close()


def one(arm: str, kind: Kind, median: float, seed: int, units: float, steps: int) -> dict[str, float]:
    place, staleness, depth = ARMS[arm]
    bound = Asynchrony(
        Staleness(GROUPS, staleness, depth),
        MEMBERS,
        mode="overlap" if staleness else "turns",
        slots=GROUPS * MEMBERS,
    )
    learner = learner_of(tiny(hidden=128), OBJECTIVE, 1e-4)
    given = {"kind": kind, "median": median, "seed": seed, "rate": units}
    with pool(place, given) as (workers, scorers, processors):
        world = Slow(
            lambda *_: TOKENS,
            lognormal(median, 1.0, seed),
            encode=learner.model.encode,
            padding=PADDING,
            kind=kind,
            rate=units,
            scorers=scorers,
        )
        load, before = os.getloadavg()[0], processors()
        watch = run(learner, world, bound, steps, partial(Pipeline, workers=workers))
        after = processors()
    steady = watch.steady(SKIP)
    return {
        "seconds": steady["seconds"],
        "cpu_seconds": steady["cpu_seconds"],
        "cpu_seconds_of_pool": (after - before) / steps,
        "learn_seconds": steady["seconds/learn"],
        "load_average": load,
    }


def waits(rounds: int, arms: Sequence[str], kinds: Sequence[Kind], steps: int) -> dict[str, Any]:
    learner = learner_of(tiny(hidden=128), OBJECTIVE, 1e-4)
    world = World(lambda index, member: TOKENS, None, encode=learner.model.encode, padding=PADDING)
    bound = Asynchrony(Staleness(GROUPS, 0, 1.0), MEMBERS, mode="turns", slots=GROUPS * MEMBERS)
    dry = run(learner, world, bound, SKIP + 6).steady(SKIP)
    work = dry["cpu_seconds"]
    rates = {
        "environment computes in Python": rate(in_python, 2_000_000),
        "judge computes in a library": rate(in_library, 2_000),
    }
    computing = work / (GROUPS * MEMBERS) / float(np.exp(0.5))  # all of them together are one update's compute
    found: dict[str, dict[str, list[dict[str, float]]]] = {kind: {arm: [] for arm in arms} for kind in kinds}
    for number in range(rounds):
        for kind in kinds:
            median = computing if kind in rates else 0.2 * work
            for arm in arms if number % 2 == 0 else arms[::-1]:
                each = one(arm, kind, median, number, rates.get(kind, 0.0), steps)
                found[kind][arm].append(each)
                print(
                    f"{kind:32} {arm:20} {each['seconds']:.3f} s, {each['cpu_seconds']:.3f} s of the processor, "
                    f"pool {each['cpu_seconds_of_pool']:.3f} s, load {each['load_average']:.1f}",
                    flush=True,
                )
    seconds = {
        kind: {arm: [each["seconds"] for each in runs] for arm, runs in of.items()} for kind, of in found.items()
    }
    return {
        "model": "tiny",
        "rounds": rounds,
        "steps": steps,
        "steps_measured": steps - SKIP,
        "episodes_per_step": GROUPS * MEMBERS,
        "tokens_per_episode": TOKENS,
        "pool": WORKERS,
        "compute_cpu_seconds_per_step": work,
        "seeds": list(range(rounds)),
        "wait_median_seconds": 0.2 * work,
        "computing_median_seconds": computing,
        "sigma": 1.0,
        "measured": found,
        "speedup": {
            kind: {arm: ratio(of[REFERENCE], of[arm]) for arm in arms if arm != REFERENCE}
            for kind, of in seconds.items()
            if REFERENCE in of
        },
        "beside_threads": {
            kind: {arm: ratio(of["threads"], of[arm]) for arm in arms if ARMS[arm][0] in ("processes", "ray")}
            for kind, of in seconds.items()
            if "threads" in of
        },
    }


# -- two half-batches ----------------------------------------------------------------------------------------------------


TURNS, ANSWER, ANSWERERS = 3, 6, 2
WHOLE, READY = "one whole batch", "one whole batch, ready first"
HALVES: dict[str, tuple[int, Asynchrony]] = {
    # name: (half-batches in an update's batch, how it is sampled)
    WHOLE: (2, synchronous(GROUPS, ANSWERERS)),
    READY: (
        2,
        Asynchrony(Staleness(GROUPS, 0, 1.0), ANSWERERS, mode="turns", slots=GROUPS * ANSWERERS),
    ),
    "two half-batches, in turns": (
        1,
        Asynchrony(Staleness(GROUPS // 2, 1, 2.0), ANSWERERS, mode="turns", slots=GROUPS * ANSWERERS),
    ),
    "two half-batches, overlapping": (
        1,
        Asynchrony(Staleness(GROUPS // 2, 1, 2.0), ANSWERERS, mode="overlap", slots=GROUPS * ANSWERERS),
    ),
}


@dataclass(frozen=True, slots=True)
class Conversation(World):
    """Several turns, after each of which the environment waits."""

    async def rollout(self, task: Task, context: RecordedContext) -> Episode:
        prompt, segments, drawn, waited = self.encode(task.input), [], (), 0.0
        for turn in range(TURNS):
            sample = await context.sample(prompt, SamplingParams(ANSWER))
            segments.append(
                Segment(ROLE, f"p{turn}", prompt, sample.ids, sample.logprobs, 1.0, sample.finish, sample.spans, "")
            )
            drawn = (*drawn, *sample.ids)
            prompt = (*prompt, *sample.ids, *self.encode(" Go on:"))
            if self.waits is not None:
                wait = self.waits(context.group, context.member * TURNS + turn)
                waited += wait
                await context.call(time.sleep, wait)
        return Episode(
            id=context.id,
            task=task.key,
            role=ROLE,
            question="",
            segments=tuple(segments),
            answer="",
            expected=(),
            rewards=(RewardTerm("share", share(int(task.key.split("/")[1]), drawn)),),
            stop=StopReason.COMPLETED,
            memory_snapshot="",
            policy_version=segments[0].spans[0].version,
            seconds={"environment": waited},
        )


def half(arm: str, waits: Any, updates: int, skip: int) -> dict[str, float]:
    """updates: of whole batches; each is two optimiser steps."""
    parts, bound = HALVES[arm]
    learner = learner_of(small(), OBJECTIVE, 1e-5, lora=True, minibatches=parts)
    world = Conversation(lambda index, member: ANSWER, waits, encode=learner.model.encode, padding=PADDING)
    steps, skipped = (updates, skip) if parts == 2 else (2 * updates, 2 * skip)
    watch = run(learner, world, bound, steps)
    steady, batches = watch.steady(skipped), 1 if parts == 2 else 2
    return {
        "seconds": batches * steady["seconds"],
        "cpu_seconds": batches * steady["cpu_seconds"],
        "drawn_tokens": batches * steady["drawn_tokens"],
        "episodes": batches * steady["episodes"],
        "optimiser_steps": 2.0,
    }


def halves(rounds: int, updates: int, skip: int) -> dict[str, Any]:
    work = half(WHOLE, None, skip + 2, skip)["cpu_seconds"]
    arms = list(HALVES)
    found: dict[str, list[dict[str, float]]] = {arm: [] for arm in arms}
    for number in range(rounds):
        for arm in arms if number % 2 == 0 else arms[::-1]:
            each = half(arm, lognormal(0.2 * work, 1.0, number), updates, skip)
            found[arm].append(each)
            print(
                f"{arm:32} {each['seconds']:.2f} s, {each['cpu_seconds']:.2f} s of the processor, "
                f"{each['drawn_tokens']:.0f} tokens",
                flush=True,
            )
    seconds = {arm: [each["seconds"] for each in runs] for arm, runs in found.items()}
    return {
        "model": "smollm2-135m-instruct",
        "rounds": rounds,
        "updates": updates,
        "updates_measured": updates - skip,
        "episodes_per_batch": GROUPS * ANSWERERS,
        "turns": TURNS,
        "tokens_per_turn": ANSWER,
        "compute_cpu_seconds_per_batch": work,
        "seeds": list(range(rounds)),
        "wait_median_seconds": 0.2 * work,
        "sigma": 1.0,
        "measured": found,
        "speedup": {arm: ratio(seconds[WHOLE], seconds[arm]) for arm in arms if arm != WHOLE},
        "beside_ready_first": {arm: ratio(seconds[READY], seconds[arm]) for arm in arms if HALVES[arm][0] == 1},
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--part", choices=("waits", "halves"), action="append")
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--steps", type=int, default=STEPS)
    asked.add_argument("--updates", type=int, default=5)
    asked.add_argument("--arms", nargs="+", type=int, help="of waits, by number")
    asked.add_argument("--kinds", nargs="+", type=int, help="of waits, by number")
    asked.add_argument("--no-file", action="store_true", help="print, and leave the files")
    options = asked.parse_args()
    torch.set_num_threads(1)
    setting = machine(1)
    for part in options.part or ("waits", "halves"):
        if part == "waits":
            arms = [list(ARMS)[each] for each in options.arms or range(len(ARMS))]
            kinds = [KINDS[each] for each in options.kinds or range(len(KINDS))]
            found = waits(options.rounds, arms, kinds, options.steps)
        else:
            found = halves(options.rounds, options.updates, 1)
        if not options.no_file:
            (HERE / f"{part}.json").write_text(json.dumps({"machine": setting, **found}, indent=2) + "\n")
        print(
            json.dumps(
                {key: found[key] for key in ("speedup", "beside_threads", "beside_ready_first") if key in found},
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
