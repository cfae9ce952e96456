"""A manager's step: one operation on a bank, and its reward.

The right operation of a generated case is known (`operations.py`). A format term is added, which is small, so that a well-formed
line alone is never worth learning. The paper's reward, answers from the resulting bank, is that of `memory_r1_joint`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from keepworth.memory.facts import USER, Fact
from keepworth.memory.item import Provenance
from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._memory_r1.answering import of_one_call
from keepworth.methods.recipes._memory_r1.memory_manager import PROMPT_ID, ManagerState, act, format_reward
from keepworth.methods.recipes._memory_r1.operation_tasks import shown_memories
from keepworth.records.episode import Episode, MemoryEvent, ParseStatus, RewardTerm, Segment, Shown, StopReason, Task
from keepworth.records.model import FinishReason, Model, SamplingParams
from keepworth.records.operations import read_operation
from keepworth.training.run_folder import MANAGER
from keepworth.worlds.driver import RolloutContext

FORMAT_WEIGHT = 0.1
READ_ITEMS = 5
"""Items that a reader sees for a question."""


@dataclass(frozen=True, slots=True)
class ManagerStep:
    """A manager's step, shared by the members of a group: each acts on its own fork of `bank`. gold: the right line."""

    key: str
    bank: Bank
    state: ManagerState
    gold: str


@dataclass(frozen=True, slots=True)
class Consequence:
    """The result of one member's text: the operation and the reward."""

    event: MemoryEvent
    terms: tuple[RewardTerm, ...]
    memory_after: str


def operation_step(task: Task) -> ManagerStep:
    """Converts an operation task to a step: its memories are in a bank, shown in the task's order."""
    bank = Bank.empty(None)
    items = [bank.add(memory, deduplicate=False) for memory in shown_memories(task)]
    state = ManagerState(tuple(item.id for item in items), tuple(item.text for item in items), task.input)
    return ManagerStep(task.key, bank, state, task.answers[0])


def provenance_of(fact: Fact) -> Provenance:
    return Provenance("conversation", fact.session, fact.turn, USER, fact.date)


def judged(step: ManagerStep, text: str) -> Consequence:
    """Rewards the right operation with 1, else 0. Credit for the right kind alone would reward always naming one entry."""
    bank = step.bank.fork()
    event = act(bank, step.state, text)
    kind, target, status = read_operation(text, shown=len(step.state.ids))
    right = status is not ParseStatus.INVALID and (kind, target) == read_operation(step.gold)[:2]
    term = RewardTerm("format", format_reward(status), weight=FORMAT_WEIGHT, shaping=True)
    return Consequence(event, (RewardTerm("operation", float(right)), term), bank.content_hash())


def retrieved(bank: Bank, question: str, read: int = READ_ITEMS, mode: str = "hybrid") -> tuple[str, ...]:
    """Returns the texts of the `read` best items for `question`, in order of time, as the answerer sees them."""
    hits = bank.search(question, read, mode=mode) if len(bank) else []
    hits.sort(key=lambda hit: (hit.item.event_time, hit.item.provenance.session, hit.item.provenance.turn, hit.item.id))
    return tuple(hit.text for hit in hits)


async def manage(model: Model, step: ManagerStep, context: RolloutContext, params: SamplingParams) -> Episode:
    """Plays one episode: an operation on the step's bank, and its reward."""
    prompt, version = model.encode(step.state.prompt), model.version
    begun = time.perf_counter()
    sample = await context.sample(prompt, params)
    sampled = time.perf_counter()
    text = model.decode(sample.ids)
    consequence = judged(step, text)
    seconds = {"sample": sampled - begun, "reward": time.perf_counter() - sampled}
    stop = StopReason.MAX_TOKENS if sample.finish is FinishReason.LENGTH else StopReason.COMPLETED
    state = step.state
    before, after = step.bank.content_hash(), consequence.memory_after
    return of_one_call(
        Segment.of(
            sample, MANAGER, PROMPT_ID, prompt, text, params.temperature, memory_before=before, memory_after=after
        ),
        id=context.id,
        task=step.key,
        question=state.fact,
        answer=text.strip(),
        expected=(step.gold,),
        rewards=consequence.terms,
        stop=StopReason.PARSE_ERROR if consequence.event.status is ParseStatus.INVALID else stop,
        policy_version=version,
        shown=tuple(Shown(name, 0.0, memory) for name, memory in zip(state.ids, state.memories, strict=True)),
        operations=(consequence.event,),
        seconds=seconds,
    )
