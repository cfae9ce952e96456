"""Of two facts that say different values of the same of one person the newer is found first, and nothing else changes places."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from keepworth.memory.by_name import encoder
from keepworth.memory.item import Provenance
from keepworth.memory.memory import Memory

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
def test_the_newer_of_two_values_is_found_first(name: str, reverse: bool, older: str, newer: str, question: str):
    for one, other in ((older, newer), (newer, older)):
        memory = memory_of(name, (one, OLDER), (other, NEWER), reverse=reverse, user_id="ana")
        first, second = memory.search(question, user_id="ana", top_k=2)
        assert (first.text, second.text) == (other, one)
        assert first.conflicts == (second.id,)
        assert first.score >= second.score
        assert memory.search(question, user_id="ana", top_k=1)[0].text == other


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("newer", "right", "question"), BESIDE)
@pytest.mark.model
def test_a_newer_fact_that_holds_beside_another_does_not_go_before_the_one_that_answers(
    reverse, newer, right, question
):
    memory = memory_of("default", (right, OLDER), (newer, NEWER), reverse=reverse)
    assert memory.search(question, top_k=1)[0].text == right


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("question", PAST)
def test_where_the_past_is_asked_for_time_changes_nothing(name: str, question: str):
    for older, newer in (("I live in Oslo", "I live in Bergen"), ("I live in Bergen", "I live in Oslo")):
        memory = memory_of(name, (older, OLDER), (newer, NEWER))
        assert not any(hit.instead_of for hit in memory.search(question))
    memory = memory_of(name, ("I live in Oslo", OLDER))
    memory.add("I live in Bergen", valid_from=NEWER)
    assert [hit.text for hit in memory.search("where do I live", as_of="2024-12-01")][:1] == ["I live in Oslo"]


@pytest.mark.parametrize("name", ENCODERS)
def test_what_different_people_say_does_not_contradict(name: str):
    users, speakers = bare(name), bare(name)
    users.add("I live in Oslo", user_id="ana", event_time=OLDER)
    users.add("I live in Bergen", user_id="bo", event_time=NEWER)
    speakers.add([{"role": "ana", "content": "I live in Oslo"}, {"role": "bo", "content": "I live in Bergen"}])
    for memory in (users, speakers):
        assert not any(hit.conflicts for hit in memory.search("where do I live"))


@pytest.mark.parametrize("name", ENCODERS)
def test_the_date_of_where_a_fact_comes_from_tells_which_is_newer(name: str):
    for dates in ((OLDER, NEWER), (NEWER, OLDER)):
        memory = bare(name)
        sources = [Provenance("conversation", date=date) for date in dates]
        memory.add_many(["I live in Oslo", "I live in Bergen"], provenances=sources)
        newer = "I live in Bergen" if dates[1] == NEWER else "I live in Oslo"
        assert memory.search("where do I live")[0].text == newer
