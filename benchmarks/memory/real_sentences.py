"""Exact, int8 and graph search on distinct real sentences: speed and recall of the exact ten best.

    python -m benchmarks.memory.real_sentences --data DATA --size 100000 --json out.json

Sentences of LongMemEval, LoCoMo, HotpotQA and 2WikiMultihopQA, each once, drawn by a hash of their text; questions of the
same sets are the queries and are none of the sentences. Vectors are made once and kept.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.vectors import KeptVectors
from recollect.memory.dense import DenseIndex
from recollect.memory.measure import at, reading_limit, timed

_END = re.compile(r"(?<=[.!?])\s+")
QUERIES = 300


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


def recall(found: Sequence[Sequence[tuple[int, float]]], exact: Sequence[Sequence[tuple[int, float]]]) -> float:
    shares = [len({n for n, _ in a} & {n for n, _ in b}) / max(1, len(b)) for a, b in zip(found, exact, strict=True)]
    return float(np.mean(shares))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--indexes", nargs="+", default=["exact", "int8", "graph"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    from recollect.models.encoders import encoder as named

    encoder = KeptVectors(named(arguments.encoder))
    texts, questions = sentences(arguments.data, arguments.size)
    print(f"{len(texts):,} sentences, {len(questions)} questions")
    matrix, queries = encoder.encode(texts), encoder.encode(questions)
    limit = reading_limit(matrix)
    print(
        f"one thread reads these vectors in {limit:.2f} ms\n\n| index | p50 ms | p95 ms | recall@10 | times the exact scan |"
    )
    print("| --- | --- | --- | --- | --- |")
    rows: list[dict[str, Any]] = []
    exact: list[list[tuple[int, float]]] = []
    for kind in arguments.indexes:
        index = DenseIndex(matrix.shape[1])
        index.put(range(1, len(matrix) + 1), [1] * len(matrix), matrix)
        if kind != "exact":
            index.accelerate(kind)
        found = [index.search(query[None, :], 10, None, None)[0] for query in queries]
        search = index.search
        times = timed([lambda query=query, search=search: search(query[None, :], 10, None, None) for query in queries])  # type: ignore[misc]
        if kind == "exact":
            exact = found
        row = {"index": kind, "p50": at(times, 0.5), "p95": at(times, 0.95), "recall": recall(found, exact)}
        rows.append(row)
        ratio = row["p50"] / rows[0]["p50"]
        print(f"| {kind} | {row['p50']:.3g} | {row['p95']:.3g} | {row['recall']:.4f} | {ratio:.2f} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"size": len(texts), "limit_ms": limit, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
