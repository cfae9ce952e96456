"""A memory in the trainers of TRL, and environments of ours. Nothing here imports TRL.

Where the model's chat template knows tools, a memory is an environment, or goes around yours:

    memory = Memory("agent.mem")
    GRPOTrainer(..., environment_factory=with_memory(memory), reward_funcs=telling(score, memory))

Where it does not, what is recalled is written into the prompts as they are read:

    GRPOTrainer(..., train_dataset=rows.with_transform(recalling(memory)), reward_funcs=telling(score, memory))

Either way the memory is told what an episode earned, and learns which of its items are worth showing. An environment of ours:

    factory, rows = in_trl(lambda task: ToolUse([tool(search)]), tasks)
    GRPOTrainer(..., environment_factory=factory, train_dataset=Dataset.from_list(rows))
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, TypeVar

from keepworth.environments.environment import Environment, ScoresTheEnd
from keepworth.episodes.episode import Observation, RewardTerm, Task, ToolDescription, combined
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.text import as_line
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.memory import Memory
from keepworth.memory.search.search import Hits
from keepworth.tasks.own import last_said, messages_of

T = TypeVar("T")
DECISION = "memory_decision"
"""The column that says which search of the memory a row's prompt shows."""
TOOLS = ("recall", "remember")
OVER = "This episode is over."
ANSWER = ToolDescription("answer", "answer", "Give the final answer. Nothing comes after it.")
ACT = ToolDescription("act", "action", "Do or say something, and see what comes of it.")
_TYPES = {"integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
"""Types of arguments by their names in JSON schemas; all others are texts."""


# -- a memory in TRL ----------------------------------------------------------------------------------------------------


def with_memory(
    memory: Memory,
    environment: Callable[[], Any] | None = None,
    *,
    top_k: int = 3,
    keep: Callable[[float], bool] | None = None,
) -> Callable[[], Any]:
    """An `environment_factory` whose episodes begin with what the memory recalls for the prompt, and have the tools `recall` and
    `remember`.

    Args:
        environment: A factory of your own, whose tools, first text and reward stay as they are.
        keep: Of the reward: whether what a model remembered is written once its episode has its reward; None for always. So no
            episode of a group sees what another wrote.

    Raises:
        KeepworthError: When an environment is made whose tools have the names of these.
    """

    def make() -> Any:
        inner = None if environment is None else environment()
        kind: Any = type(inner)
        return _class_around(kind)(memory, inner, top_k, keep)

    return make


class MemoryEnvironment:
    """An environment of TRL: `reset` shows what is recalled, the public methods are tools. See `with_memory`."""

    def __init__(self, memory: Memory, inner: Any, top_k: int, keep: Callable[[float], bool] | None) -> None:
        self._memory, self._inner, self._top_k, self._keep = memory, inner, top_k, keep
        self._noted: list[str] = []
        self._open: LiveEpisode | None = None
        self._searched = False

    def reset(self, **row: Any) -> str:
        first = "" if self._inner is None else self._inner.reset(**row) or ""
        about = " ".join(filter(None, (last_said(row), first.strip())))
        self._noted, self._open, self._searched = [], self._memory.episode(about), False
        return f"{first}{shown(self._search(about)) if about else ''}"

    def recall(self, query: str) -> str:
        """
        Look something up in memory.

        Args:
            query: What to look for, in a few words.

        Returns:
            What is remembered about it, a line each.
        """
        return _lines(self._search(query)) or "Nothing."

    def remember(self, text: str) -> str:
        """
        Keep something in memory for later conversations.

        Args:
            text: One sentence that can be understood by itself.

        Returns:
            That it was noted.
        """
        if not text.strip():
            raise ValueError("there is nothing to remember")
        self._noted.append(text.strip())
        return "Noted."

    def _search(self, query: str) -> Hits:
        if self._open is None:
            raise ValueError("this episode is over")
        self._searched = True
        return self._open.search(query, top_k=self._top_k)

    def _tell(self, reward: float | None, done: str = "") -> None:
        """Tell the memory, once, what the episode earned; without a reward the episode stays open there."""
        if reward is None or self._open is None:
            return
        live, self._open = self._open, None
        if self._searched:
            live.act(done.strip() or "answered")
        if self._keep is None or self._keep(float(reward)):
            for text in self._noted:
                live.remember(text)
        live.reward(float(reward))
        live.end("completed")


@functools.cache
def _class_around(inner: type) -> type[MemoryEnvironment]:
    """A class that has the tools of `inner`, too: TRL finds them, and the reward, among the functions of the class."""
    if inner is type(None):
        return MemoryEnvironment
    methods = {name: value for name, value in inspect.getmembers(inner, inspect.isfunction) if name[0] != "_"}
    if taken := sorted(set(TOOLS) & set(methods)):
        raise KeepworthError(
            f"{inner.__name__} has tools with the names of the memory's: {', '.join(taken)}.", "Rename yours."
        )

    def passed(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *given: Any, **named: Any) -> Any:
            return getattr(self._inner, name)(*given, **named)

        def tell(result: Any, self: Any, *given: Any, **named: Any) -> None:
            if name == "get_reward":
                self._tell(result)

        return _calling(method, call, tell)

    return type(
        inner.__name__,
        (MemoryEnvironment,),
        {name: passed(name, method) for name, method in methods.items() if name != "reset"},
    )


def _calling(like: Callable[..., Any], call: Callable[..., Any], then: Callable[..., None]) -> Callable[..., Any]:
    """A function that looks like another, awaitable where that is. It gives what `call` gives, and hands it to `then` first."""
    if inspect.iscoroutinefunction(like):

        @functools.wraps(like)
        async def later(*given: Any, **named: Any) -> Any:
            result = await call(*given, **named)
            then(result, *given, **named)
            return result

        return later

    @functools.wraps(like)
    def now(*given: Any, **named: Any) -> Any:
        result = call(*given, **named)
        then(result, *given, **named)
        return result

    return now


def recalling(memory: Memory, *, top_k: int = 3) -> Callable[[Mapping[str, list[Any]]], dict[str, list[Any]]]:
    """For `Dataset.with_transform`: prompts show what the memory recalls for them, at the moment when they are read, so that each
    rollout has a choice of its own; the column `memory_decision` says which. With `Dataset.map(..., batched=True)` it is recalled
    once for all."""

    def transform(rows: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        columns = {key: list(values) for key, values in rows.items()}
        if "prompt" in columns:  # a row may be asked for one of its other columns
            prompts = columns["prompt"]
            recalled = memory.search_many([last_said({"prompt": prompt}) for prompt in prompts], top_k=top_k)
            columns["prompt"] = [_with(prompt, shown(hits)) for prompt, hits in zip(prompts, recalled, strict=True)]
            columns[DECISION] = [hits.decision for hits in recalled]
        return columns

    return transform


def telling(score: Callable[..., Any], memory: Memory) -> Callable[..., Any]:
    """`score`, a reward function of TRL, which also tells the memory what an episode earned. Of several reward functions, one is
    what the memory learns from. A reward of None is not told."""

    def tell(values: Sequence[float | None], **given: Any) -> None:
        environments: Sequence[Any] = given.get("environments") or ()
        decisions: Sequence[str | None] = given.get(DECISION) or ()
        if not environments and not decisions:
            raise KeepworthError(
                "Nothing says what the memory showed.",
                "Give environment_factory=with_memory(memory), or train on rows.with_transform(recalling(memory)).",
            )
        for number, value in enumerate(values):
            if decisions:
                if value is not None and (decision := decisions[number]) is not None:
                    memory.reward(decision, float(value), source="trl")
            elif isinstance(environments[number], MemoryEnvironment):
                if hasattr(environments[number], "get_reward"):
                    raise KeepworthError(
                        f"{type(environments[number]).__name__} has get_reward, of which the memory is told.",
                        "Hand over the reward function as it is, without telling(...).",
                    )
                environments[number]._tell(value, _said(given["completions"][number]))

    return _calling(score, score, tell)


def shown(hits: Hits) -> str:
    """What is recalled, as it stands behind a prompt."""
    lines = _lines(hits)
    return f"\n\nMemory:\n{lines}" if lines else ""


def _lines(hits: Hits) -> str:
    return "\n".join(f"- {as_line(hit.item.text)}" for hit in hits)


def _with(prompt: Any, text: str) -> Any:
    if isinstance(prompt, str):
        return prompt + text
    return [*prompt[:-1], {**prompt[-1], "content": f"{prompt[-1]['content']}{text}"}]


def _said(completion: Any) -> str:
    """The last words of a completion: a text, or messages."""
    if isinstance(completion, str):
        return completion
    return next((str(message["content"]) for message in reversed(completion) if message.get("content")), "")


# -- environments of ours in TRL ----------------------------------------------------------------------------------------


def in_trl(
    make: Callable[[Task], Environment], tasks: Iterable[Task]
) -> tuple[Callable[[], Any], list[dict[str, Any]]]:
    """(`environment_factory`, rows for `datasets.Dataset.from_list`) of an environment of ours and its tasks.

    Its tools are TRL's tools, and `answer` ends an episode; where it has none, `act` says what is done. What it shows first is
    appended to the prompt. An episode's reward is the sum of its rewards, 0 where it ended before it earned any."""
    by_key = {task.key: task for task in tasks}
    if not by_key:
        raise KeepworthError("There is no task.", "Give at least one.")
    first = next(iter(by_key.values()))
    sample = make(first)
    tools = _run(_opened(sample, first)).tools
    methods = {tool.name: _method(tool) for tool in ((*tools, ANSWER) if tools else (ACT,))}
    played, seeds = type(f"{type(sample).__name__}InTrl", (PlayedInTrl,), methods), count()
    rows = [
        {"prompt": [dict(message) for message in messages_of(task)] or [{"role": "user", "content": ""}], "key": key}
        for key, task in by_key.items()
    ]
    return lambda: played(make, by_key, seeds), rows


class PlayedInTrl:
    """An environment of TRL that plays one of ours; see `in_trl`."""

    def __init__(self, make: Callable[[Task], Environment], tasks: Mapping[str, Task], seeds: Iterator[int]) -> None:
        self._make, self._tasks, self._seeds = make, tasks, seeds
        self._environment: Environment | None = None
        self._rewards: list[RewardTerm] = []
        self._over = self._failed = False

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
        words = json.dumps(arguments, ensure_ascii=False) if tool.parameters else str(arguments[tool.argument])
        return self._act(words if tool is ACT else f"{tool.name}: {words}")

    types = {name: _TYPES.get(str(about.get("type")), str) for name, about in properties.items()}
    about = "\n".join(f"    {name}: {properties[name].get('description', name)}" for name in properties)
    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = f"{tool.does}\n\nArgs:\n{about}\n\nReturns:\n    What comes of it."
    method.__annotations__ = {**types, "return": str}
    keyword, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += [
        inspect.Parameter(name, keyword, annotation=types[name], default=empty if name in needed else None)
        for name in properties
    ]
    method.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return method
