"""`keepworth demo`, `keepworth train`, `keepworth recipes`, `keepworth objectives`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, cast

import typer

from keepworth.cli.output import Runs, interruptible, say, say_row
from keepworth.episodes.errors import UnknownName
from keepworth.recipes import RECIPES

if TYPE_CHECKING:
    from pydantic import BaseModel

    from keepworth.learning.run_folder import RunFolder
    from keepworth.learning.watch.progress import Progress


TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events into the run folder.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over: delete what the run folder holds.")]


def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer steps and questions: every part at work, without time to learn.")
    ] = False,
    name: Annotated[
        str, typer.Option("--name", help="Name of the run folder; demo, or demo-quick, if not given.")
    ] = "",
    fresh: Fresh = False,
    tensorboard: TensorBoard = False,
    runs: Runs = Path("runs"),
) -> None:
    """Watch a real language model learn to answer from memory. How long it takes here is said at the start."""
    from keepworth.episodes.extras import require

    require("train", "keepworth demo")
    from keepworth.recipes import memory_r1_demo

    config = {"recipe": "memory_r1", **memory_r1_demo.demo_config(quick).model_dump(mode="json")}
    path = runs / _run_name(name or ("demo-quick" if quick else "demo"))
    again = f"{program()} demo" + (" --quick" if quick else "") + _named(name, runs)
    _carry_out(path, config, fresh, tensorboard, again, lambda run, progress: memory_r1_demo.demo(quick, run, progress))


def train(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe; `keepworth recipes` lists them.")],
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file with settings.")] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting; may be repeated.")
    ] = None,
    role: Annotated[
        str | None, typer.Option("--role", help="Which role to train, where the recipe has several.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Where the tasks are, where they do not ship with keepworth.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of every draw.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Optimiser steps.")] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the run folder; the recipe's name if not given.")] = "",
    fresh: Fresh = False,
    tensorboard: TensorBoard = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the resolved configuration as TOML and exit.")
    ] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Train with a recipe. Given again, the same command continues from the last checkpoint."""
    from keepworth.cli.settings import as_toml, resolve
    from keepworth.episodes.extras import require

    if not print_config:
        require("train", "keepworth train")
    found = find_recipe(recipe)
    short = {"role": role, "data": data, "seed": seed, "steps": steps}
    resolved = resolve(found.Config, file=config, assignments=assign or [], short=short)
    if print_config:
        say(as_toml(resolved), end="")
        return
    record = {"recipe": recipe.replace("-", "_"), **resolved.model_dump(mode="json")}
    path = runs / _run_name(name or "-".join(each for each in (recipe.replace("-", "_"), role) if each))
    again = _last_command()
    _carry_out(path, record, fresh, tensorboard, again, lambda run, progress: found.train(resolved, run, progress))


def recipes() -> None:
    """List the recipes, one line each."""
    from rich.table import Table
    from rich.text import Text

    from keepworth.episodes.text import terminal
    from keepworth.recipes import RECIPES

    table = Table.grid(padding=(0, 3))
    for name in RECIPES:
        table.add_row(Text(name, style="bold"), find_recipe(name).SUMMARY)
    terminal().print(table)


def _carry_out(
    path: Path,
    config: dict[str, object],
    fresh: bool,
    tensorboard: bool,
    again: str,
    work: Callable[[RunFolder, Progress], None],
) -> None:
    """Open the run folder, train with a display, write the report, print the tables."""
    from keepworth.cli.show import print_tables
    from keepworth.episodes.text import terminal
    from keepworth.learning.run_folder import RunFolder
    from keepworth.learning.watch.progress import StatedProgress, progress_for

    if tensorboard:
        from keepworth.learning.watch.dashboard import require_tensorboard

        require_tensorboard()
    console = terminal()
    with RunFolder.create(path, config, resume=not fresh) as run:
        if run.result() is not None:
            console.print(f"{path} holds this run, finished. --fresh runs it again.")
        else:
            with _events(run) if tensorboard else nullcontext():
                _train(run, again, work, StatedProgress(progress_for(), run.path))
        from keepworth.evaluation.report import write_report

        page = write_report(run)
        print_tables(run, console)
        # A command to copy is not broken in two.
        console.print(f"\nReport:    {page}\nEpisodes:  {program()} show {path} --episodes", soft_wrap=True)


@contextmanager
def _events(run: RunFolder) -> Iterator[None]:
    from keepworth.learning.watch.dashboard import Events

    events = Events(run)
    try:
        yield
    finally:
        events.close()


def _train(run: RunFolder, again: str, work: Callable[[RunFolder, Progress], None], progress: Progress) -> None:
    from keepworth.episodes.errors import KeepworthError

    progress.note(f"Everything is written to {run.path}. Ctrl-C stops; the same command continues.")
    if run.resumed_from is not None:
        progress.note(f"Continuing {run.path} from step {run.resumed_from}.")
        for package, (then, now) in run.version_changes().items():
            progress.note(f"{package} was {then} and is {now} now: the run may not continue exactly.")
    try:
        with interruptible():
            work(run, progress)
    except FloatingPointError as error:
        raise KeepworthError(
            f"Training diverged ({error}). The weights of the step before are saved in {run.path}.",
            "Try a lower learning rate: --set learning_rate=..., with another --name.",
        ) from error
    except KeyboardInterrupt:
        progress.finish()
        last = run.latest_checkpoint(verify=False)
        where = f"The last checkpoint is step {last.step}." if last else "There is no checkpoint yet."
        say(f"\nStopped. {where} To continue: {again}")
        raise typer.Exit(130) from None
    finally:
        progress.finish()


def _run_name(name: str) -> str:
    """The name, if it is that of one folder directly under --runs."""
    from keepworth.episodes.errors import KeepworthError

    if name in (".", "..") or any(each in name for each in "/\\\0"):
        raise KeepworthError(
            f"{name!r} cannot be the name of a run: it is one folder's name, not a path.",
            "--runs says where the run folders are.",
        )
    return name


def _named(name: str, runs: Path) -> str:
    return (f" --name {name}" if name else "") + (f" --runs {runs}" if runs != Path("runs") else "")


def _last_command() -> str:
    import shlex
    import sys

    return shlex.join([program(), *(each for each in sys.argv[1:] if each != "--fresh")])


def program() -> str:
    """What to type to run this program again: its name where the shell finds it, else its path (`.venv/bin/keepworth`)."""
    import os
    import shutil
    import sys

    started = Path(sys.argv[0])
    if started.name != "keepworth" or shutil.which("keepworth") or not started.exists():
        return "keepworth"
    path = os.path.relpath(started)
    return str(started) if path.startswith("..") else path


# Recipes by name.


class Recipe(Protocol):
    """What a recipe module holds."""

    Config: type[BaseModel]
    SUMMARY: str

    def train(self, config: BaseModel, run: RunFolder, progress: Progress) -> None: ...


def find_recipe(name: str) -> Recipe:
    """Raises UnknownName with the nearest recipe."""
    module = RECIPES.get(name) or RECIPES.get(name.replace("-", "_"))
    if module is None:
        raise UnknownName("recipe", name, RECIPES)
    return cast("Recipe", import_module(module))


# `keepworth objectives`: the objectives by name, and what each one is made of.


objectives_app = typer.Typer(help="List and explain training objectives.", invoke_without_command=True)

COLUMNS = ("objective", "advantage", "ratio", "surrogate", "correction", "aggregation", "KL")


@objectives_app.callback()
def objectives(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_()


@objectives_app.command("list")
def list_() -> None:
    """List the objectives, a line each: tab-separated where there is no terminal."""
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from keepworth.episodes.text import terminal
    from keepworth.learning.objective.explain import listing

    console = terminal()
    lines = listing()
    if not console.is_terminal:
        for line in (COLUMNS, *lines):
            say_row(*line)
        return
    if console.width >= max(sum(map(len, line)) for line in lines) + 3 * len(COLUMNS):
        table = Table(*COLUMNS, box=box.SIMPLE_HEAD)
        for name, *rest in lines:
            table.add_row(Text(name, style="bold"), *("" if value == "none" else value for value in rest))
        console.print(table)
    else:  # too narrow for columns: what is not there goes without saying
        for name, *rest in lines:
            said = [f"{title} {value}" for title, value in zip(COLUMNS[1:], rest, strict=True) if value != "none"]
            console.print(Text(name, style="bold"))
            console.print(Padding(Text("  ·  ".join(said), style="dim"), (0, 0, 0, 2)))
    console.print("keepworth objectives explain NAME prints the formula and where it was published.", style="dim")


@objectives_app.command()
def explain(name: Annotated[str, typer.Argument(metavar="OBJECTIVE", help="A name from the list.")]) -> None:
    """Say what an objective is made of, and where it was published."""
    from keepworth.learning.objective import explain as explaining

    say(explaining.explain(name))
