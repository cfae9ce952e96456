"""The weights of `keepworth.memory.policy.replacing`: which statement takes the place of an older one that is near in meaning.

    python -m benchmarks.agents.replacing --json benchmarks/agents/replacing.json

Pairs of an older statement and a newer one of another day. Planted: of the sides "dev" and "seen", the right answer is known.
Real: of the half of LongMemEval's questions whose hash is even, where nothing is taken to give way; questions about knowledge
updates are left out, since there something does. What the weights are worth is measured on attributes and people that they were
not fitted on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.agents.changes import DEV, SEEN, PlantedConversation, conversations
from benchmarks.memory.engine import machine
from keepworth.memory.memory import Memory
from keepworth.memory.policy.claims import Claim, claims, gives_way, parsed_claim, stems
from keepworth.memory.policy.replacing import signs, told_as_change
from keepworth.memory.policy.writers import NEAREST, stated_in
from keepworth.tasks.longmemeval import longmemeval

FOLDS = 6
DISTRACTORS = 2
"""Sessions beside the evidence: of other people, on the same sort of topics."""
Encode = Callable[[list[str]], np.ndarray]


@dataclass(frozen=True, slots=True)
class Pair:
    """group: of one newer statement; fold: on which side of the fitting it is; right: whether the older gives way; kind: "real",
    "beside", or where it was planted; ruled: whether a rule says so already."""

    group: str
    fold: int
    kind: str
    right: bool
    ruled: bool
    values: tuple[float, ...]
    old: str
    new: str


_read, _parsed = lru_cache(None)(stated_in), lru_cache(None)(parsed_claim)


def number(text: str, folds: int) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % folds


def half(question: str) -> int:
    """0 where the weights may be fitted on a question of LongMemEval, 1 where not."""
    return number(question, 2)


@dataclass(frozen=True, slots=True)
class Said:
    day: float
    claim: Claim
    fact: str


def planted_pairs(encode: Encode, people: int, seed: int) -> Iterator[Pair]:
    for side, attributes in (("dev", DEV), ("seen", SEEN)):
        for wording in ("dev", "seen"):
            for talk in conversations(attributes, wording, people, seed):
                yield from _of_talk(talk, f"{side} attributes, {wording} wordings", encode)


def _of_talk(talk: PlantedConversation, name: str, encode: Encode) -> Iterator[Pair]:
    said = [
        Said(day, claim, next((fact for fact in talk.facts if fact in text), ""))
        for day, role, text in talk.messages
        if role == "user"
        for claim in claims(text)
    ]
    changes = {change.second: change for change in talk.changes}
    for place, old, cosine in _near(said, encode):
        new = said[place]
        change = changes.get(new.fact)
        right = change is not None and old.fact == change.first and change.stale in old.claim.text
        kind = "beside" if "beside" in (talk.kinds.get(new.fact), talk.kinds.get(old.fact)) else name
        group = f"{talk.person}/{name}/{place}"
        fold = number(change.attribute if change is not None else talk.person, FOLDS)
        yield _pair(group, fold, kind, right, old.claim, new.claim, cosine)


def real_pairs(encode: Encode, side: int) -> Iterator[Pair]:
    splits = ("train", "dev", "test")
    for task in (task for split in splits for task in longmemeval(split, abstention=False, distractors=DISTRACTORS)):
        if half(task.key) != side or task.tags["type"] == "knowledge-update":
            continue
        sessions = sorted(task.sessions, key=lambda session: (session.date, session.id))
        said = [
            Said(float(np.datetime64(session.date_of(turn)[:19]).astype(int)) / 86_400, claim, "")
            for session in sessions
            for turn in session.turns
            if turn.speaker == "user"
            for claim in claims(turn.text, session.date_of(turn))
        ]
        for place, old, cosine in _near(said, encode):
            fold = number(task.key, FOLDS)
            yield _pair(f"{task.key}/{place}", fold, "real", False, old.claim, said[place].claim, cosine)


def _near(said: Sequence[Said], encode: Encode) -> Iterator[tuple[int, Said, float]]:
    """(place of a statement, one that was said before and on another day, their cosine), for the nearest ones."""
    if not said:
        return
    vectors = encode([each.claim.text for each in said])
    for place in range(1, len(said)):
        earlier = [row for row in range(place) if said[place].day - said[row].day >= 0.5]
        cosines = vectors[earlier] @ vectors[place]
        for row in np.argsort(-cosines)[:NEAREST].tolist():
            yield place, said[earlier[row]], float(cosines[row])


def _pair(group: str, fold: int, kind: str, right: bool, old: Claim, new: Claim, cosine: float) -> Pair:
    # As an item is read back: from its text alone.
    old, new = _read(old.text)[0], _parsed(new.text)
    ruled = gives_way(old, new)
    # Said again, with more or fewer words: nothing is lost where the older gives way.
    again = not right and (stems(old.text) <= stems(new.text) or stems(new.text) <= stems(old.text))
    return Pair(
        group,
        fold,
        "said again" if again else kind if told_as_change(new) else "untold",
        right,
        ruled,
        tuple(signs(old, new, cosine).values()),
        old.text,
        new.text,
    )


def fitted(values: np.ndarray, right: np.ndarray, counts: np.ndarray, shrink: float) -> np.ndarray:
    """Weights of a logistic regression; counts: how often each row counts."""
    weights = np.zeros(values.shape[1])
    bound = np.eye(len(weights)) * shrink
    bound[0, 0] = 1e-6
    for _ in range(100):
        chance = 1.0 / (1.0 + np.exp(-np.clip(values @ weights, -30, 30)))
        slope = values.T @ (counts * (right - chance)) - bound @ weights
        curve = (values * (counts * chance * (1 - chance) + 1e-9)[:, None]).T @ values + bound
        step = np.linalg.solve(curve, slope)
        weights += step
        if np.abs(step).max() < 1e-8:
            break
    return weights


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=40, help="conversations for each cell")
    parser.add_argument("--seed", type=int, default=100, help="another than those of benchmarks.agents.facts")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--shrink", type=float, default=3.0)
    parser.add_argument(
        "--wrong", type=float, default=0.01, help="share of statements of a change that may wrongly replace one"
    )
    parser.add_argument("--show", type=int, default=0, help="print so many of the surest wrong pairs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    with Memory(encoder=options.encoder, policy=None, log="off") as memory:
        known: dict[str, np.ndarray] = {}

        def encode(texts: list[str]) -> np.ndarray:
            for text, vector in memory.store.encode([text for text in texts if text not in known]).items():
                known[text] = np.frombuffer(vector, np.float32)
            return np.stack([known[text] for text in texts])

        pairs = [*planted_pairs(encode, options.people, options.seed), *real_pairs(encode, 0)]
    pairs = [pair for pair in pairs if pair.kind not in ("said again", "untold")]
    names = list(signs(parsed_claim("a"), parsed_claim("a"), 0.0))
    values = np.array([pair.values for pair in pairs])
    right = np.array([float(pair.right) for pair in pairs])
    real = np.array([pair.kind == "real" for pair in pairs])
    beside = np.array([pair.kind == "beside" for pair in pairs])
    folds = np.array([pair.fold for pair in pairs])
    # The planted repeat a few sentences over and over; the real do not.
    counts = np.where(real, 1.0, np.where(beside, 1.0, 0.25))
    scale = np.where(values.std(0) > 0, values.std(0), 1.0)
    scaled = values / scale
    score = np.zeros(len(pairs))
    for fold in range(FOLDS):
        out = folds == fold
        score[out] = scaled[out] @ fitted(scaled[~out], right[~out], counts[~out], options.shrink)
    weights = fitted(scaled, right, counts, options.shrink) / scale
    surest: dict[str, int] = {}
    for row, pair in enumerate(pairs):
        if pair.group not in surest or score[row] > score[surest[pair.group]]:
            surest[pair.group] = row
    chosen_from = [[score[row] for row in surest.values() if rows_of[row]] for rows_of in (real, beside)]
    bound = 0.0
    while any(sum(each >= bound for each in scores) > options.wrong * len(scores) for scores in chosen_from):
        bound += 0.5
    rows: dict[str, Any] = {}
    for kind in dict.fromkeys(pair.kind for pair in pairs):
        groups = [row for row in surest.values() if pairs[row].kind == kind]
        told = {pair.group for pair in pairs if pair.kind == kind and pair.right}
        missed = told - {pair.group for pair in pairs if pair.right and pair.ruled}
        hit = {pairs[row].group for row in groups if pairs[row].right and score[row] >= bound}
        wrong = sum(score[row] >= bound and not pairs[row].right for row in groups)
        rows[kind] = {
            "statements": len(groups),
            "replaced wrongly": int(wrong),
            "changes": len(told),
            "found": len(hit),
            "changes that no rule finds": len(missed),
            "found of these": len(hit & missed),
        }
        print(kind, rows[kind], flush=True)
    chosen = {name: round(float(weight), 3) for name, weight in zip(names, weights, strict=True)}
    print(
        "[weights]", *(f'"{name}" = {weight}' for name, weight in chosen.items()), "\nBOUND =", round(float(bound), 2)
    )
    wrong_rows = sorted((row for row in surest.values() if not pairs[row].right), key=lambda row: -score[row])
    shown: set[tuple[str, str]] = set()
    for row in wrong_rows:
        if len(shown) < options.show and (pairs[row].new, pairs[row].old) not in shown:
            shown.add((pairs[row].new, pairs[row].old))
            print(f"{score[row]:.2f} {pairs[row].kind[:6]} {pairs[row].new[:110]} <- {pairs[row].old[:110]}")
    if options.json:
        result = {
            "machine": machine(),
            **vars(options),
            "json": "",
            "bound": float(bound),
            "weights": chosen,
            "of": rows,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
