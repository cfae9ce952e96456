"""Tasks of this package as a taskset of `verifiers` (version 1), for those who train or measure there.

A file `my_questions.py`, which `verifiers` finds by its name (`--env.taskset.id my_questions`):

    from keepworth.training.offered_tasksets import taskset_of

    MyTaskset = taskset_of("questions.jsonl")
    __all__ = ["MyTaskset"]"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from keepworth.base.needs import needs_verifiers

import verifiers.v1 as vf

from keepworth.records.episode import Task
from keepworth.worlds.own import own_tasks
from keepworth.worlds.verifiers import verify


def taskset_of(
    tasks: str | Path | Iterable[Mapping[str, Any] | Task], *, split: str = "", verifier: str = "token_f1"
) -> type[vf.Taskset]:
    """Returns a class of tasks, whose answers are judged as here.

    Args:
        tasks: A file of JSON lines, rows, or tasks, such as those of a benchmark.
        split: "train", "dev" or "test"; "" for all tasks.
        verifier: Judges the answers of tasks that name no verifier.
    """
    read = own_tasks(tasks)
    chosen = read.by_split[split] if split else read.all
    judged = [task if task.verifier else replace(task, verifier=verifier) for task in chosen]

    class Question(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
        @vf.reward  # type: ignore[untyped-decorator]
        async def verified(self, trace: vf.Trace) -> float:
            return verify(judged[self.data.idx], (trace.last_reply or "").strip())

    class Questions(vf.Taskset[Question, vf.TasksetConfig]):  # type: ignore[misc]
        def load(self) -> Iterable[Question]:
            for task in judged:
                yield Question(vf.TaskData(name=task.key, prompt=task.input), self.config.task)

    return Questions
