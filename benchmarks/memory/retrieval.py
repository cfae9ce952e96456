"""Retrieval quality: does a search find where the answer is?

    python -m benchmarks.memory.retrieval --data DATA --json benchmarks/memory/retrieval.json

LongMemEval: share of a question's evidence sessions among the first five sessions, where a session stands at the rank of
its best turn. The haystack is the question's evidence sessions plus 50, or 500, others: sessions of questions that are not
tied to this one, dated before it was asked, and not competing with its answer. --pool says whose: "split", those of the same
split only, as `keepworth.tasks.longmemeval` draws them, which is never 500 in the shipped (oracle) edition; "all", any of
its 940. Questions with fewer such sessions are left out, and the table states how many are left.
LoCoMo: share of evidence turns among the first five and ten, in the whole conversation.

Turns are stored word for word, one item each. Weights of the fusion are chosen on the dev questions and reported on test.
Intervals: percentile bootstrap over questions, 2,000 draws; differences are paired, question by question.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.vectors import CACHE
from keepworth.episodes import Encoder, Session
from keepworth.episodes.episode import Turn
from keepworth.memory.search.index import InvertedIndex, best, tokens
from keepworth.memory.search.search import Fusion, Ranked, fuse
from keepworth.models.kept_vectors import KeptVectors
from keepworth.tasks.competing import competes
from keepworth.tasks.locomo import locomo
from keepworth.tasks.longmemeval import LongMemEvalQuestion, questions
from keepworth.tasks.splits import draw_order

DEEP = 200
DRAWS, SEED = 2_000, 0
DISTRACTORS = (50, 500)
GRID = [
    *(Fusion("rrf", weight, 1.0, constant) for constant in (60.0, 10.0) for weight in (1.0, 0.25, 0.5, 2.0, 4.0)),
    *(Fusion("weighted", weight, 1.0) for weight in (0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0)),
]


@dataclass(frozen=True)
class Asked:
    """One question: both rankings as (row, score), the (session, turn) of every row, where the evidence is, and its kind."""

    lexical: Ranked
    dense: Ranked
    places: Sequence[tuple[str, int]]
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
    """Everything this benchmark encodes: turns of the haystacks, and the questions, each once."""
    texts = dict.fromkeys(text_of(turn) for session, _ in sessions_of("") for turn in session.turns)
    texts.update(dict.fromkeys(question.text for question in questions()))
    for split in ("dev", "test"):
        for task in locomo(split, data=data) if data is not None else ():
            texts.update(dict.fromkeys(text_of(turn) for session in task.sessions for turn in session.turns))
            texts[task.input] = None
    return [text for text in texts if text]


@lru_cache(maxsize=4)
def sessions_of(split: str) -> tuple[tuple[Session, str], ...]:
    """(session, tie of its question) of one split ("" for all), each content once, in order of id."""
    found: dict[tuple[str, ...], tuple[Session, str]] = {}
    for question in questions():
        for session in question.sessions if split in ("", question.split) else ():
            found.setdefault(tuple(turn.text for turn in session.turns), (session, question.tie))
    return tuple(sorted(found.values(), key=lambda pair: pair[0].id))


def haystack(question: LongMemEvalQuestion, distractors: int, pool: str) -> list[Session] | None:
    """Evidence and distractor sessions in order of date; None where there are too few of the latter. 50 are among the 500."""
    eligible = [
        session
        for session, tie in sessions_of(question.split if pool == "split" else "")
        if tie != question.tie and session.date < question.asked_at
    ]
    eligible.sort(key=lambda session: draw_order(SEED, question.id, session.id))
    drawn: list[Session] = []
    for session in eligible:
        if len(drawn) == distractors:
            break
        if not competes(session, question.text, question.answers):
            drawn.append(session)
    if len(drawn) < distractors:
        return None
    return sorted((*question.sessions, *drawn), key=lambda session: (session.date, session.id))


class Turns:
    """All turns of many sessions, indexed once. A haystack is a choice of rows, with word statistics of its own: what a bank of
    just these turns would rank by, without making a bank for every question."""

    def __init__(self, sessions: Iterable[Session], encoder: Encoder | None) -> None:
        self.rows: dict[tuple[str, ...], list[int]] = {}
        self.places: list[tuple[str, int]] = []
        self._index = InvertedIndex()
        texts = []
        for session in sessions:
            key = _name(session)
            if key in self.rows:
                continue
            self.rows[key] = []
            for turn in session.turns:
                if clean := text_of(turn):
                    self.rows[key].append(len(texts))
                    self.places.append((session.id, turn.index))
                    self._index.add(clean)
                    texts.append(clean)
        self._encoder = encoder
        self._vectors = None if encoder is None else encoder.encode(texts)

    def rankings(self, sessions: Sequence[Session], question: str) -> tuple[Ranked, Ranked]:
        """(by words, by meaning), best first, ids being row numbers; ties in order of the sessions."""
        rows = np.asarray([row for session in sessions for row in self.rows[_name(session)]])
        outside = np.setdiff1d(np.arange(len(self.places)), rows)
        terms = list(dict.fromkeys(tokens(question)))
        scores = self._index.scores(terms, self._index.statistics(terms, outside))[rows]
        lexical = [(str(rows[place]), float(scores[place])) for place in best(scores, DEEP) if scores[place] > 0]
        if self._encoder is None or self._vectors is None:
            return lexical, []
        cosines = self._vectors[rows] @ self._encoder.encode([question])[0]
        return lexical, [(str(rows[place]), float(cosines[place])) for place in best(cosines, DEEP)]


def _name(session: Session) -> tuple[str, ...]:
    return (session.id, *(turn.text for turn in session.turns))


def asked_longmemeval(
    split: str, distractors: int, pool: str, encoder: Encoder | None, limit: int | None
) -> Iterator[Asked]:
    listed = [question for question in questions() if question.split == split and not question.abstention]
    stacks = {question: sessions for question in listed[:limit] if (sessions := haystack(question, distractors, pool))}
    turns = Turns((session for sessions in stacks.values() for session in sessions), encoder)
    for question, sessions in stacks.items():
        evidence = frozenset((session.id, -1) for session in question.sessions)
        yield Asked(*turns.rankings(sessions, question.text), turns.places, evidence, question.type)


def asked_locomo(split: str, data: Path, encoder: Encoder | None, limit: int | None) -> Iterator[Asked]:
    conversations: dict[str, Turns] = {}
    for task in locomo(split, data=data)[:limit]:
        evidence = frozenset(
            (session.id, turn.index) for session in task.sessions for turn in session.turns if turn.evidence
        )
        if not evidence:
            continue
        turns = conversations.get(task.tags["conversation"])
        if turns is None:
            turns = conversations[task.tags["conversation"]] = Turns(task.sessions, encoder)
        yield Asked(*turns.rankings(task.sessions, task.input), turns.places, evidence, task.tags["type"])


def session_recall(ranked: Ranked, asked: Asked, k: int) -> float:
    first = list(dict.fromkeys(asked.places[int(id)][0] for id, _ in ranked))[:k]
    return sum((session, -1) in asked.evidence for session in first) / len(asked.evidence)


def turn_recall(ranked: Ranked, asked: Asked, k: int) -> float:
    return sum(asked.places[int(id)] in asked.evidence for id, _ in ranked[:k]) / len(asked.evidence)


Recall = Callable[[Ranked, Asked, int], float]
Cells = dict[str, Any]
""""n", and "recall@k" -> (mean, low, high)."""


def tuned(dev: Sequence[Asked], recall: Recall, k: int) -> Fusion:
    """The fusion of GRID with the best mean recall on dev; the first of equals."""
    return max(GRID, key=lambda fusion: sum(recall(fuse(a.lexical, a.dense, fusion), a, k) for a in dev))


def table(test: Sequence[Asked], chosen: Fusion, recall: Recall, ks: Sequence[int]) -> dict[str, dict[str, Cells]]:
    """arm -> kind of question -> {"n", "recall@k": (mean, low, high)}; and under "fused - part" the paired differences."""
    arms: dict[str, Callable[[Asked], Ranked]] = {
        "lexical": lambda a: a.lexical,
        "dense": lambda a: a.dense,
        "fused": lambda a: fuse(a.lexical, a.dense, Fusion()),
        "fused, tuned": lambda a: fuse(a.lexical, a.dense, chosen),
    }
    kinds: dict[str, list[int]] = defaultdict(list)
    for number, asked in enumerate(test):
        kinds["all"].append(number)
        kinds[asked.kind].append(number)
    values = {(arm, k): [recall(rank(asked), asked, k) for asked in test] for arm, rank in arms.items() for k in ks}
    for fused in ("fused", "fused, tuned"):
        for part in ("lexical", "dense"):
            for k in ks:
                pairs = zip(values[fused, k], values[part, k], strict=True)
                values[f"{fused} - {part}", k] = [one - other for one, other in pairs]
    out: dict[str, dict[str, Cells]] = {}
    for (arm, k), each in values.items():
        for kind, group in sorted(kinds.items()):
            cells = out.setdefault(arm, {}).setdefault(kind, {"n": len(group)})
            cells[f"recall@{k}"] = interval([each[number] for number in group])
    return out


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    listed = np.asarray(values)
    means = listed[np.random.default_rng(SEED).integers(0, len(listed), (DRAWS, len(listed)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(listed.mean()), float(low), float(high)


def show(title: str, rows: Mapping[str, Mapping[str, Cells]], chosen: Fusion) -> None:
    print(f"\n## {title}\n\nTuned on dev: {chosen}\n")
    kinds = list(rows["fused"])
    metrics = [name for name in rows["fused"]["all"] if name != "n"]
    for metric in metrics:
        print(f"| {metric} | " + " | ".join(f"{kind} (n={rows['fused'][kind]['n']})" for kind in kinds) + " |")
        print("| --- |" + " --- |" * len(kinds))
        for arm, cells in rows.items():
            shown = ["{:.3f} ({:.3f} to {:.3f})".format(*cells[kind][metric]) for kind in kinds]
            print(f"| {arm} | " + " | ".join(shown) + " |")
        for fused in ("fused", "fused, tuned"):
            lost = [
                f"{kind} (to {part}{', surely' if rows[f'{fused} - {part}'][kind][metric][2] < 0 else ''})"
                for kind in kinds
                for part in ("lexical", "dense")
                if rows[f"{fused} - {part}"][kind][metric][0] < 0
            ]
            print(f"\n{metric}: {fused} loses to one of its parts on {', '.join(lost) or 'nothing'}.")
        print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder that holds LoCoMo; without it only LongMemEval is run")
    parser.add_argument("--encoder", default="minilm", help="an encoder's name, or none for words only")
    parser.add_argument("--limit", type=int, help="questions per split, for a quick look")
    parser.add_argument("--distractors", type=int, nargs="*", default=DISTRACTORS)
    parser.add_argument("--pool", choices=("split", "all"), default="all", help="whose sessions are distractors")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    encoder: Encoder | None = None
    if arguments.encoder != "none":
        from keepworth.models.encoders import encoder as named

        encoder = KeptVectors(named(arguments.encoder), CACHE)
    record: dict[str, object] = {
        "encoder": arguments.encoder,
        "pool": arguments.pool,
        "bootstrap": {"draws": DRAWS, "seed": SEED, "over": "questions"},
        "grid": [asdict(fusion) for fusion in GRID],
        "versions": {name: version(name) for name in ("keepworth", "numpy", "onnxruntime")},
    }

    def measured(name: str, title: str, dev: list[Asked], test: list[Asked], recall: Recall, ks: Sequence[int]) -> None:
        chosen = tuned(dev, recall, ks[-1])
        rows = table(test, chosen, recall, ks)
        record[name] = {"n_dev": len(dev), "n_test": len(test), "tuned": asdict(chosen), "rows": rows}
        show(title, rows, chosen)

    for distractors in arguments.distractors:
        dev, test = (
            list(asked_longmemeval(split, distractors, arguments.pool, encoder, arguments.limit))
            for split in ("dev", "test")
        )
        if not dev or not test:
            print(f"{len(dev)} dev and {len(test)} test questions have {distractors} distractor sessions: not measured")
            continue
        title = f"LongMemEval oracle + {distractors} sessions, session recall"
        measured(f"longmemeval+{distractors}", title, dev, test, session_recall, (5,))
    if arguments.data:
        dev, test = (list(asked_locomo(split, arguments.data, encoder, arguments.limit)) for split in ("dev", "test"))
        measured("locomo", "LoCoMo, turn recall", dev, test, turn_recall, (5, 10))
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
