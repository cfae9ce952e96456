"""The group `keepworth memory`, with the commands that are made of the verbs of memory, and the parts that all commands share."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args

from annotated_types import Ge
from pydantic_core import PydanticUndefined
from typer.models import ArgumentInfo

from keepworth.base.text import one_line
from keepworth.cli.command import App, argument, bound, option
from keepworth.cli.output import say, say_json
from keepworth.memory.errors import EncoderMismatch, InvalidText, MemoryProblem, NotAMemoryFile
from keepworth.memory.place import MemoryPlace, place_of
from keepworth.serving.verb import EPISODE, LEARN, OWN_ENCODER, Help, Verb, VerbCommand
from keepworth.serving.verbs import VERBS, VerbCaller

if TYPE_CHECKING:
    from keepworth.memory.item import Item
    from keepworth.memory.memory import Memory
    from keepworth.records.model import EncoderIdentity

app = App(help="Keep, find, correct and undo what agents remember.")
episode_app = App(help="Record an attempt at a task, so that its reward reaches what was shown and written in it.")
app.add_typer(episode_app, name="episode", rich_help_panel=LEARN)
DEFAULT = MemoryPlace("keepworth.mem")
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
User = Annotated[str, option("--user -u NAME", "Whose memory.", callback=bound)]
Agent = Annotated[str, option("--agent NAME", "Which agent's memory.", callback=bound)]
Session = Annotated[str, option("--session NAME", "Which session's memory.", callback=bound)]
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
_BOUNDS = {"user": User, "agent": Agent, "session": Session}


# -- what a command prints --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One result: its record with --json, else its text, which may be a renderable of rich; None where there is nothing to
    print."""

    record: Any
    text: Any = None


class NoteLine(str):
    """A remark on standard error besides the results: what is missing, and what to do next."""


Lines = Iterator[Line | NoteLine]


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


# -- commands of the file ---------------------------------------------------------------------------------------------


def command(
    place: str | App,
    name: str | None = None,
    *,
    examples: str,
    opens: str | None = "none",
    encoder: bool = False,
    bounds: bool = False,
) -> Callable[[Callable[..., Lines]], Callable[..., Lines]]:
    """Makes a command of a function that yields its output.

    The function receives those that it names of `memory` (open), `file`, `encoder`, `bounds` (user_id, agent_id and session_id)
    and `as_json`. Its other parameters are arguments and options.

    Args:
        place: A heading of the group's help, or a group in it.
        name: The command's name; None for that of the function, with dashes.
        examples: Command lines, one a line, that stand at the end of its help.
        opens: The encoder with which the memory is opened, see `opened`; None where the function opens it.
        encoder: Whether an option names the encoder.
        bounds: Whether options name a user, an agent and a session.
    """

    def make(function: Callable[..., Lines]) -> Callable[..., Lines]:
        signature = inspect.signature(function).parameters

        def run(file: MemoryPlace, as_json: bool, chosen: str, bounds: dict[str, str], values: dict[str, Any]) -> None:
            shared = {"file": file, "as_json": as_json, "encoder": chosen, "bounds": bounds}
            values |= {name: value for name, value in shared.items() if name in signature}
            if opens is None:
                print_lines(function(**values), as_json)
                return
            with opened(file, chosen) as memory:
                print_lines(function(memory, **values), as_json)

        scope = getattr(function, "__globals__", {})
        # Annotations are read one by one: those of what is shared are known to type checkers alone.
        parameters = [
            _parameter(option.name, eval(option.annotation, scope), option.default)
            for option in signature.values()
            if option.name not in ("memory", "file", "as_json", "encoder", "bounds")
        ]
        shell = VerbCommand(name or function.__name__, "", bounds=bounds, encoder=encoder, opens=opens)
        group, shell = (app, replace(shell, heading=place)) if isinstance(place, str) else (place, shell)
        _add(group, shell, str(function.__doc__), examples, run, parameters)
        return function

    return make


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _add(
    group: App,
    shell: VerbCommand,
    help: str,
    examples: str,
    run: Callable[[MemoryPlace, bool, str, dict[str, str], dict[str, Any]], None],
    parameters: list[inspect.Parameter],
) -> None:
    """Adds a command to a group, with the options that commands share. `run` receives the place of the memory, whether JSON is
    printed, the encoder, the bounds, and the values of `parameters`."""

    def typed(**values: Any) -> None:
        file, as_json = values.pop("file"), values.pop("as_json")
        bounds = {f"{bound}_id": values.pop(bound) for bound in _BOUNDS if shell.bounds}
        run(file, as_json, values.pop("encoder", shell.opens), bounds, values)

    kinds = [get_args(parameter.annotation) for parameter in parameters]
    # A negative number looks like an option.
    numbers = any(isinstance(made, ArgumentInfo) and kind in (int, float) for kind, made in kinds)
    parameters.append(_parameter("file", File, DEFAULT))
    parameters += [_parameter(bound, kind, "") for bound, kind in _BOUNDS.items() if shell.bounds]
    parameters += [_parameter("encoder", Encoder, "default")] if shell.encoder else []
    parameters.append(_parameter("as_json", Json, False))
    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    typed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    typed.__doc__ = help
    settings = {"ignore_unknown_options": True} if numbers else None
    panel = shell.heading or None
    group.command(shell.name, rich_help_panel=panel, examples=examples, context_settings=settings)(typed)


# -- commands of the verbs --------------------------------------------------------------------------------------------


@dataclass
class Call:
    """A verb as it was typed. Called with fields in addition to those, it carries the verb out and returns its result.

    Attributes:
        values: What was typed, or the default, by the names of the fields.
        bounds: `user_id`, `agent_id` and `session_id`, if the command has them.
        memory: The memory, once it is open.
    """

    verb: Verb
    shell: VerbCommand
    file: MemoryPlace
    as_json: bool
    encoder: str
    bounds: dict[str, str]
    values: dict[str, Any]
    memory: Memory = field(init=False)

    @contextmanager
    def opened(self, **options: Any) -> Iterator[None]:
        """Opens the memory. `options` are those of `opened`, besides the command's."""
        bounds: dict[str, Any] = self.bounds if self.shell.within else {}
        settings = {"make": self.shell.make, "policy": self.shell.policy, "log": self.shell.log, **options}
        with opened(self.file, self.encoder, **settings, **bounds) as self.memory:
            yield

    def narrowed(self, *names: str) -> bool:
        """Whether the bounds, or options with these names, leave items out."""
        return any(self.bounds.values()) or any(self.values[name] for name in names)

    def __call__(self, **more: Any) -> Any:
        from keepworth.serving.access import Access
        from keepworth.serving.open_memories import OpenMemory

        options: dict[str, Any] = {} if self.shell.within else dict(self.bounds)
        for name, info in self.verb.takes.items():
            if name in self.values and self.values[name] not in (info.default, None):
                read = _help_of(self.verb, self.shell, name).read
                options[name] = self.values[name] if read is None else read(self.values[name])
        caller = VerbCaller(self.memory, Access("command line"), OpenMemory(self.memory))
        return self.verb.function(caller, **{**options, **more})


PRINTERS: dict[str, Callable[[Call], Lines]] = {}
"""By the names of verbs, the functions that carry out a call and yield what is printed."""


def prints(verb: Verb) -> Callable[[Callable[[Call], Lines]], Callable[[Call], Lines]]:
    """Returns a decorator for the printer of a verb. A verb without one prints its result, a line for each entry of a list."""

    def add(function: Callable[[Call], Lines]) -> Callable[[Call], Lines]:
        PRINTERS[verb.name] = function
        return function

    return add


def _print_result(call: Call) -> Lines:
    result = call()
    for entry in result if isinstance(result, list) else [result]:
        record = plain(entry)
        yield item_line(entry) if "text" in record else Line(record, one_line(json.dumps(record, ensure_ascii=False)))


def add_verb(verb: Verb, shell: VerbCommand) -> None:
    """Adds the command of a verb."""

    def run(file: MemoryPlace, as_json: bool, encoder: str, bounds: dict[str, str], values: dict[str, Any]) -> None:
        call = Call(verb, shell, file, as_json, encoder, bounds, values)
        printer = PRINTERS.get(verb.name, _print_result)
        with nullcontext() if shell.opens is None else call.opened():
            print_lines(printer(call), as_json)

    parameters = [_parameter_of(verb, shell, name, is_option) for name, is_option in shell.fields.items()]
    if shell.heading == EPISODE:
        _add(episode_app, replace(shell, heading=""), verb.help, "\n".join(verb.examples), run, parameters)
    else:
        _add(app, shell, verb.help, "\n".join(verb.examples), run, parameters)


def _parameter_of(verb: Verb, shell: VerbCommand, name: str, is_option: bool) -> inspect.Parameter:
    help, info = _help_of(verb, shell, name), verb.takes.get(name)
    if help.kind is None and info is not None:
        kinds = get_args(info.annotation) or (info.annotation,)
        kind: Any = next((kind for kind in (bool, int, float) if kind in kinds and str not in kinds), str)
        default = info.get_default()
        kind = kind | None if default is None else kind
    else:
        kind = help.kind
        default = False if kind is bool else None if NoneType in get_args(kind) else PydanticUndefined
    least = [bound.ge for bound in (info.metadata if info else ()) if isinstance(bound, Ge)]
    settings = {"min": least[0]} if least else {}
    if is_option:
        dashed = "" if "--" in help.spelling else f"--{name.replace('_', '-')} "
        made = option(f"{dashed}{help.spelling}".strip(), help.text, **settings)
    else:
        made = argument(help.spelling, help.text, **settings)
    default = default if help.default is None else help.default
    return _parameter(name, Annotated[kind, made], inspect.Parameter.empty if default is PydanticUndefined else default)


def _help_of(verb: Verb, shell: VerbCommand, name: str) -> Help:
    """Returns what a field means on the command line."""
    if (help := shell.more.get(name)) is not None:
        return help
    field = verb.takes[name]
    return next((help for help in field.metadata if isinstance(help, Help)), Help(field.description or ""))


for _verb in VERBS:
    if _verb.shell is not None:
        add_verb(_verb, _verb.shell)


# -- opening a memory -------------------------------------------------------------------------------------------------


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
        file: Where the memory is: a file, or an address in Postgres.
        encoder: Its name; "own" for the one that made the vectors on file, if there are any and it can be opened.
        make: Whether to make it where it does not exist.
        identity: The encoder to use where the file has no vectors yet and none was named.
        policy: The name of the policy that chooses what is shown; None for the one on file.
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


BEGINNING = 500
"""The tokens of a long note that a line of several notes shows, as what a search shows is a passage. --json has all of it."""


def item_line(item: Item, **more: Any) -> Line:
    return Line({**plain(item), **more}, f"{item.id:>6}  {beginning(item.text)}{mark(item)}")


def beginning(text: str) -> str:
    """Returns a text in one line or, if it is long, the beginning of it with a mark."""
    from keepworth.memory.search.passages import GAP, part_from

    begins, rest = part_from(text, tokens=BEGINNING)
    return f"{one_line(begins)} {GAP}" if rest else one_line(text)


def plain(value: Any) -> Any:
    """Converts a value to JSON as the server does."""
    from keepworth.serving.wire import plain

    return plain(value)


def mark(item: Item) -> str:
    return f"  ({item.standing})" if item.standing else ""


def nothing_found(memory: Memory, file: MemoryPlace, *, narrowed: bool) -> NoteLine:
    """Suggests what to do where nothing was found.

    Args:
        memory: The open memory, which is asked how many items it holds.
        file: Where it is, for the message.
        narrowed: Whether options left items out.
    """
    from keepworth.memory.store.maintenance import statistics

    there = len(memory)
    figures = statistics(memory.store) if not there or not narrowed else None
    if not there and figures is not None and (gone := figures.closed + figures.deleted):
        items = "the 1 item" if gone == 1 else f"all {gone:,} items"
        closed = f"{items} of {file} {'is' if gone == 1 else 'are'} closed or deleted"
        return NoteLine(f"Nothing found: {closed}: `keepworth memory list --all` lists them.")
    if not there:
        return NoteLine(f"Nothing found: {file} is empty. `keepworth memory add TEXT` puts something in.")
    if figures is not None:
        lacking = figures.unembedded
        reason = f": {lacking:,} of {there:,} items have no vector, which `keepworth memory reembed` makes"
        return NoteLine(f"Nothing found{reason if lacking else ''}.")
    items = "1 item" if there == 1 else f"{there:,} items"
    return NoteLine(f"Nothing found, and {file} holds {items}: leave options out, or see `keepworth memory list`.")
