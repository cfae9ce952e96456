"""Queries that wait for a neural encoder are encoded together, and are found cached."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from keepworth.memory.search.index import Embedder
from keepworth.serving.waiting_queries import MOST, WaitingQueries
from tests.memory.stub_encoder import WordEncoder
from tests.serving.gate import Gate, user


class SlowEncoder(WordEncoder):
    """An encoder whose first call waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = list[list[str]]()
        self.begun, self.free = threading.Event(), threading.Event()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.batches.append(list(texts))
        self.begun.set()
        assert self.free.wait(60)
        return super().encode(texts)


def query_of(embedder: Embedder, query: str) -> tuple[Embedder, str]:
    return embedder, query


async def encode_all(encoder: SlowEncoder, count: int) -> None:
    """Encode one query, and `count` others while the encoder reads the first."""
    queries, embedder = WaitingQueries(), Embedder(encoder)
    first = asyncio.create_task(queries.encode(lambda: (embedder, "first")))
    await asyncio.to_thread(encoder.begun.wait, 60)
    others = [
        asyncio.create_task(queries.encode(partial(query_of, embedder, f"query {number}"))) for number in range(count)
    ]
    await asyncio.sleep(0)
    others[0].cancel()  # a caller that hangs up leaves the others alone
    encoder.free.set()
    await asyncio.gather(first, *others[1:])
    queries.close()
    made = len(encoder.batches)
    embedder([f"query {number}" for number in range(count)])
    assert len(encoder.batches) == made, "all vectors were cached"


@pytest.mark.parametrize("count", [5, MOST + 3])
def test_queries_that_wait_are_one_batch(count: int) -> None:
    encoder = SlowEncoder()
    asyncio.run(encode_all(encoder, count))
    assert [len(batch) for batch in encoder.batches] == [1, *([count] if count <= MOST else [MOST, count - MOST])]


class FailingEncoder(WordEncoder):
    def encode(self, texts: Sequence[str]) -> np.ndarray:
        raise RuntimeError("the encoder is broken")


def test_failing_encoder_lets_queries_go_on() -> None:
    async def encode() -> None:
        queries = WaitingQueries()
        await asyncio.wait_for(queries.encode(lambda: (Embedder(FailingEncoder()), "a query")), 60)

    asyncio.run(encode())


def test_queries_of_a_closed_server_do_not_wait() -> None:
    """More of them than one batch holds."""

    async def encode() -> None:
        queries, embedder = WaitingQueries(), Embedder(WordEncoder())
        queries.close()
        waiting = [queries.encode(partial(query_of, embedder, f"query {number}")) for number in range(MOST + 3)]
        await asyncio.wait_for(asyncio.gather(*waiting), 60)

    asyncio.run(encode())


def test_calls_recall_the_same_at_the_same_time_and_one_by_one(gates) -> None:
    encoder = SlowEncoder()
    encoder.free.set()
    gate: Gate = gates(encoder=encoder)
    facts = [
        f"The colour of house {number} is {colour}." for number, colour in enumerate(("red", "blue", "green", "white"))
    ]
    gate.memory.add_many(facts, user_id="ana")
    questions = [f"What is the colour of house {number}?" for number in range(4)]

    def blocks() -> list[list[str]]:
        with ThreadPoolExecutor(4) as callers:
            answers = list(callers.map(lambda question: gate.ask(user(question), user="ana"), questions))
        return [gate.memory.receipt(answer.headers["x-keepworth-episode"])["injected"] for answer in answers]

    encoder.batches.clear()
    together = blocks()
    assert sum(map(len, encoder.batches)) == 4, "each query was encoded once"
    receipts = [
        gate.memory.receipt(gate.ask(user(f"{question} "), user="ana").headers["x-keepworth-episode"])
        for question in questions
    ]
    assert together == [receipt["injected"] for receipt in receipts]
    assert all(together)
