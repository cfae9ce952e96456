"""Other libraries' interfaces, and what must not get through them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from keepworth.memory.adapters.mem0 import Memory as Mem0
from keepworth.memory.errors import InvalidFilter
from keepworth.memory.memory import Memory
from keepworth.memory.policy.default import default
from keepworth.methods.writers._manager import Manager

from .stub_encoder import WordEncoder


def memory(**options: object) -> Memory:
    return Memory(":memory:", encoder=WordEncoder(32), **options)


ANA = {"user_id": "ana"}
FILTERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "equal": ({"topic": "food"}, {"tofu", "soup"}),
    "eq": ({"topic": {"eq": "food"}}, {"tofu", "soup"}),
    "ne": ({"topic": {"ne": "food"}}, {"chess"}),
    "in": ({"topic": {"in": ["game", "music"]}}, {"chess"}),
    "nin": ({"topic": {"nin": ["game", "music"]}}, {"tofu", "soup"}),
    "range": ({"stars": {"gte": 2, "lt": 5}}, {"tofu"}),
    "gt": ({"stars": {"gt": 3}}, {"soup"}),
    "lte": ({"stars": {"lte": 3}}, {"tofu", "chess"}),
    "contains": ({"note": {"contains": "Oslo"}}, {"soup"}),
    "icontains": ({"note": {"icontains": "oslo"}}, {"tofu", "soup"}),
    "contains of a list": ({"tags": {"contains": "old"}}, {"chess"}),
    "any value": ({"topic": "*"}, {"tofu", "soup", "chess"}),
    "a list": ({"topic": ["game", "music"]}, {"chess"}),
    "AND": ({"AND": [{"topic": "food"}, {"stars": {"gte": 4}}]}, {"soup"}),
    "OR": ({"OR": [{"topic": "game"}, {"stars": {"gte": 4}}]}, {"soup", "chess"}),
    "NOT": ({"NOT": [{"topic": "game"}, {"stars": 5}]}, {"tofu", "plain"}),
    "nested": (
        {
            "AND": [{"OR": [{"topic": "food"}, {"topic": "game"}]}, {"NOT": [{"tags": {"contains": "old"}}]}],
            "stars": "*",
        },
        {"tofu", "soup"},
    ),
    "nobody has it": ({"topic": "war"}, set()),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_of_mem0_do_what_mem0_says(name: str):
    filters, expected = FILTERS[name]
    m = Mem0(memory())
    for text, metadata in {
        "tofu": {"topic": "food", "stars": 3, "note": "an oslo dish"},
        "soup": {"topic": "food", "stars": 5, "note": "Oslo"},
        "chess": {"topic": "game", "stars": 1, "tags": ["old"]},
        "plain": None,
    }.items():
        m.add(text, user_id="ana", metadata=metadata, infer=False)
    m.add("another's", user_id="bo", metadata={"topic": "food", "stars": 3}, infer=False)
    whole = {**ANA, **filters}
    for found in (
        m.search("tofu soup chess plain", filters=whole),
        m.search("tofu", filters=whole, threshold=-1.0),
        m.get_all(filters=whole),
    ):
        assert {result["memory"] for result in found["results"]} == expected


def test_an_operator_that_mem0_does_not_have_is_refused():
    with pytest.raises(InvalidFilter, match="no operator 'near'"):
        Mem0(memory()).search("tofu", user_id="ana", filters={"topic": {"near": ["food"]}})


def test_events_of_mem0_say_what_a_writer_did():
    lines = iter(["ADD", "UPDATE 0", "UPDATE 0", "NOOP", "UPDATE 0", "DELETE 0"])
    m = Mem0(memory(writer=Manager(lambda states: [next(lines)])))
    tell = partial(m.add, user_id="ana", metadata={"topic": "home"})

    def events(said: str | list[dict[str, str]]) -> list[tuple[str, str]]:
        return [(result["event"], result["memory"]) for result in tell(said)["results"]]

    both = [{"role": "user", "content": "Ana lives in Bergen."}, {"role": "user", "content": "Ana moved to Oslo."}]
    assert events(both) == [("ADD", "Ana moved to Oslo.")]
    (result,) = m.get_all(user_id="ana")["results"]
    assert (result["memory"], result["metadata"]) == ("Ana moved to Oslo.", {"topic": "home"})
    assert events("Ana moved to Oslo in May.") == [("UPDATE", "Ana moved to Oslo in May.")]
    assert events("Ana moved.") == []
    assert events("Ana lives in Rome.") == [("UPDATE", "Ana lives in Rome.")]
    assert events("Forget it.") == [("DELETE", "Ana lives in Rome.")]
    assert m.get_all(user_id="ana") == {"results": []}


def test_adapters_search_beside_a_policy_that_ranks_items_itself():
    """Their callers have no rewards to give, so nothing is tried out on them, and a person's memory is searched alone."""
    from keepworth.memory.adapters.langgraph import _Entries

    learning = memory(policy="memrl")
    m = Mem0(learning)
    m.add("likes tofu", user_id="ana", infer=False)
    assert [result["memory"] for result in m.search("tofu", filters={"user_id": "ana"})["results"]] == ["likes tofu"]
    entries = _Entries(learning, lambda value, path: [str(value[path])])
    entries.put(("mem", "ana"), "food", {"text": "likes tempeh"}, index=["text"])
    assert [item.key for item, _ in entries.search(("mem", "ana"), "tempeh", {}, 1, 0)] == ["likes tempeh"]
    withholding = memory(policy=partial(default, withhold=1.0, least=1.0))
    m = Mem0(withholding)
    m.add("likes tofu", user_id="ana", infer=False)
    for _ in range(3):
        withholding.reward(withholding.search("tofu", user_id="ana").decision, 1.0)
    assert all(m.search("tofu", user_id="ana")["results"] for _ in range(5))
