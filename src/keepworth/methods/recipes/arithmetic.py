"""Word problems, answered in one of three ways: as a number, as an expression, or with a calculator over several turns.

GSM8K and SVAMP ship with keepworth. A small model knows what to compute long before it can compute it: `answer = "expression"`
rewards the first alone, `"calculator"` lets a tool do the second and makes episodes of several turns, `"number"` asks for both.
With `stories` the calculator's question comes without its story, which the model has to find in a memory of `stories` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import Amount, Count, Idle, Settings
from keepworth.training.system import CALLS, Measured, System

if TYPE_CHECKING:
    from keepworth.memory.overlay import Bank
    from keepworth.records import Task
    from keepworth.worlds.agent import Agent
    from keepworth.worlds.environment import Environment

# (story, question, query, expression, number), in whole sentences as in the data sets.
_EXAMPLES = (
    ("Mary had 7 pens. She lost 3 of them.", "How many pens does Mary have left?", "Mary pens", "7 - 3", "4"),
    ("A box holds 6 eggs.", "How many eggs are there in 5 boxes?", "eggs box", "6 * 5", "30"),
    ("Tom has 8 toys and Ann has 9 toys.", "How many toys do they have together?", "toys together", "8 + 9", "17"),
)


class Config(Settings):
    """Settings. answer: its form. turns: limit for the calculator. stories: size of the memory, with the question's story."""

    steps: Count = 60
    source: Literal["svamp", "gsm8k"] = "svamp"
    answer: Literal["expression", "number", "calculator"] = "expression"
    max_tokens: int = Field(default=20, ge=2)
    turns: int = Field(default=3, ge=2, description="answer = calculator: actions in all")
    stories: Amount = Field(
        default=0, description="answer = calculator: the story is one of so many in a memory; 0 tells it"
    )

    @property
    def holds(self) -> frozenset[str]:
        return super().holds | frozenset({"states of turns"} if self.answer == "calculator" else ())

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        if self.answer != "calculator":
            yield ("turns", "stories"), f"with answer = {self.answer}", "set answer = calculator"

    @model_validator(mode="after")
    def _has_stories(self) -> Config:
        if self.stories and self.source != "svamp":
            raise ValueError(
                f"stories = {self.stories}: {self.source} has no stories apart from its questions; set source = svamp"
            )
        return self


def calculate(expression: str) -> str:
    """Returns the value of an arithmetic expression."""
    from keepworth.worlds.verifiers import evaluate_expression, format_number

    value = evaluate_expression(expression)
    if value is None:
        raise ValueError(f"{expression!r} is not arithmetic of + - * / and brackets")
    return format_number(value)


def head(answer: str, remembered: bool = False) -> str:
    """Returns the worked examples, in the form of the answer. remembered: the story is searched for first."""
    from keepworth.worlds.tool_caller import RECALL, RESULT, TURN, opening
    from keepworth.worlds.tool_use import ANSWER, tool

    if answer != "calculator":
        return "".join(
            f"Question: {story} {question}\nAnswer: {expression if answer == 'expression' else number}\n\n"
            for story, question, _, expression, number in _EXAMPLES
        )
    used = tool(calculate).description.name
    return "".join(
        f"{opening(question if remembered else f'{story} {question}')}"
        f"{f' {RECALL.name}: {query}{chr(10)}{RESULT} {story}{chr(10)}{TURN}' if remembered else ''}"
        f" {used}: {expression}\n{RESULT} {number}\n{TURN} {ANSWER}: {number}\n\n"
        for story, question, query, expression, number in _EXAMPLES
    )


def memory_of(stories: int, tasks: Sequence[Task], seed: int) -> Callable[[Task], Bank]:
    """Returns a function that makes a task's bank: its story among others, in seeded order. It is searched by words.

    Args:
        stories: The number of stories in a bank.
        tasks: Those whose stories the others are drawn from.
        seed: That of the draw and of the order.
    """
    from keepworth.memory.overlay import Bank
    from keepworth.worlds.splits import draw_order

    def bank(task: Task) -> Bank:
        others = sorted(
            (story for story in tasks if story.key != task.key), key=lambda story: draw_order(seed, task.key, story.key)
        )
        ordered = sorted(
            (task, *others[: stories - 1]), key=lambda story: draw_order(seed, "order", task.key, story.key)
        )
        made = Bank.empty(None)
        for story in ordered:
            made.add(story.sessions[0].turns[0].text)
        return made

    return bank


def system(config: Config) -> System:
    from keepworth.worlds.agent import Completer
    from keepworth.worlds.data_sets.arithmetic import arithmetic
    from keepworth.worlds.driver import Limits, Play
    from keepworth.worlds.question import Question
    from keepworth.worlds.tool_caller import MemoryToolCaller, ToolCaller
    from keepworth.worlds.tool_use import ToolUse, tool

    verifier, remembered = "expression" if config.answer == "expression" else "numeric", config.stories > 0
    sets = {
        split: arithmetic(config.source, split, verifier=verifier, remembered=remembered)
        for split in ("train", "dev", "test")
    }
    worked = head(config.answer, remembered)
    with_tools = config.answer == "calculator"
    turns = config.turns if with_tools else 1

    def environment(task: Task) -> Environment:
        return ToolUse([tool(calculate)], turns=turns) if with_tools else Question()

    def agent(task: Task, memory: Bank | None) -> Agent:
        if memory is not None:
            return MemoryToolCaller(memory, worked, max_tokens=config.max_tokens, calls=RECALLS, k=1, mode="lexical")
        if with_tools:
            return ToolCaller(worked, max_tokens=config.max_tokens)
        return Completer(worked, before="Question: ", after="\nAnswer:", max_tokens=config.max_tokens)

    def ways(tasks: Sequence[Task]) -> dict[str, Play]:
        """Returns the recipe's own play, and, where it has tools, one of the same question without them."""
        memory = memory_of(config.stories, tasks, config.seed) if remembered else None
        plays = {"": Play(environment, agent, memory)}
        if with_tools:
            completer = Completer(head("number"), before="Question: ", after="\nAnswer:", max_tokens=config.max_tokens)
            plays["no_tool"] = Play(lambda task: Question(), lambda task, memory: completer)
        return plays

    calls = turns * (1 + RECALLS * remembered)
    return System(
        role="policy",
        title="a policy learns word problems",
        train=sets["train"],
        play=ways(sets["train"])[""],
        dev=Measured(sets["dev"], {"": ways(sets["dev"])[""]}),
        test={f"{config.source} test questions": Measured(sets["test"], ways(sets["test"]), "family")},
        metrics={verifier: "accuracy", **({CALLS: "calls per answer"} if with_tools else {})},
        limits=Limits(max_turns=turns, environment_seconds=config.environment_seconds),
        length_budget=calls * config.max_tokens,
        row_budget=calls * config.max_tokens,
        note=f"{config.source}, answered as {config.answer}, greedy.",
    )


RECALLS = 1
"""The most searches of memory before an action."""

METHOD = recipe_method(
    name="arithmetic",
    title="Arithmetic",
    about=(
        "Trains on word problems (GSM8K, SVAMP) that are answered by a number, an expression or a calculator "
        "over several turns"
    ),
    differs="Not published: this project's own.",
    make=Recipe(Config, system),
)
