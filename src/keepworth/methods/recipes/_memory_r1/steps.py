"""A manager's step: one operation on a bank, what it led to, and what that was worth.

Two measures, never mixed in one table:

* `operation_reward`: is it the right operation? Only where the right one is known (`keepworth.tasks.operations`).
* `answer_reward`: after it, what can a frozen reader answer? The operation is carried out on a fork of the bank, memories
  are retrieved for each question of the step, the reader answers greedily, and the reward is the token F1 of its answers.
  This is the reward of "Memory-R1" (arXiv 2508.19828) with F1 in the place of exact match, so that short answers do not
  leave nearly every group without a difference. One step decides: a contextual bandit.

Both come with a format term, which is small: a well-formed line alone must never be worth learning.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from keepworth.agents.answerer import Query, Reader
from keepworth.agents.manager import PROMPT_ID, ROLE, ManagerState, act, format_reward, observe
from keepworth.episodes.episode import Episode, MemoryEvent, ParseStatus, RewardTerm, Shown, StopReason, Task
from keepworth.episodes.model import FinishReason, Model, SamplingParams
from keepworth.memory.item import UNKNOWN, Provenance
from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._memory_r1.answerer import of_one_call
from keepworth.rollouts.driver import RolloutContext
from keepworth.tasks.facts import Fact, LinkedQuestion, ManagerTuple
from keepworth.tasks.metrics import token_f1
from keepworth.tasks.operations import read_operation, shown_memories

FORMAT_WEIGHT = 0.1
READ_ITEMS = 5
"""Items a reader is shown for a question."""


@dataclass(frozen=True, slots=True)
class ManagerStep:
    """A manager's step, ready for every member of a group: each acts on its own fork of `bank`.

    source, event_time: what a new item is stored with; gold: the right line where it is known; questions: what the step
    is judged by otherwise."""

    key: str
    bank: Bank
    state: ManagerState
    source: Provenance = UNKNOWN
    event_time: str = ""
    gold: str = ""
    questions: tuple[LinkedQuestion, ...] = ()


@dataclass(frozen=True, slots=True)
class Consequence:
    """What one member's text led to: the operation, the reader's answers in the order of the questions, the reward."""

    event: MemoryEvent
    answers: tuple[str, ...]
    terms: tuple[RewardTerm, ...]
    memory_after: str


Score = Callable[[ManagerStep, Sequence[str]], list[Consequence]]
"""Texts of a group in, one consequence each out, in their order."""


def operation_step(task: Task) -> ManagerStep:
    """An operation task as a step: its memories are in a bank, shown in the task's order."""
    bank = Bank.empty(None)
    items = [bank.add(memory, deduplicate=False) for memory in shown_memories(task)]
    state = ManagerState(tuple(item.id for item in items), tuple(item.text for item in items), task.input)
    return ManagerStep(task.key, bank, state, gold=task.answers[0])


def conversation_step(
    given: ManagerTuple, root: Bank, *, k: int = 4, mode: str = "hybrid", attempt: int = 0
) -> ManagerStep:
    """A tuple as a step: its bank is built, the `k` memories most like the fact are found and shuffled.

    root: an empty bank; steps that share one share its encoder and its vectors. `attempt` (the training step, say)
    changes the shuffle and nothing else."""
    bank = bank_of(given.before, root)
    state = observe(bank, given.fact.statement, k=k, mode=mode, seed=f"{given.key}/{attempt}")
    return ManagerStep(given.key, bank, state, provenance_of(given.fact), given.fact.date, questions=given.questions)


def bank_of(facts: Sequence[Fact], root: Bank) -> Bank:
    """A fork of the empty bank `root` that holds `facts`, each as its bare statement with its date as event time: what
    an answerer is shown has no dates either, and a dated line is a third longer. Raises ValueError where `root` is not empty."""
    if len(root):
        raise ValueError(f"bank_of starts from an empty bank, and this one has {len(root)} items: use Bank.empty(...)")
    bank = root.fork()
    for fact in facts:
        bank.add(fact.statement, provenance=provenance_of(fact), event_time=fact.date)
    return bank


def provenance_of(fact: Fact) -> Provenance:
    return Provenance("conversation", fact.session, fact.turn, fact.speaker, fact.date)


def operation_reward() -> Score:
    """Is it the right operation? 1 for the right one, else 0. Credit for the right kind on a wrong entry would make always naming
    one entry pay."""

    def score(step: ManagerStep, texts: Sequence[str]) -> list[Consequence]:
        if not step.gold:
            raise ValueError(f"step {step.key!r} has no right operation on record: score it with answer_reward")
        gold_kind, gold_target, _ = read_operation(step.gold)
        consequences = []
        for text in texts:
            event, after = _carried_out(step, text)
            kind, target, status = read_operation(text, shown=len(step.state.ids))
            right = status is not ParseStatus.INVALID and (kind, target) == (gold_kind, gold_target)
            terms = (RewardTerm("operation", float(right)), _format_term(status))
            consequences.append(Consequence(event, (), terms, after.content_hash()))
        return consequences

    return score


def answer_reward(reader: Reader, *, mode: str = "hybrid") -> Score:
    """What can the frozen reader answer afterwards? `answer` is the mean token F1 over the step's questions. Members whose banks
    come out equal share one reading. mode: of the searches in a bank."""

    def score(step: ManagerStep, texts: Sequence[str]) -> list[Consequence]:
        if not step.questions:
            raise ValueError(f"step {step.key!r} has no question to judge it by: score it with operation_reward")
        events, afters, queries = [], [], list[Query]()
        first: dict[str, int] = {}
        for text in texts:
            event, bank = _carried_out(step, text)
            after = bank.content_hash()
            events.append(event)
            afters.append(after)
            if after not in first:
                first[after] = len(queries)
                queries += [
                    (asked.question, retrieved(bank, asked.question, READ_ITEMS, mode)) for asked in step.questions
                ]
        answered = reader.answers(queries)
        consequences = []
        for event, after in zip(events, afters, strict=True):
            answers = tuple(answered[first[after] : first[after] + len(step.questions)])
            scores = [token_f1(answer, asked.answers) for answer, asked in zip(answers, step.questions, strict=True)]
            terms = (
                RewardTerm("answer", sum(scores) / len(scores), scorer=reader.identity),
                _format_term(event.status),
            )
            consequences.append(Consequence(event, answers, terms, after))
        return consequences

    return score


def retrieved(bank: Bank, question: str, read: int = READ_ITEMS, mode: str = "hybrid") -> tuple[str, ...]:
    """The texts of the `read` best items for `question`, in order of time, as the answerer is shown them."""
    hits = bank.search(question, read, mode=mode) if len(bank) else []
    hits.sort(key=lambda hit: (hit.item.event_time, hit.item.provenance.session, hit.item.provenance.turn, hit.item.id))
    return tuple(hit.text for hit in hits)


def _carried_out(step: ManagerStep, text: str) -> tuple[MemoryEvent, Bank]:
    bank = step.bank.fork()
    return act(bank, step.state, text, provenance=step.source, event_time=step.event_time), bank


def _format_term(status: ParseStatus) -> RewardTerm:
    return RewardTerm("format", format_reward(status), weight=FORMAT_WEIGHT, shaping=True)


Judge = Callable[[str], Awaitable[Consequence]]
"""What a member's text leads to."""


async def manage(
    model: Model, step: ManagerStep, context: RolloutContext, params: SamplingParams, judge: Judge
) -> Episode:
    """One episode: an operation on the step's bank, and what it was worth."""
    prompt, version = model.encode(step.state.prompt), model.version
    begun = time.perf_counter()
    sample = await context.sample(prompt, params)
    sampled = time.perf_counter()
    text = model.decode(sample.ids)
    consequence = await judge(text)
    seconds = {"sample": sampled - begun, "reward": time.perf_counter() - sampled}
    stop = StopReason.MAX_TOKENS if sample.finish is FinishReason.LENGTH else StopReason.COMPLETED
    state = step.state
    return of_one_call(
        ROLE,
        PROMPT_ID,
        prompt,
        sample,
        params.temperature,
        text,
        step.bank.content_hash(),
        consequence.memory_after,
        id=context.id,
        task=step.key,
        question="\n".join((state.fact, *(question.question for question in step.questions))),
        answer=" | ".join(consequence.answers) or text.strip(),
        expected=(step.gold,) if step.gold else tuple(question.answers[0] for question in step.questions),
        rewards=consequence.terms,
        stop=StopReason.PARSE_ERROR if consequence.event.status is ParseStatus.INVALID else stop,
        policy_version=version,
        shown=tuple(Shown(name, 0.0, memory) for name, memory in zip(state.ids, state.memories, strict=True)),
        operations=(consequence.event,),
        seconds=seconds,
    )
