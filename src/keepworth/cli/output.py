"""Prints the command line's output and errors.

All output passes through here, so that a terminal interprets no data. A mistake of the user is one red line and a hint, a bug its
traceback and a line."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from keepworth.base.errors import KeepworthError
from keepworth.base.text import json_line, one_line, printable
from keepworth.cli.command import option


class OutputFailed(KeepworthError):
    """What a command prints cannot be written, as where its output goes to a full disk."""


def open_streams() -> None:
    """Gives a process without standard input, output or error, as services and `>&-` start it, ones that hold nothing. Or else
    Python has None in their place, and the next file that is opened takes their number. An output that is closed refuses what is
    written, as a full disk does, so that a command whose result is lost says so."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    for name, mode in (("stdin", "r"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


@contextmanager
def written() -> Iterator[None]:
    """Raises OutputFailed where what is printed inside cannot be written, unless nobody reads it any more."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(
            f"The output of this command cannot be written ({error.strerror or error}).",
            "What the command does is done. Send its output elsewhere, or make room.",
        ) from error


def print_any_text() -> None:
    """Makes standard output and standard error print characters that their encoding lacks, such as emoji on a console of code
    page 1252, as escapes. What a command has done never ends in an error of printing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def say(text: object, *, error: bool = False, end: str = "\n") -> None:
    """Prints a line, or several, on standard output or standard error.

    Args:
        text: What is printed, with control characters made visible.
        error: Whether it goes to standard error.
        end: What stands after it; "" keeps the cursor in the line.
    """
    with written():
        typer.echo(printable(str(text)) + end, nl=False, err=error)


def width() -> int:
    """Returns the number of columns to write for. Without a terminal lines are not broken."""
    wide = sys.stdout.isatty() or "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if wide else 10_000


def say_text(text: str) -> None:
    """Prints sentences, wrapped to the width."""
    say(textwrap.fill(one_line(text), width(), break_on_hyphens=False))


def say_terms(rows: Iterable[tuple[str, str]]) -> None:
    """Prints a list of terms with their meanings, wrapped to the width; a line each where the output is a file or a program."""
    for line in terms(rows, width()):
        say(line)


def terms(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Formats a term with its description next to it, or below where the term is long."""
    rows = list(rows)
    room = min(26, max(len(term) for term, _ in rows) + 2)
    out = []
    for term, meaning in rows:
        lines = textwrap.wrap(meaning, max(20, width - room - 2), break_on_hyphens=False) or [""]
        if len(term) + 2 > room:
            out.append(f"  {term}")
        else:
            out.append(f"  {term:<{room}}{lines.pop(0)}".rstrip())
        out += [f"  {'':<{room}}{line}" for line in lines if line]
    return out


def say_json(record: Any, **settings: Any) -> None:
    """Prints JSON, with escapes of JSON where the output's encoding lacks a character. `settings` are those of `json.dumps`."""
    line = json_line(record, **settings)
    try:
        line.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        line = json.dumps(record, **settings)
    with written():
        typer.echo(line)


def confirm(question: str, yes: bool, why: str = "This cannot be undone") -> None:
    """Asks before an action.

    Args:
        question: The sentence that is answered with y or n.
        yes: Whether the user agreed in advance; then nothing is asked.
        why: The reason to ask, for the error.

    Raises:
        Abort: If the answer is no.
        KeepworthError: If nobody can answer, as standard input is no terminal.
    """
    if yes:
        return
    try:
        agreed = typer.confirm(printable(question), err=True)
    except typer.Abort:  # Ctrl-C, or the end of what is no terminal
        if sys.stdin.isatty():
            raise
        raise KeepworthError(f"{why}, and nobody is there to be asked.", "Add --yes.") from None
    if not agreed:
        say("Nothing was done.", error=True)
        raise typer.Abort


@contextmanager
def stopping(message: str) -> Iterator[None]:
    """Makes Ctrl-C and SIGTERM end the command inside the block, with a line that says what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"\nStopped. {message}", error=True)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Shows a spinner on a terminal during work of unknown length, and elsewhere prints a line after two seconds and from then on
    less and less often. Yields a function that says at what part of it the work is."""
    from keepworth.base.text import terminal

    if sys.stderr.isatty():
        with terminal(stderr=True).status(what) as status:
            yield lambda part: status.update(f"{what} {part}")
        return
    begun, ended, at = time.monotonic(), threading.Event(), ""

    def report(part: str) -> None:
        nonlocal at
        at = f" {part}"

    def tell() -> None:
        wait = 2.0
        while not ended.wait(wait):
            say(f"{what}{at} ({time.monotonic() - begun:.0f} s so far)", error=True)
            wait = min(60.0, max(10.0, 2.0 * wait))

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield report
    finally:
        ended.set()
        teller.join()


# Options that several commands have.


Runs = Annotated[Path, typer.Option("--runs", help="Folder that holds the run folders.", envvar="KEEPWORTH_RUNS")]
Secrets = Annotated[
    str, option("--secrets", "What becomes of texts with keys or passwords: quarantine, redact, refuse, allow.")
]
Personal = Annotated[str, option("--personal", "The same for mail addresses, phone and account numbers.")]
ModelSignals = Annotated[
    int,
    option(
        "--model-signals N",
        "The most times in a day that OPENAI_MODEL is asked what a user's next message says of the answer, where the rules do "
        "not tell; 0 for never.",
        min=0,
    ),
]


# How the command line fails.


MISTAKE, BUG, INTERRUPTED = 2, 1, 130


def is_ours(error: BaseException) -> bool:
    """Whether the error's class is defined in this package, so that it was raised on purpose, with a message for people."""
    return any(kind.__module__.split(".")[0] == "keepworth" for kind in type(error).__mro__)


def report_mistake(error: BaseException) -> int:
    """Prints what is wrong and how to fix it, and returns the exit code."""
    _say_error(str(getattr(error, "message", "") or error), str(getattr(error, "fix", "")))
    return MISTAKE


def report_usage(error: Exception) -> int:
    """Reports a command line that cannot be parsed: unknown command or option, missing argument. A group alone shows its help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(str(error), err=True)
        return MISTAKE
    path = context.command_path if context is not None else "keepworth"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    _say_error(message, f"{path} --help shows what there is.")
    return MISTAKE


def report_bug(error: BaseException) -> int:
    """Prints the traceback and a line that says what broke, and returns the exit code."""
    say("".join(traceback.format_exception(error)), error=True, end="")
    _say_error(
        f"something broke inside keepworth: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}",
        "Please report it with the lines above, and read them before: they may quote your data.",
    )
    return BUG


def _say_error(message: str, fix: str) -> None:
    from rich.text import Text

    from keepworth.base.text import terminal

    console = terminal(stderr=True)
    console.print(Text.assemble(("error: ", "bold red"), (message, "red")), soft_wrap=True)
    if fix:
        console.print(Text.assemble(("  hint: ", "bold"), fix), soft_wrap=True)
