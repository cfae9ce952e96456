"""Environments and task sets of `verifiers` (https://github.com/PrimeIntellect-ai/verifiers, its version 1), played in our loop.

There the environment drives: it runs an agent, whose program calls a model over HTTP. Here each call is what the policy sees, and
what the policy does is its reply. So whatever an environment does between calls, with tools, users or judges, it does as ever.
An agent that has no program of its own plays in this process (`ConversationHarness`), and nothing is installed for it. One that
has its own model keeps it. Rewards are those of the trace, by name and weight; metrics are logged with weight 0.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import threading
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import cache
from itertools import count
from typing import Any, TypeVar

from keepworth.episodes.needs import needs_verifiers

import httpx
import verifiers.v1 as vf
from aiohttp import web
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.mcp import serve_shared

from keepworth.environments.environment import Step, in_thread
from keepworth.environments.tool_use import ANSWER, action_in, tool_described
from keepworth.episodes.episode import Observation, RewardTerm, StopReason, Task, ToolDescription
from keepworth.episodes.errors import KeepworthError

HARNESS = "keepworth_conversation"
"""By this name verifiers finds `ConversationHarness`: a harness is a module that exports one."""
OVER = "the turns of this episode are used up"
__all__ = ["ConversationHarness"]
sys.modules.setdefault(HARNESS, sys.modules[__name__])
T = TypeVar("T")


class ConversationHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    """A conversation with the tools of the task, in this process."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        messages += (
            [{"role": "user", "content": prompt}]
            if isinstance(prompt, str)
            else [message_to_wire(each) for each in prompt]
        )
        servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
        async with AsyncExitStack() as stack:
            tools, names, opened = await connect_mcp({"mcpServers": servers}, stack)
            http = await stack.enter_async_context(httpx.AsyncClient(timeout=None, verify=certificates()))
            while True:
                body = {"model": ctx.model, "messages": messages, **({"tools": tools} if tools else {})}
                reply = await http.post(
                    f"{endpoint}/chat/completions", json=body, headers={"Authorization": f"Bearer {secret}"}
                )
                if reply.is_error:
                    ended = OVER in reply.text
                    return vf.ProgramResult(exit_code=int(not ended), stdout="", stderr="" if ended else reply.text)
                said = reply.json()["choices"][0]["message"]
                messages.append(said)
                if not said.get("tool_calls"):
                    return vf.ProgramResult(exit_code=0, stdout="", stderr="")
                for call in said["tool_calls"]:
                    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                    try:
                        found = await call_mcp(opened, names, name, arguments)
                    except Exception as error:  # what a tool says of a call that it cannot carry out is for the model
                        found = f"Error: {error}"
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})


@cache
def certificates() -> ssl.SSLContext:
    """Read once: it takes longer than a request."""
    return ssl.create_default_context()


def tasks_of(given: Any) -> list[Task]:
    """The tasks that the environment or task set brings. Raises KeepworthError where they never end."""
    tasks = given.taskset if isinstance(given, vf.Env) else given
    if not tasks.bounded:
        raise KeepworthError(
            f"The tasks of {type(tasks).__name__} never end.", "Hand over the first of them: taskset.take(1000)."
        )
    source = str(tasks.config.id or type(tasks).__name__)
    found = []
    for each in tasks:
        data = each.data
        row = {**data.model_dump(mode="json", exclude_defaults=True), "idx": data.idx}
        found.append(Task(f"{source}/{data.idx}", source, data.prompt_text, (), "", row=row))
    return found


class TaskServer:
    """An environment or task set, served in a thread with a loop of its own from its first episode until the program ends."""

    def __init__(self, given: Any) -> None:
        self._given = _in_this_process(given) if isinstance(given, vf.Env) else given
        taskset = given.taskset if isinstance(given, vf.Env) else given
        self._tasks = {int(each.data.idx): each for each in taskset}
        self.__qualname__ = type(given).__qualname__  # which a run has on file
        self._episodes: dict[str, PlayedTask] = {}
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._started = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, task: Task) -> PlayedTask:
        index = task.row.get("idx")
        if index not in self._tasks:
            raise KeepworthError(f"{task.key} is no task of this environment.", "Leave `tasks` out: it brings its own.")
        return PlayedTask(self, self._tasks[index])

    def serve(self) -> asyncio.AbstractEventLoop:
        """The loop in which it is served. Raises what kept it from being served."""
        with self._started:
            if self.loop is None:
                threading.Thread(target=lambda: asyncio.run(self._serving()), daemon=True, name="verifiers").start()
                self._ready.wait()
        if self._failed is not None:
            raise RuntimeError(f"verifiers cannot serve the environment: {self._failed}") from self._failed
        assert self.loop is not None
        return self.loop

    async def _serving(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                application = web.Application(client_max_size=2**28)
                application.router.add_post("/v1/chat/completions", self._called)
                runner = web.AppRunner(application, access_log=None)
                await runner.setup()
                stack.push_async_callback(runner.cleanup)
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                client = vf.EvalClientConfig(base_url=f"http://127.0.0.1:{runner.addresses[0][1]}/v1", api_key_var="")
                self._context = vf.ModelContext(model="policy", client=client, sampling=vf.SamplingConfig())
                if isinstance(self._given, vf.Env):
                    await stack.enter_async_context(self._given.serving())
                else:
                    config = vf.AgentConfig(
                        harness=vf.HarnessConfig(id=HARNESS),
                        runtime=vf.SubprocessConfig(),
                        model="policy",
                        client=client,
                    )
                    self._agent = await stack.enter_async_context(vf.Agent(config))
                    shared = self._given.toolsets(self._given.config)
                    self._shared = await stack.enter_async_context(serve_shared(shared)) if shared else {}
                self.loop = asyncio.get_running_loop()
                self._ready.set()
                await asyncio.Event().wait()
        except Exception as error:
            self._failed = error  # whoever plays is told
            self._ready.set()

    async def play(self, task: Any, played: PlayedTask) -> Any:
        """The trace of one episode, whose calls of the policy are answered by `played`."""

        def begun(trace: Any) -> None:
            self._episodes[trace.id] = played

        if not isinstance(self._given, vf.Env):
            return await self._agent.run(task, tools=self._shared, on_trace=begun)
        episode = await self._given.run_episode(task, self._context, on_trace=begun)
        if episode.errors:
            raise RuntimeError(episode.errors[-1].message)
        return next((each for each in episode.traces if each.id == played.trace), episode.traces[0])

    def forget(self, played: PlayedTask) -> None:
        self._episodes = {trace: each for trace, each in self._episodes.items() if each is not played}

    async def _called(self, request: web.Request) -> web.Response:
        trace = request.headers.get("X-Session-ID", "")
        played = self._episodes.get(trace)
        said = None if played is None else await played.called(trace, await request.json())
        if said is None:
            return web.json_response({"error": {"message": OVER}}, status=400)
        choice = {"index": 0, "finish_reason": "tool_calls" if said.get("tool_calls") else "stop", "message": said}
        return web.json_response(
            {"id": trace, "object": "chat.completion", "created": 0, "model": "policy", "choices": [choice]}
        )


def _in_this_process(given: Any) -> Any:
    """The environment with agents that play here, where nothing says what else they are."""
    config = given.config
    if vf.default_agent_harness(config.taskset.id).id != "bash":
        return given
    seats = {name: seat for name, seat in config if isinstance(seat, vf.AgentConfig) and seat.harness is None}
    changed = {
        name: seat.model_copy(
            update={
                "harness": vf.HarnessConfig(id=HARNESS),
                **({} if "runtime" in seat.model_fields_set else {"runtime": vf.SubprocessConfig()}),
            }
        )
        for name, seat in seats.items()
    }
    return type(given)(config.model_copy(update=changed)) if changed else given


class PlayedTask:
    """One episode of it, as an environment of ours."""

    def __init__(self, host: TaskServer, task: Any) -> None:
        self._host, self._task = host, task
        self.trace = ""
        self._running: asyncio.Task[Any] | None = None
        self._waiting: asyncio.Queue[Mapping[str, Any]] | None = None
        self._reply: asyncio.Future[Mapping[str, Any] | None] | None = None
        self._seen: list[dict[str, Any]] = []
        self._tools: dict[str, ToolDescription] = {}
        self._problem = ""
        self._numbers = count()

    async def reset(self, task: Task, seed: int) -> Observation:
        body = await self._there(self._begin())
        if body is None:
            raise RuntimeError(f"the environment called no model: {await self._there(self._why())}")
        return self._observed(body)

    async def step(self, action: str) -> Step:
        message = self._message(action)
        self._seen.append(message)
        body = await self._there(self._answer(message))
        if body is None:
            rewards = await self._there(self._rewards())
            return Step(rewards=rewards, stop=StopReason.COMPLETED, answer=str(message.get("content") or ""))
        return Step(self._observed(body))

    async def outcome(self) -> tuple[RewardTerm, ...]:
        while await self._there(self._answer(None)) is not None:
            pass
        return await self._there(self._rewards())

    async def close(self) -> None:
        await self._there(self._end())

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of what runs in the loop of the host."""
        try:
            loop = await in_thread(self._host.serve)  # the first time it takes seconds
        except RuntimeError:
            work.close()
            raise
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    # In the loop of the host.

    async def called(self, trace: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A model is called: wait for what the policy replies. None: nothing more."""
        if self.trace not in ("", trace):
            self._problem = "several of its agents are played by the policy, and one can be here"
            return None
        self.trace = trace
        self._reply = asyncio.get_running_loop().create_future()
        assert self._waiting is not None
        self._waiting.put_nowait(body)
        return await self._reply

    async def _begin(self) -> Mapping[str, Any] | None:
        self._waiting = asyncio.Queue()
        self._running = asyncio.create_task(self._host.play(self._task, self))
        return await self._next()

    async def _next(self) -> Mapping[str, Any] | None:
        assert self._running is not None
        assert self._waiting is not None
        called = asyncio.ensure_future(self._waiting.get())
        await asyncio.wait((called, self._running), return_when=asyncio.FIRST_COMPLETED)
        if called.done():
            return called.result()
        called.cancel()
        return None

    async def _answer(self, message: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(message)
        return await self._next()

    async def _rewards(self) -> tuple[RewardTerm, ...]:
        assert self._running is not None
        trace = await self._running
        if self._problem:
            raise RuntimeError(self._problem)
        if not trace.ok:
            raise RuntimeError(trace.last_error.message if trace.last_error else "the episode failed")
        rewards = [
            RewardTerm(name, each.score, weight=each.weight) for name, each in trace.rewards.items() if each is not None
        ]
        if not rewards:
            raise RuntimeError("the environment gave no reward")
        metrics = [RewardTerm(name, value, weight=0.0) for name, value in trace.metrics.items() if value is not None]
        return (*rewards, *metrics)

    async def _why(self) -> str:
        assert self._running is not None
        trace = await self._running
        return trace.last_error.message if trace.last_error else "it ended at once"

    async def _end(self) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(None)
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait((self._running,))
        self._host.forget(self)

    # Between their messages and our texts.

    def _observed(self, body: Mapping[str, Any]) -> Observation:
        messages = [dict(each) for each in body["messages"]]
        known, new = messages[: len(self._seen)], messages[len(self._seen) :]
        if [(each["role"], _text(each)) for each in known] != [(each["role"], _text(each)) for each in self._seen]:
            raise RuntimeError("it began another conversation within the episode, and one can be played here")
        self._seen, first = messages, not known
        if first:
            offered = [each["function"] for each in body.get("tools", ())]
            described = [
                tool_described(each["name"], each.get("description", ""), each["parameters"]) for each in offered
            ]
            self._tools = {each.name: each for each in described}
        told = tuple({"role": each["role"], "content": _text(each)} for each in new)
        if first:
            return Observation(told[-1]["content"], tools=tuple(self._tools.values()), messages=told)
        text = "\n\n".join(each["content"] for each in told)
        return Observation(text, messages=() if all(each["role"] == "tool" for each in told) else told)

    def _message(self, action: str) -> dict[str, Any]:
        name, argument = action_in(action)
        if name not in self._tools:
            return {"role": "assistant", "content": argument if self._tools and name == ANSWER else action}
        tool = self._tools[name]
        written = argument if tool.parameters else json.dumps({tool.argument: argument}, ensure_ascii=False)
        try:
            json.loads(written)
        except ValueError:
            written = "{}"  # the tool says what it lacks
        call = {
            "id": f"call_{next(self._numbers)}",
            "type": "function",
            "function": {"name": name, "arguments": written},
        }
        return {"role": "assistant", "content": "", "tool_calls": [call]}


def _text(message: Mapping[str, Any]) -> str:
    """What a message says in words; pictures are left out."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)
