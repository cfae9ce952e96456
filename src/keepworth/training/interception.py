"""Trains the model inside an agent that is a program (`keepworth.training.programs`): each rollout has an address of its own on
this machine, and every call to it is answered by the model in training and recorded, as the ids that were drawn.

Calls become segments of the rollout's episode. A call that goes on with an earlier one begins with its very ids; a conversation
that was rewritten is a prompt of its own. What the program wrote in between is read, not trained on."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import KeepworthError
from keepworth.base.extras import require
from keepworth.base.model_errors import ContextOverflow
from keepworth.base.text import as_line
from keepworth.records.episode import Observation, StopReason, Task
from keepworth.records.model import FinishReason
from keepworth.serving.calls import NotServed, ReadyAnswer, ServedCall, json_object
from keepworth.serving.model_calls import ANSWERED, AnsweredFormat, ModelAnswer, ModelCall, answer_error
from keepworth.training.programs import AgentProgram, Endpoint
from keepworth.training.rewards import row_of
from keepworth.training.tool_outcomes import ToolOutcomes
from keepworth.worlds.agent import Action, AgentStopped, Caller
from keepworth.worlds.chat import Format, format_of
from keepworth.worlds.conversations import Conversations
from keepworth.worlds.driver import GRACE

if TYPE_CHECKING:
    from keepworth.training.rollout_memory import RolloutMemory, TrainedMemory

ROLE_HEADER = "x-keepworth-role"
"""The header by which a call names its role, where a program has several."""
LONGEST_CALL = 4 * 2**20
"""The most bytes of one call. No model here reads so much."""
LONGEST_ERROR = 300


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """What a rollout may take.

    Attributes:
        max_tokens: The most tokens of one answer, whatever the program asks for.
        calls: The most answers.
        seconds: The most seconds of the program itself, without those in which it waits for the model.
    """

    max_tokens: int
    calls: int
    seconds: float


class ProgramAgent:
    """An agent that runs a program, whose calls its model answers.

    Args:
        program: The program.
        task: The task, whose row it gets.
        model_name: What the model is called in answers.
        role: The role of calls that name none.
        format: How a conversation is written for the model, as in `keepworth.worlds.chat.Chat`.
        limits: What a rollout may take.
        prompts: Roles, each with words that the system prompts of its calls hold.
        memory: What is recalled into its prompts; None recalls nothing.
        explore: Whether the memory may try something; not where the model is measured.
    """

    def __init__(
        self,
        program: AgentProgram,
        task: Task,
        model_name: str,
        role: str,
        format: Format,
        limits: RolloutLimits,
        *,
        prompts: Mapping[str, str] = MappingProxyType({}),
        memory: TrainedMemory | None = None,
        explore: bool = True,
    ) -> None:
        self._program, self._task, self._limits = program, task, limits
        self._prompts, self._memory, self._explore = prompts, memory, explore
        self._model_name, self._role, self._format = model_name, role, format

    async def act(self, observation: Observation, model: Caller) -> Action:
        """Runs the program to its end. Raises AgentStopped where it fails, hangs or never calls the model."""
        memory, failed = self._remembers(model)
        roles = Roles(self._role, self._prompts)
        calls = RolloutCalls(model, self._model_name, roles, self._format, self._limits, memory)
        server = interception_server()
        endpoint = server.open(calls)
        work = asyncio.ensure_future(self._program.run(row_of(self._task), self._task.input, endpoint))
        try:
            in_time = await calls.watch(work)
        finally:
            server.close(endpoint)
            calls.end()
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=GRACE)
        decisions, shown, lost = ((), (), failed) if memory is None else await asyncio.to_thread(memory.end)
        name, errors = f"The agent {self._program.name!r:.80}", (*lost, *calls.errors())
        if calls.broken is not None:
            raise calls.broken
        if not in_time:
            took = f"{name} took more than {self._limits.seconds:g} s of its own"
            raise AgentStopped(f"{took}.", "Set agent_seconds higher.", stop=StopReason.TIMEOUT, errors=errors)
        error = RuntimeError("it cancelled itself") if work.cancelled() else work.exception()
        if error is not None:
            why = f"{name} failed: {type(error).__name__}: {as_line(str(error))[:LONGEST_ERROR]}"
            stop = calls.limit or StopReason.ENVIRONMENT_ERROR
            raise AgentStopped(why, stop=stop, errors=errors, decisions=decisions)
        if not calls.answers:
            raise AgentStopped(
                f"{name} ended without an answer of the model.",
                "It has to call the address in OPENAI_BASE_URL or ANTHROPIC_BASE_URL: make its client inside the function, or "
                "take the address as an argument called `endpoint`.",
                stop=StopReason.ENVIRONMENT_ERROR,
                errors=errors,
            )
        returned = work.result()
        record: dict[str, Any] = {"cut": calls.cut, "errors": errors, "decisions": decisions, "shown": shown}
        record["signals"] = tuple(calls.outcomes.names)
        if isinstance(returned, str):
            return Action(returned, **record)
        text = "" if returned is None else json.dumps(returned, default=str, ensure_ascii=False)
        return Action(text, returned=returned, **record)

    def _remembers(self, model: Caller) -> tuple[RolloutMemory | None, tuple[str, ...]]:
        """Returns the memory of this rollout, or why it cannot be used."""
        if self._memory is None:
            return None, ()
        try:
            chat = format_of(model, self._format)
            return self._memory.rollout(model.seed, chat, explore=self._explore), ()
        except Exception as error:
            return None, (f"the memory could not be opened: {type(error).__name__}: {error}",)


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of calls. `usual` is that of a call which says none, and `prompts` are words of system prompts by role."""

    usual: str
    prompts: Mapping[str, str]

    def of(self, call: ModelCall, header: str) -> str:
        """Returns the role of a call: that of its header, or else of its system prompt."""
        if named := as_line(header)[:80]:
            return named
        system = "\n".join(str(message["content"]) for message in call.messages if message["role"] == "system")
        return next((role for role, words in self.prompts.items() if words in system), self.usual)


class RolloutCalls:
    """The calls of one rollout. It is made on the rollout's event loop, on which the model draws; `serve` is called on the
    server's.

    Attributes:
        answers: The number of answers.
        cut: Whether the last one reached its limit of tokens.
        limit: The limit that a call was refused for, as the reason for which the episode ends; None for none.
        broken: The error of a model that failed.
        outcomes: What the tools told whose results the calls hold.
    """

    def __init__(
        self,
        model: Caller,
        name: str,
        roles: Roles,
        format: Format,
        limits: RolloutLimits,
        memory: RolloutMemory | None = None,
    ) -> None:
        self._memory = memory
        self._model, self._name, self._roles, self._limits = model, name, roles, limits
        self._conversations = Conversations(model, format)
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._drawing: set[asyncio.Task[Any]] = set()
        self._over = False
        self.answers = 0
        self.cut = False
        self.limit: StopReason | None = None
        self.broken: Exception | None = None
        self.outcomes = ToolOutcomes()
        # Read by both threads.
        self._lock = threading.Lock()
        self._errors = Counter[str]()
        self._begun = time.monotonic()
        self._served, self._since, self._busy = 0, 0.0, 0.0

    # -- on the rollout's loop -----------------------------------------------------------------------------------------

    async def watch(self, work: asyncio.Future[Any]) -> bool:
        """Waits until `work` ends, its time is over, or the model has failed. Returns whether it was in time."""
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            while not work.done() and self.broken is None:
                left = self._limits.seconds - self.own_seconds()
                if left <= 0:
                    return False
                await asyncio.wait({work, changed}, timeout=max(left, 0.05), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        return True

    def end(self) -> None:
        """Refuses further calls, and drops those that are being answered."""
        self._over = True
        for task in self._drawing:
            task.cancel()

    async def draw(self, call: ModelCall, role: str) -> ModelAnswer:
        """Draws the answers to a call. Raises NotServed for a call that cannot be answered.

        Args:
            call: What is to be answered, of any format.
            role: The role under which its segments are recorded.
        """
        if self._over:
            raise _gone()
        if self.answers + call.n > self._limits.calls:
            self.limit = self.limit or StopReason.MAX_TURNS
            raise NotServed(
                f"The rollout has had its {self._limits.calls} answers.",
                "Set `calls` higher, or call less.",
                status=410,
            )
        self.answers += call.n
        task = asyncio.current_task()
        assert task is not None
        self._drawing.add(task)
        try:
            return await self._draw(call, role)
        except (KeepworthError, ValueError) as error:
            self.answers -= call.n
            if isinstance(error, ContextOverflow):
                self.limit = self.limit or StopReason.CONTEXT_OVERFLOW
            raise
        except Exception as error:  # of the model: no rollout can go on
            self.broken = error
            self._changed.set()
            raise
        finally:
            self._drawing.discard(task)

    async def _draw(self, call: ModelCall, role: str) -> ModelAnswer:
        prompt = self._conversations.prompt(call)
        read = len(prompt.ids)
        room = self._model.context_limit - read
        if room < 1:
            raise ContextOverflow(
                f"The call has {read} tokens, and {self._name} reads {self._model.context_limit}.", "Send less."
            )
        most = min(call.max_tokens or room, self._limits.max_tokens, room)
        drawing = (
            self._model.call(
                prompt.ids,
                role=role,
                prompt_id="intercepted/v1",
                max_tokens=most,
                stop_ids=prompt.chat.stop_ids,
                stop=call.stop,
                grammar=call.grammar,
            )
            for _ in range(call.n)
        )
        samples = await asyncio.gather(*drawing)
        self.cut = samples[-1].finish is FinishReason.LENGTH
        choices = tuple(self._conversations.answer(call, prompt, sample) for sample in samples)
        return ModelAnswer(self._name, choices, read, sum(len(sample.ids) for sample in samples))

    # -- on the server's loop ------------------------------------------------------------------------------------------

    async def serve(self, request: Any, route: str, raw: bytes) -> ReadyAnswer:
        """Answers a request to the rollout's address. Raises NotServed, which is noted, for one that cannot be answered.

        Args:
            request: The request of Starlette.
            route: Its path behind the address.
            raw: The bytes of its body.
        """
        with self._lock:
            self._busy, self._since = (self._busy, self._since) if self._served else (self._busy, time.monotonic())
            self._served += 1
        try:
            return await self._answer(request, route, raw)
        except (KeepworthError, ValueError) as error:
            self._note(f"call refused: {error}")
            if isinstance(error, NotServed):
                raise
            raise NotServed(str(error)) from error
        finally:
            with self._lock:
                self._served -= 1
                if not self._served:
                    self._busy += time.monotonic() - self._since

    async def _answer(self, request: Any, route: str, raw: bytes) -> ReadyAnswer:
        if request.method == "GET" and f"{route}/".startswith("/v1/models/"):
            model = {"id": self._name, "object": "model", "created": 0, "owned_by": "keepworth"}
            if route.rpartition("/")[2] != "models":  # any name is that of the model in training
                return ReadyAnswer(json.dumps(model).encode())
            return ReadyAnswer(json.dumps({"object": "list", "data": [model], "has_more": False}).encode())
        format = ANSWERED.get(route)
        if request.method != "POST" or format is None:
            raise NotServed(
                f"There is no route {request.method} {route:.80}.", f"POST goes to {', '.join(ANSWERED)}.", status=404
            )
        if len(raw) > LONGEST_CALL:
            raise NotServed(f"A call has {len(raw)} bytes, and may have {LONGEST_CALL}.", "Send less.", status=413)
        if self._memory is None:
            return await self._answer_call(request, format, raw)
        turn = await self._memory.prepare(route, raw, request.headers)
        if turn is None:
            return await self._answer_call(request, format, raw)
        if turn.failure:
            self._note(f"a call went on without memory: {turn.failure}")
        ready = None
        try:
            ready = await self._answer_call(request, format, turn.content)
        finally:
            await self._memory.record(turn, ready)
        return ready

    async def _answer_call(self, request: Any, format: AnsweredFormat, raw: bytes) -> ReadyAnswer:
        from keepworth.serving.application import hung_up

        body = json_object(raw)
        call = format.read(body)
        self.outcomes.read(body)
        if call.model not in ("", self._name):
            self._note(f"the model {call.model!r:.80} was asked for, and {self._name!r} answered")
        role = self._roles.of(call, request.headers.get(ROLE_HEADER, ""))
        drawn = asyncio.run_coroutine_threadsafe(self.draw(call, role), self._loop)
        answered: asyncio.Future[ModelAnswer] = asyncio.wrap_future(drawn)
        left: asyncio.Future[None] = asyncio.ensure_future(hung_up(request))
        try:
            await asyncio.wait((answered, left), return_when=asyncio.FIRST_COMPLETED)
            if not answered.done():
                raise NotServed("The caller hung up before its answer.", status=499)
            if answered.cancelled():
                raise _gone()
            return format.written(answered.result(), call, {})
        finally:
            left.cancel()
            answered.cancel()

    def own_seconds(self) -> float:
        """Returns the seconds since the beginning in which no call was being answered."""
        with self._lock:
            now = time.monotonic()
            return now - self._begun - self._busy - (now - self._since if self._served else 0.0)

    def errors(self) -> tuple[str, ...]:
        """Returns what went wrong, with how often it did."""
        with self._lock:
            return tuple(f"{text} ({n} times)" if n > 1 else text for text, n in self._errors.items())

    def _note(self, text: str) -> None:
        with self._lock:
            if text in self._errors or len(self._errors) < 16:
                self._errors[text] += 1


def _gone() -> NotServed:
    return NotServed("This rollout has ended.", "Call the model before the agent returns.", status=410)


class InterceptionServer:
    """Serves the addresses of all rollouts of this process, on this machine alone. An address holds a secret of the server's and
    one of the rollout's."""

    def __init__(self) -> None:
        from keepworth.serving.http_server import HttpServer

        self._secret = secrets.token_urlsafe(16)
        self._open: dict[str, RolloutCalls] = {}
        self._http = HttpServer(self._application, name="interception", patience=1).start()

    def open(self, calls: RolloutCalls) -> Endpoint:
        """Returns a new address, which `calls` answers until it is closed."""
        token = secrets.token_urlsafe(16)
        self._open[token] = calls
        return Endpoint(f"{self._http.url}/{self._secret}/{token}", token)

    def close(self, endpoint: Endpoint) -> None:
        """Ends an address: calls to it are refused with 410 from now on."""
        self._open.pop(endpoint.key, None)

    def _application(self, workers: Executor) -> Any:
        from keepworth.serving.application import ServerLimits, application

        path = "/{secret}/{token}/{route:path}"
        answers = {(method, path): self._answer for method in ("GET", "POST")}
        shapes = {"/": answer_error}
        return application({}, self._find, workers, ServerLimits(), streamed=answers, error_shapes=shapes)

    def _find(self, path: str, authorization: str) -> RolloutCalls:
        """Returns the calls of the rollout whose address a path begins with. A client's key is not looked at."""
        _, secret, token, *_ = (*path.split("/"), "", "")
        if not secrets.compare_digest(secret.encode(), self._secret.encode()):
            raise NotServed("There is no such address.", "It is in OPENAI_BASE_URL.", status=404)
        if (calls := self._open.get(token)) is None:
            raise _gone()
        return calls

    async def _answer(self, call: ServedCall, request: Any) -> Any:
        from starlette.responses import Response

        calls: RolloutCalls = call.access
        ready = await calls.serve(request, f"/{call.path['route']}", call.raw)
        # Clients of rollouts that have ended would keep their connections for a while.
        headers: Mapping[str, str] = {**ready.headers, "connection": "close"}
        return Response(ready.content, ready.status, dict(headers), ready.kind)


_server: list[InterceptionServer] = []
_starting = threading.Lock()


def interception_server() -> InterceptionServer:
    """Returns the server of this process, which is started by the first rollout and lasts as long as the program."""
    with _starting:
        if not _server:
            require("serve", "An agent that is a program", "starlette", "uvicorn")
            _server.append(InterceptionServer())
        return _server[0]
