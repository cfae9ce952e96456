"""Time-Dialog's ranges: which interval of time a question asks about (Du et al., arXiv 2512.20092; MIT)."""

from __future__ import annotations

from datetime import datetime

from keepworth.base.errors import KeepworthError, require_known
from keepworth.base.metrics import normalise
from keepworth.records.episode import Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_sets.files import PathName, assign_sides, find_data, read_records
from keepworth.worlds.data_sets.passages import draw_solved, name_of, serves_as_memory

_ANNOTATED = "2025-07"
"""An end in this month is the time at which the annotator's program ran, not what a question says."""


def _known_time(text: str) -> bool:
    """Returns whether `text` is a valid time to the second that a question can be about; some dates of the file do not exist."""
    try:
        return len(text) == 19 and bool(datetime.fromisoformat(text)) and not text.startswith(_ANNOTATED)
    except ValueError:
        return False


def time_ranges(
    split: str, *, data: PathName | None = None, memories: int = 50, verifier: str = "interval_iou", seed: int = 0
) -> list[Task]:
    """Returns questions that ask for the interval of time another question is about: `START/END` in ISO 8601.

    Only questions with a known start and end are asked, each wording once: of the file's 4,716, most have an end that is open
    or the moment of annotation. The tags are type ("days" or "minutes"), split. Raises MissingData, WrongFormat, UnknownName.

    Args:
        split: "train", "dev" or "test".
        data: The file, or its folder; None reads KEEPWORTH_DATA.
        memories: The number of solved questions of the train side in the haystack.
        verifier: "interval_iou" (intersection over union) or "interval_match".
        seed: The seed of the solved questions.
    """
    require_known("verifier", verifier, ("interval_iou", "interval_match"))
    names = ("question_time_ranges.json.gz", "question_time_ranges.json", "question_time_range_annotated_0717.json")
    source = "github.com/Elvin-Yiming-Du/Memory-T1 (data/question_time_range_annotated_0717.json)"
    path = find_data("Time-Dialog's ranges", names, data, folder="time_dialog_ranges", source=source)
    answer_of: dict[str, tuple[str, str]] = {}
    for record in read_records(path, "Time-Dialog's ranges", ("question", "question_time_range")):
        ends = record["question_time_range"]
        known_ends = [str(ends.get(end)) for end in ("start", "end")]
        if all(_known_time(end) for end in known_ends) and known_ends[0] <= known_ends[1]:
            answer_of.setdefault(" ".join(str(record["question"]).split()), (known_ends[0][:16], known_ends[1][:16]))
    side_of = assign_sides({text: {normalise(text)} for text in answer_of})
    solved_texts = [text for text in answer_of if side_of[text] == "train" and serves_as_memory(text)]
    test_texts = [
        text for text in answer_of if side_of[text] == split and (split != "train" or not serves_as_memory(text))
    ]
    if not test_texts:
        raise KeepworthError(f"{path} holds no question with a known start and end.", "Name the whole file.")
    haystack = draw_solved(
        "time-ranges", [f"{text}? It asks about {'/'.join(answer_of[text])}" for text in solved_texts], memories, seed
    )
    return [
        Task(
            key=f"time-ranges/{name_of(text)}",
            source="time-ranges",
            input=f"{text}? Which interval of time does this ask about? Answer as START/END, such as "
            "2020-04-01T00:00/2020-04-09T23:59.",
            answers=("/".join(answer_of[text]),),
            verifier=verifier,
            sessions=haystack,
            tags={
                "type": "days"
                if answer_of[text][0].endswith("00:00") and answer_of[text][1].endswith("23:59")
                else "minutes",
                "split": split,
            },
        )
        for text in test_texts
    ]


METHOD = Method(
    kind="benchmark",
    name="time-ranges",
    title="Time-Dialog's ranges",
    paper="arXiv 2512.20092",
    about="Say which interval of time a question is about",
    tags=("factual",),
    differs="Only questions with both ends are asked, and solved ones are the memory.",
    make=Benchmark("time-ranges", time_ranges, licence="MIT", metric="score"),
)
