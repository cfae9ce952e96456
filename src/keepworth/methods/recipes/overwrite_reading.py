"""Overwrite reading: a text is read section by section, a short memory is rewritten after each, and the last one has to answer.

After "MemAgent: Reshaping Long-Context LLM with Multi-Conv RL-based Memory Agent" (arXiv 2507.02259). Every section is a context
of its own, and the reward of the answer reaches all of them: an episode's advantage is its reward minus its group's mean, without
a division, and the loss is averaged over all tokens of all contexts, as in the paper. Different, because the model has 135M
parameters: the reward is token F1 (`reward = "exact_match"` is the paper's), texts have a few short sections about people, worked
examples replace an instruction, and there is no reference model and one update per batch, so that nothing is clipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Outcome
from keepworth.training.objective.presets import vary_objective
from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import GROUP_RELATIVE, Count, Pairs, Rate, WarmStarted
from keepworth.training.system import Measured, Pair, System

if TYPE_CHECKING:
    from keepworth.memory.overlay import Bank
    from keepworth.methods.recipes._people_reading import Document
    from keepworth.models.inprocess import InProcessModel
    from keepworth.records import Task
    from keepworth.worlds.agent import Agent

MULTI_CONVERSATION = vary_objective(GROUP_RELATIVE, name="multi_conversation", advantage=Outcome("group"))


class Config(WarmStarted):
    """Settings: a text has `sections` sections of `sentences` sentences about people."""

    default_objective: ClassVar[Objective] = MULTI_CONVERSATION

    method: Literal["reinforce", "supervised"] = Field(
        default="reinforce", description="supervised imitates right memories and answers instead, of as many texts"
    )
    steps: Count = 16
    tasks_per_step: Count = 4
    learning_rate: Rate = 4e-4
    evaluate_every: Count = 8
    checkpoint_every: Count = 4
    sections: Pairs = 3
    sentences: int = Field(default=2, ge=1, description="of a section")
    tasks: int = Field(default=400, ge=8, description="texts to train on")
    held_out: int = Field(default=60, ge=2, description="questions per measurement")
    warm_start: int = Field(default=20, ge=0, description="batches of right memories and answers to imitate first")
    warm_start_learning_rate: Rate = 5e-4
    memory_tokens: int = Field(default=20, ge=4)
    answer_tokens: Count = 8
    reward: Literal["token_f1", "exact_match"] = "token_f1"


def system(config: Config) -> System:
    from keepworth.methods.recipes._overwrite_reader import OverwriteReader, WholeReader
    from keepworth.methods.recipes._people_reading import Document, evidence_of, people_reading, text_of
    from keepworth.worlds.driver import Limits, Play
    from keepworth.worlds.recall import strangers

    def texts(split: str, count: int, seed: int) -> list[Task]:
        return people_reading(split, count, seed, sections=config.sections, sentences=config.sentences)

    train = texts("train", config.tasks, config.seed)
    dev, test = (texts(split, config.held_out, 0) for split in ("dev", "test"))
    other = strangers(test)

    def document(of: Callable[[Task], tuple[str, ...]]) -> Callable[[Task], Document]:
        return lambda task: Document(of, config.reward)

    def overwriting(task: Task, memory: Bank | None) -> Agent:
        return OverwriteReader(config.memory_tokens, config.answer_tokens)

    def keeping(task: Task, memory: Bank | None) -> Agent:
        return WholeReader(config.answer_tokens)

    def imitated(model: InProcessModel) -> list[list[Pair]]:
        from keepworth.training.run import batches_of_calls

        return batches_of_calls(config, train, lambda task: right(model, task), config.sections + 1)

    play = Play(document(text_of), overwriting)
    controls = {
        "no_memory": Play(document(lambda task: ()), overwriting),
        "wrong_memory": Play(document(lambda task: text_of(other[task.key])), overwriting),
        "whole_text": Play(document(text_of), keeping),
        "oracle": Play(document(evidence_of), keeping),
    }
    return System(
        role="reader",
        title="a reader learns what to keep",
        train=train,
        play=play,
        dev=Measured(dev, {"": play}),
        test={"test questions": Measured(test, {"": play, **controls}, "template")},
        metrics={"token_f1": "f1", "exact_match": "em"},
        limits=Limits(max_turns=config.sections + 1, environment_seconds=config.environment_seconds),
        length_budget=config.sections * config.memory_tokens + config.answer_tokens,
        row_budget=max(config.memory_tokens, config.answer_tokens),
        imitated=imitated if config.warm_start else None,
        imitation_rate=config.warm_start_learning_rate,
        right=right,
        note=f"Texts about people, {config.sections} sections of {config.sentences} sentences, greedy.",
    )


def right(model: InProcessModel, task: Task) -> list[Pair]:
    """Returns the calls of an ideal reading: each prompt, with the right memory or answer after it."""
    from keepworth.methods.recipes._overwrite_reader import NOTHING, answering, reading
    from keepworth.methods.recipes._people_reading import memories_of, text_of

    pairs: list[Pair] = []
    memory = NOTHING
    for section, note in zip(text_of(task), memories_of(task, NOTHING), strict=True):
        pairs.append((model.encode(reading(task.input, memory, section)), model.encode_continuation(f" {note}\n")))
        memory = note
    prompt = model.encode(answering(task.input, memory))
    return [*pairs, (prompt, model.encode_continuation(f" {task.answers[0]}\n"))]


METHOD = recipe_method(
    name="overwrite_reading",
    title="Overwrite reading (MemAgent)",
    paper="arXiv 2507.02259",
    about="Reads a long text in a fixed window and rewrites one memory on the way",
    tags=("token", "working", "formation", "evolution"),
    claim="RULER-HQA is 81.25 at 7K tokens and 71.88 at its longest with 7B parameters.",
    differs="Texts are tens of facts about people, with 135M parameters and a warm start.",
    label="small",
    make=Recipe(Config, system),
)
