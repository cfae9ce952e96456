"""Tasksets of verifiers as questions: `keepworth eval run verifiers:NAME`.

A model plays the tasks of a split, as in training (`keepworth.training.tasksets`), and the taskset rewards what it does. A memory
holds attempts of the same model at tasks for training, with what they earned. What it shows for a task stands at the end of the
task's prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from inspect import signature
from typing import TYPE_CHECKING, Any

from keepworth.base.chat import ChatModel
from keepworth.base.errors import KeepworthError, require_known
from keepworth.base.extras import require
from keepworth.base.text import as_line
from keepworth.evaluation.harness import BenchmarkReader, Played, plays_of
from keepworth.records.episode import Session, Task, Turn
from keepworth.training.tasksets import PlayedTaskset, UnusableTaskset, load_taskset
from keepworth.worlds.benchmark import digest, read_settings
from keepworth.worlds.environment import in_lasting_loop
from keepworth.worlds.splits import draw_order

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.training.model_server import ModelServer

KEYLESS = "KEEPWORTH_NO_KEY"
"""A variable that is not set, for models without a key."""
CHARACTERS = 4
"""Characters counted as one token of the budget."""
SPLITS = ("dev", "test")
"""The splits that can be measured. Tasks for training are those that are tried first."""


@dataclass(frozen=True, slots=True)
class OpenedTaskset:
    """A taskset whose tasks are asked.

    Attributes:
        taskset: The taskset.
        questions: The tasks that are measured.
        attempted: The tasks for training that are tried first, without a memory.
        max_tokens: The most tokens of one answer of the model.
        identity: What says which tasks they are, in the record of an evaluation.
    """

    taskset: PlayedTaskset
    questions: list[Task]
    attempted: list[Task]
    max_tokens: int
    identity: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the folder of its evaluations."""
        return "".join(letter if letter.isalnum() or letter in "-_.=" else "-" for letter in self.taskset.name)


def open_taskset(name: str, split: str, assign: Sequence[str], limit: int) -> OpenedTaskset:
    """Opens a taskset. Raises KeepworthError where it cannot be loaded, or a split of it is empty.

    Args:
        name: `verifiers:NAME`, with the taskset's settings behind it.
        split: The split whose tasks are asked.
        assign: Settings of the evaluation, as words NAME=VALUE.
        limit: The most questions; 0 for all.
    """
    if split == "train":
        raise KeepworthError(
            f"the tasks for training of {name} are tried before a question is asked.",
            f"Measure on another split: --split {' or '.join(SPLITS)}.",
        )
    require_known("split", split, SPLITS)

    def settings(*, attempts: int = 16, max_tokens: int = 256) -> dict[str, int]:
        return {"attempts": attempts, "max_tokens": max_tokens}

    chosen = settings(**read_settings(signature(settings).parameters, assign, f"taskset {name!r}"))
    if chosen["attempts"] < 0 or chosen["max_tokens"] < 1:
        raise KeepworthError("attempts is 0 or more, and max_tokens is 1 or more.", "Set them higher.")
    taskset = load_taskset(name)
    by_split = taskset.tasks.by_split
    for side in ("train", split):
        if not by_split[side]:
            raise KeepworthError(
                f"{name} has {len(taskset.rows)} different tasks, and none in its split {side!r}.",
                "Give the taskset settings with more tasks, or choose another --split.",
            )
    # They are asked of one memory, so they are one cluster.
    questions = [replace(task, tags={**task.tags, "cluster": taskset.name}) for task in by_split[split]]
    whole = len(questions)
    if limit:
        questions = sorted(questions, key=lambda task: draw_order("limit", task.key))[:limit]
    attempted = list(by_split["train"][: chosen["attempts"]])
    identity = {
        "benchmark": taskset.name,
        "split": split,
        "dials": chosen,
        "questions": len(questions),
        "of": whole,
        "data": digest([*questions, *attempted]),
        "scoring": f"rewards of verifiers {version('verifiers')}",
    }
    return OpenedTaskset(taskset, questions, attempted, chosen["max_tokens"], identity)


class TasksetReader:
    """A model that plays the tasks of a taskset.

    Args:
        opened: The taskset.
        url: The model's address.
        model: Its name there.
        key_variable: The environment variable that holds its key; "" for none.
        identity: What the model is called in the record of an evaluation; by default its name and address.
        server: Serves a model of this process at that address; None where it is served elsewhere.
    """

    room = 8000

    def __init__(
        self,
        opened: OpenedTaskset,
        url: str,
        model: str,
        *,
        key_variable: str = "",
        identity: str = "",
        server: ModelServer | None = None,
    ) -> None:
        chat = ChatModel(url, model, key_variable=key_variable)
        self._opened, self._model, self._server = opened, model, server
        self._url, self._key_variable = f"{url.rstrip('/').removesuffix('/v1')}/v1", key_variable or KEYLESS
        limits = {"max_tokens": opened.max_tokens}
        self._sampling = limits if chat.reasoning else {"temperature": 0.0, **limits}
        self.identity = f"{identity or f'{model}@{url}'} plays {opened.taskset.name}"

    def tokens(self, text: str) -> int:
        """Returns the tokens that a text counts in the budget."""
        return -(-len(text) // CHARACTERS)

    def answers(self, queries: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
        raise NotImplementedError("tasks of a taskset are played")

    def choices(self, queries: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> list[int]:
        raise NotImplementedError("tasks of a taskset are played")

    def plays(self, queries: Sequence[tuple[Task, Sequence[str]]]) -> list[Played]:
        """Plays tasks at the same time. `queries` are tasks with the texts that a memory shows. One that failed says why."""

        async def play_all() -> list[Played]:
            return list(await asyncio.gather(*(in_lasting_loop(self._play(*query)) for query in queries)))

        return asyncio.run(play_all())

    async def _play(self, task: Task, texts: Sequence[str]) -> Played:
        block = "\n\nMemory:\n" + "\n".join(f"- {as_line(text)}" for text in texts) if texts else ""
        try:
            ended = await self._opened.taskset.run(
                task.row,
                self._url,
                self._model,
                key_variable=self._key_variable,
                block=block,
                sampling=self._sampling,
            )
        except UnusableTaskset as error:
            return Played(error=error.message)
        return Played(ended["answer"], {"score": ended["reward"], **ended["terms"]})

    def close(self) -> None:
        """Ends the server of a model of this process."""
        if self._server is not None:
            self._server.close()


def serve_reader(opened: OpenedTaskset, model: InProcessModel, weights: str = "") -> TasksetReader:
    """Returns a reader that is a model of this process.

    Args:
        opened: The taskset.
        model: It answers at an address on this machine until the reader is closed.
        weights: The name of its trained weights; "" for none.
    """
    require("serve", "a model of this process that plays a taskset", "starlette", "uvicorn")
    from keepworth.training.model_server import ModelServer

    server = ModelServer(model)
    identity = f"{model.name}@{model.version}{f'+{weights}' if weights else ''}"
    return TasksetReader(opened, server.url, model.name, identity=identity, server=server)


def remember_attempts(opened: OpenedTaskset, reader: BenchmarkReader, announce: Callable[[str], None]) -> list[Task]:
    """Lets a model try the tasks for training, and returns the questions with those attempts as what is to be remembered. Raises
    KeepworthError where every attempt fails.

    Args:
        opened: The taskset.
        reader: The model, whose attempts are stored (`keepworth.evaluation.reading.KeptAnswers`).
        announce: Is told what the attempts earned.
    """
    if not opened.attempted:
        return opened.questions
    plays = plays_of(reader)
    assert plays is not None
    played = plays([(task, ()) for task in opened.attempted])
    if failed := [attempt.error for attempt in played if attempt.error]:
        if len(failed) == len(played):
            raise KeepworthError(
                f"none of {len(played)} tasks of {opened.taskset.name} could be played. {failed[0]}",
                "Look at the reason; tasks are played as processes on this machine, without containers.",
            )
        announce(f"{len(failed)} of {len(played)} attempts failed and are not remembered: {failed[0]}")
    whole = [(task, attempt) for task, attempt in zip(opened.attempted, played, strict=True) if not attempt.error]
    mean = sum(attempt.scores["score"] for _, attempt in whole) / len(whole)
    announce(f"{len(whole)} attempts at tasks for training are remembered, which earned {mean:.3g} on average.")
    sessions = tuple(Session(task.key, "", (Turn("attempt", _describe(task, attempt), 0),)) for task, attempt in whole)
    return [replace(task, sessions=sessions) for task in opened.questions]


def _describe(task: Task, attempt: Played) -> str:
    """Returns an attempt as it is remembered: what earned how much comes first, as a long text is divided."""
    reply = f"answered {as_line(attempt.answer)!r}" if attempt.answer else "gave no answer"
    return f"{reply}, which earned {attempt.scores['score']:g}, to: {as_line(task.input)}"
