"""Tasksets of `verifiers` (version 1) as tasks to train on: `keepworth train --tasks verifiers:NAME`.

A taskset brings its tasks, the program that plays them (a harness, or an environment of several agents) and the rewards. It is
played as it is: every call of a rollout's harness goes to the rollout's address (`keepworth.training.interception`), and the
reward is the mean of its traces'. NAME is what `verifiers` calls the taskset, and settings of the taskset may follow it:
`verifiers:textarena,game=Hangman-v0`.

Tasksets are played on this machine, as processes of the user's (`runtime.type = "subprocess"`); those that need a container are
refused by verifiers itself. Its usual harness `null` is started by `uv`."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.base.extras import require
from keepworth.base.json_values import parse
from keepworth.training.programs import Endpoint
from keepworth.worlds.own import OwnTasks, own_tasks
from keepworth.worlds.splits import SPLITS

PREFIX = "verifiers:"
MOST = 1000
"""The most tasks that are taken of a taskset, which may be endless."""


class UnusableTaskset(KeepworthError):
    """A taskset cannot be loaded or played here."""


@dataclass(slots=True)
class PlayedTaskset:
    """A taskset with what plays it.

    Attributes:
        name: Its name, as it was asked for.
        rows: A row for each task: its prompt, its number, and a hash of all that it is made of.
    """

    name: str
    rows: list[dict[str, Any]]
    _environment: Any
    _tasks: list[Any]
    _serving: AsyncExitStack | None = None
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def play(self, row: Mapping[str, Any], endpoint: Endpoint) -> dict[str, Any]:
        """Plays the task of a row against a rollout's address, and returns its answer and its reward. Raises UnusableTaskset
        where verifiers says that the episode failed."""
        return await self.run(row, endpoint.openai, "keepworth", key_variable="OPENAI_API_KEY")

    async def run(
        self,
        row: Mapping[str, Any],
        url: str,
        model: str,
        *,
        key_variable: str,
        block: str = "",
        sampling: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Plays the task of a row with a model behind OpenAI's interface, and returns its answer and its reward.

        Args:
            row: The row of the task.
            url: The address of the model, with its version.
            model: The name of the model there.
            key_variable: The environment variable that holds its key. A model without one needs no variable.
            block: What is added to the end of the task's prompt.
            sampling: How the model draws, such as its temperature; by default as the taskset's agents say.

        Raises:
            UnusableTaskset: verifiers says that the episode failed, or there is no prompt to add to.
        """
        import verifiers.v1 as vf

        from keepworth.training.verifiers_memory import add_to_prompt

        async with self._starting:
            if self._serving is None:
                stack = AsyncExitStack()
                await stack.enter_async_context(self._environment.serving())
                self._serving = stack
                _serving.append(stack)
        client = vf.EvalClientConfig(base_url=url, api_key_var=key_variable)
        task = self._tasks[int(row["id"])]
        if block:
            task = task.with_data(prompt=add_to_prompt(task.data.prompt, block))
        context = vf.ModelContext(model, client, vf.SamplingConfig(**sampling))
        episode = await self._environment.run_episode(task, context)
        if not episode.ok or not episode.traces:
            errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
            why = "; ".join(f"{error.type}: {error.message}" for error in errors) or "it has no trace"
            raise UnusableTaskset(f"verifiers says that the episode failed: {why:.600}.")
        trained = [trace for trace in episode.traces if trace.agent.trainable] or list(episode.traces)
        terms = {name: reward.value for trace in trained for name, reward in trace.rewards.items()}
        reward = sum(float(trace.reward) for trace in trained) / len(trained)
        return {"answer": trained[-1].last_reply or "", "reward": reward, "terms": terms}

    @property
    def tasks(self) -> OwnTasks:
        """Its tasks by split. Tasks with the same prompt, such as games with different seeds, are different tasks."""
        return own_tasks(self.rows, name=self.name.removeprefix(PREFIX).partition(",")[0], by_row=True)


_serving: list[AsyncExitStack] = []
"""What serves the tasksets that were played. It lasts as long as the program, as the event loop does in which it was begun."""


def taskset_reward(answer: Any, row: Mapping[str, Any]) -> float:
    """The reward that a taskset gave."""
    return float(answer["reward"])


def load_taskset(reference: str) -> PlayedTaskset:
    """Loads the taskset that `verifiers:NAME,SETTING=VALUE` names. Raises UnusableTaskset, MissingExtra."""
    require("verifiers", reference)
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    name, *settings = _SETTING.split(reference.removeprefix(PREFIX))
    given = dict(setting.partition("=")[::2] for setting in settings)
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    try:
        taskset = {"id": name, **{key: _value(text) for key, text in given.items()}}
        environment = load_environment(resolve_env_config({"taskset": taskset, **_agents(taskset, agent)}))
        tasks = list(islice(environment.taskset, MOST))
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).replace("*", " ").split())
        raise UnusableTaskset(
            f"The taskset {name!r} of verifiers cannot be loaded: {type(error).__name__}: {message:.400}.",
            "Install its package, and give its settings behind the name, such as verifiers:textarena,game=Hangman-v0.",
        ) from error
    if len({_hash(task) for task in tasks}) < len(SPLITS):
        raise UnusableTaskset(
            f"The taskset {name!r} of verifiers has {len(tasks)} tasks, of which {len({_hash(task) for task in tasks})} are "
            "different.",
            f"One each is needed for {', '.join(SPLITS)}: give it settings with more tasks, such as "
            'verifiers:openenv,base_url=URL,resets=[{"seed": 0}, {"seed": 1}, {"seed": 2}].',
        )
    rows = [
        {"prompt": task.data.prompt_text or task.data.name or f"{name} {index}", "id": index, "task": _hash(task)}
        for index, task in enumerate(tasks)
    ]
    return PlayedTaskset(reference, rows, environment, tasks)


def _agents(taskset: Mapping[str, Any], agent: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of every agent of a taskset's environment, by the agent's name."""
    from verifiers.v1.configs.agent import agent_config_fields
    from verifiers.v1.utils.loaders import resolve_env_config

    names = agent_config_fields(resolve_env_config({"taskset": dict(taskset)}))
    return {name: dict(agent) for name in names}


_SETTING = re.compile(r",(?=[A-Za-z_]\w*=)")
"""A comma before the next setting. Others are part of a value, such as a list."""


def _hash(task: Any) -> str:
    """Returns a hash of what a task is made of, without its name and number, which tell equal tasks apart."""
    content = task.data.model_dump_json(exclude={"idx", "id", "name"})
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _value(text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return text
