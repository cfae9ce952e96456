"""Two measures of a memory manager, in two tables that are never mixed.

* `operation_accuracy`: on generated cases with a known right operation, about people it never saw. It says whether the
  manager reads memories and facts, nothing about whether that helps.
* `maintained_answers`: the real measure. A manager reads the facts of a conversation one by one and keeps a bank; at the
  end a frozen reader answers the question from it. Every arm sees the same facts in the same order, the same retrieval
  and the same reader.

A manager is anything that turns states into lines of text: a model, or a constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keepworth.agents.answerer import Reader
from keepworth.agents.manager import Choose, act, observe
from keepworth.episodes.episode import ParseStatus, Task
from keepworth.evaluation.statistics import SCORE, MeanEstimate, estimate, score_range
from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._memory_r1.steps import READ_ITEMS, operation_step, provenance_of, retrieved
from keepworth.tasks.facts import Fact, decisive_facts, facts_of
from keepworth.tasks.metrics import exact_match, token_f1
from keepworth.tasks.operations import read_operation
from keepworth.tasks.splits import draw_order


def always(line: str) -> Choose:
    """The manager that writes the same line whatever it sees: `ADD` is the append-only memory."""
    return lambda states: [line] * len(states)


def keeping_evidence(tasks: Sequence[Task]) -> Choose:
    """The manager that knows the answer keys of `tasks`: it adds the facts that decide a question and nothing else. What
    a reader answers from its banks is what there is to gain by leaving things out."""
    decisive = {fact.statement for task in tasks for fact in decisive_facts(task, facts_of(task.sessions))}
    return lambda states: ["ADD" if state.fact in decisive else "NOOP" for state in states]


@dataclass(frozen=True, slots=True)
class OperationAccuracy:
    """exact: 1.0 per task with the right operation on the right entry; kind_only: the right operation on any entry.

    by_operation: exact accuracy by right operation. asked: how often each line was written, as it was understood."""

    exact: tuple[float, ...]
    kind_only: tuple[float, ...]
    by_operation: Mapping[str, MeanEstimate]
    invalid: float
    repaired: float
    asked: Mapping[str, int]

    @property
    def accuracy(self) -> MeanEstimate:
        return estimate(self.exact, within=SCORE)


def operation_accuracy(choose: Choose, tasks: Sequence[Task]) -> OperationAccuracy:
    """How often the manager picks the right operation on operation tasks (hand in a held-out split)."""
    if not tasks:
        raise ValueError("operation_accuracy: no tasks were given")
    texts = choose([operation_step(task).state for task in tasks])
    read = [read_operation(text, shown=len(task.sessions[0].turns)) for text, task in zip(texts, tasks, strict=True)]
    right = [read_operation(task.answers[0])[:2] for task in tasks]
    exact = tuple(
        float(status is not ParseStatus.INVALID and (kind, target) == gold)
        for (kind, target, status), gold in zip(read, right, strict=True)
    )
    kind_only = tuple(
        float(status is not ParseStatus.INVALID and kind is gold[0])
        for (kind, _, status), gold in zip(read, right, strict=True)
    )
    statuses = Counter(status for _, _, status in read)
    asked = Counter(
        "invalid" if status is ParseStatus.INVALID else kind.value + ("" if target is None else f" {target}")
        for kind, target, status in read
    )
    return OperationAccuracy(
        exact,
        kind_only,
        by_operation=_split_by(exact, [task.tags["operation"] for task in tasks]),
        invalid=statuses[ParseStatus.INVALID] / len(tasks),
        repaired=statuses[ParseStatus.REPAIRED] / len(tasks),
        asked=dict(sorted(asked.items())),
    )


def _split_by(values: Sequence[float], labels: Sequence[str]) -> dict[str, MeanEstimate]:
    """An estimate per label; values labelled "" are in none."""
    found: dict[str, list[float]] = {}
    for value, label in zip(values, labels, strict=True):
        if label:
            found.setdefault(label, []).append(value)
    return {label: estimate(found[label], within=SCORE) for label in sorted(found)}


@dataclass(frozen=True, slots=True)
class MaintainedAnswers:
    """One value per question, in the order of the tasks: token F1 and exact match of the reader's answer, items in the
    bank at the end, and whether the last decisive fact was still there (a question without one counts as lost).

    operations: what was executed, over all facts; invalid: share of lines that could not be understood; facts: how many
    facts were read in all; reader: identity of the reader."""

    tasks: tuple[str, ...]
    answers: tuple[str, ...]
    f1: tuple[float, ...]
    exact: tuple[float, ...]
    bank_sizes: tuple[int, ...]
    evidence_kept: tuple[float, ...]
    operations: Mapping[str, int]
    invalid: float
    facts: int
    reader: str


def fact_stream(task: Task, count: int, seed: int = 0) -> list[Fact]:
    """What a manager reads for a task, in the order of time: the facts of evidence turns, and others up to `count` in all.

    Evidence beyond `count` stays. It is oracle information, equal for every arm: the table is about keeping a bank, not
    about finding what to read."""
    if count < 1:
        raise ValueError(f"fact_stream: count must be at least 1, not {count}")
    facts = facts_of(task.sessions)
    marked = {(session.id, turn.index) for session in task.sessions for turn in session.turns if turn.evidence}
    others = [fact for fact in facts if fact.place not in marked]
    others.sort(key=lambda fact: draw_order(seed, task.key, "stream", fact.session, fact.turn, fact.sentence))
    room = max(0, count - (len(facts) - len(others)))
    taken = set(others[:room])
    return [fact for fact in facts if fact.place in marked or fact in taken]


FACTS, SEEN = 16, 4
"""Facts that are read for a task, and memories that the manager sees with each."""


def maintained_answers(
    choose: Choose,
    tasks: Sequence[Task],
    reader: Reader,
    root: Bank,
    *,
    mode: str = "hybrid",
) -> MaintainedAnswers:
    """Every task's facts are read one by one by the manager; then the reader answers from the bank it kept.

    root: an empty bank, forked for each task; mode: of its searches. Tasks are advanced side by side, so that a model
    sees one batch per fact number."""
    if not tasks:
        raise ValueError("maintained_answers: no tasks were given")
    if len(root):
        raise ValueError(f"maintained_answers starts from an empty bank, and this one has {len(root)} items")
    streams = [fact_stream(task, FACTS) for task in tasks]
    banks = [root.fork() for _ in tasks]
    operations: Counter[str] = Counter()
    invalid = 0
    for number in range(max(map(len, streams))):
        going = [index for index, stream in enumerate(streams) if number < len(stream)]
        states = [
            observe(
                banks[index],
                streams[index][number].statement,
                k=SEEN,
                mode=mode,
                seed=f"0/{tasks[index].key}/{number}",
            )
            for index in going
        ]
        for index, state, text in zip(going, states, choose(states), strict=True):
            fact = streams[index][number]
            event = act(banks[index], state, text, provenance=provenance_of(fact), event_time=fact.date)
            operations[event.operation.kind.value] += 1
            invalid += event.status is ParseStatus.INVALID
    queries = [
        (task.input, retrieved(bank, task.input, READ_ITEMS, mode)) for task, bank in zip(tasks, banks, strict=True)
    ]
    answers = reader.answers(queries)
    total = sum(map(len, streams))
    return MaintainedAnswers(
        tasks=tuple(task.key for task in tasks),
        answers=tuple(answers),
        f1=tuple(token_f1(answer, task.answers) for answer, task in zip(answers, tasks, strict=True)),
        exact=tuple(exact_match(answer, task.answers) for answer, task in zip(answers, tasks, strict=True)),
        bank_sizes=tuple(len(bank) for bank in banks),
        evidence_kept=tuple(
            _evidence_kept(task, stream, bank) for task, stream, bank in zip(tasks, streams, banks, strict=True)
        ),
        operations=dict(sorted(operations.items())),
        invalid=invalid / total if total else 0.0,
        facts=total,
        reader=reader.identity,
    )


def _evidence_kept(task: Task, stream: Sequence[Fact], bank: Bank) -> float:
    """1.0 if the last decisive fact of the stream is a current item of the bank."""
    decisive = decisive_facts(task, stream)
    return float(bool(decisive) and any(item.text == decisive[-1].statement for item in bank.items()))


def operation_rows(arm: str, result: OperationAccuracy) -> list[dict[str, object]]:
    """Rows of the table of operation accuracy: overall with the value of each case, by its number; the kind alone; then by
    right operation."""
    cases = {str(number): value for number, value in enumerate(result.exact)}
    rows: list[dict[str, object]] = [
        {**_row(arm, "operation_accuracy", result.accuracy), "values": cases},
        _row(arm, "operation_kind", estimate(result.kind_only, within=SCORE)),
    ]
    rows += [_row(arm, f"accuracy_{name.lower()}", part) for name, part in result.by_operation.items()]
    n = len(result.exact)
    return [*rows, {"arm": arm, "metric": "invalid", "mean": result.invalid, "low": None, "high": None, "n": n}]


def answer_rows(arm: str, result: MaintainedAnswers) -> list[dict[str, object]]:
    """Rows of the table of the real measure: answer F1, whether the evidence survived, and the size of the bank. The
    first three carry the value of each question, so that arms of different runs can be compared question by question."""
    sizes = tuple(float(size) for size in result.bank_sizes)
    columns = (("f1", result.f1), ("evidence_kept", result.evidence_kept), ("bank_size", sizes))
    rows: list[dict[str, object]] = [
        {
            **_row(arm, metric, estimate(values, within=score_range(values))),
            "values": dict(zip(result.tasks, values, strict=True)),
        }
        for metric, values in columns
    ]
    return [
        *rows,
        {"arm": arm, "metric": "invalid", "mean": result.invalid, "low": None, "high": None, "n": result.facts},
    ]


def _row(arm: str, metric: str, value: MeanEstimate) -> dict[str, object]:
    return {"arm": arm, "metric": metric, "mean": value.mean, "low": value.low, "high": value.high, "n": value.n}
