"""Search in a bank against an independent brute force, and forks against a bank that was never forked."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.memory.item import ItemKind, content_digest, from_record, text_problem, to_record
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Draft
from keepworth.memory.overlay import Bank
from keepworth.memory.search.background import SENTENCES
from keepworth.memory.search.index import best
from keepworth.memory.search.search import ScoreScale, fuse
from keepworth.records import Operation, OperationKind
from tests.memory.helpers import WordEncoder

K = OperationKind
WORDS = ["ana", "rome", "london", "peanut", "cat", "dog", "red", "blue", "likes", "the"]


def clock() -> str:
    return "2026-01-01T00:00:00"


LIGHT = ("the", "likes")
"""A function word, and one of asking."""


def brute_bm25(documents: dict[str, str], query: str) -> dict[str, float]:
    """BM25 from its definition, document by document."""
    split = {id: text.lower().split() for id, text in documents.items()}
    mean = sum(map(len, split.values())) / len(split) if split else 0.0
    out = {}
    for id, words in split.items():
        score = 0.0
        counts = Counter(words)
        for term in set(query.lower().split()):
            n = sum(term in other for other in split.values())
            idf = math.log(1 + (len(split) - n + 0.5) / (n + 0.5)) * (0.2 if term in LIGHT else 1.0)
            f = counts[term]
            score += idf * f * 2.5 / (f + 1.5 * (0.1 + 0.9 * len(words) / mean)) if f else 0.0
        if score > 0:
            out[id] = score
    return out


sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
operations = st.builds(
    Operation,
    st.sampled_from([K.ADD, K.ADD, K.ADD, K.UPDATE, K.SUPERSEDE, K.DELETE, K.MERGE]),
    st.lists(st.integers(1, 12).map("m{}".format), max_size=2).map(tuple),
    sentences,
)


def applied(b: Bank, sequence: list[Operation]) -> None:
    for operation in sequence:
        if operation.kind is K.ADD:
            operation = Operation(K.ADD, text=operation.text)
        b.apply(operation)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(operations, max_size=8), min_size=1, max_size=9), sentences)
def test_search_agrees_with_brute_force_on_any_stack_of_forks(stages, query):
    encoder = WordEncoder(16)
    stacked, plain = Bank.empty(encoder, clock=clock), Bank.empty(encoder, clock=clock)
    for stage in stages:
        parent = stacked
        stacked = parent.fork()
        applied(stacked, stage)
        applied(plain, stage)
        parent.add("a stranger that only the parent has")  # must stay invisible in the fork
    assert stacked.content_hash() == plain.content_hash()
    total = sum(content_digest(item) for item in plain.items(all_states=True)) % (1 << 256)
    assert plain.content_hash() == f"{total:064x}"
    documents = {item.id: item.text for item in plain.items()}
    expected = brute_bm25(documents, query)
    got = {h.id: h.lexical for h in stacked.search(query, 50, mode="lexical")}
    assert got.keys() == expected.keys()
    assert all(math.isclose(got[id], expected[id], rel_tol=1e-9) for id in got)
    cosines = {id: float(encoder.encode([text])[0] @ encoder.encode([query])[0]) for id, text in documents.items()}
    dense = stacked.search(query, 50, mode="dense")
    assert {h.id for h in dense} == documents.keys()
    assert all(math.isclose(h.dense, cosines[h.id], abs_tol=1e-5) for h in dense)
    assert [h.score for h in dense] == sorted((h.score for h in dense), reverse=True)
    for hit in stacked.search(query, 5, explain=True):
        if hit.lexical is not None:
            assert math.isclose(sum(hit.why.terms.values()), hit.lexical, rel_tol=1e-9)


def test_fuse_matches_scores_by_hand():
    lexical = [("a", 3.0), ("b", 1.0)]
    dense = [("b", 0.9), ("c", 0.5)]
    scale = ScoreScale(items=9, most=6.0, pool=2, words=2)
    # Both lists are full: what one of them leaves out has what its last has.
    # Words weigh less where meaning tells texts apart by 0.4, not 0.12, and more where the nearest text has a third of the best
    # score, not 0.45.
    unit = 0.2 * (0.12 / 0.4) * (0.45 * 3.0) / math.log(10)
    sums = {"a": 0.5 + unit * 3.0, "b": 0.9 + unit, "c": 0.5 + unit}
    known = 1 / (1 + math.exp((0.5 - (0.9 + 0.5 / 6)) / 0.056))
    added = dict(fuse(lexical, dense, scale))
    assert added == pytest.approx({id: known * each / sums["b"] for id, each in sums.items()})
    short = dict(fuse(lexical, dense, ScoreScale(items=9, most=6.0, pool=3, words=2)))
    assert short["c"] == pytest.approx(known * 0.5 / sums["b"])
    # Function words alone say nothing of what is known; words alone do where the encoder read nothing.
    light = dict(fuse(lexical, dense, ScoreScale(items=9, most=6.0, pool=2)))
    assert light["b"] == pytest.approx(1 / (1 + math.exp((0.5 - 0.9) / 0.056)))
    unread = dict(fuse(lexical, [("b", 0.0), ("c", 0.0)], scale))
    assert unread["a"] == pytest.approx(1 / (1 + math.exp((0.5 - 2.0 * 3.0 / 6.0) / 0.056)))
    # Where the best text has 0.05 of what the words could tell, a quarter of 0.2, they weigh a quarter.
    few = ScoreScale(items=9, most=60.0, pool=2, words=2)
    told = (0.12 / 0.2) * (0.45 * 3.0)
    unit = 0.2 * told / 4 / math.log(10)
    quarter = {"a": 0.5 + unit * 3.0, "b": 0.7 + unit}
    found = dict(fuse(lexical, [("b", 0.7), ("c", 0.5)], few))
    assert found["a"] / found["b"] == pytest.approx(quarter["a"] / quarter["b"])
    # In a question of four times sixteen words they weigh twice as much, and what the cosines tell counts a quarter.
    for words, times in ((1, told), (16, told), (64, 2.0 * (1.0 - (1.0 - told) / 4.0))):
        each = 0.2 * times
        found = dict(fuse(lexical, [("b", 0.7), ("c", 0.5)], ScoreScale(9, 6.0, 3, words)))
        best = max(0.5 + each * 3.0 / math.log(10), 0.7 + each / math.log(10))
        assert found["c"] / found["b"] == pytest.approx(0.5 / (0.7 + each / math.log(10)))
        assert max(found.values()) == pytest.approx(1 / (1 + math.exp((0.5 - (0.7 + 0.5 / 6)) / 0.056)))
        assert found["b"] == pytest.approx(max(found.values()) * (0.7 + each / math.log(10)) / best)


@pytest.mark.parametrize("n", [127, 129, 2048, 5003, 40_000])
@pytest.mark.parametrize("count", [1, 10, 50])
@pytest.mark.parametrize("levels", [0, 3, 1000])
def test_best_of_many_is_a_stable_sort(n, count, levels):
    draw = np.random.default_rng(n + count)
    scores = draw.standard_normal(n).astype(np.float32)
    if levels:
        scores = np.round(scores * levels) / levels  # ties
    scores[draw.random(n) < 0.5] = -np.inf  # rows that do not count
    assert best(scores, count).tolist() == np.argsort(-scores, kind="stable")[:count].tolist()
    few = np.full(n, -np.inf, np.float32)
    few[[3, n - 1]] = 1.0
    assert best(few, count).tolist() == np.argsort(-few, kind="stable")[:count].tolist()


def test_bank_shows_only_items_valid_at_its_time():
    """What lies in the store, what changed there since the bank was taken, and what was written on the bank."""
    time = ["2026-01-01T00:00:00"]
    with Memory(":memory:", encoder=WordEncoder(), clock=lambda: time[0]) as memory:
        memory.add("red in the store")
        memory.add("red in the store, gone", expires_at="2026-06-01")
        memory.add("red in the store, to come", valid_from="2027-01-01")
        memory.add("red in the store, over", valid_to="2026-06-01")
        longer = memory.add("red until it was prolonged", expires_at="2026-06-01")
        shorter = memory.add("red before it was shortened", expires_at="2027-06-01")
        bank = memory.bank()
        memory.update(longer.id, expires_at="2030-01-01")
        memory.update(shorter.id, expires_at="2026-02-01")
        written = {"red on the bank": {}, "red on the bank, gone": {"expires_at": "2026-06-01T00:00:00"}}
        for text, held in written.items():
            bank.perform(Operation(K.ADD, text=text), Draft(scope=bank.scope, **held))
        time[0] = "2026-07-01T00:00:00"
        for mode in ("lexical", "dense", "hybrid"):
            shown = {hit.text for hit in bank.search("red", 10, mode=mode)}
            assert shown == {"red in the store", "red before it was shortened", "red on the bank"}
        now = {hit.text for hit in memory.bank().search("red", 10)}
        assert now == {"red in the store", "red until it was prolonged"}


def test_search_matches_the_key_and_returns_the_text():
    b = Bank.empty(WordEncoder())
    b.add("turn left at the church", kind="case", key="way home from work")
    hit = b.search("home from work", 1)[0]
    assert hit.text == "turn left at the church"
    assert hit.dense > 0.8


def test_vectors_are_made_once_for_all_members_of_a_group():
    encoder = WordEncoder()
    before = len(SENTENCES)  # which every encoder is asked for once, see `search.background`
    b = Bank.empty(encoder)
    for number in range(50):
        b.add(f"text {number}")
    forks = [b.fork() for _ in range(8)]
    for fork in forks:
        fork.add("the same new text")
        fork.search("text 7", 3)
    assert encoder.texts == before + 50 + 1  # the items and the new text; the query is one of the items
    assert encoder.calls <= 1 + 4


# The executor is total, changes nothing when it refuses, and does what its table says when it applies.


@pytest.fixture
def b() -> Bank:
    return Bank.empty(None, clock=clock)


def texts(b: Bank) -> list[str]:
    return [item.text for item in b.items()]


def test_add_of_a_duplicate_returns_the_first_item(b: Bank):
    first = b.apply(Operation(K.ADD, text="Ana lives in Rome"))
    again = b.apply(Operation(K.ADD, text="  Ana lives\n in Rome "))
    assert (first.applied, first.changed) == (True, ("m1",))
    assert (again.applied, again.reason, again.item) == (False, "duplicate of m1", "m1")
    assert len(b) == 1


def test_update_keeps_id_and_validity(b: Bank):
    b.apply(Operation(K.ADD, text="Ana lives in Rom"), event_time="2025-05-01")
    before = b.get("m1")
    out = b.apply(Operation(K.UPDATE, ("m1",), "Ana lives in Rome"))
    after = b.get("m1")
    assert out.changed == ("m1",)
    assert (after.text, after.revision) == ("Ana lives in Rome", 1)
    for time in ("event_time", "written_at", "valid_from"):
        assert getattr(after, time) == getattr(before, time)


def test_supersede_by_a_text_already_there_links_to_it(b: Bank):
    b.add("Ana lives in Rome")
    b.add("Ana lives in Oslo")
    out = b.apply(Operation(K.SUPERSEDE, ("m1",), "Ana lives in Oslo"))
    assert (out.applied, out.item) == (True, "m2")
    assert b.get("m1").superseded_by == "m2"
    assert len(b) == 1


def test_delete_merge_and_link_have_their_outcomes(b: Bank):
    for text in ("a cat", "one cat", "a dog"):
        b.add(text)
    assert b.apply(Operation(K.LINK, ("m1", "m3"), "chases")).applied
    assert b.apply(Operation(K.LINK, ("m1", "m3"), "chases")).reason == "already linked"
    assert b.apply(Operation(K.MERGE, ("m1", "m2"), "exactly one cat")).changed == ("m1", "m2", "m4")
    assert {b.get("m1").superseded_by, b.get("m2").superseded_by} == {"m4"}
    assert b.apply(Operation(K.DELETE, ("m4",))).applied
    assert texts(b) == ["a dog"]
    assert b.apply(Operation(K.DELETE, ("m4",))).reason == "unknown target 'm4'"
    assert b.apply(Operation(K.UPDATE, ("m1",), "x")).reason.startswith("target m1 was superseded")


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Operation(K.ADD, text=""), "empty"),
        (Operation(K.ADD, text="a\x00b"), "control character U+0000"),
        (Operation(K.ADD, text="\ud800"), "not valid Unicode"),
        (Operation(K.ADD, text="x" * 1_000_001), "the limit is"),
        (Operation(K.ADD, ("m1",), "y"), "no targets"),
        (Operation(K.UPDATE, (), "y"), "one target"),
        (Operation(K.UPDATE, ("m9",), "y"), "unknown target"),
        (Operation(K.UPDATE, ("m1",), "here"), "unchanged"),
        (Operation(K.SUPERSEDE, (), "y"), "needs a target"),
        (Operation(K.SUPERSEDE, ("m1",), "here"), "unchanged"),
        (Operation(K.SUPERSEDE, ("m1", "m9"), "y"), "unknown target"),
        (Operation(K.DELETE, ("'; DROP TABLE items; --",)), "unknown target"),
        (Operation(K.MERGE, ("m1", "m1"), "y"), "two different"),
        (Operation(K.LINK, ("m1", "m1")), "itself"),
        (Operation(K.LINK, ("m1",)), "two targets"),
        (Operation(K.NOOP), "noop"),
        (Operation(K.UPDATE, ("m1",), "a\udc80"), "not valid Unicode"),
        (Operation(K.DELETE, ([1],)), "targets must be ids"),
        (Operation(K.DELETE, None), "targets must be ids"),
        (Operation(K.DELETE, (b"m1",)), "targets must be ids"),
        (Operation("ERASE", ("m1",)), "not an operation"),
        (None, "not an operation"),
    ],
)
def test_refused_operation_has_a_reason_and_no_effect(operation, reason, b: Bank):
    b.add("here")
    before = b.content_hash()
    out = b.apply(operation)
    assert not out.applied
    assert reason in out.reason
    assert out.changed == ()
    assert b.content_hash() == before
    assert b.journal[1:] == []


ids = st.sampled_from([f"m{i}" for i in range(9)]) | st.text(max_size=5)
any_operation = st.builds(
    Operation,
    st.sampled_from(list(K)),
    st.lists(ids, max_size=3).map(tuple),
    st.sampled_from(["a", "b", "a b", "c c", "d"]) | st.text(max_size=12),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(any_operation, max_size=25))
def test_any_sequence_of_operations_has_outcomes_and_keeps_the_invariants(sequence):
    b = Bank.empty(None, clock=clock)
    for operation in sequence:
        before = b.content_hash()
        out = b.apply(operation)
        assert out.applied == (b.content_hash() != before)
        assert out.applied == bool(out.changed)
        assert out.reason
    everything = list(b.items(all_states=True))
    assert len(b) == sum(item.current for item in everything)
    for item in everything:
        assert text_problem(item.text) is None
        assert from_record(to_record(item)) == item
        if item.superseded_by:
            assert not item.current
            assert b.get(item.superseded_by) is not None
    folded = [(item.kind, " ".join(item.text.split())) for item in everything if item.open]
    assert len(folded) == len(set(folded))


def test_supersede_keeps_the_kind_of_the_old_item(b: Bank):
    b.add("look before you leap", kind=ItemKind.LESSON)
    out = b.apply(Operation(K.SUPERSEDE, ("m1",), "look twice before you leap"))
    assert b.get(out.item).kind is ItemKind.LESSON
