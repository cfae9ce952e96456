"""`keepworth demo` and `keepworth train`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.base.errors import KeepworthError
from keepworth.base.extras import require
from keepworth.base.interruption import interruptible
from keepworth.cli.command import Command, argument, option
from keepworth.cli.export import uses_of
from keepworth.cli.output import Runs, say
from keepworth.memory.place import file_of
from keepworth.training.front_door import TASKS, carry_out, describe_stop, make_recipe, record_of, run_name
from keepworth.training.recipe import Origin, Recipe

if TYPE_CHECKING:
    from keepworth.training.run_folder import RunFolder
    from keepworth.training.watch.progress import Progress


Track = Annotated[
    str, option("--track NAME", "Also log to wandb, tensorboard, mlflow or a function of yours: FILE.py:NAME.")
]
Fresh = Annotated[bool, option("--fresh", "Start over: delete what the run folder holds.")]


def demo(
    quick: Annotated[bool, option("--quick", "Few steps: every part runs, but the model learns little.")] = False,
    name: Annotated[str, option("--name", "Name of the run folder; demo, or demo-quick, if not given.")] = "",
    fresh: Fresh = False,
    runs: Runs = Path("runs"),
) -> None:
    """Watch a real language model learn to answer from memory. How long it takes is said at the start."""
    require("train", "keepworth demo")
    from keepworth.models.threads import available_cores

    recipe = make_recipe(Origin("memory_r1"))
    settings = DEMO_QUICK if quick else DEMO
    config = recipe.Config(**settings)
    path = runs / run_name(name or ("demo-quick" if quick else "demo"))

    def work(run: RunFolder, progress: Progress) -> None:
        if run.latest_checkpoint(verify=False) is None:
            cores = min(available_cores(), 2)
            progress.note(
                f"About {DEMO_MINUTES[quick][cores - 1]:.0f} min on {cores} idle cores with bfloat16, longer without it, or "
                "where other programs compute."
                + ("" if quick else " `keepworth demo --quick` (make demo QUICK=1) takes few steps.")
            )
        recipe.train(config, run, progress)

    _carry_out(path, record_of(recipe, config, "memory_r1"), fresh, "", work)


DEMO: Mapping[str, Any] = {"curve": "test", "evaluate_every": 5, "checkpoint_every": 5}
DEMO_QUICK: Mapping[str, Any] = {**DEMO, "steps": 4, "evaluate_every": 4, "questions": 12, "checkpoint_every": 2}
"""Enough steps to see every part at work, too few to learn much."""
DEMO_MINUTES = {False: (7.3, 6.3), True: (1.5, 1.0)}
"""Minutes that the whole takes on one idle core and on two or more (docs/appendix/results.md); True: the quick demo."""


def train(
    recipe: Annotated[str, argument("", "A recipe's name or a file of Python; none with --tasks.")] = "",
    tasks: Annotated[str | None, option("--tasks FILE", "Your own tasks: JSON lines with prompt and answer.")] = None,
    source: Annotated[
        Path | None, option("--source SOURCE", "Conversations, or a memory, to imitate.", parser=file_of)
    ] = None,
    reward: Annotated[
        list[str] | None,
        option(
            "--reward FILE.py:NAME",
            "With --tasks: a function of (answer, row), one of TRL's form, a verifier's name, or signals; may be repeated.",
        ),
    ] = None,
    environment: Annotated[
        str | None, option("--environment FILE.py:NAME", "With --tasks: makes the environment of a task.")
    ] = None,
    agent: Annotated[
        str | None,
        option("--agent AGENT", "With --tasks: a command, or FILE.py:NAME, that calls a model at OPENAI_BASE_URL."),
    ] = None,
    memory: Annotated[
        Path | None,
        option("--memory MEMORY", "With --tasks: a memory whose items are shown with a task.", parser=file_of),
    ] = None,
    config: Annotated[Path | None, option("--config", "A TOML file with settings.")] = None,
    assign: Annotated[list[str] | None, option("--set KEY=VALUE", "One setting; may be repeated.")] = None,
    role: Annotated[str | None, option("--role", "Which role to train, where the recipe has several.")] = None,
    data: Annotated[str | None, option("--data", "Where the tasks are, where they do not ship with keepworth.")] = None,
    model: Annotated[str | None, option("--model", "A model's name, its folder, or a Hugging Face id.")] = None,
    seed: Annotated[int | None, option("--seed", "Seed of every draw.")] = None,
    steps: Annotated[int | None, option("--steps", "Optimiser steps.")] = None,
    name: Annotated[str, option("--name", "Name of the run folder; the recipe's name if not given.")] = "",
    fresh: Fresh = False,
    track: Track = "",
    print_config: Annotated[bool, option("--print-config", "Print the configuration as TOML and exit.")] = False,
    every: Annotated[bool, option("--all", "With a recipe and --help: every setting.")] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Train with a recipe, or on your own tasks. Given again, the same command continues from the last checkpoint.

    RECIPE --help shows the settings of the recipe that matter."""
    from keepworth.training.configuration import as_toml, resolve

    if every:
        raise KeepworthError("--all goes with --help.", "Add --help; --print-config prints every setting as TOML.")
    if not print_config:
        require("train", "keepworth train")
    chosen = _asked_for(recipe, tasks, source, reward or [], environment, agent, memory)
    short = {"role": role, "data": data, "model": model, "seed": seed, "steps": steps}
    settings = resolve(chosen.Config, base=chosen.settings, file=config, assignments=assign or [], short=short)
    if print_config:
        say(as_toml(settings), end="")
        return
    called = Path(recipe).stem.replace("-", "_") if recipe else TASKS
    recipe_name = chosen.given.tasks.name if not recipe and chosen.given is not None else called
    whole = run_name(name or "-".join(part for part in (recipe_name, role) if part))
    record = record_of(chosen, settings, called)

    def work(run: RunFolder, progress: Progress) -> None:
        chosen.train(settings, run, progress)

    _carry_out(runs / whole, record, fresh, track, work)


class TrainCommand(Command):
    """The command `train`. Its help shows the settings of the named recipe."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["keepworth.words"] = list(args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        given, _, _ = self.make_parser(ctx).parse_args(list(ctx.meta["keepworth.words"]))
        name = given.get("recipe")
        if not isinstance(name, str):
            return
        from keepworth.training.configuration import describe_settings

        recipe, every = make_recipe(Origin(name)), bool(given.get("every"))
        rest = "" if every else "; --all shows the others"
        with formatter.section(f"Settings of {name} (--set NAME=VALUE{rest})"):
            formatter.write_dl(describe_settings(recipe.Config, recipe.settings, every))


def _asked_for(
    recipe: str,
    tasks: str | None,
    source: Path | None,
    reward: list[str],
    environment: str | None,
    agent: str | None,
    memory: Path | None,
) -> Recipe:
    """Returns the recipe of that name or file, or the one that --tasks or --source and their options define."""
    if tasks is None and source is None:
        options = {"--reward": reward, "--environment": environment, "--agent": agent, "--memory": memory}
        for option, value in options.items():
            if value:
                raise KeepworthError(
                    f"{option} goes with tasks of your own.", "Add --tasks FILE.jsonl, or --source FILE."
                )
        if not recipe:
            raise KeepworthError(
                "Nothing was said to train on.",
                "Name a recipe (`keepworth methods --kind recipe`), a file of Python, --tasks FILE.jsonl, or --source FILE.",
            )
        return make_recipe(Origin(recipe))
    if recipe:  # beside --tasks or --source: what else belongs to no recipe was refused above
        option = "--source" if tasks is None else "--tasks"
        raise KeepworthError(f"There are a recipe ({recipe}) and {option}.", "Leave one of them out.")
    origin = Origin(
        tasks=tasks,
        source=None if source is None else str(source),
        reward=tuple(reward),
        environment=environment,
        agent=agent,
        memory=None if memory is None else str(memory),
    )
    return make_recipe(origin)


def _carry_out(
    path: Path, config: Mapping[str, object], fresh: bool, track: str, work: Callable[[RunFolder, Progress], None]
) -> None:
    """Opens the run's folder, trains with a display, writes the report, and prints the tables."""
    from keepworth.base.text import terminal
    from keepworth.cli.show import print_tables
    from keepworth.training.front_door import track_of
    from keepworth.training.run_folder import RunFolder
    from keepworth.training.watch.progress import progress_for

    tracker = track_of(track)
    console = terminal()
    with RunFolder.create(path, config, resume=not fresh) as run:
        try:
            with interruptible():
                carry_out(run, lambda progress: work(run, progress), progress_for(), tracker)
        except KeyboardInterrupt:
            again = shlex.join([program(), *(word for word in sys.argv[1:] if word != "--fresh")])
            say(f"\n{describe_stop(run)} To continue: {again}")
            raise typer.Exit(130) from None
        print_tables(run, console)
        # A command to copy is not broken in two.
        lines = [
            ("Report", str(run.path / "report.html")),
            ("Episodes", f"{program()} show {shlex.quote(str(path))} --episodes"),
        ]
        lines += [(name, f"{program()} {command}") for name, command in uses_of(run)]
        console.print("\n" + "\n".join(f"{name + ':':<10} {line}" for name, line in lines), soft_wrap=True)


def program() -> str:
    """Returns what to type to run this program again: its name where the shell finds it, else its path
    (`.venv/bin/keepworth`)."""
    import os
    import shutil

    started = Path(sys.argv[0])
    if started.name != "keepworth" or shutil.which("keepworth") or not started.exists():
        return "keepworth"
    path = os.path.relpath(started)
    return str(started) if path.startswith("..") else path
