"""Two measures of a memory manager, in two tables that are never mixed.

* `operation_rows`: accuracy on generated cases with a known right operation, about unseen people. It says whether the manager
  reads memories and facts, not whether that helps.
* `maintained_answers`: the real measure. A manager reads the facts of a conversation one by one and maintains a bank; at the end
  a frozen reader answers the question from it. Every arm sees the same facts in the same order, the same retrieval and the same
  reader.

A manager is any function from states to lines of text: a model, or a constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from keepworth.base.metrics import token_f1
from keepworth.base.statistics import estimate, score_range
from keepworth.memory.facts import Fact, decisive_facts, evidence_turns, facts_of
from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._memory_r1.memory_manager import Choose, act, observe
from keepworth.methods.recipes._memory_r1.steps import READ_ITEMS, operation_step, provenance_of, retrieved
from keepworth.records.episode import ParseStatus, Task
from keepworth.records.operations import read_operation
from keepworth.worlds.answerer import Reader
from keepworth.worlds.splits import draw_order


def always(line: str) -> Choose:
    """Returns the manager that always writes the same line: `ADD` is the append-only memory."""
    return lambda states: [line] * len(states)


def keeping_evidence(tasks: Sequence[Task]) -> Choose:
    """Returns the manager that knows the answer keys of `tasks`: it adds only the facts that decide a question. Its banks bound
    what there is to gain by leaving facts out."""
    decisive = {fact.statement for task in tasks for fact in decisive_facts(task, facts_of(task.sessions))}
    return lambda states: ["ADD" if state.fact in decisive else "NOOP" for state in states]


Rows = list[dict[str, object]]
"""Rows of a table, as a run stores its measurements."""


def operation_rows(arm: str, choose: Choose, tasks: Sequence[Task]) -> Rows:
    """Returns the manager's accuracy on operation tasks (pass a held-out split): on the right entry, with a value for each case;
    on any entry; by right operation; and the share of invalid lines."""
    texts = choose([operation_step(task).state for task in tasks])
    exact, kind_only, invalid = [], [], 0
    for task, text in zip(tasks, texts, strict=True):
        kind, target, status = read_operation(text, shown=len(task.sessions[0].turns))
        right = read_operation(task.answers[0])[:2]
        understood = status is not ParseStatus.INVALID
        exact.append(float(understood and (kind, target) == right))
        kind_only.append(float(understood and kind is right[0]))
        invalid += not understood
    of = [task.tags["operation"] for task in tasks]
    parts = {name: [value for value, part in zip(exact, of, strict=True) if part == name] for name in sorted(set(of))}
    cases = {str(number): value for number, value in enumerate(exact)}
    return [
        {**_row(arm, "operation_accuracy", exact), "values": cases},
        _row(arm, "operation_kind", kind_only),
        *(_row(arm, f"accuracy_{name.lower()}", values) for name, values in parts.items()),
        _share(arm, invalid, len(tasks)),
    ]


def fact_stream(task: Task, count: int, seed: int = 0) -> list[Fact]:
    """Returns the facts that a manager reads for a task, in order of time: the facts of evidence turns, and others up to `count`.

    Evidence beyond `count` stays. It is oracle information, equal for every arm: the table is about maintaining a bank, not about
    finding what to read.
    """
    facts = facts_of(task.sessions)
    marked = evidence_turns(task)
    others = [fact for fact in facts if fact.place not in marked]
    others.sort(key=lambda fact: draw_order(seed, task.key, "stream", fact.session, fact.turn, fact.sentence))
    room = max(0, count - (len(facts) - len(others)))
    chosen = set(others[:room])
    return [fact for fact in facts if fact.place in marked or fact in chosen]


FACTS, SEEN = 16, 4
"""Facts that are read for a task, and memories that the manager sees with each."""


def maintained_answers(
    arm: str, choose: Choose, tasks: Sequence[Task], reader: Reader, root: Bank, *, mode: str = "hybrid"
) -> tuple[Rows, dict[str, int]]:
    """Lets the manager read every task's facts one by one; then the reader answers from the resulting bank.

    Args:
        tasks: They advance in parallel, so that a model gets one batch per fact number.
        root: An empty bank, forked for each task.

    Returns:
        Rows of token F1, of whether the last decisive fact is still in the bank (a question without one counts as lost) and of
        the bank's size, each with the value of every question, so that arms of different runs can be compared question by
        question; and how often each operation was executed.
    """
    streams = [fact_stream(task, FACTS) for task in tasks]
    banks = [root.fork() for _ in tasks]
    operations: Counter[str] = Counter()
    invalid = 0
    for number in range(max(map(len, streams))):
        going = [index for index, stream in enumerate(streams) if number < len(stream)]
        states = []
        for index in going:
            fact, seed = streams[index][number], f"0/{tasks[index].key}/{number}"
            states.append(observe(banks[index], fact.statement, k=SEEN, mode=mode, seed=seed))
        for index, state, text in zip(going, states, choose(states), strict=True):
            fact = streams[index][number]
            event = act(banks[index], state, text, provenance=provenance_of(fact), event_time=fact.date)
            operations[event.operation.kind.value] += 1
            invalid += event.status is ParseStatus.INVALID
    asked = zip(tasks, banks, strict=True)
    answers = reader.answers([(task.input, retrieved(bank, task.input, READ_ITEMS, mode)) for task, bank in asked])
    columns = {
        "f1": [token_f1(answer, task.answers) for answer, task in zip(answers, tasks, strict=True)],
        "evidence_kept": [_evidence_kept(*row) for row in zip(tasks, streams, banks, strict=True)],
        "bank_size": [float(len(bank)) for bank in banks],
    }
    keys = [task.key for task in tasks]
    rows = [
        {**_row(arm, name, column), "values": dict(zip(keys, column, strict=True))} for name, column in columns.items()
    ]
    return [*rows, _share(arm, invalid, sum(map(len, streams)))], dict(sorted(operations.items()))


def _evidence_kept(task: Task, stream: Sequence[Fact], bank: Bank) -> float:
    """Returns 1.0 if the last decisive fact of the stream is a current item of the bank."""
    decisive = decisive_facts(task, stream)
    return float(bool(decisive) and any(item.text == decisive[-1].statement for item in bank.items()))


def _row(arm: str, metric: str, values: Sequence[float]) -> dict[str, object]:
    return {"arm": arm, "metric": metric, **asdict(estimate(values, within=score_range(values)))}


def _share(arm: str, invalid: int, n: int) -> dict[str, object]:
    return {"arm": arm, "metric": "invalid", "mean": invalid / n if n else 0.0, "low": None, "high": None, "n": n}
