"""What a search promises next to finding: every score accounted for, one matrix product, hooks and options that take effect."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from keepworth.base.errors import KeepworthError
from keepworth.memory import errors
from keepworth.memory.by_name import encoder
from keepworth.memory.item import Provenance, now
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
def test_explanation_states_the_true_scores(mode: str, where: str):
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


def test_reranker_decides_the_order():
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
    for option in ("reranker", "fits", "where"):
        with pytest.raises(KeepworthError, match=f"{option} failed: TypeError: .* line"):
            memory.search("red hat", **{option: lambda: 1})


def test_item_valid_in_the_future_is_not_found_now():
    m = Memory(":memory:", encoder=WordEncoder(8), clock=lambda: "2026-01-01T00:00:00")
    m.add("prices of 2060", valid_from="2060-01-01")
    m.add("prices of 2025", valid_from="2025-01-01", valid_to="2027-01-01")
    for options in ({}, {"as_of": "2026-01-01"}):
        assert finds(m, "prices", **options) == ["prices of 2025"]
    assert texts(m) == ["prices of 2025"]
    assert finds(m, "prices", as_of="2061-01-01") == ["prices of 2060"]


def test_best_item_of_both_rankings_scores_one():
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


def test_texts_of_one_call_are_equally_new_unlike_conversation_turns():
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
def test_question_about_the_past_is_recognised(question: str):
    assert about_the_past(question) is (question in BEFORE)


@pytest.mark.model
def test_text_unknown_to_the_encoder_is_found_by_words_only():
    m = Memory(":memory:", policy=None)
    facts = ["👍", "แอนแพ้ถั่ว", "x" * 300, "고양이 이름은 나비", "안나는 땅콩 알레르기가 있다", "Ana likes tofu"]
    m.add_many(facts)
    for question in ("🦖", "y" * 200, "ไปตกปลา", "양자"):
        assert m.search(question, threshold=0.1) == []
    for question, fact in (("แพ้ถั่ว", 1), ("고양이", 3), ("땅콩", 4), ("x" * 300, 2)):
        (first,) = m.search(question, top_k=1, threshold=0.1)
        assert first.text == facts[fact]


def test_extra_candidates_do_not_change_the_best_hits(m: Memory):
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
def test_questions_and_single_shared_words_are_no_contradiction(facts: list[str], question: str, conflicts: int):
    with Memory(encoder=None, policy=None) as m:
        m.add_many(facts)
        assert [len(hit.conflicts) for hit in m.search(question)] == [conflicts] * 2


# Of two facts that say different values of the same of one person the newer is found first, and nothing else changes places.


OLDER, NEWER = "2024-03-01", "2025-03-01"
ENCODERS = ["hashing:256", pytest.param("default", marks=pytest.mark.model)]
OTHERS = (
    "The concert was sold out.",
    "It rained all night in Turin.",
    "The lift at the office is out of order.",
    "My cousin works at the harbour.",
    "The soup needs more salt.",
)
LED = "The harbour project is led by"
CHANGED = (
    ("I live in Oslo", "I live in Bergen", "where do I live"),
    ("I live in Oslo.", "I now live in Bergen.", "Where do I live?"),
    ("I live in Oslo", "I live in Bergen now", "Where do I live now?"),
    ("I live in Bergen", "I live in Oslo", "Where do I currently live?"),
    ("I work at Globex.", "I'm now working at Acme.", "Where am I working?"),
    ("My car is a red Volvo", "My new car is a blue Tesla", "what is my car"),
    ("My favourite colour is blue", "My favourite colour is dark green", "what is my favourite colour"),
    ("My dog is called Max", "My dog is called Bella", "What is my dog called?"),
    ("My doctor is Dr Lund", "My doctor is Dr Weiss", "Who is my doctor?"),
    ("My phone number is 555-0192", "My phone number is 555-0147", "what is my phone number"),
    ("My shoe size is 41", "My shoe size is 43", "What shoe size is mine?"),
    ("My rent is 900 euros a month", "My rent is 1,050 euros a month", "how much is my rent"),
    ("The wifi password is falcon22", "The wifi password is heron77", "what's the wifi password"),
    ("My train goes at 9:00", "My train goes at 11:30", "when does my train go"),
    ("The meeting room is on floor two.", "The meeting room is on floor nine.", "On which floor is the meeting room?"),
    ("Marta's birthday is on 4 May", "Marta's birthday is on 5 May", "When is Marta's birthday?"),
    (f"{LED} Amara.", f"{LED} Diego.", "Who is the harbour project led by?"),
    ("We keep the ladder in the garage.", "We keep the ladder in the shed.", "Where do we keep the ladder?"),
    ("Ich wohne in Oslo", "Ich wohne in Bergen", "Wo wohne ich?"),
    ("J'habite à Oslo", "J'habite à Bergen", "Où est-ce que j'habite ?"),
    ("Jeg bor i Oslo", "Jeg bor i Bergen", "hvor bor jeg"),
    ("I live in Oslo", "I live in Bergen", "where do I live now that the old flat is sold"),
    ("I am allergic to nuts", "I am not allergic to nuts", "am I allergic to nuts"),
    ("I eat meat", "I don't eat meat", "do I eat meat"),
    ("I am married", "I'm not married", "am I married"),
    ("I can swim well", "I cannot swim well", "can I swim"),
    ("She works here", "She doesn't work here any more", "does she work here"),
    ("I smoke a lot", "I no longer smoke a lot", "do I smoke"),
    ("Ich esse Fleisch", "Ich esse kein Fleisch", "esse ich Fleisch"),
)
BESIDE = (
    # (newer, the one that answers, question)
    ("My brother lives in Paris", "My sister lives in Rome", "where does my sister live"),
    ("I have a motorbike", "I have a cat", "what pet do I have"),
    ("I have a cat", "I have a motorbike", "which vehicle do I have"),
    ("I speak at conferences", "I speak French", "which languages do I speak"),
    ("Flight 21 leaves at 12:00", "Flight 12 leaves at 9:00", "when does flight 12 leave"),
    ("I hate mushrooms", "I hate horror films", "which films do I hate"),
    ("I play the piano", "I play tennis", "which sport do I play"),
    ("We eat at noon", "We eat pasta on Mondays", "what do we eat on Mondays"),
    ("My wife likes roses", "My wife likes chocolate", "what sweets does my wife like"),
    ("I bought a dress in May", "I bought a laptop in May", "what electronics did I buy in May"),
    ("The meeting is in room 4", "The meeting is at 3 pm", "at what time is the meeting"),
    ("My office is in Leith", "My dentist is in Leith Street", "where is my dentist"),
    ("My car insurance is with Axa", "My car is a Volvo", "which make is my car"),
    ("I wasn't allergic to nuts", "I am allergic to nuts", "am I allergic to nuts"),
    ("She speaks not just German", "She speaks German", "does she speak German"),
    ("Ana bought a T-shirt in Oslo", "Ana bought a shirt in Oslo", "which shirt did Ana buy in Oslo"),
    ("Tell Ana if the train is not late", "Tell Ana if the train is late", "tell Ana if the train is late"),
    ("Users with no licence can export", "Users with a licence can export", "can users with a licence export"),
)
PAST = (
    "where did I live before",
    "where did I live first",
    "where did I use to live, once",
    "what was the previous place where I lived",
    "where did I live in 2024",
)


@cache
def made(name: str) -> Any:
    return encoder(name)


def bare(name: str) -> Memory:
    return Memory(":memory:", encoder=made(name), policy=None)


def memory_of(name: str, *facts: tuple[str, str], reverse: bool = False, **options: Any) -> Memory:
    memory = bare(name)
    memory.add_many(OTHERS, event_time="2024-09-01", **options)
    for text, when in reversed(facts) if reverse else facts:
        memory.add(text, event_time=when, **options)
    return memory


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("older", "newer", "question"), CHANGED)
def test_newer_of_two_values_ranks_first(name: str, reverse: bool, older: str, newer: str, question: str):
    for one, other in ((older, newer), (newer, older)):
        memory = memory_of(name, (one, OLDER), (other, NEWER), reverse=reverse, user_id="ana")
        first, second = memory.search(question, user_id="ana", top_k=2)
        assert (first.text, second.text) == (other, one)
        assert first.conflicts == (second.id,)
        assert first.score >= second.score
        assert memory.search(question, user_id="ana", top_k=1)[0].text == other


def test_newest_value_ranks_first_without_an_encoder_for_any_top_k():
    for policy in (None, "default"):
        memory = Memory(encoder=None, policy=policy)
        for year in range(2010, 2020):
            memory.add(f"I live in town{year}", event_time=f"{year}-01-01")
        assert {memory.search("where do I live", top_k=k)[0].text for k in (1, 2, 6, 10)} == {"I live in town2019"}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("newer", "right", "question"), BESIDE)
@pytest.mark.model
def test_compatible_newer_fact_does_not_outrank_the_answer(reverse, newer, right, question):
    memory = memory_of("default", (right, OLDER), (newer, NEWER), reverse=reverse)
    assert memory.search(question, top_k=1)[0].text == right


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("question", PAST)
def test_question_about_the_past_ignores_recency(name: str, question: str):
    for older, newer in (("I live in Oslo", "I live in Bergen"), ("I live in Bergen", "I live in Oslo")):
        memory = memory_of(name, (older, OLDER), (newer, NEWER))
        assert not any(hit.instead_of for hit in memory.search(question))
    memory = memory_of(name, ("I live in Oslo", OLDER))
    memory.add("I live in Bergen", valid_from=NEWER)
    assert [hit.text for hit in memory.search("where do I live", as_of="2024-12-01")][:1] == ["I live in Oslo"]


@pytest.mark.parametrize("name", ENCODERS)
def test_statements_of_different_people_do_not_contradict(name: str):
    users, speakers = bare(name), bare(name)
    users.add("I live in Oslo", user_id="ana", event_time=OLDER)
    users.add("I live in Bergen", user_id="bo", event_time=NEWER)
    speakers.add([{"role": "ana", "content": "I live in Oslo"}, {"role": "bo", "content": "I live in Bergen"}])
    for memory in (users, speakers):
        assert not any(hit.conflicts for hit in memory.search("where do I live"))


@pytest.mark.parametrize("name", ENCODERS)
def test_source_date_decides_which_fact_is_newer(name: str):
    for dates in ((OLDER, NEWER), (NEWER, OLDER)):
        memory = bare(name)
        sources = [Provenance("conversation", date=date) for date in dates]
        memory.add_many(["I live in Oslo", "I live in Bergen"], provenances=sources)
        newer = "I live in Bergen" if dates[1] == NEWER else "I live in Oslo"
        assert memory.search("where do I live")[0].text == newer
