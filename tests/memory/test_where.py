"""Filters: what each operator says of each value, what is refused, and that a memory, its banks and a plain reading agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepworth.memory.errors import InvalidFilter
from keepworth.memory.item import ALL, Item
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Assignment, Draft
from keepworth.memory.search import columns
from keepworth.memory.search.where import DEEPEST, parsed
from keepworth.memory.store import words
from keepworth.records import Operation, OperationKind
from tests.memory.helpers import WordEncoder, in_another_thread, texts


def read(metadata: Any, name: str) -> list[Any]:
    """The value under a name in a list; [] where there is none."""
    if not isinstance(metadata, dict):
        return []
    if name in metadata:
        return [metadata[name]]
    head, dot, rest = name.partition(".")
    return read(metadata.get(head), rest) if dot else []


def same(one: Any, other: Any) -> bool:
    if isinstance(one, (list, dict)) and type(one) is type(other) and len(one) == len(other):
        pairs = zip(one, other, strict=True) if isinstance(one, list) else ((one[k], other.get(k, ...)) for k in one)
        return all(same(*pair) for pair in pairs)
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def in_order(one: Any, other: Any) -> bool:
    number = (int, float)
    both_numbers = isinstance(one, number) and isinstance(other, number) and bool not in (type(one), type(other))
    return both_numbers or (isinstance(one, str) and isinstance(other, str))


TRUTH = {
    "$eq": lambda found, x: any(same(v, x) for v in found),
    "$ne": lambda found, x: not any(same(v, x) for v in found),
    "$in": lambda found, x: any(same(v, each) for v in found for each in x),
    "$nin": lambda found, x: not any(same(v, each) for v in found for each in x),
    "$gt": lambda found, x: any(in_order(v, x) and v > x for v in found),
    "$gte": lambda found, x: any(in_order(v, x) and v >= x for v in found),
    "$lt": lambda found, x: any(in_order(v, x) and v < x for v in found),
    "$lte": lambda found, x: any(in_order(v, x) and v <= x for v in found),
    "$exists": lambda found, x: bool(found) is x,
    "$contains": lambda found, x: any(
        (isinstance(v, str) and isinstance(x, str) and x in v) or (isinstance(v, list) and any(same(e, x) for e in v))
        for v in found
    ),
    "$icontains": lambda found, x: any(
        (isinstance(v, str) and x.casefold() in v.casefold())
        or (isinstance(v, list) and any(isinstance(e, str) and x.casefold() == e.casefold() for e in v))
        for v in found
    ),
}


def meets(where: dict[str, Any], metadata: dict[str, Any]) -> bool:
    """The reference: the grammar, read word by word."""
    for name, value in where.items():
        if name == "$not":
            held = not meets(value, metadata)
        elif name in ("$and", "$or"):
            held = (all if name == "$and" else any)([meets(each, metadata) for each in value])
        elif isinstance(value, dict) and value and all(each.startswith("$") for each in value):
            held = all(TRUTH[operator](read(metadata, name), operand) for operator, operand in value.items())
        else:
            held = TRUTH["$eq"](read(metadata, name), value)
        if not held:
            return False
    return True


names = st.sampled_from(["a", "b", "a.b", "b.a.a"])
scalars = st.sampled_from([None, True, False, 0, 1, 1.0, -2.5, 2**60, "", "a", "A", "ab", "Ö", "1", "2026-01-31"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=4,
)
written = st.dictionaries(st.sampled_from(["a", "b", "a.b", "ä"]), values, max_size=3)
text = st.sampled_from(["", "a", "AB", "ö", "2026"])
numbers = st.sampled_from([0, 1, -2.5, 2**60, 0.5])
single = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne"]), values),
    st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(values, max_size=3)),
    st.tuples(st.just("$exists"), st.booleans()),
    st.tuples(st.just("$contains"), scalars),
    st.tuples(st.just("$icontains"), text),
)
ranges = st.sampled_from(["$gt", "$gte", "$lt", "$lte"])
operators = st.one_of(
    st.lists(single, min_size=1, max_size=2).map(dict),
    st.dictionaries(ranges, numbers, min_size=1, max_size=2),
    st.dictionaries(ranges, text, min_size=1, max_size=2),
)
filters = st.recursive(
    st.dictionaries(names, operators | values.filter(lambda value: value != {}), min_size=1, max_size=2),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"$not": inner}),
        st.fixed_dictionaries({"$and": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"$or": st.lists(inner, min_size=1, max_size=2)}, optional={"a": scalars}),
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(filters, written)
def test_parsed_filter_matches_the_reference_evaluation(where: dict[str, Any], metadata: dict[str, Any]) -> None:
    found = parsed(where)
    assert found.meets(metadata) is meets(where, metadata)
    assert found(Item("m1", "x", metadata=metadata)) is meets(where, metadata)


REFUSED: dict[str, tuple[Any, str]] = {
    "no such operator": ({"age": {"$near": 3}}, r"where\['age'\]\['\$near'\]: there is no operator '\$near'.*\$gte"),
    "an operator under no name": ({"$gt": 3}, r"where\['\$gt'\].*NAME"),
    "deep inside": ({"$or": [{"a": 1}, {"b": {"$in": 2}}]}, r"where\['\$or'\]\[1\]\['b'\]\['\$in'\] takes a list"),
    "a bound without order": ({"age": {"$gt": None}}, r"where\['age'\]\['\$gt'\] takes a number or text"),
    "a truth value as a bound": ({"age": {"$gt": True}}, "got True"),
    "a set": ({"age": {1, 2}}, r"never equal to \{1, 2\}.*\$in"),
    "infinity in a list": ({"age": {"$in": [float("inf")]}}, r"\['\$in'\]: metadata are never equal to inf"),
    "a name that is no text": ({7: "x"}, "names of metadata are text, got 7"),
    "no filters to join": ({"$or": []}, r"where\['\$or'\] takes a list of filters, got \[\]"),
    "an empty filter inside": ({"$and": [{}]}, r"where\['\$and'\]\[0\] must be a filter"),
    "operators of others": ({"a": {"gte": 3}}, r"Write '\$gte'"),
    "exists without a truth value": ({"a": {"$exists": 1}}, "takes True or False"),
    "several at once": ({"a": {"$contains": ["x"]}}, "takes one value"),
    "no filter": (["topic"], "must be a dictionary or a function"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsatisfiable_filter_is_refused_with_its_place(name: str) -> None:
    where, message = REFUSED[name]
    with pytest.raises(InvalidFilter, match=message):
        parsed(where)
    memory = Memory(":memory:", encoder=None)
    bank = memory.bank()
    for ask in (memory.search, lambda _, where: memory.get_all(where=where), bank.search):
        with pytest.raises(InvalidFilter, match=message):
            ask("x", where=where)


def test_filter_nesting_is_bounded() -> None:
    where: dict[str, Any] = {"a": 1}
    for _ in range(5000):
        where = {"$not": where}
    value: list[Any] = []
    value.append(value)
    for bad in (where, {"a": value}, {"a": {"$in": [value]}}, {"a": {"b": value}}):
        with pytest.raises(InvalidFilter, match=f"more than {DEEPEST}"):
            parsed(bad)


WORDS = ["red hat", "red tea", "blue hat", "green tea", "red"]
KINDS = ["fact", "lesson", "case"]
TIMES = ["", "2020-05-01T00:00:00", "2021-05-01T00:00:00", "2023-01-01T00:00:00"]


def filled(memory: Memory, rows: list[tuple[dict[str, Any], str, str]], change: list[int]) -> None:
    """Items with metadata, kinds and times, of which some were changed, deleted or superseded since."""
    for number, (metadata, kind, when) in enumerate(rows):
        text, user = f"{WORDS[number % len(WORDS)]} {number}", "ana" if number % 2 else "bo"
        memory.add(text, metadata=metadata, kind=kind, event_time=when, user_id=user or ALL)
    for number in change:
        id = f"m{1 + number % len(rows)}"
        if not memory.get(id).open:
            continue
        if number % 3 == 0:
            memory.update(id, metadata=rows[number // 3 % len(rows)][0])
        elif number % 3 == 1:
            memory.supersede(id, f"red news {number}", metadata=rows[number // 2 % len(rows)][0])
        else:
            memory.delete(id)


def allowed(item: Item, where: Any = None, kinds: Any = KINDS, since: str = "", until: str = "3") -> bool:
    """The reference: what a plain reading says of an item."""
    in_time = since <= (item.event_time or item.written_at) < until
    return in_time and item.kind.value in kinds and (where is None or meets(where, dict(item.metadata)))


@pytest.fixture(params=[0, 2, 1000], ids="up to {} rows are ranked whole".format)
def whole(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "RANKED_WHOLE", request.param)


conditions = st.fixed_dictionaries(
    {},
    optional={
        "where": filters,
        "kinds": st.sets(st.sampled_from(KINDS), min_size=1).map(sorted),
        "since": st.sampled_from(["2020-05-01", "2021-01-01", "2030-01-01"]),
        "until": st.sampled_from(["2021-05-01", "2024-01-01"]),
    },
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(written, st.sampled_from(KINDS), st.sampled_from(TIMES)), min_size=1, max_size=10),
    st.lists(st.integers(0, 40), max_size=4),
    st.lists(conditions, min_size=1, max_size=3),
    st.lists(st.integers(0, 40), max_size=3),
)
def test_filtered_searches_match_the_reference_evaluation(behind, whole, rows, before, asked, after) -> None:
    memory = Memory(":memory:", encoder=WordEncoder(8))
    filled(memory, rows, before)
    bank = memory.bank()
    frozen = list(bank.items())
    for asks in asked:
        for round_ in (before, after):
            items = memory.get_all(limit=1000)
            where = {"where": asks["where"]} if "where" in asks else {}
            assert memory.get_all(limit=1000, **where) == [item for item in items if allowed(item, **where)]
            for mode in ("dense", "hybrid"):
                hits = memory.search("red hat", top_k=50, mode=mode, **asks)
                assert {hit.id for hit in hits} == {item.id for item in items if allowed(item, **asks)}
                hits = bank.search("red hat", 50, mode=mode, **asks)
                assert {hit.id for hit in hits} == {item.id for item in frozen if allowed(item, **asks)}
            for narrow in ({}, {"user_id": "ana"}):
                every = memory.search("red tea", top_k=50, mode="lexical", **narrow)
                hits = memory.search("red tea", top_k=50, mode="lexical", **asks, **narrow)
                expected = [(hit.id, hit.score) for hit in every if allowed(hit.item, **asks)]
                assert sorted((hit.id, hit.score) for hit in hits) == sorted(expected)
            if round_ is before:
                filled(memory, rows[:1], after)


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_predicate_filter_is_called_once_per_item_and_matches_the_filter(mode, monkeypatch) -> None:
    monkeypatch.setattr("keepworth.memory.search.search.FIRST_LOOK", 2)
    monkeypatch.setattr("keepworth.memory.search.search.TOGETHER", 7)
    memory = Memory(":memory:", encoder=WordEncoder(8), policy=None)
    memory.add_many([f"red hat {n} {'tea ' * (n % 7)}" for n in range(900)])
    kept = {f"m{n}" for n in range(0, 900, 90)}
    for id in kept & {item.id for item in memory.get_all(limit=1000)}:
        memory.update(id, metadata={"kept": True})
    asked: list[str] = []

    def function(item) -> bool:
        asked.append(item.id)
        return bool(item.metadata)

    for top_k in (1, 3, 8):
        asked.clear()
        found = memory.search("red tea", top_k=top_k, mode=mode, where=function)
        assert len(asked) == len(set(asked))
        same = memory.search("red tea", top_k=top_k, mode=mode, where={"kept": True})
        assert len(found) == top_k
        if mode == "dense":
            assert [(hit.id, hit.score) for hit in found] == [(hit.id, hit.score) for hit in same]
        else:
            assert {hit.id for hit in found} <= kept


def test_filter_in_a_bank_uses_metadata_changed_in_the_bank() -> None:
    memory = Memory(":memory:", encoder=WordEncoder(8))
    for number in range(6):
        memory.add(f"red hat {number}", metadata={"team": "red" if number % 2 else "blue", "n": number})
    bank = memory.bank()
    bank.perform(Assignment("m1", {"metadata": {"team": "red"}}), Draft(scope=bank.scope))
    bank.perform(Assignment("m2", {"metadata": {"team": "blue"}}), Draft(scope=bank.scope))
    bank.apply(Operation(OperationKind.UPDATE, ("m4",), "red hat again"))
    bank.add("red hat of the bank", metadata={"team": "red"})
    bank = bank.fork()
    bank.apply(Operation(OperationKind.DELETE, ("m6",)))
    for mode in ("lexical", "dense", "hybrid"):
        for where, expected in (
            ({"team": "red"}, {"m1", "m4", "m7"}),
            ({"team": {"$ne": "red"}}, {"m2", "m3", "m5"}),
            ({"n": {"$exists": False}}, {"m1", "m2", "m7"}),
        ):
            assert {hit.id for hit in bank.search("red hat", 50, mode=mode, where=where)} == expected


def numbers(memory: Memory, where: dict[str, Any]) -> list[int]:
    """Of the items that the columns keep."""
    with memory.store.database.reading() as connection:
        return memory.store.derived.mask(connection, parsed(where)).nonzero()[0].tolist()


@pytest.mark.parametrize("remembered", [0, 4096])
def test_filter_in_an_open_transaction_uses_its_snapshot(path: Path, remembered: int, monkeypatch) -> None:
    monkeypatch.setattr(columns, "REMEMBERED", remembered)
    memory = Memory(path, encoder=None)
    for number in range(4):
        memory.add(f"note {number}", metadata={"team": "red", "n": number})
    assert numbers(memory, {"team": "red"}) == [1, 2, 3, 4]
    with memory.store.database.reading() as connection:
        memory.store.derived.corpus(connection)  # the moment that is looked at from here on

        def elsewhere() -> None:
            memory.update("m1", metadata={"team": "blue"})
            memory.delete("m2")
            memory.add("note 5", metadata={"team": "red"})
            assert numbers(memory, {"team": "red"}) == [3, 4, 7]

        in_another_thread(elsewhere)
        assert numbers(memory, {"team": "red"}) == [1, 2, 3, 4]
        assert numbers(memory, {"n": {"$gte": 2}}) == [3, 4], "a name that was not asked for before"
    assert numbers(memory, {"team": "red"}) == [3, 4, 7]
    assert numbers(memory, {"team": {"$ne": "red"}}) == [1]


def test_columns_follow_rollbacks_erasures_and_other_handles(path: Path) -> None:
    red = {"where": {"team": "red"}}
    with Memory(path, encoder=None) as memory, Memory(path, encoder=None) as other:
        memory.add("one", metadata={"team": "red"})
        snapshot = memory.snapshot()
        assert texts(other, **red) == ["one"]
        memory.update("m1", metadata={"team": "blue"})
        memory.add("two", metadata={"team": "red"})
        assert texts(other, **red) == ["two"]
        undone = memory.rollback(since=snapshot)
        assert texts(other, **red) == ["one"]
        memory.rollback(undone.id)
        assert texts(other, **red) == ["two"]
        memory.forget("m3", purge_history=True)
        for handle in (memory, other):
            assert texts(handle, **red) == []
            assert texts(handle, where={"team": {"$exists": True}}) == ["one"]


def test_least_recently_used_columns_are_dropped(m: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MOST", 9)
    monkeypatch.setattr(columns, "TABLES", 2)
    for number in range(3):
        m.add(f"note {number}", metadata={"a": number, "b": number, "c": number})
    for _ in range(2):
        for name in ("a", "b", "c"):
            for least in range(4):
                where = {name: {"$gte": least}, "$or": [{"a": {"$exists": True}}, {"b": 7}, {"c": 7}]}
                assert len(m.get_all(where=where)) == 3 - min(least, 3)
    assert len(m.store.derived._columns._columns) <= 3


ODD = [
    None, True, False, 0, 1, 1.0, -0.5, 10**18, "", "1", "true", "null", "\x1f", 'say "so"', "naïve 東京", "a\\u0041",
    [], [1, "1"], {}, {"a": None}, {"a": [True, {"b": 2}]},
]  # fmt: skip
NAMES = ["plain", "two words", "ümlaut", "a.b", 'quo"ted', "back\\slash", "a$", "[0]", "", "a'b", "tab\there"]


def test_columns_read_from_file_equal_those_built_item_by_item(path: Path) -> None:
    """A file reads a whole column at once, a memory without one item by item."""
    metadata = [{NAMES[n % len(NAMES)]: ODD[n % len(ODD)], "n": n} for n in range(len(NAMES) * len(ODD))]
    filters: list[dict[str, Any]] = [{name: {"$exists": True}} for name in [*NAMES, "missing"]]
    filters += [{name: {"$in": [value]}} for name in NAMES for value in ODD[:16]]
    filters += [{"n": {"$lt": 40}}, {"plain": {"$contains": "a"}}, {"plain.a": {"$exists": False}}]
    found = []
    for place in (":memory:", path):
        with Memory(place, encoder=None) as memory:
            memory.add_many([f"text {n}" for n in range(len(metadata))], metadata=metadata)
            memory.forget("m3")
            found.append([[item.id for item in memory.get_all(where=clause, limit=1000)] for clause in filters])
    assert found[0] == found[1]
    assert sum(map(len, found[0])) > 500


@pytest.mark.parametrize("query", ["thing4 word2", "filler", "thing4 filler", "nowhere"])
def test_lexical_search_behind_a_narrow_filter_equals_brute_force(query: str, path: Path) -> None:
    with Memory(path, encoder=None, policy=None) as m:
        texts = [f"filler word{n % 7} thing{n % 50} of {n}" for n in range(700)]
        m.add_many(texts, metadata=[{"topic": n % 10} for n in range(700)])
        m.add("thing4 filler, and one that is read as it lies", metadata={"topic": 4})
        every = m.search(query, mode="lexical", top_k=1000)
        found = m.search(query, mode="lexical", top_k=1000, where={"topic": 4})
    assert [hit.id for hit in found] == [hit.id for hit in every if hit.item.metadata["topic"] == 4]
