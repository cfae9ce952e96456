"""ToolUse: a question and tools that answer one line at a time.

An action is one line, `name: argument`. `answer: ...` ends the episode and is scored; a tool's name runs the tool, and its result
is the next observation. Tools are plain functions from text to text, asynchronous or not; their docstrings are their
descriptions. The agent sees the error of a tool that raises or hangs, and the episode goes on. The reply to a line that is not an
action lists the possible ones, until the turns are used up. Two episodes of a task are in one state where their tools have
returned the same texts so far."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from keepworth.records.episode import Observation, RewardTerm, StopReason, Task, ToolDescription
from keepworth.worlds.environment import Step, call_function
from keepworth.worlds.verifiers import verify

ANSWER = "answer"
_ACTION = re.compile(r"\s*([A-Za-z_][\w-]*)\s*:(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: `run(argument)` returns the text that the agent sees. `ends` says that using it ends the episode with
    StopReason.TOOL_STOP."""

    description: ToolDescription
    run: Callable[[str], str | Awaitable[str]]
    ends: bool = False


def action_in(text: str) -> tuple[str, str]:
    """Splits an action `name: argument`; returns two empty texts where it is not one."""
    match = _ACTION.fullmatch(text.strip())
    return (match[1], match[2].strip()) if match else ("", "")


def argument_of(tool: ToolDescription, written: str) -> str:
    """Returns the argument for a tool with one argument: `written`, or its value where that is a JSON object that names it.
    Raises ValueError where such an object has other names."""
    try:
        parsed = json.loads(written) if written.startswith("{") else None
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        return written
    if set(parsed) != {tool.argument}:
        raise ValueError(f'{tool.name} takes {{"{tool.argument}": ...}}')
    value = parsed[tool.argument]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def tool(run: Callable[[str], str | Awaitable[str]], *, name: str = "", ends: bool = False) -> Tool:
    """Makes a tool of a function. Its description is the first line of the function's docstring. Raises ValueError where there is
    no docstring, where the function takes other than one argument, or where the name is `answer`.

    Args:
        run: The function, from one text to the text that the agent is shown. It may be asynchronous.
        name: What agents call it; the function's name by default.
        ends: Whether a call of the tool ends the episode.
    """
    called = name or str(getattr(run, "__name__", ""))
    arguments = list(inspect.signature(run).parameters)
    if len(arguments) != 1:
        raise ValueError(f"tool {called!r} takes {len(arguments)} arguments: a tool is given one text")
    if not _ACTION.fullmatch(f"{called}:") or called == ANSWER:
        raise ValueError(f"a tool cannot be called {called!r}: one word, and not {ANSWER!r}, which ends the episode")
    does = (inspect.getdoc(run) or "").split("\n")[0].strip()
    if not does:
        raise ValueError(f"tool {called!r} has no docstring: agents would not know what it does")
    return Tool(ToolDescription(called, arguments[0], does), run, ends)


class ToolUse:
    """Asks a task's question and offers tools, the same for every task. An episode has at most `turns` actions; a tool may take
    `seconds`."""

    def __init__(self, tools: Sequence[Tool], *, turns: int = 4, seconds: float = 10.0) -> None:
        names = [tool.description.name for tool in tools]
        if len(set(names)) < len(names):
            raise ValueError(f"two tools have one name: {sorted(names)}")
        self._tools = {tool.description.name: tool for tool in tools}
        self._turns, self._seconds = turns, seconds
        self._task: Task | None = None
        self._left = 0
        self._heard: tuple[str, ...] = ()

    async def reset(self, task: Task, seed: int) -> Observation:
        self._task, self._left, self._heard = task, self._turns, ()
        described = tuple(tool.description for tool in self._tools.values())
        return Observation(task.input, question=task.input, tools=described, state=self._state())

    async def step(self, action: str) -> Step:
        assert self._task is not None
        self._left -= 1
        name, argument = action_in(action)
        name = name.lower()
        if name == ANSWER:
            return Step(
                rewards=(RewardTerm(self._task.verifier, verify(self._task, argument)),),
                stop=StopReason.COMPLETED,
                answer=argument,
            )
        if name not in self._tools:
            names = ", ".join(f"{name}:" for name in (*self._tools, ANSWER))
            return self._goes_on(f"Begin with one of {names}", ended_by=StopReason.PARSE_ERROR)
        text, error = await self._used(self._tools[name], argument)
        self._heard += (text,)
        if self._tools[name].ends:
            return Step(stop=StopReason.TOOL_STOP, errors=error)
        return self._goes_on(text, errors=error)

    async def close(self) -> None:
        self._task = None

    def _goes_on(
        self,
        text: str,
        *,
        errors: tuple[str, ...] = (),
        ended_by: StopReason = StopReason.MAX_TURNS,
    ) -> Step:
        stop = ended_by if self._left < 1 else None
        observation = Observation(text, state=self._state())
        return Step(observation, stop=stop, errors=errors)

    def _state(self) -> str:
        assert self._task is not None
        return hashlib.sha256("\0".join((self._task.key, *self._heard)).encode()).hexdigest()[:16]

    async def _used(self, chosen: Tool, argument: str) -> tuple[str, tuple[str, ...]]:
        name = chosen.description.name
        try:
            text = await asyncio.wait_for(
                call_function(chosen.run, argument_of(chosen.description, argument)), self._seconds
            )
        except TimeoutError:
            return "Error: it took too long.", (f"tool {name!r} took more than {self._seconds:g} s",)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            return f"Error: {error}", (f"tool {name!r} failed on {argument!r}: {message}",)
        return " ".join(str(text).split()), ()
