"""Writes the evidence of the stage `mmr`: of the sessions that a question of LongMemEval needs, the share among its first hits.

python -m benchmarks.methods.stages

Questions that need several sessions, each over a memory of its user turns (its evidence and twenty sessions more), which is
searched by words. The weight is the best of `WEIGHTS` on the training side; everything else is measured on the test side. Arms:
the plain search; mmr; mmr with the words of the hits permuted (the control: as many places change, for no reason); the best
simple rule, one hit of a session before a second one of any; and the oracle, the needed sessions first as far as they are among
the 50 hits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.methods.write import arm, begin, gap, measuring, worded, write
from benchmarks.record import arguments
from keepworth import Hit, Memory
from keepworth.methods.stages.mmr import diversify
from keepworth.records.episode import Task
from keepworth.worlds.data_sets.longmemeval import longmemeval

FIRST, POOL, DISTRACTORS = 5, 50, 20
WEIGHTS = (0.3, 0.5, 0.7, 0.8, 0.9)
"""At 1 the mechanism is off."""
Reorder = Callable[[Sequence[Hit], Task], Sequence[Hit]]


def searches(split: str, most: int | None = None) -> list[tuple[Task, list[Hit]]]:
    """At most so many questions of several sessions with their hits, each over its own haystack."""
    tasks = [task for task in longmemeval(split, distractors=DISTRACTORS, abstention=False) if len(task.evidence) > 1][
        :most
    ]
    made = []
    for number, task in enumerate(tasks):
        with Memory(encoder=None, policy=None, writer=None, log="off") as memory:
            for session in task.sessions:
                for turn in session.turns:
                    if turn.speaker == "user" and turn.text.strip():
                        memory.add(turn.text, metadata={"session": session.id}, event_time=session.date_of(turn))
            made.append((task, list(memory.search(task.input, top_k=POOL))))
        if number % 20 == 0:
            print(f"{split}: {number} of {len(tasks)}", flush=True)
    return made


def shares(found: Sequence[tuple[Task, list[Hit]]], reorder: Reorder) -> list[float]:
    """Of each question the share of its sessions that have a hit among the first ones."""
    out = []
    for task, hits in found:
        first = {hit.item.metadata["session"] for hit in list(reorder(hits, task))[:FIRST]}
        out.append(len(first & set(task.evidence)) / len(task.evidence))
    return out


def by_mmr(weight: float) -> Reorder:
    return lambda hits, task: diversify(hits, weight)


def permuted(weight: float) -> Reorder:
    """mmr that reads each hit's words in another one's place."""

    def reorder(hits: Sequence[Hit], task: Task) -> list[Hit]:
        others = random.Random(task.key).sample(list(hits), len(hits))
        pairs = zip(hits, others, strict=True)
        mixed = [replace(hit, item=replace(hit.item, text=other.text)) for hit, other in pairs]
        return diversify(mixed, weight)

    return reorder


def one_a_session(hits: Sequence[Hit], task: Task) -> list[Hit]:
    seen: set[str] = set()
    again = [hit.item.metadata["session"] in seen or seen.add(hit.item.metadata["session"]) for hit in hits]  # type: ignore[func-returns-value]
    return [hit for hit, late in sorted(zip(hits, again, strict=True), key=lambda pair: bool(pair[1]))]


def oracle(hits: Sequence[Hit], task: Task) -> list[Hit]:
    return sorted(one_a_session(hits, task), key=lambda hit: hit.item.metadata["session"] not in task.evidence)


def main() -> None:
    options = measuring(arguments(__doc__, json=False), smallest="six questions").parse_args()
    begin(options)
    most = 6 if options.smallest else None
    tuning = searches("train", most)
    tuned = {weight: sum(shares(tuning, by_mmr(weight))) / len(tuning) for weight in WEIGHTS}
    weight = max(tuned, key=lambda one: tuned[one])
    print(tuned, flush=True)
    found = searches("test", most)
    measured = {
        "plain search": shares(found, lambda hits, task: hits),
        "mmr": shares(found, by_mmr(weight)),
        "mmr, words permuted": shares(found, permuted(weight)),
        "one hit of a session first": shares(found, one_a_session),
        "oracle": shares(found, oracle),
    }
    plain, permuting, rule = (gap(name, measured["mmr"], measured[name]) for name in [*measured][:1] + [*measured][2:4])
    means = {name: sum(values) / len(values) for name, values in measured.items()}
    write(
        "mmr",
        "python -m benchmarks.methods.stages",
        f"Of the sessions that a question needs, {means['mmr']:.3f} have a hit among the first {FIRST} (weight {weight}, tuned "
        f"on other questions): {worded(plain)}, {worded(permuting)}, {worded(rule)} (oracle {means['oracle']:.3f}).",
        model="none: a search by words",
        n=len(found),
        seeds=1,
        unit="question",
        arms=[arm(name, values) for name, values in measured.items()],
        comparisons=[plain, permuting, rule],
        controls=["words permuted", "one hit of a session first", "oracle"],
    )


if __name__ == "__main__":
    main()
