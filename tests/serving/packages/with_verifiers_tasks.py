"""Plays task sets of verifiers in our loop and prints the episodes: python -m ...with_verifiers_tasks."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import verifiers.v1 as vf

from keepworth import Memory
from keepworth.agents.agent import Action, Caller
from keepworth.environments.bridges import adapted
from keepworth.environments.verifiers_tasks import tasks_of
from keepworth.episodes.episode import Observation
from keepworth.episodes.errors import KeepworthError
from keepworth.rollouts.driver import Limits, run_episode
from keepworth.serving.verifiers_memory import remembering
from tests.serving.packages.calculator import Calculator


class SumData(vf.TaskData):  # type: ignore[misc]
    total: int


class SumTask(vf.Task[SumData]):  # type: ignore[misc]
    @vf.reward(weight=2.0)
    async def right(self, task: SumData, trace: vf.Trace) -> float:
        return float(str(task.total) in trace.last_reply)

    @vf.reward(weight=0.5)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) < 10)

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):  # type: ignore[misc]
    def load(self) -> Iterable[SumTask]:
        for number in range(4):
            prompt = f"What is {number} + {number}?"
            data = SumData(prompt=prompt, system_prompt="Be short.", total=2 * number)
            yield SumTask(data, self.config.task)


class Endless(Sums):
    INFINITE = True


class SumsWithTools(Sums):
    @classmethod
    def toolsets(cls, config: vf.TasksetConfig) -> list[Any]:
        return [Calculator(vf.SharedToolsetConfig())]


class AskedTwiceConfig(vf.EnvConfig):  # type: ignore[misc]
    agent: vf.AgentConfig = vf.AgentConfig()


class AskedTwice(vf.Env[AskedTwiceConfig]):  # type: ignore[misc]
    """A user who asks again."""

    async def run(self, task: Any, agents: Any) -> None:
        async with agents.agent.interaction(task) as interaction:
            await interaction.turn()
            await interaction.turn("Are you sure?")


class Says:
    def __init__(self, says: list[str]) -> None:
        self.says, self.seen, self.tools = says, list[Any](), list[str]()

    async def act(self, observation: Observation, model: Caller) -> Action:
        self.tools += [each.name for each in observation.tools]
        self.seen.append([each["content"] for each in observation.messages] or observation.text)
        return Action(self.says[len(self.seen) - 1])


def played(given: Any, says: list[str], number: int = 3, turns: int = 6) -> dict[str, Any]:
    task = tasks_of(given)[number]
    agent = Says(says)
    environment = adapted(given, task)(task)
    episode = asyncio.run(run_episode(task, environment, agent, limits=Limits(max_turns=turns, environment_seconds=60)))
    return {
        "task": task.key,
        "seen": agent.seen,
        "tools": agent.tools,
        "rewards": [[term.name, term.value, term.weight] for term in episode.rewards],
        "reward": episode.reward,
        "stop": episode.stop.value,
        "answer": episode.answer,
        "errors": list(episode.errors),
    }


def endless() -> str:
    try:
        tasks_of(Endless(vf.TasksetConfig(id="sums")))
    except KeepworthError as error:
        return str(error)
    return ""


def remembered() -> dict[str, Any]:
    """A memory in an environment of verifiers, which is played in our loop."""
    memory = Memory(encoder=None, policy=None)
    memory.add("3 + 3 is 6.")
    environment = remembering(vf.SingleAgentEnv, memory)
    made = played(environment(vf.SingleAgentEnvConfig(taskset=vf.TasksetConfig(id="sums"))), ["6"])
    (item,) = memory.get_all()
    return {
        **made,
        "told": [memory.episode_record(each).reward for each in memory.episodes()],
        "total": item.values.total,
    }


# What a file of two lines does: a module of that name which exports a task set.
module = ModuleType("sums")
module.__dict__.update({"Sums": Sums, "AskedTwice": AskedTwice}, __all__=["Sums", "AskedTwice"])
sys.modules["sums"] = module


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sums = Sums(vf.TasksetConfig(id="sums"))
    asked = vf.load_environment(AskedTwiceConfig(taskset=vf.TasksetConfig(id="sums")))
    made: dict[str, Any] = {
        "asked twice": played(asked, ["6", "Yes, 6."]),
        "asked once": played(asked, ["6"], turns=1),
        "remembering": remembered(),
        "one": played(sums, ["6"]),
        "wrong": played(sums, ["I cannot tell"], 1),
        "endless": endless(),
    }
    tools = SumsWithTools(vf.TasksetConfig(id="sums"))
    made["tools"] = played(tools, ['calculator_double: {"number": 3}', "answer: 6"])
    made["late"] = played(tools, ['calculator_double: {"number": 3}', "calculator_double: {}"], turns=2)
    print(json.dumps(made))  # noqa: T201
