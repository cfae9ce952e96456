"""How the command line fails: one red line and a hint for mistakes, a saved traceback for bugs."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

MISTAKE, BUG, INTERRUPTED = 2, 1, 130


def is_ours(error: BaseException) -> bool:
    """Whether the error's class is defined in this package: raised on purpose, with a message for people."""
    return any(each.__module__.split(".")[0] == "recollect" for each in type(error).__mro__)


def report_mistake(error: BaseException) -> int:
    """Say what is wrong and how to mend it; returns the exit code."""
    message = str(getattr(error, "message", "") or error)
    mend = str(getattr(error, "mend", "") or getattr(error, "hint", "") or "")
    if mend and message.endswith(mend):
        message = message.removesuffix(mend).strip()
    if not mend and " Mend: " in message:
        message, mend = message.split(" Mend: ", 1)
    _say(message, mend)
    return MISTAKE


def report_usage(error: Exception) -> int:
    """A command line that does not parse: unknown command or option, missing argument."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "recollect"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    _say(message, f"{path} --help shows what there is.")
    return MISTAKE


def report_bug(error: BaseException) -> int:
    """Say in one line what broke and where the traceback is; returns the exit code."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    line = str(error).strip().split("\n", 1)[0]
    _say(
        f"something broke inside recollect: {type(error).__name__}: {line}",
        f"The traceback is in {_save(text)}; --debug prints it. Please report it.",
    )
    return BUG


def _say(message: str, mend: str) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    console.print(Text.assemble(("error: ", "bold red"), (message, "red")), soft_wrap=True)
    if mend:
        console.print(Text.assemble(("  hint: ", "bold"), mend), soft_wrap=True)


def _save(text: str) -> str:
    name = f"recollect-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    for folder in (Path(tempfile.gettempdir()), Path.cwd()):
        try:
            path = folder / name
            path.write_text(f"$ {' '.join(sys.argv)}\n\n{text}", encoding="utf-8")
        except OSError:
            continue
        return str(path)
    return "no file (neither the temporary nor the working directory can be written)"
