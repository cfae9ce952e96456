"""Groups of other nodes in the place of a node's own: 8 local against 4 + 4 and 2 + 6, and what a liar among them does.

A swarm is three nodes. Each has a run folder, a tiny model (32 words, two layers), its own draws and its own order of tasks; they
begin from the same weights, as copies of one released model do. The task: 24 prompts, two tokens, 1 if both are of the prompt's
residue among 4, so 1 in 16 by chance and always 1 for who knows the rule. Groups have 8 members. What is measured is the share of
reward when drawing at temperature 1, 32 answers to each prompt, after every twentieth update.

Arms by (local + foreign) groups an update. Equal for 8 + 0, 4 + 4 and 2 + 6: updates, and groups that an update may train on.
Not equal: rollouts that a node samples itself (64, 32, 16 an update), and processor seconds. So there are besides: 4 + 0, which
samples what 4 + 4 samples; 8 + 0 with groups without a signal replaced by others (`refill`), because nodes publish none of those;
and what every arm has reached at equal processor seconds. In "4 + 4, a liar" the third node is a program that trains on nothing:
before each update it writes 16 groups of random answers that claim to be right, and copies of groups of the others.

A node's mean over a swarm is one value; swarms (seeds) are what is generalised over. Seeds are shared by the arms, so differences
are paired. Nodes take turns in one process: a node's processor seconds are those of its own sampling, replaying and learning.

The second part is SmolLM2-135M on word problems: processor seconds of a group that is sampled, and of one that is replayed.

python -m benchmarks.cluster.swarm [--part swarms|cost] [--seeds 9] [--steps 80]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.objectives.world import ROLE, WORDS, tiny
from benchmarks.speed.setting import machine
from keepworth.episodes import Episode, RewardTerm, SamplingParams, Segment, StopReason, Task
from keepworth.episodes.model import Tokens
from keepworth.evaluation.statistics import estimate, paired_gain
from keepworth.learning.collect.curriculum import Curriculum, drawn_task
from keepworth.learning.collect.groups import RecordedContext
from keepworth.learning.collect.pipeline import Pipeline, synchronous
from keepworth.learning.collect.shared_groups import Sharing, SharingTerms, digest_of
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.run_folder import RunFolder
from keepworth.models.adapter import unfreeze
from keepworth.recipes.settings import GROUP_RELATIVE

HERE = Path(__file__).parent
NODES, MEMBERS, LENGTH, PROMPTS, RESIDUES, RATE, EVERY = 3, 8, 2, 24, 4, 3e-3, 20
BASE = "8 + 0"

BESIDES = (("4 + 4", "4 + 0"), ("4 + 4", "8 + 0, refilled"), ("4 + 4, a liar", "4 + 4"))


@dataclass(frozen=True, slots=True)
class Arm:
    name: str
    local: int
    foreign: int
    refill: int = 0
    liar: bool = False


ARMS = (
    Arm(BASE, 8, 0),
    Arm("8 + 0, refilled", 8, 0, refill=2),
    Arm("4 + 4", 4, 4),
    Arm("2 + 6", 2, 6),
    Arm("4 + 0", 4, 0),
    Arm("4 + 4, a liar", 4, 4, liar=True),
)


def tasks() -> list[Task]:
    return [Task(f"residue/{number}", "residue", f"{number}", (), "none") for number in range(PROMPTS)]


def prompt_of(task: Task) -> Tokens:
    number = int(task.input)
    return (number % WORDS, 7, (11 + 5 * number) % WORDS, 2)


def right(task: Task, ids: Tokens) -> float:
    return float(all(each % RESIDUES == int(task.input) % RESIDUES for each in ids))


@dataclass(frozen=True, slots=True)
class Residues:
    """The `Episodes` of one node."""

    seed: int

    def task(self, group: int) -> Task:
        return drawn_task(tasks(), None, self.seed, group)

    async def rollout(self, task: Task, context: RecordedContext) -> Episode:
        prompt = prompt_of(task)
        sample = await context.sample(prompt, SamplingParams(LENGTH))
        segment = Segment(ROLE, "p", prompt, sample.ids, sample.logprobs, 1.0, sample.finish, sample.spans, "")
        return Episode(
            id=context.id,
            task=task.key,
            role=ROLE,
            question=task.input,
            segments=(segment,),
            answer=" ".join(map(str, sample.ids)),
            expected=(),
            rewards=(RewardTerm("right", right(task, sample.ids)),),
            stop=StopReason.COMPLETED,
            memory_snapshot="",
            policy_version=sample.spans[0].version,
        )

    def evaluate(self, step: int) -> None:
        """See `Node.score`."""


class Node:
    """One run; `update` is the body of the trainer's loop, so that nodes can take turns."""

    def __init__(self, arm: Arm, root: Path, number: int, seed: int, stack: ExitStack) -> None:
        model = tiny(seed)
        self.learner = Learner(model, unfreeze(model), GROUP_RELATIVE, Optimisation(learning_rate=RATE), ROLE)
        played = Residues(100 * seed + number)
        self.run = stack.enter_context(RunFolder.create(root / f"node-{number}", {"arm": arm.name}))
        curriculum = Curriculum(arm.local, refill=arm.refill)
        settings = synchronous(arm.local, MEMBERS, seed=played.seed)
        self.collector: Any = Pipeline(self.run, self.learner, played, settings, curriculum=curriculum)
        if arm.foreign:
            terms = SharingTerms(arm.foreign, MEMBERS, played.seed)
            shared = root / "shared"
            self.collector = Sharing(self.collector, self.run, shared, model, played.rollout, tasks(), terms)
        stack.callback(self.collector.close)
        self.collector.begin(None, 0, 0)
        self.seconds, self.sampled, self.foreign = 0.0, 0, 0
        self.curve: list[tuple[float, float]] = [(0.0, self.score(seed))]

    def update(self, step: int) -> None:
        begun = time.process_time()
        collected = self.collector.collect(step)
        if collected.groups:
            self.learner.update(collected.groups)
        self.collector.publish()
        self.seconds += time.process_time() - begun
        foreign = int(collected.metrics.get("shared/foreign", 0))
        sampled = collected.metrics.get("curriculum/sampled_groups", len(collected.groups) - foreign)
        self.foreign += foreign
        self.sampled += int(sampled) * MEMBERS

    def score(self, seed: int) -> float:
        prompts = [prompt_of(task) for task in tasks()]
        drawn = self.learner.model.sample(prompts, SamplingParams(LENGTH, n=32, seed=10_000 + seed))
        every = [right(task, each.ids) for task, samples in zip(tasks(), drawn, strict=True) for each in samples]
        return statistics.fmean(every)

    def journal(self) -> tuple[Counter[str], Counter[str]]:
        """Groups of whom were trained on; and why others were refused, without the numbers."""
        rows = self.run.shared()
        trained = Counter("liar" if row["node"] == "liar" else "nodes" for row in rows if row["what"] == "trained")
        kinds = ("nothing to learn", "the same answers as", "far below chance", "say the same")
        refused = Counter(
            next((kind for kind in kinds if kind in row["reason"]), row["reason"])
            for row in rows
            if row["what"] == "refused"
        )
        return trained, refused


class Liar:
    """Writes what looks like groups: random answers that are claimed to be right, and groups of others under its own name."""

    def __init__(self, root: Path, seed: int) -> None:
        self._shared, self._draw, self._count = root / "shared", random.Random(seed), 0
        self._folder = self._shared / "liar"
        self._folder.mkdir(parents=True)

    def write(self) -> None:
        theirs = sorted(self._shared.glob("node-*/*.json"))
        if not theirs:
            return
        pattern = json.loads(self._draw.choice(theirs).read_text())
        for _ in range(16):
            number = self._draw.randrange(PROMPTS)
            members = [
                {"calls": [[self._draw.randrange(WORDS) for _ in range(LENGTH)]], "reward": 1.0} for _ in range(MEMBERS)
            ]
            self._leave({**pattern, **_task(number), "members": members})
        for path in self._draw.sample(theirs, min(4, len(theirs))):
            self._leave(json.loads(path.read_text()))
        for old in sorted(self._folder.iterdir(), key=lambda each: int(each.stem))[:-64]:
            old.unlink()

    def _leave(self, record: dict[str, Any]) -> None:
        self._count += 1
        own = {**record, "node": "liar", "group": self._count, "time": time.time()}
        (self._folder / f"{self._count}.json").write_text(json.dumps({**own, "digest": digest_of(own)}))


def _task(number: int) -> dict[str, str]:
    from keepworth.learning.collect.shared_groups import task_digest

    task = tasks()[number]
    return {"task": task.key, "task_digest": task_digest(task)}


def swarm(arm: Arm, seed: int, steps: int) -> dict[str, Any]:
    """Means over the nodes of one swarm."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        root = Path(folder)
        nodes = [Node(arm, root, number, seed, stack) for number in range(NODES - arm.liar)]
        liar = Liar(root, seed) if arm.liar else None
        for step in range(steps):
            if liar is not None:
                liar.write()
            for node in nodes:
                node.update(step)
            if (step + 1) % EVERY == 0:
                for node in nodes:
                    node.curve.append((node.seconds, node.score(seed)))
        journals = [node.journal() for node in nodes]
    return {
        "curve": [statistics.fmean(node.curve[k][1] for node in nodes) for k in range(len(nodes[0].curve))],
        "seconds": [statistics.fmean(node.curve[k][0] for node in nodes) for k in range(len(nodes[0].curve))],
        "each": [node.curve[-1][1] for node in nodes],
        "sampled": statistics.fmean(node.sampled for node in nodes),
        "foreign": statistics.fmean(node.foreign for node in nodes),
        "trained": dict(sum((trained for trained, _ in journals), Counter[str]())),
        "refused": dict(sum((refused for _, refused in journals), Counter[str]())),
    }


def at(found: dict[str, Any], seconds: float) -> float:
    """The share of reward that a swarm's nodes had after so many processor seconds, between measurements."""
    return float(np.interp(seconds, found["seconds"], found["curve"]))


def summed(results: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row for each arm; the budget of processor seconds is, seed by seed, that of the arm that needs the fewest."""
    needed = [min(results[arm.name][k]["seconds"][-1] for arm in ARMS) for k in range(len(results[BASE]))]
    final = {arm.name: [each["curve"][-1] for each in results[arm.name]] for arm in ARMS}
    area = {arm.name: [statistics.fmean(each["curve"]) for each in results[arm.name]] for arm in ARMS}
    equal = {
        arm.name: [at(each, seconds) for each, seconds in zip(results[arm.name], needed, strict=True)] for arm in ARMS
    }
    rows = []
    for arm in ARMS:
        own = results[arm.name]
        row: dict[str, Any] = {"arm": arm.name}
        for name, values in (("final", final), ("area", area), ("equal_seconds", equal)):
            row[name] = _interval(estimate(values[arm.name]))
            row[f"{name}_gain"] = _interval(paired_gain(values[arm.name], values[BASE])) if arm.name != BASE else None
        row |= {
            "sampled": statistics.fmean(each["sampled"] for each in own),
            "foreign": statistics.fmean(each["foreign"] for each in own),
            "seconds": statistics.fmean(each["seconds"][-1] for each in own),
            "trained": dict(sum((Counter(each["trained"]) for each in own), Counter[str]())),
            "refused": dict(sum((Counter(each["refused"]) for each in own), Counter[str]())),
        }
        rows.append(row)
    return rows


def _interval(found: Any) -> dict[str, float]:
    return {"mean": found.mean, "low": found.low, "high": found.high, "n": found.n}


def compared(rows: dict[str, list[dict[str, Any]]], one: str, other: str) -> dict[str, float]:
    """Final, one arm against another than the base."""
    return _interval(paired_gain(*([each["curve"][-1] for each in rows[name]] for name in (one, other))))


def swarms(seeds: Sequence[int], steps: int) -> Iterator[dict[str, Any]]:
    """What is known after each seed from the third on."""
    results: dict[str, list[dict[str, Any]]] = {arm.name: [] for arm in ARMS}
    for seed in seeds:
        for arm in random.Random(seed).sample(ARMS, len(ARMS)):
            results[arm.name].append(swarm(arm, seed, steps))
        final = ", ".join(f"{name} {own[-1]['curve'][-1]:.3f}" for name, own in results.items())
        print(f"seed {seed}: {final}", flush=True)
        if len(results[BASE]) < 3:
            continue
        yield {
            "nodes": NODES,
            "members": MEMBERS,
            "prompts": PROMPTS,
            "learning_rate": RATE,
            "objective": GROUP_RELATIVE.name,
            "steps": steps,
            "seeds": list(seeds)[: len(results[BASE])],
            "chance": RESIDUES**-LENGTH,
            "untrained": statistics.fmean(each["curve"][0] for each in results[BASE]),
            "oracle": 1.0,
            "arms": summed(results),
            "beyond": {f"{one} beyond {other}": compared(results, one, other) for one, other in BESIDES},
            "curves": {
                name: [[each["curve"], each["seconds"], each["each"]] for each in own] for name, own in results.items()
            },
            "machine": machine(1),
        }


# What a group costs where the model is not tiny.


def costs(rounds: int) -> dict[str, Any]:
    """SmolLM2-135M in bfloat16: two runs of the recipe arithmetic, of which the second takes what the first published."""
    from keepworth.learning.watch.progress import SilentProgress
    from keepworth.methods.recipes import arithmetic
    from keepworth.recipes.interactive import Playing, rollout_of
    from keepworth.recipes.training import prepared

    config = arithmetic.Config(precision="bf16", threads=1, tasks_per_step=4, foreign=0)
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        made: list[Sharing] = []
        for name in ("first", "second"):
            run = stack.enter_context(RunFolder.create(Path(folder) / name, {}))
            system = arithmetic.system(config)
            model, learner = stack.enter_context(prepared(config, system.objective, system.role, run, SilentProgress()))
            seeded = config.model_copy(update={"seed": len(made)})
            playing = Playing(seeded, system, run, model, SilentProgress())
            pipeline = Pipeline(run, learner, playing, synchronous(4, config.group_size, seed=len(made)))
            terms = SharingTerms(4 * len(made), config.group_size, seeded.seed)
            rollout = rollout_of(seeded, system, model)
            sharing = Sharing(pipeline, run, Path(folder) / "shared", model, rollout, system.train, terms)
            stack.callback(sharing.close)
            sharing.begin(None, 0, 0)
            made.append(sharing)
        giver, taker = made
        for step in range(rounds):
            giver.collect(step)
            giver.publish()
            begun = time.process_time()
            own = taker._inner.collect(step)
            sampled = time.process_time()
            groups, refused = taker._foreign(step + 1, [])
            replayed = time.process_time()
            taker.publish()
            found.append(
                {
                    "sampled": len(own.groups),
                    "seconds_sampled": sampled - begun,
                    "replayed": len(groups) + sum(refused.values()),
                    "seconds_replayed": replayed - sampled,
                }
            )
            print(found[-1], flush=True)
    own_cost = [each["seconds_sampled"] / each["sampled"] for each in found]
    foreign_cost = [each["seconds_replayed"] / each["replayed"] for each in found if each["replayed"]]
    return {
        "model": config.model,
        "members": config.group_size,
        "max_tokens": config.max_tokens,
        "rounds": found,
        "seconds_sampled": _interval(estimate(own_cost)),
        "seconds_replayed": _interval(estimate(foreign_cost)),
        "machine": machine(1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("swarms", "cost"))
    parser.add_argument("--seeds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    for name, result in _parts(options):
        (HERE / name).write_text(json.dumps(result, indent=2) + "\n")


def _parts(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    if options.part != "cost":
        for result in swarms(range(options.seeds), options.steps):
            yield "swarm.json", result
    if options.part != "swarms":
        yield "swarm_cost.json", costs(options.rounds)


if __name__ == "__main__":
    main()
