"""Writers that learned on LongMemEval, used without change in worlds that they never saw.

    python -m benchmarks.writing.transfer [--data FOLDER] [--read]

--data: a folder with LoCoMo, which may not be passed on (default: the environment variable KEEPWORTH_DATA); of it only means
and intervals are written down. Without it LoCoMo's row stays as it was.

* LoCoMo: ten conversations of two people. Both state facts; the reader is shown who said each.
* needles: door codes said in passing in conversations of LongMemEval's test side. What is asked for is new, what it
  stands among is of the kind that the writers learned from.
* event book: a generated book, one sentence an event. Every sentence has a date, a person, a place and a kind of event, so that
  nothing but chance can be right: the world in which a writer can only do harm.

Streams of 16 facts, a bank of four, one stream a question. Policies and rules are chosen on all of LongMemEval's streams, as on
docs/writing.md; nothing is chosen here. Evidence is counted on every stream. --read: the frozen readers of
`python -m benchmarks.writing.readers` read at most so many of a cluster as READ says; their answers are kept under `runs`, and a
world whose answers are not all there has no F1.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import markdown
from benchmarks.writing import arms
from benchmarks.writing.arms import Floats
from benchmarks.writing.credit import LOOKS, Replay, Shuffled, learned, tuned_for
from benchmarks.writing.reads import answered
from benchmarks.writing.setting import HERE, WORLDS, Reads, Setting, setting, setting_of
from benchmarks.writing.writers import LEARNS, SEEDS, said, worth_of
from keepworth.episodes.episode import Session
from keepworth.evaluation.statistics import paired_difference, pooled_estimate
from keepworth.learning.run_folder import versions
from keepworth.memory.sentences import sentences
from keepworth.methods.benchmarks.event_book import event_book
from keepworth.methods.benchmarks.needles import needles
from keepworth.tasks.data_files import MissingData
from keepworth.tasks.fact_streams import FactStream, fact_streams
from keepworth.tasks.facts import FACT_WORDS, USER, Fact, facts_of
from keepworth.tasks.locomo import locomo
from keepworth.tasks.splits import SPLITS, draw_order

OUT = HERE / "transfer.json"
LEARNED_ON = "4 of 16"
READ = {"LoCoMo": 20, "needles": 2, "event book": 4}
"""Streams of one cluster that are read at most, drawn by a hash: a conversation, a haystack, a book. Of three seeds the first is
read."""
UNREAD = ("reservoir", "longest", "log alone, no vectors", "small policy, rewards permuted")
NEVER_WORSE_THAN = "latest"


def said_by_users(sessions: Sequence[Session]) -> list[Fact]:
    """Every sentence of a user that asks nothing: a generated fact is not about who says it."""
    return [
        Fact(text, session.id, session.date_of(turn), turn.index, number)
        for session in sorted(sessions, key=lambda session: (session.date, session.id))
        for turn in session.turns
        if turn.speaker == USER
        for number, text in enumerate(sentences(turn.text))
        if not text.endswith("?") and 4 <= len(text.split()) <= FACT_WORDS
    ]


def of_locomo(data: Path | None) -> list[FactStream]:
    tasks = [task for split in SPLITS for task in locomo(split, data=data)]
    clusters = {task.key: f"conversation {task.tags['conversation']}" for task in tasks}
    return fact_streams(tasks, WORLDS[LEARNED_ON][0], clusters=clusters, facts_in=partial(facts_of, everyone=True))


def generated(tasks: Callable[[], Sequence[Any]]) -> list[FactStream]:
    made = tasks()
    clusters = {task.key: task.tags["cluster"] for task in made}
    return fact_streams(made, WORLDS[LEARNED_ON][0], clusters=clusters, facts_in=said_by_users)


def worlds(data: Path | None) -> dict[str, Callable[[], list[FactStream]]]:
    return {
        "LoCoMo": lambda: of_locomo(data),
        "needles": lambda: generated(lambda: needles("test")),
        "event book": lambda: generated(lambda: event_book("test", each=10)),
    }


def policies() -> dict[str, list[Floats]]:
    """Weights of the first features of a statement, one for each seed, from all of LongMemEval's streams."""
    world, reads = setting(LEARNED_ON), Reads.on_file()
    every = list(range(len(world.streams)))
    found: dict[str, list[Floats]] = {}
    values = [
        np.mean([world.evidence(n, stay) for n, stay in arms.stays(world, arms.weighted(world, weights)).items()])
        for weights in arms.rule_weights()
    ]
    found["best of 200 rules"] = [arms.rule_weights()[int(np.argmax(values))]]
    found["log alone"] = [worth_of(world, reads, every, 0)]
    by_hand = replace(world, vectors=world.vectors[:, : arms.HAND])
    found["log alone, no vectors"] = [worth_of(by_hand, reads, every, 0)]
    tuned = tuned_for(world.name, LEARNS, -1)
    for name, permuted in (("small policy", False), ("small policy, rewards permuted", True)):
        found[name] = []
        for seed in SEEDS:
            reader = Shuffled(world, reads, seed) if permuted else Replay(world, reads)
            found[name].append(learned(world, reader, LEARNS, every, seed, tuned)[LOOKS[-1]])
    return found


def kept_by(world: Setting, learners: dict[str, list[Floats]]) -> dict[str, list[dict[int, tuple[int, ...]]]]:
    rules = arms.rules(world)
    found = {name: [arms.stays(world, rules[name])] for name in ("latest", "reservoir", "longest", "most specific")}
    for name, seeds in learners.items():
        found[name] = [arms.stays(world, arms.weighted(world, weights)) for weights in seeds]
    found["oracle"] = [arms.oracle(world)]
    return found


def read_numbers(world: Setting) -> list[int]:
    """The streams that are read, at most READ of each cluster."""
    order = sorted(range(len(world.streams)), key=lambda n: draw_order("transfer", world.streams[n].key))
    count, chosen = Counter[str](), []
    for number in order:
        cluster = world.streams[number].cluster
        if count[cluster] < READ[world.name]:
            count[cluster] += 1
            chosen.append(number)
    return sorted(chosen)


def measured(world: Setting, learners: dict[str, list[Floats]], reads: Reads, runs: Path | None) -> dict[str, Any]:
    """runs: where the readers are; None where nothing is to be read now."""
    kept, numbers = kept_by(world, learners), read_numbers(world)
    todo = {
        (world.name, world.streams[n].key, each[n])
        for name, seeds in kept.items()
        if name not in UNREAD
        for each in seeds[:1]
        for n in numbers
    }
    missing = sorted(todo - set(reads.known))
    print(f"{world.name}: {len(world.streams)} streams, {len(todo)} banks to be read, {len(missing)} not on file yet")
    if runs is not None:
        answered(missing, runs, reads, {(world.name, stream.key): stream for stream in world.streams})
    evidence = {
        name: np.mean([[world.evidence(n, each[n]) for n in range(len(world.streams))] for each in seeds], axis=0)
        for name, seeds in kept.items()
    }
    f1 = {
        name: np.array([reads.f1(world.name, world.streams[n], seeds[0][n]) for n in numbers])
        for name, seeds in kept.items()
    }
    clusters = {"evidence": world.clusters, "f1": [world.clusters[n] for n in numbers]}
    values = {"evidence": evidence, "f1": f1}
    rows, gaps = [], []
    for name, seeds in kept.items():
        row: dict[str, Any] = {"arm": name, "seeds": len(seeds)}
        for measure, of in values.items():
            if not np.isnan(of[name]).any():
                each = pooled_estimate(list(of[name]), clusters[measure], within=(0.0, 1.0))
                row[measure] = {"mean": each.mean, "low": each.low, "high": each.high, "clusters": each.n}
        rows.append(row)
    pairs = [(name, NEVER_WORSE_THAN) for name in ("most specific", *learners)]
    pairs += [
        (name, other)
        for name in ("log alone", "log alone, no vectors", "small policy")
        for other in ("most specific", "best of 200 rules")
    ]
    for name, other in pairs:
        for measure, of in values.items():
            difference = of[name] - of[other]
            if not np.isnan(difference).any():
                gap = paired_difference(
                    f"{name} - {other}", list(difference), clusters=clusters[measure], within=(-1.0, 1.0)
                )
                gaps.append({"arm": name, "minus": other, "measure": measure, "difference": gap.difference,
                             "low": gap.low, "high": gap.high, "p": gap.p, "clusters": gap.clusters})  # fmt: skip
    return {
        "streams": len(world.streams),
        "read": len(numbers) if "f1" in rows[0] else 0,
        "clusters": len(set(world.clusters)),
        "rows": rows,
        "gaps": gaps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--read", action="store_true")
    parser.add_argument("--runs", type=Path, default=Path("runs/writing"))
    options = parser.parse_args()
    record: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {"worlds": {}}
    reads, learners = Reads.on_file(options.runs / "transfer.jsonl.gz"), policies()
    for name, streams_of in worlds(options.data).items():
        try:
            streams = streams_of()
        except MissingData as missing:
            print(f"{name} stays as it was: {missing}")
            continue
        world = setting_of(name, streams, [0] * len(streams), WORLDS[LEARNED_ON][1])
        record["worlds"][name] = found = measured(world, learners, reads, options.runs if options.read else None)
        cells = [(row["arm"], *(said(row.get(each)) for each in ("evidence", "f1"))) for row in found["rows"]]
        print(markdown((name, "evidence kept", "F1 of the readers"), cells), flush=True)
        for gap in found["gaps"]:
            print(f"{gap['arm']} - {gap['minus']}, {gap['measure']}: "
                  f"{gap['difference']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]")  # fmt: skip
        record |= {"command": "python -m benchmarks.writing.transfer", "versions": versions()}
        OUT.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
