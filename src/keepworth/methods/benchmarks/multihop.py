"""HotpotQA (Yang et al., EMNLP 2018, arXiv 1809.09600; CC BY-SA 4.0) and 2WikiMultiHopQA (Ho et al., COLING 2020, arXiv
2011.01060; Apache-2.0): questions whose answer takes two or more paragraphs of Wikipedia, among distractors.

A paragraph is a session whose speaker is its title, a sentence a turn; supporting sentences are evidence. Sides are those of the
files, but for questions whose supporting paragraph also supports a question of a later side (train, dev, test in this order):
those are left out of the earlier side, so that the test side stays whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from keepworth.records.episode import Session, Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_sets.files import PathName, find_data, read_records
from keepworth.worlds.data_sets.passages import name_of, passage, with_evidence
from keepworth.worlds.data_sets.passages import pool_haystacks as over_one_haystack
from keepworth.worlds.splits import SPLITS, draw_order

FIELDS = ("id", "question", "answer", "supporting_facts", "context")


def hotpotqa(split: str, *, data: PathName | None = None, pooled: bool = False) -> list[Task]:
    """Returns the tasks of one split of HotpotQA. The tags are type (bridge, comparison), split, level. Raises MissingData.

    Args:
        split: "train", "dev" or "test".
        data: The file, or its folder; None reads KEEPWORTH_DATA.
        pooled: Whether all questions have one haystack of all paragraphs of the split, instead of ten for each question.
    """
    return _tasks("HotpotQA", "hotpotqa", "hotpotqa.github.io", "CC BY-SA 4.0", split, data, pooled)


def two_wiki(split: str, *, data: PathName | None = None, pooled: bool = False) -> list[Task]:
    """Returns the tasks of one split of 2WikiMultiHopQA, as `hotpotqa`. tags: type (compositional, comparison, bridge-comparison,
    inference), split.

    Args:
        split: "train", "dev" or "test".
        data: The file, or its folder; None reads KEEPWORTH_DATA.
        pooled: Whether all questions have one haystack of all paragraphs of the split, instead of ten for each question.
    """
    return _tasks(
        "2WikiMultiHopQA", "2wikimultihopqa", "github.com/Alab-NII/2wikimultihop", "Apache-2.0", split, data, pooled
    )


def _tasks(
    name: str, folder: str, source: str, licence: str, split: str, data: PathName | None, pooled: bool
) -> list[Task]:
    described: dict[str, Any] = {"folder": folder, "source": source, "licence": licence, "several": True}
    records = {}
    for side in SPLITS[SPLITS.index(split) :]:
        path = find_data(name, (f"{side}.jsonl.gz", f"{side}.jsonl"), data, **described)
        records[side] = read_records(path, name, FIELDS)
    asked = records.pop(split)
    later = {title for of_side in records.values() for record in of_side for title, _ in record["supporting_facts"]}
    tasks = [
        _task(record, folder, split)
        for record in asked
        if not later & {title for title, _ in record["supporting_facts"]}
    ]
    return over_one_haystack(tasks, folder, split) if pooled else tasks


def _task(record: Mapping[str, Any], folder: str, split: str) -> Task:
    wanted = {(str(title), int(index)) for title, index in record["supporting_facts"]}
    sessions: dict[str, Session] = {}
    for title, sentences in record["context"]:
        texts = [text for text in (str(sentence).strip() for sentence in sentences) if text]
        numbers = [index for index, sentence in enumerate(sentences) if str(sentence).strip()]
        marked = {number for number, index in enumerate(numbers) if (title, index) in wanted}
        # The name includes the title, so that a paragraph on two sides is found in any edition.
        session_id = name_of(folder, title, *texts)
        sessions[session_id] = passage(session_id, texts, str(title), marked)
    order = sorted(sessions, key=lambda id: draw_order(record["id"], id))
    task = Task(
        key=f"{folder}/{record['id']}",
        source=folder,
        input=str(record["question"]),
        answers=(str(record["answer"]),),
        verifier="token_f1",
        sessions=tuple(sessions[id] for id in order),
        tags={
            "type": str(record.get("type", "")).replace("_", "-"),
            "split": split,
            "level": str(record.get("level", "")),
        },
    )
    return with_evidence(task)


POOLED = "Questions that share a supporting paragraph with a later split are left out, and all have one haystack."
HOTPOTQA = Method(
    kind="benchmark",
    name="hotpotqa",
    title="HotpotQA",
    paper="arXiv 1809.09600",
    about="Answer from two paragraphs of ten",
    tags=("factual",),
    differs="Questions that share a supporting paragraph with a question of a later split are left out.",
    make=Benchmark("hotpotqa", hotpotqa, licence="CC BY-SA 4.0"),
)
TWO_WIKI = replace(
    HOTPOTQA,
    name="2wiki",
    title="2WikiMultiHopQA",
    paper="arXiv 2011.01060",
    about="Answer from two to four paragraphs of ten",
    make=Benchmark("2wiki", two_wiki),
)
METHODS = (
    HOTPOTQA,
    replace(
        HOTPOTQA,
        name="hotpotqa-pooled",
        title="HotpotQA, pooled",
        about="Answer from two paragraphs among all paragraphs of a side",
        differs=POOLED,
        make=Benchmark("hotpotqa-pooled", hotpotqa, dials={"pooled": True}, licence="CC BY-SA 4.0"),
    ),
    TWO_WIKI,
    replace(
        TWO_WIKI,
        name="2wiki-pooled",
        title="2WikiMultiHopQA, pooled",
        about="Answer from two to four paragraphs among all paragraphs of a side",
        differs=POOLED,
        make=Benchmark("2wiki-pooled", two_wiki, dials={"pooled": True}),
    ),
)
