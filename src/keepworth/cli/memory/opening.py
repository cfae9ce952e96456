"""What the commands of a memory share: their options, how they open the file, and how they print an item."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.cli.output import say, say_json
from keepworth.episodes.text import one_line
from keepworth.memory.place import MemoryPlace, file_of, place_of

if TYPE_CHECKING:
    from keepworth.episodes.model import EncoderIdentity
    from keepworth.memory.item import Item
    from keepworth.memory.memory import Memory


def _option(help: str) -> Any:
    return typer.Option(
        "--file", "-f", parser=place_of, metavar="FILE", envvar="KEEPWORTH_MEMORY", help=help, show_default=True
    )


File = Annotated[MemoryPlace, _option("The memory file, or an address: postgresql://user@host/database.")]
FileAlone = Annotated[MemoryPlace, _option("The memory file.")]
Target = Annotated[Path, typer.Argument(parser=file_of, help="A new file.")]
User = Annotated[str, typer.Option("--user", "-u", metavar="NAME", help="Whose memory.")]
Agent = Annotated[str, typer.Option("--agent", metavar="NAME", help="Which agent's memory.")]
Session = Annotated[str, typer.Option("--session", metavar="NAME", help="Which session's memory.")]
Encoder = Annotated[
    str,
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="minilm, hashing, hashing:DIMENSION, a folder, URL#MODEL, or none to use words only. Default: the file's own.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print a line of JSON per result.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where", metavar="FILTER", help="Metadata, as NAME=VALUE or as JSON; several have to hold together."
    ),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="An item's id, such as m17.")]
DEFAULT = MemoryPlace("keepworth.mem")
POLICY = "default"
"""What chooses and learns where the file does not say otherwise, as of `Memory`."""


@contextmanager
def opened(
    file: MemoryPlace,
    encoder: str,
    *,
    make: bool = False,
    identity: EncoderIdentity | None = None,
    policy: str | None = None,
    writer: bool = False,
    **bounds: Any,
) -> Iterator[Memory]:
    """identity: the encoder to use where the file has no vectors yet and none was named; bounds: of the scope.
    writer: whether one is needed that reads messages: it takes time to load, and may be a model that costs money."""
    import keepworth
    from keepworth.memory.errors import MemoryProblem

    existed = check_there(file, make)
    if identity is not None and file.on_server:
        from keepworth.memory.store.opening import is_there

        existed = is_there(file.given)
    chosen: Any = None if encoder == "none" else encoder
    if identity is not None and not existed:
        chosen = keepworth.encoder(encoder, identity)
    memory = keepworth.Memory(file.opens, encoder=chosen, policy=policy, writer="default" if writer else None, **bounds)
    try:
        yield memory
    except BaseException:
        # What could not be done leaves no empty memory behind.
        with suppress(MemoryProblem):
            existed = existed or bool(memory.store.head())
        memory.close()
        if not existed and not file.on_server:  # others may have begun to use what is on a server
            file.file.unlink(missing_ok=True)
        raise
    memory.close()


def check_there(file: MemoryPlace, make: bool = False) -> bool:
    """Whether a memory is there. Raises NotAMemoryFile where none is, unless it is to be made.
    A server is asked only where none is to be made."""
    from keepworth.memory.errors import NotAMemoryFile

    if file.on_server:
        from keepworth.memory.store.opening import is_there

        if make:
            return True
        if not is_there(file.given):
            raise NotAMemoryFile(
                f"There is no memory at {file}.",
                "`keepworth memory add` makes one. Another database or ?schema= may be meant.",
            )
        return True
    if file.file.exists():
        return True
    if not make:
        raise NotAMemoryFile(f"There is no memory at {file}.", _instead_of(file.file))
    return False


def _instead_of(file: Path) -> str:
    """What to type where a file is not there: whoever has one beside it most likely means that one."""
    beside = sorted(each for each in file.parent.glob("*.mem") if each.is_file())
    if not beside:
        return "`keepworth memory add` makes one; --file names another."
    if len(beside) == 1:
        (found,) = beside
        name = shlex.quote(str(found))
        return f"Say --file {name}, or once for this terminal: export KEEPWORTH_MEMORY={name}"
    more = f" and {len(beside) - 5} more" if len(beside) > 5 else ""
    return f"Name one with --file: {', '.join(map(str, beside[:5]))}{more} are there."


def named(file: MemoryPlace) -> list[str]:
    """The option that names the memory again, in a command to copy: without a password."""
    return ["--file", str(file)] if file != DEFAULT else []


def lines_given() -> list[str]:
    from keepworth.memory.errors import InvalidText

    try:
        texts = [line.rstrip("\n") for line in sys.stdin if line.strip()]
    except UnicodeDecodeError as error:
        raise InvalidText(
            f"Standard input is not UTF-8 text ({error}).",
            "Convert it first, with iconv for example; nothing was stored.",
        ) from error
    if not texts:
        raise InvalidText("Standard input had no text.", "Give one text per line; nothing was stored.")
    return texts


def print_item(item: Item, as_json: bool, **more: Any) -> None:
    if as_json:
        from keepworth.memory.item import to_record

        say_json({**to_record(item), **more})
    else:
        say(f"{item.id:>6}  {one_line(item.text)}{mark(item)}")


def mark(item: Item) -> str:
    return f"  ({item.standing})" if item.standing else ""


def tell_nothing(memory: Memory, file: MemoryPlace, *, narrowed: bool) -> None:
    """What to do where nothing was found. narrowed: options left something out."""
    there = len(memory)
    if not there:
        said = f"Nothing found: {file} is empty. `keepworth memory add TEXT` puts something in."
    elif narrowed:
        items = "1 item" if there == 1 else f"{there:,} items"
        said = f"Nothing found, and {file} holds {items}: leave options out, or see `keepworth memory list`."
    else:
        said = "Nothing found."
    say(said, error=True)
