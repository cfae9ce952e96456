"""What decisions log of their candidates: packed, read as it was in files of before, and named where it is damaged."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.memory import errors
from keepworth.memory.memory import Memory
from keepworth.memory.store.checks import check
from keepworth.memory.store.decision_log import as_json, named, packed, unpacked
from keepworth.memory.store.transfer import exported, imported

PAIRS = st.lists(st.tuples(st.integers(1, 2**32 - 1).map(lambda n: f"m{n}"), st.floats(-2000, 2000)), max_size=120)
ODD = st.tuples(
    st.one_of(st.integers(1, 2**60).map(lambda n: f"m{n}"), st.sampled_from(["m0", "m01", "x", "", "m1.5"])),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(PAIRS)
def test_what_is_packed_comes_back_with_six_digits(pairs: list[tuple[str, float]]):
    listed = packed(pairs)
    found = unpacked(listed)
    assert [id for id, _ in found] == [id for id, _ in pairs]
    assert all(abs(now - before) <= 0.500001e-6 for (_, now), (_, before) in zip(found, pairs, strict=True))
    assert packed(found) == listed
    assert unpacked(as_json(found)) == found  # as a file of before, and an export, have it
    assert named(listed) == named(as_json(pairs)) == {int(id[1:]) for id, _ in pairs}
    assert len(listed) == (8 * len(pairs) or len("[]"))


@given(st.lists(ODD, min_size=1, max_size=5))
def test_what_cannot_be_packed_is_written_in_words(pairs: list[tuple[str, float]]):
    assert [id for id, _ in unpacked(packed(pairs))] == [id for id, _ in pairs]
    for score in (math.inf, -math.inf, math.nan, 2147.5, -2148.0):
        assert isinstance(packed([*pairs, ("m1", score)]), str)


def searched(path: Path) -> tuple[str, str]:
    """A memory with a decision outside an episode; its id and its query."""
    with Memory(path, encoder="hashing", seed=1) as m:
        m.add_many([f"the cat number {number}" for number in range(30)])
        return m.search("which cat has the number 3?", top_k=3).decision, "which cat has the number 3?"


def logged(path: Path) -> Any:
    with Memory(path, encoder="hashing", seed=1) as m, m.store.database.reading() as connection:
        return connection.execute("SELECT query, candidates, chosen FROM decisions").fetchall()


def written(path: Path, statement: str, *values: Any) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement, values)
    connection.close()


def test_an_export_says_them_in_json_and_an_import_packs_them(tmp_path: Path):
    searched(tmp_path / "a.mem")
    with Memory(tmp_path / "a.mem", encoder="hashing", seed=1) as m:
        lines = list(exported(m.store))
    (decision,) = (json.loads(line)["decision"] for line in lines if line.startswith('{"decision"'))
    assert json.loads(decision[8])[0][0].startswith("m")
    with Memory(tmp_path / "b.mem", encoder="hashing", seed=1) as m:
        imported(m.store, lines)
        assert check(m.store) == []
        assert list(exported(m.store)) == lines
    assert logged(tmp_path / "b.mem") == logged(tmp_path / "a.mem")


def test_a_question_is_forgotten_with_an_item_that_it_only_considered(tmp_path: Path):
    path = tmp_path / "a.mem"
    searched(path)
    ((_, listed, chosen),) = logged(path)
    (considered, *_) = [id for id, _ in unpacked(listed) if id not in json.loads(chosen)]
    with Memory(path, encoder="hashing", seed=1) as m:
        m.forget(considered, purge_history=True)
        assert check(m.store) == []
    ((query, *_),) = logged(path)
    assert query == ""


def test_a_damaged_row_is_named(tmp_path: Path):
    path = tmp_path / "a.mem"
    id, _ = searched(path)
    written(path, "UPDATE decisions SET candidates = x'0102'")
    with Memory(path, encoder="hashing", seed=1) as m:
        gone = m.forget("m30", purge_history=True)  # does not read the row
        assert gone is not None
        assert gone.ids == ("m30",)
        with pytest.raises(errors.MemoryProblem, match=f"the candidates of decision '{id}' cannot be read"):
            list(exported(m.store))
