"""The parts that all commands share: plain help with headings and examples, options and arguments."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command. Its epilog holds examples, a command line each."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for parameter in self.params:  # help names what is given, and not its type
            parameter.metavar = parameter.metavar or str(parameter.name).upper()

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.epilog:
            with formatter.section("Examples"):  # a command line is to be copied, and is not broken
                formatter.write("".join(f"  {line}\n" for line in self.epilog.splitlines()))


class CommandGroup(TyperGroup):
    """A group of commands. Its help lists them under headings, before the options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)
        TyperCommand.format_options(self, ctx, formatter)  # type: ignore[arg-type]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            heading = getattr(command, "rich_help_panel", None)
            heading = heading if isinstance(heading, str) else "Commands"
            sections.setdefault(heading, []).append((name, first_sentence(command.help or "")))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


def group_in(module: str) -> type[CommandGroup]:
    """Returns the class of a group whose commands are those of the `app` in a module. It is imported when one of them is needed,
    so that the help of the program is quick."""

    class Group(CommandGroup):
        @property
        def commands(self) -> Any:
            return vars(typer.main.get_command(import_module(module).app))["commands"]

        @commands.setter
        def commands(self, _: Any) -> None: ...

    return Group


class App(typer.Typer):
    """A group of such commands. A group that is called alone shows its help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": CommandGroup, "no_args_is_help": True, "rich_markup_mode": None, **options})

    def command(  # type: ignore[override]
        self, name: str | None = None, *, examples: str = "", cls: type[Command] = Command, **options: Any
    ) -> Callable[[Any], Any]:
        """Adds a command.

        Args:
            name: Its name; None for that of the function, with dashes.
            examples: Command lines, one a line, that stand at the end of its help.
            cls: The class of the command, which decides how its help is printed.
            **options: Those of `typer.Typer.command`.
        """
        return super().command(name, cls=cls, epilog=textwrap.dedent(examples).strip() or None, **options)


def option(spelling: str, help: str, **settings: Any) -> Any:
    """Makes an option of a command, for `Annotated`.

    Args:
        spelling: The option as help shows it, such as "--top-k -k N"; "" for the name of the parameter.
        help: The sentence about it in the command's help.
        **settings: Those of `typer.Option`.
    """
    words = spelling.split(" ")
    names = [word for word in words if word.startswith("-")]
    metavar = " ".join(word for word in words if not word.startswith("-")) or None
    return typer.Option(*names, metavar=metavar, help=help, **settings)


def argument(metavar: str, help: str, **settings: Any) -> Any:
    """Makes an argument of a command, for `Annotated`.

    Args:
        metavar: The argument as help shows it; "" for the name of the parameter.
        help: The sentence about it in the command's help.
        **settings: Those of `typer.Argument`.
    """
    return typer.Argument(metavar=metavar or None, help=help, **settings)


def bound(context: typer.Context, parameter: typer.CallbackParam, name: str) -> str:
    """Checks the name that an option gives of a person, an agent, a session or a tenant.

    Args:
        context: The call of the command, which knows where a value comes from.
        parameter: The option that is read.
        name: What was typed, or the default.

    Returns:
        The name, or `ALL` where the option was left out.

    Raises:
        BadParameter: If the name is empty.
    """
    from keepworth.memory.item import ALL

    source = context.get_parameter_source(parameter.name or "")
    if source is None or source.name in ("DEFAULT", "DEFAULT_MAP"):
        return ALL
    if not name:
        raise typer.BadParameter("it is empty: give a name, or leave the option out, which means all")
    return name


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split("\n\n")[0].split()))[0].removesuffix(".")
