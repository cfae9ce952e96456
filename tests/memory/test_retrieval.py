"""What a search promises next to finding: every score accounted for, one matrix product, hooks and options that take effect."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from keepworth.memory import errors
from keepworth.memory.item import now
from keepworth.memory.memory import Memory
from keepworth.memory.search.newer import about_the_past
from keepworth.memory.search.search import POOL, Search, requested
from keepworth.memory.store.views import ScopeView
from tests.memory.helpers import WordEncoder, finds, texts

THINGS = [f"{colour} {thing}" for colour in ("red", "blue") for thing in ("hat", "car", "tea")]
TEXTS = [f"{animal} likes the {thing}" for animal in ("ana", "bo", "cat") for thing in THINGS]


def filled(path: object = ":memory:", **options: object) -> Memory:
    memory = Memory(path, **{"encoder": WordEncoder(32), **options})
    for day, text in enumerate(TEXTS, start=1):
        memory.add(text, event_time=f"2024-01-{day:02d}")
    return memory


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
@pytest.mark.parametrize("where", ["now", "past", "bank", "fork"])
def test_words_and_cosines_are_those_that_an_explanation_says(mode: str, where: str):
    memory = filled()
    options: dict[str, object] = {"mode": mode, "explain": True}
    if where == "past":
        memory.supersede("m3", "ana likes nothing", event_time="2025-01-01")
        options["as_of"] = "2024-06-01"
    holder = memory.bank() if where in ("bank", "fork") else memory
    if where == "fork":
        holder = holder.fork()
        holder.add("the red hat of the cat")
    hits = holder.search("red hat cat", **options)
    assert len(hits) == 10
    for hit in hits:
        if hit.lexical is not None:
            assert math.isclose(sum(hit.why.terms.values()), hit.lexical, rel_tol=1e-9)
        if hit.dense is not None:
            vector, query = WordEncoder(32).encode([hit.item.text, "red hat cat"])
            assert math.isclose(hit.dense, float(vector @ query), abs_tol=1e-5)


def test_a_cross_encoder_decides():
    memory = filled()
    seen: list[int] = []

    def last_first(query: str, texts: list[str]) -> list[float]:
        assert query == "red hat"
        seen.append(len(texts))
        return [float(TEXTS.index(text)) for text in texts]

    hits = memory.search("red hat", top_k=4, reranker=last_first, explain=True)
    assert seen == [min(POOL, len(TEXTS))]
    assert [hit.text for hit in hits] == TEXTS[::-1][:4]
    with pytest.raises(errors.InvalidFilter, match="gave 1 scores for 18 texts"):
        memory.search("red hat", reranker=lambda query, texts: [1.0])


def test_what_is_not_yet_true_is_not_found_as_it_is_not_at_this_moment():
    m = Memory(":memory:", encoder=WordEncoder(8), clock=lambda: "2026-01-01T00:00:00")
    m.add("prices of 2060", valid_from="2060-01-01")
    m.add("prices of 2025", valid_from="2025-01-01", valid_to="2027-01-01")
    for options in ({}, {"as_of": "2026-01-01"}):
        assert finds(m, "prices", **options) == ["prices of 2025"]
    assert texts(m) == ["prices of 2025"]
    assert finds(m, "prices", as_of="2061-01-01") == ["prices of 2060"]


def test_the_highest_threshold_is_the_score_of_what_both_parts_put_first():
    m = Memory(":memory:", encoder=WordEncoder(8))
    m.add("a red hat")
    assert m.search("a red hat", mode="dense", threshold=0.999)
    with pytest.raises(errors.InvalidFilter, match="dense"):
        m.search("red hat", threshold=1.01)
    assert m.search("red hat", threshold=3.0, reranker=lambda query, texts: [7.0] * len(texts))[0].score == 7.0


def test_a_half_life_halves_scores_with_age():
    m = Memory(":memory:", encoder=WordEncoder(), policy=None, clock=lambda: "2026-03-01T00:00:00")
    old = m.add("a red cat sleeps in the sun", event_time="2025-12-01")
    new = m.add("a cat", event_time="2026-02-28")
    assert [hit.id for hit in m.search("red cat sun")] == [old.id, new.id]
    plain = {hit.id: hit.score for hit in m.search("red cat sun")}
    for mode in ("hybrid", "lexical"):
        hits = m.search("red cat sun", half_life=10, mode=mode, explain=True)
        assert [hit.id for hit in hits] == [new.id, old.id]
        if mode == "hybrid":
            assert math.isclose(hits[1].score, plain[old.id] * 0.5**9, rel_tol=1e-9)
    assert m.search("red cat sun", half_life=10, as_of="2026-02-28")[0].id == new.id


def test_what_was_written_in_one_go_is_not_newer_further_down_but_turns_of_a_conversation_are():
    said = ["My dog is called Max", "My dog is called Bella"]
    for order in (1, -1):
        m = Memory(":memory:", encoder=WordEncoder(), policy=None)
        m.add_many(said[::order])
        plain = m.search("What is my dog called?")
        assert plain[0].conflicts
        assert not plain[0].instead_of
        m = Memory(":memory:", encoder=WordEncoder(), policy=None)
        m.add([{"role": "user", "content": text} for text in said[::order]])
        assert m.search("What is my dog called?")[0].text == said[::order][-1]


TODAY = [
    "What age is my dog?", "How old is my dog?", "Is my dog 4 years old?", "What is the first name of my dog?",
    "What is used for my dog?", "How is my dog before breakfast?", "How often is my dog out, once a day?",
]  # fmt: skip
BEFORE = [
    *("What was my old dog called?", "How was my dog before?", "What was my first dog?"),
    *("How did my dog used to be?", "How was my dog once?"),
]


@pytest.mark.parametrize("question", [*TODAY, *BEFORE])
def test_words_of_the_past_ask_for_it_only_where_they_mean_it(question: str):
    assert about_the_past(question) is (question in BEFORE)


@pytest.mark.model
def test_what_the_encoder_cannot_read_is_found_by_words_and_by_nothing_else():
    m = Memory(":memory:", policy=None)
    facts = ["👍", "แอนแพ้ถั่ว", "x" * 300, "고양이 이름은 나비", "안나는 땅콩 알레르기가 있다", "Ana likes tofu"]
    m.add_many(facts)
    for question in ("🦖", "y" * 200, "ไปตกปลา", "양자"):
        assert m.search(question, threshold=0.1) == []
    for question, fact in (("แพ้ถั่ว", 1), ("고양이", 3), ("땅콩", 4), ("x" * 300, 2)):
        (first,) = m.search(question, top_k=1, threshold=0.1)
        assert first.text == facts[fact]


def test_the_best_are_the_same_whatever_is_asked_for_beyond_them(m: Memory):
    m.add_many([f"cat number {n}" for n in range(40)])
    request, view = requested(10, "lexical", {}), ScopeView(m.store, m.scope)
    requests = (replace(request, beyond=beyond) for beyond in (0, 25))
    (few,), (more,) = (Search(view, None, each, now()).hits(["cat number"]) for each in requests)
    assert [hit.id for hit in more[:10]] == [hit.id for hit in few]


FOUR = ["red car", "blue car", "I live in Oslo", "I live in Bergen"]
OF_CLEO, REX = "Cleo speaks Greek and French.", ["My dog is called Rex.", "My dog is called Bella."]
CONFLICTS: list[tuple[list[str], str, int]] = [
    (FOUR, "car", 0),  # share one word alone
    (FOUR, "Where do I live?", 1),
    ([OF_CLEO, "Cleo was asked which languages Cleo speaks."], "Cleo speaks", 0),
    ([OF_CLEO, "Does Cleo speak Greek and French?"], "Cleo speaks", 0),
    (REX, "what is my dog called", 1),
]


@pytest.mark.parametrize(("facts", "question", "conflicts"), CONFLICTS)
def test_what_asks_or_shares_one_word_alone_contradicts_nothing(facts: list[str], question: str, conflicts: int):
    with Memory(encoder=None, policy=None) as m:
        m.add_many(facts)
        assert [len(hit.conflicts) for hit in m.search(question)] == [conflicts] * 2
