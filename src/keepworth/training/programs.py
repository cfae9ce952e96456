"""Agents that are programs: code that was not written for training, which calls a model at the address that it is given.

    def my_agent(row): ...              # or async
    def my_agent(row, endpoint): ...    # the address as an argument
    "python my_agent.py"                # the row comes as JSON on standard input; what is printed is the answer

The address is in `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL`, where the clients of OpenAI and Anthropic look for it. Functions run
beside one another in this process: each reads its own address there, as long as it makes its client inside the function."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Any

from keepworth.worlds.environment import in_lasting_loop, in_thread

LONGEST_ANSWER = 2**20
"""The most bytes that a command may print as its answer."""


class ProgramFailed(Exception):
    """A command ended with an error."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one rollout, which answers as OpenAI and Anthropic do.

    Attributes:
        url: The address without a version, as Anthropic's clients take it.
        key: What clients that want a key may send. The secret is in the address.
    """

    url: str
    key: str

    @property
    def openai(self) -> str:
        """The address as OpenAI's clients take it."""
        return f"{self.url}/v1"

    @property
    def anthropic(self) -> str:
        """The address as Anthropic's clients take it."""
        return self.url

    def variables(self) -> dict[str, str]:
        """Returns the environment variables that clients read. A proxy is not asked for an address on this machine."""
        return {
            "OPENAI_BASE_URL": self.openai,
            "OPENAI_API_BASE": self.openai,
            "OPENAI_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": self.anthropic,
            "ANTHROPIC_API_URL": self.anthropic,
            "ANTHROPIC_API_KEY": self.key,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """A function, or a command of the shell. `takes_endpoint` says that the function gets its address as an argument, too."""

    given: Callable[..., Any] | str
    takes_endpoint: bool = False

    @property
    def name(self) -> str:
        if isinstance(self.given, str):
            return self.given
        return str(getattr(self.given, "__qualname__", type(self.given).__qualname__))

    async def run(self, row: Mapping[str, Any], prompt: str, endpoint: Endpoint) -> Any:
        """Returns what the program returns or prints. Cancelling it ends a command and its children, and a coroutine; a function
        that runs in a thread is abandoned.

        Args:
            row: The row of the task, which the program may change.
            prompt: The last text of the row's prompt.
            endpoint: Where it finds the model.
        """
        given, variables = self.given, endpoint.variables()
        if isinstance(given, str):
            command = _Command(given, json.dumps(row), {**variables, "KEEPWORTH_PROMPT": prompt}, endpoint.key)
            try:
                return await in_thread(command.run)
            finally:
                command.stop()
        look_up_by_rollout()
        arguments = (row, endpoint) if self.takes_endpoint else (row,)

        async def awaited(make: Callable[[], Any]) -> Any:
            _variables.set(variables)
            with _end_of_forks():
                return await make()

        def called() -> Any:
            _variables.set(variables)  # of this thread
            with _end_of_forks():
                return given(*arguments)

        if _is_asynchronous(given):
            return await in_lasting_loop(awaited(lambda: given(*arguments)))
        result = await in_thread(called)
        return await in_lasting_loop(awaited(lambda: result)) if inspect.isawaitable(result) else result


def program_of(agent: Any) -> AgentProgram | None:
    """Returns the program that an agent is; None for a function of (task, memory) that makes an agent of this package."""
    if isinstance(agent, str):
        return AgentProgram(agent)
    if not callable(agent):
        return None
    takes = inspect.signature(agent).parameters
    needed = [take for take in takes.values() if take.default is take.empty and take.kind in _POSITIONAL]
    takes_endpoint = "endpoint" in takes
    if takes_endpoint or len(needed) == 1 or _is_asynchronous(agent):
        return AgentProgram(agent, takes_endpoint)
    return None


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _is_asynchronous(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


# Environment variables of a rollout. The environment belongs to the process, and many functions run in it at once. So looking up
# a variable asks the context first (a thread, or a task of asyncio), which belongs to one rollout.

_variables: ContextVar[Mapping[str, str]] = ContextVar("variables of a rollout", default=MappingProxyType({}))


class _Environment(os._Environ):  # type: ignore[type-arg]
    """The process's environment, with the variables of the rollout whose code looks."""

    def __getitem__(self, name: str) -> str:
        value = _variables.get().get(name)
        return str(super().__getitem__(name)) if value is None else value

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(super().__iter__()), **_variables.get()})

    def __len__(self) -> int:
        return len(list(iter(self)))


def look_up_by_rollout() -> None:
    """Makes `os.environ` give each rollout its own address, and the commands that a rollout's code starts, from now on. It is not
    undone: code that outlives its rollout must never see another address, such as a real provider's."""
    if type(os.environ) is os._Environ:
        os.environ.__class__ = _Environment
        subprocess.Popen.__init__ = _begin_with_variables  # type: ignore[assignment,method-assign]


_begin = subprocess.Popen.__init__
_PLACE_OF_ENV = list(inspect.signature(_begin).parameters).index("env") - 1


@wraps(_begin)
def _begin_with_variables(process: Any, *arguments: Any, **named: Any) -> None:
    """Begins a process, which would inherit the environment without the rollout's variables."""
    if _variables.get() and len(arguments) <= _PLACE_OF_ENV and named.get("env") is None:
        named["env"] = dict(os.environ)
    _begin(process, *arguments, **named)


@contextmanager
def _end_of_forks() -> Iterator[None]:
    """Ends a copy of this process that the code within made by `os.fork` and that would go on with the training."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(0)


# Commands.


class _Command:
    """A command, which is ended with all that it started. `mark` is what its environment holds, and no other's."""

    def __init__(self, line: str, stdin: str, variables: Mapping[str, str], mark: str) -> None:
        self._line, self._stdin, self._mark = line, stdin, mark.encode()
        self._environment = {**os.environ, **variables}
        self._lock, self._over = threading.Lock(), False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> str:
        """Returns what the command prints. Raises ProgramFailed where it ends with an error, or prints too much."""
        with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr:
            stdin.write(self._stdin.encode())
            stdin.seek(0)
            with self._lock:
                if self._over:
                    raise ProgramFailed("it was stopped before it began")
                process = self._process = subprocess.Popen(
                    self._line,
                    shell=True,  # the line is the user's own
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    env=self._environment,
                    start_new_session=True,
                )
            if hasattr(os, "waitid"):  # it stays a zombie, so that its number is nobody else's yet
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            else:
                process.wait()
            self.stop()
            code = process.wait()
            stdout.seek(0)
            printed = stdout.read(LONGEST_ANSWER + 1)
            if code:
                stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - 2000))
                lines = stderr.read().decode(errors="replace").strip().splitlines()
                raise ProgramFailed(f"it ended with exit code {code}{f': {lines[-1]}' if lines else ''}")
            if len(printed) > LONGEST_ANSWER:
                raise ProgramFailed(f"it printed more than {LONGEST_ANSWER} bytes")
            return printed.decode(errors="replace")

    def stop(self) -> None:
        """Ends the command's processes, where any are left."""
        with self._lock:
            self._over = True
            if self._process is not None and self._process.returncode is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                for _ in range(8):  # one may begin another meanwhile
                    if not self._end_other_sessions(self._process.pid):
                        break

    def _end_other_sessions(self, command: int) -> int:
        """Ends processes that left the command's session, as daemons do. Returns how many there were, where Linux lists them."""
        ended = 0
        for environment in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if self._mark in environment.read_bytes() and (process := int(environment.parent.name)) != command:
                    os.kill(process, signal.SIGKILL)
                    ended += 1
        return ended
