"""The changing world: what is true now, when facts are corrected, withdrawn and repeated.

    python -m benchmarks.writing.changing --split dev      headroom and tuning [--readers plain later] [--runs runs/writing]
    python -m benchmarks.writing.changing                  the test streams, with the real readers

Streams of 16 facts of `keepworth.tasks.changing` against a bank with room for all of them. The real readers are those of
`python -m benchmarks.writing.changing_reader`. Each is asked the question of the stream and shown the four entries of the
bank that are nearest to it by sentence vectors, in the order of their arrival.

While policies learn and rules are tuned, a stand-in reads: of the entries that share a name with the question it quotes the
nearest by sentence vectors, the later of equals; where none is near enough it says `unknown`. Its reward is 1 where the
right answer stands in what it says. It knows the question, the bank and no more: no mark of what is true, of what changed
or of what a statement is about. It is asked about every thread of a stream, each question for itself.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import markdown
from benchmarks.writing.setting import HERE, VECTORS
from keepworth.environments.bounded_bank import BoundedBank
from keepworth.episodes.episode import Task
from keepworth.evaluation.statistics import estimate, paired_difference
from keepworth.learning.run_folder import versions
from keepworth.methods.writers.changes import (
    ChangePolicy,
    ChangeStream,
    learned_changes,
    pair_features,
    principal,
)
from keepworth.tasks.changing import UNKNOWN, ChangingStream, changing_streams
from keepworth.tasks.metrics import token_f1
from keepworth.tasks.verifiers import contains_answer

OUT = HERE / "changing.json"
LENGTH, CUES, SEEDS = 16, 16, (0, 1, 2)
COUNT = {"train": 200, "dev": 60, "test": 150}
SHOWN = 4
"""Entries that a reader sees."""
READERS = ("plain", "later")
"""Of `benchmarks.writing.changing_reader`, which loads torch."""
AT_ONCE = 50
"""Readings between two savings."""
SMALL = 8
"""Facts in the banks of the arms that keep some, whatever they say."""
Floats = np.ndarray[Any, np.dtype[np.float64]]
Numbers = tuple[int, ...]
"""Of the facts in a bank after the last one, in its order."""


@dataclass(frozen=True, slots=True)
class Read:
    """A stream with what the stand-in needs. features: of pairs of its facts; near: [threads, facts], cosines of question and
    fact, -1 where they share no name; worth: [threads, facts + 1], the reward of quoting each fact, and of `unknown`; asked:
    [facts], cosines of the stream's own question and each fact."""

    stream: ChangingStream
    features: Floats
    near: Floats
    worth: Floats
    asked: Floats

    def reward(self, numbers: Sequence[int], threshold: float) -> float:
        """Of the stand-in's answers from a bank, the mean over all questions."""
        if not numbers:
            return float(self.worth[:, -1].mean())
        own = list(reversed(numbers))  # of equals the later
        nearest = self.near[:, own].argmax(axis=1)
        rows = np.arange(len(self.near))
        chosen = np.array(own)[nearest]
        return float(np.where(self.near[rows, chosen] >= threshold, self.worth[rows, chosen], self.worth[:, -1]).mean())


def threads_of(stream: ChangingStream) -> list[int]:
    return sorted({telling.thread for telling in stream.tellings})


@cache
def encoder_at_hand() -> Any:
    from keepworth.models.encoders import encoder
    from keepworth.models.kept_vectors import KeptVectors

    return KeptVectors(encoder("minilm"), VECTORS)


def vectors_of(texts: Sequence[str]) -> Floats:
    return np.asarray(encoder_at_hand().encode(list(texts)), dtype=np.float64)


def names(text: str) -> set[str]:
    """Words with a capital, but for the first."""
    return set(re.findall(r"(?<!^)\b[A-Z][a-z]+\b", text))


@cache
def directions() -> Floats:
    return principal(
        vectors_of([t.text for s in changing_streams("train", COUNT["train"], LENGTH) for t in s.tellings]), CUES
    )


@cache
def world(split: str) -> tuple[Read, ...]:
    return tuple(map(_read, changing_streams(split, COUNT[split], LENGTH)))


def _read(stream: ChangingStream) -> Read:
    tasks, texts = [stream.task_about(thread) for thread in threads_of(stream)], [t.text for t in stream.tellings]
    vectors, asked = vectors_of(texts), vectors_of([task.input for task in tasks])
    near, worth = asked @ vectors.T, np.zeros((len(tasks), len(texts) + 1))
    near_own = near[threads_of(stream).index(stream.asked)].copy()
    for row, task in enumerate(tasks):
        for number, text in enumerate(texts):
            worth[row, number] = contains_answer(text, task.answers)
            if not any(re.search(rf"\b{name}\b", text) for name in names(task.input)):
                near[row, number] = -1.0
        worth[row, -1] = contains_answer(UNKNOWN[0], task.answers)
    return Read(stream, pair_features(texts, vectors, directions()), near, worth, near_own)


# Writers: of a stream to the numbers of the facts in its bank after the last one.

Arm = Callable[[Read], Numbers]


def written(read: Read, line: Callable[[int, Numbers], str]) -> Numbers:
    """What is left by a writer that says `line(fact, what is in the bank)`."""
    bank = BoundedBank(LENGTH)
    for number, fact in enumerate(read.stream.stream.facts):
        bank.write(line(number, bank.numbers), fact.statement)
    return bank.numbers


def alike(rule: str, threshold: float) -> Arm:
    """The rule that puts a fact in the place of the entry most like it, the later of equals, where they are as alike as this."""

    def line(read: Read, number: int, present: Numbers) -> str:
        if not present:
            return "ADD"
        column, taken, factor = RULES[rule]
        values = read.features[number, list(present), column] / factor + taken
        place = len(present) - 1 - int(values[::-1].argmax())
        return f"UPDATE {place}" if values[place] >= threshold else "ADD"

    return lambda read: written(read, lambda number, present: line(read, number, present))


def evenly(read: Read) -> Numbers:
    return tuple(sorted(random.Random(read.stream.stream.key).sample(range(LENGTH), SMALL)))


def oracle(read: Read) -> Numbers:
    return written(read, read.stream.oracle_line)


RULES = {"cosine": (1, 0.5, 5.0), "shared words": (2, 0.0, 4.0), "shared names": (3, 0.0, 4.0)}
"""The column of the pair features that a rule goes by, and what was taken from it and multiplied."""
THRESHOLDS = tuple(round(0.03 * step, 2) for step in range(1, 33))


def tuned(threshold: float) -> dict[str, tuple[float, float]]:
    """Of each rule the best threshold on dev, and its reward there: 96 settings."""
    best: dict[str, tuple[float, float]] = {}
    for name, own in product(RULES, THRESHOLDS):
        score = float(np.mean([read.reward(alike(name, own)(read), threshold) for read in world("dev")]))
        if score > best.get(name, (0.0, -1.0))[1]:
            best[name] = own, score
    return best


def near_enough() -> float:
    """How near an entry must be for the stand-in: best on the training streams, over banks that hold what is true and banks that
    hold everything."""
    scores = {
        near: np.mean(
            [read.reward(bank, near) for read in world("train") for bank in (oracle(read), tuple(range(LENGTH)))]
        )
        for near in (0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7)
    }
    return max(scores, key=lambda near: float(scores[near]))


def policies(near: float, permuted: bool) -> list[ChangePolicy]:
    streams = [
        ChangeStream(read.features, lambda numbers, read=read: read.reward(numbers, near))  # type: ignore[misc]
        for read in world("train")
    ]
    return [learned_changes(streams, seed, permuted=permuted) for seed in SEEDS]


def arms(near: float) -> tuple[dict[str, list[Arm]], dict[str, Any]]:
    """The writers, one for each seed, and how they came about."""
    rules = tuned(near)
    begun = time.process_time()
    learned = policies(near, False)
    seconds = (time.process_time() - begun) / len(SEEDS)
    control = policies(near, True)

    def plays(policy: ChangePolicy) -> Arm:
        return lambda read: policy.play(read.features).numbers

    every: dict[str, list[Arm]] = {
        "nothing": [lambda read: ()],
        "evenly drawn": [evenly],
        "latest": [lambda read: tuple(range(LENGTH - SMALL, LENGTH))],
        "always add": [lambda read: tuple(range(LENGTH))],
        **{name: [alike(name, own)] for name, (own, _) in rules.items()},
        "small policy": [plays(policy) for policy in learned],
        "small policy, rewards permuted": [plays(policy) for policy in control],
        "oracle": [oracle],
    }
    told = {
        "near": near,
        "rules": {name: {"threshold": own, "dev": score} for name, (own, score) in rules.items()},
        "parameters": learned[0].parameters,
        "cpu seconds of a policy": round(seconds, 1),
        "banks of a policy": 16 * 8 * COUNT["train"],
    }
    return every, told


def of_banks(reads: Sequence[Read], banks: Sequence[Numbers]) -> dict[str, list[float]]:
    """Of each stream the share of what is known now that its bank holds, and how many entries say what is no longer so."""
    true, stale = [], []
    for read, bank in zip(reads, banks, strict=True):
        states = {thread: read.stream.state_of(thread, bank) for thread in threads_of(read.stream)}
        known = read.stream.true_now
        true.append(sum(states[thread][0] for thread in known) / max(1, len(known)))
        stale.append(float(sum(each for _, each in states.values())))
    return {"true": true, "stale": stale}


def shown(read: Read, bank: Numbers, count: int = SHOWN, dated: bool = False) -> tuple[str, ...]:
    """What the real reader sees of a bank: the `count` entries nearest to the question, in their order."""
    nearest = sorted(bank, key=lambda number: -read.asked[number])[:count]
    facts = [read.stream.stream.facts[number] for number in bank if number in nearest]
    return tuple(f"{fact.date}: {fact.statement}" if dated else fact.statement for fact in facts)


Query = tuple[str, tuple[str, ...]]


def answered(queries: Sequence[Query], kind: str, runs: Path) -> dict[Query, str]:
    """What a real reader says; what was asked before is not asked again."""
    import torch

    from benchmarks.writing.changing_reader import changing_reader

    torch.set_num_threads(1)
    file = runs / f"changing_reads_{kind}.json"
    known: dict[Query, str] = {}
    if file.exists():
        known = {(question, tuple(texts)): answer for question, texts, answer in json.loads(file.read_text())}
    todo, begun = [query for query in dict.fromkeys(queries) if query not in known], time.monotonic()
    reader = changing_reader(runs, kind) if todo else None
    for start in range(0, len(todo), AT_ONCE):
        part = todo[start : start + AT_ONCE]
        assert reader is not None
        known |= dict(zip(part, reader.answers(part), strict=True))
        file.write_text(json.dumps([[*query, answer] for query, answer in known.items()]))
        done = start + len(part)
        left = (time.monotonic() - begun) / done * (len(todo) - done) / 60
        print(f"{done} of {len(todo)} banks read, about {left:.0f} min left", flush=True)
    return known


def of_answers(reads: Sequence[Read], bank: Arm, known: dict[Query, str]) -> dict[str, float]:
    """Of the questions to which something is known: how often the real reader saw the right answer, its F1, how often it said
    what was true once, and how often `unknown`."""
    rows = []
    for read in reads:
        task, thread = read.stream.stream.task, read.stream.asked
        if kind_of(task) == "unknown":
            continue
        page = shown(read, bank(read))
        answer = known[task.input, page]
        once = {telling.value for telling in read.stream.tellings if telling.thread == thread} - set(task.answers)
        right = token_f1(answer, task.answers)
        rows.append((any(task.answers[0] in text for text in page), right, answer in once, answer in UNKNOWN))
    shares = np.mean(np.array(rows, dtype=float), axis=0)
    return dict(zip(("shown", "f1", "once", "unknown"), map(float, shares), strict=True)) | {"n": len(rows)}


def measured(split: str, readers: Sequence[str], runs: Path) -> dict[str, Any]:
    near = near_enough()
    every, told = arms(near)
    reads = world(split)
    banks = {arm: [[writer(read) for read in reads] for writer in own] for arm, own in every.items()}
    values: dict[str, dict[str, list[float]]] = {}
    for arm, own in banks.items():
        per_seed = [
            of_banks(reads, each)
            | {"stand-in": [read.reward(bank, near) for read, bank in zip(reads, each, strict=True)]}
            for each in own
        ]
        values[arm] = {measure: list(np.mean([seed[measure] for seed in per_seed], axis=0)) for measure in per_seed[0]}
    kinds: dict[str, dict[str, dict[str, float]]] = {}
    answers: dict[str, dict[str, dict[str, float]]] = {}
    pages = {arm: [list(map(shown, reads, each)) for each in own] for arm, own in banks.items()}
    all_of_them = tuple(range(LENGTH))
    pages["always add, with dates"] = [[shown(read, all_of_them, dated=True) for read in reads]]
    pages["always add, all shown"] = [[shown(read, all_of_them, LENGTH) for read in reads]]
    tasks = [read.stream.stream.task for read in reads]
    queries = {
        arm: [[(task.input, page) for task, page in zip(tasks, each, strict=True)] for each in own]
        for arm, own in pages.items()
    }
    for reader in readers:
        known = answered([query for own in queries.values() for each in own for query in each], reader, runs)
        answers[reader] = {arm: of_answers(reads, every[arm][0], known) for arm in ("always add", "oracle")}
        for arm, asked in queries.items():
            scores = [
                [token_f1(known[query], task.answers) for query, task in zip(each, tasks, strict=True)]
                for each in asked
            ]
            f1 = list(np.mean(scores, axis=0))
            values.setdefault(arm, {})[reader] = f1
            kinds.setdefault(arm, {})[reader] = {
                kind: float(np.mean([value for value, task in zip(f1, tasks, strict=True) if kind_of(task) == kind]))
                for kind in KINDS
            }
    clusters = [read.stream.stream.cluster for read in reads]
    rows = []
    for arm, of in values.items():
        row: dict[str, Any] = {"arm": arm, "seeds": len(every.get(arm, [None])), "by kind": kinds.get(arm)}
        for measure, each in of.items():
            mean = estimate(each, clusters=clusters)
            row[measure] = {"mean": mean.mean, "low": mean.low, "high": mean.high, "n": mean.n}
        rows.append(row)
    gaps = []
    for arm, minus in (
        ("oracle", "always add"),
        ("small policy", "always add"),
        ("small policy", "cosine"),
        ("small policy", "small policy, rewards permuted"),
        ("small policy", "always add, with dates"),
        ("small policy", "always add, all shown"),
        ("cosine", "always add"),
        ("oracle", "cosine"),
    ):
        for measure in ("stand-in", *readers):
            if measure in values.get(arm, {}) and measure in values.get(minus, {}):
                gap = paired_difference(
                    arm,
                    [a - b for a, b in zip(values[arm][measure], values[minus][measure], strict=True)],
                    clusters=clusters,
                )
                gaps.append(
                    {
                        "arm": arm,
                        "minus": minus,
                        "measure": measure,
                        "difference": gap.difference,
                        "low": gap.low,
                        "high": gap.high,
                        "p": gap.p,
                    }
                )
    counts = {kind: sum(kind_of(read.stream.stream.task) == kind for read in reads) for kind in KINDS}
    about = {"split": split, "streams": len(reads), "questions": counts, "length": LENGTH, "shown": SHOWN, **told}
    return {**about, "answers": answers, "rows": rows, "gaps": gaps}


KINDS = ("changed", "same", "unknown")


def kind_of(task: Task) -> str:
    """Whether a question is about what changed, what never did, or what is no longer known."""
    if task.tags["known"] == "false":
        return "unknown"
    return "same" if set(task.tags["plot"]) <= {"s", "r"} else "changed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", choices=("dev", "test"), default="test")
    parser.add_argument("--readers", nargs="*", choices=READERS, default=READERS)
    parser.add_argument("--runs", type=Path, default=Path("runs/writing"))
    options = parser.parse_args()
    result = measured(options.split, options.readers, options.runs)
    measures = ("true", "stale", "stand-in", *options.readers)
    cells = [(row["arm"], row["seeds"], *(said(row.get(each)) for each in measures)) for row in result["rows"]]
    read_by = [f"F1 of the reader `{each}`" for each in options.readers]
    print(
        markdown(("writer", "seeds", "true facts kept", "stale facts kept", "reward of the stand-in", *read_by), cells)
    )
    print(json.dumps({key: value for key, value in result.items() if key not in ("rows", "gaps")}))
    for gap in result["gaps"]:
        print(
            f"{gap['arm']} - {gap['minus']}, {gap['measure']}: {gap['difference']:+.3f} ({gap['low']:+.3f} to {gap['high']:+.3f})"
        )
    if options.split == "test" and tuple(options.readers) == READERS:
        record = {"command": "python -m benchmarks.writing.changing", "versions": versions(), **result}
        OUT.write_text(json.dumps(record, indent=1) + "\n")


def said(cell: dict[str, float] | None) -> str:
    return "" if cell is None else f"{cell['mean']:.2f} ({cell['low']:.2f} to {cell['high']:.2f})"


if __name__ == "__main__":
    main()
