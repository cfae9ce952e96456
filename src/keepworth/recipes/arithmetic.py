"""Word problems, answered in one of three ways: as a number, as an expression, or with a calculator over several turns.

GSM8K and SVAMP ship with keepworth. A small model knows what to reckon long before it can reckon: `answer = "expression"`
rewards the first alone, `"calculator"` lets a tool do the second and makes episodes of several turns, `"number"` asks for
both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from keepworth.recipes.interactive import Measured, Settings, System, run_system
from keepworth.recipes.settings import Count, Idle

if TYPE_CHECKING:
    from keepworth.agents.agent import Agent
    from keepworth.environments.environment import Environment
    from keepworth.episodes import Task
    from keepworth.learning.run_folder import RunFolder
    from keepworth.learning.watch.progress import Progress
    from keepworth.memory.overlay import Bank

SUMMARY = "Arithmetic word problems (GSM8K, SVAMP): numbers, expressions, or a calculator over several turns."

# (question, expression, number). Two operations, in whole sentences as the sets have them.
_EXAMPLES = (
    ("Mary had 7 pens. She lost 3 of them. How many pens does Mary have left?", "7 - 3", "4"),
    ("A box holds 6 eggs. How many eggs are there in 5 boxes?", "6 * 5", "30"),
    ("Tom has 8 toys and Ann has 9 toys. How many toys do they have together?", "8 + 9", "17"),
)


class Config(Settings):
    """answer: what is asked for. turns: of the calculator."""

    steps: Count = 60
    source: Literal["svamp", "gsm8k"] = "svamp"
    answer: Literal["expression", "number", "calculator"] = "expression"
    max_tokens: int = Field(default=20, ge=2)
    turns: int = Field(default=3, ge=2, description="answer = calculator: actions in all")

    @property
    def holds(self) -> frozenset[str]:
        return frozenset({"states of turns"} if self.answer == "calculator" else ())

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        if self.answer != "calculator":
            yield ("turns",), f"with answer = {self.answer}", "set answer = calculator"


def calculate(expression: str) -> str:
    """The value of an arithmetic expression."""
    from keepworth.tasks.verifiers import computed, shown

    value = computed(expression)
    if value is None:
        raise ValueError(f"{expression!r} is not arithmetic of + - * / and brackets")
    return shown(value)


def head(answer: str) -> str:
    """The worked examples, in the form of what is asked for."""
    from keepworth.agents.tool_caller import RESULT, TURN, opening
    from keepworth.environments.tool_use import ANSWER, tool

    if answer != "calculator":
        column = 1 if answer == "expression" else 2
        return "".join(f"Question: {each[0]}\nAnswer: {each[column]}\n\n" for each in _EXAMPLES)
    used = tool(calculate).description
    return "".join(
        f"{opening(question)} {used.name}: {expression}\n{RESULT} {number}\n{TURN} {ANSWER}: {number}\n\n"
        for question, expression, number in _EXAMPLES
    )


def system(config: Config) -> System:
    from keepworth.agents.agent import Completer
    from keepworth.agents.tool_caller import ToolCaller
    from keepworth.environments.question import Question
    from keepworth.environments.tool_use import ToolUse, tool
    from keepworth.rollouts.driver import Limits, Play
    from keepworth.tasks.arithmetic import arithmetic

    verifier = "expression" if config.answer == "expression" else "numeric"
    sets = {split: arithmetic(config.source, split, verifier=verifier) for split in ("train", "dev", "test")}
    worked = head(config.answer)
    turns = config.turns if config.answer == "calculator" else 1

    def environment(task: Task) -> Environment:
        return ToolUse([tool(calculate)], turns=turns) if config.answer == "calculator" else Question()

    def agent(task: Task, memory: Bank | None) -> Agent:
        if config.answer == "calculator":
            return ToolCaller(worked, max_tokens=config.max_tokens)
        return Completer(worked, before="Question: ", after="\nAnswer:", max_tokens=config.max_tokens)

    play = Play(environment, agent)
    return System(
        role="policy",
        title="a policy learns word problems",
        train=sets["train"],
        play=play,
        dev=Measured(sets["dev"], {"": play}),
        test={f"{config.source} test questions": Measured(sets["test"], {"": play})},
        metrics={verifier: "accuracy"},
        limits=Limits(max_turns=turns, environment_seconds=config.environment_seconds),
        length_budget=turns * config.max_tokens,
        row_budget=turns * config.max_tokens,
        note=f"{config.source}, answered as {config.answer}, greedy.",
    )


def train(config: Config, run: RunFolder, progress: Progress) -> None:
    """Train and measure. Called again on the same folder, it continues from the last checkpoint."""
    run_system(config, system(config), run, progress)
