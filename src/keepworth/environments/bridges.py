"""Environments of other libraries, played as ours are.

| what is handed over | what it is |
| --- | --- |
| a function of a task | makes what is played for that task: one of ours, or one of those below |
| a class, or a function without arguments | makes one for each episode |
| an object | each episode plays a copy of it as it was handed over |
| a mapping | the one that the field `environment` of a row names, as in TRL |

What is made is one of ours (`keepworth.environments.environment`), one of Gymnasium's that speaks in texts, or one of TRL's
(`environment_factory` of its trainers, which OpenEnv's clients and Harbor's tasks are wrapped in).
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

from keepworth.environments.environment import Blocking, Environment, Step, in_lasting_loop, in_thread
from keepworth.environments.tool_use import ANSWER, action_in, argument_of, tool_described
from keepworth.episodes.episode import Observation, RewardTerm, StopReason, Task, ToolDescription
from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.episodes.extras import require
from keepworth.tasks.own import messages_of

ACCEPTED = (
    "Hand over a function of a task or of nothing, a class, or an object: an environment of keepworth (reset, step, close), of "
    "Gymnasium (reset, step, action_space), or of TRL (reset, tools, get_reward)."
)


class UnplayableEnvironment(KeepworthError, TypeError):
    """What was handed over as an environment cannot be played."""


def adapted(given: Any, task: Task, rewarded: bool = False) -> Callable[[Task], Environment]:
    """`given` as a function that makes an environment of ours for a task. task: one of those that will be played; what is made
    for it is looked at and closed again. rewarded: by others, so that it need not say what an episode was worth. Raises
    UnplayableEnvironment naming what cannot be played, UnknownName."""
    make = _maker(given)
    try:
        made, other = make(task), make(task)
    except KeepworthError:
        raise
    except Exception as error:
        raise UnplayableEnvironment(
            f"The environment {_name(given)} cannot be made for {task.key}: {type(error).__name__}: {error}.",
            "It is called with the task where it takes an argument, else with nothing.",
        ) from error
    playable(made, rewarded)
    if other is made:
        raise UnplayableEnvironment(
            f"{_name(given)} returns the same object each time, and episodes are played beside one another.",
            "Return a new one for each, or hand over the object itself, which is copied.",
        )
    _close(made)
    _close(other)

    def one(task: Task) -> Environment:
        return playable(make(task), rewarded)

    one.__qualname__ = _name(given)  # which a run has on file
    return one


def _maker(given: Any) -> Callable[[Task], Any]:
    if isinstance(given, Mapping):
        return _by_name({str(name): _maker(each) for name, each in given.items()})
    if not inspect.isclass(given) and callable(getattr(given, "reset", None)):
        return _copies(given)
    if not callable(given):
        raise UnplayableEnvironment(f"{given!r:.60} is no environment.", ACCEPTED)
    try:
        takes = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):  # of a class that is not written in Python
        return lambda task: given()
    needed = [take for take in takes if take.default is take.empty and take.kind in _POSITIONAL]
    return given if needed else lambda task: given()


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _copies(given: Any) -> Callable[[Task], Any]:
    try:
        copy.deepcopy(given)
    except Exception as error:
        raise UnplayableEnvironment(
            f"The environment {_name(given)} is one object, and cannot be copied for each episode: {error}.",
            "Hand over its class, or a function that makes one.",
        ) from error
    return lambda task: copy.deepcopy(given)


def _by_name(makers: Mapping[str, Callable[[Task], Any]]) -> Callable[[Task], Any]:
    def make(task: Task) -> Any:
        name = str(task.row.get("environment", ""))
        if name not in makers:
            raise UnknownName("environment", name, makers, where=f"the field `environment` of {task.key}")
        return makers[name](task)

    return make


def _name(given: Any) -> str:
    return str(getattr(given, "__qualname__", "")) or type(given).__qualname__


def _close(made: Any) -> None:
    close = getattr(made, "close", None)
    if callable(close) and not inspect.iscoroutinefunction(close):
        close()


def playable(made: Any, rewarded: bool = False) -> Environment:
    """One of ours as it is, another's in a class that plays it; rewarded as in `adapted`. Raises UnplayableEnvironment."""
    ways = [getattr(made, name, None) for name in ("reset", "step", "close")]
    if all(map(inspect.iscoroutinefunction, ways)):
        own: Environment = made
        return own
    reset = ways[0]
    if callable(reset) and callable(ways[1]) and hasattr(made, "action_space"):
        return Blocking(TextGame(made))
    if callable(reset) and all(map(callable, ways)) and "task" in inspect.signature(reset).parameters:
        return Blocking(made)
    if callable(reset) and _tools_of(made):
        return ToolClass(made, rewarded)
    has = [name for name in ("reset", "step", "close", "get_reward") if callable(getattr(made, name, None))]
    raise UnplayableEnvironment(
        f"{type(made).__qualname__} cannot be played: it has {', '.join(has) or 'nothing'} of what an environment needs.",
        ACCEPTED,
    )


# Gymnasium's, https://gymnasium.farama.org/api/env: what is seen and done must be text, or have names.


class TextGame:
    """An environment of Gymnasium, as a `PlainEnvironment`. The row's `prompt` says what it is about, its `seed` which world it
    is (by default a number made of the task's key, so that a group plays one world), its `options` are handed to `reset`.

    Seen is the text of the observation, or what `render()` says where `render_mode` is "ansi". Actions are texts, or numbers
    with the names that `action_names`, `get_action_meanings()` or the row's `actions` give; in `info`, `admissible_commands` or
    `valid_actions` list what can be done now. What names no action is answered with those there are, and costs a turn.
    """

    def __init__(self, game: Any) -> None:
        self._game = game
        space = game.action_space
        self._listed = hasattr(space, "n") and not hasattr(space, "max_length")
        if not self._listed and not _is_text(space):
            raise UnplayableEnvironment(
                f"The actions of {_called(game)} are {space!r:.60}: a model can say only Text or Discrete ones.",
                "Wrap it: gymnasium.wrappers.TransformAction(env, from_text, gymnasium.spaces.Text(100)).",
            )
        self._drawn = getattr(game, "render_mode", None) == "ansi"
        seen = getattr(game, "observation_space", None)
        if not self._drawn and seen is not None and not _is_text(seen):
            raise UnplayableEnvironment(
                f"What is seen in {_called(game)} is {seen!r:.60}, which is no text.",
                'Make it with render_mode="ansi" where it has that, or wrap it: '
                "gymnasium.wrappers.TransformObservation(env, in_words, gymnasium.spaces.Text(1000)).",
            )
        self._names: tuple[str, ...] = ()
        self._possible: tuple[str, ...] = ()

    def reset(self, task: Task, seed: int) -> Observation:
        row = task.row
        self._names = self._action_names(row)
        world = int(row.get("seed", crc32(task.key.encode())))
        seen, info = self._game.reset(seed=world, options=row.get("options"))
        text = self._text(seen, info)
        messages = list(messages_of(task))
        if messages:
            messages[-1] = {**messages[-1], "content": f"{messages[-1]['content']}\n\n{text}"}
        return Observation(f"{task.input}\n\n{text}".strip(), actions=self._possible, messages=tuple(messages))

    def step(self, action: str) -> Step:
        chosen = self._chosen(action)
        if chosen is None:
            return Step(
                Observation(f"There is no action {action.strip()!r:.60}.{self._choice()}", actions=self._possible)
            )
        seen, reward, terminated, truncated, info = self._game.step(chosen)
        rewards = (RewardTerm("reward", reward),)
        if terminated or truncated:
            stop = StopReason.COMPLETED if terminated else StopReason.MAX_TURNS
            return Step(rewards=rewards, stop=stop, answer=action.strip())
        return Step(Observation(self._text(seen, info), actions=self._possible), rewards=rewards)

    def close(self) -> None:
        self._game.close()

    def _action_names(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        if not self._listed:
            return ()
        inner = getattr(self._game, "unwrapped", self._game)
        count = int(self._game.action_space.n)
        meanings = getattr(inner, "get_action_meanings", None)
        names = (
            row.get("actions") or getattr(inner, "action_names", None) or (meanings() if callable(meanings) else None)
        )
        names = [str(name) for name in names or range(count)]
        if len(names) != count or len({name.casefold() for name in names}) != count:
            raise UnplayableEnvironment(
                f"{_called(self._game)} has {count} actions, and is given the names {', '.join(names):.100}.",
                "Give each action a name of its own, in their order.",
            )
        return tuple(names)

    def _chosen(self, said: str) -> Any:
        if not self._listed:
            return said.strip()
        words = said.strip().strip(".!\"'`").casefold()
        number = next((i for i, name in enumerate(self._names) if name.casefold() == words), None)
        return None if number is None else number + int(getattr(self._game.action_space, "start", 0))

    def _text(self, seen: Any, info: Any) -> str:
        shown = self._game.render() if self._drawn else seen
        if not isinstance(shown, str):
            raise UnplayableEnvironment(
                f"{_called(self._game)} gave {type(shown).__name__}, not a text, as what is seen."
            )
        said = info if isinstance(info, Mapping) else {}
        listed = said.get("admissible_commands", said.get("valid_actions"))
        self._possible = (
            tuple(map(str, listed)) if isinstance(listed, Sequence) and not isinstance(listed, str) else self._names
        )
        return f"{_without_colours(shown).strip()}{self._choice()}"

    def _choice(self) -> str:
        return f"\nActions: {', '.join(self._possible)}" if self._possible else ""


_COLOURED = re.compile(r"\x1b\[[\d;]*[1-9][\d;]*m(.*?)\x1b\[0?m")
_ESCAPE = re.compile(r"\x1b\[[\d;]*m")


def _without_colours(text: str) -> str:
    """What a terminal would colour, in brackets: often that alone says where the player is."""
    return _ESCAPE.sub("", _COLOURED.sub(r"[\1]", text))


def _is_text(space: Any) -> bool:
    return hasattr(space, "max_length")


def _called(game: Any) -> str:
    spec = getattr(game, "spec", None)
    return str(getattr(spec, "id", "")) or type(getattr(game, "unwrapped", game)).__qualname__


# TRL's, https://huggingface.co/docs/trl/openenv: `reset(**row)`, tools that are methods, `get_reward()`.


class ToolClass:
    """An environment of TRL. `reset` is given the row and may say what is appended to the prompt. Every other public method is a
    tool, described by its docstring and type hints. What the model says without calling one ends the episode, as do its turns;
    `get_reward` then says what the episode was worth, and None leaves it out; it may be missing where others reward.
    """

    def __init__(self, inner: Any, rewarded: bool = False) -> None:
        self._inner, self._rewarded = inner, rewarded
        if not (rewarded or callable(getattr(inner, "get_reward", None))):
            raise UnplayableEnvironment(
                f"{type(inner).__qualname__} has no get_reward, so nothing says what an episode was worth.",
                "Add it: def get_reward(self) -> float; or give a reward besides, which may take `environments`.",
            )
        self._tools = _tools_of(inner)
        if ANSWER in self._tools:
            raise UnplayableEnvironment(
                f"{type(inner).__qualname__} has a tool called {ANSWER!r}, which is what ends an episode.", "Rename it."
            )
        self._described = tuple(described(tool) for tool in self._tools.values())
        self._asked = Observation("")

    async def reset(self, task: Task, seed: int) -> Observation:
        row = {key: value for key, value in task.row.items() if key != "environment"}
        said = await _done(self._inner.reset, **row)
        if said is not None and not isinstance(said, str):
            raise UnplayableEnvironment(
                f"{type(self._inner).__qualname__}.reset returned {type(said).__name__}, not a text."
            )
        messages = [dict(each) for each in messages_of(task)] or [{"role": "user", "content": task.input}]
        messages[-1]["content"] += said or ""
        return Observation(messages[-1]["content"], tools=self._described, messages=tuple(messages))

    async def step(self, action: str) -> Step:
        name, argument = action_in(action)
        if name not in self._tools and name != ANSWER and argument.startswith("{"):  # a call, which no answer is
            note = f"there is no tool {name!r}: {', '.join(self._tools)}"
            return Step(Observation(f"Error: {note}"), errors=(note,))
        if name not in self._tools:
            return Step(
                rewards=await self.outcome(),
                stop=StopReason.COMPLETED,
                answer=argument if name == ANSWER else action.strip(),
            )
        try:
            found = await _done(self._tools[name], **_arguments(self._described_as(name), argument))
        except Exception as error:
            note = f"tool {name!r} failed on {argument!r:.100}: {type(error).__name__}: {error}"
            return Step(Observation(f"Error: {error}"), errors=(note,))
        return Step(Observation(str(found)))

    @property
    def inner(self) -> Any:
        """The object of TRL's class, as its reward functions are handed it."""
        return self._inner

    async def outcome(self) -> tuple[RewardTerm, ...]:
        own = getattr(self._inner, "get_reward", None)
        found = None if own is None else await _done(own)
        if found is None and self._rewarded:
            return ()
        if found is None:
            raise ValueError("get_reward returned None: this episode says nothing")
        return (RewardTerm(type(self._inner).__name__, found),)

    async def close(self) -> None:
        if callable(close := getattr(self._inner, "close", None)) and "close" not in self._tools:
            await _done(close)

    def _described_as(self, name: str) -> ToolDescription:
        return next(each for each in self._described if each.name == name)


def _tools_of(made: Any) -> dict[str, Callable[..., Any]]:
    """As TRL finds them: the public functions of the class."""
    found = [name for name, _ in inspect.getmembers(type(made), inspect.isfunction)]
    return {each: getattr(made, each) for each in found if each not in ("reset", "get_reward") and each[0] != "_"}


def described(run: Callable[..., Any]) -> ToolDescription:
    """A function as TRL and transformers describe it to a model. Raises UnplayableEnvironment where its docstring or its type
    hints do not say enough."""
    name = str(getattr(run, "__name__", ""))
    require("llm", "An environment with tools", "transformers")
    from transformers.utils import get_json_schema
    from transformers.utils.chat_template_utils import DocstringParsingException, TypeHintParsingException

    try:
        schema = get_json_schema(run)["function"]
    except (DocstringParsingException, TypeHintParsingException) as error:
        raise UnplayableEnvironment(
            f"The tool {name!r} cannot be described to a model: {error}",
            "Give it a docstring with a line for each argument under Args:, and type hints. What is no tool begins with _.",
        ) from error
    return tool_described(name, schema["description"], schema["parameters"])


def _arguments(tool: ToolDescription, written: str) -> dict[str, Any]:
    if not tool.parameters:
        return {tool.argument: argument_of(tool, written)}
    try:
        found = json.loads(written or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{tool.name} takes JSON such as {tool.argument}")
    return found


async def _done(run: Callable[..., Any], **named: Any) -> Any:
    """What a function of others returns; in a thread, and what has to be awaited in the loop that lasts."""
    if inspect.iscoroutinefunction(run):
        return await in_lasting_loop(run(**named))
    found = await in_thread(lambda: run(**named))
    return await in_lasting_loop(found) if inspect.isawaitable(found) else found
