"""Does reward improve the model, the memory, or both? The arms of `text_world`, side by side, over houses nobody trained in.

    python -m benchmarks.text_world.run --seeds 3 --runs runs/text_world --out benchmarks/text_world/text_world.json
    python -m benchmarks.text_world.run --headroom

Three runs a seed, alike but for `policy`: no memory, plain search (`exprag`) and a memory that learns (`advantage`). Each is
measured before anything is learned (frozen), after the warm start and after reinforcement, in the same houses, so nine arms
come of them; oracles and what is read without memory stand beside. All begin from the same warm start and play as many episodes.
Intervals are over seeds and houses, paired between arms. A run that was stopped goes on. `--headroom` says first what there is to
gain: chance, simple rules that follow memory, and a right action at every step.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.environments.scene import PROGRESS, SUCCESS, Stream, StreamTask
from keepworth.episodes.episode import Episode
from keepworth.learning.run_folder import RunFolder, stored_episodes
from keepworth.methods.recipes.text_world import MAX_TURNS, house_of
from keepworth.recipes.interactive import term_value

HERE = Path(__file__).parent
POLICIES = {"no memory": "none", "plain search": "exprag", "learning memory": "advantage"}
STATES = {"frozen": "untrained", "warm start": "imitated", "trained": "trained"}
BOTH = "trained, learning memory"
SETTINGS = ("threads=1", "precision=bf16", "steps=16", "evaluate_every=16", "tasks=24", "test_houses=5", "dev_houses=2")
"""Of every run, beside the recipe's defaults, which were chosen with seed 0: nine runs take about three hours of one core."""
RULES = ("exprag", "nearest-mean", "kernel-mean", "memrl", "advantage")


def right_actions(stream: Stream) -> dict[tuple[str, tuple[str, ...]], str]:
    """A right action of every decision that right actions lead to, by situation and possible actions."""
    found: dict[tuple[str, tuple[str, ...]], str] = {}

    async def follow(task: StreamTask) -> None:
        environment = task.environment()
        await environment.reset(task.task, 0)
        for _ in range(MAX_TURNS):
            scene = environment.scene
            if not scene.right or (await environment.step(min(scene.right))).stop is not None:
                found[scene.text, scene.actions] = min(scene.right, default="")
                return
            found[scene.text, scene.actions] = min(scene.right)

    for task in stream.tasks:
        asyncio.run(follow(task))
    return found


def arms_of(folders: dict[str, Path]) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """(arm, success in the tasks of each house, in order) of one seed. folders: of the runs, by memory."""
    controls = (
        (f"{state}, oracle", f"oracle_{when}" if when != "trained" else "oracle") for state, when in STATES.items()
    )
    for memory, folder in folders.items():
        own = [(f"{state}, {memory}", when) for state, when in STATES.items()]
        if memory != "no memory":
            own.append((f"trained with {memory}, read without", "no_memory"))
        for arm, when in (*own, *(controls if memory == "learning memory" else ())):
            houses: dict[str, dict[int, float]] = {}
            for stored in stored_episodes(folder, arm=f"new_houses-{when}"):
                house, place = house_of(stored.episode.task), int(stored.episode.task.rpartition("/")[2])
                houses.setdefault(house, {})[place] = term_value(stored.episode, SUCCESS)
            if houses:
                yield arm, {house: [values[place] for place in sorted(values)] for house, values in houses.items()}


def seen(episode: Episode) -> Iterator[tuple[str, bool]]:
    """Of each decision: whether memory showed, of the thing in hand, an action that worked, failures alone ("failed") or nothing;
    and whether what was done had failed before, by what was shown."""
    texts = {shown.item: shown.text for shown in episode.shown}
    searches = [each for each in episode.decisions if each.kind == "search"]
    for search, segment in zip(searches, episode.segments, strict=False):  # the last may be cut off
        about = [texts[item] for item in search.chosen if texts.get(item, "").startswith(f"{segment.state} -> ")]
        outcomes = [text.removeprefix(f"{segment.state} -> ").rpartition(": ") for text in about]
        state = "worked" if any(said == "it worked" for *_, said in outcomes) else "failed" if about else "nothing"
        yield state, segment.text.strip() in [action for action, _, said in outcomes if said != "it worked"]


def right(episode: Episode) -> list[float]:
    """Of each decision: whether it was right."""
    return [term.value for term in episode.rewards if term.name == PROGRESS]


def read(folders: Sequence[Path], when: str) -> dict[str, dict[str, float]]:
    """What was done, by what memory showed (see `seen`): share of such decisions, share of them that were right, and share that
    did again what had failed."""
    found: dict[str, list[tuple[float, bool]]] = {"worked": [], "failed": [], "nothing": []}
    for episode in (each.episode for folder in folders for each in stored_episodes(folder, arm=f"new_houses-{when}")):
        for (state, again), value in zip(seen(episode), right(episode), strict=False):
            found[state].append((value, again))
    total = sum(map(len, found.values()))
    return {
        state: {
            "share": len(each) / total,
            "right": float(np.mean([value for value, _ in each])),
            "again": float(np.mean([again for _, again in each])),
        }
        for state, each in found.items()
        if each
    }


def trained_on(folders: Sequence[Path]) -> dict[str, dict[str, float]]:
    """Of the groups of reinforcement, by what memory showed at the first decision: how many, and the share in which that decision
    was wrong in every sample, so that no reward says what would have been right."""
    found: dict[str, list[bool]] = {}
    for folder in folders:
        groups: dict[tuple[int, str], list[Episode]] = {}
        for stored in stored_episodes(folder, arm="train"):
            groups.setdefault((stored.step, stored.episode.task), []).append(stored.episode)
        for group in groups.values():
            state = next((state for state, _ in seen(group[0])), None)
            if state is not None:
                found.setdefault(state, []).append(not any(sum(right(episode)[:1]) for episode in group))
    return {state: {"groups": len(each), "all_wrong": float(np.mean(each))} for state, each in found.items()}


def spent(folder: Path) -> float:
    """Hours from a run's begin to its last measurement."""
    run = RunFolder.open(folder)
    return (max(row["time"] for row in run.evals()) - (run.created or math.nan)) / 3600


def interval(by_seed: list[list[float]]) -> tuple[float, float, float]:
    """Mean, and its 95 % interval: seeds are drawn again, and houses within them, as the houses of a seed share a training."""
    generator = np.random.default_rng(0)
    draws = []
    for _ in range(10_000):
        picked = [by_seed[int(place)] for place in generator.integers(len(by_seed), size=len(by_seed))]
        draws.append(np.mean([np.mean(generator.choice(values, size=len(values))) for values in picked]))
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(np.mean([np.mean(values) for values in by_seed])), float(low), float(high)


def summary(by_arm: dict[str, list[dict[str, list[float]]]]) -> list[dict[str, Any]]:
    """Mean success of each arm with its interval, and against the arm in which both learn,
    house by house. by_arm: success in the tasks of each house, one mapping per seed."""
    means = {
        arm: [{house: float(np.mean(values)) for house, values in houses.items()} for houses in seeds]
        for arm, seeds in by_arm.items()
    }
    both, rows = means.get(BOTH, []), []
    for arm, seeds in means.items():
        mean, low, high = interval([list(houses.values()) for houses in seeds])
        row = {
            "arm": arm,
            "success": mean,
            "low": low,
            "high": high,
            "houses": sum(map(len, seeds)),
            "seeds": len(seeds),
        }
        if arm != BOTH and len(both) == len(seeds):
            paired = [
                [one[house] - value for house, value in houses.items()] for one, houses in zip(both, seeds, strict=True)
            ]
            row |= dict(zip(("both_minus", "both_minus_low", "both_minus_high"), interval(paired), strict=True))
        rows.append(row)
    return rows


def headroom(houses: int, tasks: int) -> list[dict[str, Any]]:
    """What simple agents reach in houses of the dev split: at random, following what memory says, and told a right action."""
    from dataclasses import replace

    from keepworth.agents.simulated import LinearAgent
    from keepworth.memory.policy.hashed_words import HashedWords
    from keepworth.memory.policy.slots import Presented
    from keepworth.methods.recipes.text_world import Config, Houses, settled
    from keepworth.rollouts.stream import run_stream

    kept, rows = Houses(Config(tasks=tasks)), []
    following = LinearAgent(follow=8.0)

    def told(situation: str, actions: Any, leaning: Any, shown: Presented, noise: Any) -> str:
        return following(
            situation, actions, leaning, Presented("", ((right[situation, tuple(actions)], 1.0, 1.0),)), noise
        )

    right: dict[tuple[str, tuple[str, ...]], str] = {}
    for arm in ("none", *RULES, "right items of its own store", "right action"):
        control = {"none": "none", "right action": "none", "right items of its own store": "oracle"}.get(arm, "learn")
        found = []
        for number in range(houses):
            stream = replace(kept.house(1, number), held_out=())
            policy = settled(arm if control == "learn" else "exprag", 4, number)
            agent: Any = following
            if arm == "right action":
                right.update(right_actions(stream))
                agent = told
            run = run_stream(stream, policy, agent, HashedWords(), seed=number, control=control)
            found.append(float(run.success.mean()))
        rows.append({"agent": arm, "success": float(np.mean(found)), "houses": houses, "tasks": tasks})
        print(f"{arm:28} {rows[-1]['success']:.3f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs/text_world"))
    parser.add_argument("--out", type=Path, default=HERE / "text_world.json")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="of every run, over those of this benchmark"
    )
    parser.add_argument("--headroom", action="store_true", help="only what there is to gain")
    options = parser.parse_args()
    if options.headroom:
        found = {"command": "python -m benchmarks.text_world.run --headroom", "rows": headroom(10, 40)}
        (HERE / "headroom.json").write_text(json.dumps(found, indent=1) + "\n")
        return
    by_arm: dict[str, list[dict[str, list[float]]]] = {}
    hours, runs = 0.0, dict[str, list[Path]]()
    for seed in range(1, options.seeds + 1):  # settings were chosen with seed 0
        folders = {}
        for memory, policy in POLICIES.items():
            name = f"{policy}-{seed}"
            assigned = [*SETTINGS, f"policy={policy}", f"seed={seed}", *options.set]
            subprocess.run(
                [
                    *(sys.executable, "-m", "keepworth", "train", "text_world"),
                    *("--runs", str(options.runs), "--name", name),
                    *(part for each in assigned for part in ("--set", each)),
                ],
                check=True,
            )
            folders[memory] = options.runs / name
            hours += spent(folders[memory])
            runs.setdefault(memory, []).append(folders[memory])
        for arm, houses in arms_of(folders):
            by_arm.setdefault(arm, []).append(houses)
        found = {
            "command": f"python -m benchmarks.text_world.run --seeds {seed}",
            "settings": [*SETTINGS, *options.set],
            "seeds": seed,
            "hours": hours,
            "versions": {name: version(name) for name in ("torch", "numpy", "textworld-express")},
            "tasks": len(next(iter(by_arm[BOTH][0].values()))),
            "arms": summary(by_arm),
            "read": {
                f"{state}, {memory}": read(runs[memory], when)
                for memory in runs
                if memory != "no memory"
                for state, when in STATES.items()
            },
            "trained_on": {memory: trained_on(runs[memory]) for memory in runs if memory != "no memory"},
        }
        options.out.write_text(json.dumps(found, indent=1) + "\n")
        for row in found["arms"]:
            print(f"{row['arm']:32} {row['success']:.3f} [{row['low']:.3f}, {row['high']:.3f}]", flush=True)


if __name__ == "__main__":
    main()
