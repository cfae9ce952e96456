"""`keepworth export`: writes a run's weights as a folder that other programs load, or its episodes in a format of others."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from keepworth.base.errors import require_known
from keepworth.base.extras import require
from keepworth.cli.command import argument, option
from keepworth.cli.output import Runs, say, say_json

if TYPE_CHECKING:
    from keepworth.training.run_folder import RunFolder


def export(
    run: Annotated[str, argument("RUN", "A run's name under --runs, or its folder.")],
    folder: Annotated[Path, argument("FOLDER", "What to make; it must not hold anything else.")],
    adapter: Annotated[bool, option("--adapter", "Keep adapter and base apart; by default they are merged.")] = False,
    role: Annotated[str, option("--role", "Which of the run's roles, where it trained several.")] = "",
    episodes: Annotated[
        str,
        option("--episodes", "Write the episodes instead: atif (Harbor's trajectories), or trl (TRL's data sets)."),
    ] = "",
    as_json: Annotated[bool, option("--json", "Print what was made, and how it compares, as JSON.")] = False,
    runs: Runs = Path("runs"),
) -> None:
    """Write what a run trained into a folder that transformers, PEFT and vLLM load, or the episodes that it was trained on."""
    require("train", "keepworth export")
    from keepworth.training.export import export
    from keepworth.training.run_folder import find_run

    if episodes:
        from keepworth.training.exchange import FORMATS, write_episodes

        files = write_episodes(find_run(run, runs), folder, require_known("format", episodes, FORMATS))
        if as_json:
            say_json([str(file) for file in files], indent=1)
        else:
            say(f"{len(files)} files in {folder}")
        return
    done = export(find_run(run, runs), folder, merged=not adapter, role=role)
    if as_json:
        say_json(asdict(done), indent=1, default=str)
        return
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"{folder}  {done.kind}, {done.role} at step {done.step}, {done.dtype}, {size / 1e6:.0f} MB")
    say(f"Read back with transformers: {done.agreement}")
    say(f"How to load it, and what was measured: {folder / 'README.md'}")


def uses_of(run: RunFolder) -> list[tuple[str, str]]:
    """Lists the uses of a run's weights: a word for each, and the command after the program's name."""
    from keepworth.training.run_folder import MANAGER

    path = shlex.quote(str(run.path))
    uses: list[tuple[str, str]] = []
    roles = run.finished_roles()
    for role in roles:
        chosen = f" --role {role}" if len(roles) > 1 else ""
        folder = shlex.quote(f"{run.name}-{role}" if chosen else f"{run.name}-model")
        uses.append(("Export", f"export {path} {folder}{chosen}"))
        if role == MANAGER:
            uses.append(("Remember", f"serve --memory agent.mem --writer {path}"))
        else:
            uses.append(("Remember", f"serve {path} --memory agent.mem{chosen}"))
    return uses
