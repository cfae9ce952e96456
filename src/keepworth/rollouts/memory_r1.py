"""Memory-R1's two rollouts, one model call each: a question answered from memory, and a fact that memory is changed for, with the
reward terms that say what the change was worth. After "Memory-R1", arXiv 2508.19828.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from keepworth.agents import answerer, manager
from keepworth.agents.manager import ANSWER_TOKENS, Choose, ManagerState, act, format_reward, observe
from keepworth.agents.recall import Recall, Recalled
from keepworth.episodes.episode import Episode, MemoryEvent, ParseStatus, RewardTerm, Segment, Shown, StopReason, Task
from keepworth.episodes.model import FinishReason, Model, Sample, SamplingParams, Tokens, VersionSpan
from keepworth.episodes.text import as_line
from keepworth.memory.item import UNKNOWN, Provenance
from keepworth.memory.overlay import Bank
from keepworth.rollouts.driver import RolloutContext
from keepworth.tasks.facts import Fact, LinkedQuestion, ManagerTuple
from keepworth.tasks.metrics import token_f1
from keepworth.tasks.operations import read_operation, shown_memories
from keepworth.tasks.verifiers import verifier


def _of_one_call(
    role: str,
    prompt_id: str,
    prompt: Tokens,
    sample: Sample,
    temperature: float,
    text: str,
    before: str,
    after: str,
    **rest: Any,
) -> Episode:
    """The episode of a single segment. before, after: content hashes of the memory; rest: fields of `Episode`."""
    segment = Segment(
        role=role,
        prompt_id=prompt_id,
        context=prompt,
        ids=sample.ids,
        logprobs=sample.logprobs,
        temperature=temperature,
        finish=sample.finish,
        spans=sample.spans,
        text=text,
        memory_before=before,
        memory_after=after,
    )
    return Episode(role=role, segments=(segment,), memory_snapshot=before, **rest)


# Answering from memory.


async def answer(
    model: Model,
    task: Task,
    recall: Recall,
    context: RolloutContext,
    params: SamplingParams,
    *,
    reward: str = "token_f1",
    style: answerer.Style = answerer.Style.DIRECT,
) -> Episode:
    """One episode. reward: the verifier that is trained on; the others are logged.

    Memories that do not fit the window are left out, which the episode says in `errors`."""
    begun = time.perf_counter()
    asked: RecalledPrompt = await context.shared("memory", asking, model, task, recall, params.max_tokens, style)
    remembered, version = time.perf_counter(), model.version
    sample = await context.sample(asked.prompt, params)
    seconds = {"recall": remembered - begun, "sample": time.perf_counter() - remembered}
    return _answered(model, task, asked, sample, params, reward, style, seconds, context.id, version)


def demonstration(
    model: Model,
    task: Task,
    recall: Recall,
    max_tokens: int,
    style: answerer.Style = answerer.Style.DIRECT,
    *,
    identity: str,
) -> Episode:
    """An episode that gives the first answer of the key: what supervised training imitates.

    Nothing was drawn, so the log-probabilities are 0 and mean nothing; the end of the line is part of what is taught.
    """
    asked = asking(model, task, recall, max_tokens, style)
    ids = model.encode_continuation(f" {task.answers[0]}\n")
    sample = Sample(ids, (0.0,) * len(ids), FinishReason.STOP, (VersionSpan(model.version, 0, len(ids)),))
    params = SamplingParams(max_tokens, temperature=0.0)
    return _answered(model, task, asked, sample, params, "token_f1", style, {}, identity, model.version)


@dataclass(frozen=True, slots=True)
class RecalledPrompt:
    """What was recalled for a task, and the prompt with as much of it as fits."""

    memory: Recalled
    prompt: Tokens
    shown: tuple[Shown, ...]


def asking(model: Model, task: Task, recall: Recall, max_tokens: int, style: answerer.Style) -> RecalledPrompt:
    memory = recall(task)
    return RecalledPrompt(memory, *answerer.fit(model, memory.shown, task.input, max_tokens, style))


def _answered(
    model: Model,
    task: Task,
    asked: RecalledPrompt,
    sample: Sample,
    params: SamplingParams,
    reward: str,
    style: answerer.Style,
    seconds: dict[str, float],
    identity: str,
    version: int,
) -> Episode:
    text = model.decode(sample.ids)
    said, status = answerer.parse(text, style)
    memory, shown = asked.memory, asked.shown
    left_out = len(memory.shown) - len(shown)
    rewards = tuple(
        RewardTerm(name, verifier(name)(said, task.answers), weight=float(name == reward))
        for name in dict.fromkeys((reward, "token_f1", "exact_match"))
    )
    stop = StopReason.PARSE_ERROR if status is ParseStatus.INVALID else StopReason.COMPLETED
    return _of_one_call(
        answerer.ROLE,
        answerer.PROMPT_ID[style],
        asked.prompt,
        sample,
        params.temperature,
        text,
        memory.snapshot,
        memory.snapshot,
        id=identity,
        task=task.key,
        question=task.input,
        answer=said,
        expected=task.answers,
        rewards=rewards,
        stop=StopReason.MAX_TOKENS if sample.finish is FinishReason.LENGTH else stop,
        policy_version=version,
        shown=shown,
        decisions=memory.decisions,
        errors=(f"{left_out} memories did not fit the model's window",) if left_out else (),
        seconds=seconds,
    )


# What a memory operation was worth: the reward terms of the Memory Manager.
#
# Two measures, never mixed in one table:
#
# * `operation_reward`: is it the right operation? Only where the right one is known (`keepworth.tasks.operations`).
# * `answer_reward`: after it, what can a frozen reader answer? The operation is carried out on a fork of the bank, memories
#   are retrieved for each question of the step, the reader answers greedily, and the reward is the token F1 of its answers.
#   This is the reward of "Memory-R1" (arXiv 2508.19828) with F1 in the place of exact match, so that short answers do not
#   leave nearly every group without a difference. One step decides: a contextual bandit.
#
# Both come with a format term, which is small: a well-formed line alone must never be worth learning.


FORMAT_WEIGHT = 0.1
READ_ITEMS = 5
"""Items a reader is shown for a question."""

Query = tuple[str, Sequence[str]]
"""(question, memories in the order of showing)."""


class Reader(Protocol):
    """Something frozen that answers questions from memories. `identity` is stored beside every reward it gave."""

    @property
    def identity(self) -> str: ...

    def answers(self, queries: Sequence[Query]) -> list[str]:
        """One answer per query, the same whenever the same is asked."""
        ...


class ModelReader:
    """A model behind the answerer's prompt, greedy, each distinct prompt answered once per version of the model.

    weights: what its trained weights are called, where they are not those it was published with: the identity tells a
    reader that learned from one that did not."""

    def __init__(
        self,
        model: Model,
        *,
        max_tokens: int = 16,
        style: answerer.Style = answerer.Style.DIRECT,
        weights: str = "",
    ) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._style = style
        self._weights = f"+{weights}" if weights else ""
        self._cache: dict[tuple[str, bytes], str] = {}

    @property
    def identity(self) -> str:
        return f"{self._model.name}@{self._model.version}{self._weights} {answerer.PROMPT_ID[self._style]}"

    def answers(self, queries: Sequence[Query]) -> list[str]:
        identity = self.identity
        prompts: dict[tuple[str, bytes], Tokens] = {}
        keys = []
        for question, memories in queries:
            shown = [Shown(str(number), 0.0, memory) for number, memory in enumerate(memories)]
            prompt, _ = answerer.fit(self._model, shown, question, self._max_tokens, self._style)
            key = identity, hashlib.sha256(repr(prompt).encode()).digest()
            keys.append(key)
            if key not in self._cache:
                prompts[key] = prompt
        if prompts:
            greedy = SamplingParams(self._max_tokens, temperature=0.0, stop_ids=self._model.stop_ids_for("\n"))
            for key, (sample,) in zip(prompts, self._model.sample(list(prompts.values()), greedy), strict=True):
                self._cache[key] = answerer.parse(self._model.decode(sample.ids), self._style)[0]
        return [self._cache[key] for key in keys]

    @property
    def room(self) -> int:
        """Tokens of memories that fit beside the examples and a question of usual length."""
        head = len(self._model.encode(answerer.PREFIX[self._style]))
        return self._model.context_limit - self._max_tokens - head - USUAL_QUESTION

    def tokens(self, text: str) -> int:
        """Of one memory, as a line of the prompt."""
        return len(self._model.encode_continuation(f"- {as_line(text)}\n"))

    def choices(self, queries: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> list[int]:
        """Of each (question, memories, options) the place of the option with the highest mean log-probability per token."""
        picked = []
        for question, memories, options in queries:
            shown = [Shown(str(number), 0.0, memory) for number, memory in enumerate(memories)]
            branches = [self._model.encode_continuation(f" {as_line(option)}\n") for option in options]
            longest = max(map(len, branches))
            prompt, _ = answerer.fit(self._model, shown, question, longest, self._style)
            ((*scores,),) = self._model.score([prompt], [branches])
            means = [sum(each) / len(each) for each in scores]
            picked.append(means.index(max(means)))
        return picked


USUAL_QUESTION = 64
"""Tokens that are kept free for a question."""


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


def operation_reward(*, partial: float = 0.0, format_weight: float = FORMAT_WEIGHT) -> Score:
    """Is it the right operation? 1 for the right one, `partial` for the right kind on a wrong entry, else 0.

    Partial credit is a choice to be made knowingly: with it, always naming one entry pays, and groups lose their
    differences."""

    def score(step: ManagerStep, texts: Sequence[str]) -> list[Consequence]:
        if not step.gold:
            raise ValueError(f"step {step.key!r} has no right operation on record: score it with answer_reward")
        gold_kind, gold_target, _ = read_operation(step.gold)
        consequences = []
        for text in texts:
            event, after = _carried_out(step, text)
            kind, target, status = read_operation(text, shown=len(step.state.ids))
            right_kind = status is not ParseStatus.INVALID and kind is gold_kind
            value = float(target == gold_target) or partial if right_kind else 0.0
            terms = (RewardTerm("operation", value), _format_term(status, format_weight))
            consequences.append(Consequence(event, (), terms, after.content_hash()))
        return consequences

    return score


def answer_reward(
    reader: Reader, *, read: int = READ_ITEMS, mode: str = "hybrid", format_weight: float = FORMAT_WEIGHT
) -> Score:
    """What can the frozen reader answer afterwards? `answer` is the mean token F1 over the step's questions.

    read: items shown to it for a question, in order of time. Members whose banks come out equal share one reading."""

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
                queries += [(asked.question, retrieved(bank, asked.question, read, mode)) for asked in step.questions]
        answered = reader.answers(queries)
        consequences = []
        for event, after in zip(events, afters, strict=True):
            answers = tuple(answered[first[after] : first[after] + len(step.questions)])
            scores = [token_f1(answer, asked.answers) for answer, asked in zip(answers, step.questions, strict=True)]
            terms = (
                RewardTerm("answer", sum(scores) / len(scores), scorer=reader.identity),
                _format_term(event.status, format_weight),
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


def _format_term(status: ParseStatus, weight: float) -> RewardTerm:
    return RewardTerm("format", format_reward(status), weight=weight, shaping=True)


# Managing memory: one operation per episode; all members of a group act on the same bank.


def manager_params(model: Model, *, n: int = 1, temperature: float = 1.0, seed: int = 0) -> SamplingParams:
    """One line of at most a few tokens; the end of the line is drawn too."""
    return SamplingParams(ANSWER_TOKENS, n, temperature, seed, model.stop_ids_for("\n"))


Judge = Callable[[str], Awaitable[Consequence]]
"""What a member's text leads to."""


def chosen_by(model: Model) -> Choose:
    """The model as a manager, greedy."""

    def choose(states: Sequence[ManagerState]) -> list[str]:
        prompts = [model.encode(state.prompt) for state in states]
        drawn = model.sample(prompts, manager_params(model, temperature=0.0))
        return [model.decode(sample.ids) for (sample,) in drawn]

    return choose


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
    return _of_one_call(
        manager.ROLE,
        manager.PROMPT_ID,
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
