"""Items that say nearly the same: found, merged in the background or kept out at once, and nothing lost by it."""

from __future__ import annotations

import time

import numpy as np
import pytest

from recollect.memory.errors import InvalidFilter, NoEncoder
from recollect.memory.memory import Memory
from recollect.memory.near_duplicates import NearDuplicates, Pair, agree, near_duplicates
from recollect.memory.scope import Scope
from recollect.memory.upkeep import check

from .stub_encoder import WordEncoder


def memory(path=":memory:", **options) -> Memory:
    return Memory(path, encoder=WordEncoder(), **options)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("ana likes the red cat", "ana really likes the red cat", True),
        ("ana moved to oslo in 2024", "ana moved to oslo in 2025", False),
        ("pay 3 then 5", "pay 5 then 3", False),
        ("ana likes fish", "ana does not like fish", False),
        ("ana doesn't like fish", "ana doesn’t really like fish", True),
        ("she never eats fish", "she eats fish", False),
    ],
)
def test_numbers_and_negations_have_to_agree(one, other, same):
    assert agree(one, other) is same


def test_an_item_that_says_the_same_is_returned_instead():
    m = memory()
    first = m.add("ana likes the red cat")
    assert m.add("ana likes the red cat very", dedupe=0.8).id == first.id
    assert m.add("ana likes the red cat very", dedupe=0.99).id != first.id
    year = m.add("ana bought 2 red cats in the year 2024")
    assert m.add("ana bought 2 red cats in the year 2025", dedupe=0.5).id != year.id
    assert m.add("ana likes the red cat very much", kind="lesson", dedupe=0.8).id != first.id
    assert m.add("ana likes the red cat very much", user_id="bo", dedupe=0.8).id != first.id
    # What happened twice happened twice, and a key is not the whole of an item.
    episode = m.add("ana fed the red cat", kind="episode")
    assert m.add("ana fed the red cat too", kind="episode", dedupe=0.5).id != episode.id
    lesson = m.add("water it daily", kind="lesson", key="the plant looks dry")
    assert m.add("throw it away", kind="lesson", key="the plant looks dry", dedupe=0.5).id != lesson.id
    assert check(m.store) == []


def test_a_batch_is_compared_with_itself_and_written_in_one_transaction():
    m = memory()
    old = m.add("bo has a blue dog")
    head = m.store.head()
    texts = [
        "ana likes the red cat",
        "bo has a blue dog too",
        "ana likes the red cat very",
        "rome is hot",
        "rome is hot",
    ]
    found = m.add_many(texts, dedupe=0.8)
    assert [item.text for item in found] == [texts[0], old.text, texts[0], texts[3], texts[3]]
    assert len(m) == 3
    assert m.store.head() == head + 2
    assert [item.id for item in found] == [found[0].id, old.id, found[0].id, found[3].id, found[3].id]


def test_sources_of_messages_are_kept_with_dedupe():
    m = memory()
    messages = [{"role": "user", "content": "ana likes cats"}, {"role": "assistant", "content": "rome is hot"}]
    assert [item.provenance.speaker for item in m.add(messages, dedupe=True)] == ["user", "assistant"]


def test_pairs_are_found_merged_and_taken_back():
    m = memory()
    texts = ["ana likes the red cat", "bo has a blue dog", "ana likes the red cat very", "ana likes the red cat much"]
    a, b, c, d = (m.add(text, user_id="u") for text in texts)
    other = m.add("ana likes the red cat very", user_id="v")
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
        second = m.add("ana likes the red cat very", user_id="u")
        assert m._near.merge_new() == [Pair(first.id, second.id, pytest.approx(0.9, abs=0.1))]
        assert m._near.merge_new() == []
        m.add("ana likes the red cat too", user_id="u")
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
    monkeypatch.setattr("recollect.memory.near_duplicates.NearDuplicates.__init__.__kwdefaults__", {"seconds": 0.02})
    with memory(tmp_path / "a.mem", dedupe=0.8) as m:
        m.add_many(["ana likes the red cat", "bo has a blue dog"])
        m.add("ana likes the red cat very")
        end = time.monotonic() + 20
        while len(m) == 3 and time.monotonic() < end:
            time.sleep(0.02)
        assert {item.text for item in m.get_all()} == {"ana likes the red cat", "bo has a blue dog"}
        thread = m._near._thread
    assert not thread.is_alive()


def test_telling_the_same_again_in_other_words_changes_the_count_by_less_than_a_percent():
    draw = np.random.default_rng(0)
    vocabulary = [f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(600)]
    texts = [" ".join(draw.choice(vocabulary, 14, replace=False)) for _ in range(300)]
    m = memory()
    m.add_many(texts)
    m.add_many(texts)
    assert len(m) == 300
    reworded = [" ".join([*text.split()[:-1], text.split()[-1], "indeed"]) for text in texts]
    m.add_many(reworded, dedupe=0.9)
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
