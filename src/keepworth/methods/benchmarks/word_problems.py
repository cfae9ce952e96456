"""Word problems as questions, solved ones as memories: GSM8K, SVAMP and MATH-500.

The train side is halved by the hash of the text: one half is what is remembered, the other is what is asked on that side. So what
is remembered is asked nowhere, on no side.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from importlib import resources

from keepworth.episodes.episode import Session, Task, Turn
from keepworth.episodes.errors import KeepworthError, require_known
from keepworth.memory.sentences import sentences
from keepworth.methods.benchmarks._passages import remembered, solved
from keepworth.registry import Method
from keepworth.tasks.benchmark import Benchmark
from keepworth.tasks.data_files import PathName, WrongFormat, located, records
from keepworth.tasks.metrics import normalise, tokens
from keepworth.tasks.splits import SPLITS, side, sides
from keepworth.tasks.verifiers import shown

# Word problems with a number for an answer: GSM8K (Cobbe et al., arXiv 2110.14168; MIT) and SVAMP (Patel et al., NAACL
# 2021, arXiv 2103.07191; MIT).
#
# Both ship inside the package: GSM8K as questions and final numbers (without the worked solutions), SVAMP whole. Splits:
# GSM8K's own test questions are "test" and its training questions are "train" and "dev" by the hash of the question; SVAMP,
# which has no split, is divided by the rule of `splits`, problems that share a sentence but for its numbers kept together.
#
#     source   train    dev   test
#     gsm8k    6,685    788  1,319
#     svamp      646     95    259


SOURCES = ("gsm8k", "svamp")
VERIFIED_BY = ("expression", "numeric", "math_verify")
_FILES = {"gsm8k": "gsm8k.jsonl.xz", "svamp": "svamp.json.gz"}
_SHARED_SENTENCE = 6  # words besides the numbers; shorter ones recur by chance


@dataclass(frozen=True, slots=True)
class Problem:
    """id: stable; question: all of it; answer: the number; equation: what gives it ("" where the source has none). story, asked:
    what is told, and what is asked at its end, where the source has them apart."""

    id: str
    question: str
    answer: str
    type: str
    split: str
    equation: str = ""
    story: str = ""
    asked: str = ""


def arithmetic(source: str, split: str, *, verifier: str = "numeric", remembered: bool = False) -> list[Task]:
    """The tasks of one split, in order of id.

    verifier: "numeric" scores the number that an answer ends with, "expression" the value of the expression that it is,
    so that a model without practice in reckoning can show that it knows what to reckon; "math_verify" also reads LaTeX and
    needs the extra `math`. tags: type, split, equation (a
    part of the key: no agent may read it). remembered: the task asks the last question alone; the story is its session, which an
    agent finds in its memory.

    Errors: UnknownName for a source, split or verifier."""
    require_known("source", source, SOURCES)
    require_known("split", split, SPLITS)
    require_known("verifier", verifier, VERIFIED_BY)
    if remembered and source != "svamp":
        raise KeepworthError(f"{source} does not have its stories apart from its questions.", "Take svamp.")
    return [
        Task(
            key=f"{source}/{problem.id}",
            source=source,
            input=problem.asked if remembered else problem.question,
            sessions=(_story(problem),) if remembered else (),
            evidence=(problem.id,) if remembered else (),
            answers=(problem.answer,),
            verifier=verifier,
            tags={"type": problem.type, "split": split, **({"equation": problem.equation} if problem.equation else {})},
        )
        for problem in problems(source)
        if problem.split == split
    ]


def _story(problem: Problem) -> Session:
    return Session(problem.id, "", (Turn("user", problem.story, 0, evidence=True),))


@lru_cache(maxsize=len(SOURCES))
def problems(source: str) -> tuple[Problem, ...]:
    """Every problem of a source, in order of id."""
    packed = resources.files("keepworth.tasks").joinpath(f"data/arithmetic/{_FILES[source]}").read_bytes()
    parsed = _gsm8k(lzma.decompress(packed)) if source == "gsm8k" else _svamp(gzip.decompress(packed))
    return tuple(sorted(parsed, key=lambda problem: problem.id))


def _gsm8k(data: bytes) -> Iterable[Problem]:
    """One line each: [split, number in its file, question, answer]."""
    for line in data.decode().rstrip("\n").split("\n"):  # not splitlines: questions hold other separators
        split, number, question, answer = json.loads(line)
        if split == "train":
            split = "dev" if side(question) == "dev" else "train"
        yield Problem(f"{number}", question, answer.replace(",", ""), "multi-step", split)


def _svamp(data: bytes) -> list[Problem]:
    records = json.loads(data)
    side_of = sides({record["ID"]: _marks(record["Body"]) for record in records})
    return [
        Problem(
            id=record["ID"],
            question=_joined(record["Body"], record["Question"]),
            answer=shown(_exact(record["Answer"])),
            type=record["Type"].lower().replace("divison", "division"),  # the source misspells one
            split=side_of[record["ID"]],
            equation=_tidy(record["Equation"]),
            story=_joined(record["Body"], ""),
            asked=" ".join(record["Question"].split()),
        )
        for record in records
    ]


def _joined(body: str, question: str) -> str:
    body = " ".join(body.split())
    return f"{body}{'' if body.endswith(('.', '!', '?', ',')) else '.'} {' '.join(question.split())}".strip()


def _tidy(equation: str) -> str:
    """`( 76.0 - 25.0 )` as `76 - 25`."""
    text = re.sub(r"(\d)\.0\b", r"\1", " ".join(equation.split()))
    return text[2:-2] if text.startswith("( ") and text.endswith(" )") and text.count("(") == 1 else text


def _exact(value: float) -> Fraction:
    return Fraction(str(value))


def _marks(body: str) -> set[str]:
    """The sentences of a problem without their numbers: its variations share them."""
    worded = (" ".join(word for word in tokens(sentence) if not word.isdigit()) for sentence in sentences(body))
    return {mark for mark in worded if len(mark.split()) >= _SHARED_SENTENCE}


# As questions over a memory of solved ones.


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
    rows = {
        str(record["unique_id"]): record
        for record in records(path, "MATH-500", ("problem", "solution", "answer", "unique_id"))
    }
    side_of = sides({id: {normalise(str(row["problem"]))} for id, row in rows.items()})
    known = [id for id in rows if side_of[id] == "train" and remembered(id)]
    asked = [id for id in rows if side_of[id] == split and (split != "train" or not remembered(id))]
    haystack = solved("math500", [f"{rows[id]['problem']}\n{rows[id]['solution']}" for id in known], memories, seed)
    return [
        Task(
            key=f"math500/{id}",
            source="math500",
            input=str(rows[id]["problem"]),
            answers=(str(rows[id]["answer"]),),
            verifier="latex",
            sessions=haystack,
            tags={"type": str(rows[id].get("subject", "")), "split": split, "level": str(rows[id].get("level", ""))},
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


METHODS = (
    Method(
        kind="benchmark",
        name="gsm8k",
        title="GSM8K",
        paper="arXiv 2110.14168",
        about="word problems, by worked solutions of others",
        differs="solved problems are the memory; half of the train side is remembered and asked nowhere",
        make=Benchmark("gsm8k", gsm8k, licence="MIT", metric="score"),
    ),
    Method(
        kind="benchmark",
        name="svamp",
        title="SVAMP",
        paper="NAACL 2021",
        about="word problems of one step, by others solved",
        differs="solved problems are the memory; half of the train side is remembered and asked nowhere",
        make=Benchmark("svamp", svamp, licence="MIT", metric="score", shipped=True),
    ),
    Method(
        kind="benchmark",
        name="math500",
        title="MATH-500",
        paper="arXiv 2103.03874",
        about="competition problems, by solutions of others",
        differs="solved problems are the memory; half of the train side is remembered, asked nowhere; sides by hash",
        make=Benchmark("math500", math500, licence="MIT", metric="score"),
    ),
)
