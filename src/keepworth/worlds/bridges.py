"""Adapts environments of other libraries.

| what is given | what it is |
| --- | --- |
| a function of a task | makes the environment of that task: one of ours, or one of those below |
| a class, or a function without arguments | makes one for each episode |

The environment is one of ours (`keepworth.worlds.environment`), one of Gymnasium's that uses texts, a game of TextArena for one
player (`keepworth.worlds.textarena`), or a client of OpenEnv (`keepworth.worlds.openenv`)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.base.text import as_line
from keepworth.records.episode import Observation, RewardTerm, StopReason, Task
from keepworth.worlds.environment import Blocking, Environment, Step
from keepworth.worlds.own import first_observation, seed_of

ACCEPTED = (
    "Hand over a function of a task or of nothing, or a class, that makes an environment of keepworth (reset, step, close), "
    "of Gymnasium (reset, step, action_space) or TextArena, or a client of OpenEnv."
)


class UnplayableEnvironment(KeepworthError, TypeError):
    """The given object cannot be played as an environment."""


def adapt(given: Any, task: Task) -> Callable[[Task], Environment]:
    """Makes a function that makes an environment of ours for a task.

    Args:
        given: A function or a class, as in the table above.
        task: One of the tasks that will be played. An environment is made for it, checked and closed again.

    Raises:
        UnplayableEnvironment: It cannot be played; the message says what is missing.
    """
    make = _maker(given)
    try:
        made, other = make(task), make(task)
    except KeepworthError:
        raise
    except Exception as error:
        raise UnplayableEnvironment(
            f"The environment {_name(given)} cannot be made for {task.key}: {type(error).__name__}: {as_line(str(error))}.",
            "It is called with the task where it takes an argument, else with nothing.",
        ) from error
    playable(made)
    if other is made:
        raise UnplayableEnvironment(
            f"{_name(given)} returns the same object each time, and episodes are played beside one another.",
            "Return a new one for each.",
        )
    _close(made)
    _close(other)

    def one(task: Task) -> Environment:
        return playable(make(task))

    one.__qualname__ = _name(given)  # a run's record has it
    return one


def _maker(given: Any) -> Callable[[Task], Any]:
    if not callable(given):
        raise UnplayableEnvironment(f"{given!r:.60} is no environment.", ACCEPTED)
    takes = inspect.signature(given).parameters.values()
    needed = [take for take in takes if take.default is take.empty and take.kind in _POSITIONAL]
    return given if needed else lambda task: given()


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _name(given: Any) -> str:
    return str(getattr(given, "__qualname__", "")) or type(given).__qualname__


def _close(made: Any) -> None:
    close = getattr(made, "close", None)
    if not _is_game(made) and callable(close) and not inspect.iscoroutinefunction(close):
        close()


def playable(made: Any) -> Environment:
    """Returns one of our environments as it is, and another's in an adapter. Raises UnplayableEnvironment."""
    if _is_game(made):
        return Blocking(_arena_game(made))
    if any(kind.__name__ == "EnvClient" and kind.__module__.startswith("openenv") for kind in type(made).__mro__):
        from keepworth.worlds.openenv import OpenEnvGame

        return OpenEnvGame(made)
    ways = [getattr(made, name, None) for name in ("reset", "step", "close")]
    if all(map(inspect.iscoroutinefunction, ways)):
        environment: Environment = made
        return environment
    reset = ways[0]
    if callable(reset) and callable(ways[1]) and hasattr(made, "action_space"):
        return Blocking(TextGame(made))
    if callable(reset) and all(map(callable, ways)) and "task" in inspect.signature(reset).parameters:
        return Blocking(made)
    has = [name for name in ("reset", "step", "close") if callable(getattr(made, name, None))]
    raise UnplayableEnvironment(
        f"{type(made).__qualname__} cannot be played: it has {', '.join(has) or 'nothing'} of what an environment needs.",
        ACCEPTED,
    )


def _is_game(made: Any) -> bool:
    """Return whether it is a game of TextArena, which is not closed without having begun."""
    return callable(getattr(made, "get_observation", None)) and any(
        kind.__module__.startswith("textarena.") for kind in type(made).__mro__
    )


def _arena_game(made: Any) -> Any:
    from keepworth.worlds.textarena import TextArenaGame

    try:
        return TextArenaGame(made)
    except Exception as error:
        name = getattr(made, "env_id", "") or type(getattr(made, "unwrapped", made)).__qualname__
        raise UnplayableEnvironment(
            f"The game {name} of TextArena cannot begin with one player: {as_line(str(error)):.300}.",
            "Choose one of the games for one player, or play several roles by a program (`agent`).",
        ) from error


# Gymnasium's, https://gymnasium.farama.org/api/env: observations and actions must be texts, or have names.


class TextGame:
    """An environment of Gymnasium, as a `PlainEnvironment`.

    The row's `prompt` introduces it, its `seed` selects the world (by default a number made of the task's key, so that a group
    plays one world), and its `options` are passed to `reset`.

    Observations are the environment's texts, or the text of `render()` where `render_mode` is "ansi". Actions are texts, or
    numbers whose names come from `action_names`, `get_action_meanings()` or the row's `actions`; `admissible_commands` or
    `valid_actions` in `info` list what is possible now. The reply to an unknown action lists the possible ones, and costs a turn.
    """

    def __init__(self, game: Any) -> None:
        self._game = game
        space = game.action_space
        self._listed = hasattr(space, "n") and not hasattr(space, "max_length")
        if not self._listed and not _is_text(space):
            raise UnplayableEnvironment(
                f"The actions of {_call(game)} are {space!r:.60}: a model can say only Text or Discrete ones.",
                "Wrap it: gymnasium.wrappers.TransformAction(env, from_text, gymnasium.spaces.Text(100)).",
            )
        self._drawn = getattr(game, "render_mode", None) == "ansi"
        observations = getattr(game, "observation_space", None)
        if not self._drawn and observations is not None and not _is_text(observations):
            raise UnplayableEnvironment(
                f"What is seen in {_call(game)} is {observations!r:.60}, which is no text.",
                'Make it with render_mode="ansi" where it has that, or wrap it: '
                "gymnasium.wrappers.TransformObservation(env, in_words, gymnasium.spaces.Text(1000)).",
            )
        self._names: tuple[str, ...] = ()
        self._possible: tuple[str, ...] = ()

    def reset(self, task: Task, seed: int) -> Observation:
        row = task.row
        self._names = self._action_names(row)
        shown, info = self._game.reset(seed=seed_of(task), options=row.get("options"))
        text = self._text(shown, info)
        return first_observation(task, text, self._possible)

    def step(self, action: str) -> Step:
        chosen = self._choose(action)
        if chosen is None:
            return Step(
                Observation(f"There is no action {action.strip()!r:.60}.{self._choice()}", actions=self._possible)
            )
        shown, reward, terminated, truncated, info = self._game.step(chosen)
        rewards = (RewardTerm("reward", reward),)
        if terminated or truncated:
            stop = StopReason.COMPLETED if terminated else StopReason.MAX_TURNS
            return Step(rewards=rewards, stop=stop, answer=action.strip())
        return Step(Observation(self._text(shown, info), actions=self._possible), rewards=rewards)

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
                f"{_call(self._game)} has {count} actions, and is given the names {', '.join(names):.100}.",
                "Give each action a name of its own, in their order.",
            )
        return tuple(names)

    def _choose(self, command: str) -> Any:
        if not self._listed:
            return command.strip()
        words = command.strip().strip(".!\"'`").casefold()
        number = next((i for i, name in enumerate(self._names) if name.casefold() == words), None)
        return None if number is None else number + int(getattr(self._game.action_space, "start", 0))

    def _text(self, seen: Any, info: Any) -> str:
        shown = self._game.render() if self._drawn else seen
        if not isinstance(shown, str):
            raise UnplayableEnvironment(
                f"{_call(self._game)} gave {type(shown).__name__}, not a text, as what is seen."
            )
        fields = info if isinstance(info, Mapping) else {}
        listed = fields.get("admissible_commands", fields.get("valid_actions"))
        self._possible = (
            tuple(map(str, listed)) if isinstance(listed, Sequence) and not isinstance(listed, str) else self._names
        )
        return f"{_without_colours(shown).strip()}{self._choice()}"

    def _choice(self) -> str:
        return f"\nActions: {', '.join(self._possible)}" if self._possible else ""


_COLOURED = re.compile(r"\x1b\[[\d;]*[1-9][\d;]*m(.*?)\x1b\[0?m")
_ESCAPE = re.compile(r"\x1b\[[\d;]*m")


def _without_colours(text: str) -> str:
    """Puts text that a terminal would colour in brackets, because often only the colour shows where the player is."""
    return _ESCAPE.sub("", _COLOURED.sub(r"[\1]", text))


def _is_text(space: Any) -> bool:
    return hasattr(space, "max_length")


def _call(game: Any) -> str:
    spec = getattr(game, "spec", None)
    return str(getattr(spec, "id", "")) or type(getattr(game, "unwrapped", game)).__qualname__
