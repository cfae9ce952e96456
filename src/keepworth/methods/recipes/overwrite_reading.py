"""Overwrite reading: a text read section by section, one short memory rewritten after each, an answer from the last one.

After "MemAgent: Reshaping Long-Context LLM with Multi-Conv RL-based Memory Agent" (arXiv 2507.02259). Every section is a
context of its own, and the reward of the answer reaches all of them: an episode's advantage is its reward minus its
group's mean, without a division, and the loss is averaged over all tokens of all contexts, as in the paper. What differs,
because the model has 135M parameters: the reward is token F1 (`reward = "exact_match"` is the paper's), texts of a few
short sections made of LongMemEval's conversations, worked examples in place of an instruction, no reference model, and
one update per batch, so that nothing is clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from keepworth.learning.objective.parts import Outcome
from keepworth.learning.objective.presets import varied
from keepworth.recipes.recipe import Recipe
from keepworth.recipes.settings import GROUP_RELATIVE, Count, Idle, Pairs, Rate, Settings
from keepworth.recipes.system import Measured, Pair, System
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.agents.agent import Agent
    from keepworth.environments.question import Document
    from keepworth.episodes import Task
    from keepworth.memory.overlay import Bank
    from keepworth.models.inprocess import InProcessModel

MULTI_CONVERSATION = varied(GROUP_RELATIVE, name="multi_conversation", advantage=Outcome("group"))


class Config(Settings):
    """A text is `sections` of `sentences` sentences about people, or of `windows` windows of at most `words` words."""

    method: Literal["reinforce", "supervised"] = Field(
        default="reinforce",
        description="source = people: supervised imitates right memories and answers instead, of as many texts",
    )
    steps: Count = 16
    tasks_per_step: Count = 4
    learning_rate: Rate = 4e-4
    evaluate_every: Count = 8
    checkpoint_every: Count = 4
    source: Literal["people", "longmemeval"] = "people"
    sections: Pairs = 3
    sentences: int = Field(default=2, ge=1, description="source = people: of a section")
    tasks: int = Field(default=400, ge=8, description="source = people: texts to train on")
    held_out: int = Field(default=60, ge=2, description="source = people: questions per measurement")
    windows: int = Field(default=1, ge=1, description="source = longmemeval: of a section")
    words: int = Field(default=30, ge=8, description="source = longmemeval: of a window")
    distractors: int = Field(
        default=10, ge=0, description="source = longmemeval: sessions of other questions that the text may be made of"
    )
    warm_start: int = Field(
        default=20, ge=0, description="source = people: batches of right memories and answers to imitate first"
    )
    warm_start_batch: Count = 16
    warm_start_learning_rate: Rate = 5e-4
    memory_tokens: int = Field(default=20, ge=4)
    answer_tokens: Count = 8
    reward: Literal["token_f1", "exact_match"] = "token_f1"

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        first = ("warm_start_batch", "warm_start_learning_rate")
        if self.source == "longmemeval":
            yield (
                ("method", "warm_start", *first, "sentences", "tasks", "held_out"),
                "with source = longmemeval",
                "set source = people",
            )
            return
        yield ("windows", "words", "distractors"), "with source = people", "set source = longmemeval"
        if not self.warm_start:
            yield first, "with warm_start = 0", "set warm_start"


def system(config: Config) -> System:
    from keepworth.agents.overwrite_reader import OverwriteReader, WholeReader
    from keepworth.agents.recall import strangers
    from keepworth.environments.question import Document
    from keepworth.rollouts.driver import Limits, Play

    texts = _people(config) if config.source == "people" else _conversations(config)
    other = strangers(texts.test)

    def document(of: Callable[[Task], tuple[str, ...]]) -> Callable[[Task], Document]:
        return lambda task: Document(of, config.reward)

    def overwriting(task: Task, memory: Bank | None) -> Agent:
        return OverwriteReader(config.memory_tokens, config.answer_tokens)

    def keeping(task: Task, memory: Bank | None) -> Agent:
        return WholeReader(config.answer_tokens)

    own = Play(document(texts.whole), overwriting)
    imitates = config.source == "people" and config.warm_start > 0
    return System(
        role="reader",
        title="a reader learns what to keep",
        train=texts.train,
        play=own,
        dev=Measured(texts.dev, {"": own}),
        test={
            "test questions": Measured(
                texts.test,
                {
                    "": own,
                    "no_memory": Play(document(lambda task: ()), overwriting),
                    "wrong_memory": Play(document(lambda task: texts.whole(other[task.key])), overwriting),
                    "whole_text": Play(document(texts.whole), keeping),
                    "oracle": Play(document(texts.evidence), keeping),
                },
            )
        },
        metrics={"token_f1": "f1", "exact_match": "em"},
        limits=Limits(max_turns=config.sections + 1, environment_seconds=config.environment_seconds),
        length_budget=config.sections * config.memory_tokens + config.answer_tokens,
        row_budget=max(config.memory_tokens, config.answer_tokens),
        objective=MULTI_CONVERSATION,
        imitated=(lambda model: imitated(model, config, texts.train)) if imitates else None,
        imitation_rate=config.warm_start_learning_rate,
        right=right,
        note=f"{texts.description}, greedy.",
    )


def right(model: InProcessModel, task: Task) -> list[Pair]:
    """A text about people read as it should be: each call's prompt, and the right memory or answer behind it."""
    from keepworth.agents.overwrite_reader import NOTHING, answering, reading
    from keepworth.methods.recipes._people_reading import memories_of, text_of

    pairs: list[Pair] = []
    memory = NOTHING
    for section, kept in zip(text_of(task), memories_of(task, NOTHING), strict=True):
        pairs.append((model.encode(reading(task.input, memory, section)), model.encode_continuation(f" {kept}\n")))
        memory = kept
    return [
        *pairs,
        (model.encode(answering(task.input, memory)), model.encode_continuation(f" {task.answers[0]}\n")),
    ]


def imitated(model: InProcessModel, config: Config, tasks: Sequence[Task]) -> list[list[Pair]]:
    """Right memories and answers of training texts, one pair a call of the reader, a text's calls in one batch."""
    from keepworth.recipes.training import batch

    texts = -(-config.warm_start * config.warm_start_batch // (config.sections + 1))
    pairs = [pair for task in batch(tasks, texts, 0, config.seed) for pair in right(model, task)]
    size = config.warm_start_batch
    return [pairs[start : start + size] for start in range(0, size * config.warm_start, size)]


@dataclass(frozen=True, slots=True)
class Texts:
    """Questions of each split, and what is read for them: all of it, or only what holds the answer."""

    train: Sequence[Task]
    dev: Sequence[Task]
    test: Sequence[Task]
    whole: Callable[[Task], tuple[str, ...]]
    evidence: Callable[[Task], tuple[str, ...]]
    description: str


def _people(config: Config) -> Texts:
    from keepworth.methods.recipes._people_reading import evidence_of, people_reading, text_of

    def tasks(split: str, count: int, seed: int) -> list[Task]:
        return people_reading(split, count, seed, sections=config.sections, sentences=config.sentences)

    return Texts(
        train=tasks("train", config.tasks, config.seed),
        dev=tasks("dev", config.held_out, 0),
        test=tasks("test", config.held_out, 0),
        whole=text_of,
        evidence=evidence_of,
        description=f"Texts about people, {config.sections} sections of {config.sentences} sentences",
    )


def _conversations(config: Config) -> Texts:
    from keepworth.tasks.entries import DocumentLayout, evidence, reading_tasks, sections

    layout = DocumentLayout(config.sections, config.windows, config.words)
    train, dev, test = (reading_tasks(split, distractors=config.distractors) for split in ("train", "dev", "test"))
    return Texts(
        train=train,
        dev=dev,
        test=test,
        whole=lambda task: sections(task, layout),
        evidence=lambda task: evidence(task, layout),
        description=(
            f"Extractive LongMemEval questions, {config.sections} sections of {config.windows} windows of up to "
            f"{config.words} words"
        ),
    )


METHOD = Method(
    kind="recipe",
    name="overwrite_reading",
    title="Overwrite reading (MemAgent)",
    paper="arXiv 2507.02259",
    about="a long text in a fixed window, one memory rewritten on the way",
    claim="RULER-HQA 81.25 at 7K tokens and 71.88 at its longest with 7B parameters",
    differs="sections of tens of facts about people, 135M parameters, a warm start",
    label="small",
    make=Recipe(Config, system),
    extra="train",
)
