"""Writes the evidence of recipes: each is trained beside itself without its mechanism, and beside itself on permuted rewards.

    python -m benchmarks.methods.recipes [NAME ...] [--seeds N]

The networks are tiny (a Llama of two layers, a word is a token) and begin from a short imitation of a pupil who is mostly wrong;
each seed has tasks and first weights of its own. Measured is the mean over the measurements while it learns, greedy. The arm
without the mechanism answers as many prompts in each update; a tree's answers differ in tokens, and what DataMind imitates
besides is not matched. Permuted rewards are real ones, dealt out among episodes.
What is published is about large models, so that what holds here holds in part.

`spurious` is an objective: its recipe is true rewards, and its other arm rewards by coins. The pupil does not lean the right way,
and so coins must not raise it above what it is before any reward.

What was measured before is not measured again: `strings` and `arithmetic` with a real model, the credit of `memory_r2` and
`fine_mem` with a linear policy, four updates of a real model with `mem_alpha` and `agemem`. Their files name the revision that
has the code.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.methods.tiny_worlds import Finds, checkpoint, dealt_tree, shuffled_wins, system_of, tiny_streams
from benchmarks.methods.write import arm, begin, gap, measuring, worded, write
from benchmarks.record import arguments
from keepworth.methods.recipes import agent_rlvr, deepsearch, open_rubrics, strings
from keepworth.methods.recipes._bank import writers
from keepworth.methods.recipes._memory_r1 import memory_manager
from keepworth.methods.recipes._reader import FoundReader
from keepworth.training.front_door import find_recipe
from keepworth.training.run_folder import RunFolder
from keepworth.training.watch.progress import Progress
from keepworth.worlds import answerer

PERMUTED, COINS, BEFORE = "permuted rewards", "coins", "before any reward"
COMMON = {"precision": "fp32", "threads": 1, "train": "full", "steps": 24, "evaluate_every": 6, "checkpoint_every": 100}
STRINGS = {
    "warm_start": 120,
    "warm_start_learning_rate": 1e-2,
    "length": 4,
    "max_tokens": 8,
    "refill": 0,
    "tasks": 8,
    "held_out": 8,
    "tasks_per_step": 8,
    "learning_rate": 6e-3,
}
SHARP = {"warm_start_learning_rate": 5e-3, "learning_rate": 3e-3}
BANK = {
    "length": 4,
    "budget": 1,
    "streams": 1,
    "questions": 32,
    "warm_start": 200,
    "warm_start_batch": 16,
    "tasks_per_step": 8,
    "steps": 32,
    "evaluate_every": 8,
    **SHARP,
}
EXPLORING = {**BANK, "encoder": "hashing:32", "explore_after": 8}
JOINT = {"facts": 2, "max_tokens": 3, "tasks": 8, "held_out": 2, "tasks_per_step": 6, "warm_start": 300, **SHARP}

Arm = tuple[str, dict[str, Any], tuple[tuple[Any, str, Any], ...]]
"""A recipe, what it is told beside `COMMON`, and (where, name, what) that is patched. `dealt` and `roles` are of this file."""


def strung(name: str, told: dict[str, Any], permuted: dict[str, Any], others: dict[str, Arm]) -> dict[str, Arm]:
    told, patches = {**STRINGS, **told}, permuted.pop("patches", ())
    return {"recipe": (name, told, ()), **others, PERMUTED: (name, {**told, **permuted}, patches)}


REMARKS = {
    "agent_rlvr": " Guidance is made to help; with another vocabulary, four seeds gave +0.01 [-0.35, +0.36] over its absence.",
    "datamind": " Imitation alone solves this world, so that rewards have nothing to add.",
    "spurious": " No model that leans the right way was measured, which is the other half of the claim.",
    "bounded_bank": " The same credit teaches a linear policy (0.67 of the evidence, 0.21 permuted: writing/credit.json).",
}
TINY = "A tiny network in a tiny world, not those of the paper."
PLAIN: Arm = ("strings", STRINGS, ())
ARMS: dict[str, dict[str, Arm]] = {
    "dart": strung("dart", {}, {"dealt": True}, {"without the pool": PLAIN}),
    "datamind": strung(
        "datamind",
        {},
        {"dealt": True},
        {
            "without imitation": PLAIN,
            "imitation alone": ("datamind", {**STRINGS, "mu_peak": 1.0, "mu_valley": 1.0}, ()),
        },
    ),
    "open_rubrics": strung(
        "open_rubrics", {}, {"patches": ((open_rubrics, "wins", shuffled_wins),)}, {"right or wrong alone": PLAIN}
    ),
    "deepsearch": strung(
        "deepsearch",
        {"searches": 8, "node_tokens": 2},
        {"patches": ((deepsearch, "back_up", dealt_tree),)},
        {"without a tree": PLAIN},
    ),
    "agent_rlvr": strung(
        "agent_rlvr",
        {},
        {"dealt": True},
        {"without guidance": ("agent_rlvr", STRINGS, ((agent_rlvr, "guidance", lambda task, strip: None),))},
    ),
    "spurious": {
        "recipe": PLAIN,
        COINS: ("strings", {**STRINGS, "objective": {"advantage": "Spurious(0.5)"}}, ()),
        PERMUTED: ("strings", {**STRINGS, "dealt": True}, ()),
    },
    "bounded_bank": {"recipe": ("bounded_bank", BANK, ()), PERMUTED: ("bounded_bank", {**BANK, "permuted": True}, ())},
    "memory_r_plus": {
        "recipe": ("memory_r_plus", EXPLORING, ()),
        "without it": ("bounded_bank", BANK, ()),
        PERMUTED: ("memory_r_plus", {**EXPLORING, "permuted": True}, ()),
    },
    "memory_r1_joint": {
        "recipe": ("memory_r1_joint", JOINT, ()),
        "the manager alone": ("memory_r1_joint", {**JOINT, "roles": ("manager",)}, ()),
        "the answerer alone": ("memory_r1_joint", {**JOINT, "roles": ("answerer",)}, ()),
        PERMUTED: ("memory_r1_joint", {**JOINT, "dealt": True}, ()),
    },
}


def curve(made: Arm, seed: int, smallest: bool = False) -> list[float]:
    """Return the scores of an arm, before it is rewarded and at each measurement after that.

    Args:
        made: The arm.
        seed: Of its tasks and first weights.
        smallest: Whether it only shows that it can be trained.
    """
    name, given, patches = made
    told = {key: value for key, value in given.items() if key not in ("dealt", "roles")}
    if smallest:
        told |= {"steps": 1, "evaluate_every": 1, "warm_start": told["warm_start"] // 10}
    patches = (
        (strings, "head", lambda: ""),
        (memory_manager, "PREFIX", ""),
        (memory_manager, "ANSWER_TOKENS", 4),
        (answerer, "PREFIX", dict.fromkeys(answerer.Style, "")),
        (writers, "longmemeval_streams", partial(tiny_streams, seed)),
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
                recipe.train(config, run, Progress())
            else:
                system_of(name, config, given, seed, STRINGS).learn(config, run, Progress())
        dev = [row for row in run.evals() if row["split"] == "dev"]
    return [float(row["mean"]) for row in dev if row["metric"] in ("f1", "accuracy")]


def judged(name: str, curves: Mapping[str, list[list[float]]], seeds: int) -> None:
    learned = {label: [sum(values[1:]) / len(values[1:]) for values in of] for label, of in curves.items()}
    start = [values[0] for values in curves["recipe"]]
    others = [label for label in learned if label not in ("recipe", PERMUTED)]
    print({label: [round(value, 3) for value in values] for label, values in learned.items()}, flush=True)
    gaps = [gap(label, learned["recipe"], learned[label]) for label in (PERMUTED, *others)]
    if COINS in learned:
        gaps.append(gap(f"{BEFORE}: {COINS}", learned[COINS], start))
    write(
        name,
        f"python -m benchmarks.methods.recipes {name} --seeds {seeds}",
        f"{'; '.join(worded(one, 2) for one in gaps)}.{REMARKS.get(name, '')} {TINY}",
        model="a network of two layers, with weights by chance at first",
        n=seeds,
        seeds=seeds,
        unit="answers that are right, greedy, mean over measurements while it learns; benchmarks/methods/tiny_worlds.py",
        arms=[arm(BEFORE, start), *(arm(label, values) for label, values in learned.items())],
        comparisons=gaps,
        controls=[PERMUTED, BEFORE, *others],
    )


def main() -> None:
    parser = measuring(
        arguments(__doc__, json=False), smallest="one update after a tenth of the imitation, with 3 seeds"
    )
    parser.add_argument("names", nargs="*", help="all where none is named")
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    options.seeds = 3 if options.smallest else options.seeds
    begin(options, options.seeds)
    curves: dict[str, list[list[float]]] = {}
    for name in options.names or ARMS:
        for made in ARMS[name].values():
            if repr(made) not in curves:
                curves[repr(made)] = [curve(made, seed, options.smallest) for seed in range(options.seeds)]
        judged(name, {label: curves[repr(made)] for label, made in ARMS[name].items()}, options.seeds)


if __name__ == "__main__":
    main()
