from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.base.errors import UnknownName
from keepworth.methods.recipes import _strings as strings
from keepworth.methods.recipes._strings import FUNCTIONS, WORDS, compositions, novel, string_tasks, value
from keepworth.worlds.splits import SPLITS
from keepworth.worlds.verifiers import last_value, same_words

X = ("a", "b", "c")


def test_every_function_by_hand() -> None:
    found = {name: " ".join(function(X)) for name, function in FUNCTIONS.items()}
    assert found == {
        "f": "c b a", "g": "b c a", "h": "c b a", "k": "b c", "m": "a b c a", "n": "c a b c", "p": "a b", "q": "a a b c",
        "r": "c a b", "s": "b a c", "t": "a b c c", "v": "a c",
    }  # fmt: skip
    assert value(("h",), ("a", "b", "c", "d")) == ("d", "b", "c", "a")
    assert strings.steps(("f", "g"), X) == ["g(a b c) = b c a", "f(b c a) = a c b"]


@pytest.mark.parametrize(("depth", "least"), [(2, 25), (3, 100)])
@pytest.mark.parametrize("split", ["dev", "test"])
def test_held_out_compositions_differ_in_value_from_trained_ones(split: str, depth: int, least: int) -> None:
    """`hh` is `ff`, and `pq` is `qp`: held out by name alone, they would test memory and not composition."""
    for length in (4, 5):
        argument = WORDS[:length]
        trained = [names for upto in range(1, depth + 1) for names in compositions("train", upto)]
        known = {value(names, argument) for names in trained}
        held_out = novel(split, depth, length)
        assert not known & {value(names, argument) for names in held_out}
        assert set(held_out) <= set(compositions(split, depth))
        assert len(held_out) >= (least if split == "test" else least // 2)
    asked = string_tasks(split, 60, depth=depth)
    assert {strings.composition_of(task.key) for task in asked} <= {"(".join(names) for names in novel(split, depth, 4)}
    assert novel("train", depth, 4) == compositions("train", depth)


@pytest.mark.parametrize("depth", [2, 3])
def test_no_composition_is_on_two_sides(depth: int) -> None:
    sets = {split: set(compositions(split, depth)) for split in SPLITS}
    assert sum(map(len, sets.values())) == len(FUNCTIONS) ** depth
    assert set.union(*sets.values()) == {names for split in SPLITS for names in sets[split]}


def test_a_deep_composition_is_trained_only_if_all_its_pairs_are() -> None:
    pairs = {split: set(compositions(split, 2)) for split in SPLITS}
    assert all(set(pairwise(names)) <= pairs["train"] for names in compositions("train", 3))
    assert all(set(pairwise(names)) & pairs["test"] for names in compositions("test", 3))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(SPLITS), st.integers(1, 3), st.integers(0, 5))
def test_tasks_are_right_distinct_and_reproducible(split: str, depth: int, seed: int) -> None:
    tasks = string_tasks(split, 12, seed, depth=depth, length=5)
    assert len({task.key for task in tasks}) == 12
    for task in tasks:
        inner = task.input.rstrip(")")
        words = tuple(inner.rpartition("(")[2].split())
        assert len(words) == 5
        assert set(words) <= set(WORDS)
        assert tuple(task.answers[0].split()) == value(task.tags["composition"], words)
        assert same_words(f"{task.input} = {strings.worked_out(task)}", task.answers) == 1.0
        assert same_words(", ".join(strings.steps(tuple(task.tags["composition"]), words)), task.answers) == 1.0
    assert string_tasks(split, 12, seed, depth=depth, length=5) == tasks


def test_a_few_compositions_show_every_function_inside_and_outside() -> None:
    first = strings.covering("train", 2)[:13]
    assert {inner for _, inner in first} == {outer for outer, _ in first} == set(FUNCTIONS)
    assert sorted(strings.covering("train", 2)) == sorted(compositions("train", 2))
    assert {task.tags["composition"] for task in string_tasks("train", 30, only=13)} == {
        "".join(each) for each in first
    }


def test_answer_is_the_last_value_of_the_first_line() -> None:
    assert last_value(" f(b a) =  a b \nmore = c") == "a b"
    assert same_words("a  b", ("a b",)) == 1.0
    assert same_words("b a", ("a b",)) == 0.0
    assert same_words("A b", ("a b",)) == 0.0
    assert same_words("", ("a b",)) == 0.0


def test_unknown_split_and_too_many_tasks_are_refused() -> None:
    with pytest.raises(UnknownName, match="tets"):
        string_tasks("tets", 1)
    with pytest.raises(ValueError, match="more than train has"):
        string_tasks("train", 10**7)
