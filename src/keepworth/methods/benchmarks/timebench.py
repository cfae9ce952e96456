"""TimeBench, the tasks of its public subset: temporal reasoning over facts in memory (Chu et al., ACL 2024, arXiv 2311.17667;
MIT, its component sets keep their terms)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from keepworth.base.errors import require_known
from keepworth.base.metrics import normalise
from keepworth.records.episode import Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_sets.files import PathName, assign_sides, find_data, read_records
from keepworth.worlds.data_sets.passages import mix_options, name_of, passage, with_evidence
from keepworth.worlds.data_sets.passages import pool_haystacks as over_one_haystack
from keepworth.worlds.entries import windows_of

QUESTIONS = (
    *("tempreason_l2", "tempreason_l3", "timeqa_easy", "timeqa_hard"),
    *("menatqa_scope", "menatqa_order", "menatqa_counterfactual"),
)
WITHOUT_CONTEXT = ("tempreason_l1",)
CHOICES = ("timedial_f2", "mctaco_f2", "durationqa_f2")
INFERENCES = ("tracie", "timexnli_cs1", "timexnli_cs2", "timexnli_cs3")
UNANSWERABLE = "unanswerable"
_NAME, _SOURCE = "TimeBench", "github.com/zchuz/TimeBench (TimeBench-subset-7553)"
_START = 100
"""Leading characters of a context that identify it across tasks."""


def timebench(
    split: str, *, data: PathName | None = None, tasks: Sequence[str] = QUESTIONS, pooled: bool = False
) -> list[Task]:
    """Returns questions over dated facts (TempReason) and over articles (TimeQA, MenatQA), answered in words.

    Evidence are the turns that contain an answer literally, a heuristic; none for unanswerable questions. Questions over the
    same context are on one side; a question that a file holds several times is asked once. The tags are type (the task),
    split, abstention (the answer is "unanswerable"). Raises MissingData, WrongFormat, UnknownName.

    Args:
        split: "train", "dev" or "test".
        data: The folder of the files; None reads KEEPWORTH_DATA.
        tasks: Names of QUESTIONS; also `tempreason_l1`, arithmetic on dates without anything to remember.
        pooled: Whether all questions have one haystack of all facts and articles of the split, instead of each question's
            own.
    """
    for name in tasks:
        require_known("TimeBench task", name, (*QUESTIONS, *WITHOUT_CONTEXT))
    by_input: dict[str, Task] = {}
    for task in _sided(split, data, tasks, (*QUESTIONS, *WITHOUT_CONTEXT), _question):
        by_input.setdefault(normalise(task.input), task)
    unique = list(by_input.values())
    return over_one_haystack(unique, "timebench", split) if pooled else unique


def timebench_choices(
    split: str, *, data: PathName | None = None, tasks: Sequence[str] = (*CHOICES, *INFERENCES)
) -> list[Task]:
    """Returns questions with options: plausible completions (TimeDial, MCTACO, DurationQA), and inferences (TRACIE, TimeX-NLI).

    Choosing any right option is right; questions whose options are all right, or none, are left out. The haystack is the
    dialogue, sentence or premise. The tags are type (the task), split. Raises as `timebench`.

    Args:
        split: "train", "dev" or "test".
        data: The folder of the files; None reads KEEPWORTH_DATA.
        tasks: Names of CHOICES and INFERENCES.
    """
    for name in tasks:
        require_known("TimeBench task", name, (*CHOICES, *INFERENCES))
    return _sided(split, data, tasks, (*CHOICES, *INFERENCES), _choice)


def _sided(
    split: str,
    data: PathName | None,
    wanted: Sequence[str],
    every: Iterable[str],
    made: Callable[[str, str, Mapping[str, Any], str], Task | None],
) -> list[Task]:
    """Returns the tasks of one side. Sides depend on all tasks of a kind, so that choosing fewer moves no question."""
    lines: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name in every:
        path = find_data(
            _NAME, (f"{name}.jsonl.gz", f"{name}.jsonl"), data, folder="timebench", source=_SOURCE, several=True
        )
        fields = ("Premise", "Hypothesis", "Label") if name in INFERENCES else ("context",)
        lines |= {f"{name}/{number}": (name, line) for number, line in enumerate(read_records(path, _NAME, fields))}
    side_of = assign_sides({id: set(_marks(line)) for id, (_, line) in lines.items()})
    candidates = (
        made(id, name, line, split) for id, (name, line) in lines.items() if side_of[id] == split and name in wanted
    )
    return [task for task in candidates if task is not None]


def _marks(line: Mapping[str, Any]) -> Iterable[str]:
    context = line.get("context", line.get("Premise", ""))
    for part in (context, line.get("fact_context", "")) if isinstance(context, str) else context:
        start = normalise(part[: 3 * _START])[:_START]
        if start:
            yield f"context {start}"
    yield f"question {normalise(str(line.get('question') or line.get('Hypothesis') or _masked(str(context))))}"


def _masked(dialogue: str) -> str:
    """Returns the line of a dialogue with the mask."""
    return next((line.strip() for line in dialogue.splitlines() if "<MASK>" in line), "")


def _question(id: str, name: str, line: Mapping[str, Any], split: str) -> Task:
    answer = line["answer"]
    answers = tuple(map(str, answer if isinstance(answer, list) else [answer]))
    context = line.get("fact_context") or line["context"]
    if "fact_context" in line:
        texts = [fact.strip() for fact in context.splitlines() if fact.strip()]
    else:
        parts = [context] if isinstance(context, str) else context
        texts = [window for part in parts for window in windows_of(part)]
    golds = [f" {normalise(answer)} " for answer in answers if answer != UNANSWERABLE and normalise(answer)]
    marked = {index for index, text in enumerate(texts) if any(gold in f" {normalise(text)} " for gold in golds)}
    # Sentences of an article refer to their subject as "he", so the subject's name is each turn's speaker.
    subject = re.search(r"/wiki/([^#]+)", str(line.get("idx", "")))
    speaker = subject[1].replace("_", " ") if subject else "user"
    session_id = name_of("timebench", name if name.startswith("tempreason") else "", *texts)
    return with_evidence(
        Task(
            key=f"timebench/{id}",
            source="timebench",
            input=str(line["question"]),
            answers=answers,
            verifier="token_f1",
            sessions=(passage(session_id, texts, speaker, marked),) if texts else (),
            tags={"type": name, "split": split, "abstention": str(UNANSWERABLE in answers).lower()},
        )
    )


_LABELS = {
    "Entailment": "it follows",
    "Contradiction": "it is contradicted",
    "Neutral": "it neither follows nor is contradicted",
}


def _choice(id: str, name: str, line: Mapping[str, Any], split: str) -> Task | None:
    if name in INFERENCES:
        labels = list(_LABELS)[: 2 if name in ("tracie", "timexnli_cs2") else 3]
        options, right = [_LABELS[label] for label in labels], [_LABELS[str(line["Label"])]]
        question, texts = f"From what was said, what of this: {line['Hypothesis']}", [str(line["Premise"])]
    else:
        options = [str(option).strip() for option in line["options"]]
        right = [option for option, label in zip(options, line["labels"], strict=True) if label == "yes"]
        texts = [text.strip() for text in str(line["context"]).splitlines() if text.strip()]
        masked = f'What stands in the place of <MASK> in "{_masked(str(line["context"]))}"?'
        question = str(line.get("question") or masked)
    if not 0 < len(right) < len(options):
        return None
    marked = {index for index, text in enumerate(texts) if "<MASK>" in text or name != "timedial_f2"}
    return with_evidence(
        Task(
            key=f"timebench/{id}",
            source="timebench",
            input=question,
            answers=tuple(right),
            verifier="exact_match",
            sessions=(passage(name_of("timebench", id), texts, marked=marked),),
            tags={"type": name, "split": split},
            options=mix_options(id, options),
        )
    )


LICENCE = "MIT, parts vary"
TIMEBENCH = Method(
    kind="benchmark",
    name="timebench",
    title="TimeBench",
    paper="arXiv 2311.17667",
    about="Answer what held when, from dated facts and articles",
    tags=("factual",),
    differs="Only the tasks of its public subset are asked, after the facts were stored.",
    make=Benchmark("timebench", timebench, licence=LICENCE),
)
METHODS = (
    TIMEBENCH,
    replace(
        TIMEBENCH,
        name="timebench-pooled",
        title="TimeBench, pooled",
        about="Answer what held when, from one haystack of all facts and articles",
        make=Benchmark("timebench-pooled", timebench, dials={"pooled": True}, licence=LICENCE),
    ),
    replace(
        TIMEBENCH,
        name="timebench-choices",
        title="TimeBench, choices",
        about="Choose how long, when or in which order from options",
        make=Benchmark("timebench-choices", timebench_choices, kind="choice", metric="score", licence=LICENCE),
    ),
)
