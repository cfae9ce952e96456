"""Environments of ours in the trainers of TRL.

    factory, rows = in_trl(lambda task: ToolUse([tool(search)]), tasks)
    GRPOTrainer(..., environment_factory=factory, train_dataset=Dataset.from_list(rows))

Nothing here imports TRL."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import MappingProxyType
from typing import Any, TypeVar

from keepworth.environments.environment import Environment, ScoresTheEnd
from keepworth.episodes.episode import Observation, RewardTerm, Task, ToolDescription, combined
from keepworth.episodes.errors import KeepworthError
from keepworth.tasks.own import last_said, messages_of

T = TypeVar("T")
OVER = "This episode is over."
ANSWER = ToolDescription("answer", "answer", "Give the final answer. Nothing comes after it.")
ACT = ToolDescription("act", "action", "Do or say something, and see what comes of it.")


def in_trl(
    make: Callable[[Task], Environment], tasks: Iterable[Task]
) -> tuple[Callable[[], Any], list[dict[str, Any]]]:
    """(`environment_factory`, rows for `datasets.Dataset.from_list`) of an environment of ours and its tasks.

    Its tools are TRL's tools, and `answer` ends an episode; where it has none, `act` says what is done. What it shows first is
    appended to the prompt. An episode's reward is the sum of its rewards, 0 where it ended before it earned any."""
    known = {task.key: task for task in tasks}
    if not known:
        raise KeepworthError("There is no task.", "Give at least one.")
    first = next(iter(known.values()))
    one = make(first)
    tools = _run(_opened(one, first)).tools
    methods = {each.name: _method(each) for each in ((*tools, ANSWER) if tools else (ACT,))}
    own, seeds = type(f"{type(one).__name__}InTrl", (PlayedInTrl,), methods), count()

    def factory() -> Any:
        return own(make, known, seeds)

    rows = [
        {"prompt": [dict(each) for each in messages_of(task)] or [{"role": "user", "content": ""}], "key": key}
        for key, task in known.items()
    ]
    return factory, rows


class PlayedInTrl:
    """An environment of TRL that plays one of ours; see `in_trl`."""

    def __init__(self, make: Callable[[Task], Environment], tasks: Mapping[str, Task], seeds: Iterator[int]) -> None:
        self._make, self._tasks, self._seeds = make, tasks, seeds
        self._environment: Environment | None = None
        self._rewards: list[RewardTerm] = []
        self._over = False
        self._failed = False

    def reset(self, *, key: str, **row: Any) -> str:
        self._end()
        task = self._tasks[key]
        self._environment, self._rewards, self._over, self._failed = self._make(task), [], False, False
        seen = _run(self._environment.reset(task, next(self._seeds)))
        if seen.messages:
            return str(seen.messages[-1]["content"]).removeprefix(last_said(task.row))
        return "\n\n".join(dict.fromkeys(filter(None, (seen.question, seen.text))))

    def get_reward(self) -> float | None:
        if self._environment is not None and not self._over and isinstance(self._environment, ScoresTheEnd):
            self._rewards += _run(self._environment.outcome())
        self._end()
        return None if self._failed else combined(tuple(self._rewards))

    def _act(self, action: str) -> str:
        if self._over or self._environment is None:
            return OVER
        try:
            step = _run(self._environment.step(action))
        except Exception:
            self._over = self._failed = True
            raise
        self._rewards += step.rewards
        self._over = step.stop is not None
        return OVER if self._over else step.observation.text

    def _end(self) -> None:
        environment, self._environment = self._environment, None
        if environment is not None:
            _run(environment.close())


async def _opened(environment: Environment, task: Task) -> Observation:
    try:
        return await environment.reset(task, 0)
    finally:
        await environment.close()


def _run(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns; in a thread, because in a notebook a loop runs already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _method(tool: ToolDescription) -> Callable[..., Any]:
    """A method that TRL and transformers describe to a model as the tool is described."""
    properties = dict(tool.parameters.get("properties", {})) if tool.parameters else {tool.argument: {"type": "string"}}
    needed = set(tool.parameters.get("required", ())) if tool.parameters else set(properties)

    def method(self: PlayedInTrl, **arguments: Any) -> str:
        said = json.dumps(arguments, ensure_ascii=False) if tool.parameters else str(arguments[tool.argument])
        return self._act(said if tool is ACT else f"{tool.name}: {said}")

    kinds = {name: _KINDS.get(str(about.get("type")), str) for name, about in properties.items()}
    about = "\n".join(f"    {name}: {properties[name].get('description', name)}" for name in properties)
    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = f"{tool.does}\n\nArgs:\n{about}\n\nReturns:\n    What comes of it."
    method.__annotations__ = {**kinds, "return": str}
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=kinds[name],
            default=inspect.Parameter.empty if name in needed else None,
        )
        for name in properties
    ]
    method.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return method


_KINDS = MappingProxyType({"integer": int, "number": float, "boolean": bool, "array": list, "object": dict})
"""Types of arguments by their names in JSON schemas; all others are texts."""
