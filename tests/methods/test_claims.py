"""What people state, by rules: which sentences hold a fact, which day they speak of, and what gives way to what."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.agents.changes import CHAT, DEV, STABLE
from keepworth import Memory
from keepworth.memory.replaced_statements import replaces
from keepworth.methods.writers._claims import parsed_claim
from keepworth.methods.writers._replacing import asked_for, gives_way
from keepworth.methods.writers._statements import LONGEST_CLAIM, MOST_CLAIMS, claims

AT = "2026-11-22T10:00:00"  # a Sunday


def texts(message: str, **options: str) -> list[str]:
    return [claim.text for claim in claims(message, AT, **options)]


@pytest.mark.parametrize(("message", "kept"), [
    ("I moved to Oslo. What's on there?", ["I moved to Oslo."]),
    ("I live in Bergen, any ideas for tonight?", ["I live in Bergen."]),
    ("Thanks! Noted. I work at Equinor and my number is 7.", ["I work at Equinor.", "My number is 7."]),
    ("Hi there, I'm vegan.", ["I'm vegan."]),
    ("Remember that I hate cilantro!", ["I hate cilantro!"]),
    ("Please always answer in French.", ["Please always answer in French."]),
    ("Ana moved to Rome. She likes it. The sun is hot.", ["Ana moved to Rome.", "Ana likes it."]),
    ("Please write a poem about the sea. Give me two.", []),
    ("I think that's a good idea. I was wondering how tides work.", []),
    ("```\nI = my + 1\n```", []),
    ("What do you know about me?", []),
    ("Where do I live, what is the weather?", []),
    ("When I was a child, what did I like?", []),
    ("Since I moved to Oslo last May, what should I see?", ["I moved to Oslo last May (2026-05)."]),
    ("I'm planning a trip to Rome and was wondering if you know a hotel?", ["I'm planning a trip to Rome."]),
    ("I like the idea of a picnic. I'll check out those tips. I've heard of Oslo.", []),
    ("I'm glad I got my bike repaired.", ["I'm glad I got my bike repaired."]),
    ("Interesting, I never knew that. That makes sense to me. Walk me through it.", []),
    ("Nf3 Nf6 3. Re1 Rc7 22.", []),
    ("Ich bin nach Oslo gezogen. Wie ist das Wetter?", ["Ich bin nach Oslo gezogen."]),
    ("我住在北京。", ["我住在北京。"]),
    ("", []),
])  # fmt: skip
def test_statements_are_kept_and_the_rest_is_not(message: str, kept: list[str]) -> None:
    assert texts(message) == kept


def test_assistant_statements_about_its_actions_are_kept() -> None:
    said = "Noted! I have booked your table for 8 pm. I love that city. Would you like more?"
    assert texts(said, speaker="assistant") == ["I have booked your table for 8 pm."]


@pytest.mark.parametrize(("statement", "shown", "day"), [
    ("I moved to Oslo yesterday.", "I moved to Oslo yesterday (2026-11-21).", "2026-11-21"),
    ("I moved to Oslo last Friday.", "I moved to Oslo last Friday (2026-11-20).", "2026-11-20"),
    ("I moved to Oslo in March.", "I moved to Oslo in March (2026-03).", "2026-03-01"),
    ("I moved to Oslo in May 2020.", "I moved to Oslo in May 2020.", ""),
    ("I am going to move to Oslo in March.", "I am going to move to Oslo in March (2027-03).", ""),
    ("We are flying to Rome next Friday.", "We are flying to Rome next Friday (2026-11-27).", ""),
    ("I start in two weeks.", "I start in two weeks (2026-12-06).", ""),
    ("I will be off next month.", "I will be off next month (2026-12).", ""),
])  # fmt: skip
def test_days_are_reckoned_from_when_it_was_said(statement: str, shown: str, day: str) -> None:
    (claim,) = claims(statement, AT)
    assert (claim.text, claim.day) == (shown, day)


@pytest.mark.parametrize(("old", "new", "gone"), [
    ("I live in Bergen.", "I moved to Oslo.", True),
    ("I live in Bergen.", "My sister moved to Oslo.", False),
    ("I live in Bergen.", "I'm going to move to Oslo.", False),
    ("I live in Bergen.", "I lived in Oslo as a child.", False),
    ("I live in Bergen.", "I work at Equinor.", False),
    ("I like tea.", "I like coffee.", False),
    ("I like tea.", "I don't like tea any more.", True),
    ("I like tea.", "I hate tea.", True),
    ("I have a dog.", "I have a cat.", False),
    ("I'm allergic to peanuts.", "I'm allergic to shellfish.", False),
    ("I'm allergic to peanuts.", "I'm no longer allergic to peanuts.", True),
    ("I'm no longer allergic to peanuts.", "I'm allergic to peanuts again.", True),
    ("My favourite colour is green.", "My favorite color is red.", True),
    ("My dog is brown.", "My dog is old.", False),
    ("My favourite tea is oolong.", "My favourite tea is not oolong, it is sencha.", True),
    ("I've been working in the tech industry.", "I've been working on my statement.", False),
    ("I've been into podcasts.", "I've been enjoying music and podcasts lately.", False),
    ("I'm looking for a new tripod.", "I'm actually considering the Manfrotto tripod.", False),
    ("I've been house hunting.", "I've been house hunting, and some just didn't fit my budget.", False),
    ("I booked a resort in Maui.", "I'm staying at a resort in Maui that costs over 300 dollars.", False),
    ("I like my coffee black.", "I prefer coffee in the morning now.", False),
    ("I'm on page 200.", "I'm on page 220 now.", True),
    ("I bought a tea pot at the market.", "I switched from tea to coffee.", False),
    ("I drink tea.", "I switched from tea to coffee.", True),
    ("I am 34.", "I turned 35 yesterday.", True),
    ("Ana lives in Rome.", "Ana moved to Prague.", True),
    ("Ana lives in Rome.", "Bob moved to Prague.", False),
])  # fmt: skip
def test_claims_give_way_as_expected(old: str, new: str, gone: bool) -> None:
    (before,), (after,) = claims(old, AT), claims(new, AT)
    assert (gives_way(before, after) or replaces(old, new)) is gone


def test_every_change_of_the_side_they_were_written_on_is_seen() -> None:
    missed = []
    for attribute in DEV:
        old, new = attribute.values[:2]
        for state in attribute.states["dev"]:
            before = claims(state.format(v=old), AT)
            for change in (*attribute.changes["dev"], *attribute.ends.get("dev", ())):
                after = claims(change.format(v=new, old=old), AT)
                says_it = [claim for claim in before if old in claim.text]
                if not any(
                    gives_way(each, claim) or replaces(each.text, claim.text) for each in says_it for claim in after
                ):
                    missed.append((state, change))
    assert missed == []
    assert [chat for chat in CHAT["dev"] if texts(chat)] == []
    assert [fact for fact in STABLE["dev"] if len(texts(fact)) != 1] == []


SAID = "I my not no longer any more from to instead of , . ? ! ; - now is are 's moved Ana she tea 7 ( ) \u2019 é 我"
WORDS = st.sampled_from(re.findall(r"\S+", SAID))


@given(st.one_of(st.text(max_size=400), st.lists(WORDS, max_size=60).map(" ".join)))
@example("I:INSTEAD OF 0")
@settings(max_examples=150, deadline=None)
def test_any_text_gives_claims(text: str) -> None:
    for claim in claims(text, AT):
        assert 0 < len(claim.text) <= LONGEST_CLAIM + 40
        assert claims(claim.text) == claims(claim.text)
        assert asked_for(claim)
        assert not gives_way(claim, claim)
    assert len(claims(text)) <= MOST_CLAIMS
    parsed_claim(text, AT)


def test_claim_attribute_is_independent_of_hash_seeds() -> None:
    pairs = ("run/swim", "cook/draw", "hunt/jog", "kick/sail", "climb/row", "dance/paint", "knit/sew", "act/sing")
    assert [parsed_claim(f"I {pair} daily.").attribute for pair in pairs] == [
        "to run", "to cook", "to hunt", "to kick", "to climb", "to danc", "to knit", "to act",
    ]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "gone"), [
    ("I rent a flat over in Bergen.", "I packed up and left Bergen for Oslo.", True),
    ("I have a membership at Fitbase.", "I cancelled Fitbase and signed up at Ironworks.", True),
    ("I get hives from peanuts.", "I outgrew my allergy to peanuts.", True),
    ("I rent a flat over in Bergen.", "I visited Bergen.", False),
    ("I rent a flat over in Bergen.", "I'm thinking of moving to Oslo now.", False),
    ("I rent a flat over in Bergen.", "My sister packed up and left Bergen for Oslo.", False),
    ("I play tennis on Mondays.", "I also play chess on Wednesdays now.", False),
    ("I have a cat.", "I'm really into music lately.", False),
    ("I've been reading a lot.", "I've been reading a lot of poems.", False),
])  # fmt: skip
def test_change_in_free_words_replaces_the_claim(old: str, new: str, gone: bool) -> None:
    assert not gives_way(parsed_claim(old), parsed_claim(new))
    with Memory(encoder="hashing", policy=None, log="off", writer="rules") as memory:
        for text in (old, new):
            memory.add(text, infer=True, user_id="ana")
        assert [item.text for item in memory.get_all(user_id="ana")] == ([new] if gone else [old, new])
