"""How many notes a search shows by itself (`top_k="auto"`), and whether it shows none where nothing answers.

    python -m benchmarks.memory.how_many fit --data DATA --vectors FOLDER
    python -m benchmarks.memory.how_many test --data DATA --vectors FOLDER --json benchmarks/memory/how_many.json
    python -m benchmarks.memory.how_many learn --data DATA --vectors FOLDER --json benchmarks/memory/set_size.json

`fit` writes the coefficients into `keepworth/memory/search/how_many.json`: two logistic models for each way of searching (words
alone, hashed words, all-MiniLM-L6-v2), and the two numbers of the rule. It reads BFCL's memory, MemoryBank, HotpotQA's training
part, half of the intents of BANKING77, and forty notes written for it (`how_many_texts.json`). `test` reads none of these:
LongMemEval, LoCoMo, PrefEval, the other intents of BANKING77, other small talk, and other foreign questions.

A memory holds the notes of one person, conversation or part of a set. Questions are of these kinds:

    answer        notes answer it, which are marked
    removed       the notes that answer it are not in the memory, and their neighbours are
    held out      a customer's message of an intent that no note has
    unanswerable  LongMemEval's and LoCoMo's own: most have a near turn
    other person  a question to somebody else's memory
    foreign       arithmetic, general knowledge and questions to other sets
    small talk    courtesies and talk with the assistant

Arms: the first five; one threshold of the score, chosen as the rule is; the rule; the rule's sizes dealt out at random; and an
oracle that stops at the last of the first ten that answers, and shows none where none does. Precision is of all notes that are
shown, recall the mean over questions; of BANKING77, where all notes of an intent say the same, one is enough. The arms
"most precise" and "most silent" are bounds and no rivals: the rule with its two numbers chosen by the answers of the tested set.
Intervals are bootstraps over what questions share: the conversation, the person, the intent, or the question itself.

`learn` asks about 20 intents of BANKING77 among three messages of each of the 77, in ten rounds, with 200 rewards: a task
succeeds in 9 of 10 cases if a message of its intent is shown, else in 2 of 10.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.memory.engine import machine
from benchmarks.memory.finding import _letters, _lines, half_of, read
from benchmarks.record import arguments, save
from keepworth.evaluation.kept_vectors import KeptVectors
from keepworth.memory.automatic import asks
from keepworth.memory.by_name import encoder
from keepworth.memory.memory import Memory
from keepworth.memory.search import how_many
from keepworth.memory.search.how_many import AUTO, MOST_AUTO, AnswerEvidence, count
from keepworth.memory.search.passages import tokens_of
from keepworth.memory.search.search import Request, Search
from keepworth.memory.store.views import ScopeView

WAYS = {"words": None, "spelling": "hashing", "meaning": "minilm"}
ANSWERED = ("answer", "own")
COEFFICIENTS = Path(how_many.__file__).with_name("how_many.json")
TEXTS = Path(__file__).with_name("how_many_texts.json")
FITTED = Path(__file__).with_name("how_many_fitted.json")
FIRST, PLAIN = 10, 5
OF_QUESTION = {
    "words": "matches unmatched in_memory words items of_speaker of_assistant long",
    "spelling": "cosine above matches unmatched in_memory words items of_speaker of_assistant long",
    "meaning": "cosine above matches unmatched in_memory words items of_speaker of_assistant long",
}
OF_NOTE = {
    "words": "ratio lead rank cover cover_gap length words items",
    "spelling": "ratio lead rank cover cover_gap length words items cosine cosine_gap",
    "meaning": "ratio lead rank cover cover_gap length words items cosine cosine_gap",
}
WEIGHT = {"removed": 0.15, "held out": 0.3, "other person": 0.5}
"""What questions without an answer count that is near, beside foreign ones and small talk: their notes are near as well."""
LOST = 0.05
"""The share of the answerable questions of each set for which nothing may be shown."""
LESS = 0.02
"""What recall may lose beside the first five."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    gold: frozenset[int]
    kind: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Notes:
    """A memory and what it is asked. alike: whether one of the notes that answer is enough."""

    set: str
    items: list[str]
    questions: list[Question]
    alike: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search found for a question: its ten best hits, as the places of their notes, and what tells whether they answer.
    size: how many are shown; none: how probable it is that nothing answers."""

    set: str
    question: Question
    places: list[int]
    scores: list[float]
    evidence: AnswerEvidence
    shown: list[int]
    none: float
    alike: bool

    @property
    def right(self) -> list[bool]:
        return [place in self.question.gold for place in self.places]


Arm = Callable[[Answer], list[int]]
"""What is shown of an answer, as the places of notes."""


# -- sets -------------------------------------------------------------------------------------------------------------


def without_answers(name: str, items: list[str], questions: Sequence[Question], seed: int) -> Iterator[Notes]:
    """Two memories: in each, half of the questions have lost the notes that answer them."""
    order = list(range(len(questions)))
    random.Random(seed).shuffle(order)
    for half in (0, 1):
        gone = set(order[half::2])
        needed = {n for at, question in enumerate(questions) if at not in gone for n in question.gold}
        dropped = {n for at in gone for n in questions[at].gold} - needed
        rest = [n for n in range(len(items)) if n not in dropped]
        place = {n: at for at, n in enumerate(rest)}
        listed = []
        for at, question in enumerate(questions):
            gold = frozenset(place[n] for n in question.gold if n in place)
            if at not in gone:
                listed.append(Question(question.text, gold, "answer", question.group))
            elif not gold:
                listed.append(Question(question.text, gold, "removed", question.group))
        yield Notes(name, [items[n] for n in rest], listed)


def statements(data: Path) -> Iterator[Notes]:
    """What people told an agent in BFCL, by sentences and by turns."""
    folder = data / "bfcl_memory"
    sources = {row["id"]: row["source"] for row in _lines(folder / "memory_answers.jsonl")}
    rows = _lines(folder / "memory_questions.jsonl")
    for scenario in ("customer", "finance", "healthcare", "notetaker", "student"):
        talks = _lines(folder / f"memory_conversations_{scenario}.jsonl")
        turns = [turn["content"] for row in talks for messages in row["question"] for turn in messages]
        sentences = [text for turn in turns for text in re.split(r"(?<=[.!?])\s+", turn) if len(text.split()) > 2]
        for items in (sentences, turns):
            plain = list(map(_letters, items))
            questions = []
            for row in (row for row in rows if row["scenario"] == scenario):
                cut = map(_letters, re.split(r"\.\.\.|(?<=[.!?])\s+", sources[row["id"]]))
                wanted = [text for text in cut if len(text) > 8]
                gold = frozenset(
                    n
                    for n, text in enumerate(plain)
                    if any(words in text or (len(text) > 15 and text in words) for words in wanted)
                )
                if gold:
                    questions.append(Question(row["question"][0][0]["content"], gold, "answer", row["id"]))
            yield from without_answers("bfcl", items, questions, 1)


def paragraphs(data: Path, questions: int = 120, together: int = 40) -> Iterator[Notes]:
    rows = read(data / "hotpotqa" / "train.jsonl.gz")[:questions]
    for start in range(0, questions, together):
        texts: dict[str, str] = {}
        for row in rows[start : start + together]:
            for title, sentences in row["context"]:
                texts.setdefault(title, f"{title}. " + " ".join(map(str.strip, sentences)))
        index = {title: at for at, title in enumerate(texts)}
        listed = [
            Question(
                row["question"],
                frozenset(index[t] for t, _ in row["supporting_facts"] if t in index),
                "answer",
                row["id"],
            )
            for row in rows[start : start + together]
        ]
        yield from without_answers("hotpotqa", list(texts.values()), listed, 2)


def intents(data: Path, half: str, asked: int = 200) -> Iterator[Notes]:
    """Messages of the intents of one half, of which a quarter is held out; one to forty of each intent are notes."""
    by_intent: dict[str, list[str]] = {}
    for row in read(data / "banking77" / "train.csv.gz"):
        by_intent.setdefault(row["category"], []).append(row["text"])
    names = sorted(intent for intent in by_intent if half_of(intent) == half)
    for seed, most in enumerate((1, 3, 8, 12, 40)):
        draw = random.Random(seed)
        draw.shuffle(names)
        labels, items = list[str](), list[str]()
        for intent in names[len(names) // 4 :]:
            texts = draw.sample(by_intent[intent], min(most, len(by_intent[intent]) - 6))
            labels += [intent] * len(texts)
            items += texts
        if half == "dev":
            rest = [(text, intent) for intent in names for text in by_intent[intent] if text not in set(items)]
        else:
            rest = [(row["text"], row["category"]) for row in read(data / "banking77" / "test.csv.gz")]
            rest = [pair for pair in rest if pair[1] in names]
        questions = []
        for text, intent in draw.sample(rest, asked):
            gold = frozenset(n for n, label in enumerate(labels) if label == intent)
            questions.append(Question(text, gold, "answer" if gold else "held out", intent))
        yield Notes(f"banking77 ({most} of each)", items, questions, alike=True)


def companions(data: Path) -> Iterator[Notes]:
    bank = json.loads((data / "memorybank" / "memory_bank_en.json").read_text())
    probes: dict[str, list[str]] = {}
    for row in _lines(data / "memorybank" / "probing_questions_en.jsonl"):
        probes.update(row)
    people = sorted(bank)
    for at, person in enumerate(people):
        talk = [exchange for day in bank[person]["history"].values() for exchange in day]
        items = [exchange["query"] for exchange in talk] + [exchange["response"] for exchange in talk]
        other = probes.get(people[(at + 1) % len(people)], ())
        yield Notes(
            "memorybank",
            items,
            [Question(text, frozenset(), "own", person) for text in probes.get(person, ())]
            + [Question(text, frozenset(), "other person", person) for text in other],
        )


def written() -> Iterator[Notes]:
    rows = texts()["notes"]
    for seed, most in enumerate((40, 30, 20, 12)):
        order = random.Random(seed).sample(rows, len(rows))
        inside, outside = order[:most], order[most:]
        questions = [
            Question(t, frozenset([n]), "answer", row["note"]) for n, row in enumerate(inside) for t in row["asks"]
        ]
        questions += [Question(text, frozenset(), "removed", row["note"]) for row in inside for text in row["near"]]
        questions += [Question(text, frozenset(), "removed", row["note"]) for row in outside for text in row["asks"]]
        yield Notes("written", [row["note"] for row in inside], questions)


def long_memory(data: Path, shards: int = 4, shard: int = 20) -> Iterator[Notes]:
    rows = read(data / "longmemeval" / "longmemeval_oracle.json.gz")
    absent = [row for row in rows if row["question_id"].endswith("_abs")]
    rows = [row for row in rows if row not in absent and half_of(row["question_id"]) == "test"]
    random.Random(0).shuffle(rows)
    for number in range(shards):
        items: list[str] = []
        index: dict[tuple[str, int], int] = {}
        questions: list[Question] = []
        for row in rows[number * shard : (number + 1) * shard] + absent[number * 6 : number * 6 + 6]:
            evidence = set()
            for name, session in zip(row["haystack_session_ids"], row["haystack_sessions"], strict=True):
                for at, turn in enumerate(session):
                    if (name, at) not in index:
                        index[name, at] = len(items)
                        items.append(f"{turn['role']}: {turn['content']}")
                    if turn.get("has_answer"):
                        evidence.add(index[name, at])
            kind = "unanswerable" if row["question_id"].endswith("_abs") else "answer"
            if kind == "unanswerable" or evidence:
                gold = frozenset(evidence if kind == "answer" else ())
                questions.append(Question(row["question"], gold, kind, row["question_id"]))
        yield Notes("longmemeval", items, questions)


def conversations(data: Path, asked: int = 60) -> Iterator[Notes]:
    for number, sample in enumerate(read(data / "locomo" / "locomo10.json.gz")):
        talk = sample["conversation"]
        sessions = sorted((s for s in talk if re.fullmatch(r"session_\d+", s)), key=lambda s: int(s.split("_")[1]))
        turns = [turn for name in sessions for turn in talk[name]]
        index = {turn["dia_id"]: at for at, turn in enumerate(turns)}
        items = [
            f"{turn['speaker']}: {turn['text']}"
            + (f" [image: {turn['blip_caption']}]" if turn.get("blip_caption") else "")
            for turn in turns
        ]
        questions = []
        for row in sample["qa"]:
            gold = frozenset(index[name] for name in row["evidence"] if name in index)
            if row["category"] == 5:
                questions.append(Question(row["question"], frozenset(), "unanswerable", str(number)))
            elif gold:
                questions.append(Question(row["question"], gold, "answer", str(number)))
        random.Random(number).shuffle(questions)
        yield Notes("locomo", items, questions[:asked])


def preferences(data: Path, people: int = 12, utterances: int = 80) -> Iterator[Notes]:
    """A preference of each topic among what people told LongMemEval's assistant."""
    by_topic: dict[str, list[dict[str, str]]] = {}
    for row in read(data / "prefeval" / "explicit_with_mcq.jsonl.gz"):
        by_topic.setdefault(row["topic"], []).append(row)
    turns = [
        text for notes in long_memory(data, 2) for text in notes.items if text.startswith("user: ") and len(text) < 600
    ]
    random.Random(0).shuffle(turns)
    for person in range(people):
        rows = [listed[person] for listed in by_topic.values() if len(listed) > person]
        talk = turns[person * utterances : (person + 1) * utterances]
        items = [row["preference"] for row in rows] + [text.removeprefix("user: ") for text in talk]
        questions = [Question(row["question"], frozenset([n]), "answer", str(person)) for n, row in enumerate(rows)]
        yield next(without_answers("prefeval", items, questions, person))


@cache
def texts() -> Any:
    return json.loads(TEXTS.read_text(encoding="utf-8"))


def beside(data: Path, part: str) -> tuple[list[str], list[str]]:
    """Small talk and foreign questions of a part."""
    if part == "fit":
        sums = json.loads((data / "svamp" / "SVAMP.json").read_text())[:200]
        foreign = [f"{row['Body'].rstrip('. ')}. {row['Question']}" for row in sums]
        foreign += [row["question"] for row in read(data / "hotpotqa" / "dev.jsonl.gz")[:200]]
    else:
        foreign = [row["question"] for row in read(data / "gsm8k" / "test.jsonl.gz")[:150]]
        foreign += [row["problem"] for row in _lines(data / "math500" / "test.jsonl")[:100]]
        foreign += 4 * texts()["foreign"]
    return texts()["small talk"][part], foreign


def sets(data: Path, part: str) -> Iterator[Notes]:
    talk, foreign = beside(data, part)
    listed = (
        (statements(data), paragraphs(data), intents(data, "dev"), companions(data), written())
        if part == "fit"
        else (intents(data, "test"), preferences(data), conversations(data), long_memory(data))
    )
    number = 0
    for pools in listed:
        for notes in pools:
            number += 1
            draw = random.Random(number)
            more = [Question(text, frozenset(), "small talk") for text in draw.sample(talk, 12)]
            # HotpotQA's own questions are no foreign ones there.
            strange = [
                text for text in foreign if notes.set != "hotpotqa" or text[-1] != "?" or any(map(str.isdigit, text))
            ]
            more += [Question(text, frozenset(), "foreign") for text in draw.sample(strange, 12)]
            yield Notes(notes.set, notes.items, [*notes.questions, *more], notes.alike)


# -- searches ---------------------------------------------------------------------------------------------------------


def ask(notes: Notes, way: str, vectors: Path) -> Iterator[Answer]:
    """Search a memory of the notes as `top_k="auto"` does, but for the hits behind those that are shown."""
    name = WAYS[way]
    made = None if name is None else KeptVectors(encoder(name), vectors)
    with Memory(":memory:", encoder=made, policy=None, writer=None, log="off") as memory:
        place: dict[str, int] = {}
        for at, item in enumerate(memory.add_many(notes.items)):
            place.setdefault(item.id, at)
        same = {text: at for at, text in reversed(list(enumerate(notes.items)))}
        mode = "lexical" if name is None else "hybrid"
        time = memory.get(next(iter(place))).written_at
        for question in notes.questions:
            gold = frozenset(same[notes.items[n]] for n in question.gold)
            asked = Question(question.text, gold, question.kind, question.group or question.text)
            view = ScopeView(memory.store, memory.scope)
            search = Search(
                view,
                memory.store.embedder,
                Request(MOST_AUTO, mode, beyond=FIRST, auto=True, idle=not asks(question.text)),
                time,
            )
            with memory.store.database.reading():
                hits = search.hits([question.text])[0][:FIRST]
            places, size = [place[hit.id] for hit in hits], search.sizes[0]
            scores = [float(hit.score) for hit in hits]
            yield Answer(
                notes.set, asked, places, scores, search.evidence[0], places[: size.number], size.none, notes.alike
            )


# -- fitting ----------------------------------------------------------------------------------------------------------


def logistic(rows: Floats, labels: Floats, weights: Floats, ridge: float = 1.0) -> Floats:
    """The coefficients of a logistic regression, the constant last, by Newton's method, with a penalty on those of columns of
    unit variance."""
    mean, spread = rows.mean(0), rows.std(0)
    spread[spread == 0.0] = 1.0
    x = np.c_[(rows - mean) / spread, np.ones(len(rows))]
    penalty = np.r_[np.full(rows.shape[1], ridge), 0.0]
    beta = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-x @ beta))
        gradient = x.T @ (weights * (labels - p)) - penalty * beta
        step = np.linalg.solve((x.T * (weights * p * (1.0 - p))) @ x + np.diag(penalty), gradient)
        beta += step
        if np.abs(step).max() < 1e-8:
            break
    plain = beta[:-1] / spread
    return np.r_[plain, beta[-1] - float(plain @ mean)]


def balanced(keys: Sequence[Any], share: Sequence[float]) -> Floats:
    """Weights with which each key counts its share, whatever its number."""
    counts = {key: keys.count(key) for key in set(keys)}
    weights = np.array([part / counts[key] for key, part in zip(keys, share, strict=True)])
    return weights * len(weights) / float(weights.sum())


def fit_models(answers: Sequence[Answer], way: str) -> dict[str, dict[str, float]]:
    names = OF_QUESTION[way].split()
    asked = [answer for answer in answers if answer.evidence.question]
    rows = np.array([[answer.evidence.question[name] for name in names] for answer in asked])
    labels = np.array([answer.question.kind in ANSWERED for answer in asked], float)
    weights = balanced(
        [(answer.set.split()[0], answer.question.kind) for answer in asked],
        [WEIGHT.get(answer.question.kind, 1.0) for answer in asked],
    )
    for label in (0.0, 1.0):  # as many with an answer as without
        weights[labels == label] *= 0.5 * len(labels) / weights[labels == label].sum()
    question = _named(names, logistic(rows, labels, weights))
    names = OF_NOTE[way].split()
    asked = [answer for answer in asked if answer.question.kind == "answer"]
    pairs = [(answer, at) for answer in asked for at in range(len(answer.evidence.notes))]
    rows = np.array([[answer.evidence.notes[at][name] for name in names] for answer, at in pairs])
    labels = np.array([answer.right[at] for answer, at in pairs], float)
    counts = [answer.set.split()[0] for answer, _ in pairs]
    note = _named(names, logistic(rows, labels, balanced(counts, [1.0] * len(counts))))
    return {"question": question, "note": note}


def _named(names: Sequence[str], coefficients: Floats) -> dict[str, float]:
    return {name: round(float(value), 3) for name, value in zip([*names, "constant"], coefficients, strict=True)}


def probability(coefficients: Mapping[str, float], numbers: Mapping[str, float]) -> float:
    return float(1.0 / (1.0 + np.exp(-sum(weight * numbers.get(name, 1.0) for name, weight in coefficients.items()))))


def fit_rule(answers: Sequence[Answer], models: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The largest `least` that loses at most `LOST` of the answerable questions of each set, and the smallest `share` with which
    the mean recall over sets is at most `LESS` below that of the first five."""
    numbers = [answer.evidence for answer in answers]
    chances = [probability(models["question"], one.question) if one.question else 0.0 for one in numbers]
    shares = [[probability(models["note"], note) for note in one.notes] for one in numbers]
    least = 0.0
    for value in np.arange(0.02, 0.9, 0.02):
        losses = _by_set(answers, ANSWERED, [float(p < value) for p in chances])
        if max(losses) <= LOST:
            least = round(float(value), 2)
    for share in np.arange(0.5, 1.001, 0.01):
        rule = {"least": least, "share": float(share)}
        counts = [count(p, listed, rule) if listed else 0 for p, listed in zip(chances, shares, strict=True)]
        losses = [
            recall(answer, answer.places[:PLAIN]) - recall(answer, answer.places[:number])
            if answer.question.gold
            else 0.0
            for answer, number in zip(answers, counts, strict=True)
        ]
        if np.mean(_by_set(answers, ("answer",), losses)) <= LESS:
            return {"least": least, "share": round(float(share), 2)}
    return {"least": least, "share": 1.0}


def _by_set(answers: Sequence[Answer], kinds: Sequence[str], values: Sequence[float]) -> list[float]:
    """The mean over the questions of these kinds, for each set. The memories of BANKING77 are one set."""
    groups: dict[str, list[float]] = {}
    for answer, value in zip(answers, values, strict=True):
        if answer.question.kind in kinds:
            groups.setdefault(answer.set.split()[0], []).append(value)
    return [float(np.mean(group)) for group in groups.values()]


def choose_by_answers(answers: Sequence[Answer], way: str) -> tuple[Arm, Arm]:
    """Return the rule with its two numbers chosen by the answers of these questions, how good it can be at most here: as precise
    as it can be while recall loses at most `LESS`, and as often silent. Both lose at most `LOST` of the questions."""
    models: Mapping[str, Mapping[str, float]] = json.loads(COEFFICIENTS.read_text(encoding="utf-8"))[way]

    def show(answer: Answer, least: float, share: float) -> list[int]:
        evidence = answer.evidence
        if not evidence.question:
            return []
        shares = [probability(models["note"], note) for note in evidence.notes]
        chance = probability(models["question"], evidence.question)
        return answer.places[: count(chance, shares, {"least": least, "share": share})]

    right = [answer for answer in answers if answer.question.kind == "answer"]
    wanted = np.mean([recall(answer, answer.places[:PLAIN]) for answer in right]) - LESS
    best, silent = (0.0, 1.0), 0.0
    precise = _precision(right, partial(show, least=0.0, share=1.0))
    for least in np.arange(0.0, 0.9, 0.02):
        if np.mean([not show(answer, least, 1.0) for answer in right]) > LOST:
            break
        silent = float(least)
        for share in np.arange(0.5, 1.001, 0.02):
            arm = partial(show, least=silent, share=float(share))
            if (
                np.mean([recall(answer, arm(answer)) for answer in right]) >= wanted
                and _precision(right, arm) > precise
            ):
                best, precise = (silent, float(share)), _precision(right, arm)
    return partial(show, least=best[0], share=best[1]), partial(show, least=silent, share=1.0)


def fit_way(data: Path, vectors: Path, way: str) -> tuple[dict[str, Any], dict[str, Any]]:
    answers = [answer for notes in sets(data, "fit") for answer in ask(notes, way, vectors)]
    made = fit_models(answers, way)
    kinds = [answer.question.kind for answer in answers]
    numbers = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return {**made, "rule": fit_rule(answers, made)}, {"threshold": threshold_of(answers), "questions": numbers}


def fit(data: Path, vectors: Path) -> dict[str, Any]:
    """Fit the coefficients; return what else `test` needs of the sets that they were fitted on."""
    with ProcessPoolExecutor(len(WAYS)) as processes:
        made = dict(zip(WAYS, processes.map(partial(fit_way, data, vectors), WAYS), strict=True))
    COEFFICIENTS.write_text(json.dumps({way: models for way, (models, _) in made.items()}, indent=1) + "\n")
    for way, (models, rest) in made.items():
        print(way, models["rule"], rest, flush=True)
    return {way: rest for way, (_, rest) in made.items()}


# -- measuring --------------------------------------------------------------------------------------------------------


def recall(answer: Answer, shown: Sequence[int]) -> float:
    there = len(answer.question.gold.intersection(shown))
    return float(there > 0) if answer.alike else there / len(answer.question.gold)


def oracle(answer: Answer) -> list[int]:
    last = max((at for at, right in enumerate(answer.right, start=1) if right), default=0)
    return answer.places[:last]


def arms(answers: Sequence[Answer], threshold: float) -> dict[str, Arm]:
    sizes = [len(answer.shown) for answer in answers]
    random.Random(0).shuffle(sizes)
    dealt = {id(answer): size for answer, size in zip(answers, sizes, strict=True)}
    return {
        "first five": lambda answer: answer.places[:PLAIN],
        "one threshold": lambda answer: [
            place for place, score in zip(answer.places[:PLAIN], answer.scores, strict=False) if score >= threshold
        ],
        "sizes at random": lambda answer: answer.places[: dealt[id(answer)]],
        "auto": lambda answer: answer.shown,
        "oracle": oracle,
    }


def measure(answers: Sequence[Answer], arm: Arm) -> dict[str, Any]:
    """What an arm shows for the questions of a set."""
    right = [answer for answer in answers if answer.question.kind == "answer"]
    kinds = sorted({answer.question.kind for answer in answers} - {"answer"})
    return {
        "precision": round(_precision(right, arm), 3),
        "precision over all kinds": round(_precision(answers, arm), 3),
        "recall": round(float(np.mean([recall(answer, arm(answer)) for answer in right])), 3),
        "notes over all kinds": round(float(np.mean([len(arm(answer)) for answer in answers])), 2),
        "notes": round(float(np.mean([len(arm(answer)) for answer in right])), 2),
        "lost": round(float(np.mean([not arm(answer) for answer in right])), 3),
        "lost of those among the first five": round(
            float(np.mean([not arm(answer) and any(answer.right[:PLAIN]) for answer in right])), 3
        ),
        "nothing shown": {
            kind: round(float(np.mean([not arm(a) for a in answers if a.question.kind == kind])), 3) for kind in kinds
        },
    }


def _precision(answers: Sequence[Answer], arm: Arm) -> float:
    shown = [arm(answer) for answer in answers]
    there = sum(len(answer.question.gold.intersection(places)) for answer, places in zip(answers, shown, strict=True))
    return there / max(1, sum(map(len, shown)))


def compare(answers: Sequence[Answer], arm: Arm, other: Arm, draws: int = 1000) -> dict[str, Any]:
    """How many times as precise an arm is, and what recall it loses, with intervals over groups."""
    groups: dict[str, list[Answer]] = {}
    for answer in answers:
        groups.setdefault(answer.question.group, []).append(answer)
    sums = []
    for members in groups.values():
        row = [0.0] * 7
        for answer in members:
            one, two = arm(answer), other(answer)
            row[0] += len(answer.question.gold.intersection(one))
            row[1] += len(one)
            row[2] += len(answer.question.gold.intersection(two))
            row[3] += len(two)
            if answer.question.kind == "answer":
                row[4] += 1
                row[5] += recall(answer, one) - recall(answer, two)
                row[6] += not one
        sums.append(row)
    table, generator = np.array(sums), np.random.default_rng(0)

    def values(total: Floats) -> tuple[float, float, float]:
        ratio = (total[0] / max(total[1], 1.0)) / max(total[2] / max(total[3], 1.0), 1e-9)
        return float(ratio), float(total[5] / max(total[4], 1.0)), float(total[6] / max(total[4], 1.0))

    drawn = np.array([values(table[generator.integers(len(table), size=len(table))].sum(0)) for _ in range(draws)])
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    names = ("precision, times", "recall, difference", "lost")
    return {
        name: [round(value, 3), round(float(low[at]), 3), round(float(high[at]), 3)]
        for at, (name, value) in enumerate(zip(names, values(table.sum(0)), strict=True))
    }


def calibration(answers: Sequence[Answer]) -> list[list[float]]:
    """For fifths of what is said about whether an answer is there: the mean of it, and the share that has one."""
    pairs = sorted((1.0 - answer.none, answer.question.kind in ANSWERED) for answer in answers)
    cut = np.array_split(np.array(pairs, float), 5)
    return [[round(float(x), 3) for x in part.mean(0)] for part in cut]


def threshold_of(answers: Sequence[Answer]) -> float:
    """The largest threshold of the score that loses at most `LOST` of the answerable questions of each set."""
    best = 0.0
    for value in np.quantile([answer.scores[0] for answer in answers if answer.scores], np.linspace(0.0, 0.9, 181)):
        if max(_by_set(answers, ANSWERED, [float(max(a.scores, default=-1.0) < value) for a in answers])) <= LOST:
            best = max(best, float(value))
    return round(best, 4)


def test_way(data: Path, vectors: Path, way: str) -> dict[str, Any]:
    threshold = float(json.loads(FITTED.read_text(encoding="utf-8"))[way]["threshold"])
    answers = [answer for notes in sets(data, "test") for answer in ask(notes, way, vectors)]
    record: dict[str, Any] = {"threshold": threshold, "sets": {}, "calibration": calibration(answers)}
    for name in dict.fromkeys(answer.set for answer in answers):
        of_set = [answer for answer in answers if answer.set == name]
        made = arms(of_set, threshold)
        made["most precise"], made["most silent"] = choose_by_answers(of_set, way)
        right = [answer for answer in of_set if answer.question.kind == "answer"]
        kinds = [answer.question.kind for answer in of_set]
        record["sets"][name] = {
            "questions": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
            **{arm: measure(of_set, function) for arm, function in made.items()},
            "auto beside the first five": compare(right, made["auto"], made["first five"]),
            "the same, over all kinds": compare(of_set, made["auto"], made["first five"]),
            "at best": compare(right, made["most precise"], made["first five"]),
            "oracle beside the first five": compare(right, made["oracle"], made["first five"]),
        }
    return record


def test(data: Path, vectors: Path) -> dict[str, Any]:
    with ProcessPoolExecutor(len(WAYS)) as processes:
        record = dict(zip(WAYS, processes.map(partial(test_way, data, vectors), WAYS), strict=True))
    for way, made in record.items():
        for name, row in made["sets"].items():
            print(way, name, row["auto"], row["auto beside the first five"], flush=True)
    return record


# -- after rewards ----------------------------------------------------------------------------------------------------

WITH, WITHOUT = 0.9, 0.2
"""The probability of success with a note that answers in the prompt, and without."""
ASKED, ROUNDS, OF_EACH = 20, 10, 3


def rewarded(data: Path, way: str, vectors: Path, top_k: int | str, again: bool, seed: int) -> list[tuple[int, float]]:
    """Ask about 20 intents in ten rounds, and reward what was shown: for each task the tokens, and the probability of success.

    again: whether the same messages come back, else others of the same intents."""
    draw = random.Random(seed)
    by_intent: dict[str, list[str]] = {}
    for row in read(data / "banking77" / "train.csv.gz"):
        by_intent.setdefault(row["category"], []).append(row["text"])
    asked: dict[str, list[str]] = {}
    for row in read(data / "banking77" / "test.csv.gz"):
        asked.setdefault(row["category"], []).append(row["text"])
    chosen, outcomes = draw.sample(sorted(by_intent), ASKED), list[tuple[int, float]]()
    messages = {intent: draw.sample(asked[intent], ROUNDS) for intent in chosen}
    name = WAYS[way]
    made = None if name is None else KeptVectors(encoder(name), vectors)
    with Memory(":memory:", encoder=made, writer=None, seed=seed) as memory:
        intent_of = {
            item.id: intent
            for intent, texts in sorted(by_intent.items())
            for item in memory.add_many(draw.sample(texts, OF_EACH))
        }
        for number in range(ROUNDS):
            for intent in draw.sample(chosen, ASKED):
                hits = memory.search(messages[intent][0 if again else number], top_k=top_k)
                right = WITH if any(intent_of[hit.id] == intent for hit in hits) else WITHOUT
                outcomes.append((tokens_of(hits.text) if hits else 0, right))
                memory.reward(hits.decision, float(draw.random() < right))
    return outcomes


def learn_way(data: Path, vectors: Path, draws: int, setting: tuple[str, bool]) -> dict[str, Any]:
    way, again = setting
    runs = {
        str(top_k): np.array([rewarded(data, way, vectors, top_k, again, seed) for seed in range(draws)])
        for top_k in (10, 5, AUTO)
    }
    rows: dict[str, Any] = {}
    for title, period in (("first two rounds", slice(0, 2 * ASKED)), ("last two rounds", slice(-2 * ASKED, None))):
        means = {name: run[:, period].mean(1) for name, run in runs.items()}
        rows[title] = {
            "tokens": {name: round(float(mean[:, 0].mean()), 1) for name, mean in means.items()},
            "success": {name: round(100.0 * float(mean[:, 1].mean()), 1) for name, mean in means.items()},
            **{
                f"beside {name}": {
                    "tokens, times": round(float(means[AUTO][:, 0].mean() / means[name][:, 0].mean()), 3),
                    "success, points": _interval(100.0 * (means[AUTO][:, 1] - means[name][:, 1])),
                }
                for name in ("10", "5")
            },
        }
    return rows


def learn(data: Path, vectors: Path, draws: int) -> dict[str, Any]:
    """Tokens and success in the first and the last two of ten rounds, with ten and five notes and as the memory decides."""
    settings = [(way, again) for way in ("meaning", "spelling") for again in (True, False)]
    with ProcessPoolExecutor(len(settings)) as processes:
        made = list(processes.map(partial(learn_way, data, vectors, draws), settings))
    record = {}
    for (way, again), rows in zip(settings, made, strict=True):
        name = f"{way}, {'the same questions' if again else 'other words for them'}"
        record[name] = rows
        print(name, rows, flush=True)
    return record


def _interval(values: Floats) -> list[float]:
    mean, half = float(values.mean()), 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5
    return [round(mean, 2), round(mean - half, 2), round(mean + half, 2)]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("what", choices=("fit", "test", "learn"))
    parser.add_argument("--draws", type=int, default=20, help="of `learn`")
    parser.add_argument("--data", type=Path, required=True, help="the folder with the data sets")
    parser.add_argument(
        "--vectors", type=Path, required=True, help="a folder for vectors, so that no text is encoded twice"
    )
    chosen = parser.parse_args()
    if chosen.what == "fit":
        save(FITTED, fit(chosen.data, chosen.vectors))
    elif chosen.what == "test":
        save(chosen.json, {"machine": machine(), **test(chosen.data, chosen.vectors)})
    else:
        made = learn(chosen.data, chosen.vectors, chosen.draws)
        save(chosen.json, {"machine": machine(), "draws": chosen.draws, **made})


if __name__ == "__main__":
    main()
