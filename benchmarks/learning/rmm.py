"""RMM's reranker: does reward from citations bring the evidence among the first five?

    python -m benchmarks.learning.rmm tune --cache FOLDER
    python -m benchmarks.learning.rmm test --cache FOLDER [--locomo FOLDER]

LongMemEval with 40 sessions of other people beside the evidence, in windows of 60 words of what the user said. Questions about
what the assistant said are left out, for it is not in the memory. Encoder: all-MiniLM-L6-v2. Measure: recall@5, the share of the
turns marked as evidence of which a window is among the first five. Learned is on train and dev questions, whose haystacks are
made of other conversations than those of the test questions, which are read once.

tune: settings by cross-validation on train and dev questions, folds by tied questions; writes them to rmm_tuned.json. test: what
was chosen, on test questions and (--locomo) on LoCoMo, to rmm.json. --cache keeps vectors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from keepworth.episodes.episode import Task
from keepworth.evaluation.statistics import compared, estimate
from keepworth.evaluation.system import as_remembered
from keepworth.learning.run_folder import versions
from keepworth.memory.memory import Memory
from keepworth.memory.policy.propensity import gumbel_top_k
from keepworth.methods.policies.rmm import Reranker, cites_by_words
from keepworth.models.encoders import encoder
from keepworth.tasks.entries import entries
from keepworth.tasks.locomo import locomo
from keepworth.tasks.longmemeval import longmemeval, questions

HERE = Path(__file__).parent
DISTRACTORS, POOL, SHOWN = 40, 20, 5
REWARDS = ("words", "evidence", "permuted")
Floats = npt.NDArray[np.float64]
Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """tie: of questions that share conversations. query: (d,); items: (n, d), the retriever's best `POOL`, best first; turns: of
    which turn each is a window; texts: what each says; marked: turns that are evidence, wherever they are."""

    key: str
    tie: str
    text: str
    answers: tuple[str, ...]
    query: Floats
    items: Floats
    turns: tuple[tuple[str, int], ...]
    texts: tuple[str, ...]
    marked: frozenset[tuple[str, int]]

    def recall(self, order: Sequence[int] | Floats, shown: int = SHOWN) -> float:
        return len({self.turns[int(place)] for place in order[:shown]} & self.marked) / len(self.marked)

    @property
    def evidence(self) -> npt.NDArray[np.bool_]:
        return np.array([turn in self.marked for turn in self.turns])


class Vectors:
    """Vectors of texts, kept in a file."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "vectors.npz"
        self.encoder = encoder("minilm")
        self.rows: dict[str, npt.NDArray[np.float32]] = {}
        if self.place.exists():
            with np.load(self.place) as saved:
                self.rows = dict(zip(saved["names"].tolist(), saved["vectors"], strict=True))

    identity = property(lambda self: self.encoder.identity)

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        names = [hashlib.blake2b(text.encode(), digest_size=12).hexdigest() for text in texts]
        fresh = sorted({name: text for name, text in zip(names, texts, strict=True) if name not in self.rows}.items())
        for start in range(0, len(fresh), 32):
            some = fresh[start : start + 32]
            vectors = self.encoder.encode([text for _, text in some])
            self.rows.update(zip((name for name, _ in some), vectors, strict=True))
        return np.stack([self.rows[name] for name in names])

    def save(self) -> None:
        self.place.parent.mkdir(parents=True, exist_ok=True)
        np.savez(self.place, names=np.array(list(self.rows)), vectors=np.stack(list(self.rows.values())))


def longmemeval_tasks(split: str) -> list[Task]:
    tasks = longmemeval(split, distractors=DISTRACTORS, abstention=False)
    return [task for task in tasks if task.tags["type"] != "single-session-assistant"]


def memory_of(task: Task) -> str:
    """Of LoCoMo many questions are asked of one conversation."""
    return task.tags.get("conversation", task.key)


def asked(tasks: Sequence[Task], vectors: Vectors, tie: Callable[[Task], str]) -> list[Question]:
    """The questions whose evidence is in the memory at all."""
    found = []
    memories: dict[str, tuple[Any, ...]] = {}
    for task in tasks:
        held = memories.get(memory_of(task))
        if held is None:
            held = entries(task), vectors.encode([as_remembered(entry) for entry in entries(task)]).astype(np.float64)
            memories = {memory_of(task): held}
        listed, matrix = held
        marked = frozenset(
            (session.id, turn.index) for session in task.sessions for turn in session.turns if turn.evidence
        ) & {(entry.session, entry.turn) for entry in listed}
        if not marked:
            continue
        query = vectors.encode([task.input])[0].astype(np.float64)
        best = np.argsort(-(matrix @ query), kind="stable")[:POOL]
        some = [listed[place] for place in best]
        found.append(
            Question(
                task.key,
                tie(task),
                task.input,
                task.answers,
                query,
                matrix[best],
                tuple((entry.session, entry.turn) for entry in some),
                tuple(as_remembered(entry) for entry in some),
                marked,
            )
        )
    return found


# What a citation would be.


def citations(question: Question, rule: str, shown: Sequence[int], seed: int) -> list[float] | None:
    """+1 and -1 for each of the items shown; None where the rule of words finds none to cite, and so knows nothing: many answers
    are a count or a span of time, and stand in no text."""
    if rule == "words":
        texts = [question.texts[place] for place in shown]
        used = set(cites_by_words(question.answers[0], question.text, texts))
        return [1.0 if place in used else -1.0 for place in range(len(shown))] if used else None
    marks = question.evidence
    if rule == "permuted":
        # Everything: whether an item counts as evidence says nothing any more, and stays the same whenever it is shown.
        digest = hashlib.blake2b(f"{seed}/{question.key}".encode(), digest_size=8).digest()
        marks = marks[np.random.default_rng(int.from_bytes(digest)).permutation(len(marks))]
    return [1.0 if marks[place] else -1.0 for place in shown]


def accuracy(asked_: Sequence[Question], rule: str) -> dict[str, float]:
    """Of the rule against the marks, among the retriever's first five of the questions where it cites anything."""
    hits = cited = true = spoke = 0
    for question in asked_:
        shown = range(min(SHOWN, len(question.turns)))
        rewards = citations(question, rule, shown, 0)
        if rewards is not None:
            used, marks = np.array(rewards) > 0.0, question.evidence[: len(shown)]
            hits, cited, true = hits + int((used & marks).sum()), cited + int(used.sum()), true + int(marks.sum())
            spoke += 1
    precision, recall = hits / max(1, cited), hits / max(1, true)
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    return {"precision": precision, "recall": recall, "f1": f1, "questions": spoke, "of": len(asked_)}


# Learners: each from questions to a function that orders the items of a question.

Order = Callable[[Question], npt.NDArray[np.intp]]
Shown = list[tuple[Question, int, float]]


def reranked(
    train: Sequence[Question], rule: str, settings: Settings, seed: int, log: Shown | None = None
) -> tuple[Reranker, float]:
    """RMM over its passes, and the recall@5 of what it showed on the way. log: takes what was shown and its reward."""
    settings = dict(settings)
    passes, rank = settings.pop("passes"), settings.pop("rank", 0)
    basis = None
    if rank:
        texts = np.concatenate([question.items for question in train])
        basis = np.linalg.svd(texts - texts.mean(axis=0), full_matrices=False)[2][:rank].T.copy()
    reranker = Reranker(**settings, basis=basis)
    generator = np.random.default_rng([41, seed])
    recalls = []
    for _ in range(passes):
        for place in generator.permutation(len(train)).tolist():
            question = train[place]
            slate = gumbel_top_k(reranker.logits(question.query, question.items), SHOWN, generator)
            rewards = citations(question, rule, slate, seed)
            recalls.append(question.recall(slate))
            if rewards is None:
                continue
            reranker.learn(question.query, question.items, slate, rewards)
            if log is not None:
                log += [(question, each, reward) for each, reward in zip(slate, rewards, strict=True)]
    return reranker, float(np.mean(recalls))


def by_reranker(reranker: Reranker) -> Order:
    return lambda question: np.argsort(-reranker.logits(question.query, question.items), kind="stable")


def statistician(shown: Shown, ridge: float) -> Order:
    """Logistic regression of the citation on cosine and on the product of query and item, number by number; the ridge is on the
    product alone. Newton's method in the span of what was seen."""
    pairs = {(question.key, place): (question, place, reward) for question, place, reward in shown}.values()
    product_ = np.stack([question.query * question.items[place] for question, place, _ in pairs])
    target = np.array([reward > 0.0 for *_, reward in pairs], dtype=np.float64)
    plain = np.column_stack([np.ones(len(target)), product_.sum(axis=1)])
    x = np.column_stack([plain, product_ * np.sqrt(product_.shape[1])])
    penalty = np.r_[1e-6, 1e-6, np.full(product_.shape[1], ridge)]
    w = np.zeros(x.shape[1])
    for _ in range(12):
        chance = 1.0 / (1.0 + np.exp(-np.clip(x @ w, -30.0, 30.0)))
        slope = x.T @ (chance - target) + penalty * w
        w -= np.linalg.solve((x * (chance * (1.0 - chance))[:, None]).T @ x + np.diag(penalty), slope)
    weights = w[1] + w[2:] * np.sqrt(product_.shape[1])
    return lambda question: np.argsort(-(question.items @ (question.query * weights)), kind="stable")


def own_search(tasks: Sequence[Task], asked_: Sequence[Question], vectors: Vectors, mode: str | None) -> list[float]:
    """recall@5 of this project's own search: of words alone ("lexical"), or as it is by default."""
    by_key, recalls = {task.key: task for task in tasks}, []
    memories: dict[str, tuple[Memory, dict[str, tuple[str, int]]]] = {}
    for question in asked_:
        task = by_key[question.key]
        held = memories.get(memory_of(task))
        if held is None:
            memory = Memory(encoder=vectors, policy=None, log="off")
            listed = entries(task)
            items = memory.add_many([as_remembered(entry) for entry in listed], repeat=True)
            held = memory, {item.id: (e.session, e.turn) for item, e in zip(items, listed, strict=True)}
            memories = {memory_of(task): held}
        memory, places = held
        hits = memory.search(question.text, top_k=SHOWN, mode=mode)
        recalls.append(len({places[hit.id] for hit in hits} & question.marked) / len(question.marked))
    return recalls


# Tuning: on train and dev questions alone.

PUBLISHED: Settings = {"temperature": 0.5, "rate": 1e-3, "baseline": 0.5, "batch": 4, "passes": 1}
LONGER: Settings = {**PUBLISHED, "passes": 14}
"""As many steps as the paper's curve has: 1,000."""
OURS: Settings = {"temperature": 0.05, "rate": 0.003, "baseline": None, "batch": 4, "passes": 4}
CANDIDATES: Mapping[str, Settings] = {
    "published": PUBLISHED,
    "published, 1,000 steps": LONGER,
    "tau 0.05, running mean": OURS,
    "tau 0.05, b 0.5": {**OURS, "baseline": 0.5},
    "one matrix, rate 0.001": {**OURS, "shared": True, "rate": 0.001},
    "one matrix": {**OURS, "shared": True},
    "one matrix, rate 0.01": {**OURS, "shared": True, "rate": 0.01},
    "one matrix, tau 0.1": {**OURS, "shared": True, "temperature": 0.1, "rate": 0.01},
    "rank 16, rate 0.01": {**OURS, "rank": 16, "rate": 0.01},
    "rank 64, rate 0.01": {**OURS, "rank": 64, "rate": 0.01},
    "decay, rate 0.01": {**OURS, "decay": 1.0, "rate": 0.01},
    "one matrix, decay, rate 0.01": {**OURS, "shared": True, "decay": 1.0, "rate": 0.01},
}
RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0)


def folds(asked_: Sequence[Question], many: int = 3) -> list[tuple[list[Question], list[Question]]]:
    """(learned from, measured on), by ties."""
    digest = {q.tie: hashlib.blake2b(f"fold {q.tie}".encode(), digest_size=4).digest() for q in asked_}
    side = {tie: int.from_bytes(each) % many for tie, each in digest.items()}
    return [
        ([q for q in asked_ if side[q.tie] != fold], [q for q in asked_ if side[q.tie] == fold]) for fold in range(many)
    ]


def tuned(asked_: Sequence[Question], seeds: int) -> dict[str, Any]:
    """recall@5 on the held-out folds, and of what was shown while it was learned, for every setting; the best of each reward."""
    record: dict[str, Any] = {
        "retriever": float(np.mean([q.recall(range(POOL)) for q in asked_])),
        "rmm": {},
        "statistician": {},
    }
    for rule in ("words", "evidence"):
        by_setting: dict[str, Any] = {}
        by_ridge: dict[float, list[float]] = {ridge: [] for ridge in RIDGES}
        for name, settings in CANDIDATES.items():
            values, shown_ = [], []
            for seed in range(seeds):
                for train, held_out in folds(asked_):
                    log: Shown = []
                    reranker, live = reranked(train, rule, settings, seed, log)
                    order = by_reranker(reranker)
                    values += [question.recall(order(question)) for question in held_out]
                    shown_.append(live)
                    if name == "one matrix" and seed == 0:  # on what one run showed
                        for ridge in RIDGES:
                            other = statistician(log, ridge)
                            by_ridge[ridge] += [question.recall(other(question)) for question in held_out]
            by_setting[name] = {"recall": float(np.mean(values)), "while learning": float(np.mean(shown_))}
            print(rule, name, by_setting[name], flush=True)
        record["rmm"][rule] = by_setting
        record["statistician"][rule] = {str(ridge): float(np.mean(values)) for ridge, values in by_ridge.items()}
        print(rule, record["statistician"][rule], flush=True)
    best: dict[str, Any] = {}
    for rule in ("words", "evidence"):
        best[rule] = {
            "rmm": max(record["rmm"][rule], key=lambda name: record["rmm"][rule][name]["recall"]),
            "ridge": float(max(record["statistician"][rule], key=record["statistician"][rule].__getitem__)),
        }
    # The control has the settings of what it is the control of.
    return {**record, "best": {**best, "permuted": best["evidence"]}}


# Test.


def learned(
    train: Sequence[Question], best: Mapping[str, Any], seeds: int
) -> tuple[dict[str, list[Order]], dict[str, float]]:
    """By arm one order of each seed; and recall@5 of what was shown while it was learned."""
    arms: dict[str, list[Order]] = {}
    live: dict[str, list[float]] = {}
    for seed in range(seeds):
        for rule in REWARDS:
            chosen: dict[str, Settings] = {"tuned": CANDIDATES[best[rule]["rmm"]]}
            if rule != "permuted":
                chosen |= {"published": PUBLISHED, "published, 1,000 steps": LONGER}
            for name, settings in chosen.items():
                log: Shown = []
                reranker, shown_ = reranked(train, rule, settings, seed, log)
                arms.setdefault(f"rmm, {name}: {rule}", []).append(by_reranker(reranker))
                live.setdefault(f"rmm, {name}: {rule}", []).append(shown_)
                if name == "tuned":
                    arms.setdefault(f"logistic: {rule}", []).append(statistician(log, best[rule]["ridge"]))
    return arms, {arm: float(np.mean(values)) for arm, values in live.items()}


def measured(
    asked_: Sequence[Question], arms: Mapping[str, Sequence[Order]], others: Mapping[str, list[float]]
) -> dict[str, Any]:
    """Each arm's recall@5, over the seeds of each question, and what it gains over the retriever; resampled are ties."""
    ties = {question.key: question.tie for question in asked_}
    by_seed = {
        arm: [[question.recall(order(question)) for question in asked_] for order in orders]
        for arm, orders in arms.items()
    }
    first = [question.recall(range(POOL)) for question in asked_]
    best = [question.recall(np.argsort(~question.evidence, kind="stable")) for question in asked_]
    draws = np.random.default_rng(43)
    chance = [float(np.mean([q.recall(draws.permutation(len(q.turns))) for _ in range(20)])) for q in asked_]
    values = {"retriever": first, "oracle": best, "chance": chance, **others}
    values |= {arm: np.mean(rows, axis=0).tolist() for arm, rows in by_seed.items()}
    scores = {arm: dict(zip(ties, row, strict=True)) for arm, row in values.items()}
    gains = compared(
        scores, [(arm, "retriever") for arm in scores if arm not in ("retriever", "oracle", "chance")], ties
    )
    gain_of = {each.name.removesuffix(" - retriever"): each for each in gains}
    rows = []
    for arm, row in values.items():
        level = estimate(row)
        each = {"arm": arm, "mean": level.mean, "low": level.low, "high": level.high, "n": len(row)}
        if arm in by_seed:
            each["by_seed"] = [float(np.mean(seed)) for seed in by_seed[arm]]
        if arm in gain_of:
            gain = gain_of[arm]
            each["gain"] = {"mean": gain.difference, "low": gain.low, "high": gain.high, "p": gain.adjusted}
        rows.append(each)
        print(arm, {k: v for k, v in each.items() if k != "arm"}, flush=True)
    return {"questions": len(asked_), "clusters": len(set(ties.values())), "arms": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tune", "test"))
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    vectors = Vectors(options.cache)
    ties = {f"longmemeval/{question.id}": question.tie for question in questions()}
    train = asked(longmemeval_tasks("train") + longmemeval_tasks("dev"), vectors, lambda task: ties[task.key])
    if options.what == "tune":
        record = {"questions": len(train), "seeds": 2, "candidates": CANDIDATES, **tuned(train, 2)}
        vectors.save()
        (HERE / "rmm_tuned.json").write_text(json.dumps(record, indent=1) + "\n")
        return
    best = json.loads((HERE / "rmm_tuned.json").read_text())["best"]
    arms, live = learned(train, best, options.seeds)
    tasks = longmemeval_tasks("test")
    test = asked(tasks, vectors, lambda task: ties[task.key])
    searched = {name: own_search(tasks, test, vectors, mode) for name, mode in (("bm25", "lexical"), ("search", None))}
    record = {
        "what": f"recall@{SHOWN} of evidence turns, {POOL} candidates, LongMemEval oracle with {DISTRACTORS} other sessions",
        "command": "python -m benchmarks.learning.rmm test --cache FOLDER --locomo FOLDER",
        "trained on": len(train),
        "seeds": options.seeds,
        "best": best,
        "retriever on train": float(np.mean([question.recall(range(POOL)) for question in train])),
        "while learning": live,
        "rule": {"train": accuracy(train, "words"), "test": accuracy(test, "words")},
        "test": measured(test, arms, searched),
        "versions": versions(),
    }
    if options.locomo:
        tasks = [task for split in ("train", "dev", "test") for task in locomo(split, data=options.locomo)]
        talks = asked(tasks, vectors, lambda task: task.tags["conversation"])
        searched = {
            name: own_search(tasks, talks, vectors, mode) for name, mode in (("bm25", "lexical"), ("search", None))
        }
        record["locomo"] = measured(talks, arms, searched)
    vectors.save()
    (HERE / "rmm.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
