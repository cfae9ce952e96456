"""Exact, int8 and product-quantised search on distinct real sentences: speed, recall of the exact ten best, and words.

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
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.episodes import Encoder, EncoderIdentity
from keepworth.evaluation.engine import at, lexical_overlap, machine, reading_limit, timed
from keepworth.memory.memory import Memory
from keepworth.memory.search.beside import index_path
from keepworth.memory.search.index import tokens
from keepworth.memory.store.maintenance import lay_out
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


def recall(found: Sequence[Sequence[str]], exact: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Mean share of the exact result that was found, and half the width of its 95 % interval over queries."""
    shares = [len(set(a) & set(b)) / max(1, len(b)) for a, b in zip(found, exact, strict=True)]
    return float(np.mean(shares)), float(1.96 * np.std(shares) / np.sqrt(len(shares)))


def spread(times: Sequence[float]) -> dict[str, float]:
    return {"n": len(times), "p50": at(times, 0.5), "p95": at(times, 0.95)}


def dense_rows(path: Path, known: Known, questions: Sequence[str], kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    queries = known.encode(questions)
    exact: list[list[str]] = []
    for kind in kinds:
        with Memory(path, encoder=known, index=kind) as memory:
            start = time.perf_counter()
            memory.search(questions[0], mode="dense")
            first = time.perf_counter() - start
            index = memory.store.dense_index()[0]
            found = [[hit.id for hit in memory.search(question, mode="dense")] for question in questions]
            exact = exact or found
            calls = [lambda question=question: memory.search(question, mode="dense") for question in questions]  # type: ignore[misc]
            alone = [lambda query=query, index=index: index.search(query[None, :], 10, None, None) for query in queries]  # type: ignore[misc]
            whole, part = timed(calls), timed(alone)
            batch = timed([lambda index=index: index.search(queries[:32], 10, None, None) for _ in range(22)], warm=2)
            proposer = index.proposer
        with Memory(path, encoder=known, index=kind) as memory:
            start = time.perf_counter()
            memory.search(questions[0], mode="dense")
            again = time.perf_counter() - start
        value, half = recall(found, exact)
        kept = index_path(path, kind)
        yield {
            "index": kind,
            "search": spread(whole),
            "index alone": spread(part),
            "ms per query, 32 at once": at(batch, 0.5) / 32,
            "recall@10": value,
            "half interval": half,
            "recall measured when built": proposer.recall if proposer else 1.0,
            "proposals": proposer.reach if proposer else None,
            "first search, seconds": first,
            "first search when kept, seconds": again,
            "bytes kept": kept.stat().st_size if kept.exists() else 0,
        }


def graph_row(known: Known, texts: Sequence[str], questions: Sequence[str]) -> dict[str, Any]:
    """What the engine would have with a graph: the library's HNSW over float32, at the effort that reaches 0.95."""
    import faiss

    faiss.omp_set_num_threads(1)
    matrix, queries = known.encode(texts), known.encode(questions)
    exact = np.argsort(-(queries @ matrix.T), axis=1)[:, :10]
    index = faiss.IndexHNSWFlat(matrix.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 100
    start = time.perf_counter()
    index.add(matrix)
    built = time.perf_counter() - start
    for effort in (16, 32, 64, 128, 256, 512):
        index.hnsw.efSearch = effort
        found = index.search(queries, 10)[1]
        value = float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)]))
        if value >= 0.95:
            break
    times = timed([lambda query=query: index.search(query[None, :], 10) for query in queries])  # type: ignore[misc]
    return {
        "index": f"HNSW, M 32, ef {effort}",
        "index alone": spread(times),
        "recall@10": value,
        "built, seconds": built,
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
        lay_out(memory.store)


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
    parser.add_argument("--indexes", nargs="+", default=["exact", "int8", "pq"])
    parser.add_argument(
        "--graph", action="store_true", help="also build the library's graph index, which takes minutes"
    )
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
        "versions": {name: version(name) for name in ("keepworth", "numpy", "faiss-cpu", "onnxruntime", "apsw")},
        "machine": setting,
        "limit_ms": reading_limit(known.encode(texts)),
    }
    print(f"one thread reads these vectors in {record['limit_ms']:.2f} ms\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "real.mem"
        fill(path, known, texts)
        print(
            "| index | p50 ms | p95 ms | index alone p50 ms | recall@10 | times the exact search | first search s | kept s |"
        )
        print("| --- |" + " --- |" * 7)
        record["dense"] = []
        for row in dense_rows(path, known, questions, arguments.indexes):
            record["dense"].append(row)
            whole, alone = row["search"], row["index alone"]
            row["times the exact search"] = whole["p50"] / record["dense"][0]["search"]["p50"]
            row["times the exact scan"] = alone["p50"] / record["dense"][0]["index alone"]["p50"]
            print(
                f"| {row['index']} | {whole['p50']:.3g} | {whole['p95']:.3g} | {alone['p50']:.3g} | "
                f"{row['recall@10']:.4f} ± {row['half interval']:.4f} | {row['times the exact search']:.3f} "
                f"(index alone {row['times the exact scan']:.3f}) | {row['first search, seconds']:.2f} | "
                f"{row['first search when kept, seconds']:.2f} |",
                flush=True,
            )
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
        for kind in arguments.indexes:
            fresh = Query(known, named(arguments.encoder), questions)
            with Memory(path, encoder=fresh, index=kind) as memory:
                memory.search(texts[0])
                calls = [lambda question=question: memory.search(question) for question in questions[:220]]  # type: ignore[misc]
                record["both"].append({"index": kind, "search": spread(timed(calls))})
            print(f"by both, the query encoded ({kind}): {record['both'][-1]['search']}", flush=True)
    if arguments.graph:
        record["graph"] = graph_row(known, texts, questions)
        print(record["graph"])
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
