"""`keepworth memory experiment`: which lines of the instructions of a coding assistant help."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from keepworth.base.text import entry, one_line
from keepworth.cli.command import App, argument, option
from keepworth.cli.memory.group import Agent, Line, Lines, NoteLine, User, Yes, again, app, command, opened
from keepworth.cli.output import confirm, say, stopping, width
from keepworth.memory.errors import MemoryProblem, NotAMemoryFile
from keepworth.memory.place import MemoryPlace, file_of
from keepworth.serving.verb import LEARN

if TYPE_CHECKING:
    from keepworth.adapters.instructions import RunningExperiment, SplitFile
    from keepworth.memory.memory import Memory

experiment_app = App(help="Learn which lines of CLAUDE.md, AGENTS.md and the like help.")
app.add_typer(experiment_app, name="experiment", rich_help_panel=LEARN)
Files = Annotated[
    list[Path], argument("FILE", "CLAUDE.md, AGENTS.md, .cursor/rules/*.mdc and the like.", parser=file_of)
]
TheseFiles = Annotated[
    list[Path] | None,
    argument("FILE", "All in this folder with which an experiment runs, if not given.", parser=file_of),
]


@command(
    experiment_app,
    "start",
    examples="""
    keepworth memory experiment start CLAUDE.md --file agent.mem
    keepworth memory experiment start CLAUDE.md AGENTS.md --user ana --yes
    """,
    encoder=True,
    opens=None,
)
def start_experiment(
    file: MemoryPlace,
    encoder: str,
    paths: Files,
    user: User = "",
    agent: Agent = "",
    without_hooks: Annotated[
        bool,
        option("--without-hooks", "No hook is installed here: something else shows the notes, such as the gateway."),
    ] = False,
    yes: Yes = False,
) -> Lines:
    """Move lines out of files of instructions and into the memory, whose hooks show them where they fit; says the cost and asks.

    Chance leaves a fitting line out in one turn of four, and outcomes say what each line is worth. Lines that forbid something,
    that are about what must not leak or break, and pinned ones stay. A copy lies beside the file, and `restore` puts it back."""
    from keepworth.adapters.instructions import plan, start

    bounds = {"user_id": user if without_hooks else _user_of_hooks(user), "agent_id": agent}
    with opened(file, encoder, make=True) as memory:
        plans = plan(memory, paths, **bounds)
        moving = sum(len(one.moving) for one in plans)
        if not moving:
            raise MemoryProblem(
                "No line may move: each forbids something, is pinned, or loads a file.",
                "Nothing was done. `keepworth memory import` makes notes of the lines and leaves the files as they are.",
            )
        for line in _cost_lines(plans):
            say(line, error=True)
        confirm(f"Move {moving} lines into {file}?", yes, why="Lines leave a file that your assistant reads")
        with stopping("What was moved has a copy beside it: `keepworth memory experiment restore` puts it back."):
            items = start(memory, plans, **bounds)
        ids = iter(items)
        for one in plans:
            notes = [next(ids).id for _ in one.moving]
            record = {"file": one.name, "moved": len(one.moving), "stayed": len(one.staying), "notes": notes}
            yield Line(record, f"{one.name}: {len(one.moving)} lines moved, {len(one.staying)} stayed.")
    yield NoteLine(
        f"What is known so far: {again(file, 'experiment', 'show')}\nThe end: {again(file, 'experiment', 'restore')}"
    )


def _user_of_hooks(user: str) -> str:
    """Returns whose notes the hooks here show. Raises MemoryProblem where nothing would show notes, or not those of `user`."""
    from keepworth.serving.hook import USER, installed

    hosts = installed([Path(), Path.home()])
    if not hosts:
        raise MemoryProblem(
            "No coding assistant runs the hooks here, so that nobody would show it the lines that move.",
            "Install them: keepworth hook --install claude-code --write; or say --without-hooks where the gateway shows notes.",
        )
    users = sorted({name or os.environ.get(USER, "").strip() for _, name in hosts})
    if user and users != [""] and user not in users:
        raise MemoryProblem(
            f"The hooks here search the notes of {', '.join(filter(None, users))}, and would not find those of {user}.",
            f"Say --user {shlex.quote(next(filter(None, users)))}, or install the hooks for {user}.",
        )
    return users[0] if not user and len(users) == 1 and users[0] else user


def _cost_lines(plans: Sequence[SplitFile]) -> Lines:
    """Says what the experiment does and costs."""
    from keepworth.adapters.instructions import SHARE
    from keepworth.memory.choose.ledger import LEAST_EACH, rows_needed

    for one in plans:
        yield NoteLine(f"{one.name}: {len(one.moving)} lines move ({one.tokens:,} tokens), {len(one.staying)} stay:")
        for line, reason in one.staying:
            yield NoteLine(
                entry(f"  line {line.first:>4}  ", f"{reason}: {one_line(line.text):.80}", min(width(), 110))
            )
    deviation = math.sqrt(0.25 / (SHARE * (1.0 - SHARE)))
    turns = {effect: max(rows_needed(effect, deviation), math.ceil(LEAST_EACH / SHARE)) for effect in (0.5, 0.2)}
    listed = "; ".join(
        f"one worth {100 * effect:.0f} of 100 points is decided after some {many} such turns, and costs some "
        f"{100 * effect * SHARE:.0f} points a turn until then"
        for effect, many in turns.items()
    )
    yield NoteLine(
        f"The cost: while it runs, the assistant sees these lines only where they fit what is asked, and in {SHARE:.0%} of the "
        "turns where one fits that is not in the context yet chance leaves it out; where several fit, each in "
        f"{min(2 * SHARE, 0.5):.0%} of them, until it is known. "
        f"{listed[0].upper()}{listed[1:]}. It needs `keepworth serve` and turns with an outcome. Git shows the files as changed: "
        "leave them out of commits until `restore`."
    )


@command(experiment_app, "show", examples="keepworth memory experiment show --file agent.mem", opens=None)
def show_experiment(file: MemoryPlace, paths: TheseFiles = None) -> Lines:
    """Say of each line that moved what is known of it by now."""
    from keepworth.memory.choose.review import review_items

    running = _running(paths)
    with opened(file, "none", policy="default") as memory:
        _check_home(memory, running)
        places = {id: one for one in running for id in one.notes}
        items = [
            item for item in memory.store.fetch(memory.scope, list(places)).values() if item is not None and item.open
        ]
        review = review_items(items, memory.ledger(items=[item.id for item in items]))
    heading = ""
    for reviewed in review.items:
        if reviewed.group != heading:
            heading = reviewed.group
            yield Line(None, f"{heading[0].upper()}{heading[1:]}:")
        item = reviewed.item
        where = f"{item.metadata.get('file', '')}:{item.metadata.get('line', '')}"
        record = {
            "item": item.id,
            "place": where,
            "text": item.text,
            "group": reviewed.group,
            "points": reviewed.points,
        }
        text = entry(f"{item.id:>6}  ", f"{where}  {one_line(item.text):.100}", min(width(), 110))
        evidence = entry("        ", f"{reviewed.sentence} {reviewed.needs}".strip(), min(width(), 110))
        yield Line({**record, "sentence": reviewed.sentence, "needs": reviewed.needs}, f"{text}\n{evidence}")
    retired = len(places) - len(items)
    gone = f" {retired} are retired." if retired else ""
    yield NoteLine(f"{review.summary}{gone} `keepworth memory review` retires, keeps and pins.")


@command(
    experiment_app,
    "restore",
    examples="""
    keepworth memory experiment restore --file agent.mem
    keepworth memory experiment restore CLAUDE.md --kept
    """,
    opens=None,
)
def restore_experiment(
    file: MemoryPlace,
    paths: TheseFiles = None,
    rewrite: Annotated[
        bool, option("--kept", "Without the lines that you retired, and with those that you reworded.")
    ] = False,
    force: Annotated[
        bool, option("--force", "Also where a file was changed meanwhile: what it is now is kept beside it.")
    ] = False,
) -> Lines:
    """End an experiment: each file is as it was, to the byte, and its notes go into the archive with what is known of them."""
    from keepworth.adapters.instructions import restore

    running = _running(paths)
    try:
        with opened(file, "own") as memory:
            _check_home(memory, running)
            sentences = restore(memory, running, rewrite=rewrite, force=force)
    except NotAMemoryFile as problem:
        if rewrite:
            raise
        sentences = restore(None, running, force=force)
        yield NoteLine(f"The notes were left as they are: {problem.message}")
    for one, sentence in zip(running, sentences, strict=True):
        yield Line({"file": one.name, "restored": True, "sentence": sentence}, sentence)


def _check_home(memory: Memory, running: Sequence[RunningExperiment]) -> None:
    """Raises MemoryProblem where the notes of an experiment are in another memory."""
    here = {memory.path, str(Path(memory.path).resolve())}
    other = next((one for one in running if one.memory not in here), None)
    if other is not None:
        raise MemoryProblem(
            f"The notes of the experiment with {other.name} are in {other.memory}, and not in {memory.path}.",
            f"Say --file {shlex.quote(other.memory)}.",
        )


def _running(paths: list[Path] | None) -> list[RunningExperiment]:
    """Returns the experiments with these files, or all in this folder. Raises MemoryProblem where there is none."""
    from keepworth.adapters.instructions import running_at, running_in

    running: list[Any] = [running_at(path) for path in paths] if paths else list(running_in(Path()))
    without = [path for path, one in zip(paths or (), running, strict=False) if one is None]
    if without or not running:
        where = f"with {without[0]}" if without else "in this folder"
        raise MemoryProblem(
            f"No experiment runs {where}.",
            "`keepworth memory experiment start FILE...` begins one; name files that are elsewhere.",
        )
    return running
