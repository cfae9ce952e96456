"""Memory-R1 in one run: a manager maintains a bank as facts come in, an answerer answers a question from it, and both learn.

After "Memory-R1: Enhancing Large Language Model Agents to Manage and Utilize Memories via Reinforcement Learning" (arXiv
2508.19828). An episode has calls of both roles: one of the manager for each fact, then one of the answerer. Each role reads its
own prompts, and its advantages are compared with the same role of the group's other members. The facts are generated, about
people, with a known right operation for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from keepworth.memory.item import Provenance
from keepworth.memory.overlay import Bank
from keepworth.methods.recipes._memory_r1 import memory_manager
from keepworth.methods.recipes._people_reading import (
    Document,
    Sections,
    evidence_of,
    people_reading,
    right_operations,
    text_of,
)
from keepworth.records.episode import Observation, ParseStatus, RewardTerm, Shown, Task
from keepworth.training.hooks import Hooks
from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.run_folder import MANAGER
from keepworth.training.settings import Count, Pairs, Rate, WarmStarted
from keepworth.training.system import Measured, Pair, System
from keepworth.worlds import answerer
from keepworth.worlds.agent import Action, one_line

if TYPE_CHECKING:
    from keepworth.methods.recipes._memory_r1.memory_manager import ManagerState
    from keepworth.models.inprocess import InProcessModel
    from keepworth.records.episode import MemoryEvent
    from keepworth.worlds.agent import Caller
    from keepworth.worlds.environment import Step

ANSWERER = "answerer"
SHOWN, READ = 4, 5
"""Memories that the manager sees with a fact, and that the answerer reads."""
FORMAT_WEIGHT = 0.1


class Config(WarmStarted):
    """Settings: streams of facts about people, each with a question about one of them."""

    steps: Count = 24
    tasks_per_step: Count = 4
    evaluate_every: Count = 12
    checkpoint_every: Count = 4
    facts: Pairs = Field(default=6, description="of a stream; the manager is called for each")
    tasks: int = Field(default=400, ge=8, description="streams to train on")
    held_out: int = Field(default=60, ge=2, description="questions per measurement")
    max_tokens: Count = Field(default=8, description="of an answer")
    manager_reward: Literal["answer", "operation"] = Field(
        default="answer", description="answer: what the answerer got right; operation: the share of right operations"
    )
    warm_start: int = Field(default=30, ge=0, description="batches of right operations and answers to imitate first")
    warm_start_learning_rate: Rate = 3e-4


class ScoredByRole(Document):
    """A document of facts, whose rewards are separate for each role: see `manager_reward` of `Config`."""

    def __init__(self, facts: Sections, manager_reward: str) -> None:
        super().__init__(facts)
        self._manager_reward = manager_reward
        self._asked: list[str] = []
        self._right: list[str] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        self._asked, self._right = [], right_operations(task)
        return await super().reset(task, seed)

    async def step(self, action: str) -> Step:
        step = await super().step(action)
        if step.stop is None:
            self._asked.append(action)
            return step
        return replace(step, rewards=self._by_role(step.rewards))

    def _by_role(self, answer: Sequence[RewardTerm]) -> tuple[RewardTerm, ...]:
        """Returns the answer's terms, for both roles or for the answerer alone, and the manager's terms."""
        judged = self._manager_reward == "operation"
        terms = [replace(term, role=ANSWERER if judged else "") for term in answer]
        if count := len(self._asked):
            right = sum(asked == gold for asked, gold in zip(self._asked, self._right, strict=False)) / count
            valid = sum(map(bool, self._asked)) / count
            terms.append(RewardTerm("operation", right, weight=float(judged), shaping=True, role=MANAGER))
            terms.append(RewardTerm("format", valid, weight=FORMAT_WEIGHT, shaping=True, role=MANAGER))
        return tuple(terms)


class ManagerAndAnswerer:
    """Plays both roles: the manager as long as facts come in, then the answerer. Neither reads the other's calls. Where it is not
    `managed`, every fact is added."""

    def __init__(self, bank: Bank, max_tokens: int, managed: bool = True) -> None:
        self.bank, self._max_tokens, self._managed = bank, max_tokens, managed
        self._read = 0

    async def act(self, observation: Observation, model: Caller) -> Action:
        if observation.answer_due:
            return await self._answer(observation.question, model)
        return await self._manage(observation.text, model)

    async def _manage(self, fact: str, model: Caller) -> Action:
        """Asks the manager about a fact. The action is its operation with the target's text, "" if it is invalid."""
        state = self.state(fact)
        line = "ADD"
        if self._managed:
            reply, _ = await one_line(
                model,
                model.encode(state.prompt),
                role=MANAGER,
                prompt_id=memory_manager.PROMPT_ID,
                max_tokens=memory_manager.ANSWER_TOKENS,
                memory=self.bank.content_hash(),
            )
            line = reply.text
        asked, status = memory_manager.parse(line, state.ids)
        texts = dict(zip(state.ids, state.memories, strict=True))
        event = self.keep(state, line)
        if self._managed:
            model.remembers(self.bank.content_hash())
        meant = " ".join((asked.kind.value, *(texts[target] for target in asked.targets)))
        shown = tuple(Shown(name, 0.0, text) for name, text in texts.items())
        return Action("" if status is ParseStatus.INVALID else meant, shown=shown, operations=(event,))

    async def _answer(self, question: str, model: Caller) -> Action:
        shown, prompt = self.reading(question)
        action, _ = await one_line(
            model,
            model.encode(prompt),
            role=ANSWERER,
            prompt_id=answerer.PROMPT_ID[answerer.Style.DIRECT],
            max_tokens=self._max_tokens,
            memory=self.bank.content_hash(),
        )
        return replace(action, shown=shown)

    def state(self, fact: str) -> ManagerState:
        """Returns the manager's input for the next fact."""
        return memory_manager.observe(self.bank, fact, k=SHOWN, mode="lexical", seed=f"{self._read}/{fact}")

    def keep(self, state: ManagerState, line: str) -> MemoryEvent:
        """Executes the manager's line."""
        self._read += 1
        return memory_manager.act(self.bank, state, line, provenance=Provenance("conversation", turn=self._read))

    def reading(self, question: str) -> tuple[tuple[Shown, ...], str]:
        """Returns the memories for the answerer, in order of time, and its prompt."""
        from keepworth.methods.recipes._memory_r1.steps import retrieved

        texts = retrieved(self.bank, question, READ, mode="lexical")
        shown = tuple(Shown(str(number), 0.0, text) for number, text in enumerate(texts))
        return shown, answerer.render(shown, question)


def right_calls(model: InProcessModel, task: Task) -> list[Pair]:
    """Returns the prompts of a stream whose every operation is right, with the right lines and, last, the answer."""
    pairs: list[Pair] = []
    agent = ManagerAndAnswerer(Bank.empty(None), 1)
    for fact, right in zip(text_of(task), right_operations(task), strict=True):
        state = agent.state(fact)
        kind, _, target = right.partition(" ")
        line = f"{kind} {state.memories.index(target)}" if target in state.memories else "ADD"
        pairs.append((model.encode(state.prompt), model.encode_continuation(memory_manager.completion(line))))
        agent.keep(state, line)
    _, prompt = agent.reading(task.input)
    return [*pairs, (model.encode(prompt), model.encode_continuation(memory_manager.completion(task.answers[0])))]


def system(config: Config) -> System:
    from keepworth.worlds.driver import Limits, Play

    def streams(split: str, count: int, seed: int) -> list[Task]:
        return people_reading(split, count, seed, sections=config.facts, sentences=1)

    def playing(of: Sections = text_of, managed: bool = True) -> Play:
        def agent(task: Task, memory: Bank | None) -> ManagerAndAnswerer:
            assert memory is not None
            return ManagerAndAnswerer(memory, config.max_tokens, managed)

        return Play(lambda task: ScoredByRole(of, config.manager_reward), agent, lambda task: Bank.empty(None))

    def imitated(model: InProcessModel) -> list[list[Pair]]:
        from keepworth.training.run import batches_of_calls

        return batches_of_calls(config, train, lambda task: right_calls(model, task), config.facts + 1)

    train, play = streams("train", config.tasks, config.seed), playing()
    controls = {
        "no_memory": playing(lambda task: ()),
        "append_only": playing(managed=False),
        "oracle": playing(evidence_of, managed=False),
    }
    return System(
        role=MANAGER,
        title="a manager and an answerer learn together",
        train=train,
        play=play,
        dev=Measured(streams("dev", config.held_out, 0), {"": play}),
        test={"test questions": Measured(streams("test", config.held_out, 0), {"": play, **controls}, "template")},
        metrics={"token_f1": "f1", "exact_match": "em", "operation": "right operations"},
        optional=frozenset({"operation"}),
        limits=Limits(max_turns=config.facts + 1, environment_seconds=config.environment_seconds),
        length_budget=config.facts * memory_manager.ANSWER_TOKENS + config.max_tokens,
        row_budget=max(memory_manager.ANSWER_TOKENS, config.max_tokens),
        imitated=imitated if config.warm_start else None,
        imitation_rate=config.warm_start_learning_rate,
        hooks=Hooks(roles=(MANAGER, ANSWERER)),
        note=f"Streams of {config.facts} facts about people, greedy.",
    )


METHOD = recipe_method(
    name="memory_r1_joint",
    title="Memory-R1, both roles at once",
    paper="arXiv 2508.19828",
    about="Trains a manager and an answerer in one episode, each with its own prompts, rewards and statistics",
    tags=("token", "factual", "formation", "evolution", "retrieval"),
    claim="LoCoMo F1 is 45.02 with GRPO on LLaMA-3.1-8B, where each role is trained alone.",
    differs=(
        "Both roles learn in one run and share weights, where the paper trains each with the other frozen, on "
        "streams of facts about people and 135M parameters."
    ),
    label="small",
    make=Recipe(Config, system),
)
