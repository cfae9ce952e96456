"""Streams of facts from real conversations, for learning what to store: facts come one by one, and an unknown question follows
the last one.

The order of the facts and their dates do not reveal which of them the question needs: places are drawn uniformly, and only the
facts that decide the question keep their relative order, because "the later one counts" is part of their meaning. A stream in the
order of time would reveal it: of LongMemEval's streams of 16, the last four hold 61 to 68 % of the evidence, where chance is 25
%.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from keepworth.base.errors import KeepworthError
from keepworth.base.metrics import tokens
from keepworth.memory.facts import Fact, decisive_facts, evidence_turns, facts_of
from keepworth.records.episode import Task
from keepworth.worlds.splits import SPLITS, draw_order

FOLDS = 5


@dataclass(frozen=True, slots=True)
class FactStream:
    """A stream of facts, in the order of arrival, with dates in that order. evidence: for each fact whether it decides the
    question (hidden: never a reward except in an arm that says so). cluster: the tied set of its question; number: index among
    the streams of its question."""

    task: Task
    facts: tuple[Fact, ...]
    evidence: tuple[bool, ...]
    cluster: str
    number: int = 0

    @property
    def key(self) -> str:
        return f"{self.task.key}~{len(self.facts)}/{self.number}"

    def evidence_kept(self, numbers: Iterable[int]) -> float:
        """Returns the share of the stream's evidence that is among the facts with these numbers."""
        wanted = {number for number, decides in enumerate(self.evidence) if decides}
        return len(wanted & set(numbers)) / len(wanted)


def fact_streams(
    tasks: Sequence[Task],
    length: int,
    *,
    streams: int = 1,
    seed: int = 0,
    clusters: Mapping[str, str] | None = None,
) -> list[FactStream]:
    """Returns streams of facts for every task whose answer some of its facts state word for word.

    The facts that decide a question (`decisive_facts`) are joined by others of its haystack, none of them from a turn that is
    marked as evidence; repeated facts come once. Raises KeepworthError where no task has a stream.

    Args:
        tasks: The questions with their haystacks. Those with fewer facts than `length`, or with evidence for more than half
            of it, are left out.
        length: The number of facts of a stream.
        streams: The number of streams of a task.
        seed: Facts are drawn by a hash of it, the task and the number of the stream.
        clusters: The cluster of each task, by its key; without it each task is its own.
    """
    made: list[FactStream] = []
    for task in tasks:
        facts = list({fact.statement: fact for fact in facts_of(task.sessions)}.values())
        decisive = decisive_facts(task, facts)
        words = {word for fact in decisive for word in tokens(fact.statement)}
        if not decisive or not any(set(tokens(answer)) <= words for answer in task.answers):
            continue
        marked = evidence_turns(task)
        others = [fact for fact in facts if fact.place not in marked]
        if len(decisive) > length // 2 or len(others) < length - len(decisive):
            continue
        cluster = (clusters or {}).get(task.key, task.key)
        made += [_stream(task, decisive, others, length, number, seed, cluster) for number in range(streams)]
    if not made:
        raise KeepworthError(
            f"none of {len(tasks)} tasks has {length} facts of which some decide its question.",
            "Take shorter streams, or tasks with more distractors.",
        )
    return made


def _stream(
    task: Task, decisive: Sequence[Fact], others: Sequence[Fact], length: int, number: int, seed: int, cluster: str
) -> FactStream:
    def drawn(fact: Fact, of: str) -> str:
        return draw_order(seed, of, task.key, number, fact.session, fact.turn, fact.sentence)

    filler = sorted(others, key=lambda fact: drawn(fact, "filler"))[: length - len(decisive)]
    order = sorted([*decisive, *filler], key=lambda fact: drawn(fact, "place"))
    evidence = tuple(fact in decisive for fact in order)
    in_time = iter(decisive)
    placed = [next(in_time) if decides else fact for fact, decides in zip(order, evidence, strict=True)]
    dates = sorted(fact.date for fact in placed)
    facts = tuple(replace(fact, date=date) for fact, date in zip(placed, dates, strict=True))
    return FactStream(task, facts, evidence, cluster, number)


def folds_of(streams: Sequence[FactStream], folds: int = FOLDS) -> list[int]:
    """Returns the fold of each stream: clusters stay whole, in an order by hash, as even as their sizes allow."""
    sizes: dict[str, int] = {}
    for stream in streams:
        sizes[stream.cluster] = sizes.get(stream.cluster, 0) + 1
    filled, fold_of = [0] * folds, dict[str, int]()
    for cluster in sorted(sizes, key=lambda name: draw_order("fold", name)):
        fold_of[cluster] = filled.index(min(filled))
        filled[fold_of[cluster]] += sizes[cluster]
    return [fold_of[stream.cluster] for stream in streams]


def longmemeval_streams(length: int, splits: Sequence[str] = SPLITS, streams: int = 3) -> list[FactStream]:
    """Returns streams of the extractive questions of LongMemEval. Facts of one split never come in a stream of another.

    Args:
        length: The number of facts of a stream.
        splits: The splits whose questions are taken. All of them are for cross-validation, in which each question is tested
            by a writer that never saw it.
        streams: The number of streams of a question.
    """
    from keepworth.worlds.data_sets.longmemeval import longmemeval
    from keepworth.worlds.data_sets.longmemeval_questions import questions

    tasks: list[Task] = []
    for split in splits:
        tasks += longmemeval(split, distractors=max(10, length // 2), extractive=True, abstention=False)
    clusters = {f"longmemeval/{question.id}": question.tie for question in questions()}
    return fact_streams(tasks, length, streams=streams, clusters=clusters)
