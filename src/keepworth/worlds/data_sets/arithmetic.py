"""Word problems with a number for an answer: GSM8K (Cobbe et al., arXiv 2110.14168; MIT) and SVAMP (Patel et al., NAACL 2021,
arXiv 2103.07191; MIT).

Both ship inside the package: GSM8K as questions and final numbers (without the worked solutions), SVAMP whole. Splits: GSM8K's
own test questions are "test" and its training questions are "train" and "dev" by the hash of the question; SVAMP, which has no
split, is divided by the rule of `splits`, problems that share a sentence but for its numbers kept together.

    source   train    dev   test
    gsm8k    6,685    788  1,319
    svamp      646     95    259
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib import resources

from keepworth.base.errors import KeepworthError, require_known
from keepworth.base.metrics import tokens
from keepworth.memory.sentences import sentences
from keepworth.records.episode import Task
from keepworth.worlds.data_sets.files import assign_sides
from keepworth.worlds.data_sets.passages import passage
from keepworth.worlds.splits import SPLITS, side
from keepworth.worlds.verifiers import format_number

SOURCES = ("gsm8k", "svamp")
VERIFIED_BY = ("expression", "numeric", "math_verify")
_FILES = {"gsm8k": "gsm8k.jsonl.xz", "svamp": "svamp.json.gz"}
_SHARED_SENTENCE = 6  # words besides the numbers; shorter ones recur by chance


@dataclass(frozen=True, slots=True)
class Problem:
    """A word problem.

    id: stable; answer: the number; equation: gives the answer ("" where the source has none). story, asked: the text before the
    final question, and that question, where the source separates them.
    """

    id: str
    question: str
    answer: str
    type: str
    split: str
    equation: str = ""
    story: str = ""
    asked: str = ""


def arithmetic(source: str, split: str, *, verifier: str = "numeric", remembered: bool = False) -> list[Task]:
    """Returns the tasks of one split, in order of id. Their tags are type, split, equation (a part of the key: no agent may read
    it).

    Raises UnknownName for a source, split or verifier, and KeepworthError where stories are not separate.

    Args:
        source: "gsm8k" or "svamp".
        split: "train", "dev" or "test".
        verifier: "numeric" scores the number at the end of an answer; "expression" scores the value of the expression that is
            the answer, so that a model weak in arithmetic can show that it knows what to compute; "math_verify" also reads
            LaTeX and needs the extra `math`.
        remembered: Whether the task asks the last question alone; the story is then its session, which an agent finds in its
            memory. It needs "svamp".
    """
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
            sessions=(passage(problem.id, [problem.story], marked={0}),) if remembered else (),
            evidence=(problem.id,) if remembered else (),
            answers=(problem.answer,),
            verifier=verifier,
            tags={"type": problem.type, "split": split, **({"equation": problem.equation} if problem.equation else {})},
        )
        for problem in problems(source)
        if problem.split == split
    ]


@lru_cache(maxsize=len(SOURCES))
def problems(source: str) -> tuple[Problem, ...]:
    """Returns every problem of a source, in order of id."""
    packed = resources.files("keepworth.worlds").joinpath(f"data/arithmetic/{_FILES[source]}").read_bytes()
    parsed = _gsm8k(lzma.decompress(packed)) if source == "gsm8k" else _svamp(gzip.decompress(packed))
    return tuple(sorted(parsed, key=lambda problem: problem.id))


def _gsm8k(data: bytes) -> Iterable[Problem]:
    """Reads lines of [split, number in its file, question, answer]."""
    for line in data.decode().rstrip("\n").split("\n"):  # not splitlines: questions hold other separators
        split, number, question, answer = json.loads(line)
        if split == "train":
            split = "dev" if side(question) == "dev" else "train"
        yield Problem(f"{number}", question, answer.replace(",", ""), "multi-step", split)


def _svamp(data: bytes) -> list[Problem]:
    records = json.loads(data)
    side_of = assign_sides({record["ID"]: _marks(record["Body"]) for record in records})
    return [
        Problem(
            id=record["ID"],
            question=_joined(record["Body"], record["Question"]),
            answer=format_number(Fraction(str(record["Answer"]))),
            type=record["Type"].lower().replace("divison", "division"),  # corrects a misspelling of the source
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
    """Shortens an equation: `( 76.0 - 25.0 )` becomes `76 - 25`."""
    text = re.sub(r"(\d)\.0\b", r"\1", " ".join(equation.split()))
    return text[2:-2] if text.startswith("( ") and text.endswith(" )") and text.count("(") == 1 else text


def _marks(body: str) -> set[str]:
    """Returns the sentences of a problem without their numbers: its variations share them."""
    worded = (" ".join(word for word in tokens(sentence) if not word.isdigit()) for sentence in sentences(body))
    return {mark for mark in worded if len(mark.split()) >= _SHARED_SENTENCE}
