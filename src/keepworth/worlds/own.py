"""Tasks of the user: rows of data, in a file of JSON lines or in Python, one task each.

    {"prompt": "What is 3 + 4?", "answer": "7"}
    {"prompt": [{"role": "user", "content": "What is 3 + 4?"}], "solution": "7", "split": "test", "id": "a-17"}

An `id` names the row; by default its place does. docs/training.md describes the other fields. All that it does not name are for
the user's reward, which receives the whole row."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from keepworth.base.errors import KeepworthError, nearest
from keepworth.records.episode import Observation, Task
from keepworth.worlds.data_files import WrongFormat, rows_of
from keepworth.worlds.json_lines import json_lines, sessions_of
from keepworth.worlds.splits import SPLITS, draw_order, side, tied

PROMPTS = ("prompt", "question", "input", "problem", "instruction", "text")
ROLES = ("system", "user", "assistant", "tool")


class MissingField(KeepworthError, KeyError):
    """A reward reads a field that the row does not have."""

    __str__ = KeepworthError.__str__


class DataRow(dict[str, Any]):
    """A row of data whose KeyError names the missing field and the row's place."""

    place = ""

    def __missing__(self, name: str) -> Any:
        near = nearest(name, self)
        raise MissingField(
            f"{self.place} has no field {name!r}, which the reward reads.",
            f"Did you mean {near!r}?" if near else f"There are {', '.join(map(repr, self))}.",
        )


@dataclass(frozen=True, slots=True)
class OwnTasks:
    """Tasks by split.

    Attributes:
        name: The name of their source.
        digest: A hash of all rows.
        cluster: The cluster of each task, by its key.
        note: Stands under the tables of a run.
        remark: Is said when a run begins.
    """

    name: str
    digest: str
    by_split: Mapping[str, tuple[Task, ...]]
    cluster: Mapping[str, str]
    note: str = ""
    remark: str = ""

    @property
    def all(self) -> tuple[Task, ...]:
        return tuple(task for split in SPLITS for task in self.by_split[split])


def own_tasks(
    source: Path | str | Iterable[Mapping[str, Any] | Task], *, name: str = "", by_row: bool = False
) -> OwnTasks:
    """Returns the tasks of a file, or of rows or tasks in memory. Raises WrongFormat, which names file, row and field.

    Args:
        source: The path of a file, or rows and tasks.
        name: The name of the set, with which keys begin; that of the file, or "rows", by default.
        by_row: Whether rows with the same prompt are different tasks where another field differs, as where an environment makes
            worlds of them.
    """
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        name = name or path.name.split(".")[0]
        lines = rows_of(path)
        if "questions" in lines[0][1]:
            return _whole_file(path, name)
        rows: list[tuple[str, Mapping[str, Any] | Task]] = list(lines)
    else:
        name = name or "rows"
        rows = [(f"row {number} of {name}", row) for number, row in enumerate(source, start=1)]
    if not rows:
        raise WrongFormat(f"{name} holds no row.", "Give at least one task for training and one to measure on.")
    tasks, marks, named = [], dict[str, set[str]](), dict[str, str]()
    for number, (location, row) in enumerate(rows, start=1):
        task = row if isinstance(row, Task) else _task(row, location, f"{name}/{_id(row, number, location)}", name)
        _require_whole_characters(task, location)
        if task.key in marks:
            raise WrongFormat(f"{location}: the key {task.key!r} comes twice.", "Give each row an id of its own.")
        group = str(task.row.get("group", ""))
        # Rows with the same question are in one split, so that no question is both trained and measured on.
        marks[task.key] = {f"asks\x1f{_ask(task, by_row)}", *([f"group\x1f{group}"] if group else [])}
        if split := str(task.tags.get("split", "")):
            named[task.key] = split
        tasks.append(task)
    if 0 < len(named) < len(tasks):
        missing = next(location for (location, _), task in zip(rows, tasks, strict=True) if task.key not in named)
        raise WrongFormat(
            f"{missing}: there is no split, and other rows have one.", "Name the split of all rows, or of none."
        )
    by_side, note = (named, "") if named else divide(marks)
    by_split = {split: tuple(_on(task, split) for task in tasks if by_side[task.key] == split) for split in SPLITS}
    _require_apart(by_split, marks)
    # The tasks are shuffled, because only the first of them may be measured, and files are often sorted by question.
    for split in ("dev", "test"):
        by_split[split] = tuple(sorted(by_split[split], key=lambda task: draw_order(task.key.removeprefix(f"{name}/"))))
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(
            repr((task.key, task.input, task.answers, sorted(task.row.items(), key=str), by_side[task.key])).encode()
        )
    cluster = {task.key: str(task.row.get("group", "")) or task.key for task in tasks}
    return OwnTasks(name, digest.hexdigest()[:16], by_split, cluster, note)


def _ask(task: Task, by_row: bool) -> str:
    fields = {key: value for key, value in task.row.items() if key not in ("id", "split", "group")}
    if by_row and fields:
        return json.dumps(fields, sort_keys=True, default=str)
    messages = messages_of(task)
    if len(messages) > 1:  # other conversations may end with the same question
        return json.dumps(
            [(message.get("role"), " ".join(str(message.get("content")).split())) for message in messages]
        )
    return " ".join(task.input.split())


def divide(marks: Mapping[str, Iterable[str]]) -> tuple[dict[str, str], str]:
    """Assigns each task to a split by the fixed rule, and describes the result. Where the rule leaves a split empty, the last set
    of tied tasks of the largest split goes there."""
    smallest = tied(marks)
    split_by_root = {value: side(value) for value in set(smallest.values())}
    for split in ("train", "test", "dev"):
        counts = Counter(split_by_root.values())
        largest = max(SPLITS, key=lambda split_: counts[split_])
        if not counts[split] and counts[largest] > 1:
            split_by_root[max(key for key in split_by_root if split_by_root[key] == largest)] = split
    split_of = {key: split_by_root[root] for key, root in smallest.items()}
    counts = Counter(split_of.values())
    return split_of, "The rows name no split: " + ", ".join(f"{counts[name]} {name}" for name in SPLITS) + "."


def _require_apart(by_split: Mapping[str, Sequence[Task]], marks: Mapping[str, set[str]]) -> None:
    """Raises WrongFormat where a prompt or a group is in the training split and in another."""
    trained = {mark: task.key for task in by_split["train"] for mark in marks[task.key]}
    for split in ("dev", "test"):
        for task in by_split[split]:
            for mark in marks[task.key] & set(trained):
                kind, _, what = mark.partition("\x1f")
                alike = "asks the same as" if kind == "asks" else f"is of the group {what!r:.40}, like"
                raise WrongFormat(
                    f"{task.key}, of the {split} split, {alike} {trained[mark]} of the training split.",
                    "Put both on one side: what is measured must not have been trained on.",
                )


def _require_whole_characters(task: Task, place: str) -> None:
    """Raises WrongFormat for half of a character that UTF-16 writes in two, such as of an emoji: no file and no tokenizer takes
    it."""
    texts: dict[str, Any] = {"prompt": task.input, "answers": task.answers, "verifier": task.verifier, **task.row}
    for field, value in texts.items():
        text = json.dumps([field, value], ensure_ascii=False, default=str)
        if half := next((letter for letter in text if "\ud800" <= letter <= "\udfff"), ""):
            raise WrongFormat(
                f"{place}: {field.encode('ascii', 'replace').decode()} holds half of a character ({half!a}).",
                "Write the whole character, or leave it out.",
            )


def _on(task: Task, split: str) -> Task:
    return replace(task, tags={**task.tags, "split": split})


def _whole_file(path: Path, name: str) -> OwnTasks:
    """Reads a file of haystacks with their questions. Lines without splits are divided by their writes."""
    sides_of = {split: tuple(json_lines(split, data=path)) for split in SPLITS}
    for task in sides_of["test"]:
        _require_whole_characters(task, task.key)
    cluster = {task.key: task.tags["cluster"] for split in SPLITS for task in sides_of[split]}
    note = ""
    if {task.key for task in sides_of["train"]} == {task.key for task in sides_of["test"]}:  # no line names a split
        tasks = sides_of["test"]
        by_side, note = divide({task.key: {task.tags["cluster"], " ".join(task.input.split())} for task in tasks})
        sides_of = {split: tuple(_on(task, split) for task in tasks if by_side[task.key] == split) for split in SPLITS}
    return OwnTasks(name, hashlib.sha256(path.read_bytes()).hexdigest()[:16], sides_of, cluster, note)


def _id(row: object, number: int, place: str) -> str:
    if not isinstance(row, Mapping):
        raise WrongFormat(
            f"{place}: {row!r:.60} is no row.", 'Give mappings, such as {"prompt": "...", "answer": "..."}.'
        )
    id = row.get("id", number)
    return str(id) if isinstance(id, str | int) else str(number)


def _task(row: Mapping[str, Any], place: str, key: str, source: str) -> Task:
    field = next((name for name in PROMPTS if row.get(name)), "")
    if not field:
        near = next((similar for column in row if (similar := nearest(column, PROMPTS))), None)
        fix = f"Write {near!r}." if near else f"There are {', '.join(map(repr, row))}."
        raise WrongFormat(f"{place}: there is no prompt (one of {', '.join(PROMPTS)}).", fix)
    prompt = row[field]
    text = prompt if isinstance(prompt, str) else _last_asked(prompt, f"{place}: {field}")
    split = row.get("split", "")
    split = {"validation": "dev", "valid": "dev", "eval": "dev"}.get(split, split) if isinstance(split, str) else split
    if split and split not in SPLITS:
        raise WrongFormat(f"{place}: split is {split!r}.", f"Write one of {', '.join(SPLITS)}.")
    answers = row.get("answers", row.get("answer"))
    texts = (
        tuple(map(str, answers)) if isinstance(answers, list | tuple) else () if answers is None else (str(answers),)
    )
    data_row = DataRow(row)
    data_row.place = place
    try:
        json.dumps(row)
    except (TypeError, ValueError) as error:
        raise WrongFormat(
            f"{place}: a field cannot be written as JSON: {error}.", "Use texts, numbers, lists, mappings."
        ) from None
    return Task(
        key=key,
        source=source,
        input=text,
        answers=texts,
        verifier=str(row.get("verifier") or ""),
        sessions=tuple(sessions_of(row, key, place)[0]) if row.get("writes") else (),
        tags={"split": str(split)} if split else {},
        row=data_row,
    )


def messages_of(task: Task) -> tuple[Mapping[str, Any], ...]:
    """Returns the conversation of the task's prompt; an empty tuple where the prompt is one text."""
    prompt = next((task.row[name] for name in PROMPTS if task.row.get(name)), "")
    return () if isinstance(prompt, str) else tuple(prompt)


def first_observation(task: Task, text: str, actions: Sequence[str] = ()) -> Observation:
    """Returns what is seen first in a game: the prompt of the task's row, and behind it the text of the game.

    Args:
        task: The task, whose row may introduce the game.
        text: What the game says.
        actions: What is possible; () for anything.
    """
    messages = list(messages_of(task))
    if messages:
        messages[-1] = {**messages[-1], "content": f"{messages[-1]['content']}\n\n{text}"}
    return Observation(f"{task.input}\n\n{text}".strip(), actions=tuple(actions), messages=tuple(messages))


def seed_of(task: Task) -> int:
    """Returns the seed of the world of a task: that of its row, else a number made of its key, so that a group plays one
    world."""
    return int(task.row.get("seed", crc32(task.key.encode())))


def tools_of(task: Task) -> tuple[Mapping[str, Any], ...]:
    """Returns the schemas in the row's field `tools`, in OpenAI's form; an empty tuple where there are none."""
    tools = task.row.get("tools")
    named = isinstance(tools, list | tuple) and all(
        isinstance(tool, Mapping) and isinstance(tool.get("function"), Mapping) and "name" in tool["function"]
        for tool in tools
    )
    return tuple(tools) if named and isinstance(tools, list | tuple) else ()


def last_said(row: Mapping[str, Any]) -> str:
    """Returns the last text of the row's prompt; "" where it has none."""
    prompt = next((row[name] for name in PROMPTS if row.get(name)), "")
    return prompt if isinstance(prompt, str) else str(prompt[-1].get("content", ""))


def _last_asked(prompt: Any, where: str) -> str:
    """Returns the last text of a user in a conversation. Raises WrongFormat."""
    if not isinstance(prompt, list | tuple) or not prompt:
        raise WrongFormat(f"{where} is {prompt!r:.60}.", "Write a text, or a list of messages.")
    for number, message in enumerate(prompt, start=1):
        if (
            not isinstance(message, Mapping)
            or message.get("role") not in ROLES
            or not isinstance(message.get("content"), str)
        ):
            raise WrongFormat(
                f"{where}, message {number} is {message!r:.60}.",
                f'Write {{"role": "user", "content": "..."}}; roles are {", ".join(ROLES)}.',
            )
    if prompt[-1]["role"] == "assistant":
        raise WrongFormat(f"{where} ends with what the assistant said.", "End it with what the assistant is to answer.")
    questions = [str(message["content"]) for message in prompt if message["role"] == "user"]
    if not questions:
        raise WrongFormat(f"{where} has no message of a user.", "Add one.")
    return questions[-1]
