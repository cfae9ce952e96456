"""BFCL v4, the part on memory: earlier conversations of five people with an agent, and questions asked later without them
(Berkeley Function-Calling Leaderboard, github.com/ShishirPatil/gorilla; Apache-2.0).

An answer is right if an accepted string occurs in it (`verifiers.contains_answer`, which is how the leaderboard scores). The
haystack is all conversations of one person. Sides are people: customer train, notetaker dev, the other three test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from keepworth.base.metrics import tokens
from keepworth.records.episode import Session, Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.data_sets.files import PathName, find_data, read_records
from keepworth.worlds.data_sets.passages import name_of, passage
from keepworth.worlds.json_lines import mark_evidence

SCENARIOS: Mapping[str, tuple[str, ...]] = {
    "train": ("customer",),
    "dev": ("notetaker",),
    "test": ("finance", "healthcare", "student"),
}
_NAME, _SOURCE = "BFCL memory", "the package bfcl-eval (bfcl_eval/data) or github.com/ShishirPatil/gorilla"
_SHARE = 0.6
"""Share of a source sentence's words that a turn must hold to count as its source, where no turn contains it literally."""


def bfcl_memory(split: str, *, data: PathName | None = None) -> list[Task]:
    """Returns the tasks of one split, in the order of the file.

    Evidence is found by the sentence that the key quotes: the turns that contain it, else the one with most of its words.
    cluster: the conversation that holds the evidence; there are too few people to resample. tags: type (the scenario), split,
    cluster. Raises MissingData.
    """

    def read(file: str, *fields: str) -> Sequence[Mapping[str, Any]]:
        path = find_data(_NAME, (file,), data, folder="bfcl_memory", source=_SOURCE, several=True)
        return read_records(path, _NAME, fields)

    answers = {record["id"]: record for record in read("memory_answers.jsonl", "id", "ground_truth", "source")}
    talks = {
        scenario: _sessions(read(f"memory_conversations_{scenario}.jsonl", "id", "question"))
        for scenario in SCENARIOS[split]
    }
    tasks = []
    for record in read("memory_questions.jsonl", "id", "question", "scenario"):
        if record["scenario"] in talks:
            if record["id"] not in answers:
                raise WrongFormat(f"memory_answers.jsonl has no answer to {record['id']}.", "Get both files anew.")
            tasks.append(_task(record, answers[record["id"]], talks[record["scenario"]], split))
    return tasks


def _sessions(talks: Sequence[Mapping[str, Any]]) -> list[Session]:
    return [
        passage(name_of("bfcl", talk["id"]), [message["content"] for turn in talk["question"] for message in turn])
        for talk in talks
    ]


def _task(record: Mapping[str, Any], key: Mapping[str, Any], sessions: Sequence[Session], split: str) -> Task:
    turns = _evidence(str(key["source"]), sessions)
    haystack = tuple(mark_evidence(session, {index for id, index in turns if id == session.id}) for session in sessions)
    cited = {id for id, _ in turns}
    evidence = tuple(session.id for session in haystack if session.id in cited)
    return Task(
        key=f"bfcl-memory/{record['id']}",
        source="bfcl-memory",
        input=" ".join(message["content"] for turn in record["question"] for message in turn),
        answers=tuple(map(str, key["ground_truth"])),
        verifier="contains_answer",
        sessions=haystack,
        evidence=evidence,
        tags={"type": record["scenario"], "split": split, "cluster": evidence[0] if evidence else str(record["id"])},
    )


def _evidence(source: str, sessions: Sequence[Session]) -> set[tuple[str, int]]:
    """Returns (session, turn) of the turns that a source quotes; it may quote parts of a turn, with dots between them."""
    spoken = [((s.id, turn.index), tokens(turn.text)) for s in sessions for turn in s.turns]
    turns: set[tuple[str, int]] = set()
    for quoted in filter(None, map(tokens, re.split(r"\.\.\.|…", source))):
        text = f" {' '.join(quoted)} "
        matches = [turn for turn, words in spoken if len(quoted) > 1 and text in f" {' '.join(words)} "]
        if not matches:
            share, best = max((len(set(quoted) & set(words)) / len(set(quoted)), turn) for turn, words in spoken)
            matches = [best] if share >= _SHARE and len(quoted) > 3 else []
        turns.update(matches if len(matches) == 1 or not turns else [])
    return turns


METHOD = Method(
    kind="benchmark",
    name="bfcl-memory",
    title="BFCL v4, memory",
    about="Answer what five people told an agent in earlier conversations",
    tags=("factual",),
    differs="The haystack is what a person said, and the agent's own memory tools are not played.",
    make=Benchmark("bfcl-memory", bfcl_memory, metric="score"),
)
