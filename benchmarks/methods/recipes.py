"""Writes the evidence of recipes: each is trained beside itself without its mechanism, and beside itself on permuted rewards.

    python -m benchmarks.methods.recipes [NAME ...] [--seeds N]

The networks are tiny (a Llama of two layers, a word is a token) and begin from a short imitation that does not say what will be
rewarded; each seed has tasks and first weights of its own. Measured is the mean over the measurements while it learns, greedy.
The arm without the mechanism makes as many calls of the model. Permuted rewards are real ones, dealt out among episodes.
The verdict, by a rule that was written before anything was run; what is published is about large models, so none is `held`:

    not reachable here  no arm is above permuted rewards by more than the paired interval over seeds: nothing was learned;
    held in part        the recipe is above permuted rewards, and above every arm without its mechanism, by more than that;
    not held            all else.

`strings` and `arithmetic` were trained with a real model before and are not trained again: `held in part` where the stored gain
is above 0 over the start and over an arm that is not the start, else `not held`.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.methods.tiny_worlds import Dealt, Finds, Streams, checkpoint, confused, half_right, pets
from benchmarks.methods.write import ABSENT, arm, gap, write
from keepworth.agents import answerer, manager
from keepworth.episodes import RewardTerm, Task
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import SilentProgress
from keepworth.methods.recipes import _strings, agemem, agent_rlvr, deepsearch, open_rubrics, strings
from keepworth.methods.recipes._bank import writing
from keepworth.methods.recipes._reader import FoundReader
from keepworth.recipes.front_door import find_recipe
from keepworth.recipes.hooks import Hooks
from keepworth.recipes.system import Measured

PERMUTED = "permuted rewards"
COMMON = {
    "precision": "fp32",
    "threads": 1,
    "train": "full",
    "steps": 24,
    "tasks_per_step": 4,
    "group_size": 8,
    "evaluate_every": 6,
    "checkpoint_every": 100,
    "learning_rate": 4e-3,
    "warm_start_learning_rate": 1e-2,
}
STRINGS = {
    "warm_start": 120,
    "length": 4,
    "max_tokens": 8,
    "refill": 0,
    "tasks": 8,
    "held_out": 8,
    "tasks_per_step": 8,
    "learning_rate": 6e-3,
}
BANK = {"length": 6, "budget": 2, "streams": 1, "questions": 32, "warm_start": 60, "warm_start_batch": 16}
CALLS = {**BANK, "chunk": 3, "recent": 0}
JOINT = {"facts": 2, "max_tokens": 3, "tasks": 8, "held_out": 2, "warm_start": 120}

Arm = tuple[str, dict[str, Any], tuple[tuple[Any, str, Any], ...]]
"""A recipe, what it is told beside `COMMON`, and (where, name, what) that is patched. `dealt` and `roles` are of this file."""


async def shuffled_wins(task: Task, episodes: Sequence[Any], services: Any, *, wins: Any = open_rubrics.wins) -> Any:
    values = await wins(task, episodes, services)
    random.Random(repr([episode.id for episode in episodes])).shuffle(values)
    return values


def dealt_tree(back_up: Callable[..., None] = deepsearch.back_up) -> Callable[..., None]:
    """The rewards of leaves, dealt out anew among the last 64."""
    past, draw = list[float](), random.Random(0)

    def dealt(leaf: deepsearch.Node, reward: float, decay: float) -> None:
        past.append(reward)
        back_up(leaf, draw.choice(past[-64:]), decay)

    return dealt


def strung(name: str, told: dict[str, Any], permuted: dict[str, Any], **others: Arm) -> dict[str, Arm]:
    told = {**STRINGS, **told}
    patches = permuted.pop("patches", ())
    arms = {label.replace("_", " "): other for label, other in others.items()}
    return {"recipe": (name, told, ()), **arms, PERMUTED: (name, {**told, **permuted}, patches)}


def written(name: str, told: dict[str, Any], without: Arm) -> dict[str, Arm]:
    return {
        "recipe": (name, told, ()),
        "without it": without,
        PERMUTED: (name, {**told, "permuted": True}, ()),
    }


PLAIN: Arm = ("strings", STRINGS, ())
SHORT = {**BANK, "horizons": [{"steps": 6, "length": 4}]}
ANSWER = ((agemem, "earned", lambda course, answered: [RewardTerm("answer", answered.score)]),)
ARMS: dict[str, dict[str, Arm]] = {
    "dart": strung("dart", {}, {"dealt": True}, without_the_pool=PLAIN),
    "datamind": strung(
        "datamind",
        {},
        {"dealt": True},
        without_imitation=PLAIN,
        imitation_alone=("datamind", {**STRINGS, "mu_peak": 1.0, "mu_valley": 1.0}, ()),
    ),
    "open_rubrics": strung(
        "open_rubrics", {}, {"patches": ((open_rubrics, "wins", shuffled_wins),)}, right_or_wrong_alone=PLAIN
    ),
    "deepsearch": strung(
        "deepsearch",
        {"searches": 8, "node_tokens": 2},
        {"patches": ((deepsearch, "back_up", dealt_tree),)},
        without_a_tree=PLAIN,
    ),
    "agent_rlvr": strung(
        "agent_rlvr",
        {},
        {"dealt": True},
        without_guidance=("agent_rlvr", STRINGS, ((agent_rlvr, "guidance", lambda task, strip: None),)),
    ),
    "bounded_bank": {"recipe": ("bounded_bank", BANK, ()), PERMUTED: ("bounded_bank", {**BANK, "permuted": True}, ())},
    "memory_r2": written("memory_r2", SHORT, ("bounded_bank", {**SHORT, "group_size": 9}, ())),
    "fine_mem": written("fine_mem", BANK, ("bounded_bank", BANK, ())),
    "memory_r_plus": written(
        "memory_r_plus", {**BANK, "encoder": "hashing:32", "explore_after": 8}, ("bounded_bank", BANK, ())
    ),
    "mem_alpha": written("mem_alpha", CALLS, ("mem_alpha", {**CALLS, "objective": "tis"}, ())),
    "agemem": written(
        "agemem",
        {**CALLS, "distractors": 2, "window": 12, "retrievals": 1},
        ("agemem", {**CALLS, "distractors": 2, "window": 12, "retrievals": 1, "objective": "tis"}, ANSWER),
    ),
    "memory_r1_joint": {
        "recipe": ("memory_r1_joint", JOINT, ()),
        "the manager alone": ("memory_r1_joint", {**JOINT, "roles": ("manager",)}, ()),
        "the answerer alone": ("memory_r1_joint", {**JOINT, "roles": ("answerer",)}, ()),
        PERMUTED: ("memory_r1_joint", {**JOINT, "dealt": True}, ()),
    },
}


def curve(made: Arm, seed: int) -> list[float]:
    """What an arm reaches before it is rewarded, and at each measurement after that."""
    name, given, patches = made
    told = {key: value for key, value in given.items() if key not in ("dealt", "roles")}
    patches = (
        (strings, "head", lambda: ""),
        (manager, "PREFIX", ""),
        (manager, "ANSWER_TOKENS", 4),
        (answerer, "PREFIX", dict.fromkeys(answerer.Style, "")),
        (writing, "WriterStreams", Streams),
        (FoundReader, "loaded", lambda *_: Finds()),
        *patches,
    )
    with tempfile.TemporaryDirectory() as folder, ExitStack() as patched:
        for where, called, other in patches:
            patched.enter_context(patch.object(where, called, other() if other is dealt_tree else other))
        checkpoint(Path(folder) / "model", seed)
        recipe = find_recipe(name)
        config = recipe.Config(model=str(Path(folder) / "model"), seed=seed, **{**COMMON, **told})
        with RunFolder.create(Path(folder) / "run", {"recipe": name, **config.model_dump(mode="json")}) as run:
            if told.get("budget"):
                recipe.train(config, run, SilentProgress())
            else:
                system_of(name, config, given, seed).learn(config, run, SilentProgress())
        rows = [row for row in run.evals() if row["split"] == "dev" and row["metric"] in ("f1", "accuracy")]
    return [float(row["mean"]) for row in rows]


def system_of(name: str, config: Any, given: Mapping[str, Any], seed: int) -> Any:
    """A recipe's system, on tasks that a tiny network can learn."""
    answers = ((_strings, "worked_out", lambda task: task.answers[0]),) if name == "datamind" else ()
    with ExitStack() as patched:  # what DataMind imitates are answers, as all are here
        for where, called, other in answers:
            patched.enter_context(patch.object(where, called, other))
        system: Any = find_recipe(name).system(config)
    if name == "memory_r1_joint":
        tasks, plain = pets(), system.play
        imitated: Any = partial(half_right, seed, tasks=tasks, batches=config.warm_start)
        system = replace(system, hooks=Hooks(roles=given.get("roles", system.hooks.roles)))
    else:
        tasks = _strings.string_tasks("train", 8, seed, depth=2, length=3)
        plain = strings.system(strings.Config(**STRINGS)).play
        guided = name == "agent_rlvr"
        imitated = partial(confused, seed, tasks=tasks, batches=config.warm_start, guided=guided)
    play, past, draw = system.play, list[Any](), random.Random(seed)
    if given.get("dealt"):
        play = replace(play, environment=lambda task: Dealt(system.play.environment(task), past, draw))
    measured = Measured(tasks, {"": plain})
    return replace(system, train=tasks, play=play, dev=measured, test={"tasks": measured}, imitated=imitated)


def judged(name: str, curves: Mapping[str, list[list[float]]], seeds: int) -> None:
    learned = {label: [sum(values[1:]) / len(values[1:]) for values in of] for label, of in curves.items()}
    start = [values[0] for values in curves["recipe"]]
    others = [label for label in learned if label not in ("recipe", PERMUTED)]
    gaps = [gap(label, learned["recipe"], learned[label]) for label in (PERMUTED, *others)]
    above = [gap(label, learned[label], learned[PERMUTED])["interval"][0] > 0 for label in ("recipe", *others)]
    beats = all(one["interval"][0] > 0 for one in gaps)
    said = [
        f"{one['mean']:+.2f} [{one['interval'][0]:+.2f}, {one['interval'][1]:+.2f}] over {one['against']}"
        for one in gaps
    ]
    write(
        name,
        f"python -m benchmarks.methods.recipes {name}",
        "held in part" if beats else "not held" if any(above) else ABSENT,
        f"{'; '.join(said)}. A tiny network in a tiny world, not those of the paper.",
        model="a network of two layers, with weights by chance at first",
        n=seeds,
        seeds=seeds,
        unit="answers that are right, greedy, mean over measurements while it learns; benchmarks/methods/tiny_worlds.py",
        arms=[arm("before any reward", start), *(arm(label, values) for label, values in learned.items())],
        comparisons=gaps,
        controls=[PERMUTED, "before any reward", *others],
    )


def stored(name: str) -> None:
    """What `benchmarks.learning.recipes` measured before."""
    raise NotImplementedError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="all where none is named")
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    curves: dict[str, list[list[float]]] = {}
    for name in options.names or ("strings", "arithmetic", *ARMS):
        if name not in ARMS:
            stored(name)
            continue
        for label, made in ARMS[name].items():
            if repr(made) not in curves:
                curves[repr(made)] = [curve(made, seed) for seed in range(options.seeds)]
            print(name, label, [[round(value, 2) for value in values] for values in curves[repr(made)]], flush=True)
        judged(name, {label: curves[repr(made)] for label, made in ARMS[name].items()}, options.seeds)


if __name__ == "__main__":
    main()
