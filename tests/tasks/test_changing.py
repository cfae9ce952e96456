"""The changing world: what is true is what was said last, what is withdrawn is never the answer, and nothing but the facts says
what will be asked."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.environments.bounded_bank import BoundedBank
from keepworth.episodes.errors import KeepworthError
from keepworth.tasks.changing import (
    CORRECTIONS,
    PLOTS,
    TOPICS,
    UNKNOWN,
    WITHDRAWALS,
    ChangingStream,
    Saying,
    Telling,
    changing_streams,
)
from keepworth.tasks.fact_streams import FactStream
from keepworth.tasks.facts import Fact
from keepworth.tasks.metrics import tokens
from keepworth.tasks.people import names_of
from keepworth.tasks.splits import SPLITS

ANY = st.builds(
    lambda split, seed, length: changing_streams(split, 1, length, seed=seed)[0],
    st.sampled_from(SPLITS),
    st.integers(0, 10_000),
    st.integers(4, 64),
)


def by_hand() -> ChangingStream:
    """Ann moves twice, and back; Bob's job is withdrawn; what is said of Bob's car is said again."""
    said = [
        (0, "Ann", "city", Saying.STATE, "Oslo"),
        (1, "Bob", "job", Saying.STATE, "nurse"),
        (0, "Ann", "city", Saying.CHANGE, "Rome"),
        (2, "Bob", "car", Saying.STATE, "Fiat"),
        (1, "Bob", "job", Saying.WITHDRAW, ""),
        (2, "Bob", "car", Saying.REPEAT, "Fiat"),
        (0, "Ann", "city", Saying.CHANGE, "Oslo"),
    ]
    tellings = tuple(Telling(*each, f"{each[1]} {each[2]} {each[3].value} {each[4]}") for each in said)
    facts = tuple(Fact(telling.text, "s", f"2024-01-{day + 1:02}", day, 0) for day, telling in enumerate(tellings))
    task = changing_streams("train", 1, 4)[0].stream.task
    return ChangingStream(FactStream(task, facts, (False,) * 7, "s"), tellings, 0).about(0)


def oracle_bank(stream: ChangingStream, budget: int | None = None) -> BoundedBank:
    bank = BoundedBank(budget or len(stream.tellings))
    for number, fact in enumerate(stream.stream.facts):
        bank.write(stream.oracle_line(number, bank.numbers), fact.statement)
    return bank


def test_what_is_true_now_by_hand() -> None:
    stream = by_hand()
    assert stream.true_now == {0: "Oslo", 2: "Fiat"}
    assert oracle_bank(stream).numbers == (3, 6), "moved twice, and the first home is none any more"
    assert [place for place, decides in enumerate(stream.stream.evidence) if decides] == [6]
    assert [place for place, decides in enumerate(stream.about(2).stream.evidence) if decides] == [3]
    assert [place for place, decides in enumerate(stream.about(1).stream.evidence) if decides] == [4]
    assert stream.about(1).stream.task.answers == UNKNOWN
    assert stream.about(1).stream.task.tags["plot"] == "sw"
    assert stream.state_of(0, (0, 2, 6)) == (True, 1)
    assert stream.state_of(0, (2,)) == (False, 1)
    assert stream.state_of(1, (1, 4)) == (False, 1)
    with pytest.raises(KeepworthError, match="no thread 9"):
        stream.about(9)


def test_an_oracle_whose_bank_is_too_small_goes_on() -> None:
    assert oracle_bank(by_hand(), 1).numbers == (6,)


@settings(max_examples=60, deadline=None)
@given(ANY)
def test_the_oracles_bank_holds_each_thing_that_is_known_once_and_as_it_is(stream: ChangingStream) -> None:
    bank = oracle_bank(stream)
    assert (bank.invalid, bank.refused) == (0, 0)
    left = [stream.tellings[number] for number in bank.numbers]
    assert len({telling.thread for telling in left}) == len(left)
    assert {telling.thread: telling.value for telling in left} == stream.true_now


@settings(max_examples=60, deadline=None)
@given(ANY)
def test_what_is_withdrawn_or_past_is_never_the_answer(stream: ChangingStream) -> None:
    for thread in {telling.thread for telling in stream.tellings}:
        own = [telling for telling in stream.tellings if telling.thread == thread]
        about = stream.about(thread).stream
        decides = [telling for telling, yes in zip(stream.tellings, about.evidence, strict=True) if yes]
        assert len(decides) == 1
        assert (decides[0].thread, decides[0].value) == (thread, own[-1].value)
        if own[-1].saying is Saying.WITHDRAW:
            assert about.task.answers == UNKNOWN
        else:
            assert about.task.answers == (own[-1].value,)
            assert set(tokens(own[-1].value)) <= set(tokens(own[-1].text))
        for before, now in pairwise(own):
            assert (before.value == now.value) == (now.saying is Saying.REPEAT)
            assert now.saying is not Saying.REPEAT or before.text != now.text


@settings(max_examples=60, deadline=None)
@given(ANY, st.data())
def test_any_line_is_legal(stream: ChangingStream, data: st.DataObject) -> None:
    bank = BoundedBank(len(stream.tellings))
    line = st.one_of(
        st.text(max_size=12),
        st.builds("{} {}".format, st.sampled_from(["ADD", "UPDATE", "DELETE"]), st.integers(-2, 70)),
    )
    for fact in stream.stream.facts:
        bank.write(data.draw(line), fact.statement)
    assert len(bank.entries) <= len(stream.tellings)
    for thread in range(len({telling.thread for telling in stream.tellings})):
        true, stale = stream.state_of(thread, bank.numbers)
        assert stale + true <= sum(stream.tellings[number].thread == thread for number in bank.numbers)


def test_the_same_seed_says_the_same_and_dates_only_rise() -> None:
    assert changing_streams("dev", 3, 16) == changing_streams("dev", 5, 16)[:3]
    assert changing_streams("dev", 3, 16) != changing_streams("dev", 3, 16, seed=1)
    dates = [fact.date for fact in changing_streams("dev", 1, 64)[0].stream.facts]
    assert dates == sorted(set(dates))
    for length in (3, 1000):
        with pytest.raises(KeepworthError, match=f"a stream of {length} facts"):
            changing_streams("dev", 1, length)


@cache
def many(split: str = "train", length: int = 16) -> tuple[ChangingStream, ...]:
    return tuple(changing_streams(split, 600, length))


def test_places_say_nothing_about_what_will_be_asked() -> None:
    """Of the facts about what is asked for, a quarter stands in any quarter of the stream, up to four standard errors; and every
    number of a thread is asked for as often."""
    for chosen in (range(4), range(12, 16), range(0, 16, 4)):
        shares = [
            (sum(stream.tellings[place].thread == stream.asked for place in chosen), own)
            for stream in many()
            for own in [sum(telling.thread == stream.asked for telling in stream.tellings)]
        ]
        total = sum(own for _, own in shares)
        assert abs(sum(inside for inside, _ in shares) / total - 0.25) < 4 * (0.25 * 0.75 / total) ** 0.5
    expected: Counter[tuple[Saying, ...]] = Counter()
    asked: Counter[tuple[Saying, ...]] = Counter()
    for stream in many():
        threads = {telling.thread for telling in stream.tellings}
        for thread in threads:
            plot = tuple(telling.saying for telling in stream.tellings if telling.thread == thread)
            expected[plot] += 1 / len(threads)  # type: ignore[assignment]
            asked[plot] += thread == stream.asked
    assert set(asked) == set(PLOTS)
    assert all(abs(asked[plot] - expected[plot]) < 4 * expected[plot] ** 0.5 for plot in PLOTS)


def test_splits_share_no_person_no_wording_and_no_statement() -> None:
    statements: dict[str, set[str]] = {}
    for split in SPLITS:
        streams = many(split)
        assert {telling.person for stream in streams for telling in stream.tellings} <= set(names_of(split))
        statements[split] = {telling.text for stream in streams for telling in stream.tellings}
    wordings = {
        split: [
            *(each for topic in TOPICS for each in (topic.asks[split], topic.about[split])),
            *(each for topic in TOPICS for each in (*topic.states[split], *topic.changes[split])),
            *CORRECTIONS[split],
            *WITHDRAWALS[split],
        ]
        for split in SPLITS
    }
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert not statements[one] & statements[other]
        assert not set(wordings[one]) & set(wordings[other])
    for split, every in wordings.items():
        assert len(set(every)) == len(every), split
        assert all(len(topic.states[split]) > 1 for topic in TOPICS), "a repetition needs other words"
        for topic in TOPICS:
            for wording in (*topic.states[split], *topic.changes[split]):
                assert set(re.findall(r"\{(\w)\}", wording)) == {"n", "v"}


def test_threads_share_people_and_topics() -> None:
    """So that the name alone, and the topic alone, say which entry is meant in few of the streams."""
    pairs = [{(telling.person, telling.topic) for telling in stream.tellings} for stream in many()]
    alone = [
        pair
        for own in pairs
        for pair in own
        if sum(each[0] == pair[0] for each in own) == 1 or sum(each[1] == pair[1] for each in own) == 1
    ]
    assert len(alone) < 0.5 * sum(map(len, pairs))
