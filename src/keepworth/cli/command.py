"""What every command of the command line has in common: its help.

Help is plain text for any width. Boxes would take eight columns of 80, and the library that draws them half of the time that
help takes.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from keepworth.cli.output import terms


class _PlainHelp:
    """Of commands and groups."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for parameter in vars(self)["params"]:
            if parameter.param_type_name == "argument" and not parameter.metavar:
                parameter.metavar = parameter.name.upper()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help_of(self, ctx))


class Command(_PlainHelp, TyperCommand):
    """A command. Its epilog holds examples, a command line each."""


class CommandGroup(_PlainHelp, TyperGroup):
    """A group of commands."""


class App(typer.Typer):
    """A group of such commands. A group that is called alone shows its help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": CommandGroup, "no_args_is_help": True, "rich_markup_mode": None, **options})

    def command(  # type: ignore[override]
        self, name: str | None = None, *, examples: str = "", cls: type[Command] = Command, **options: Any
    ) -> Callable[[Any], Any]:
        """examples: command lines, one a line, for the end of its help."""
        return super().command(name, cls=cls, epilog=textwrap.dedent(examples).strip() or None, **options)


def option(spelling: str, help: str, **settings: Any) -> Any:
    """An option of a command, for `Annotated`.

    Args:
        spelling: As help shows it, such as "--top-k -k N"; "" for the name of the parameter.
        settings: Of `typer.Option`.
    """
    words = spelling.split(" ")
    names = [word for word in words if word.startswith("-")]
    metavar = " ".join(word for word in words if not word.startswith("-")) or None
    return typer.Option(*names, metavar=metavar, help=help, **settings)


def argument(metavar: str, help: str, **settings: Any) -> Any:
    """An argument of a command, for `Annotated`. metavar: as help shows it; "" for the name of the parameter."""
    return typer.Argument(metavar=metavar or None, help=help, **settings)


def help_of(command: Any, ctx: Any) -> str:
    """Usage, what it does, its commands, arguments and options, and examples: at most 100 columns, and as few as there are."""
    width = width_of_help()
    parameters = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    options = [parameter for parameter in parameters if parameter.param_type_name != "argument"]
    groups = hasattr(command, "commands")
    pieces = ["[OPTIONS]", *map(_usage, arguments), *(["COMMAND ..."] if groups else [])]
    usage = textwrap.fill(f"Usage: {ctx.command_path} {' '.join(pieces)}", width, subsequent_indent="  ")
    out = [usage.replace("Usage:", _heading("Usage:"), 1), ""]
    for paragraph in (command.help or "").split("\n\n"):
        out += [*textwrap.wrap(" ".join(paragraph.split()), width), ""]
    sections: dict[str, list[tuple[str, str]]] = {}
    for name, each in getattr(command, "commands", {}).items():
        if not each.hidden:
            title = getattr(each, "rich_help_panel", None)
            title = title if isinstance(title, str) else "Commands"
            sections.setdefault(title, []).append((name, first_sentence(each.help or "")))
    sections["Arguments"] = [(_usage(each), _said(each, ctx)) for each in arguments]
    sections["Options"] = [(_spelled(each), _said(each, ctx)) for each in options]
    for title, rows in sections.items():
        if rows:
            out += [_heading(title), *terms(rows, width), ""]
    if command.epilog:
        out += [_heading("Examples"), *(f"  {line}" for line in command.epilog.splitlines()), ""]
    return "\n".join(out)


def width_of_help() -> int:
    return max(40, min(100, shutil.get_terminal_size().columns))


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split("\n\n")[0].split()))[0].removesuffix(".")


def _heading(text: str) -> str:
    return typer.style(text, bold=True)


def _usage(argument: Any) -> str:
    name = str(argument.metavar).strip("[]").removesuffix("...")
    name += "..." if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def _spelled(option: Any) -> str:
    """Such as `-f, --file FILE`: names with one dash first, and no value where there is none to give."""
    names = ", ".join(sorted(option.opts, key=len)) + "".join(f" / {opt}" for opt in option.secondary_opts)
    long = max(option.opts, key=len).lstrip("-").upper().replace("-", "_")
    return names if option.is_flag or getattr(option, "count", False) else f"{names} {option.metavar or long}"


def _said(parameter: Any, ctx: Any) -> str:
    notes = []
    shown = getattr(parameter, "show_default", True)
    default = parameter.get_default(ctx, call=False)
    if isinstance(shown, str):
        notes.append(f"default: {shown}")
    elif shown and default not in (None, "", False) and not callable(default) and not getattr(parameter, "is_eager", 0):
        notes.append(f"default: {default}")
    if parameter.envvar:
        notes.append(f"or set {parameter.envvar}")
    return " ".join([(parameter.help or "").strip(), *([f"[{'; '.join(notes)}]"] if notes else [])])
