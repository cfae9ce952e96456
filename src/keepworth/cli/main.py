"""`keepworth`: the command line's root. Every command imports what it needs when it runs, so that help is instant."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from keepworth import __version__
from keepworth.base.interruption import interruptible
from keepworth.cli import output
from keepworth.cli.command import App, group_in, option
from keepworth.cli.control import app as control_app
from keepworth.cli.doctor import doctor
from keepworth.cli.eval_stream import app as evaluate_app
from keepworth.cli.export import export
from keepworth.cli.learn import learn
from keepworth.cli.methods import app as methods_app
from keepworth.cli.models import models_app
from keepworth.cli.output import say
from keepworth.cli.serve import serve
from keepworth.cli.show import report, show
from keepworth.cli.train import TrainCommand, demo, train

app = App(
    name="keepworth",
    help="Memory that learns from reward, for language-model agents.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
REMEMBER, LEARN, LOOK, SET_UP = "Remember", "Learn", "Look", "Set up"
app.add_typer(
    App(help="Keep, find, correct and undo what agents remember.", cls=group_in("keepworth.cli.memory")),
    name="memory",
    rich_help_panel=REMEMBER,
)
app.command(
    rich_help_panel=REMEMBER,
    examples="""
    keepworth serve --memory agent.mem
    keepworth serve --memory agent.mem --upstream https://api.openai.com/v1
    keepworth serve demo --memory agent.mem
    """,
)(serve)


@app.command(
    rich_help_panel=REMEMBER,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def hook(context: typer.Context) -> None:
    """Give a coding assistant a memory that recalls and records through its hooks."""
    from keepworth.serving import hook

    raise typer.Exit(hook.run(context.args))


app.command(
    rich_help_panel=REMEMBER,
    examples="""
    keepworth learn ~/.claude/projects --memory agent.mem --dry-run
    keepworth learn ~/.codex/sessions runs.jsonl --memory agent.mem --user ana --yes
    """,
)(learn)
app.command(
    rich_help_panel=LEARN,
    examples="""
    keepworth demo
    keepworth demo --quick
    """,
)(demo)
app.command(
    cls=TrainCommand,
    rich_help_panel=LEARN,
    examples="""
    keepworth train memory_r1 --help
    keepworth train memory_r1 --seed 1 --steps 60 --name longer
    keepworth train --tasks problems.jsonl --reward my_reward.py:named
    """,
)(train)
app.command(rich_help_panel=LEARN, examples="keepworth export demo demo-model --role answerer")(export)
app.add_typer(control_app, name="control", rich_help_panel=LEARN)
app.add_typer(methods_app, name="methods", rich_help_panel=LOOK)
app.add_typer(evaluate_app, name="eval", rich_help_panel=LOOK)
app.command(
    rich_help_panel=LOOK,
    examples="""
    keepworth show
    keepworth show demo --episodes --worst --limit 10
    """,
)(show)
app.command(rich_help_panel=LOOK, examples="keepworth report")(report)
app.add_typer(models_app, name="models", rich_help_panel=SET_UP)
app.command(rich_help_panel=SET_UP, examples="keepworth doctor")(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"keepworth {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, option("--version", "Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, option("--debug", "Let errors show their traceback; before or after the command.")] = False,
) -> None: ...


def run() -> None:
    """The `keepworth` program: exit codes are 0, 1 (a bug), 2 (a mistake to fix) and 130 (stopped with Ctrl-C)."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    """Runs one invocation and returns the exit code. It raises only with --debug, which may stand anywhere."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--debug" in options:
        os.environ["KEEPWORTH_DEBUG"] = "1"
        arguments = [word for word in options if word != "--debug"] + arguments[len(options) :]
    output.open_streams()
    output.print_any_text()
    # Libraries draw bars of their own while they load; ours is the only one on the screen.
    os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        with interruptible():
            code = app(arguments, prog_name="keepworth", standalone_mode=False)
            with output.written():
                sys.stdout.flush()
    except BrokenPipeError:
        return _unread()
    except output.OutputFailed as error:
        _unread()
        return output.report_mistake(error)
    except SystemExit as ended:  # click makes an exit of a closed pipe
        if isinstance(ended.__context__, BrokenPipeError):
            return _unread()
        raise
    except (KeyboardInterrupt, typer.Abort):
        return output.INTERRUPTED
    except _USAGE as error:  # a traceback would say nothing of it
        return output.report_usage(error)
    except Exception as error:
        if "KEEPWORTH_DEBUG" in os.environ:
            raise
        return output.report_mistake(error) if output.is_ours(error) else output.report_bug(error)
    return code if isinstance(code, int) else 0


def _unread() -> int:
    """Sends what is left of the output to nowhere. If a reader has closed it (`keepworth show x | head`), that is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


# typer carries its own copy of click in late versions and imports click in earlier ones: ask it which class it raises.
_USAGE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
