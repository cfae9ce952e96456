"""Retrieval quality: does a search find where the answer is?

    python -m benchmarks.memory.retrieval --data DATA --json out.json

LongMemEval (oracle sessions plus 50, or 500, distractors): share of a question's evidence sessions among the first five
sessions, where a session stands at the rank of its best turn. LoCoMo: share of evidence turns among the first five and ten.
Turns are stored word for word, one item each. Weights of the fusion are tuned on the dev split and reported on test.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.memory.vectors import KeptVectors
from recollect.episodes import Encoder, Session, Task
from recollect.episodes.task import Turn
from recollect.memory.bank import Bank
from recollect.memory.item import Provenance
from recollect.memory.lexical import tokens
from recollect.memory.ranking import Fusion, Ranked, fuse
from recollect.memory.retrieval import dense_rankings, lexical_ranking
from recollect.tasks.locomo import locomo
from recollect.tasks.longmemeval import longmemeval

DEEP = 200
GRID = [Fusion("rrf", weight, 1.0) for weight in (0.25, 0.5, 1.0, 2.0, 4.0)] + [
    Fusion("weighted", weight, 1.0) for weight in (0.1, 0.2, 0.3, 0.5, 0.8)
]


@dataclass(frozen=True)
class Asked:
    """One question: both rankings as (place, score) with place = (session, turn), where the evidence is, and its kind."""

    lexical: Ranked
    dense: Ranked
    places: Mapping[str, tuple[str, int]]
    evidence: frozenset[tuple[str, int]]
    kind: str


def text_of(turn: Turn) -> str:
    """A turn as it is stored; "" where it says nothing."""
    if not turn.text.strip():
        return ""
    clean = "".join(c if c.isprintable() or c in "\n\t" else " " for c in turn.text)
    # Questions ask what a person said, by name.
    return clean if turn.speaker in ("user", "assistant") else f"{turn.speaker}: {clean}"


def turns_of(data: Path | None) -> list[str]:
    """Everything this benchmark encodes: turns of the dev and test haystacks, and their questions, each once."""
    tasks = [task for split in ("dev", "test") for task in longmemeval(split, distractors=500, abstention=False)]
    if data is not None:
        tasks.extend(task for split in ("dev", "test") for task in locomo(split, data=data))
    texts = dict.fromkeys(text_of(turn) for task in tasks for session in task.sessions for turn in session.turns)
    texts.update(dict.fromkeys(task.input for task in tasks))
    return [text for text in texts if text]


def bank_of(sessions: Sequence[Session], encoder: Encoder | None) -> tuple[Bank, dict[str, tuple[str, int]]]:
    """Every turn as an item; places: item id -> (session id, turn)."""
    bank = Bank.empty(encoder, cached=0)
    places = {}
    for session in sessions:
        for turn in session.turns:
            if clean := text_of(turn):
                source = Provenance("conversation", session.id, turn.index, turn.speaker, session.date)
                item = bank.add(clean, kind="episode", event_time=session.date, provenance=source, deduplicate=False)
                places[item.id] = (session.id, turn.index)
    return bank, places


def rankings(bank: Bank, question: str, encoder: Encoder | None) -> tuple[Ranked, Ranked]:
    def every(id: str) -> bool:
        return True

    stack = bank._stack
    lexical = lexical_ranking(stack, list(dict.fromkeys(tokens(question))), DEEP, every)
    dense: Ranked = []
    if encoder is not None:
        assert bank._embedder is not None
        dense = dense_rankings(stack, bank._embedder([question]), DEEP, every, bank._embedder)[0]
    return lexical, dense


def asked_longmemeval(split: str, distractors: int, encoder: Encoder | None, limit: int | None) -> Iterator[Asked]:
    for task in longmemeval(split, distractors=distractors, abstention=False)[:limit]:
        if int(task.tags["distractors"]) < distractors:
            continue  # too few eligible sessions: the table states how many questions are left
        bank, places = bank_of(task.sessions, encoder)
        evidence = frozenset((session, -1) for session in task.evidence)
        yield Asked(*rankings(bank, task.input, encoder), places, evidence, task.tags["type"])


def asked_locomo(split: str, data: Path, encoder: Encoder | None, limit: int | None) -> Iterator[Asked]:
    banks: dict[str, tuple[Bank, dict[str, tuple[str, int]]]] = {}
    tasks: list[Task] = locomo(split, data=data)[:limit]
    for task in tasks:
        evidence = frozenset(
            (session.id, turn.index) for session in task.sessions for turn in session.turns if turn.evidence
        )
        if not evidence:
            continue
        conversation = task.tags["conversation"]
        if conversation not in banks:
            banks[conversation] = bank_of(task.sessions, encoder)
        bank, places = banks[conversation]
        yield Asked(*rankings(bank, task.input, encoder), places, evidence, task.tags["type"])


def session_recall(ranked: Ranked, asked: Asked, k: int) -> float:
    first = list(dict.fromkeys(asked.places[id][0] for id, _ in ranked))[:k]
    return sum((session, -1) in asked.evidence for session in first) / len(asked.evidence)


def turn_recall(ranked: Ranked, asked: Asked, k: int) -> float:
    return sum(asked.places[id] in asked.evidence for id, _ in ranked[:k]) / len(asked.evidence)


Recall = Callable[[Ranked, Asked, int], float]


def tuned(dev: Sequence[Asked], recall: Recall, k: int) -> Fusion:
    """The fusion of GRID with the best mean recall on dev; the first of equals."""
    return max(GRID, key=lambda fusion: sum(recall(fuse(a.lexical, a.dense, fusion), a, k) for a in dev))


def table(
    test: Sequence[Asked], chosen: Fusion, recall: Recall, ks: Sequence[int]
) -> dict[str, dict[str, dict[str, object]]]:
    """arm -> kind of question -> {"n", "recall@k": (mean, low, high)}; 95 % intervals by bootstrap over questions."""
    arms: dict[str, Callable[[Asked], Ranked]] = {
        "lexical": lambda a: a.lexical,
        "dense": lambda a: a.dense,
        "fused": lambda a: fuse(a.lexical, a.dense, Fusion()),
        "fused, tuned": lambda a: fuse(a.lexical, a.dense, chosen),
    }
    out: dict[str, dict[str, dict[str, object]]] = {}
    for arm, ranked in arms.items():
        kinds: dict[str, list[Asked]] = defaultdict(list)
        for asked in test:
            kinds["all"].append(asked)
            kinds[asked.kind].append(asked)
        out[arm] = {}
        for kind, group in sorted(kinds.items()):
            cells: dict[str, object] = {"n": len(group)}
            for k in ks:
                cells[f"recall@{k}"] = interval([recall(ranked(asked), asked, k) for asked in group])
            out[arm][kind] = cells
    return out


def interval(values: Sequence[float], draws: int = 1000) -> tuple[float, float, float]:
    generator = random.Random(0)
    means = sorted(sum(generator.choices(values, k=len(values))) / len(values) for _ in range(draws))
    return sum(values) / len(values), means[int(0.025 * draws)], means[int(0.975 * draws)]


def show(title: str, rows: Mapping[str, Mapping[str, Mapping[str, object]]], chosen: Fusion) -> None:
    print(f"\n## {title}\n\nTuned on dev: {chosen}\n")
    kinds = list(next(iter(rows.values())))
    metrics = [name for name in next(iter(next(iter(rows.values())).values())) if name != "n"]
    for metric in metrics:
        print(
            f"| {metric} | " + " | ".join(f"{kind} (n={next(iter(rows.values()))[kind]['n']})" for kind in kinds) + " |"
        )
        print("| --- |" + " --- |" * len(kinds))
        for arm, cells in rows.items():
            shown = []
            for kind in kinds:
                mean, low, high = cells[kind][metric]  # type: ignore[misc]
                shown.append(f"{mean:.3f} ({low:.3f} to {high:.3f})")
            print(f"| {arm} | " + " | ".join(shown) + " |")
        losing = [
            kind
            for kind in kinds
            if rows["fused"][kind][metric][0] < max(rows[a][kind][metric][0] for a in ("lexical", "dense"))
        ]  # type: ignore[index]
        print(f"\nFusion with equal weights loses to one of its parts on: {', '.join(losing) or 'nothing'}.\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder that holds LoCoMo; without it only LongMemEval is run")
    parser.add_argument("--encoder", default="minilm", help="an encoder's name, or none for words only")
    parser.add_argument("--limit", type=int, help="questions per split, for a quick look")
    parser.add_argument("--distractors", type=int, nargs="*", default=[50, 500])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    encoder: Encoder | None = None
    if arguments.encoder != "none":
        from recollect.models.encoders import encoder as named

        encoder = KeptVectors(named(arguments.encoder))
    record = {}
    for distractors in arguments.distractors:
        dev = list(asked_longmemeval("dev", distractors, encoder, arguments.limit))
        test = list(asked_longmemeval("test", distractors, encoder, arguments.limit))
        if not test:
            print(f"no test question has {distractors} eligible distractor sessions")
            continue
        chosen = tuned(dev or test, session_recall, 5)
        rows = table(test, chosen, session_recall, (5,))
        record[f"longmemeval+{distractors}"] = {"tuned": str(chosen), "rows": rows}
        show(f"LongMemEval oracle + {distractors} sessions, session recall", rows, chosen)
    if arguments.data:
        dev = list(asked_locomo("dev", arguments.data, encoder, arguments.limit))
        test = list(asked_locomo("test", arguments.data, encoder, arguments.limit))
        chosen = tuned(dev, turn_recall, 10)
        rows = table(test, chosen, turn_recall, (5, 10))
        record["locomo"] = {"tuned": str(chosen), "rows": rows}
        show("LoCoMo, turn recall", rows, chosen)
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
