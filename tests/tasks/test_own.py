"""Rows of one's own become tasks: what is wrong with them is named, and nothing that is measured was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.records.episode import Episode, Exchange, RewardTerm, StopReason
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.own import DataRow, MissingField, messages_of, own_tasks
from keepworth.worlds.splits import SPLITS
from keepworth.worlds.traces import write_traces
from tests.tasks.test_json_lines import line


def rows(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"prompt": f"What is {n} + 1?", "answer": str(n + 1), **more} for n in range(count)]


def written(path: Path, *lines: Mapping[str, Any] | str) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


@given(
    st.lists(
        st.fixed_dictionaries({"prompt": st.sampled_from("abcdefghij"), "group": st.sampled_from(["", "x", "y", "z"])}),
        min_size=1,
        max_size=30,
    )
)
def test_equal_prompts_and_groups_share_a_split(data: list[dict[str, Any]]) -> None:
    found = own_tasks(data)
    assert sum(map(len, found.by_split.values())) == len(data)
    prompts = [{task.input for task in found.by_split[split]} for split in SPLITS]
    groups = [{task.row["group"] for task in found.by_split[split]} - {""} for split in SPLITS]
    for sides in (prompts, groups):
        assert not sides[0] & sides[1] | sides[0] & sides[2] | sides[1] & sides[2]


@given(st.integers(3, 40))
def test_of_three_rows_or_more_each_side_has_one(count: int) -> None:
    assert all(own_tasks(rows(count)).by_split.values())


def test_a_row_stays_on_its_side_when_others_are_added() -> None:
    few, many = (own_tasks(rows(count), name="mine") for count in (40, 80))
    side = {task.key: split for split in SPLITS for task in many.by_split[split]}
    assert all(side[task.key] == split for split in SPLITS for task in few.by_split[split])


def test_named_splits_are_taken_and_may_not_share_a_prompt(tmp_path: Path) -> None:
    named = [{**row, "split": split} for row, split in zip(rows(3), ("train", "validation", "test"), strict=True)]
    found = own_tasks(written(tmp_path / "my.jsonl", *named))
    assert [len(found.by_split[split]) for split in SPLITS] == [1, 1, 1]
    assert found.by_split["dev"][0].key == "my/2"
    with pytest.raises(WrongFormat, match=r"my/4, of the test split, asks the same as my/1"):
        own_tasks(written(tmp_path / "my.jsonl", *named, {**named[0], "split": "test"}))
    with pytest.raises(WrongFormat, match=r"line 4: there is no split, and other rows have one"):
        own_tasks(written(tmp_path / "my.jsonl", *named, rows(9)[8]))


@pytest.mark.parametrize(("line", "says"), [
    ("[1, 2]", r"my.jsonl, line 2: this is no object"),
    ('{"prompt": ', r"my.jsonl, line 2: this is no JSON"),
    ({"promt": "a"}, r"line 2: there is no prompt.*Write 'prompt'"),
    ({"prompt": "a", "split": "tset"}, r"line 2: split is 'tset'"),
    ({"prompt": [{"role": "human", "content": "a"}]}, r"line 2: prompt, message 1 is"),
    ({"prompt": [{"role": "assistant", "content": "a"}]}, r"line 2: prompt ends with what the assistant said"),
    ({"prompt": [{"role": "system", "content": "a"}]}, r"line 2: prompt has no message of a user"),
    ({"prompt": "a", "id": 1}, r"line 2: the key 'my/1' comes twice"),
])  # fmt: skip
def test_a_row_that_is_wrong_is_named(tmp_path: Path, line: Any, says: str) -> None:
    with pytest.raises(WrongFormat, match=says):
        own_tasks(written(tmp_path / "my.jsonl", rows(1)[0], line))


def test_an_empty_file_and_no_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(WrongFormat, match="holds no line"):
        own_tasks(written(tmp_path / "empty.jsonl"))
    with pytest.raises(WrongFormat, match="is no file"):
        own_tasks(tmp_path / "none.jsonl")
    with pytest.raises(WrongFormat, match="holds no row"):
        own_tasks([])


def test_a_conversation_asks_with_its_last_user() -> None:
    said = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    (task,) = own_tasks([{"prompt": said}]).all
    assert task.input == "b"
    assert list(messages_of(task)) == said
    assert messages_of(own_tasks([{"prompt": "a"}]).all[0]) == ()


def test_a_field_that_is_missing_is_named_with_its_row() -> None:
    row = DataRow(solution="1")
    row.place = "my.jsonl, line 7"
    with pytest.raises(MissingField, match=r"my.jsonl, line 7 has no field 'soluton'.*Did you mean 'solution'"):
        row["soluton"]


def test_a_file_of_haystacks_is_divided_by_its_writes(tmp_path: Path) -> None:
    asked = [[{"text": f"Where {n}?", "answers": [str(n)]}] for n in range(12)]
    lines = (line(n, questions=questions) for n, questions in enumerate(asked))
    found = own_tasks(written(tmp_path / "mine.jsonl", *lines))
    assert all(found.by_split.values())
    assert found.all[0].sessions


def test_splits_of_a_sorted_file_are_balanced() -> None:
    rows = [
        {"prompt": f"{label} {number} {split}", "answer": label, "split": split}
        for split in SPLITS
        for label in "ab"
        for number in range(50)
    ]
    own = own_tasks(rows)
    assert [task.answers[0] for task in own.by_split["train"]] == ["a"] * 50 + ["b"] * 50
    for split in ("dev", "test"):
        first = [task.answers[0] for task in own.by_split[split][:20]]
        assert 4 <= first.count("a") <= 16
        of_split = {task.key for task in own.all if task.tags["split"] == split}
        assert {task.key for task in own.by_split[split]} == of_split


USER, SAID = {"role": "user", "content": "3 + 3?"}, {"role": "assistant", "content": "6"}


def test_episodes_and_completions_of_trl_are_rows(tmp_path: Path) -> None:
    terms = (RewardTerm("right", 1.0), RewardTerm("length", -0.5, weight=0.5))
    stop, said = StopReason.COMPLETED, (Exchange("3 + 3?", "6"),)
    episode = Episode("e", "t", "", "3 + 3?", (), "6", ("6",), terms, stop, "", 0, exchanges=said)
    assert write_traces(tmp_path / "ours.jsonl", [episode]) == 1
    (task,) = own_tasks(tmp_path / "ours.jsonl").all
    assert (task.input, task.answers) == ("3 + 3?", ("6",))
    assert (task.row["prompt"], task.row["completion"]) == ([USER], [SAID])
    assert (task.row["reward"], task.row["rewards"]) == (0.75, {"right": 1.0, "length": -0.5})
    line = {"step": 3, "prompt": [USER], "completion": [SAID], "right": 1.0, "advantage": 0.7, "solution": "6"}
    (tmp_path / "theirs.jsonl").write_text(json.dumps(line))
    (task,) = own_tasks(tmp_path / "theirs.jsonl").all
    assert (task.input, task.row["solution"], task.row["right"]) == ("3 + 3?", "6", 1.0)
