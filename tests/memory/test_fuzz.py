"""Whatever a program hands in, every verb does what it should or raises an error of ours, and the file stays sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keepworth.episodes import Operation, OperationKind
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import check
from tests.memory.stub_encoder import WordEncoder

ODD = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "\x00",
            "\ud800",
            "m1",
            "m0",
            "m01",
            "m99999999999999999999",
            "s0",
            "s99",
            "r1",
            "' OR 1=1 --",
            '" NEAR(',
            "é",
            "e\u0301",
            "ana@example.com",
            "\u202e",
            "😀",
            "*",
            "a" * 70_000,
            "١",
            "²",
        ]
    ),
    st.text(max_size=8),
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.binary(max_size=3),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
)
VERBS: dict[str, Callable[..., Any]] = {
    "add": lambda m, a, b: m.add(a, user_id=b),
    "add_many": lambda m, a, b: m.add_many(a, source=b),
    "add with a key": lambda m, a, b: m.add("a text", key=a, metadata=b),
    "add at a time": lambda m, a, b: m.add("a text", event_time=a, ttl=b),
    "add as a kind": lambda m, a, b: m.add("a text", kind=a, trust=b),
    "add like others": lambda m, a, b: m.add("a text", repeat=a, status=b),
    "apply to": lambda m, a, b: m.apply(Operation(OperationKind.UPDATE, (a,), b)),
    "apply": lambda m, a, b: m.apply(Operation(a, b, "a text")),
    "update": lambda m, a, b: m.update(a, b),
    "supersede": lambda m, a, b: m.supersede(a, b),
    "delete": lambda m, a, b: m.delete(a, episode=b),
    "delete_all": lambda m, a, b: m.delete_all(user_id=a, session_id=b),
    "forget": lambda m, a, b: m.forget(a, b),
    "forget for good": lambda m, a, b: m.forget(a, b, purge_history=True),
    "erase": lambda m, a, b: m.erase(user_id=a, session_id=b),
    "get": lambda m, a, b: m.get(a),
    "get_all": lambda m, a, b: m.get_all(user_id=a, after=b),
    "history": lambda m, a, b: m.history(a),
    "search": lambda m, a, b: m.search(a, user_id=b),
    "search as of": lambda m, a, b: m.search("cat", as_of=a, since=b),
    "search for kinds": lambda m, a, b: m.search("cat", kinds=a, where=b),
    "search so many": lambda m, a, b: m.search("cat", top_k=a, threshold=b),
    "search in a way": lambda m, a, b: m.search("cat", mode=a, half_life=b),
    "reward": lambda m, a, b: m.reward(a, b),
    "reward by": lambda m, a, b: m.reward(a, 1.0, source=b),
    "rollback": lambda m, a, b: m.rollback(a),
    "rollback of": lambda m, a, b: m.rollback(source=a),
    "rollback since": lambda m, a, b: m.rollback(since=a),
    "diff": lambda m, a, b: m.diff(a, b),
    "bank": lambda m, a, b: m.bank(user_id=a, at=b),
    "episode": lambda m, a, b: m.episode(user_id=a, task=b),
    "episode_record": lambda m, a, b: m.episode_record(a),
}


@pytest.mark.parametrize("verb", list(VERBS))
@example([], None)  # no text, and not hashable
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(a=ODD, b=ODD)
def test_odd_arguments_are_carried_out_or_refused(verb: str, a: object, b: object):
    with Memory(encoder=WordEncoder(8)) as m:
        m.add_many(["a cat", "a dog"], user_id="ana")
        before = m.store.head()
        try:
            VERBS[verb](m, a, b)
        except MemoryProblem:
            assert m.store.head() == before, "an error, and yet something was written"
        assert check(m.store) == []
