"""What is accepted from outside can always be read again, and never passes for memory's own experience."""

from __future__ import annotations

import contextlib
import json
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.memory.errors import InvalidAdvice, SetAside
from keepworth.memory.item import Status
from keepworth.memory.policy.pool import Advice
from keepworth.memory.store import log
from tests.memory.policy.test_learning import POLICIES, opened, play, state

NAMES = st.sampled_from(
    [
        "key",
        "do",
        "avoid",
        "good",
        "born",
        "of",
        "trigger",
        "payload",
        "extra",
        "links",
        "tags",
        "q",
        "goal",
        "visits",
        "mine",
    ]
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
        with warnings.catch_warnings():
            warnings.simplefilter("error", SetAside)
            again = opened(path, policy)
        assert state(again) == before
        if accepted is not None:
            item = again.get(accepted)
            assert item.metadata["do"] == list(do)
            assert item.metadata["good"] is True
            assert json.dumps(item.metadata.get("extra", {})) == json.dumps(extra)
        again.close()


@pytest.mark.parametrize(
    "extra", [{"key": 5}, {"do": ("wire",)}, {"good": False}, {"born": "x"}, {"extra": {}}, {"mine": {1: 2}}]
)
def test_what_would_override_memorys_own_names_is_refused_by_name(tmp_path: Path, extra: dict[str, Any]) -> None:
    memory = opened(tmp_path / "j.mem")
    with pytest.raises(InvalidAdvice, match="extra"):
        memory.propose(Advice("k", "t", ("a",), extra=extra))
    assert memory.learning.experience.observe(Advice("k", "t", ("a",), extra=extra)) is None


def test_records_that_cannot_be_read_are_set_aside_and_the_rest_is_there(tmp_path: Path) -> None:
    path = tmp_path / "j.mem"
    memory = opened(path)
    play(memory, "a torn shirt arrived", "refund", 1.0)
    bad = [
        memory.add(f"wire {do}", key="k", metadata={"do": do, "avoid": [], "good": True, "born": 0, "of": 0}).id
        for do in (5, [], ["a", 3], ["wire"])
    ]
    memory.add("not for this memory", metadata={"mine": 1})
    another = memory.episode("another")
    for what, id in (("reward", "e-unheard-of"), ("step", another.id), ("act", another.id)):
        memory.store.change(
            memory.scope,
            lambda each, what=what, id=id: log.note(each, memory.scope, "", what, id, reward=1.0, action="wire"),
        )
    with pytest.warns(SetAside, match="cannot be read"):
        before = state(memory)
    memory.close()
    again = opened(path)
    with pytest.warns(SetAside, match="cannot be read"):
        assert set(again.set_aside) == set(bad[:3])
    assert [item.text for item in again.learning.experience.pool.items] == [
        "a torn shirt arrived -> refund: it worked",
        "wire ['wire']",
        "not for this memory",
    ]
    assert [again.get(id).status for id in bad] == [*[Status.QUARANTINED] * 3, Status.ACTIVE]
    assert before[-1] == state(again)[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("error", SetAside)
        play(again, "a torn shirt arrived again", "refund", 1.0)
        again.rollback(since=again.snapshot())


@pytest.mark.parametrize("source", ["own", "own:ana"])
def test_a_draft_cannot_claim_to_be_memorys_own(tmp_path: Path, source: str) -> None:
    memory = opened(tmp_path / "j.mem")
    with pytest.raises(InvalidAdvice, match="memory learned itself"):
        memory.propose(Advice("k", "t", ("a",), source=source))


@pytest.mark.parametrize("trust", [0.3, 1.0])
def test_outside_is_outside_whatever_its_trust_and_a_draft_is_from_outside_by_default(
    tmp_path: Path, trust: float
) -> None:
    """Harmful advice of a source that was believed loses its standing, and never stands above own experience."""
    memory = opened(tmp_path / "j.mem")
    for number in range(8):
        play(memory, f"a torn shirt arrived {number}", "refund", 1.0)
    for draft in (
        Advice("a torn shirt arrived", "t", do=("escalate",)),
        Advice("a late hat", "t", do=("wire",), source="web"),
    ):
        id = memory.propose(
            draft if trust == 1.0 else Advice(draft.key, "t", draft.do, source=draft.source, trust=trust)
        )
        assert memory.get(id).status is Status.CANDIDATE
    for number in range(60):
        with memory.episode(f"a torn shirt arrived {number % 9}") as episode:
            shown = episode.search(actions=("refund", "escalate"))
            advised = [action for action, weight, _ in shown.advice if weight > 0]
            episode.act(advised[0] if advised else "refund")
            episode.reward(float(not advised or advised[0] == "refund"))
    status = {
        item.key: item.status for item in memory.learning.experience.pool.items if item.metadata["do"] == ("escalate",)
    }
    assert status == {"a torn shirt arrived": Status.QUARANTINED}


def test_what_an_observation_says_it_earned_is_a_number_and_larger_rewards_are_taken(tmp_path: Path) -> None:
    """Cases that say what they earned are filed anew when rewards turn out to be larger."""
    memory = opened(tmp_path / "j.mem", "memrl", reward_range=(0.0, 5.0))
    with memory.episode("a torn shirt arrived") as episode:
        episode.search()
        with pytest.raises(InvalidAdvice, match="earned"):
            episode.observe(Advice("k", "t", ("refund",), extra={"earned": "much"}))
        assert episode.observe(Advice("k", "t", ("refund",), extra={"earned": 0.4})) is not None
        episode.act("refund")
        episode.reward(0.0)
    metadata = {"do": ["refund"], "avoid": [], "born": 0, "of": 0}
    unread = [memory.add(f"by hand {n}", metadata={**metadata, **more}).id for n, more in enumerate(
        ({"good": True, "earned": "much"}, {"earned": 0.4})
    )]  # fmt: skip
    with pytest.warns(SetAside, match="cannot be read"):
        play(memory, "a torn shirt arrived", "refund", 1.0)
    for value in (2.0, 5.0):
        play(memory, "a torn shirt arrived", "refund", value)
    assert set(memory.set_aside) == set(unread)
