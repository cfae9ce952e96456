"""AgeMem on the bounded bank: facts are stored, distractors are kept out of the context, stored facts are retrieved
for the question; one reward at the end, for every step of all three stages.

After "Agentic Memory: Learning Unified Long-Term and Short-Term Memory Management for Large Language Model Agents" (AgeMem, arXiv
2601.01885). A rollout earns

    R = (R_task + R_context + R_memory) / 3 + P

    R_task     the answer's score, -1 without an answer
    R_context  mean of: max(0, 1 - T_used / T_max); 1 where the context was reduced and does not overflow; share of key tokens
               preserved
    R_memory   mean of: high-quality entries / entries stored; 1 where there was an UPDATE or DELETE; relevance of the
               retrieved entries
    P          -0.5 where the context overflows

and every step t of it has the advantage A_t = (R - mean R) / std R over the rollouts of its task (step-wise GRPO), with a KL of
0.1 to the initial model. docs/recipes.md lists the differences from the paper: above all the size, rules in place of its judges,
a frozen reader that answers, and stages of a fixed number of turns, which make the penalty of -1 for too many turns useless.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from keepworth.base.metrics import tokens
from keepworth.memory.importance import specificity
from keepworth.methods.recipes import bounded_bank
from keepworth.methods.recipes._bank.parted import BankCall, ChunkTurn, PartedBank, most_specific_calls
from keepworth.methods.recipes._bank.staged import MESSAGE, STORE, StagedWriting, WritingStage
from keepworth.records.episode import RewardTerm
from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import GroupStd, KlLoss, Outcome
from keepworth.training.objective.presets import vary_objective
from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import GROUP_RELATIVE, Count

if TYPE_CHECKING:
    from keepworth.methods.recipes._bank.bounded_bank import BoundedBank
    from keepworth.methods.recipes._bank.course import WritingCourse
    from keepworth.methods.recipes._bank.reading import BankAnswer
    from keepworth.methods.recipes._bank.writers import WriterStreams
    from keepworth.training.recipe import Trainable
    from keepworth.worlds.fact_streams import FactStream

PROMPT_ID = "agemem/1"
OVERFLOW, NO_ANSWER = -0.5, -1.0

AGEMEM = vary_objective(
    GROUP_RELATIVE,
    name="agemem",
    advantage=Outcome("group", GroupStd()),
    aggregation="seq-mean-token-mean",
    aggregation_unit="row",
    kl=KlLoss("k3", 0.1),
)
"""The paper's group of 8 and its KL; one update per batch, so that there is nothing to clip."""


class Config(bounded_bank.ChunkConfig):
    """Settings: the bounded bank as the long-term store, and a context too small for all that comes into it."""

    default_objective: ClassVar[Objective] = AGEMEM

    distractors: Count = Field(default=5, description="facts of another stream that fill the context in stage 2")
    window: Count = Field(default=96, description="tokens of the context; what does not fit is not read")
    retrievals: Count = Field(default=3, description="entries that may be retrieved in stage 3")
    shortened: Count = Field(default=6, description="words of a message that was shortened")


def system(config: Config) -> Trainable:
    from keepworth.methods.recipes._bank.writers import ByCalls
    from keepworth.methods.recipes._bank.writing import BankWriter

    calls = ByCalls(
        course=lambda stream, bank, streams: staged(config, stream, bank, streams),
        rule=lambda now: imitated(now, config),
        earned=earned,
        max_tokens=5 * max(config.chunk, config.distractors) + 2,
        prompt_id=PROMPT_ID,
        turns=-(-config.length // config.chunk) + 2,
        arms={
            "first_in_first_out": latest,
            "most_specific": lambda now, stream: imitated(now, config),
            "all_evidence": knowing,
        },
    )
    return BankWriter(calls)


def staged(config: Config, stream: FactStream, bank: BoundedBank, streams: WriterStreams) -> StagedWriting:
    """Returns the three stages of one stream: store, keep out, answer.

    Args:
        config: The settings of the recipe.
        stream: The facts, and the question about them.
        bank: The bounded bank that is written.
        streams: Where the distractors are drawn.
    """
    return StagedWriting(
        [fact.statement for fact in stream.facts],
        streams.distract(stream, config.distractors),
        stream.task.input,
        PartedBank(bank, (STORE,)),
        chunk=config.chunk,
        recent=config.recent,
        window=config.window,
        retrievals=config.retrievals,
        words=config.shortened,
    )


def earned(course: WritingCourse, answered: BankAnswer) -> list[RewardTerm]:
    """Returns R as terms of the episode, and the answer's score with weight 0 as the metric."""
    now: StagedWriting = course  # type: ignore[assignment]
    task = task_reward(answered.answer, answered.score)
    thirds = {"task": task, "context": context_reward(now), "memory": memory_reward(now)}
    return [
        RewardTerm("answer", answered.score, weight=0.0),
        *(RewardTerm(name, value, 1 / 3, shaping=True) for name, value in thirds.items()),
        RewardTerm("overflow", OVERFLOW if now.used > now.window else 0.0, shaping=True),
    ]


def task_reward(answer: str, score: float) -> float:
    return score if answer.strip() else NO_ANSWER


def context_reward(now: StagedWriting) -> float:
    """Returns the mean of compression, prevention and preservation."""
    return (max(0.0, 1 - now.used / now.window) + prevention(now) + preservation(now)) / 3


def prevention(now: StagedWriting) -> float:
    """Returns 1 if a message was removed or shortened and the final context fits, else 0. A call that changed nothing does not
    count; the paper's flag counts any call."""
    return float(bool(done(now.turns, MESSAGE)) and now.used <= now.window)


def preservation(now: StagedWriting) -> float:
    """Returns the share of key tokens in the context: words of the question that a fact of the stream has. 1 without any."""
    key = key_tokens(now.question, now.storing.facts)
    return len(key & tokens_of([entry.text for entry in now.shown])) / len(key) if key else 1.0


def memory_reward(now: StagedWriting) -> float:
    """Returns the mean of quality, maintenance and relevance."""
    return (quality(now) + maintenance(now.turns) + relevance(now)) / 3


def quality(now: StagedWriting) -> float:
    """Returns the share of stored entries more specific than the median fact: a rule in place of a judge. 0 for none."""
    usual = median(map(specificity, now.storing.facts))
    entries = now.bank.entries(STORE)
    return sum(specificity(entry.text) > usual for entry in entries) / len(entries) if entries else 0.0


def maintenance(turns: Sequence[ChunkTurn]) -> float:
    """Returns 1 if an entry of the store was updated or deleted, else 0."""
    return float(any(call.entry is not None for call in done(turns, STORE)))


def done(turns: Sequence[ChunkTurn], part: str) -> list[BankCall]:
    """Returns the calls about a part that changed something."""
    changes = (call.call for turn in turns for call in turn.calls if call.changed)
    return [call for call in changes if call is not None and call.part == part]


def relevance(now: StagedWriting) -> float:
    """Returns the share of retrieved entries that hold a key token of the question: a rule in place of a judge. 0 for none."""
    key = key_tokens(now.question, now.storing.facts)
    word_sets = [tokens_of([entry.text]) for entry in now.retrieved]
    return sum(bool(key & words) for words in word_sets) / len(word_sets) if word_sets else 0.0


_COMMON = (
    "i my me you your it its is are was were be been do does did have has had of in on at to for with from and or but not "
    "this that what which who when where how many much long there"
)
COMMON = frozenset(_COMMON.split())
"""Words of a question that carry no content."""


def key_tokens(question: str, facts: Sequence[str]) -> set[str]:
    return (tokens_of([question]) - COMMON) & tokens_of(facts)


def tokens_of(texts: Collection[str]) -> set[str]:
    return {word for text in texts for word in tokens(text)}


def imitated(now: StagedWriting, config: Config) -> str:
    """Returns the rule's response: store the most specific facts, remove every message, retrieve entries that share most words
    with the question."""
    if now.stage is WritingStage.STORE:
        return most_specific_calls(now.storing, config.share, lambda text: STORE)
    return fetched(now, config.retrievals)


def fetched(now: StagedWriting, retrievals: int) -> str:
    """Returns a response that removes every message, then retrieves the entries that share most words with the question, of
    equals the latest."""
    calls = [f"-M{number}" for number in now.messages]
    if now.stage is WritingStage.ANSWER:
        words = tokens_of([now.question]) - COMMON
        entries = now.bank.entries(STORE)
        shared = [len(words & tokens_of([entry.text])) for entry in entries]
        order = sorted(range(len(entries)), key=lambda number: (-shared[number], -number))
        calls += [f"R{number}" for number in sorted(order[:retrievals])]
    return " ".join(calls) or "none"


def latest(now: StagedWriting, stream: FactStream) -> str:
    """Returns a response that stores everything, so that the latest facts stay; removes nothing; retrieves the latest."""
    if now.stage is WritingStage.STORE:
        return " ".join(f"{STORE}{number}" for number in range(len(now.storing.waiting)))
    if now.stage is WritingStage.FILTER:
        return "none"
    return " ".join(f"R{number}" for number in reversed(range(len(now.bank.entries(STORE))))) or "none"


def knowing(now: StagedWriting, stream: FactStream) -> str:
    """Returns a response that stores the evidence alone, removes every message, retrieves all."""
    if now.stage is WritingStage.STORE:
        first = len(now.storing.facts) - len(now.storing.rest)
        wanted = [number for number in range(len(now.storing.waiting)) if stream.evidence[first + number]]
        return " ".join(f"{STORE}{number}" for number in wanted) or "none"
    return fetched(now, len(now.bank.entries(STORE)))


METHOD = recipe_method(
    name="agemem",
    title="AgeMem",
    paper="arXiv 2601.01885",
    about="Trains a writer that stores, filters and retrieves in three stages, with one reward for every step",
    tags=("token", "factual", "working", "formation", "evolution", "retrieval"),
    claim="It scores 41.96 over five sets with Qwen2.5-7B, 33.43 without RL and 28.05 without memory.",
    differs="It writes into the bounded bank, rules replace the judges, and stages have a fixed number of turns.",
    label="small",
    make=Recipe(Config, system),
)
