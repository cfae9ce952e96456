"""Worlds of this package, served to clients of OpenEnv. In a file `my_server.py`, for `uvicorn my_server:app`:

app = serve_to_openenv(offer("tool-graph"))"""

from __future__ import annotations

from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.worlds.offered import OfferedGame, OfferedWorld


def serve_to_openenv(world: OfferedWorld, *, sessions: int = 64) -> Any:
    """Returns an application of FastAPI that serves a world to clients of OpenEnv. An action is `{"text": ...}`, and what is seen
    is a `text`. `reset(seed=N)` begins the task N of the world, and `reset(task=KEY)` the task of a key.

    Args:
        world: The world (`keepworth.worlds.offered.offer`).
        sessions: The most clients at once, each with a task of its own.

    Raises:
        KeepworthError: OpenEnv is not installed.
    """
    try:
        from openenv.core.env_server.http_server import create_fastapi_app  # type: ignore[import-not-found]
        from openenv.core.env_server.interfaces import Environment  # type: ignore[import-not-found]
        from openenv.core.env_server.types import Action, State  # type: ignore[import-not-found]
        from openenv.core.env_server.types import Observation as Seen
    except ImportError as error:
        raise KeepworthError(f"OpenEnv cannot be imported: {error}.", "pip install openenv") from error

    class TextAction(Action):  # type: ignore[misc]
        text: str

    class TextObservation(Seen):  # type: ignore[misc]
        text: str = ""

    class ServedWorld(Environment):  # type: ignore[misc]
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._game: OfferedGame | None = None
            self._state = State()

        async def reset_async(
            self, seed: int | None = None, episode_id: str | None = None, task: str = "", **options: Any
        ) -> TextObservation:
            place = world.place(task) if task else (seed or 0) % len(world.tasks)
            self._game = OfferedGame(world, place)
            self._state = State(episode_id=episode_id, step_count=0)
            return TextObservation(text=await self._game.begin(), metadata={"task": world.tasks[place].key})

        async def step_async(
            self, action: TextAction, timeout_s: float | None = None, **options: Any
        ) -> TextObservation:
            if self._game is None:
                raise ValueError("There is no episode: call reset first.")
            before = sum(self._game.rewards.values())
            text = await self._game.act(action.text)
            self._state.step_count += 1
            reward = sum(self._game.rewards.values()) - before
            return TextObservation(text=text, reward=reward, done=self._game.done)

        def reset(self, **options: Any) -> TextObservation:
            raise NotImplementedError("The server awaits reset_async.")

        def step(self, action: TextAction, **options: Any) -> TextObservation:
            raise NotImplementedError("The server awaits step_async.")

        @property
        def state(self) -> Any:
            return self._state

    return create_fastapi_app(ServedWorld, TextAction, TextObservation, max_concurrent_envs=sessions)
