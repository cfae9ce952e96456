"""Overwrite reading: a text read section by section, one short memory rewritten after each, an answer from the last one.

After "MemAgent: Reshaping Long-Context LLM with Multi-Conv RL-based Memory Agent" (arXiv 2507.02259). Every section is a
context of its own, and the reward of the answer reaches all of them: an episode's advantage is its reward minus its
group's mean, without a division, and the loss is averaged over all tokens of all contexts, as in the paper. What differs,
because the model has 135M parameters: the reward is token F1 (`reward = "exact_match"` is the paper's), texts of a few
short sections made of LongMemEval's conversations, worked examples in place of an instruction, no reference model, and
one update per batch, so that nothing is clipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from recollect.learning.objective.options import Objective
from recollect.recipes.interactive import Measured, Settings, System, run_system

if TYPE_CHECKING:
    from collections.abc import Callable

    from recollect.agents.agent import Agent
    from recollect.environments.document import Document
    from recollect.episodes import Task
    from recollect.learning.progress import Progress
    from recollect.learning.run_folder import RunFolder
    from recollect.memory.bank import Bank

SUMMARY = (
    "Overwrite reading (MemAgent, arXiv 2507.02259): a long text in a fixed window, one memory rewritten on the way."
)

MULTI_CONVERSATION = Objective(
    name="multi_conversation",
    center="group",
    scale="none",
    ratio="token",
    anchor="current",
    surrogate="plain",
    correction="truncate",
    correction_low=0.0,
    correction_high=2.0,
    aggregation="token-mean",
)


class Config(Settings):
    """A text is `sections` of `windows` windows of at most `words` words."""

    steps: int = Field(default=20, ge=1)
    tasks_per_step: int = Field(default=4, ge=1)
    evaluate_every: int = Field(default=10, ge=1)
    checkpoint_every: int = Field(default=10, ge=1)
    sections: int = Field(default=3, ge=1)
    windows: int = Field(default=1, ge=1)
    words: int = Field(default=30, ge=8)
    distractors: int = Field(default=10, ge=0, description="sessions of other questions that the text may be made of")
    memory_tokens: int = Field(default=32, ge=4)
    answer_tokens: int = Field(default=12, ge=1)
    reward: Literal["token_f1", "exact_match"] = "token_f1"


def system(config: Config) -> System:
    from recollect.agents.overwrite_reader import OverwriteReader, WholeReader
    from recollect.agents.recall import strangers
    from recollect.environments.document import Document
    from recollect.rollouts.driver import Limits, Play
    from recollect.tasks.reading import Layout, evidence, reading_tasks, sections

    layout = Layout(config.sections, config.windows, config.words)
    sets = {split: reading_tasks(split, distractors=config.distractors) for split in ("train", "dev", "test")}
    other = strangers(sets["test"])

    def document(of: Callable[[Task], tuple[str, ...]]) -> Callable[[Task], Document]:
        return lambda task: Document(of, config.reward)

    def overwriting(task: Task, memory: Bank | None) -> Agent:
        return OverwriteReader(config.memory_tokens, config.answer_tokens)

    def keeping(task: Task, memory: Bank | None) -> Agent:
        return WholeReader(config.answer_tokens)

    def whole(task: Task) -> tuple[str, ...]:
        return sections(task, layout)

    own = Play(document(whole), overwriting)
    return System(
        role="reader",
        title="a reader learns what to keep",
        train=sets["train"],
        play=own,
        dev=Measured(sets["dev"], {"": own}),
        test={
            "test questions": Measured(
                sets["test"],
                {
                    "": own,
                    "no_memory": Play(document(lambda task: ()), overwriting),
                    "wrong_memory": Play(document(lambda task: sections(other[task.key], layout)), overwriting),
                    "whole_text": Play(document(whole), keeping),
                    "oracle": Play(document(lambda task: evidence(task, layout)), keeping),
                },
            )
        },
        metrics={"token_f1": "f1", "exact_match": "em"},
        limits=Limits(max_turns=config.sections + 1, environment_seconds=config.environment_seconds),
        length_budget=config.sections * config.memory_tokens + config.answer_tokens,
        objective=MULTI_CONVERSATION,
        note=(
            f"Extractive LongMemEval questions, {config.sections} sections of {config.windows} windows of up to "
            f"{config.words} words, greedy."
        ),
    )


def train(config: Config, run: RunFolder, progress: Progress) -> None:
    """Train and measure. Called again on the same folder, it continues from the last checkpoint."""
    run_system(config, system(config), run, progress)
