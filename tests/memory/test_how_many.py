"""`top_k="auto"`: the memory decides how many notes a question gets, or none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepworth import Memory
from keepworth.memory.async_memory import AsyncMemory
from keepworth.memory.errors import InvalidFilter
from keepworth.memory.search.how_many import MOST_AUTO, count
from keepworth.memory.search.passages import tokens_of
from keepworth.memory.search.search import Hits
from keepworth.serving import wire
from tests.memory.helpers import WordEncoder, command

NOTES = (
    "The router in the hall is reset by holding its button for ten seconds.",
    "Ana is allergic to peanuts and carries a syringe.",
    "The staging database runs on port 5433.",
    "Invoices go to Ms. Brandt in accounting, as PDF.",
    "My sister Lena lives in Rotterdam with her two cats.",
    "We deploy to production only on Mondays before noon.",
    "The warehouse in Leeds closes at 16:00 on Fridays.",
    "I play the cello in the city orchestra.",
)
QUESTIONS = (
    ("What is Ana allergic to?", "Ana"),
    ("Which port does the staging database use?", "The staging"),
    ("Where does my sister Lena live?", "My sister"),
    ("When does the warehouse in Leeds close on Fridays?", "The warehouse"),
)
NOTHING = ("hello!", "thank you so much for your help", "How are you today?")
ENCODERS = (None, "hashing", "default")


@pytest.fixture(params=[(encoder, policy) for encoder in ENCODERS for policy in (None, "default")], ids=str)
def memory(request: pytest.FixtureRequest) -> Iterator[Memory]:
    encoder, policy = request.param
    with Memory(encoder=encoder, policy=policy, writer=None) as memory:
        memory.add_many(NOTES)
        yield memory


def test_a_question_gets_the_note_that_answers_it_and_few_others(memory: Memory) -> None:
    for question, start in QUESTIONS:
        hits = memory.search(question, top_k="auto")
        assert hits[0].text.startswith(start)
        assert len(hits) <= 2
        assert hits.none is not None
        assert hits.none < 0.5
        answers = [hit.answers for hit in hits]
        assert answers == sorted(answers, reverse=True)
        assert hits.propensity == 1.0


def test_words_without_an_answering_note_get_no_hits(memory: Memory) -> None:
    for words in NOTHING:
        hits = memory.search(words, top_k="auto")
        assert (list(hits), hits.text) == ([], "")
        assert hits.none is not None
        assert hits.none > 0.5


@pytest.mark.parametrize("encoder", [None, "default"])
def test_unrelated_question_gets_no_hits(encoder: str | None) -> None:
    with Memory(encoder=encoder, policy=None, writer=None) as memory:
        memory.add_many(NOTES)
        for question in ("Who wrote the Odyssey?", "What is 2 + 2?"):
            assert list(memory.search(question, top_k="auto")) == []


def test_fixed_top_k_is_unchanged(memory: Memory) -> None:
    hits = memory.search("What is Ana allergic to?", top_k=3)
    assert hits.none is None
    assert [hit.answers for hit in hits] == [None] * len(hits)
    with pytest.raises(InvalidFilter, match='top_k must be a whole number from 1 to 1,000,000,000, or "auto", got'):
        memory.search("Ana", top_k="all")


def test_empty_memory_gives_no_hits() -> None:
    with Memory(encoder=None) as memory:
        hits = memory.search("What is Ana allergic to?", top_k="auto")
    assert (list(hits), hits.none) == ([], 1.0)


@pytest.mark.parametrize("policy", [None, "default"])
def test_an_older_value_is_not_shown_beside_the_newer(policy: str | None) -> None:
    with Memory(encoder=None, policy=policy, writer=None) as memory:
        memory.add_many(NOTES)
        memory.add("I live in Oslo near the harbour.", event_time="2024-01-01")
        memory.add("I live in Bergen near the harbour.", event_time="2025-01-01")
        now = [hit.text for hit in memory.search("In which town do I live near the harbour?", top_k="auto")]
        past = [hit.text for hit in memory.search("In which town did I live before?", top_k="auto")]
    assert "I live in Bergen near the harbour." in now
    assert "I live in Oslo near the harbour." not in now
    assert "I live in Oslo near the harbour." in past


def test_notes_without_room_are_not_shown() -> None:
    question = "Which backup of the server ran on Monday?"
    notes = [
        f"The backup of the server number {n} ran on Monday at {n} o'clock, " + "as planned, " * 20 for n in range(9)
    ]
    with Memory(encoder=None, policy=None) as memory:
        memory.add_many(notes)
        many = memory.search(question, top_k="auto", tokens=2000)
        few = memory.search(question, top_k="auto", tokens=90)
        least = memory.search(question, top_k="auto", tokens=40)
    assert 1 < len(many) <= MOST_AUTO
    assert 1 <= len(few) < len(many)
    assert few.block.missing == ()
    assert len(least) == 1
    assert "backup of the server" in least.text
    assert tokens_of(least.text) <= 40


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
def test_an_encoder_never_seen_shows_no_less_than_words_do(mode: str) -> None:
    with Memory(encoder=WordEncoder(64), policy=None) as memory, Memory(encoder=None, policy=None) as plain:
        memory.add_many(NOTES)
        plain.add_many(NOTES)
        for question, start in QUESTIONS:
            hits = memory.search(question, top_k="auto", mode=mode)
            assert start in " ".join(hit.text for hit in hits)
            if mode != "lexical":
                assert len(hits) >= len(plain.search(question, top_k="auto"))


def test_shown_notes_are_logged_with_propensity_and_rewarded() -> None:
    question = "What is Ana allergic to?"
    with Memory(encoder="hashing", writer=None, seed=0) as memory:
        memory.add_many(NOTES)
        for _ in range(3):
            with memory.episode(question) as episode:
                hits = episode.search(top_k="auto")
                nothing = episode.search("hello!", top_k="auto")
                episode.reward(1.0)
        assert 0.0 < hits.propensity <= 1.0
        assert (list(nothing), nothing.propensity) == ([], 1.0)
        assert memory.worth(hits[0].id, question).times > 0


def test_note_rewarded_at_this_question_is_shown_despite_other_words() -> None:
    question = "Tell me what to do on a rainy evening"
    with Memory(encoder="hashing", writer=None, seed=0) as memory:
        ids = [item.id for item in memory.add_many(NOTES)]
        assert ids[7] not in [hit.id for hit in memory.search(question, top_k="auto")]
        for _ in range(40):
            hits = memory.search(question, top_k=8)
            memory.reward(hits.decision, float(hits[0].id == ids[7]))
        hits = memory.search(question, top_k="auto", explore=False)
        assert hits[0].id == ids[7]
        assert len(hits) <= MOST_AUTO


def test_an_async_memory_decides_as_well() -> None:
    async def ask() -> int:
        async with AsyncMemory(encoder=None, policy=None) as memory:
            await memory.add_many(NOTES)
            return len(await memory.search("hello!", top_k="auto"))

    assert asyncio.run(ask()) == 0


def test_the_command_line_decides_as_well(tmp_path: Path) -> None:
    file = tmp_path / "agent.mem"
    with Memory(file, encoder=None, writer=None) as memory:
        memory.add_many(NOTES)
    some = command("search", "What is Ana allergic to?", "--top-k", "auto", "--file", file)
    none = command("search", "hello!", "--top-k", "auto", "--file", file)
    assert (some.exit_code, none.exit_code) == (0, 0)
    assert "Ana is allergic to peanuts" in some.output
    assert "Ana" not in none.output
    assert command("search", "Ana", "--top-k", "all", "--file", file).exit_code != 0


def test_hits_over_the_wire_say_how_sure_the_memory_is() -> None:
    with Memory(encoder=None, policy=None, writer=None) as memory:
        memory.add_many(NOTES)
        hits = memory.search("What is Ana allergic to?", top_k="auto")
    copy = wire.read(Hits, json.loads(json.dumps(wire.plain(hits))))
    assert (copy.none, copy[0].answers) == (hits.none, hits[0].answers)


def test_rule_counts_notes_until_most_of_the_expected_sum() -> None:
    rule = {"least": 0.3, "share": 0.9}
    assert count(0.2, [0.9, 0.1], rule) == 0
    assert count(0.8, [0.9, 0.05, 0.05], rule) == 1
    assert count(0.8, [0.4, 0.4, 0.2], rule) == 3
