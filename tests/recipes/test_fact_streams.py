"""Streams of facts: what is asked for may stand anywhere, and no stream knows of another side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.episodes.episode import Session, Task, Turn
from keepworth.episodes.errors import KeepworthError
from keepworth.methods.recipes._bank.fact_streams import FactStream, fact_streams, folds_of, longmemeval_streams
from keepworth.methods.writers._facts import decisive_facts, facts_of
from keepworth.tasks.splits import SPLITS

LENGTH, BUDGET = 16, 4


def _session(number: int, *texts: str, evidence: bool = False) -> Session:
    turns = tuple(Turn("user", text, i, evidence) for i, text in enumerate(texts))
    return Session(f"s{number}", f"2023-05-{number + 1:02}T10:00", turns)


def task(key: str = "t", others: int = 12) -> Task:
    """A bicycle that is counted twice, the later count being right, among facts about tea."""
    sessions = [_session(number, f"I drank tea number {number} today.") for number in range(others)]
    sessions[2] = _session(2, "I own three bikes now.", evidence=True)
    sessions[7] = _session(7, "I own four bikes now.", evidence=True)
    return Task(key, "made", "How many bikes do I own?", ("four bikes",), "token_f1", sessions=tuple(sessions))


def test_what_decides_keeps_its_order_and_dates_only_rise() -> None:
    made = fact_streams([task()], 6, streams=40)
    places = Counter[int]()
    for stream in made:
        decisive = [fact.statement for fact, decides in zip(stream.facts, stream.evidence, strict=True) if decides]
        assert decisive == ["I own three bikes now.", "I own four bikes now."]
        assert len({fact.statement for fact in stream.facts}) == 6
        dates = [fact.date for fact in stream.facts]
        assert dates == sorted(dates)
        places.update(place for place, decides in enumerate(stream.evidence) if decides)
    assert set(places) == set(range(6)), "every place may hold what is asked for"
    assert len({tuple(stream.facts) for stream in made}) > 35
    assert [stream.key for stream in made[:2]] == ["t~6/0", "t~6/1"]


def test_the_same_seed_draws_the_same_and_another_seed_others() -> None:
    assert fact_streams([task()], 6, seed=1) == fact_streams([task()], 6, seed=1)
    assert fact_streams([task()], 6, seed=1) != fact_streams([task()], 6, seed=2)


def test_the_share_of_evidence() -> None:
    (stream,) = fact_streams([task()], 6)
    first, last = (place for place, decides in enumerate(stream.evidence) if decides)
    assert [stream.evidence_kept(kept) for kept in ((), (first,), (first, last), range(6))] == [0.0, 0.5, 1.0, 1.0]


def test_tasks_that_make_no_stream_are_left_out_and_none_at_all_is_an_error() -> None:
    unstated = replace(task("unstated"), answers=("seven bikes and a car",))
    assert [stream.task.key for stream in fact_streams([task(), unstated, task("few", others=8)], 10)] == ["t"]
    # Of three facts two would be evidence.
    for length, says in ((30, "none of 1 tasks has 30 facts"), (1, "nothing to choose"), (3, "none of 1 tasks")):
        with pytest.raises(KeepworthError, match=says):
            fact_streams([task()], length)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(1, 6))
def test_folds_hold_clusters_whole_and_are_even(clusters: list[int], folds: int) -> None:
    streams = [FactStream(task(), (), (), str(cluster)) for cluster in clusters]
    found = folds_of(streams, folds)
    assert len({(cluster, fold) for cluster, fold in zip(clusters, found, strict=True)}) == len(set(clusters))
    sizes = [found.count(fold) for fold in range(folds)]
    assert max(sizes) - min(sizes) <= max(Counter(clusters).values())


@cache
def real() -> Sequence[FactStream]:
    return longmemeval_streams(LENGTH)


def test_order_gives_nothing_away_in_the_real_streams() -> None:
    """Whoever keeps the first or the last four of sixteen keeps a quarter of the evidence, up to four standard errors of
    evenly drawn places (0.02 over 460 streams)."""
    streams = real()
    assert len(streams) > 400
    for kept in (range(BUDGET), range(LENGTH - BUDGET, LENGTH), range(0, LENGTH, LENGTH // BUDGET)):
        mean = sum(stream.evidence_kept(kept) for stream in streams) / len(streams)
        assert abs(mean - BUDGET / LENGTH) < 4 * (0.25 * 0.75 / len(streams)) ** 0.5


def test_real_streams_keep_what_decides_in_the_order_of_time() -> None:
    several = 0
    for stream in real()[::9]:
        decisive = [fact.statement for fact in decisive_facts(stream.task, facts_of(stream.task.sessions))]
        found = [fact.statement for fact, decides in zip(stream.facts, stream.evidence, strict=True) if decides]
        assert found == list(dict.fromkeys(decisive))
        several += len(found) > 1
    assert several


def test_no_fact_of_one_split_stands_in_a_stream_of_another() -> None:
    sessions: dict[str, set[str]] = {split: set() for split in SPLITS}
    for stream in real():
        sessions[stream.task.tags["split"]].update(fact.session for fact in stream.facts)
    assert all(sessions.values())
    assert sum(map(len, sessions.values())) == len(set().union(*sessions.values()))


def test_real_folds_hold_each_question_and_what_is_tied_to_it() -> None:
    streams = real()
    found = folds_of(streams)
    assert set(found) == set(range(5))
    for tied in ("cluster", "question"):
        keys = [stream.cluster if tied == "cluster" else stream.task.key for stream in streams]
        assert len(set(zip(keys, found, strict=True))) == len(set(keys))
