"""What each constant of the default policy is worth: its ablation, halved, doubled and off, in small worlds.

    python -m benchmarks.memory.default_constants --data DATA --json benchmarks/memory/default_constants.json

A constant is every number, or row of numbers, that `methods/policies/default/constants.py` gives a name in capitals; the list is
read from there. The policy is made again from its sources with one of them changed. `OFF` has the values that turn off what a
constant governs, where there is one.

Two sets of worlds. Constants were chosen, and parts removed, by the *tuning* worlds alone. The *test* worlds have other texts,
other numbers, rules of the held-out split and the test half of BANKING77, and were looked at afterwards.

    notes      one question, two notes, of which one is right more often; it may be far behind in the search
    drift      the same, and the two change places half way
    traps      questions that come back, each with a right note and one that repeats its words; a tenth of the rewards are false
    slates     three of five notes are shown, and the agent goes by the first
    rare       rewards are 1 by chance in 3 of 100 tasks, whatever was shown: what is lost is success
    banking    20 questions of a bank's customers, with true rewards
    people     three people, for each of whom another note of the same three is right
    agents     streams of tasks of agents that act: `near-miss`, `tool-graph-end`, `key-door`

Success is in points of 100. A difference is paired by seed: the same tasks, draws and noise. What is reported for each change is
the mean difference over all worlds of a set with its 95 % interval over seeds, and the world that loses and the one that gains
most. A change that alters no single trial with the first seed is not run with more.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.memory.engine import machine
from benchmarks.memory.learning import Banking
from benchmarks.record import arguments, save
from keepworth import Memory
from keepworth.base import statistics
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.slots import Policy
from keepworth.methods.policies import default as default_policy
from keepworth.methods.policies.default import constants as declared
from keepworth.worlds.simulated import LinearAgent, TabularAgent
from keepworth.worlds.stream import run_stream
from keepworth.worlds.streams import open_stream

SETS = ("tuning", "test")
RUNS = 8
"""Runs of two notes for each seed."""
SCREEN = 1
"""Number of seeds after which a change that altered no trial is left."""
Value = float | tuple[float, ...]
Make = Callable[[], Policy]
World = Callable[[Make, int], list[float]]
OFF: dict[str, Value] = {
    "KEEP": 1.0,
    "DISCOUNT": 1.0,
    "OVERALL": 1e9,
    "HOPE": 0.0,
    "SURE": 0.001,
    "EXPLORE": 0.0,
    "LASTING": 0.0,
    "FADE": 1e9,
}
"""Values that turn off what a constant governs."""


# The constants, and the policy with one of them changed.


def constants() -> dict[str, Value]:
    return {name: value for name, value in vars(declared).items() if name.isupper()}


def changes() -> Iterator[tuple[str, str, Value]]:
    """Return (constant, what is done to it, its value then) of every ablation. Of a factor just below 1, what it takes off is
    halved and doubled."""
    for name, value in constants().items():
        for how, factor in (("halved", 0.5), ("doubled", 2.0)):
            if isinstance(value, tuple):
                yield name, how, tuple(number * factor for number in value)
            elif isinstance(value, int):
                yield name, how, max(1, round(value * factor))
            else:
                yield name, how, round(1.0 - (1.0 - value) * factor if 0.5 < value < 1.0 else value * factor, 9)
        if name in OFF:
            yield name, "off", OFF[name]


def changed_policy(change: tuple[str, str, Value] | None, folder: Path) -> ModuleType:
    """Make the policy's package from its sources, with one constant changed."""
    name, how, value = change or ("USUAL", "", 0)
    package = f"default_{name}_{how}".lower()
    if package not in sys.modules:
        (folder / package).mkdir(exist_ok=True)
        for path in Path(default_policy.__file__).parent.glob("*.py"):
            text = path.read_text(encoding="utf-8").replace(default_policy.__name__, package)
            if path.stem == "constants":
                text += f"\n{name} = {value!r}\n"
            (folder / package / path.name).write_text(text, encoding="utf-8")
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
    return importlib.import_module(package)


# Worlds. Each returns the success of every task.


def two_notes(
    make: Make,
    seed: int,
    *,
    near: str,
    far: str,
    question: str,
    chances: tuple[float, float],
    tasks: int,
    turn: int = 0,
) -> list[float]:
    """The note `far` behind in the search is right with the larger of two chances, until the two change places. A run depends on
    few lucky rewards, so that each seed has several."""
    success = list[float]()
    for run in range(RUNS):
        generator = np.random.default_rng([21, seed, run])
        with Memory(encoder="hashing", policy=make, seed=RUNS * seed + run) as memory:
            memory.add_many([near, far])
            for task in range(tasks):
                hits = memory.search(question, top_k=1)
                better = (hits[0].text == far) != bool(turn and task >= turn)
                draw = generator.random()
                memory.reward(hits.decision, float(draw < chances[not better]))
                success.append(float(better))
    return success


def traps(
    make: Make, seed: int, *, things: Sequence[str], false: float, rounds: int, rare: bool = False
) -> list[float]:
    """Every thing has a right note, and every second one a wrong note that repeats the question."""
    generator, success = np.random.default_rng([22, seed]), list[float]()
    with Memory(encoder="hashing", policy=make, seed=seed) as memory:
        for number, thing in enumerate(things):
            memory.add(f"{thing}: call desk {number}.")
            if number % 2:
                memory.add(f"{thing}, {thing}: nobody knows.")
        for _ in range(rounds * len(things)):
            index = int(generator.integers(len(things)))
            hits = memory.search(f"how do I {things[index]}", top_k=2)
            right = hits[0].text == f"{things[index]}: call desk {index}."
            draw = generator.random()
            reward = float(draw < 0.03) if rare else float(right != (draw < false))
            memory.reward(hits.decision, reward)
            success.append(float(right))
    return success


def slates(make: Make, seed: int, *, items: int, top_k: int, tasks: int) -> list[float]:
    """One of several notes is right; the agent goes by the first of those that are shown."""
    generator, success = np.random.default_rng([24, seed]), list[float]()
    words = [f"word{int(number)}" for number in generator.permutation(1000)[:items]]
    with Memory(encoder="hashing", policy=make, seed=seed) as memory:
        ids = [memory.add(f"how to mend the bicycle with {' '.join(words[: at + 1])}").id for at in range(items)]
        right = ids[int(generator.integers(items))]
        for _ in range(tasks):
            hits = memory.search("how do I mend the bicycle", top_k=top_k)
            success.append(float(hits[0].id == right))
            memory.reward(hits.decision, success[-1])
    return success


def people(make: Make, seed: int, *, names: Sequence[str], things: Sequence[str], rounds: int) -> list[float]:
    """For each of several people another action is right, which an agent takes if it is advised and else draws."""
    generator, success = np.random.default_rng([25, seed]), list[float]()
    ways = [f"way {number}" for number in range(4)]
    with Memory(encoder="hashing", policy=make, seed=seed) as memory:
        for _ in range(rounds):
            for thing in things:
                for number, name in enumerate(names):
                    with memory.episode(f"how do I {thing}", by=name) as episode:
                        hits = episode.search(f"how do I {thing}", actions=ways)
                        best = [action for action, sign, _ in hits.advice if sign > 0]
                        action = best[0] if best else str(generator.choice(ways))
                        episode.act(action)
                        success.append(float(action == ways[number]))
                        episode.reward(success[-1], by=name)
    return success


def agents(make: Make, seed: int, *, family: str, split: str, length: int, data: Path) -> list[float]:
    """A stream of tasks of an agent that acts."""
    stream = open_stream(family, split=split, seed=seed, order="random", length=length, data=data)
    agent = TabularAgent() if stream.long_term else LinearAgent()
    success: list[float] = run_stream(stream, make(), agent, HashedWords(), seed=seed).success.tolist()
    return success


def banking(make: Make, seed: int, *, half: str, rewards: str, tasks: int, data: Path, vectors: Path) -> list[float]:
    bank = Banking(data / "banking77", vectors, half)
    success: list[float] = bank.run(make, seed, 20, tasks, rewards).tolist()
    return success


FAMILIES = ("near-miss", "tool-graph-end", "key-door")
OFFICE = ("reset the router", "renew the passport", "book the meeting room", "order new toner", "open the archive")
HOUSE = ("water the plants", "feed the cat", "start the heating", "call the plumber", "paint the fence")


def worlds(which: str, data: Path, vectors: Path) -> dict[str, World]:
    """Return the worlds of a set."""
    tuning = which == "tuning"
    near, far = ("Open the shed with the key.", "Ask Eva: she was there.") if tuning else ("Lift the lid.", "Try Bo.")
    level = f"{near[:-1]} or else push."
    question = "how do I open the shed with the key" if tuning else "how do I lift the lid"
    notes = partial(two_notes, near=near, question=question, tasks=80)
    strong, weak = ((0.75, 0.25), (0.65, 0.35)) if tuning else ((0.8, 0.2), (0.6, 0.4))
    things = OFFICE if tuning else HOUSE
    made: dict[str, World] = {
        "notes, a small difference": partial(notes, far=level, chances=weak),
        "notes, far behind": partial(notes, far=far, chances=strong),
        "drift": partial(notes, far=level, chances=strong, turn=50),
        "traps": partial(traps, things=things, false=0.1, rounds=16),
        "rare": partial(traps, things=things, false=0.0, rounds=16, rare=True),
        "slates": partial(slates, items=5 if tuning else 6, top_k=3, tasks=60),
        "people": partial(people, names=("ana", "bo", "cy"), things=things[:3], rounds=12),
    }
    for family in FAMILIES:
        split = "dev" if tuning else "held-out"
        length = 40 if family == "near-miss" else 20
        made[family] = partial(agents, family=family, split=split, length=length, data=data)
    half = "train" if tuning else "test"
    made["banking"] = partial(banking, half=half, rewards="true", tasks=80, data=data, vectors=vectors)
    return made


# Measuring.


def measure(
    task: tuple[tuple[str, str, Value] | None, int], which: str, data: Path, folder: Path
) -> dict[str, list[float]]:
    """Return the success of every trial of one seed, by world."""
    change, seed = task
    make = changed_policy(change, folder).default
    return {name: world(make, seed) for name, world in worlds(which, data, folder / "vectors").items()}


def row(usual: list[dict[str, list[float]]], changed: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Return the difference that a change makes, in points of success, over all worlds and where it is largest."""
    gains = np.array(
        [
            [100.0 * (float(np.mean(after[name])) - float(np.mean(before[name]))) for name in before]
            for before, after in zip(usual, changed, strict=False)
        ]
    )
    record: dict[str, Any] = {"trials": "changed", **_interval(gains.mean(axis=1))}
    if changed == usual[: len(changed)]:
        record["trials"] = "none changed"
        return record
    names, by_world = list(usual[0]), gains.mean(axis=0)
    for key, at in (("worst", int(by_world.argmin())), ("best", int(by_world.argmax()))):
        record[key] = {"world": names[at], **_interval(gains[:, at])}
    return record


def _interval(values: npt.NDArray[np.float64]) -> dict[str, float]:
    ends = statistics.interval(values.tolist())
    mean = round(float(values.mean()), 2)
    return {"mean": mean, "low": round(ends.low, 2), "high": round(ends.high, 2), "n": len(values)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder that has banking77")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=(), metavar="CONSTANT", help="these constants alone")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    options = parser.parse_args()
    listed = [change for change in changes() if not options.only or change[0] in options.only]
    record: dict[str, Any] = {
        "command": "python -m benchmarks.memory.default_constants --data DATA "
        f"--seeds {options.seeds} --sets {' '.join(options.sets)}",
        "machine": machine(),
        "constants": constants(),
    }
    with tempfile.TemporaryDirectory() as temporary, ProcessPoolExecutor(options.workers) as pool:
        for which in options.sets:
            run = partial(measure, which=which, data=options.data, folder=Path(temporary))
            usual = [run((None, 0))]  # alone, so that the vectors are there for the others
            usual += pool.map(run, [(None, seed) for seed in range(1, options.seeds)])
            means = {name: round(100.0 * float(np.mean([run[name] for run in usual])), 1) for name in usual[0]}
            record[which] = {"success": means, "changes": {}}
            print(means, file=sys.stderr, flush=True)
            for change in listed:
                scores = list(pool.map(run, [(change, seed) for seed in range(min(SCREEN, options.seeds))]))
                if scores != usual[:SCREEN]:
                    scores += pool.map(run, [(change, seed) for seed in range(SCREEN, options.seeds)])
                record[which]["changes"][" ".join(change[:2])] = {"value": change[2], **row(usual, scores)}
                print(change, json.dumps(row(usual, scores)), file=sys.stderr, flush=True)
                save(options.json, record)


if __name__ == "__main__":
    main()
