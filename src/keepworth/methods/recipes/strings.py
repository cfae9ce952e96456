"""String composition: single functions are imitated, then reinforcement teaches to compose them.

After "From f(x) and g(x) to f(g(x)): LLMs Learn New Skills in RL by Composing Old Ones" (arXiv 2509.25123). The question
is the paper's: does reinforcement on some compositions carry over to compositions, and depths, that were never trained
on? What differs: a function moves words instead of characters, and single functions are learned by plain imitation. A
small model does not think of writing the steps out: with single functions alone it never earns a reward on compositions.
So a few training compositions (`worked`) are imitated worked out; `worked = 0` leaves that to chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import Count, Idle, Refill, WarmStarted
from keepworth.training.system import Measured, Pair, System

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.records import Task

EXAMPLE = (("k", "q"), ("milk", "salt"))
"""The worked example before every question, which shows how to write out a composition. It is one of training."""


class Config(WarmStarted):
    """Settings. depth, length: of training. Measured are depth 1, `depth` (compositions seen and unseen) and one deeper."""

    method: Literal["reinforce", "supervised"] = Field(
        default="reinforce", description="supervised imitates right answers instead, as many as reinforcement samples"
    )
    steps: Count = 24
    refill: Refill = 2
    evaluate_every: Count = 12
    checkpoint_every: Count = 8
    depth: int = Field(default=2, ge=2, le=4)
    length: int = Field(default=4, ge=3, le=8, description="words of an argument")
    tasks: int = Field(default=800, ge=8, description="compositions with words to train on")
    held_out: int = Field(default=87, ge=2, description="questions per measurement")
    max_tokens: int = Field(default=72, ge=4)
    warm_start: int = Field(default=160, ge=0, description="batches to imitate first: single functions, and `worked`")
    worked: int = Field(
        default=13, ge=0, description="training compositions that are imitated worked out, 1 in 4 pairs"
    )

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        if not self.warm_start:
            yield ("worked",), "with warm_start = 0", "set warm_start"

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if self.length <= self.depth + 1:
            raise ValueError(
                f"length = {self.length} leaves nothing to compose at depth {self.depth + 1}: set it higher"
            )
        return self


def head() -> str:
    """Returns the worked example, which precedes every question."""
    from keepworth.methods.recipes._strings import steps, written

    return f"{written(*EXAMPLE)} = {', '.join(steps(*EXAMPLE))}\n"


def asked(task: Task) -> str:
    """Returns a question as the model reads it."""
    return f"{head()}{task.input} ="


def system(config: Config) -> System:
    from keepworth.methods.recipes._strings import composition_of, string_tasks, worked_out
    from keepworth.worlds.agent import Completer
    from keepworth.worlds.driver import Limits, Play
    from keepworth.worlds.question import Question

    depth = config.depth
    completer = Completer(head(), after=" =", max_tokens=config.max_tokens)

    def right(model: InProcessModel, task: Task) -> list[Pair]:
        return [(model.encode(completer.render(task.input)), model.encode_continuation(f" {worked_out(task)}\n"))]

    def imitated(model: InProcessModel) -> list[list[Pair]]:
        from keepworth.training.collect.curriculum import batch

        # Inside a composition a function gets up to one word more or fewer than the argument has.
        around = range(config.length - 1, min(config.length + 1, 8) + 1)
        shown = [task for length in around for task in string_tasks("train", 200, config.seed, depth=1, length=length)]
        if config.worked:
            shown += string_tasks("train", 200, config.seed, depth=depth, length=config.length, only=config.worked)
        return [
            [pair for task in batch(shown, config.warm_start_batch, step, config.seed) for pair in right(model, task)]
            for step in range(config.warm_start)
        ]

    def measured(split: str, depth: int, seed: int = 1, tier: str = "") -> Measured:
        return Measured(string_tasks(split, config.held_out, seed, depth=depth, length=config.length), {"": play}, tier)

    play = Play(lambda task: Question(), lambda task, memory: completer)
    trained = string_tasks("train", config.tasks, config.seed, depth=depth, length=config.length)
    return System(
        role="policy",
        title="a policy learns to compose functions",
        train=trained,
        play=play,
        dev=measured("dev", depth),
        test={
            f"unseen compositions of {depth}": measured("test", depth, tier="family"),
            f"unseen compositions of {depth + 1}": measured("test", depth + 1, tier="family"),
            f"trained compositions of {depth}, other words": measured("train", depth, 1_000_000, "template"),
            "single functions": measured("test", 1, tier="template" if config.warm_start else "family"),
        },
        metrics={"same_words": "accuracy"},
        limits=Limits(max_turns=1, environment_seconds=config.environment_seconds),
        length_budget=config.max_tokens,
        row_budget=config.max_tokens,
        imitated=imitated if config.warm_start else None,
        imitation_rate=config.warm_start_learning_rate,
        right=right,
        unit=composition_of,
        note=f"{config.held_out} questions, {config.length} words each, greedy; intervals over compositions.",
    )


METHOD = recipe_method(
    name="strings",
    title="String composition",
    paper="arXiv 2509.25123",
    claim="What reinforcement teaches on compositions of two carries over to deeper ones (no number checked).",
    about="Learns functions one by one and composes them by reinforcement",
    differs="A function moves words instead of characters, and a few compositions are imitated first.",
    label="small",
    make=Recipe(Config, system),
)
