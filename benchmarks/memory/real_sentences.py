"""Search on distinct real sentences: by meaning, and by words.

    python -m benchmarks.memory.real_sentences --data DATA --size 100000 --json benchmarks/memory/real_sentences.json

Sentences of LongMemEval, LoCoMo, HotpotQA and 2WikiMultihopQA, each once, drawn by a hash of their text; questions of the
same sets are the queries and are none of the sentences. Vectors are made once and kept, outside the repository. Times are
of `Memory.search` with its log on, the encoding of the query excluded where not said otherwise; "index alone" is the part
that reads vectors.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.engine import at, lexical_overlap, machine, reading_limit, timed
from keepworth.episodes import Encoder, EncoderIdentity
from keepworth.memory.memory import Memory
from keepworth.memory.search.index import tokens
from keepworth.memory.search.scan import cosines
from keepworth.models.kept_vectors import KeptVectors

_END = re.compile(r"(?<=[.!?])\s+")
QUERIES = 1000
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "keepworth" / "benchmark_vectors"


def texts_in(value: Any) -> Iterator[str]:
    """Every string in a parsed JSON file, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from texts_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts_in(part)


def records_of(path: Path) -> Iterator[Any]:
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        if ".jsonl" in path.name:
            for line in file:
                yield json.loads(line)
        else:
            yield json.load(file)


def sentences(data: Path, size: int) -> tuple[list[str], list[str]]:
    """(sentences, questions), both without repeats, in an order that depends on their text alone."""
    found: set[str] = set()
    asked: set[str] = set()
    for folder in ("longmemeval", "locomo", "hotpotqa", "2wikimultihopqa"):
        for path in sorted((data / folder).glob("*.json*")):
            for record in records_of(path):
                asked.update(_questions(record))
                for text in texts_in(record):
                    found.update(part.strip() for part in _END.split(text) if 5 <= len(part.split()) <= 60)
    order = sorted(found - asked, key=lambda text: hashlib.blake2b(text.encode(), digest_size=8).digest())
    queries = sorted(asked, key=lambda text: hashlib.blake2b(text.encode(), digest_size=8).digest())
    return order[:size], queries[:QUERIES]


def _questions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        question = value.get("question")
        if isinstance(question, str):
            yield question
        for part in value.values():
            yield from _questions(part)
    elif isinstance(value, list):
        for part in value:
            yield from _questions(part)


class Known:
    """An encoder that looks vectors up, so that its own time is next to nothing."""

    def __init__(self, identity: EncoderIdentity, texts: Sequence[str], vectors: np.ndarray) -> None:
        self.identity = identity
        self._rows = {text: row for row, text in enumerate(texts)}
        self._vectors = vectors

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return self._vectors[[self._rows[text] for text in texts]]


class Query:
    """Encodes with another encoder what `known` does not hold."""

    def __init__(self, known: Known, encoder: Encoder, questions: Sequence[str]) -> None:
        self.identity = known.identity
        self._known, self._encoder, self._questions = known, encoder, set(questions)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        if all(text in self._questions for text in texts):
            return np.asarray(self._encoder.encode(texts))
        return self._known.encode(texts)


def spread(times: Sequence[float]) -> dict[str, float]:
    return {"n": len(times), "p50": at(times, 0.5), "p95": at(times, 0.95)}


def dense_row(path: Path, known: Known, questions: Sequence[str]) -> dict[str, Any]:
    queries = known.encode(questions)
    with Memory(path, encoder=known) as memory:
        calls = [lambda question=question: memory.search(question, mode="dense") for question in questions]  # type: ignore[misc]
        whole = timed(calls)
        batch = timed([lambda: memory.search_many(list(questions[:32]), mode="dense") for _ in range(22)], warm=2)
        matrix = known.encode([item.text for item in memory.get_all(limit=10**9)])
    alone = timed([lambda query=query: cosines(query[None, :], matrix) for query in queries])  # type: ignore[misc]
    return {
        "index": "exact",
        "search": spread(whole),
        "index alone": spread(alone),
        "ms per query, 32 at once": at(batch, 0.5) / 32,
    }


def words_alone(texts: Sequence[str], questions: Sequence[str], target: Path | None) -> None:
    """What searching by words takes and finds, without any vectors."""
    record: dict[str, Any] = {"sentences": len(texts), "questions": len(questions), "machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "real.mem"
        fill(path, None, texts)
        record["words"] = list(word_rows(path, None, texts, questions))
    for row in record["words"]:
        print(row)
    if target:
        target.write_text(json.dumps(record, indent=1) + "\n")


def fill(path: Path, known: Known | None, texts: Sequence[str]) -> None:
    with Memory(path, encoder=known) as memory:
        for begin in range(0, len(texts), 1000):
            memory.add_many(texts[begin : begin + 1000], user_id=f"u{begin // 1000 % 100}")


def word_rows(
    path: Path, known: Known | None, texts: Sequence[str], questions: Sequence[str]
) -> Iterator[dict[str, Any]]:
    frequency = Counter(word for text in texts for word in set(tokens(text)))
    common = [word for word, _ in frequency.most_common(24)]
    only = [" ".join(common[(start + 5 * place) % 24] for place in range(3)) for start in range(24)]
    with Memory(path, encoder=known) as memory:
        for name, asked in (("questions", questions), ("common words only", only * 3)):
            answered = sum(bool(memory.search(question, mode="lexical")) for question in asked)
            calls = [lambda question=question: memory.search(question, mode="lexical") for question in asked]  # type: ignore[misc]
            yield {
                "queries": name,
                "answered": answered / len(asked),
                "search": spread(timed(calls)),
                "same ten as full BM25": lexical_overlap(memory, texts, list(dict.fromkeys(asked))[:200]),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--words", action="store_true", help="only searches by words, which need no encoder")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.words:
        words_alone(*sentences(arguments.data, arguments.size), arguments.json)
        return
    from keepworth.models.encoders import encoder as named

    setting = machine()
    encoder = named(arguments.encoder)
    kept = KeptVectors(encoder, CACHE)
    texts, questions = sentences(arguments.data, arguments.size)
    print(f"{len(texts):,} sentences, {len(questions)} questions")
    known = Known(kept.identity, [*texts, *questions], kept.encode([*texts, *questions]))
    record: dict[str, Any] = {
        "sentences": len(texts),
        "questions": len(questions),
        "encoder": kept.identity.model,
        "versions": {name: version(name) for name in ("keepworth", "numpy", "onnxruntime", "apsw")},
        "machine": setting,
        "limit_ms": reading_limit(known.encode(texts)),
    }
    print(f"one thread reads these vectors in {record['limit_ms']:.2f} ms\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "real.mem"
        fill(path, known, texts)
        record["dense"] = [dense_row(path, known, questions)]
        print(record["dense"][0])
        print("\n| words | p50 ms | p95 ms | answered | same ten as full BM25 |\n| --- |" + " --- |" * 4)
        record["words"] = []
        for row in word_rows(path, known, texts, questions):
            record["words"].append(row)
            print(
                f"| {row['queries']} | {row['search']['p50']:.3g} | {row['search']['p95']:.3g} | {row['answered']:.3f} | "
                f"{row['same ten as full BM25']:.4f} |",
                flush=True,
            )
        record["both"] = []
        fresh = Query(known, named(arguments.encoder), questions)
        with Memory(path, encoder=fresh) as memory:
            memory.search(texts[0])
            calls = [lambda question=question: memory.search(question) for question in questions[:220]]  # type: ignore[misc]
            record["both"].append({"index": "exact", "search": spread(timed(calls))})
        print(f"by both, the query encoded: {record['both'][-1]['search']}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
