"""Search by words in a file: what is read is bounded, what is found is what BM25 over everything would find."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.memory import words
from recollect.memory.measure.engine import lexical_overlap
from recollect.memory.memory import Memory

COMMON = ["the", "and", "of"]


def test_rare_words_are_looked_up_and_common_ones_only_scored():
    assert words.proposal({"the": 900, "cat": 5, "oslo": 2}, 1.0, 100) == (["oslo", "cat"], True)
    assert words.proposal({"the": 900, "and": 800}, 1.0, 100) == (["and"], False)
    assert words.proposal({}, 1.0, 100) == ([], True)
    # In a scope of one hundredth, a posting costs eleven hundredths: 900 of them cost 99.
    assert words.proposal({"the": 900}, 0.01, 100) == (["the"], True)


@settings(deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 10_000), max_size=8), st.floats(0.0, 1.0))
def test_a_proposal_keeps_to_its_budget_or_says_so(frequency, share):
    chosen, affordable = words.proposal(frequency, share, 1000)
    assert bool(chosen) == bool(frequency)
    price = min(1.0, share + words.SKIPPING)
    total = price * sum(frequency[term] for term in chosen)
    assert affordable == (total <= 1000) or abs(total - 1000) < 1e-6  # added up in another order
    assert affordable or len(chosen) == 1
    left = [frequency[term] for term in frequency if term not in chosen]
    assert all(count >= frequency[term] for count in left for term in chosen)


@pytest.fixture
def crowded(monkeypatch) -> Memory:
    """Three hundred texts of common words; the oldest ten are Ana's. Reading thirty postings is all that is affordable."""
    monkeypatch.setattr(words, "POSTINGS", 30)
    memory = Memory(":memory:", encoder=None)
    memory.add_many([f"the and of number {n}" for n in range(10)], user_id="ana")
    memory.add_many([f"the and of number {n}" for n in range(10, 300)], user_id="bo")
    return memory


def test_a_query_of_common_words_only_answers_in_every_scope(crowded: Memory):
    for scope in ({}, {"user_id": "ana"}, {"user_id": "bo"}):
        hits = crowded.search("the and of", top_k=5, mode="lexical", **scope)
        assert len(hits) == 5, scope
    assert {hit.item.scope.user for hit in crowded.search("of the", mode="lexical", user_id="ana")} == {"ana"}


def test_a_journal_that_ends_in_other_things_than_items_hides_none(crowded: Memory):
    hits = crowded.search("the", mode="lexical", top_k=1)
    for _ in range(100):
        crowded.reward(hits.decision, 1.0)
    assert len(crowded.search("the and of", top_k=5, mode="lexical")) == 5


def test_the_top_ten_are_those_of_bm25_over_everything():
    draw = random.Random(0)
    names = [f"w{n}" for n in range(400)]
    weights = [1 / (n + 1) for n in range(400)]
    texts = [f"{' '.join(draw.choices(names, weights, k=12))} n{n}" for n in range(800)]
    memory = Memory(":memory:", encoder=None)
    memory.add_many(texts)
    queries = [" ".join(draw.choices(names, weights, k=4)) for _ in range(40)]
    assert lexical_overlap(memory, texts, queries) > 0.99  # of equals, either may come tenth


@pytest.mark.parametrize(
    "query", ["", "  ", "?!", "\x00", "the" * 5000, '" OR words MATCH "', "text : *", "NEAR(a b)", "日本"]
)
def test_awkward_queries_find_nothing_and_harm_nothing(query, crowded: Memory):
    assert crowded.search(query, mode="lexical") == []
    assert len(crowded.search(query + " number", mode="lexical", top_k=3)) == 3
