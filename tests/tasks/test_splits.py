from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from keepworth.worlds.data_sets.files import assign_sides
from keepworth.worlds.splits import SPLITS, draw_order, side, tied


def test_side_follows_the_hash() -> None:
    # The last decimal digit of sha256, worked out apart from the code.
    for name in ("q1", "gpt4_2655b836", "", "é"):
        digit = int.from_bytes(hashlib.sha256(name.encode("utf-8")).digest(), "big") % 10
        assert side(name) == ("train" if digit <= 5 else "dev" if digit == 6 else "test")
    assert {side(str(n)) for n in range(100)} == set(SPLITS)


def test_ties_are_transitive_and_named_after_the_smallest() -> None:
    assert tied({"c": ["x"], "a": ["y"], "b": ["x", "y"], "d": ["z"], "e": []}) == {
        "a": "a", "b": "a", "c": "a", "d": "d", "e": "e",
    }  # fmt: skip


@given(st.dictionaries(st.text(max_size=4), st.sets(st.integers(0, 8), max_size=3), max_size=12))
def test_no_mark_is_on_two_sides_and_order_does_not_matter(marks: dict[str, set[int]]) -> None:
    found = assign_sides(marks)
    for mark in range(9):
        assert len({found[name] for name in marks if mark in marks[name]}) <= 1
    assert assign_sides(dict(reversed(list(marks.items())))) == found
    assert all(name >= root and tied(marks)[root] == root for name, root in tied(marks).items())


def test_draw_order_tells_its_parts_apart() -> None:
    assert draw_order(1, "ab", "c") != draw_order(1, "a", "bc") != draw_order(2, "a", "bc")
    assert draw_order(0, "a") == hashlib.sha256(b"0\x1fa").hexdigest()
