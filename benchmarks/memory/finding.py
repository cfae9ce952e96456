"""How much of what was asked for a search finds among its first ten, beside its own halves and beside ten lines in its place.

    python -m benchmarks.memory.finding --data DATA --half dev
    python -m benchmarks.memory.finding --data DATA --half test --json benchmarks/memory/finding.json

Pools: paragraphs of HotpotQA and 2WikiMultihopQA, and those asked for with one of the two given; turns of LoCoMo's
conversations, and those without names and pictures; turns and whole sessions of LongMemEval, and turns asked for in the
middle of other talk; messages of BANKING77 of one intent, as they are and amid talk with an agent; preferences of
PrefEval that a request concerns. A pool is one memory, and everything that compares is searched over the same items
with the same vectors. Every setting was chosen on the halves for development, the rivals' too: they stand in the table
as published and as best there.

The rivals are what people write: BM25 of the library `bm25s` with Snowball's English stems and without English stop words, and
its fusion with the cosines of the same encoder, by reciprocal ranks with constants of 60 and 10, or by scores scaled from 0 to 1
in each list, half and half. The difference to each is paired by question and resampled by what questions share: the
conversation, or the question itself.
"""

from __future__ import annotations

import ast
import csv
import gzip
import hashlib
import importlib.util
import json
import random
import re
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.engine import machine
from benchmarks.memory.page import finding
from benchmarks.memory.pastes import KINDS, PLACES, SIZES, paste, place_question
from benchmarks.record import arguments, save
from keepworth.base.statistics import paired_difference
from keepworth.evaluation.kept_vectors import KeptVectors
from keepworth.memory.by_name import encoder
from keepworth.memory.memory import Memory

FIRST = 10
DEPTH = 50
"""How many each half of a rival proposes, as ours do."""
ROWS = 150
Question = tuple[str, frozenset[int], str]


@dataclass(frozen=True, slots=True)
class Pool:
    """items: texts; questions: each with the places of the items that answer it, and what it shares with others."""

    items: list[str]
    questions: list[Question]


def half_of(key: str) -> str:
    return "test" if hashlib.sha256(key.encode()).digest()[0] & 1 else "dev"


def read(path: Path) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        if ".jsonl" in path.name:
            return [json.loads(line) for line in file]
        return list(csv.DictReader(file)) if ".csv" in path.name else json.load(file)


def paragraphs(data: Path, name: str, half: str, linked: bool) -> Iterator[Pool]:
    """linked: the question comes with one of its paragraphs, and asks for the others."""
    rows = read(data / name / f"{'train' if half == 'dev' else 'test'}.jsonl.gz")[:ROWS]
    texts: dict[str, str] = {}
    for row in rows:
        for title, sentences in row["context"]:
            texts.setdefault(title, f"{title}. " + " ".join(map(str.strip, sentences)))
    index = {title: number for number, title in enumerate(texts)}
    questions: list[Question] = []
    for number, row in enumerate(rows):
        titles = list(dict.fromkeys(title for title, _ in row["supporting_facts"] if title in index))
        asked = row["question"]
        if linked:
            if len(titles) < 2:
                continue
            asked, titles = f"{texts[titles[0]]} {asked}", titles[1:]
        questions.append((asked, frozenset(index[title] for title in titles), str(number)))
    yield Pool(list(texts.values()), questions)


def conversations(data: Path, half: str, names: bool = True) -> Iterator[Pool]:
    """names: whether a turn begins with who speaks; without, it is as short as in a chat that is kept."""
    for number, sample in enumerate(read(data / "locomo" / "locomo10.json.gz")):
        if (number < 5) != (half == "dev"):
            continue
        talk = sample["conversation"]
        sessions = sorted(
            (name for name in talk if re.fullmatch(r"session_\d+", name)), key=lambda s: int(s.split("_")[1])
        )
        turns = [turn for name in sessions for turn in talk[name]]
        index = {turn["dia_id"]: at for at, turn in enumerate(turns)}
        items = [
            (f"{turn['speaker']}: " if names else "")
            + turn["text"]
            + (f" [image: {turn['blip_caption']}]" if names and turn.get("blip_caption") else "")
            for turn in turns
        ]
        answered = [
            (one["question"], frozenset(index[e] for e in one["evidence"] if e in index), str(number))
            for one in sample["qa"]
            if one["category"] != 5
        ]
        yield Pool(items, [question for question in answered if question[1]])


def long_memory(data: Path, half: str, form: str, shard: int = 40) -> Iterator[Pool]:
    """form: "turns", "sessions", or "talk": turns, and the question comes after three others."""
    rows = [
        row
        for row in read(data / "longmemeval" / "longmemeval_oracle.json.gz")
        if half_of(row["question_id"]) == half and not row["question_id"].endswith("_abs")
    ]
    random.Random(0).shuffle(rows)
    for start in range(0, len(rows), shard):
        items: list[str] = []
        index: dict[tuple[str, int], int] = {}
        questions: list[Question] = []
        for row in rows[start : start + shard]:
            evidence = set()
            for name, session in zip(row["haystack_session_ids"], row["haystack_sessions"], strict=True):
                turns = [f"{turn['role']}: {turn['content']}" for turn in session]
                for number, text in enumerate(["\n".join(turns)] if form == "sessions" else turns):
                    if (name, number) not in index:
                        index[name, number] = len(items)
                        items.append(text)
                    answers = (
                        name in row["answer_session_ids"] if form == "sessions" else session[number].get("has_answer")
                    )
                    if answers:
                        evidence.add(index[name, number])
            if evidence:
                questions.append((row["question"], frozenset(evidence), row["question_id"]))
        if form == "talk":
            drawn = random.Random(1)
            places = [drawn.randrange(len(items) - 6) for _ in questions]
            questions = [
                (" ".join(text[:200] for text in items[at : at + 3]) + f" user: {asked}", evidence, name)
                for at, (asked, evidence, name) in zip(places, questions, strict=True)
            ]
        yield Pool(items, questions)


def intents(data: Path, half: str) -> Iterator[Pool]:
    by_intent: dict[str, list[str]] = {}
    for row in read(data / "banking77" / "train.csv.gz"):
        if half_of(row["category"]) == half:
            by_intent.setdefault(row["category"], []).append(row["text"])
    items = [(text, intent) for intent, texts in by_intent.items() for text in texts[:12]]
    rows = [row for row in read(data / "banking77" / "test.csv.gz") if row["category"] in by_intent]
    random.Random(0).shuffle(rows)
    questions = [
        (row["text"], frozenset(n for n, (_, intent) in enumerate(items) if intent == row["category"]), row["category"])
        for row in rows[:300]
    ]
    yield Pool([text for text, _ in items], questions)


def preferences(data: Path, half: str, people: int = 25, utterances: int = 80) -> Iterator[Pool]:
    """A memory for each person: one preference of each topic among other things that people said, and requests that it concerns.
    The first people are for development."""
    by_topic: dict[str, list[dict[str, str]]] = {}
    for row in read(data / "prefeval" / "explicit_with_mcq.jsonl.gz"):
        by_topic.setdefault(row["topic"], []).append(row)
    turns = [
        text.removeprefix("user: ") for text in next(long_memory(data, half, "turns", 10_000)).items if text[0] == "u"
    ]
    random.Random(0).shuffle(turns)
    for person in range(people):
        number = person + (people if half == "test" else 0)
        rows = [value[number] for value in by_topic.values() if len(value) > number]
        items = [row["preference"] for row in rows] + turns[person * utterances : (person + 1) * utterances]
        order = random.Random(person).sample(range(len(items)), len(items))
        index = {of: at for at, of in enumerate(order)}
        questions = [(row["question"], frozenset([index[n]]), str(person)) for n, row in enumerate(rows)]
        yield Pool([items[of] for of in order], questions)


def statements(data: Path, half: str) -> Iterator[Pool]:
    """Sentences of what people told an agent in BFCL, of one scenario, and the questions that they answer."""
    folder = data / "bfcl_memory"
    scenarios = ("customer", "finance", "healthcare") if half == "dev" else ("notetaker", "student")
    sources = {row["id"]: row["source"] for row in _lines(folder / "memory_answers.jsonl")}
    questions = _lines(folder / "memory_questions.jsonl")
    for scenario in scenarios:
        turns = [
            turn["content"]
            for row in _lines(folder / f"memory_conversations_{scenario}.jsonl")
            for said in row["question"]
            for turn in said
        ]
        items = [text for turn in turns for text in re.split(r"(?<=[.!?])\s+", turn) if len(text.split()) > 2]
        found: list[Question] = []
        for row in questions:
            if row["scenario"] == scenario:
                wanted = _letters(sources[row["id"]])
                places = [n for n, text in enumerate(items) if _letters(text) in wanted or wanted in _letters(text)]
                if places:
                    found.append((row["question"][0][0]["content"], frozenset(places), row["id"]))
        yield Pool(items, found)


def _lines(path: Path) -> list[Any]:
    return list(map(json.loads, path.read_text(encoding="utf-8").splitlines()))


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


CODE = {
    "dev": "anyio click httpx huggingface_hub jinja2 mkdocs networkx pandas pydantic requests rich starlette",
    "test": "fsspec gymnasium matplotlib mcp packaging scipy statsmodels sympy transformers typer urllib3 uvicorn",
}
"""Installed packages whose functions are searched; they are read where they lie, and nothing of them is kept."""
FORMS = ("{}", "Which function does this: {}", "Where is the code for this? {}", "How do I do this: {}")
"""What the first sentence of a docstring is asked with."""


def functions(data: Path, half: str, form: str = "", asked: int = 125, most: int = 400) -> Iterator[Pool]:
    """A memory for each package: its functions without their docstrings, and the first sentences of these as questions.

    form: what every question has around the sentence; "" for each of `FORMS` in turn."""
    for package in CODE[half].split():
        rows = _functions_of(package)
        listed = random.Random(0).sample(rows, min(most, len(rows)))
        sentences = Counter(sentence for _, sentence, _ in listed)
        questions = [
            ((form or FORMS[number % len(FORMS)]).format(sentence), frozenset([number]), f"{package}/{file}")
            for number, (_, sentence, file) in enumerate(listed)
            if sentences[sentence] == 1
        ]
        yield Pool([code for code, _, _ in listed], questions[:asked])


@cache
def _functions_of(package: str) -> list[tuple[str, str, str]]:
    """The functions of an installed package: code, first sentence of the docstring, file."""
    (folder,) = importlib.util.find_spec(package).submodule_search_locations or ()
    rows: dict[str, tuple[str, str]] = {}
    for file in sorted(Path(folder).rglob("*.py")):
        if not {"tests", "testing", "_vendor", "externals"}.intersection(file.parts):
            for code, sentence in _documented(file.read_text(encoding="utf-8", errors="replace")):
                rows.setdefault(code, (sentence, str(file.relative_to(folder))))
    return [(code, *about) for code, about in sorted(rows.items())]


def _documented(source: str) -> Iterator[tuple[str, str]]:
    """The functions of a module, each without its docstring, and the first sentence of that, which has at least four words."""
    try:
        tree, lines = ast.parse(source), source.splitlines()
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and len(node.body) > 1:
            first = re.split(r"\n\s*\n|(?<=\.)\s", (ast.get_docstring(node) or "").strip())[0]
            text, end = node.body[0], node.end_lineno
            if len(first.split()) >= 4 and text.end_lineno and end and end - node.lineno < 120:
                code = [*lines[node.lineno - 1 : text.lineno - 1], *lines[text.end_lineno : end]]
                yield textwrap.dedent("\n".join(code)), " ".join(first.split())


GREETINGS = (
    "Hi there.",
    "Good morning!",
    "Hello, is anyone there?",
    "Hi, sorry to bother you again.",
    "Quick one for you.",
)
ANSWERS = (
    "How can I help you today?",
    "What can I do for you?",
    "Sure, please tell me more.",
    "What seems to be the matter?",
)
ENDS = (
    "Let me check that for you.",
    "I am sorry to hear that.",
    "I will look into it right away.",
    "One moment, please.",
)


def support(data: Path, half: str) -> Iterator[Pool]:
    """A message of BANKING77 amid talk of a kind that says nothing of it, found by another one of the same intent, with other
    talk."""
    history = json.loads((data / "memorybank" / "memory_bank_en.json").read_text())
    talk = [
        exchange["query"]
        for person in history.values()
        for day in person["history"].values()
        for exchange in day
        if len(exchange["query"]) < 160
    ]
    draw = random.Random(4)
    draw.shuffle(talk)
    middle = len(talk) // 2

    def dialogue(text: str, talk: list[str]) -> str:
        first = f"{draw.choice(GREETINGS)} {draw.choice(talk)}"
        answer, end = draw.choice(ANSWERS), draw.choice(ENDS)
        return f"Customer: {first}\nAgent: {answer}\nCustomer: {text}\nAgent: {end}"

    (pool,) = intents(data, half)
    items = [dialogue(text, talk[:middle]) for text in pool.items]
    yield Pool(items, [(dialogue(text, talk[middle:]), gold, intent) for text, gold, intent in pool.questions])


def add_pastes(pools: Iterator[Pool], data: Path, half: str) -> Iterator[Pool]:
    """The same pools, asked beside what was pasted: of each kind, length and place in turn, every third time without a mark."""
    code = [code for package in CODE[half].split()[:3] for code, _, _ in _functions_of(package)]
    prose = next(paragraphs(data, "hotpotqa", half, False)).items
    draw = random.Random(2)
    ways = [(kind, size, place) for size in SIZES for place in PLACES for kind in KINDS]
    draw.shuffle(ways)
    for pool in pools:
        questions = []
        for number, (question, gold, cluster) in enumerate(pool.questions):
            kind, size, place = ways[number % len(ways)]
            question = question.rstrip("?") if number % 3 == 0 else question
            questions.append((place_question(question, paste(kind, size, draw, code, prose), place), gold, cluster))
        yield Pool(pool.items, questions)


POOLS: Mapping[str, Callable[[Path, str], Iterator[Pool]]] = {
    "HotpotQA": lambda data, half: paragraphs(data, "hotpotqa", half, False),
    "2Wiki": lambda data, half: paragraphs(data, "2wikimultihopqa", half, False),
    "HotpotQA, one given": lambda data, half: paragraphs(data, "hotpotqa", half, True),
    "2Wiki, one given": lambda data, half: paragraphs(data, "2wikimultihopqa", half, True),
    "LoCoMo, turns": conversations,
    "LoCoMo, bare turns": lambda data, half: conversations(data, half, names=False),
    "LongMemEval, turns": lambda data, half: long_memory(data, half, "turns"),
    "LongMemEval, sessions": lambda data, half: long_memory(data, half, "sessions"),
    "LongMemEval, amid talk": lambda data, half: long_memory(data, half, "talk"),
    "BFCL, sentences": statements,
    "BFCL, pasted": lambda data, half: add_pastes(statements(data, half), data, half),
    "BANKING77": intents,
    "BANKING77, amid talk": support,
    "LongMemEval, pasted": lambda data, half: add_pastes(long_memory(data, half, "turns"), data, half),
    "PrefEval, requests": preferences,
    "code": lambda data, half: functions(data, half, "{}"),
    "code, one word": lambda data, half: functions(data, half, FORMS[1]),
    "code, asked": functions,
}

OURS = "keepworth"
Search = Callable[[str], Sequence[int]]


def systems(pool: Pool, encoder: Any) -> dict[str, Search]:
    """Everything that is compared, over these items."""
    import bm25s
    import Stemmer

    memory = Memory(":memory:", encoder=encoder, policy=None)
    index = {item.id: number for number, item in enumerate(memory.add_many(pool.items, repeat=True))}
    stems = Stemmer.Stemmer("english")

    def words_of(texts: list[str]) -> Any:
        return bm25s.tokenize(texts, stopwords="en", stemmer=stems, show_progress=False)

    lexical = bm25s.BM25(method="lucene")
    lexical.index(words_of(pool.items), show_progress=False)
    matrix = unit(encoder.encode(pool.items))

    def ours(mode: str) -> Search:
        return lambda question: [index[hit.id] for hit in memory.search(question, top_k=FIRST, mode=mode)]

    def by_words(question: str) -> dict[int, float]:
        asked = words_of([question])
        if not len(asked.vocab):
            return {}
        rows, scores = lexical.retrieve(asked, k=min(DEPTH, len(pool.items)), show_progress=False)
        return {int(n): float(s) for n, s in zip(rows[0], scores[0], strict=True) if s > 0}

    def by_meaning(question: str) -> dict[int, float]:
        cosines = matrix @ unit(encoder.encode([question]))[0]
        return {int(n): float(cosines[n]) for n in np.argsort(-cosines, kind="stable")[:DEPTH]}

    def fused(scale: Callable[[dict[int, float]], dict[int, float]], words: float) -> Search:
        def search(question: str) -> list[int]:
            sums: dict[int, float] = {}
            for weight, half in ((words, by_words(question)), (1.0 - words, by_meaning(question))):
                for number, score in scale(half).items():
                    sums[number] = sums.get(number, 0.0) + weight * score
            return sorted(sums, key=lambda number: -sums[number])[:FIRST]

        return search

    return {
        OURS: ours("hybrid"),
        "keepworth, words": ours("lexical"),
        "keepworth, meaning": ours("dense"),
        "words": lambda question: list(by_words(question))[:FIRST],
        "meaning": lambda question: list(by_meaning(question))[:FIRST],
        "ranks, 60": fused(ranks(60), 0.5),
        "ranks, 10": fused(ranks(10), 0.5),
        "min-max": fused(spread, 0.5),
        "min-max, 0.3 words": fused(spread, 0.3),
    }


def unit(vectors: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    rows = np.asarray(vectors, np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def ranks(constant: int) -> Callable[[dict[int, float]], dict[int, float]]:
    return lambda half: {number: 1.0 / (constant + rank) for rank, number in enumerate(half, start=1)}


def spread(half: dict[int, float]) -> dict[int, float]:
    low, high = min(half.values(), default=0.0), max(half.values(), default=0.0)
    return {number: (score - low) / (high - low) if high > low else 1.0 for number, score in half.items()}


def measured(pools: Sequence[Pool], encoder: Any) -> dict[str, Any]:
    """Recall of each question by each system, and what the question shares with others."""
    by_metric: dict[str, list[float]] = {}
    shared: list[str] = []
    for pool in pools:
        compared = systems(pool, encoder)
        for question, wanted, cluster in pool.questions:
            shared.append(cluster)
            for name, search in compared.items():
                hits = len(wanted.intersection(search(question)))
                by_metric.setdefault(name, []).append(hits / min(len(wanted), FIRST))
    return {"recall": by_metric, "clusters": shared, "items": sum(len(pool.items) for pool in pools)}


def summary(row: dict[str, Any]) -> dict[str, Any]:
    mine = row["recall"][OURS]
    differences = {}
    for name, recalls in row["recall"].items():
        if name != OURS:
            paired = [one - other for one, other in zip(mine, recalls, strict=True)]
            compared = paired_difference(name, paired, clusters=row["clusters"])
            differences[name] = {"mean": compared.difference, "low": compared.low, "high": compared.high}
    return {
        "questions": len(mine),
        "items": row["items"],
        "clusters": len(set(row["clusters"])),
        "recall": {name: float(np.mean(recalls)) for name, recalls in row["recall"].items()},
        "gain": differences,
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, default=None, help="a folder to keep vectors in, for the next run")
    parser.add_argument("--half", choices=("dev", "test"), default="dev")
    parser.add_argument("--only", default="", help="pools whose name holds this")
    options = parser.parse_args()
    made = encoder("default")
    if options.vectors is not None:
        made = KeptVectors(made, options.vectors)
    result: dict[str, Any] = {"half": options.half, "machine": machine(), "pools": {}}
    for name, pools in POOLS.items():
        if options.only in name:
            began = time.monotonic()
            result["pools"][name] = summary(measured(list(pools(options.data, options.half)), made))
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
            save(options.json, result)
    print(finding(result))


if __name__ == "__main__":
    main()
