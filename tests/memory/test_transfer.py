"""Export and import lose nothing; the command line speaks the same verbs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keepworth
from keepworth.memory import errors
from keepworth.memory.item import ALL, EVERYWHERE, Provenance
from keepworth.memory.memory import Memory
from keepworth.memory.store.decision_log import as_json, named, packed, unpacked
from keepworth.memory.store.maintenance import check
from keepworth.memory.store.transfer import exported, imported
from tests.memory.helpers import WordEncoder, behind_its_back, command, finds, rows

from .test_store import carry_out, steps


def memory(path: object = ":memory:") -> Memory:
    return Memory(path, encoder=WordEncoder(16), clock=lambda: "2026-01-01T00:00:00")


@settings(max_examples=20, deadline=None)
@given(st.lists(steps, max_size=15))
def test_import_of_an_export_is_the_identity(sequence):
    m = memory()
    episodes = [m.episode(user_id=user or ALL) for user in ("ana", "bo", "")]
    undone: list[str] = []
    for step in sequence:
        carry_out(m, episodes, undone, step)
    lines = list(exported(m.store))
    twin = memory()
    imported(twin.store, lines)
    assert list(twin.store.items(EVERYWHERE)) == list(m.store.items(EVERYWHERE))
    assert list(exported(twin.store)) == lines
    assert twin.bank().content_hash() == m.bank().content_hash()
    assert check(twin.store) == []
    for id in undone[-2:]:
        twin.rollback(id)
        m.rollback(id)
        assert list(twin.store.items(EVERYWHERE)) == list(m.store.items(EVERYWHERE))


def test_an_import_has_the_range_of_rewards(path: Path) -> None:
    with Memory(encoder=None, reward_range=(-1, 1)) as m:
        m.add("a cat")
        m.reward(m.search("cat").decision, -1.0)
        lines = list(exported(m.store))
    first = lines[0].replace("[-1.0, 1.0]", "[1, -1]").replace("[-1.0,1.0]", "[1,-1]")
    with Memory(path, encoder=None) as twin:
        with pytest.raises(errors.NotAMemoryFile, match=r"line 1.*holds none"):
            imported(twin.store, [first, *lines[1:]])
        imported(twin.store, lines)
        assert list(exported(twin.store)) == lines
    with Memory(path, encoder=None) as twin:
        assert twin.reward(twin.search("cat").decision, -0.5).applied


HEADER = '{"format": "keepworth memory", "version": VERSION}'


@pytest.mark.parametrize("line", ["{}", "not json", "[1]", *(HEADER.replace("VERSION", letter) for letter in "29")])
def test_malformed_exports_are_refused(line, m: Memory):
    with pytest.raises(errors.NotAMemoryFile, match="line 1"):
        imported(m.store, [line])
    assert m.store.head() == 0


@pytest.mark.parametrize("number", ['"turn":1', '"revision":1'])
def test_import_with_true_for_1_is_sound(number: str) -> None:
    m = memory()
    m.add_many(["a cat"], provenances=[Provenance("chat", turn=1)])
    m.update("m1", "a small cat")
    m.add("a dog")
    lines = list(exported(m.store))
    twin = memory()
    imported(twin.store, [line.replace(number, number[:-1] + "true") if "item" in line else line for line in lines])
    assert check(twin.store) == []
    assert list(exported(twin.store)) == lines


def test_import_needs_an_empty_memory(m: Memory):
    m.add("x")
    with pytest.raises(errors.MemoryProblem, match="not empty"):
        imported(m.store, exported(m.store))


def test_import_command_uses_the_encoder_of_the_export(tmp_path: Path):
    one, two, lines = (tmp_path / name for name in ("a.mem", "b.mem", "a.jsonl"))
    with keepworth.Memory(one, encoder="hashing:64") as m:
        m.add("a cat")
    assert command("export", lines, "--file", one).exit_code == 0
    assert command("import", lines, "--file", two).exit_code == 0
    with keepworth.Memory(two, encoder="hashing:64") as m:
        assert finds(m, "cat") == ["a cat"]


def test_an_export_without_one_of_its_lines_is_refused():
    m = memory()
    a = m.add("a cat")
    m.update(a.id, "a dog")
    m.add("a dog")
    lines = list(exported(m.store))
    for place, line in enumerate(lines):
        if not line.startswith('{"scope'):
            with pytest.raises(errors.NotAMemoryFile):
                imported(memory().store, [*lines[:place], *lines[place + 1 :]])


def test_an_export_to_standard_output_loses_no_character(path: Path):
    with Memory(path, encoder=None) as m:
        m.add("\u200fשלום\u200e \u202aa\u202c \u2028 b", metadata={"k\x1b[31m": "\x9b2J"})
        listed = list(exported(m.store))
    done = command("export", "-", "--file", path)
    assert done.exit_code == 0
    assert [json.loads(line) for line in done.output.splitlines()] == [json.loads(line) for line in listed]
    assert not set("\u200f\u202a\x1b\x9b") & set(done.output)


# What decisions log of their candidates: packed, read as it was in files of before, and named where it is damaged.


PAIRS = st.lists(st.tuples(st.integers(1, 2**32 - 1).map(lambda n: f"m{n}"), st.floats(-2000, 2000)), max_size=120)
ODD = st.tuples(
    st.one_of(st.integers(1, 2**60).map(lambda n: f"m{n}"), st.sampled_from(["m0", "m01", "x", "", "m1.5"])),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(PAIRS)
def test_packed_scores_round_trip_to_six_digits(pairs: list[tuple[str, float]]):
    listed = packed(pairs)
    found = unpacked(listed)
    assert [id for id, _ in found] == [id for id, _ in pairs]
    assert all(abs(now - before) <= 0.500001e-6 for (_, now), (_, before) in zip(found, pairs, strict=True))
    assert packed(found) == listed
    assert unpacked(as_json(found)) == found  # as a file of before, and an export, have it
    assert named(listed) == named(as_json(pairs)) == {int(id[1:]) for id, _ in pairs}
    assert len(listed) == (8 * len(pairs) or len("[]"))


@given(st.lists(ODD, min_size=1, max_size=5))
def test_unpackable_candidates_are_written_as_json(pairs: list[tuple[str, float]]):
    assert [id for id, _ in unpacked(packed(pairs))] == [id for id, _ in pairs]
    for score in (math.inf, -math.inf, math.nan, 2147.5, -2148.0):
        assert isinstance(packed([*pairs, ("m1", score)]), str)


def opened(path: Path) -> Memory:
    return Memory(path, encoder="hashing", seed=1)


def searched(path: Path) -> str:
    """A memory with a decision outside an episode; its id."""
    with opened(path) as m:
        m.add_many([f"the cat number {number}" for number in range(30)])
        return m.search("which cat has the number 3?", top_k=3).decision


def logged(path: Path) -> Any:
    with opened(path) as m:
        return rows(m, "SELECT query, candidates, chosen FROM decisions")


def test_export_writes_candidates_as_json_and_import_packs_them(tmp_path: Path):
    searched(tmp_path / "a.mem")
    with opened(tmp_path / "a.mem") as m:
        lines = list(exported(m.store))
    (decision,) = (json.loads(line)["decision"] for line in lines if line.startswith('{"decision"'))
    assert json.loads(decision[8])[0][0].startswith("m")
    with opened(tmp_path / "b.mem") as m:
        imported(m.store, lines)
        assert check(m.store) == []
        assert list(exported(m.store)) == lines
    assert logged(tmp_path / "b.mem") == logged(tmp_path / "a.mem")


def test_query_is_erased_with_an_item_it_only_considered(path: Path):
    searched(path)
    ((_, listed, chosen),) = logged(path)
    (considered, *_) = [id for id, _ in unpacked(listed) if id not in json.loads(chosen)]
    with opened(path) as m:
        m.forget(considered, purge_history=True)
        assert check(m.store) == []
    assert [query for query, *_ in logged(path)] == [""]


def test_a_damaged_row_is_named(path: Path):
    id = searched(path)
    behind_its_back(path, "UPDATE decisions SET candidates = x'0102'")
    with opened(path) as m:
        assert m.forget("m30", purge_history=True).ids == ("m30",)  # does not read the row
        with pytest.raises(errors.MemoryProblem, match=f"the candidates of decision '{id}' cannot be read"):
            list(exported(m.store))
