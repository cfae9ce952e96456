"""Items that say the same in another spelling: found, merged in the background or kept out at once, and nothing lost by it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.memory.errors import InvalidFilter, InvalidText, NoEncoder
from keepworth.memory.item import Scope
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Draft
from keepworth.memory.store.maintenance import check
from keepworth.memory.store.near_duplicates import NearDuplicates, Pair, near_duplicates, wording

from .stub_encoder import WordEncoder


def memory(path=":memory:", **options) -> Memory:
    return Memory(path, encoder=WordEncoder(), **options)


CONTRADICTING = """
Ana owes Bob 50 dollars | Bob owes Ana 50 dollars
Ana is taller than Bob | Bob is taller than Ana
The meeting was moved from Monday to Friday | The meeting was moved from Friday to Monday
Ana's flight goes from Oslo to Rome | Ana's flight goes from Rome to Oslo
Alice is allergic to peanuts | Alicia is allergic to peanuts
Ana has five cats | Ana has six cats
Ana has two sons | Ana has two daughters
The alarm is set for seven am | The alarm is set for seven pm
Ana accepted the offer from Acme | Ana rejected the offer from Acme
The patient's test was positive | The patient's test was negative
Increase the dose of warfarin tomorrow | Decrease the dose of warfarin tomorrow
Ana is Bob's manager | Bob is Ana's manager
Turn the valve to the left before opening | Turn the valve to the right before opening
Ana likes tea more than coffee | Ana likes coffee more than tea
Ana arrives before Bob | Ana arrives after Bob
Ana may eat shellfish | Ana mustn't eat shellfish
Ana is able to drive | Ana is unable to drive
Ana's door code is ABCD | Ana's door code is abcd
Ana's door code is ABCD | Ana's door code is ABDC
Ana hardly ever drinks | Ana ever drinks
Ana stopped taking aspirin | Ana started taking aspirin
Ana has few friends | Ana has a few friends
That is out of question | That is out of the question
Ana is a boss | Ana is the boss
Let's eat, grandma | Let's eat grandma
No, sugar for Ana | No sugar for Ana
Ana said that Bob left | Ana said that, Bob left
Ana likes tofu | Ana likes tofu?
The temperature is -5 degrees | The temperature is 5 degrees
The budget is 1,000 euros | The budget is 1.000 euros
The fee is 3.5 percent | The fee is 35 percent
Ana writes in C | Ana writes in C++
Ana got an A+ | Ana got an A-
Send it to US customers | Send it to us customers
Ana wants to meet in May | Ana wants to meet in may
Ana bought polish | Ana bought Polish
Turkey is great at lunch | turkey is great at lunch
Her password is hunter2! | Her password is hunter2
The train leaves at 10:30 | The train leaves at 1030
x² is the area | x2 is the area
Ana must take it with food | Ana must take it without food
Ana must always lock the door | Ana must never lock the door
Everyone may enter | No one may enter
All servers are down | Some servers are down
Ana's dog bit the neighbour | The neighbour bit Ana's dog
The supplier pays the customer | The customer pays the supplier
Paris is north of Lyon | Lyon is north of Paris
The key is under the mat | The key is over the mat
The shop opens at noon | The shop closes at noon
The contract starts on Monday | The contract ends on Monday
Buy shares of Acme | Sell shares of Acme
Ana trusts Bob | Ana distrusts Bob
The door is locked | The door is unlocked
Ana was hired | Ana was fired
Ana is Bob's mother | Ana is Bob's daughter
Ana will come | Ana would come
Ana can swim | Ana can't swim
Ana can not only swim | Ana cannot only swim
It's cold in Oslo | Its cold in Oslo
The first backup failed | The last backup failed
The drug raises blood pressure | The drug lowers blood pressure
Use port 443 for admin | Use port 433 for admin
Invite both Ana and Bob | Invite neither Ana nor Bob
More than ten people came | Less than ten people came
At least ten people came | At most ten people came
Ana lives here now | Ana lived here then
Ana's son likes Bob's daughter | Bob's son likes Ana's daughter
Only Ana likes tofu | Ana likes only tofu
Ana gave Bob her keys | Bob gave Ana her keys
The red wire goes to the blue terminal | The blue wire goes to the red terminal
Multiply before you add | Add before you multiply
The soup has too much salt | The soup has much salt
Ana didn't lie to Bob | Ana did lie to Bob
Ana says she won't pay | Ana says she will pay
Ana says she shan't sign | Ana says she can't sign
The room fits twenty-one | The room fits twenty one
Ana's re-sign date is Monday | Ana's resign date is Monday
Account DE ends in 07 | Account CH ends in 07
Install it with pip install -e . | Install it with pip install -e
The data lies in .. | The data lies in .
"""
"""Pairs that say different things in nearly the same words, most of them with a cosine above the bound."""
PAIRS = [tuple(line.split(" | ")) for line in CONTRADICTING.strip().splitlines()]
SAME = """
The cat isn't in the garden. | the cat is not in the garden
Ana can’t swim | Ana can't swim
Ana can't swim | Ana cannot swim
She said “no” – twice | She said "no" - twice
User doesn't eat meat. | user does not eat meat
I've moved and I'm happy, they're not. | I have moved and I am happy, they are not
My sister won't come | my sister will not come
"""


class Alike(WordEncoder):
    """Takes everything for the same: whatever is kept apart here is not kept apart by a cosine."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.ones((len(texts), self.identity.dimension), np.float32)


@pytest.mark.parametrize("dedupe", [False, True], ids=["words", "meanings"])
def test_indents_of_code_are_words_of_it(dedupe: bool, tmp_path: Path):
    inside, after = "if ready:\n    go()\n    stop()", "if ready:\n    go()\nstop()"
    with Memory(tmp_path / "a.mem", encoder=Alike()) as m:
        first, other = m.add(inside, dedupe=dedupe), m.add(after, dedupe=dedupe, source="web")
        assert [item.text for item in m.get_all()] == [inside, after]
        # The same code, moved as a whole, or with tabs, is the same.
        assert m.add("  if ready:\n      go()\n  stop()\n", dedupe=dedupe, source="web").id == other.id
        assert m.merge_near_duplicates(m.near_duplicates()) == []
        m.forget(first.id, purge_history=True)
        assert check(m.store) == []
        m.rollback(source="web")
        assert m.get_all() == [] == check(m.store)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_what_says_something_else_is_never_the_same(one: str, other: str):
    m = Memory(":memory:", encoder=Alike())
    for first, second in ((one, other), (other, one)):
        kept = [m.add(text, user_id=first, dedupe=True) for text in (first, second)]
        assert [item.text for item in kept] == [first, second]
        assert [item.text for item in m.get_all(user_id=first)] == [first, second]
    assert m.near_duplicates() == []


def test_there_are_enough_of_them():
    assert len(PAIRS) >= 60


@pytest.mark.parametrize(("one", "other"), [tuple(line.split(" | ")) for line in SAME.strip().splitlines()])
def test_what_is_the_same_in_another_spelling_is_merged_and_nothing_of_it_is_lost(one: str, other: str):
    m = Memory(":memory:", encoder=Alike())
    kept = m.add(one, source="chat")
    assert m.add(other, source="mail", dedupe=True).id == kept.id
    assert [item.text for item in m.get_all()] == [one]
    added, merged = m.history("m2")
    assert (added.kind, added.source, added.after.text) == ("ADD", "mail", other)
    assert (merged.kind, merged.source, merged.after.superseded_by) == ("MERGE", "near-duplicates", kept.id)
    m.rollback(source="near-duplicates")
    assert [item.text for item in m.get_all()] == [one, other]
    assert check(m.store) == []


WORDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=8)


@given(st.lists(WORDS, min_size=2, max_size=8), st.data())
def test_two_words_exchanged_are_never_the_same(words: list[str], data: st.DataObject):
    one, other = data.draw(st.lists(st.integers(0, len(words) - 1), min_size=2, max_size=2, unique=True))
    exchanged = words.copy()
    exchanged[one], exchanged[other] = words[other], words[one]
    same = wording(" ".join(words)) == wording(" ".join(exchanged))
    # Only where the two are spellings of one word: then nothing was exchanged.
    assert (
        same is False
        or wording(f"x {words[one]} x") == wording(f"x {words[other]} x")
        or _same_but_ends(words, exchanged)
    )


def _same_but_ends(words: list[str], exchanged: list[str]) -> bool:
    """Where the first or the last word took part, the spelling of beginnings and ends takes part too."""
    one, other = (" ".join(each).rstrip(". ").lower() for each in (words, exchanged))
    return wording(f"x {one} x") == wording(f"x {other} x")


@given(st.lists(WORDS, min_size=1, max_size=8), st.data())
def test_a_word_more_or_less_is_never_the_same(words: list[str], data: st.DataObject):
    place = data.draw(st.integers(0, len(words)))
    more = [*words[:place], "not", *words[place:]]
    assert wording(" ".join(words)) != wording(" ".join(more))


def test_who_is_trusted_less_does_not_swallow_who_is_trusted_more():
    m = Memory(":memory:", encoder=Alike())
    theirs = m.add("the account is Eve's.", source="web", trust=0.1)
    ours = m.add("the account is Eve's", source="user", dedupe=True)
    assert (ours.trust, ours.provenance.source) == (1.0, "user")
    assert m.near_duplicates() == []
    assert m.merge_near_duplicates([Pair(theirs.id, ours.id, 1.0)]) == []
    assert m.get(ours.id).open
    again = m.add("The account is Eve's", source="web", trust=0.1, dedupe=True)
    assert again.trust >= 0.1  # into either of them, of which neither is trusted less


@pytest.mark.parametrize(
    "more",
    [
        {"metadata": {"chat": 2}},
        {"event_time": "2025-01-01"},
        {"valid_from": "2020-01-01"},
        {"valid_to": "2090-01-01"},
        {"expires_at": "2090-01-01"},
        {"status": "quarantined"},
        {"trust": 0.7},
    ],
    ids=str,
)
@pytest.mark.parametrize("dedupe", [False, True])
def test_what_is_said_beside_the_words_is_not_swallowed(more: dict[str, Any], dedupe: bool):
    """Exact duplicates, too."""
    m = Memory(":memory:", encoder=Alike())
    told = {"metadata": {"chat": 1}, "event_time": "2024-01-01", "valid_from": "2019-01-01", "valid_to": "2080-01-01"}
    told |= {"expires_at": "2080-01-01", "trust": 0.5}
    first = m.add("ana likes tofu", **told)
    assert m.add("ana likes tofu", **told, dedupe=dedupe).id == first.id
    other = m.add("ana likes tofu", **{**told, **more}, dedupe=dedupe)
    assert other.id != first.id
    assert m.add("ana likes tofu", **{**told, **more}, dedupe=dedupe).id == other.id
    if dedupe:
        third = m.add("ana likes tofu.", **{**told, **more, "trust": 0.9}, dedupe=True)
        assert third.trust == 0.9
    assert check(m.store) == []
    m.rollback(since="s1")
    assert [item.id for item in m.get_all()] == [first.id]
    assert check(m.store) == []


def test_a_text_that_was_to_be_forgotten_and_is_told_for_good_is_kept():
    now = ["2026-01-01T00:00:00"]
    m = Memory(":memory:", encoder=None, clock=lambda: now[0])
    m.add("the code is 1234", ttl=60)
    m.add("the code is 1234")
    now[0] = "2026-01-02T00:00:00"
    assert [hit.text for hit in m.search("code")] == ["the code is 1234"]


def test_journals_of_before_are_replayed_as_they_were_written():
    m = Memory(":memory:", encoder=None)
    m.add("ana likes tofu", metadata={"chat": 1})
    draft = Draft(metadata={"chat": 2}, words_alone=True)
    (outcome,) = m.store.perform(m.scope, [(Operation(OperationKind.ADD, text="ana likes tofu"), draft)])
    assert (outcome.applied, outcome.item) == (False, "m1")
    assert check(m.store) == []
    m.rollback(since="s0")
    assert check(m.store) == []


def test_an_item_that_says_the_same_is_returned_instead():
    m = memory()
    first = m.add("Ana likes the red cat.")
    assert m.add("Ana likes the red cat", dedupe=0.8).id == first.id
    assert m.add("Ana likes the red cat", dedupe=0.99).id != first.id
    assert m.add("Ana likes the red  cat.", kind="lesson", dedupe=0.8).id != first.id
    assert m.add("Ana likes the red cat", user_id="bo", dedupe=0.8).id != first.id
    # What happened twice happened twice, and a key is not the whole of an item.
    episode = m.add("ana fed the red cat", kind="episode")
    assert m.add("ana fed the red cat.", kind="episode", dedupe=0.5).id != episode.id
    lesson = m.add("water it daily", kind="lesson", key="the plant looks dry")
    assert m.add("throw it away", kind="lesson", key="the plant looks dry", dedupe=0.5).id != lesson.id
    assert m.add("water it daily", kind="lesson", key="the dry looks plant", dedupe=0.5).id != lesson.id
    assert m.add("water it daily", kind="lesson", key="the plant looks dry.", dedupe=0.5).id == lesson.id
    assert check(m.store) == []


def test_a_batch_is_compared_with_itself_and_written_in_one_transaction():
    m = memory()
    old = m.add("bo has a blue dog")
    texts = ["ana likes the red cat", "bo has a blue dog.", "ana likes the red cat.", "rome is hot", "rome is hot"]
    written: list[int] = []
    write = m.store.database.write
    m.store.database.write = lambda work: written.append(1) or write(work)
    found = m.add_many(texts, dedupe=0.8)
    assert [item.text for item in found] == [texts[0], old.text, texts[0], texts[3], texts[3]]
    assert len(m) == 3
    assert written == [1]
    assert [item.id for item in found] == [found[0].id, old.id, found[0].id, found[3].id, found[3].id]
    with pytest.raises(InvalidText):
        m.add_many(["one more", ""], dedupe=0.8)
    assert len(m) == 3


def test_sources_of_messages_are_kept_with_dedupe():
    m = memory()
    messages = [{"role": "user", "content": "ana likes cats"}, {"role": "assistant", "content": "rome is hot"}]
    assert [item.provenance.speaker for item in m.add(messages, dedupe=True)] == ["user", "assistant"]


def test_pairs_are_found_merged_and_taken_back():
    m = memory()
    texts = ["ana likes the red cat", "bo has a blue dog", "ana likes the red cat.", "ana likes the red cat.. "]
    a, b, c, d = (m.add(text, user_id="u") for text in texts)
    other = m.add("ana likes the red cat.", user_id="v")
    pairs = m.near_duplicates(threshold=0.8)
    assert {(pair.older, pair.newer) for pair in pairs} == {(a.id, c.id), (a.id, d.id)} or {
        pair.newer for pair in pairs
    } == {c.id, d.id}
    before = m.bank().content_hash()
    done = m.merge_near_duplicates(pairs)
    assert m.search("ana red cat", user_id="u", mode="dense")[0].id == a.id
    assert not m.get(c.id).open
    assert (m.get(a.id).text, m.get(a.id).open) == (texts[0], True), "the older one stays as it is"
    assert [m.get(item.id).open for item in (b, other)] == [True, True]
    assert m.merge_near_duplicates(pairs) == [], "what is closed is left alone"
    assert check(m.store) == []
    m.rollback(source="near-duplicates")
    assert m.bank().content_hash() == before
    assert len(done) >= 1


def test_the_background_merges_what_comes_and_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "a.mem"
    with memory(path, dedupe=0.8) as m:
        m._near.close()  # the thread: from here on by hand
        first = m.add("ana likes the red cat", user_id="u")
        assert m._near.merge_new() == []
        second = m.add("ana likes the red cat.", user_id="u")
        assert m._near.merge_new() == [Pair(first.id, second.id, pytest.approx(0.9, abs=0.1))]
        assert m._near.merge_new() == []
        m.add("ana likes the red cat..", user_id="u")
    with memory(path) as m:
        asked = []
        encode = m.store.vectors_for
        m.store.vectors_for = lambda items: asked.extend(items) or encode(items)
        near = NearDuplicates(m.store, m.scope, 0.8, seconds=1000.0)
        assert [pair.newer for pair in near.merge_new()] == ["m4"]
        assert [item.id for item in asked] == ["m4"], "what was looked at is not looked at again"
        near.close()
        assert len(m) == 1
        assert check(m.store) == []


def test_the_thread_does_it_by_itself_and_stops_with_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "keepworth.memory.store.near_duplicates.NearDuplicates.__init__.__kwdefaults__", {"seconds": 0.02}
    )
    with memory(tmp_path / "a.mem", dedupe=0.8) as m:
        m.add_many(["ana likes the red cat", "bo has a blue dog"])
        m.add("ana likes the red cat.")
        end = time.monotonic() + 20
        while len(m) == 3 and time.monotonic() < end:
            time.sleep(0.02)
        assert {item.text for item in m.get_all()} == {"ana likes the red cat", "bo has a blue dog"}
        thread = m._near._thread
    assert not thread.is_alive()


def test_telling_the_same_again_in_another_spelling_changes_the_count_by_less_than_a_percent():
    draw = np.random.default_rng(0)
    vocabulary = [f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(600)]
    texts = [" ".join(draw.choice(vocabulary, 30, replace=False)) for _ in range(300)]
    m = memory()
    m.add_many(texts)
    m.add_many(texts)
    assert len(m) == 300
    m.add_many([f"{text}." for text in texts], dedupe=0.9)
    assert len(m) <= 302


def test_bad_requests_are_refused(tmp_path):
    m = memory()
    for bad in (0.0 - 1, 1.5, "yes"):
        with pytest.raises(InvalidFilter, match="dedupe"):
            m.add("a cat", dedupe=bad)
        with pytest.raises(InvalidFilter, match="dedupe"):
            memory(tmp_path / "b.mem", dedupe=bad)
    plain = Memory(tmp_path / "a.mem", encoder=None)
    with pytest.raises(NoEncoder):
        plain.add("a cat", dedupe=True)
    with pytest.raises(NoEncoder):
        list(near_duplicates(plain.store, Scope()))
    with pytest.raises(NoEncoder):
        Memory(tmp_path / "a.mem", encoder=None, dedupe=True)
    memory(tmp_path / "c.mem").close()
    with pytest.raises(InvalidFilter, match="read-only"):
        memory(tmp_path / "c.mem", read_only=True, dedupe=True)
