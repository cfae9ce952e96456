"""What is accepted from outside can always be read again, and never passes for memory's own experience."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth import Memory
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.pool import Advice
from keepworth.memory.errors import InvalidAdvice
from tests.memory.policy.test_learning import POLICIES, opened, play, state

NAMES = st.sampled_from(
    ["key", "do", "avoid", "good", "born", "of", "trigger", "extra", "links", "tags", "q", "goal", "visits", "mine"]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
ACTIONS = st.lists(st.text(max_size=3) | st.integers(), max_size=2).map(tuple)


@settings(max_examples=25, deadline=None)
@given(
    st.text(max_size=4),
    ACTIONS,
    st.dictionaries(NAMES, VALUES, max_size=3),
    st.sampled_from(sorted(POLICIES)),
    st.text(),
)
def test_an_accepted_draft_can_be_read_again(
    key: str, do: tuple[str, ...], extra: dict[str, Any], policy: str, source: str
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "j.mem"
        memory = opened(path, policy)
        draft = Advice(key, "a text", do=do, extra=extra, source=source)
        accepted = None
        with contextlib.suppress(InvalidAdvice):
            accepted = memory.propose(draft)
        play(memory, "a torn shirt arrived", "refund", 1.0)
        before = state(memory)
        memory.close()
        again = opened(path, policy)
        assert state(again) == before
        if accepted is not None:
            item = again.get(accepted)
            assert item.metadata["do"] == list(do)
            assert item.metadata["good"] is True
            assert json.dumps(item.metadata.get("extra", {})) == json.dumps(extra)
        again.close()


def test_malformed_advice_metadata_is_treated_as_a_plain_item(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem")
    for do in (5, [], ["a", 3], ["wire"]):
        memory.add(f"wire {do}", key="k", metadata={"do": do, "avoid": [], "good": True, "born": 0, "of": 0})
    play(memory, "a torn shirt arrived", "refund", 1.0)
    before = state(memory)
    done = [item.metadata.get("do", ()) for item in memory.learning.experience.pool.items]
    assert done == [(), (), (), ("wire",), ("refund",)]
    memory.close()
    assert state(opened(tmp_path / "j.mem")) == before


def test_observation_with_a_reserved_field_is_refused(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem", "memrl")
    with memory.episode("a torn shirt arrived") as episode:
        episode.search()
        with pytest.raises(InvalidAdvice, match="earned"):
            episode.observe(Advice("k", "t", ("refund",), extra={"earned": 0.4}))
        assert episode.observe(Advice("k", "t", ("refund",), extra={"mine": 0.4})) is not None


OFFERED = ("refund it", "replace it", "ask for a picture")


def shop() -> Memory:
    """A memory in which refunds paid where a shirt was torn, and replacing it did not; and an item on torn trousers."""
    memory = Memory(encoder=HashedWords(256), seed=0)
    for number in range(12):
        play(memory, "a torn shirt arrived", OFFERED[number % 2], float(number % 2 == 0), OFFERED)
    memory.propose(Advice("torn trousers arrived", "torn trousers: ask for a picture", do=(OFFERED[2],), source="ana"))
    return memory


@pytest.mark.parametrize("top_k", [1, 2, 3, 10])
def test_advice_is_limited_to_top_k_and_fits_the_question(top_k: int) -> None:
    for task, action in (("a torn shirt arrived", OFFERED[0]), ("torn trousers arrived", OFFERED[2])):
        with shop().episode(task, explore=False) as episode:
            pieces = episode.search(actions=OFFERED, top_k=top_k).advice
        assert 1 <= len(pieces) <= top_k
        assert pieces[0][:2] == (action, 1.0)
        alike = [near for _, _, near in pieces]
        assert alike == sorted(alike, reverse=True)


def test_prompt_lists_only_advised_actions() -> None:
    with shop().episode("a torn shirt arrived", explore=False) as episode:
        hits = episode.search(actions=OFFERED, top_k=1)
    assert "- refund it: right 6 of 6 times" in hits.text
    assert "- replace it" not in hits.text


def test_advice_is_limited_to_top_k_before_any_reward() -> None:
    memory = Memory(encoder=HashedWords(256), seed=0)
    memory.propose(Advice("a torn shirt arrived", "refund or replace it", do=OFFERED[:2], source="ana"))
    with memory.episode("a torn shirt arrived", explore=False) as episode:
        assert len(episode.search(actions=OFFERED, top_k=1).advice) == 1
        assert len(episode.search(actions=OFFERED, top_k=2).advice) == 2


def test_successful_action_is_advised_before_more_similar_failures() -> None:
    offered = ("restart", "reset", "refund", "wait")
    with Memory(encoder=HashedWords(), seed=0) as memory:
        for number in range(12):
            play(memory, "support", offered[1 + number % 3], 0.0, offered, query="the red printer hums and blinks")
            play(memory, "support", "restart", 1.0, offered, query=f"the red printer hums in office {number}")
        with memory.episode("support", explore=False) as episode:
            advice = episode.search("the red printer hums and blinks", actions=offered, top_k=3).advice
    assert {action for action, weight, _ in advice if weight > 0.0} == {"restart"}


def test_imported_advice_does_not_outweigh_repeated_failures() -> None:
    memory = Memory(encoder="hashing", seed=1)
    for number in range(30):
        memory.propose(Advice(f"the shirt number {number} is torn", "wire it", do=("wire",), source=f"web{number}"))

    def advised(question: str) -> float:
        """Return the weight of all advice to wire, in an episode that follows it and fails."""
        with memory.episode(question, by="ana") as episode:
            told = episode.search(question, actions=("refund", "wire")).advice
            weight = sum(weight for action, weight, _ in told if action == "wire")
            episode.act("wire" if weight > 0.0 else "refund")
            episode.reward(float(weight <= 0.0), by="ana")
        return weight

    assert advised("the shirt number 7 is torn") > 0.0
    weights = [advised(f"the shirt number {number} is torn") for number in range(20)]
    assert max(weights[8:]) <= 0.0
