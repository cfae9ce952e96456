"""Three settings of one benchmark in one table: from weights alone, from a given context, from a memory that is searched.

All have the same questions and reader. *Parametric* shows nothing. *Contextual* shows the evidence among `items` entries, at
several positions: its rows are the position curve. *External* shows the results of a search of the whole haystack, as many
entries. "Memory in Large Language Models: Mechanisms, Evaluation and Evolution", arXiv 2509.18868, has the three: the gap from
contextual to external is availability, the gap from 1 to contextual is the reader. A search shows evidence in order of time: for
a reader with a position bias, contextual in order of time is the fair comparison. Controls: the evidence alone, and that of
another question.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, differences, rows_of
from keepworth.registry import Method, part

if TYPE_CHECKING:
    from keepworth.records.episode import Task
    from keepworth.worlds.entries import MemoryEntry

TIMELY = "contextual, in order of time"


def place_evidence(entries: Sequence[MemoryEntry], position: float) -> list[MemoryEntry]:
    """Returns the entries in order, with the evidence together at a position from 0 for the beginning to 1 for the end."""
    marked = [entry for entry in entries if entry.evidence]
    others = [entry for entry in entries if not entry.evidence]
    before = round(position * len(others))
    return [*others[:before], *marked, *others[before:]]


def _put_in_order(shown: Sequence[MemoryEntry], task: Task, words: int) -> list[MemoryEntry]:
    """Returns entries of a task in the order of its haystack, in which a search shows them."""
    from keepworth.worlds.entries import entries

    places = {entry.text: index for index, entry in enumerate(entries(task, words))}
    return sorted(shown, key=lambda entry: places.get(entry.text, 0))


def run(
    *,
    benchmark: str = "longmemeval",
    questions: int = 48,
    items: int = 5,
    positions: str = "0,0.5,1",
    distractors: int = 10,
    words: int = 60,
    reader: str = "smollm2-135m-instruct",
    model: str = "",
    encoder: str = "minilm",
    data: str = "",
    seed: int = 0,
) -> Rows:
    """Measures the score of each setting, the position curve, and the differences.

    Args:
        benchmark: The benchmark, of which test questions with evidence and a text answer are used.
        questions: Most questions.
        items: Entries that are shown.
        positions: Positions of the evidence, from 0 to 1, with commas.
        distractors: Other sessions in the haystack, where the benchmark has that setting.
        words: Most words of an entry.
        reader: A model's name or folder, or the URL of an endpoint.
        model: The model's name there.
        encoder: Encoder of the search.
        data: The place of the benchmark's data, where it is not shipped.
        seed: Seed of the draws.
    """
    from keepworth.evaluation.harness import score_answer
    from keepworth.evaluation.reading import open_reader
    from keepworth.worlds.benchmark import cluster_of, find_benchmark
    from keepworth.worlds.entries import candidates
    from keepworth.worlds.recall import recall_by_search, strangers
    from keepworth.worlds.splits import draw_order

    places = [float(word) if word.replace(".", "", 1).isdigit() else -1.0 for word in positions.split(",")]
    if not 0 <= min(places) <= max(places) <= 1 or len(set(places)) < len(places):
        raise KeepworthError(f"positions={positions}: each once, from 0 to 1.", "Write positions=0,0.5,1")
    if items < 2 or questions < 3:
        raise KeepworthError(f"items={items}, questions={questions}: at least 2 and 3.", "Write items=5, say.")
    made = find_benchmark(benchmark)
    dials = {
        name: value for name, value in (("distractors", distractors), ("extractive", True)) if name in made.settings()
    }
    tasks = made("test", data=Path(data) if data else None, **dials)
    able = [
        task for task in tasks if task.answers and not task.options and candidates(task, 1, seed, words)[0].evidence
    ]
    chosen = sorted(able, key=lambda task: draw_order("three settings", seed, task.key))[:questions]
    if len(chosen) < 3:
        raise KeepworthError(
            f"{benchmark} has {len(chosen)} test questions with evidence that are answered in words.",
            "Name another one.",
        )
    among = {task.key: candidates(task, items, seed, words) for task in chosen}
    gold = {key: [entry.text for entry in shown if entry.evidence] for key, shown in among.items()}
    stranger = strangers(chosen)
    search = recall_by_search(items, part("encoder")(encoder), words=words)
    shown: dict[str, list[list[str]]] = {
        "parametric": [[] for _ in chosen],
        **{
            f"contextual, evidence at {depth:g}": [
                [entry.text for entry in place_evidence(among[task.key], depth)] for task in chosen
            ]
            for depth in places
        },
        TIMELY: [[entry.text for entry in _put_in_order(among[task.key], task, words)] for task in chosen],
        "external": [[hit.text for hit in search(task).shown] for task in chosen],
        "evidence alone": [gold[task.key] for task in chosen],
        "evidence of another question": [gold[stranger[task.key].key] for task in chosen],
    }
    answerer = open_reader(reader, model)
    scores: dict[str, list[float]] = {}
    for arm, texts in shown.items():
        answers = answerer.answers([(task.input, some) for task, some in zip(chosen, texts, strict=True)])
        scores[arm] = [score_answer(task, answer)["score"] for task, answer in zip(chosen, answers, strict=True)]
    curve = [scores[f"contextual, evidence at {depth:g}"] for depth in places]
    scores["contextual, mean of positions"] = [sum(column) / len(column) for column in zip(*curve, strict=True)]
    clusters = [cluster_of(task) for task in chosen]
    pairs = [
        ("contextual, mean of positions", "parametric"),
        ("external", "parametric"),
        ("external", "contextual, mean of positions"),
        ("external", TIMELY),
        ("evidence alone", "contextual, mean of positions"),
        ("evidence alone", "evidence of another question"),
        *((f"contextual, evidence at {depth:g}", f"contextual, evidence at {places[-1]:g}") for depth in places[:-1]),
    ]
    return rows_of(scores, clusters) + differences(scores, pairs, clusters)


METHOD = Method(
    kind="study",
    name="three_settings",
    title="Three settings and the position curve",
    paper="arXiv 2509.18868",
    about="Asks the same from weights alone, from a context with the evidence at several places, and from a search",
    claim="The difference of the settings separates what a reader can do from what a memory makes available.",
    differs="One benchmark and one reader of one's own choice; the paper is a survey and has no numbers of this table.",
    tags=("token", "parametric", "factual", "retrieval"),
    label="protocol",
    make=Study(run, "score of the benchmark"),
    extra="train",
)
