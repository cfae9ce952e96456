"""BANKING77: assign a label to a customer's query, given labelled examples."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from keepworth.base.errors import KeepworthError
from keepworth.base.metrics import normalise
from keepworth.records.episode import Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_files import WrongFormat, text_of
from keepworth.worlds.data_sets.files import PathName, find_data
from keepworth.worlds.data_sets.passages import mix_options, name_of, passage, with_evidence
from keepworth.worlds.json_lines import mark_evidence
from keepworth.worlds.splits import draw_order, side


def banking77(
    split: str, *, data: PathName | None = None, examples: int = 10, named: bool = False, seed: int = 0
) -> list[Task]:
    """Returns the tasks of BANKING77 (Casanueva et al., 2020, arXiv 2003.04807; CC BY 4.0): assign a label to a query, given
    labelled examples.

    Sides are of intents, by the hash of their names, so that a system that learned on one side has met no label of another.
    The questions are those of the test file. Evidence are the examples of the right label. The tags are type (the intent),
    split, cluster (the intent). Raises MissingData, WrongFormat.

    Args:
        split: "train", "dev" or "test".
        data: The folder of the data; None reads KEEPWORTH_DATA.
        examples: The number of examples per intent of the side, from the train file.
        named: Whether intents have their names instead of numbers; a reader may then do without memory.
        seed: The seed of the draws.
    """
    if examples < 1:
        raise KeepworthError(f"examples={examples}: each label needs one at least.", "Write 1 or another number.")
    queries = {
        name: [pair for pair in customer_queries(data, name) if side(pair[1]) == split] for name in ("train", "test")
    }
    intents = sorted({intent for _, intent in queries["test"]})
    if len(intents) < 2:
        raise WrongFormat(
            "BANKING77 has fewer than two intents of this side here.", "Name the folder with its whole files."
        )
    numbers = sorted(intents, key=lambda intent: draw_order("banking77", seed, intent))
    label = {
        intent: intent.replace("_", " ") if named else f"label {number}" for number, intent in enumerate(numbers, 1)
    }
    test_texts = {normalise(text) for text, _ in queries["test"]}
    drawn: list[tuple[str, str]] = []
    for intent in intents:
        texts = {text for text, name in queries["train"] if name == intent and normalise(text) not in test_texts}
        drawn += [(text, intent) for text in sorted(texts, key=lambda text: draw_order(seed, text))[:examples]]
    drawn.sort(key=lambda pair: draw_order("order", seed, *pair))
    plain = [passage(name_of("banking77", text), [f'"{text}" has {label[intent]}.']) for text, intent in drawn]
    own_marks = {
        intent: tuple(
            mark_evidence(session, {0}) if name == intent else session
            for session, (_, name) in zip(plain, drawn, strict=True)
        )
        for intent in intents
    }
    return [
        with_evidence(
            Task(
                key=f"banking77/{name_of(text, intent)}",
                source="banking77",
                input=f'Which label has "{text}"?',
                answers=(label[intent],),
                verifier="exact_match",
                sessions=own_marks[intent],
                tags={"type": intent, "cluster": intent, "split": split},
                options=mix_options(text, label.values()),
            )
        )
        for text, intent in dict.fromkeys(queries["test"])
    ]


def customer_queries(data: PathName | None, part: str) -> Sequence[tuple[str, str]]:
    """Returns (text, intent) of BANKING77's part "train" or "test"; `data` as in `find_data`. Raises MissingData, WrongFormat."""
    path = find_data(
        "BANKING77",
        (f"{part}.csv.gz", f"{part}.csv"),
        data,
        folder="banking77",
        source="github.com/PolyAI-LDN/task-specific-datasets (banking_data)",
        licence="CC BY 4.0",
        several=True,
    )
    lines = list(csv.DictReader(text_of(path).splitlines(keepends=True)))
    if not lines or not {"text", "category"} <= set(lines[0]):
        raise WrongFormat(f"{path} has no columns text and category.", "Name the folder of BANKING77.")
    return [(" ".join(line["text"].split()), line["category"]) for line in lines]


METHOD = Method(
    kind="benchmark",
    name="banking77",
    title="BANKING77",
    paper="arXiv 2003.04807",
    about="Say which label a customer's query has, by labelled examples",
    tags=("experiential",),
    differs="Splits are by intents, and labels are numbers.",
    make=Benchmark("banking77", banking77, licence="CC BY 4.0", kind="choice", metric="score"),
)
