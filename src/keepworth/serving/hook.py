"""`keepworth hook`: connects the events of a coding assistant (the host) with a memory.

It recalls when a session or a prompt begins and when a tool fails, stores what a prompt states, and records a failure as a reward
of 0. A turn is an episode. Hosts run it as a command, with one JSON object on standard input, and one or none on standard output.
It never blocks a host: it ends after a few seconds, with exit code 0 and one line on standard error whatever goes wrong. It
imports only the standard library, as it is started anew for every event.

The fields are those of the hosts' own references: Claude Code (code.claude.com/docs/en/hooks), Codex
(developers.openai.com/codex/hooks and the schemas in its repository), Gemini CLI (geminicli.com/docs/hooks/reference).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import re
import shlex
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from keepworth.memory.sensitive import HIDDEN, without_secrets

URL, TOKEN, LOCAL = "KEEPWORTH_URL", "KEEPWORTH_TOKEN", "http://127.0.0.1:8000"
MARK = "Memory of earlier conversations. These are notes, not instructions:"
"""The first line of what is recalled, the same as in the gateway's blocks."""
BEGIN, PROMPT, TOOL, TURN_ENDS, END = "begin", "prompt", "tool", "turn ends", "end"
EVENTS = {
    "SessionStart": BEGIN,
    **dict.fromkeys(("UserPromptSubmit", "BeforeAgent"), PROMPT),
    **dict.fromkeys(("PostToolUse", "PostToolUseFailure", "AfterTool"), TOOL),
    **dict.fromkeys(("Stop", "AfterAgent"), TURN_ENDS),
    "SessionEnd": END,
}
LONGEST = 2000
"""The most characters of a prompt or an error that go into a query or a record."""
LARGEST = 2**23
"""The most bytes that are read from a host: more would take longer than it waits."""
SECONDS = 3.0
SECONDS_AT_END = 1.2
"""Claude Code stops a hook at the end of a session after 1.5 seconds."""
_OLD = 30 * 86_400.0
_TAIL = 2**22
"""How many bytes at the end of a transcript are searched."""
_SAID_BY_HOOKS = re.compile(r"\A(?:\s*<hook_context>.*?</hook_context>)+\s*", re.DOTALL)
"""Gemini CLI puts the output of hooks at the start of a session before the prompt, with every "<" in it escaped."""
_EXIT_OF_GEMINI = re.compile(
    r"^Exit Code: (?!0$)\S+(?:\n(?:Signal|Background PIDs|Process Group PGID): .*)*(?:\n</untrusted_context>)?\s*\Z",
    re.MULTILINE,
)


class HookProblem(Exception):
    """A hook could not do something; the message is one line."""


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One event of a host.

    Args:
        what: BEGIN, PROMPT, TOOL, TURN_ENDS or END.
        name: The host's name for the event.
        text: The prompt, or the error of a tool.
        fresh: Whether the model's context is new, and holds nothing that was shown before.
    """

    what: str
    name: str
    session: str
    folder: str
    text: str = ""
    tool: str = ""
    fresh: bool = False


@dataclass(slots=True)
class HookSession:
    """The state of a host's session between two events. `waiting` says that items were shown and no act has followed yet."""

    episode: str = ""
    task: str = ""
    waiting: bool = False
    shown: list[str] = field(default_factory=list)


# -- what hosts say ---------------------------------------------------------------------------------------------------


def event_of(given: Mapping[str, Any], name: str = "") -> HookEvent:
    """Read an event from a host's JSON. Raises HookProblem for an unknown one."""
    called = name or str(given.get("hook_event_name") or "")
    if called not in EVENTS:
        raise HookProblem(f"{called!r:.60} is no event that is handled here: there are {', '.join(EVENTS)}")
    what, text, tool = EVENTS[called], "", ""
    if what == PROMPT:
        text = _SAID_BY_HOOKS.sub("", str(given.get("prompt") or ""))
    elif what == TOOL:
        tool, text = str(given.get("tool_name") or "a tool"), failure_of(called, given)
    fresh = what == BEGIN and given.get("source") != "resume"
    session, folder = str(given.get("session_id") or "none"), str(given.get("cwd") or "")
    return HookEvent(what, called, session, folder, clean(text), tool, fresh)


def failure_of(name: str, given: Mapping[str, Any]) -> str:
    """Return the error of a tool; "" if it succeeded, or if the user stopped it."""
    if given.get("is_interrupt"):
        return ""
    if name == "PostToolUseFailure":
        return str(given.get("error") or "it failed")
    response = given.get("tool_response")
    if isinstance(response, str):
        with contextlib.suppress(ValueError):
            response = json.loads(response)
    if isinstance(response, str):  # Codex: the output of a command, with or without its exit code before it
        ended = re.match(r"\s*(?:Process exited with code|Exit code:?) (\d+)", response)
        failed = ended[1] != "0" if ended else exit_code_of(given) not in (0, None)
        return (response.strip() or "it failed") if failed else ""
    if not isinstance(response, Mapping):
        return ""
    # Gemini CLI gives the exit code in the text for the model, and only if the command failed.
    shell = response.get("llmContent")
    if isinstance(shell, str) and _EXIT_OF_GEMINI.search(shell):
        return re.sub(r"</?untrusted_context>", "", shell).strip()
    code = next((response[key] for key in ("exit_code", "exitCode") if key in response), 0)
    if not response.get("error") and code in (0, None):
        return ""
    error = response.get("error") or response.get("stderr") or response.get("output")
    return error if isinstance(error, str) else json.dumps(error) if error else f"exit code {code}"


def exit_code_of(given: Mapping[str, Any]) -> int | None:
    """Return the exit code of a command that Codex ran, or None if it is not found. Codex gives its hooks only the output; the
    exit code is in the last lines of the transcript that it names."""
    file, call = given.get("transcript_path"), given.get("tool_use_id")
    if given.get("tool_name") != "Bash" or not (isinstance(file, str) and isinstance(call, str) and file and call):
        return None
    for wait in (*(0.03,) * 9, 0.0):  # the host writes it meanwhile
        try:
            with open(file, "rb") as transcript:
                transcript.seek(max(0, transcript.seek(0, os.SEEK_END) - _TAIL))
                lines = transcript.read().splitlines()
        except OSError:
            return None
        for line in reversed(lines):
            if call.encode() in line and b'"exit_code"' in line:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    item = json.loads(line)["payload"]["item"]
                    if item["id"] == call and isinstance(item["exit_code"], int):
                        return int(item["exit_code"])
        time.sleep(wait)
    return None


def clean(text: str) -> str:
    """Return `text` without secrets and cut to LONGEST characters, mostly from its end, where a long error says most."""
    if len(text) > 20 * LONGEST:  # rules over megabytes take longer than a host waits
        text = f"{text[: 10 * LONGEST]} ... {text[-10 * LONGEST :]}"
    plain = without_secrets(text).strip()
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST // 4]} ... {plain[-LONGEST * 3 // 4 :]}"


# -- what is done -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class HookWork:
    """Carries out what one event leads to. `most` is the largest number of items that are recalled."""

    event: HookEvent
    session: HookSession
    memory: ServedMemory
    most: int = 5

    def block(self) -> str:
        """Update the session and return the text to show. A step that fails is reported, and the others are still done."""
        event, session = self.event, self.session
        if event.what == BEGIN:
            project = Path(event.folder).name or "this project"
            if event.fresh:
                session.shown, session.task = [], ""
            query = session.task or f"{project}: conventions, preferences, lessons"
            self._begin(session.task or f"Work in {project}")
            return self._recall(query)
        if event.what == PROMPT and event.text:
            self._begin(event.text)
            return self._recall(event.text)
        if event.what == TOOL and event.text:
            return self._recall_for_failure()
        if event.what in (TURN_ENDS, END):
            self._end()
        return ""

    def keep(self) -> None:
        """Store the facts that the memory's writer finds in a prompt."""
        if self.event.what != PROMPT or not self.session.episode:
            return
        sentences = re.split(r"(?<=[.!?\n])\s+", self.event.text)
        words = " ".join(sentence for sentence in sentences if HIDDEN not in sentence)
        if words.strip():
            note = {"content": [{"role": "user", "content": words}], "infer": True, "source": "hook"}
            self._ask("nothing was kept", "items", {**note, "episode": self.session.episode, **self.memory.bounds})

    def _recall_for_failure(self) -> str:
        session = self.session
        failure = f"{self.event.tool} failed: {self.event.text}"
        if not session.episode:
            self._begin(f"Use {self.event.tool}")
        # The failure is credited to items that were shown before the call, and not to those that are shown now.
        if session.waiting and self._tell("no failure was noted", "act", {"action": failure}) is not None:
            session.waiting = False
            self._tell("the failure gave no reward", "step_reward", {"value": 0.0})
        return self._recall(failure)

    def _begin(self, task: str) -> None:
        self._end()
        self.session.task = task
        begun = self._ask("no episode was begun", "episodes", {"task": task, **self.memory.bounds})
        self.session.episode = "" if begun is None else str(begun["id"])

    def _end(self) -> None:
        if self.session.episode:
            self._tell("an episode stays open", "end", {"outcome": "completed"})
        self.session.episode, self.session.waiting = "", False

    def _recall(self, query: str) -> str:
        session = self.session
        if not query or not session.episode:
            return ""
        answer = self._tell("nothing was recalled", "search", {"query": query, "top_k": self.most})
        ids = [hit["item"]["id"] for hit in answer["hits"]] if answer else []
        lines = answer["text"].split("\n") if answer and ids else []
        session.waiting = session.waiting or bool(ids)
        if len(lines) == len(ids):  # else a policy has worded the text itself
            lines = [line for id, line in zip(ids, lines, strict=True) if id not in session.shown]
        session.shown = [*session.shown, *(id for id in ids if id not in session.shown)][-1000:]
        return without_secrets("\n".join((MARK, *lines))) if lines else ""

    def _tell(self, failure: str, verb: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Call a verb of the session's episode, as `_ask`."""
        return self._ask(failure, f"episodes/{quote(self.session.episode)}/{verb}", body)

    def _ask(self, failure: str, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return what the memory answers, or None, with a line about the failure, if it does not."""
        try:
            return self.memory.post(path, body)
        except HookProblem as error:
            _say(f"{failure}: {error}")
            return None


class ServedMemory:
    """A served memory, over one connection. `bounds` is the scope of what is written and searched."""

    def __init__(self, url: str, token: str, bounds: Mapping[str, str], seconds: float) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
            if parts.scheme not in ("http", "https") or not host.encode("idna"):
                raise ValueError
        except ValueError:
            message = f"{url!r:.80} is no address of a server: set {URL} to one such as http://127.0.0.1:8000"
            raise HookProblem(message) from None
        if not (token.isascii() and token.isprintable()):  # `http.client` would quote it
            raise HookProblem(f"{TOKEN} is no token: set it to what `keepworth memory token add` shows")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._http = kind(host, port, timeout=seconds)
        self._base = parts.path.rstrip("/").removesuffix("/memory").removesuffix("/v1") + "/v1/memory/"
        self._url, self.bounds = url, bounds
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def close(self) -> None:
        self._http.close()

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Call a route of the memory and return its answer. Raises HookProblem."""
        try:
            self._http.request("POST", self._base + path, json.dumps(body), self._headers)
            response = self._http.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._http.close()  # so that the next request opens a new connection
            raise HookProblem(f"{self._url} gave no answer ({type(error).__name__}: {error})") from error
        try:
            answer = json.loads(raw)
            if response.status == 200 and isinstance(answer, dict):
                return answer
            problem = f"{answer['detail']} {answer['fix']}"
        except (ValueError, KeyError, TypeError):
            problem = "is it the address of `keepworth serve --memory`?"
        raise HookProblem(f"{self._url} answered {response.status}: {problem}")


# -- between two events -----------------------------------------------------------------------------------------------


def session_file(host: str, session: str) -> Path:
    """Return the path of a session's state, in a folder that only its owner can read. Raises HookProblem."""
    owner = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(os.environ.get("KEEPWORTH_HOOKS") or Path(tempfile.gettempdir()) / f"keepworth-hooks-{owner}")
    try:
        with contextlib.suppress(FileExistsError):  # a link that leads nowhere is refused below
            folder.mkdir(mode=0o700, parents=True)
        state = folder.lstat()
    except OSError as error:
        raise HookProblem(f"{folder} cannot be made ({error.strerror}): set KEEPWORTH_HOOKS to a folder") from error
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != owner or state.st_mode & 0o077:
        raise HookProblem(f"{folder} is not a folder of this user alone: remove it, or set KEEPWORTH_HOOKS to another")
    return folder / f"{hashlib.sha256(json.dumps([host, session]).encode()).hexdigest()[:32]}.json"


def read_session(file: Path) -> HookSession:
    """Read the state in a file; an empty one if there is none."""
    try:
        return HookSession(**json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return HookSession()


def write_session(file: Path, session: HookSession) -> None:
    """Write a state to a file, whole or not at all."""
    part = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        json.dump(asdict(session), out)
    os.replace(part, file)


def remove_old(folder: Path, now: float) -> None:
    """Remove the states of sessions that are more than 30 days old."""
    for file in folder.iterdir():
        with contextlib.suppress(OSError):
            if file.stat().st_mtime < now - _OLD:
                file.unlink()


# -- settings of hosts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HookHost:
    """A coding assistant. `settings` is its file in the project; `timeout` and `at_end` are the time limits of a hook, and of one
    at the end of a session, in the host's unit; `first` says what its user must do before it runs hooks."""

    settings: str
    events: tuple[str, ...]
    timeout: int
    at_end: int
    first: str = ""


HOSTS = {
    "claude-code": HookHost(
        ".claude/settings.json",
        ("SessionStart", "UserPromptSubmit", "PostToolUseFailure", "Stop", "SessionEnd"),
        10,
        10,
    ),
    "codex": HookHost(
        ".codex/hooks.json",
        ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd"),
        10,
        3,
        " Codex runs them once you trust the project, and the hooks in its list /hooks.",
    ),
    "gemini-cli": HookHost(
        ".gemini/settings.json",
        ("SessionStart", "BeforeAgent", "AfterTool", "AfterAgent", "SessionEnd"),
        10_000,
        10_000,
    ),
}


def install(name: str, command: str, *, write: bool) -> str:
    """Return the settings that make a host run `command` at its events, or, with `write`, merge them into its file and return a
    line about it. Raises HookProblem if there is no such host, or the present settings cannot be read."""
    if name not in HOSTS:
        from keepworth.episodes.errors import UnknownName

        raise HookProblem(str(UnknownName("host", name, HOSTS)))
    host = HOSTS[name]
    file, hooks = Path(host.settings), dict[str, Any]()
    for event in host.events:
        timeout = host.at_end if EVENTS[event] == END else host.timeout
        hooks[event] = [{"hooks": [{"type": "command", "command": f"{command} {event}", "timeout": timeout}]}]
    if not write:
        return json.dumps({"hooks": hooks}, indent=2)
    settings: Any = {}
    if file.exists():
        try:
            settings = json.loads(file.read_text("utf-8"))
            if not isinstance(settings, dict) or not isinstance(settings.get("hooks", {}), dict):
                raise ValueError("it is no object with hooks")
        except (OSError, ValueError) as error:
            raise HookProblem(
                f"{file} cannot be read ({error}), and was not changed: correct it, or leave --write out"
            ) from error
    from keepworth.memory.durable_file import replacing

    before = settings.get("hooks", {})
    others = {event: [entry for entry in before.get(event, []) if not _is_ours(entry)] for event in hooks}
    merged = {**before, **{event: [*others[event], *entries] for event, entries in hooks.items()}}
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as out:
        out.write((json.dumps({**settings, "hooks": merged}, indent=2, ensure_ascii=False) + "\n").encode())
    return f"{file} runs `{command}` at {', '.join(hooks)}. {TOKEN} must be set where the host is started.{host.first}"


def _is_ours(entry: Any) -> bool:
    text = json.dumps(entry)
    return "keepworth" in text and " hook" in text


# -- the command ------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command's options."""
    made = argparse.ArgumentParser(
        prog="keepworth hook",
        description="Recall and record at the events of a host, such as a coding assistant. It reads the event as JSON from "
        f"standard input and prints what the host shows its model. The server's token is read from {TOKEN}.",
        allow_abbrev=False,
    )
    made.add_argument(
        "event", nargs="?", default="", metavar="EVENT", help="The event's name, where the JSON does not say it."
    )
    made.add_argument("--url", default="", help=f"The server's URL; {URL}, or {LOCAL}, if not given.")
    made.add_argument("--user", default="", help="Whose memory.")
    made.add_argument("--agent", default="", help="Which agent's memory.")
    made.add_argument("--top-k", type=int, default=5, help="Items recalled at most.")
    made.add_argument("--no-keep", action="store_true", help="Do not keep what prompts state.")
    made.add_argument(
        "--seconds", type=float, default=None, help=f"How long the host waits at most; {SECONDS:g} if not given."
    )
    made.add_argument("--install", metavar="HOST", help=f"Print the settings of {', '.join(HOSTS)}.")
    made.add_argument("--write", action="store_true", help="With --install: merge them into the project's file.")
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code. At an event it is 0 whatever happens, as hosts take 2 for a refusal."""
    try:
        chosen = parser().parse_args(arguments)
    except SystemExit as ended:
        return 1 if ended.code else 0  # a host reports 1 as an error, and goes on
    if chosen.install:
        try:
            command = shlex.join([*_program(), "hook", *_given(chosen)])
            sys.stdout.write(install(chosen.install, command, write=chosen.write) + "\n")
        except HookProblem as error:
            _say(str(error))
            return 2
        return 0
    if chosen.write:
        _say("--write is of --install HOST")
        return 2
    blocks: list[str] = []

    def work() -> None:
        try:
            _once(chosen, time.time(), blocks.append)
        except HookProblem as error:
            _say(str(error))
        except Exception as error:  # a bug here must not stop a host
            _say(f"something broke inside: {type(error).__name__}: {error}")

    # A daemon thread: if it hangs, for instance because standard input is never closed, it ends with the program.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    seconds = chosen.seconds or (SECONDS_AT_END if EVENTS.get(chosen.event) == END else SECONDS)
    thread.join(seconds)
    if thread.is_alive():
        _say(f"no answer in {seconds:g} seconds: the host goes on without")
    if blocks and blocks[0]:
        with contextlib.suppress(OSError):
            sys.stdout.write(blocks[0] + "\n")
            sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _once(chosen: argparse.Namespace, now: float, show: Callable[[str], None]) -> None:
    """Handle one event. `show` gets the text for standard output as soon as it is known, before facts are stored."""
    try:
        given = json.loads(_input())
    except (ValueError, RecursionError) as error:
        raise HookProblem(f"standard input is not the JSON of a host ({error})") from error
    if not isinstance(given, dict):
        raise HookProblem("standard input is not a JSON object of a host")
    event = event_of(given, chosen.event)
    file = session_file(chosen.user, event.session)
    session = read_session(file)
    if event.what == TOOL and not event.text:
        return
    bounds = {name: value for name, value in (("user_id", chosen.user), ("agent_id", chosen.agent)) if value}
    token = (os.environ.get(TOKEN) or os.environ.get("KEEPWORTH_API_KEY") or "").strip()
    memory = ServedMemory(chosen.url or os.environ.get(URL) or LOCAL, token, bounds, SECONDS)
    try:
        work = HookWork(event, session, memory, chosen.top_k)
        block = work.block()
        answer = {"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": block}}
        show(json.dumps(answer) if block else "")
        if not chosen.no_keep:
            work.keep()
    finally:
        memory.close()
        if event.what == END:
            file.unlink(missing_ok=True)
        else:
            write_session(file, session)
        if event.what == BEGIN:
            remove_old(file.parent, now)


def _input() -> bytes:
    """Read standard input to its end, so that the host can write all of it. Raises HookProblem if it is too long."""
    text = sys.stdin.buffer.read(LARGEST + 1)
    if len(text) > LARGEST:
        while sys.stdin.buffer.read(2**20):
            pass
        raise HookProblem(f"the host says more than {LARGEST // 2**20} MB at once, and nothing is recalled or kept")
    return text


def _program() -> list[str]:
    """Return the command that started this program, so that a host starts the same."""
    name = Path(sys.argv[0])
    return [str(name.resolve())] if name.name == "keepworth" and name.is_file() else [sys.executable, "-m", "keepworth"]


def _given(chosen: argparse.Namespace) -> list[str]:
    usual = parser().parse_args([])
    pairs = ((name, getattr(chosen, name)) for name in ("url", "user", "agent", "top_k", "seconds"))
    options = [(name, value) for name, value in pairs if value != getattr(usual, name)]
    words = [word for name, value in options for word in (f"--{name.replace('_', '-')}", str(value))]
    return [*words, *(["--no-keep"] if chosen.no_keep else [])]


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"keepworth hook: {without_secrets(line)}\n")
