"""The group `keepworth memory` and the parts that its commands share. Each is a function of the open memory that yields its
output."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from keepworth.base.text import one_line
from keepworth.cli.command import App, argument, option
from keepworth.cli.output import say, say_json
from keepworth.memory.errors import EncoderMismatch, InvalidText, MemoryProblem, NotAMemoryFile
from keepworth.memory.place import MemoryPlace, place_of

if TYPE_CHECKING:
    from keepworth.memory.item import Item
    from keepworth.memory.memory import Memory
    from keepworth.records.model import EncoderIdentity

app = App(help="Keep, find, correct and undo what agents remember.")
READ, WRITE, LEARN, UNDO, FILE = "Find", "Write", "Learn from rewards", "Undo", "The file"
"""The headings under which its help lists the verbs."""
DEFAULT = MemoryPlace("keepworth.mem")
OWN_ENCODER = "own"
"""In place of an encoder's name: the one that made the vectors on file, or none. For commands that rarely need it."""
POLICY = "default"
"""The policy of a memory whose file names none, as in `Memory`."""

# -- arguments and options --------------------------------------------------------------------------------------------


File = Annotated[
    MemoryPlace,
    option(
        "--file -f FILE",
        "The memory file, or an address: postgresql://user@host/database.",
        parser=place_of,
        envvar="KEEPWORTH_MEMORY",
    ),
]
User = Annotated[str, option("--user -u NAME", "Whose memory.")]
Agent = Annotated[str, option("--agent NAME", "Which agent's memory.")]
Session = Annotated[str, option("--session NAME", "Which session's memory.")]
Encoder = Annotated[
    str,
    option(
        "--encoder NAME",
        "minilm, hashing, hashing:DIMENSION, a folder, URL#MODEL, or none to use words only. Default: the file's own.",
        show_default=False,
    ),
]
Json = Annotated[bool, option("--json", "Print a line of JSON per result.")]
Yes = Annotated[bool, option("--yes -y", "Do not ask.")]
Where = Annotated[
    list[str] | None, option("--where FILTER", "Metadata, as NAME=VALUE or as JSON; several have to hold together.")
]
Id = Annotated[str, argument("ID", "An item's id, such as m17.")]
TopK = Annotated[int, option("--top-k -k N", "How many.", min=1)]
Limit = Annotated[int, option("--limit -n N", "At most this many.", min=1)]
Source = Annotated[str, option("", "Where it came from; one can roll back by it.")]
Snapshot = Annotated[str, argument("SNAPSHOT", "A state by name, such as s12: see `snapshot`.")]

_BOUNDS = {"user": User, "agent": Agent, "session": Session}


# -- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One result: its record with --json, else its text, which may be a renderable of rich; None where there is nothing to
    print."""

    record: Any
    text: Any = None


class NoteLine(str):
    """A remark on standard error besides the results: what is missing, and what to do next."""


Lines = Iterator[Line | NoteLine]


def command(
    place: str | App,
    name: str | None = None,
    *,
    examples: str,
    opens: str | None = "none",
    encoder: bool = False,
    bounds: bool = False,
    within: bool = False,
    context_settings: dict[str, Any] | None = None,
    **settings: Any,
) -> Callable[[Callable[..., Lines]], Callable[..., Lines]]:
    """Makes a command of a function that yields its output.

    The function receives those that it names of `memory` (open), `file`, `encoder`, `bounds` (user_id, agent_id and session_id)
    and `as_json`. Its other parameters are arguments and options.

    Args:
        place: A heading of the group's help, or a group in it.
        opens: The encoder with which the memory is opened, see `opened`; None where the function opens it.
        encoder: Whether an option names the encoder.
        bounds: Whether options name a user, an agent and a session.
        within: Whether the memory is opened within these bounds.
        settings: How the memory is opened, see `opened`.
    """

    def make(function: Callable[..., Lines]) -> Callable[..., Lines]:
        signature = inspect.signature(function).parameters

        def run(**values: Any) -> None:
            here, as_json = values.pop("file"), values.pop("as_json")
            named = {f"{bound}_id": values.pop(bound) for bound in _BOUNDS if bounds}
            chosen = values.pop("encoder", opens)
            shared = {"file": here, "as_json": as_json, "encoder": chosen, "bounds": named}
            values |= {name: value for name, value in shared.items() if name in signature}
            if opens is None:
                print_lines(function(**values), as_json)
                return
            with opened(here, chosen, **settings, **(named if within else {})) as memory:
                print_lines(function(memory, **values), as_json)

        def parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
            return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

        scope = getattr(function, "__globals__", {})
        # Annotations are read one by one: those of what is shared are known to type checkers alone.
        parameters = [
            parameter(option.name, eval(option.annotation, scope), option.default)
            for option in signature.values()
            if option.name not in ("memory", "file", "as_json", "encoder", "bounds")
        ]
        parameters.append(parameter("file", File, DEFAULT))
        parameters += [parameter(bound, kind, "") for bound, kind in _BOUNDS.items() if bounds]
        parameters += [parameter("encoder", Encoder, "default")] if encoder else []
        parameters.append(parameter("as_json", Json, False))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        group, panel = (app, place) if isinstance(place, str) else (place, None)
        group.command(name, rich_help_panel=panel, examples=examples, context_settings=context_settings)(run)
        return function

    return make


def print_lines(lines: Lines, as_json: bool) -> None:
    for line in lines:
        if isinstance(line, NoteLine):
            say(line, error=True)
        elif as_json:
            if line.record is not None:
                say_json(line.record)
        elif isinstance(line.text, str):
            say(line.text)
        elif line.text is not None:
            from keepworth.base.text import terminal

            terminal().print(line.text)


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
    """Opens a memory.

    Args:
        encoder: Its name; "own" for the one that made the vectors on file, if there are any and it can be opened.
        make: Whether to make it where it does not exist.
        identity: The encoder to use where the file has no vectors yet and none was named.
        writer: Whether a writer that reads messages is needed: it takes time to load, and may be a model that costs money.
        bounds: The bounds of the scope, and further options of `Memory`.
    """
    import keepworth

    existed = check_there(file, make)
    if identity is not None and file.on_server:
        from keepworth.memory.store.opening import is_there

        existed = is_there(file.given)
    chosen: Any = None if encoder in ("none", OWN_ENCODER) else encoder
    if identity is not None and not existed:
        chosen = keepworth.encoder(encoder, identity)
    memory = keepworth.Memory(file.opens, encoder=chosen, policy=policy, writer="default" if writer else None, **bounds)
    try:
        if encoder == OWN_ENCODER and (made_by := memory.store.encoder_identity()) is not None:
            from keepworth.memory.search.index import Embedder

            with suppress(EncoderMismatch):  # `check` names what has no vector
                memory.store.use(Embedder(keepworth.encoder("default", made_by)))
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
    """Returns whether a memory exists. Raises NotAMemoryFile where it does not, unless it is to be made. A server is asked only
    where none is to be made."""
    if file.on_server:
        from keepworth.memory.store.opening import is_there

        if make or is_there(file.given):
            return True
        raise NotAMemoryFile(
            f"There is no memory at {file}.",
            "`keepworth memory add` makes one. Another database or ?schema= may be meant.",
        )
    there = os.path.exists(file.file)  # False, too, for a name that is too long
    if not (there or make):
        raise NotAMemoryFile(f"There is no memory at {file}.", _instead_of(file.file))
    return there


def _instead_of(file: Path) -> str:
    """Suggests what to type where a file does not exist, most likely the name of a memory next to it."""
    others = sorted(path for path in file.parent.glob("*.mem") if path.is_file())
    if not others:
        serve = f"keepworth serve --memory {shlex.quote(str(file))}"
        return f"`keepworth memory add` makes one, or `{serve}`; --file names another."
    if len(others) == 1:
        name = shlex.quote(str(others[0]))
        return f"Say --file {name}, or once for this terminal: export KEEPWORTH_MEMORY={name}"
    more = f" and {len(others) - 5} more" if len(others) > 5 else ""
    return f"Name one with --file: {', '.join(map(str, others[:5]))}{more} are there."


def again(file: MemoryPlace, *words: str) -> str:
    """Returns a command to copy, which names the memory without a password."""
    return shlex.join(["keepworth", "memory", *words, *(["--file", str(file)] if file != DEFAULT else [])])


def read_lines() -> list[str]:
    """Reads the texts of standard input, one a line. Raises InvalidText."""
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


def every_page(page_after: Callable[[str], list[Item]]) -> Iterator[Item]:
    """Yields items page by page, each requested after the last id of the previous one."""
    after = ""
    while page := page_after(after):
        yield from page
        after = page[-1].id


# -- what is printed --------------------------------------------------------------------------------------------------


def item_line(item: Item, **more: Any) -> Line:
    return Line({**plain(item), **more}, f"{item.id:>6}  {one_line(item.text)}{mark(item)}")


def plain(value: Any) -> Any:
    """Converts a value to JSON as the server does."""
    from keepworth.serving.wire import plain

    return plain(value)


def mark(item: Item) -> str:
    return f"  ({item.standing})" if item.standing else ""


def nothing_found(memory: Memory, file: MemoryPlace, *, narrowed: bool) -> NoteLine:
    """Suggests what to do where nothing was found. `narrowed` says that options left items out."""
    there = len(memory)
    if not there:
        return NoteLine(f"Nothing found: {file} is empty. `keepworth memory add TEXT` puts something in.")
    if not narrowed:
        from keepworth.memory.store.maintenance import statistics

        lacking = statistics(memory.store).unembedded
        reason = f": {lacking:,} of {there:,} items have no vector, which `keepworth memory reembed` makes"
        return NoteLine(f"Nothing found{reason if lacking else ''}.")
    items = "1 item" if there == 1 else f"{there:,} items"
    return NoteLine(f"Nothing found, and {file} holds {items}: leave options out, or see `keepworth memory list`.")
