"""OpenEnv (https://github.com/meta-pytorch/OpenEnv): its environments here, and environments of ours served to its clients.

train(rows, environment=lambda: GenericEnvClient(base_url="http://localhost:8000"))

app = serve_to_openenv(offer("tool-graph"))     # in my_server.py, and then `uvicorn my_server:app`"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from keepworth.base.json_values import parse
from keepworth.records.episode import Observation, RewardTerm, StopReason, Task
from keepworth.worlds.environment import Step
from keepworth.worlds.own import first_observation, seed_of

LONGEST_WAIT = 5.0
"""How many seconds an episode waits for a session of the server, which ends sessions a little after their clients do."""
_ABOUT = ("done", "reward", "metadata")
"""Fields of every observation and action of OpenEnv that are no part of what is seen or done."""


class OpenEnvGame:
    """A client of OpenEnv, as an environment.

    The row's `prompt` stands before what is seen first, its `seed` selects the world, and its `options` are passed to `reset`.
    What is seen is a text where the environment has one such field, and JSON otherwise. An action is a JSON object, or the text
    itself where the environment's actions have one field that is required. The reply to other text says what an action is.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._action: Mapping[str, Any] = {}

    async def reset(self, task: Task, seed: int) -> Observation:
        self._action = await self._schema()
        result = await self._begin(seed_of(task), task.row.get("options") or {})
        text = _text_of(result.observation)
        if not self._field():
            text = f"{text}\n\n{self._ask()}".strip()
        return first_observation(task, text)

    async def step(self, action: str) -> Step:
        chosen = self._read(action)
        if chosen is None:
            return Step(Observation(f"That is no action. {self._ask()}"))
        result = await self._client.step(chosen)
        rewards = () if result.reward is None else (RewardTerm("reward", float(result.reward)),)
        if result.done:
            return Step(rewards=rewards, stop=StopReason.COMPLETED, answer=action.strip())
        return Step(Observation(_text_of(result.observation)), rewards=rewards)

    async def close(self) -> None:
        await self._client.close()

    async def _begin(self, seed: int, options: Mapping[str, Any]) -> Any:
        """Begins an episode. A server whose sessions are all taken closes the connection without a word.

        Raises:
            ConnectionError: No session became free.
        """
        from websockets.exceptions import ConnectionClosed  # type: ignore[import-not-found]

        since, wait = time.monotonic(), 0.05
        while True:
            try:
                return await self._client.reset(seed=seed, **options)
            except (ConnectionClosed, RuntimeError) as error:
                if isinstance(error, RuntimeError) and "CAPACITY_REACHED" not in str(error):
                    raise
                await self._client.disconnect()
                if time.monotonic() - since > LONGEST_WAIT:
                    raise ConnectionError(
                        f"The OpenEnv server at {self._url()} had no free session for {LONGEST_WAIT:.0f} s. It has one "
                        "session for each of `max_concurrent_envs`, and each episode of a step or a measurement takes one: "
                        "raise that number where the server makes its app (`create_app(..., max_concurrent_envs=64)`)."
                    ) from error
            await asyncio.sleep(wait)
            wait = min(2.0, 1.5 * wait)

    def _url(self) -> str:
        return str(self._client._ws_url).removesuffix("/ws").replace("ws", "http", 1)

    async def _schema(self) -> Mapping[str, Any]:
        """Returns the JSON schema of an action. OpenEnv has it over HTTP, not in its client."""
        import httpx

        async with httpx.AsyncClient(timeout=10, trust_env=False) as http:
            answer = await http.get(f"{self._url()}/schema")
            answer.raise_for_status()
        schema: Mapping[str, Any] = answer.json()["action"]
        return schema

    def _field(self) -> str:
        """Returns the one field of an action that is required and a text; "" where there is no such one."""
        required = list(self._action.get("required", ()))
        if len(required) != 1:
            return ""
        text = self._action.get("properties", {}).get(required[0], {}).get("type", "string") == "string"
        return str(required[0]) if text else ""

    def _read(self, action: str) -> dict[str, Any] | None:
        text = action.strip()
        try:
            read = parse(text.removeprefix("```json").removeprefix("```").removesuffix("```"))
        except ValueError:
            read = None
        if isinstance(read, dict):
            return read
        return {field: text} if (field := self._field()) else None

    def _ask(self) -> str:
        fields = {name: kind for name, kind in self._action.get("properties", {}).items() if name not in _ABOUT}
        return f"Answer with a JSON object of these fields: {json.dumps(fields)}"


def _text_of(seen: Any) -> str:
    """Returns what is seen as a text."""
    fields = seen if isinstance(seen, Mapping) else seen.model_dump()
    fields = {name: value for name, value in fields.items() if name not in _ABOUT and value not in (None, "", [], {})}
    (text, *others) = fields.values() or ("",)
    return text if isinstance(text, str) and not others else json.dumps(fields, ensure_ascii=False)
