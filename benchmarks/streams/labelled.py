"""Labelled streams with many seeds: one decision a task, so that no file is needed in between.

    python -m benchmarks.streams.labelled --streams banking77-clean,relations-drift --arms mixture,kernel-mean --data DATA \\
        --split held-out --seeds 100 --out benchmarks/streams/results/labelled.json

Policies, agent, noise and order are those of `keepworth eval stream`, without the journal, which takes most of its time there;
`--check` compares both. Given again it goes on: rows lie in OUT.rows.jsonl. The summary holds every paired difference between
`--method` and the other arms with its t interval over seeds, and for each stream the worst of them.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

from keepworth.agents.simulated import LinearAgent
from keepworth.cli.eval_stream import method_for
from keepworth.environments.scene import Scene, Stream
from keepworth.environments.streams import opened
from keepworth.learning.run_folder import versions
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.retrievers import top
from keepworth.memory.policy.slots import Policy, Presented, Use, Values
from keepworth.memory.policy.valuers import of_actions
from keepworth.methods.worlds.labelled import LABELLED
from keepworth.models.encoders import encoder as open_encoder
from keepworth.rollouts.stream import LONGEST_EPISODE, SHOWN, run_stream


class Known:
    """An encoder that keeps its vectors."""

    def __init__(self, name: str) -> None:
        self._encoder = HashedWords() if name == "words" else open_encoder(name)
        self.identity, self._known = self._encoder.identity, dict[str, Any]()

    def encode(self, texts: Any) -> Any:
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        if fresh:
            self._known.update(zip(fresh, self._encoder.encode(fresh), strict=True))
        return np.stack([self._known[text] for text in texts])


@cache
def known(name: str) -> Known:
    return Known(name)


def met(stream: Stream, policy: Policy, encoder: Any, seed: int, control: str = "learn") -> tuple[float, float]:
    """Mean success over the stream, and on the held-out tasks with the memory frozen.

    control: "learn"; "direct": what is valued highest is done; "none": nothing is shown; "oracle": right cases of the store."""
    tasks = (*stream.tasks, *stream.held_out)
    noise = np.random.default_rng([41, seed]).gumbel(size=(len(tasks), 2, LONGEST_EPISODE, stream.widest))
    experience, agent = Experience(policy, encoder, seed=seed), LinearAgent()
    success = np.zeros(len(tasks))
    for number, task in enumerate(tasks):
        scene: Scene = task.environment().scene
        live = number < len(stream.tasks)
        use = experience.recall(scene.goal, scene.observation, scene.actions, frozen=not live)
        if control == "oracle":
            use = right(use, scene, experience)
        shown = Presented("") if control == "none" else experience.present(use)
        own = noise[number, 0, 0, : len(scene.actions)]
        taken = agent(scene.text, scene.actions, scene.leaning, shown, own)
        if control == "direct":
            worth = of_actions(policy.valuer, use.query, experience.pool)
            taken = scene.actions[int(np.lexsort((own, worth))[-1])]
        success[number] = float(taken in scene.right)
        if live:
            told = 1.0 - success[number] if task.flipped else success[number]
            experience.finish([(use, taken)], told, per_step=[told])
    return float(success[: len(stream.tasks)].mean()), float(success[len(stream.tasks) :].mean())


def right(use: Use, scene: Scene, experience: Experience) -> Use:
    """The choice of the most similar cases whose advice is right."""
    pool = experience.pool
    rows = pool.active()
    rows = rows[np.isin(pool.content[rows], [pool.content_of(action) for action in scene.right]) & ~pool.warns[rows]]
    found = top(pool.similarities(use.query.vector, rows), rows, SHOWN)
    values = Values(np.zeros(len(found.rows)), np.zeros(len(found.rows)))
    return Use(use.query, found, values, None, tuple(range(len(found.rows))), "main", logged=1.0)


def summary(rows: list[dict[str, Any]], method: str) -> list[dict[str, Any]]:
    """Per stream and encoder: means, each over the seeds that the arm has, and `method` less each other arm, over the seeds that
    both have (`pairs`)."""
    found = []
    for stream, encoder in dict.fromkeys((row["stream"], row["encoder"]) for row in rows):
        arms: dict[str, dict[int, dict[str, Any]]] = {}
        for row in rows:
            if (row["stream"], row["encoder"]) == (stream, encoder):
                arms.setdefault(row["arm"], {})[row["seed"]] = row
        for measure in ("live", "frozen"):
            own = arms[method]
            gaps = {
                arm: np.array([own[seed][measure] - each[seed][measure] for seed in sorted(own.keys() & each.keys())])
                for arm, each in arms.items()
                if arm not in (method, "none", "oracle")
            }
            against = {arm: paired(each) for arm, each in gaps.items()}
            worst = min(against, key=lambda arm: against[arm][1])
            found.append(
                {
                    "stream": stream,
                    "encoder": encoder,
                    "measure": measure,
                    "seeds": len(own),
                    "means": {
                        arm: round(float(np.mean([row[measure] for row in each.values()])), 4)
                        for arm, each in arms.items()
                    },
                    "against": against,
                    "pairs": {arm: len(each) for arm, each in gaps.items()},
                    "worst": worst,
                }
            )
    return found


def together(rows: list[dict[str, Any]], method: str) -> dict[str, Any]:
    """`method` less each other arm, by seed the mean over all streams and encoders, over the seeds (`pairs`) at which both have
    all of them."""
    cells = sorted({(row["stream"], row["encoder"]) for row in rows})
    by: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for row in rows:
        by.setdefault(row["arm"], {}).setdefault(row["seed"], []).append(row)
    found: dict[str, Any] = {"streams": len(cells)}
    for measure in ("live", "frozen"):
        means = {
            arm: {
                seed: float(np.mean([row[measure] for row in each]))
                for seed, each in sorted(seeds.items())
                if len(each) == len(cells)
            }
            for arm, seeds in sorted(by.items())
        }
        own = means[method]
        gaps = {
            arm: np.array([own[seed] - mean for seed, mean in each.items() if seed in own])
            for arm, each in means.items()
            if arm != method
        }
        found[measure] = {
            "means": {arm: round(float(np.mean(list(each.values()))), 4) for arm, each in means.items() if each},
            "against": {arm: paired(each) for arm, each in gaps.items() if len(each)},
            "pairs": {arm: len(each) for arm, each in gaps.items()},
        }
    return found


def paired(gaps: Any) -> list[float]:
    """Mean, and the ends of its 95 % t interval."""
    half = float(t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else float("nan")
    return [round(float(each), 4) for each in (gaps.mean(), gaps.mean() - half, gaps.mean() + half)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", default="")
    parser.add_argument(
        "--arms",
        default="",
        help="Methods; +published: its paper's settings; +direct: it acts; +NAME=VALUE: a setting.",
    )
    parser.add_argument("--encoders", default="words,minilm")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--method", default="mixture")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--tuned", type=Path, default=Path("benchmarks/streams/tuned.json"))
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--fixed-at", default="", help="The commit at which the form of the method was fixed.")
    parser.add_argument("--check", action="store_true", help="Compare with the journalled loop.")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    tuned = {name: each["settings"] for name, each in json.loads(asked.tuned.read_text())["one-step"].items()}
    place = asked.out.with_suffix(".rows.jsonl")
    rows = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
    done = {(row["stream"], row["encoder"], row["seed"], row["arm"]) for row in rows}
    with place.open("a") as file:
        for seed in range(asked.first, asked.first + asked.seeds):
            for name in asked.streams.split(","):
                stream = opened(name, split=asked.split, seed=seed, data=asked.data)
                for encoder in asked.encoders.split(","):
                    for arm in asked.arms.split(","):
                        if (name, encoder, seed, arm) in done:
                            continue
                        base, _, changed = arm.partition("+")
                        control = base if base in ("none", "oracle") else changed if changed == "direct" else "learn"
                        method = "exprag" if base in ("none", "oracle") else base
                        settings = {} if changed == "published" else tuned
                        if "=" in changed:
                            name_of, _, value = changed.partition("=")
                            settings = {method: {**tuned.get(method, {}), name_of: json.loads(value)}}
                        begun = time.process_time()
                        made = method_for(method, settings, seed)
                        live, frozen = met(stream, made, known(encoder), seed, control)
                        row = {
                            "stream": name,
                            "encoder": encoder,
                            "seed": seed,
                            "arm": arm,
                            "live": live,
                            "frozen": frozen,
                        }
                        row["seconds"] = round(time.process_time() - begun, 3)
                        if asked.check:
                            run = run_stream(
                                stream,
                                method_for(method, settings, seed),
                                LinearAgent(),
                                known(encoder),
                                seed=seed,
                                measure_regret=False,
                                control=control,
                            )
                            same = (run.success.mean(), run.held_out.mean())
                            print(
                                arm,
                                name,
                                encoder,
                                seed,
                                (live, frozen),
                                same,
                                "same" if same == (live, frozen) else "OTHER",
                            )
                        file.write(json.dumps(row) + "\n")
                        file.flush()
                        rows.append(row)
    record = {
        "command": "python -m benchmarks.streams.labelled " + shlex.join(sys.argv[1:]),
        "versions": versions(),
        "split": asked.split,
        "fixed_at": asked.fixed_at,
        "together": together(rows, asked.method),
        "families": {
            family: together([row for row in rows if LABELLED[row["stream"]][0] == family], asked.method)
            for family in dict.fromkeys(LABELLED[row["stream"]][0] for row in rows)
        },
        "streams": summary(rows, asked.method),
    }
    asked.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
