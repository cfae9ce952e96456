"""PrefEval: a preference, then other conversations, then a question whose usual answer would violate the preference (Zhao et al.,
ICLR 2025, arXiv 2502.09597). CC BY-NC 4.0: never shipped.

The set has its own filler conversations, under terms of their own. Here sessions of LongMemEval replace them, so name results
"PrefEval with LongMemEval distractors".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.base.metrics import normalise
from keepworth.records.episode import Session, Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_sets.competing import competes
from keepworth.worlds.data_sets.files import PathName, assign_sides, find_data, read_records
from keepworth.worlds.data_sets.longmemeval import sessions_of
from keepworth.worlds.data_sets.passages import mix_options, name_of, passage, with_evidence
from keepworth.worlds.splits import draw_order

_FIRST = "2023-01-01T09:00"
_ASKED = "2024-01-01T09:00"
"""`_FIRST` is before and `_ASKED` after every session of LongMemEval."""


def prefeval(split: str, *, data: PathName | None = None, distractors: int = 10, seed: int = 0) -> list[Task]:
    """Returns the tasks of one split: choose among four answers the one that follows the preference.

    Equal preferences or questions are on one side. The tags are type and cluster (the topic, one of 20), split. Raises
    MissingData.

    Args:
        split: "train", "dev" or "test".
        data: The file, or its folder; None reads KEEPWORTH_DATA.
        distractors: The sessions of LongMemEval (of the same side) after the preference, the same for all questions except
            those that compete with a question.
        seed: The seed of the sessions.
    """
    if distractors < 0:
        raise KeepworthError(f"distractors={distractors}: there are 0 or more.", "Write 0 or another number.")
    names = ("explicit_with_mcq.jsonl.gz", "explicit_with_mcq.jsonl")
    source = "github.com/amazon-science/PrefEval (explicit preferences joined with their options by topic and index)"
    path = find_data("PrefEval", names, data, folder="prefeval", source=source, licence="CC BY-NC 4.0")
    records_by_id = {
        f"{record['topic']}/{record['index']}": record
        for record in read_records(path, "PrefEval", ("topic", "index", "preference", "question", "mcq"))
    }
    side_of = assign_sides(
        {id: {normalise(record["preference"]), normalise(record["question"])} for id, record in records_by_id.items()}
    )
    drawn = sorted(sessions_of(split), key=lambda session: draw_order("prefeval", seed, session.id))
    plain = [Session(name_of("prefeval", talk.id), talk.date, talk.turns) for talk in drawn]
    return [
        _task(id, record, split, plain, distractors) for id, record in records_by_id.items() if side_of[id] == split
    ]


def _task(id: str, record: Mapping[str, Any], split: str, pool: Sequence[Session], count: int) -> Task:
    preference, question = str(record["preference"]), str(record["question"])
    options = [str(option) for option in record["mcq"]["classification_task_options"]]
    others = islice((talk for talk in pool if not competes(talk, f"{question} {preference}", ())), count)
    first = passage(name_of("prefeval", "said", id), [preference], marked={0}, date=_FIRST)
    return with_evidence(
        Task(
            key=f"prefeval/{id}",
            source=f"prefeval+{count}",
            input=question,
            answers=(options[0],),
            verifier="exact_match",
            asked_at=_ASKED,
            sessions=(first, *sorted(others, key=lambda session: (session.date, session.id))),
            tags={"type": str(record["topic"]), "cluster": str(record["topic"]), "split": split},
            options=mix_options(id, options),
        )
    )


METHOD = Method(
    kind="benchmark",
    name="prefeval",
    title="PrefEval",
    paper="arXiv 2502.09597",
    about="Say which of four answers follows a preference that was said long before",
    tags=("factual",),
    differs="Sessions of LongMemEval replace its own filler conversations.",
    make=Benchmark("prefeval", prefeval, licence="CC BY-NC 4.0", kind="choice", metric="score"),
)
