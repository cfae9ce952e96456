"""Solved examples as memories: word problems (GSM8K, SVAMP, MATH-500) and labelled texts (BANKING77), asked of others like them.

The train side is halved by the hash of the text: one half is what is remembered, the other is what is asked on that side. So what
is remembered is asked nowhere, on no side.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from keepworth.episodes.episode import Session, Task
from keepworth.episodes.errors import KeepworthError, require_known
from keepworth.tasks.arithmetic import arithmetic
from keepworth.tasks.benchmarks.passages import mixed, name_of, passage, with_evidence
from keepworth.tasks.data_files import PathName, WrongFormat, located, records, text_of
from keepworth.tasks.metrics import normalise
from keepworth.tasks.splits import SPLITS, draw_order, side, sides


def remembered(text: str) -> bool:
    """Whether a text of the train side is in the half that is remembered."""
    return draw_order("remembered", text) < "8"


def solved(name: str, examples: Iterable[str], count: int, seed: int) -> tuple[Session, ...]:
    """At most `count` of the examples, drawn by the seed, in an order that says nothing, a session each."""
    if count < 0:
        raise KeepworthError(f"memories={count}: there are 0 or more.", "Write 0 or another number.")
    drawn = sorted(examples, key=lambda text: draw_order(name, seed, text))[:count]
    return tuple(passage(name_of(name, text), [text]) for text in drawn)


# Word problems.


def gsm8k(split: str, *, data: PathName | None = None, memories: int = 500, seed: int = 0) -> list[Task]:
    """GSM8K (Cobbe et al., arXiv 2110.14168; MIT): the question is a problem, the memories are worked solutions of others.

    memories: how many, of the remembered half of the train side. Questions, answers and sides are those of `arithmetic`; the
    worked solutions are read from `data`. No memory is marked as evidence. tags: type, split. Errors: MissingData,
    WrongFormat."""
    asked, known = _halves("gsm8k", split)
    path = located(
        "GSM8K with worked solutions",
        ("train.jsonl.gz", "train.jsonl"),
        data,
        folder="gsm8k",
        source="github.com/openai/grade-school-math (grade_school_math/data)",
    )
    worked = {
        record["question"]: _worked(str(record["answer"])) for record in records(path, "GSM8K", ("question", "answer"))
    }
    missing = next((task.input for task in known if task.input not in worked), None)
    if missing is not None:
        raise WrongFormat(f"{path} has no solution of the problem {missing:.60}...", "Get the whole file train.jsonl.")
    haystack = solved("gsm8k", [f"{task.input}\n{worked[task.input]}" for task in known], memories, seed)
    return [_over(task, haystack) for task in asked]


def svamp(split: str, *, memories: int = 300, seed: int = 0) -> list[Task]:
    """SVAMP (Patel et al., NAACL 2021; MIT), likewise; a memory is a problem with the equation that solves it."""
    asked, known = _halves("svamp", split)
    texts = [f"{task.input}\n{task.tags['equation']} = {task.answers[0]}" for task in known]
    haystack = solved("svamp", texts, memories, seed)
    return [_over(task, haystack) for task in asked]


def math500(split: str, *, data: PathName | None = None, memories: int = 150, seed: int = 0) -> list[Task]:
    """MATH-500 (Hendrycks et al., arXiv 2103.03874, chosen for arXiv 2305.20050; MIT), likewise, with its own solutions.

    It has no train side: its 500 problems are divided by the hash of their names. Scored by `latex`: equal as LaTeX once that is
    normalised, or equal as numbers. tags: type (the subject), split, level. Errors: MissingData, WrongFormat."""
    require_known("split", split, SPLITS)
    source = "github.com/ZubinGou/math-evaluation-harness (data/math_oai/test.jsonl) or github.com/openai/prm800k"
    path = located("MATH-500", ("test.jsonl", "test.jsonl.gz"), data, folder="math500", source=source)
    found = {
        str(each["unique_id"]): each
        for each in records(path, "MATH-500", ("problem", "solution", "answer", "unique_id"))
    }
    side_of = sides({id: {normalise(str(each["problem"]))} for id, each in found.items()})
    known = [id for id in found if side_of[id] == "train" and remembered(id)]
    asked = [id for id in found if side_of[id] == split and (split != "train" or not remembered(id))]
    haystack = solved("math500", [f"{found[id]['problem']}\n{found[id]['solution']}" for id in known], memories, seed)
    return [
        Task(
            key=f"math500/{id}",
            source="math500",
            input=str(found[id]["problem"]),
            answers=(str(found[id]["answer"]),),
            verifier="latex",
            sessions=haystack,
            tags={"type": str(found[id].get("subject", "")), "split": split, "level": str(found[id].get("level", ""))},
        )
        for id in asked
    ]


def _halves(source: str, split: str) -> tuple[list[Task], list[Task]]:
    known = [task for task in arithmetic(source, "train") if remembered(task.input)]
    asked = arithmetic(source, split)
    return [task for task in asked if split != "train" or not remembered(task.input)], known


def _worked(text: str) -> str:
    """Without the calculator's marks, and with the answer in words."""
    return re.sub(r"<<[^>]*>>", "", text).replace("####", "The answer is")


def _over(task: Task, haystack: tuple[Session, ...]) -> Task:
    return replace(task, sessions=haystack, tags={key: value for key, value in task.tags.items() if key != "equation"})


# Labelled texts.


def banking77(
    split: str, *, data: PathName | None = None, examples: int = 10, named: bool = False, seed: int = 0
) -> list[Task]:
    """BANKING77 (Casanueva et al., 2020, arXiv 2003.04807; CC BY 4.0): which label a query has, by labelled examples.

    Sides are of intents, by the hash of their names, so that who learned on one side has met no label of another. examples: of
    each intent of the side, from the train file; the questions are those of the test file. named: intents by their names
    instead of numbers; a reader may then do without memory. Evidence are the examples of the right label. tags: type (the
    intent), split, cluster (the intent). Errors: MissingData, WrongFormat."""
    require_known("split", split, SPLITS)
    if examples < 1:
        raise KeepworthError(f"examples={examples}: each label needs one at least.", "Write 1 or another number.")
    queries = {
        each: [pair for pair in customer_queries(data, each) if side(pair[1]) == split] for each in ("train", "test")
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
    asked = {normalise(text) for text, _ in queries["test"]}
    drawn: list[tuple[str, str]] = []
    for intent in intents:
        own = sorted({text for text, each in queries["train"] if each == intent and normalise(text) not in asked})
        drawn += [(text, intent) for text in sorted(own, key=lambda text: draw_order(seed, text))[:examples]]
    drawn.sort(key=lambda pair: draw_order("order", seed, *pair))
    plain = [passage(name_of("banking77", text), [f'"{text}" has {label[intent]}.']) for text, intent in drawn]
    own_marks = {
        intent: tuple(
            passage(session.id, [session.turns[0].text], marked={0}) if each == intent else session
            for session, (_, each) in zip(plain, drawn, strict=True)
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
                options=mixed(text, label.values()),
            )
        )
        for text, intent in dict.fromkeys(queries["test"])
    ]


def customer_queries(data: PathName | None, part: str) -> Sequence[tuple[str, str]]:
    """(text, intent) of BANKING77's part "train" or "test"; `data` as in `located`. Raises MissingData, WrongFormat."""
    path = located(
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
