"""`keepworth hook`: connects the events of a coding assistant (the host) with a memory.

It recalls when a session or a prompt begins and when a tool fails, and stores what a prompt states. A turn is an episode. What
tools say and what the user says next is sent as a signal, which the memory takes for the turn's outcome where it is one
(`keepworth.memory.signals`). Hosts run it as a command, with one JSON object on standard input, and one or none on standard
output. It never blocks a host: it ends after a few seconds, with exit code 0 and one line on standard error whatever goes wrong.
It imports only the standard library, as it is started anew for every event.

The fields are those of the hosts' own references: Claude Code (code.claude.com/docs/en/hooks), Codex
(developers.openai.com/codex/hooks and the schemas in its repository), Gemini CLI (geminicli.com/docs/hooks/reference). opencode
runs plugins instead of commands, and one of ours hands its events on (`keepworth.serving.opencode`).
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from keepworth.base.json_values import parse
from keepworth.memory.headline import MARK, without_blocks
from keepworth.memory.sensitive import HIDDEN, without_secrets
from keepworth.serving import opencode

URL, TOKEN, USER, LOCAL = "KEEPWORTH_URL", "KEEPWORTH_TOKEN", "KEEPWORTH_USER", "http://127.0.0.1:8000"
BEGIN, PROMPT, TOOL, TURN_ENDS, COMPACT, END = "begin", "prompt", "tool", "turn ends", "compact", "end"
EVENTS = {
    **dict.fromkeys(("SessionStart", "session.created"), BEGIN),
    **dict.fromkeys(("UserPromptSubmit", "BeforeAgent", "chat.message"), PROMPT),
    **dict.fromkeys(("PostToolUse", "PostToolUseFailure", "AfterTool", "tool.execute.after"), TOOL),
    **dict.fromkeys(("message.part.updated", "session.error"), TOOL),
    **dict.fromkeys(("Stop", "AfterAgent", "session.idle"), TURN_ENDS),
    "session.compacted": COMPACT,
    **dict.fromkeys(("SessionEnd", "session.deleted"), END),
}
UNSEEN = ("message.part.updated", "session.error")
"""Events at which a host shows its model nothing, so that nothing is recalled."""
LONGEST = 2000
"""The most characters of a prompt or an error that go into a query or a record."""
LONGEST_SAID = 200_000
"""The most characters of a prompt that are read for what it states."""
LARGEST = 2**23
"""The most bytes that are read from a host: more would take longer than it waits."""
MOST_UNKEPT = 20
"""The most prompts that wait for a memory which gives no answer."""
SECONDS = 3.0
SECONDS_AT_END = 1.2
"""Claude Code stops a hook at the end of a session after 1.5 seconds."""
_OLD, _IDLE = 30 * 86_400.0, 86_400.0
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


class NoAnswer(HookProblem):
    """The memory gave no answer, or is busy: the same call may succeed later."""


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One event of a host.

    Args:
        what: BEGIN, PROMPT, TOOL, TURN_ENDS, COMPACT or END.
        name: The host's name for the event.
        text: The prompt, or the error of a tool.
        fresh: Whether the model's context is new, and holds nothing that was shown before.
        prompt: The whole prompt, without secrets.
        command: The command line that a tool ran.
        failed: Whether a tool failed; None if the user stopped it.
        output: The end of what a tool printed.
    """

    what: str
    name: str
    session: str
    folder: str
    text: str = ""
    tool: str = ""
    fresh: bool = False
    prompt: str = ""
    command: str = ""
    failed: bool | None = False
    output: str = ""


@dataclass(slots=True)
class HookSession:
    """The state of a host's session between two events. `waiting` says that items were shown and no act has followed yet; `last`
    is the episode of the last turn if it showed any, and `ended` whether the host said that it ended; `shown` holds digests of
    the lines in the model's context, and `present` the ids of their items. `unkept` are the prompts that the memory has not
    taken yet, without secrets, each with where it goes and in whose name; `over` says that the session has ended."""

    episode: str = ""
    task: str = ""
    waiting: bool = False
    last: str = ""
    ended: bool = True
    shown: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    unkept: list[dict[str, Any]] = field(default_factory=list)
    over: bool = False


# -- what hosts say ---------------------------------------------------------------------------------------------------


def event_of(given: Mapping[str, Any], name: str = "") -> HookEvent:
    """Read an event from a host's JSON. Raises HookProblem for an unknown one."""
    called = name or str(given.get("hook_event_name") or "")
    if called not in EVENTS:
        raise HookProblem(f"{called!r:.60} is no event that is handled here: there are {', '.join(EVENTS)}")
    if called in opencode.EVENTS:
        given = opencode.flatten(called, given)
    what, text, tool, command, output = EVENTS[called], "", "", "", ""
    failed: bool | None = False
    if what == PROMPT:
        text = without_blocks(_SAID_BY_HOOKS.sub("", str(given.get("prompt") or ""))).strip()
    elif what == TOOL:
        tool, text = str(given.get("tool_name") or "a tool"), failure_of(called, given)
        command, output = clean(command_of(given)), clean(text or output_of(given))
        failed = None if given.get("is_interrupt") else bool(text)
    fresh = what == BEGIN and given.get("source") != "resume"
    session, folder = str(given.get("session_id") or "none"), str(given.get("cwd") or "")
    prompt = without_secrets(_shorten(text, LONGEST_SAID)) if what == PROMPT else ""
    return HookEvent(what, called, session, folder, clean(text), tool, fresh, prompt, command, failed, output)


def project_of(folder: str) -> str:
    """Return the folder of the project that a host works in: the host's own word for it, the root of the repository, or the
    folder itself; "" where none is known."""
    if root := os.environ.get("CLAUDE_PROJECT_DIR"):
        return root
    if not folder:
        return ""
    here = Path(folder)
    with contextlib.suppress(OSError):
        return str(next((path for path in (here, *here.parents) if (path / ".git").exists()), here))
    return folder


def command_of(given: Mapping[str, Any]) -> str:
    """Return the command line that a tool ran; "" for a tool that runs none."""
    arguments = given.get("tool_input")
    command = arguments.get("command", arguments.get("cmd")) if isinstance(arguments, Mapping) else None
    if isinstance(command, list):  # ["bash", "-lc", "make test"] of Codex
        words = [str(word) for word in command]
        command = words[-1] if words[1:2] and re.fullmatch(r"-\w*c", words[1]) else shlex.join(words)
    return command if isinstance(command, str) else ""


def output_of(given: Mapping[str, Any]) -> str:
    """Return what a tool printed."""
    response = given.get("tool_response")
    if isinstance(response, Mapping):
        printed = [response.get(key) for key in ("stdout", "stderr", "output", "llmContent")]
        return "\n".join(text for text in printed if isinstance(text, str))
    return response if isinstance(response, str) else ""


def failure_of(name: str, given: Mapping[str, Any]) -> str:
    """Return the error of a tool; "" if it succeeded, or if the user stopped it."""
    if given.get("is_interrupt"):
        return ""
    if name == "PostToolUseFailure":
        return str(given.get("error") or "it failed")
    response = given.get("tool_response")
    if isinstance(response, str):
        with contextlib.suppress(ValueError):
            response = parse(response)
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
                    item = parse(line)["payload"]["item"]
                    if item["id"] == call and isinstance(item["exit_code"], int):
                        return int(item["exit_code"])
        time.sleep(wait)
    return None


def clean(text: str) -> str:
    """Return `text` without secrets and cut to LONGEST characters, mostly from its end, where a long error says most."""
    plain = without_secrets(_shorten(text, 20 * LONGEST)).strip()
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST // 4]} ... {plain[-LONGEST * 3 // 4 :]}"


def _shorten(text: str, most: int) -> str:
    """Return `text` or, if it has more than `most` characters, its beginning and its end: rules over megabytes take longer than a
    host waits."""
    return text if len(text) <= most else f"{text[: most // 2]}\n...\n{text[-most // 2 :]}"


# -- what is done -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class HookWork:
    """Carries out what one event leads to. `most` is the largest number of items that are recalled, `tokens` the budget of the
    text that shows them, None for the server's usual one; `signals` says whether outcomes are sent."""

    event: HookEvent
    session: HookSession
    memory: ServedMemory
    most: int | str = 5
    tokens: int | None = None
    signals: bool = True

    def block(self) -> str:
        """Update the session and return the text to show. A step that fails is reported, and the others are still done."""
        event, session = self.event, self.session
        if event.what == BEGIN:
            project = Path(event.folder).name or "this project"
            if event.fresh:
                session.shown, session.present, session.task = [], [], ""
            query, last, ended = (
                session.task or f"{project}: conventions, preferences, lessons",
                session.last,
                session.ended,
            )
            self._begin(session.task or f"Work in {project}")
            # Nothing was asked yet, so that what is nearest is shown, however far it is.
            block = self._recall(query, automatic=False)
            if ended:  # what the user says next is about the last turn, and stops none
                session.last, session.ended = last, True
            return block
        if event.what == PROMPT and event.text:
            self._tell_of_last_turn()
            self._begin(event.text)
            return self._recall(event.text)
        if event.what == TOOL:
            # What is recalled now has no part in how the tool ended.
            self._tell_of_tool()
            return self._recall_for_failure() if event.text and event.name not in UNSEEN else ""
        if event.what == COMPACT:  # the model's context is new, and the turn goes on
            session.shown = []
        if event.what in (TURN_ENDS, END):
            self._end()
            session.ended = True
        return ""

    def note_prompt(self, now: float) -> bool:
        """Add what a prompt says to what is to be kept, but for sentences with a secret. Return whether anything was added."""
        if self.event.what != PROMPT:
            return False
        # The breaks of lines stay: by them what is pasted is told from what is said.
        parts = re.split(r"((?<=[.!?])\s+|\n)", self.event.prompt)
        words = "".join(part for part in parts if HIDDEN not in part)
        if words.strip():
            at = datetime.fromtimestamp(now, UTC).isoformat()
            message = {"role": "user", "content": words, "said_at": at}
            if self.session.task:
                message["before"] = self.session.task  # by which a repeated request is told from a statement
            prompt = {"message": message, "to": self.memory.place, "project": project_of(self.event.folder)}
            self.session.unkept.append(prompt)
            del self.session.unkept[:-MOST_UNKEPT]
        return bool(words.strip())

    def keep(self) -> None:
        """Store what the memory's writer keeps of the prompts that it has not taken yet, unless it gave no answer just now."""
        if self.event.what in (BEGIN, PROMPT) and not self.session.episode:
            return
        ours = [prompt for prompt in self.session.unkept if prompt["to"] == self.memory.place]
        for prompt in ours:
            note = {"content": [prompt["message"]], "infer": True, "source": "hook", **self.memory.bounds}
            if prompt.get("project"):  # of two projects, one says nothing about the other
                note["metadata"] = {"project": prompt["project"]}
            newest = self.event.what == PROMPT and prompt is self.session.unkept[-1]
            if newest and self.session.episode:
                note["episode"] = self.session.episode
            try:
                self.memory.post("items", note)
            except NoAnswer as error:
                _say(f"nothing was kept yet: {error}")
                return
            except HookProblem as error:
                _say(f"nothing was kept: {error}")
            self.session.unkept.remove(prompt)

    def _tell_of_tool(self) -> None:
        """Send how a tool ended, if anything was shown before."""
        session, event = self.session, self.event
        if not (self.signals and session.episode and session.last == session.episode):
            return
        if session.waiting:
            done = f"{event.tool} failed: {event.text}" if event.text else event.command or event.tool
            session.waiting = self._tell("no act was noted", "act", {"action": done}) is None
        if event.failed is None:
            self._signal(session.episode, {"name": "interrupt"})
        elif event.failed or event.command:
            seen = {"command": event.command, "failed": event.failed, "output": event.output}
            self._signal(session.episode, seen)

    def _tell_of_last_turn(self) -> None:
        """Send what the user's next message says of the last turn, or that the user stopped it."""
        session, event = self.session, self.event
        last, session.last = session.last, ""
        if self.signals and last:
            if not session.ended:
                self._signal(last, {"name": "interrupt"})
            self._signal(last, {"reply": event.prompt[:LONGEST]})

    def _signal(self, episode: str, seen: dict[str, Any]) -> None:
        self._ask("no outcome was noted", f"episodes/{quote(episode)}/signal", seen)

    def _recall_for_failure(self) -> str:
        failure = f"{self.event.tool} failed: {self.event.text}"
        if not self.session.episode:
            self._begin(f"Use {self.event.tool}")
        return self._recall(failure)

    def _begin(self, task: str) -> None:
        self._end()
        self.session.task = task
        begun = self._ask("no episode was begun", "episodes", {"task": task, **self.memory.bounds})
        self.session.episode = "" if begun is None else str(begun["id"])
        self.session.ended = False

    def _end(self) -> None:
        if self.session.episode:
            self._tell("an episode stays open", "end", {"outcome": "completed"})
        self.session.episode, self.session.waiting = "", False

    def _recall(self, query: str, automatic: bool = True) -> str:
        session = self.session
        if not query or not session.episode:
            return ""
        budget = {} if self.tokens is None else {"tokens": self.tokens}
        # What the context holds cannot be left out: it would say nothing of what an item is worth.
        present = {"present": session.present} if session.present else {}
        # If neither --user nor the token names a person, nothing that belongs to a person is shown.
        nobody = {} if "user_id" in self.memory.bounds else {"nobody": True}
        asked = {"query": query, "top_k": self.most, "automatic": automatic, **nobody, **present, **budget}
        answer = self._tell("nothing was recalled", "search", asked)
        if not answer:
            return ""
        if answer["hits"]:
            session.waiting, session.last = True, session.episode
        digests = {hashlib.sha256(line.encode()).hexdigest()[:16]: line for line in answer["lines"].values()}
        lines = [line for digest, line in digests.items() if digest not in session.shown]
        session.present = [*dict.fromkeys((*session.present, *answer["lines"]))][-1000:]
        session.shown = [*session.shown, *(digest for digest in digests if digest not in session.shown)][-1000:]
        if not lines:
            return ""
        missing = answer["missing"]
        if missing:
            lines.append(f"(There was no room for {len(missing)} more: {', '.join(missing)}.)")
        return without_secrets("\n".join((MARK, *lines, *filter(None, [answer["last"]]))))

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
        self.place = [url, dict(bounds)]
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
            raise NoAnswer(f"{self._url} gave no answer ({type(error).__name__}: {error})") from error
        try:
            answer = parse(raw)
            if response.status == 200 and isinstance(answer, dict):
                return answer
            problem = f"{answer['detail']} {answer['fix']}"
        except (ValueError, KeyError, TypeError):
            problem = "is it the address of `keepworth serve --memory`?"
        kind = NoAnswer if response.status in (408, 429) or response.status >= 500 else HookProblem
        raise kind(f"{self._url} answered {response.status}: {problem}")


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
        return HookSession(**parse(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return HookSession()


def write_session(file: Path, session: HookSession, earlier: HookSession | None = None) -> None:
    """Write a state to a file, whole or not at all. What other processes of the session did meanwhile stays done: prompts that
    they noted or that the memory took from them, and its end.

    Args:
        file: The file of the session.
        session: Its state, which takes over what others did.
        earlier: What the file held when it was last read or written, which becomes what it holds then; None for nothing.
    """
    earlier = HookSession() if earlier is None else earlier
    with alone(file.parent):
        there = read_session(file)
        left = [prompt for prompt in there.unkept if prompt in session.unkept or prompt not in earlier.unkept]
        added = [prompt for prompt in session.unkept if prompt not in earlier.unkept and prompt not in there.unkept]
        session.unkept = [*left, *added][-MOST_UNKEPT:]
        session.over = session.over or (there.over and not earlier.over)
        earlier.unkept, earlier.over = list(session.unkept), session.over
        if session.over and not session.unkept:
            file.unlink(missing_ok=True)
            return
        part = file.with_name(f"{file.name}.{os.getpid()}")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            json.dump(asdict(session), out)
        os.replace(part, file)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one process at a time change the states of sessions in a folder, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def take_unkept(file: Path, session: HookSession, earlier: HookSession, now: float) -> None:
    """Move to a session what sessions that are over could not give to the memory. It is written there before it is taken away, so
    that a process that is stopped in between loses nothing.

    Args:
        file: The file of the session.
        session: Its state.
        earlier: As for `write_session`.
        now: The present. A host that crashed says of no session that it is over, but it touches none of them for a day.
    """
    for other in sorted(file.parent.glob("*.json")):
        left = HookSession() if other == file else read_session(other)
        with contextlib.suppress(OSError):
            if left.unkept and (left.over or other.stat().st_mtime < now - _IDLE):
                session.unkept = [*left.unkept, *session.unkept][-MOST_UNKEPT:]
                write_session(file, session, earlier)
                other.unlink(missing_ok=True)


def remove_old(folder: Path, now: float) -> None:
    """Remove the states of sessions that are more than 30 days old."""
    for file in folder.glob("[!.]*"):
        with contextlib.suppress(OSError):
            if file.stat().st_mtime < now - _OLD:
                file.unlink()


# -- settings of hosts ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HookHost:
    """A coding assistant. `settings` is its file in the project, which a team may share; `personal` is one of its user alone, if
    it reads any. `timeout` and `at_end` are the time limits of a hook, and of one at the end of a session, in the host's unit;
    `first` says what its user must do before it runs hooks; `matchers` name the tools for which an event runs one, where not for
    all. For a host that runs no commands, `settings` is the file of a `plugin` that does."""

    settings: str
    events: tuple[str, ...]
    timeout: int
    at_end: int
    personal: str = ""
    first: str = ""
    matchers: Mapping[str, str] = field(default_factory=dict)
    plugin: bool = False

    @property
    def files(self) -> list[Path]:
        """Return the files in which hooks may stand, first the one into which they are written."""
        return [Path(file) for file in (self.personal, self.settings) if file]


HOSTS = {
    "claude-code": HookHost(
        ".claude/settings.json",
        ("SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "Stop", "SessionEnd"),
        10,
        10,
        ".claude/settings.local.json",
        matchers={"PostToolUse": "Bash"},
    ),
    "codex": HookHost(
        ".codex/hooks.json",
        ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd"),
        10,
        3,
        first=" Codex runs them once you trust the project, and the hooks in its list /hooks.",
    ),
    "gemini-cli": HookHost(
        ".gemini/settings.json",
        ("SessionStart", "BeforeAgent", "AfterTool", "AfterAgent", "SessionEnd"),
        10_000,
        10_000,
    ),
    "opencode": HookHost(".opencode/plugins/keepworth.js", (), 0, 0, plugin=True),
}


def host_of(name: str) -> HookHost:
    """Return the host of a name. Raises HookProblem."""
    if name not in HOSTS:
        from keepworth.base.errors import UnknownName

        raise HookProblem(str(UnknownName("host", name, HOSTS)))
    return HOSTS[name]


def install(name: str, options: Sequence[str], *, write: bool, named: bool = False) -> str:
    """Return the settings that make a host run `keepworth hook` at its events, or merge them into its file.

    Args:
        name: The host, such as "claude-code".
        options: Words of the command line after `keepworth hook`.
        write: Whether the settings are merged into the host's file.
        named: Whether the options name a person, who is not written into a file that a team shares.

    Returns:
        The settings; with `write`, the lines that say what was done.

    Raises:
        HookProblem: If there is no such host, or its present settings cannot be read.
    """
    host = host_of(name)
    if write and named and not host.personal:
        raise HookProblem(
            f"{host.settings} may be shared, so that no name is written into it: leave --user out, and set {USER} where the host "
            "is started"
        )
    program = _program(portable=not host.personal)
    words = [*program, "hook", *options]
    command, hooks = shlex.join(words), dict[str, Any]()
    if host.plugin:
        text = opencode.plugin(json.dumps(words))
        return "\n".join([_write_plugin(host.files[0], text, command), *_off_path(program)]) if write else text
    for event in host.events:
        timeout = host.at_end if EVENTS[event] == END else host.timeout
        entry: dict[str, Any] = {"hooks": [{"type": "command", "command": f"{command} {event}", "timeout": timeout}]}
        hooks[event] = [{"matcher": host.matchers[event], **entry} if event in host.matchers else entry]
    if not write:
        return json.dumps({"hooks": hooks}, indent=2)
    file, *others = host.files
    settings = {other: _read_settings(other) for other in host.files}
    moved = [str(other) for other in others if _remove(other, settings[other])]
    others_alone = _remove_ours(settings[file])
    before = others_alone.get("hooks", {})
    merged = {**before, **{event: [*before.get(event, []), *entries] for event, entries in hooks.items()}}
    _write_settings(file, {**others_alone, "hooks": merged})
    message = [
        f"{file} runs `{command}` at {', '.join(hooks)}. {TOKEN} must be set where the host is started.{host.first}",
        *(f"The older hooks of this program were taken out of {other}." for other in moved),
        *_off_path(program),
    ]
    return "\n".join(message)


def uninstall(name: str) -> str:
    """Take the hooks of this program out of the files of a host, and nothing else. Raises HookProblem."""
    host, files = host_of(name), host_of(name).files
    if host.plugin:
        changed = [str(file) for file in files if _is_our_plugin(file)]
        for file in changed:
            Path(file).unlink()
    else:
        settings = {file: _read_settings(file) for file in files}
        changed = [str(file) for file in files if _remove(file, settings[file])]
    if not changed:
        return f"No hook of this program is in {' or '.join(map(str, files))}."
    return f"The hooks of this program were taken out of {' and '.join(changed)}."


def _off_path(program: Sequence[str]) -> list[str]:
    """Return a line that says that a host will not find the program, if so."""
    if len(program) > 1 or Path(program[0]).is_absolute() or _find_program() is not None:
        return []
    return [f"But there is no {PROGRAM} on the PATH: put it there, where the host is started."]


def _write_plugin(file: Path, text: str, command: str) -> str:
    """Write the file of a plugin and return a line about it. Raises HookProblem if the file is somebody else's."""
    from keepworth.base.durable_files import replacing

    if file.exists() and not _is_our_plugin(file):
        raise HookProblem(f"{file} is no plugin of this program, and was not changed: give it another name first")
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as out:
        out.write(text.encode())
    return f"{file} runs `{command}` at the events of the host. {TOKEN} must be set where the host is started."


def _is_our_plugin(file: Path) -> bool:
    """Return whether a file is the plugin of this program, whatever its options."""
    mark = opencode.plugin("").partition("\n")[0]
    return file.is_file() and file.read_text("utf-8", "replace").startswith(mark)


def installed(folders: Sequence[Path]) -> list[tuple[str, str]]:
    """Return the hosts that run this program's hooks in one of these folders, such as a project's and the home: the name of each,
    and whose memory its hooks search, "" where they do not say."""
    pairs = set[tuple[str, str]]()
    for name, host in HOSTS.items():
        for path in (folder / file for folder in folders for file in host.files):
            with contextlib.suppress(HookProblem):
                entries = [entry for listed in _read_settings(path).get("hooks", {}).values() for entry in listed]
                hooks = [hook for entry in entries if isinstance(entry, dict) for hook in entry.get("hooks") or ()]
                for words in (shlex.split(hook["command"]) for hook in hooks if _is_ours(hook)):
                    user = words[words.index("--user") + 1] if "--user" in words[:-1] else ""
                    pairs.add((name, user))
    return sorted(pairs)


def _read_settings(file: Path) -> dict[str, Any]:
    """Read a host's settings, {} if there is no file. Raises HookProblem."""
    if not file.exists():
        return {}
    try:
        settings: dict[str, Any] = parse(file.read_text("utf-8"))
        hooks = settings.get("hooks", {}) if isinstance(settings, dict) else None
        if not isinstance(hooks, dict) or not all(isinstance(entries, list) for entries in hooks.values()):
            raise ValueError("it is no object with hooks")
    except (OSError, ValueError) as error:
        raise HookProblem(f"{file} cannot be read ({error}), and was not changed: correct it first") from error
    return settings


def _write_settings(file: Path, settings: Mapping[str, Any]) -> None:
    """Write settings, indented as the file was; without any, remove the file."""
    from keepworth.base.durable_files import replacing

    if not settings:
        file.unlink(missing_ok=True)
        return
    before = file.read_text("utf-8") if file.exists() else ""
    indent = re.search(r"\A\s*\{\r?\n([ \t]+)", before)
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as out:
        out.write((json.dumps(settings, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n").encode())


def _remove(file: Path, settings: dict[str, Any]) -> bool:
    """Take the hooks of this program out of a file. Return whether there were any."""
    without = _remove_ours(settings)
    if without == settings:
        return False
    _write_settings(file, without)
    return True


def _remove_ours(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without the hooks of this program, and without what is empty then."""
    events = dict[str, Any]()
    for event, entries in settings.get("hooks", {}).items():
        entries_left = [rest for entry in entries if (rest := _remove_ours_from(entry)) is not None]
        if entries_left or not entries:
            events[event] = entries_left
    out = dict(settings)
    if events or settings.get("hooks") == {}:
        out["hooks"] = events
    else:
        out.pop("hooks", None)
    return out


def _remove_ours_from(entry: Any) -> Any:
    """Return an entry without the hooks of this program; None if none is left."""
    hooks = entry.get("hooks") if isinstance(entry, dict) else None
    if not isinstance(hooks, list) or not any(map(_is_ours, hooks)):
        return entry
    others = [hook for hook in hooks if not _is_ours(hook)]
    return {**entry, "hooks": others} if others else None


def _is_ours(hook: Any) -> bool:
    """Return whether a hook runs this program: `keepworth hook ...`, at any path, or `python -m keepworth hook ...`."""
    command = hook.get("command") if isinstance(hook, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return False
    at = 2 if words[1:3] == ["-m", PROGRAM] else 0
    return words[at + 1 : at + 2] == ["hook"] and re.split(r"[/\\]", words[at])[-1] in (PROGRAM, f"{PROGRAM}.exe")


# -- the command ------------------------------------------------------------------------------------------------------


def _how_many(typed: str) -> int | str:
    return typed if typed == "auto" else int(typed)


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
    made.add_argument("--user", type=_name, default=None, help=f"Whose memory; that of {USER} if not given.")
    made.add_argument("--agent", type=_name, default=None, help="Which agent's memory.")
    made.add_argument(
        "--top-k",
        type=_how_many,
        default=5,
        help="Items recalled at most; auto for those that answer, and none where none does.",
    )
    made.add_argument(
        "--tokens",
        type=int,
        default=None,
        help="The most tokens of what is recalled; the server's usual ones if not given.",
    )
    made.add_argument("--no-keep", action="store_true", help="Do not keep what prompts state.")
    made.add_argument(
        "--no-signals", action="store_true", help="Do not send how tools ended and what the user says next as outcomes."
    )
    made.add_argument(
        "--seconds", type=float, default=None, help=f"How long the host waits at most; {SECONDS:g} if not given."
    )
    made.add_argument("--install", metavar="HOST", help=f"Print the settings of {', '.join(HOSTS)}.")
    made.add_argument("--write", action="store_true", help="With --install: merge them into the project's file.")
    made.add_argument("--uninstall", metavar="HOST", help="Take these hooks out of the project's files again.")
    return made


def _name(given: str) -> str:
    if not given.strip():
        raise argparse.ArgumentTypeError("it is empty: give a name, or leave the option out, which means all")
    return given


def _user_here() -> str:
    """Return the user that the environment names, "" if it names none. Raises HookProblem for an empty name."""
    user = os.environ.get(USER)
    if user is not None and not user.strip():
        raise HookProblem(f"{USER} is empty: set it to a name, or unset it, which means everybody")
    return (user or "").strip()


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code. At an event it is 0 whatever happens, as hosts take 2 for a refusal."""
    try:
        chosen = parser().parse_args(arguments)
    except SystemExit as ended:
        return 1 if ended.code else 0  # a host reports 1 as an error, and goes on
    if chosen.write and not chosen.install:
        _say("--write is of --install HOST")
        return 2
    if chosen.install or chosen.uninstall:
        try:
            if chosen.install and chosen.uninstall:
                raise HookProblem("--install and --uninstall are opposites: give one of them")
            if chosen.uninstall:
                message = uninstall(chosen.uninstall)
            else:
                message = install(chosen.install, _given(chosen), write=chosen.write, named=bool(chosen.user))
        except HookProblem as error:
            _say(str(error))
            return 2
        sys.stdout.write(f"{message}\n")
        return 0
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
        given = parse(_input())
    except ValueError as error:
        raise HookProblem(f"standard input is not the JSON of a host ({error})") from error
    if not isinstance(given, dict):
        raise HookProblem("standard input is not a JSON object of a host")
    event = event_of(given, chosen.event)
    user = chosen.user or _user_here()
    file = session_file(user, event.session)
    session = read_session(file)
    earlier = HookSession(unkept=list(session.unkept), over=session.over)
    outcome = bool(event.command) or event.failed is None
    if event.what == TOOL and not event.text and (chosen.no_signals or not outcome or not session.last):
        return
    bounds = {name: value for name, value in (("user_id", user), ("agent_id", chosen.agent)) if value}
    token = (os.environ.get(TOKEN) or os.environ.get("KEEPWORTH_API_KEY") or "").strip()
    memory = ServedMemory(chosen.url or os.environ.get(URL) or LOCAL, token, bounds, SECONDS)
    try:
        work = HookWork(event, session, memory, chosen.top_k, chosen.tokens, not chosen.no_signals)
        session.over = event.what == END
        if not chosen.no_keep and work.note_prompt(now):
            write_session(file, session, earlier)  # so that it is there at the next event if the host does not wait
        if event.what == BEGIN:
            take_unkept(file, session, earlier, now)
        block = work.block()
        answer = {"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": block}}
        show(json.dumps(answer) if block else "")
        if not chosen.no_keep:
            work.keep()
    finally:
        memory.close()
        write_session(file, session, earlier)
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


PROGRAM = "keepworth"


def _program(portable: bool) -> list[str]:
    """Return the command that runs this program: its name alone if it goes into a file that other machines read too, or if that
    runs it on this one; else the path of the program that runs now."""
    name, program = Path(sys.argv[0]), _find_program()
    here = [str(name.resolve())] if name.name == PROGRAM and name.is_file() else [sys.executable, "-m", PROGRAM]
    on_path = program is not None and (
        Path(program).resolve() == Path(here[0]) or Path(program).parent == Path(sys.executable).parent
    )
    return [PROGRAM] if portable or on_path else here


def _find_program() -> str | None:
    """Return the program that its name runs, None if there is none on the PATH."""
    import shutil

    return shutil.which(PROGRAM)


def _given(chosen: argparse.Namespace) -> list[str]:
    usual = parser().parse_args([])
    pairs = ((name, getattr(chosen, name)) for name in ("url", "user", "agent", "top_k", "tokens", "seconds"))
    options = [(name, value) for name, value in pairs if value != getattr(usual, name)]
    words = [word for name, value in options for word in (f"--{name.replace('_', '-')}", str(value))]
    return [*words, *(["--no-keep"] if chosen.no_keep else []), *(["--no-signals"] if chosen.no_signals else [])]


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"keepworth hook: {without_secrets(line)}\n")
