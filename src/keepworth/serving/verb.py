"""What a verb of memory is: a function with typed fields and a route, and if it has them, a command and a tool for models.

The table of all verbs is `keepworth.serving.verbs`. Everything here is light, so that the help of commands is quick.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

READ, WRITE, UNDO, LEARN, EPISODE, FILE = "Find", "Write", "Undo", "Learn from rewards", "episode", "The file"
"""The headings under which help lists commands, and a group of commands with its name."""
OWN_ENCODER = "own"
"""In place of an encoder's name: the one that made the vectors on file, or none. For commands that rarely need it."""
POLICY = "default"
"""The policy of a memory whose file names none, as in `Memory`."""


@dataclass(frozen=True, slots=True)
class Help:
    """What a field means, for people, models and programs alike, and how the command line spells it. For `Annotated`.

    Attributes:
        text: A sentence.
        spelling: As help of a command shows it: "TEXT" for an argument; "--top-k -k N" for an option, or a part of that. What is
            left out is made of the field's name.
        default: On the command line, in place of the field's own.
        kind: The type of what is typed, in place of the field's own.
        read: Makes the field's value of what was typed.
    """

    text: str
    spelling: str = ""
    default: Any = None
    kind: Any = None
    read: Callable[[Any], Any] | None = None

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Any:
        """Add the text to the JSON Schema of the field. pydantic calls this."""
        return {**handler(core), "description": self.text}


@dataclass(frozen=True, slots=True, eq=False)
class VerbCommand:
    """A verb as a command.

    Attributes:
        usage: The command with the fields that it takes, in the order of help, such as "update id text --trust". One that the
            verb has not goes to the command's printer alone, with the meaning that `more` says.
        heading: That of help, or EPISODE.
        help: What help says in place of the verb's documentation.
        bounds: Whether options name a user, an agent and a session.
        within: Whether the memory is opened within these bounds.
        encoder: Whether an option names the encoder.
        opens: The encoder with which the memory is opened if no option names one; None if the printer opens the memory.
        policy, log, make: How else the memory is opened; `make` if it is not there.
    """

    usage: str
    heading: str
    help: str = ""
    more: Mapping[str, Help] = field(default_factory=dict)
    bounds: bool = False
    within: bool = False
    encoder: bool = False
    opens: str | None = "none"
    policy: str | None = None
    log: str = "background"
    make: bool = False

    @property
    def name(self) -> str:
        return self.usage.split()[0]

    @property
    def fields(self) -> dict[str, bool]:
        """The names of the fields, and whether each is an option, and no argument."""
        return {word.removeprefix("--"): word.startswith("--") for word in self.usage.split()[1:]}


@dataclass(frozen=True, slots=True)
class VerbTool:
    """A verb as a tool for models: its name and the fields that it takes, what it says of itself, and whether it changes items,
    and does not only add some."""

    usage: str
    about: str
    changes: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """One call that a served memory answers."""

    method: str  # the HTTP method
    path: str  # of its route
    role: str  # that a caller must have
    function: Callable[..., Any]  # called with the caller, the values in the path, and the fields of the request
    fields: tuple[type[BaseModel], ...] = ()  # models with the fields that the function takes as `**options`
    of: str = ""  # the method of `Memory` with the same arguments; with "episode." before it, of `LiveEpisode`
    key: str = ""  # the name of the result in the answer; "" if the result is the whole answer
    schema: JsonDict | None = None  # JSON Schema of the fields together, such as that one of two is required
    writes: bool = False  # so that a request may carry an idempotency key
    pages: bool = False  # whether it lists a page at a time; the answer then has `next`
    lines: bool = False  # whether the answer is lines of JSON
    shell: VerbCommand | None = None  # its command
    tool: VerbTool | None = None  # its tool for models, if `mcp_tools` has none of its own for it

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def summary(self) -> str:
        return str(self.function.__doc__).splitlines()[0]

    @property
    def examples(self) -> list[str]:
        """Command lines: those of the documentation that begin with "$"."""
        return re.findall(r"^ *\$ (.*)$", str(self.function.__doc__), re.MULTILINE)

    @property
    def help(self) -> str:
        """What the help of the command says: the documentation without its examples, unless the command has a text of its own."""
        text = re.sub(r"^ *\$ .*$", "", inspect.cleandoc(str(self.function.__doc__)), flags=re.MULTILINE).strip()
        return self.shell.help or text if self.shell else text

    @property
    def takes(self) -> dict[str, FieldInfo]:
        """All fields, those of `fields` too."""
        listed = {name: field for model in self.fields for name, field in model.model_fields.items()}
        return _fields_of(self.function) | listed

    @property
    def model(self) -> type[BaseModel]:
        """Checks the fields of a request."""
        return _model(self)

    @property
    def original(self) -> Callable[..., Any] | None:
        """The method of `Memory` or `LiveEpisode` that `of` names."""
        from keepworth.memory.episode import LiveEpisode
        from keepworth.memory.memory import Memory

        room, _, name = self.of.rpartition(".")
        return getattr(LiveEpisode if room else Memory, name) if name else None

    @property
    def in_body(self) -> bool:
        """Whether the fields come in the body of the request, and not as parameters of its URL."""
        return self.method in ("POST", "PATCH")

    @property
    def in_path(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)


class _Fields(BaseModel):
    """Base of the models of a URL's parameters: unlisted fields are refused, and text is converted to the types of the others."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)


class StrictFields(_Fields):
    """Base of the models of bodies: as `_Fields`, but values must have the right type already."""

    model_config = ConfigDict(strict=True)


@cache
def _fields_of(function: Callable[..., Any]) -> dict[str, FieldInfo]:
    """Return the fields that a verb's function names, those in its path too."""
    hints = get_type_hints(function, include_extras=True)
    return {
        field.name: FieldInfo.from_annotation(hints[field.name])
        if field.default is field.empty
        else FieldInfo.from_annotated_attribute(hints[field.name], field.default)
        for field in list(inspect.signature(function).parameters.values())[1:]
        if field.kind is not field.VAR_KEYWORD
    }


@cache
def _model(verb: Verb) -> type[BaseModel]:
    named = _fields_of(verb.function)
    fields: dict[str, Any] = {
        name: (field.annotation, field) for name, field in named.items() if name not in verb.in_path
    }
    made: type[BaseModel] = create_model(
        verb.name.title().replace("_", ""),
        __base__=(*verb.fields, StrictFields if verb.in_body else _Fields),
        __module__=__name__,
        __cls_kwargs__={"json_schema_extra": verb.schema} if verb.schema else None,
        **fields,
    )
    return made


def verb(route: str, role: str, *fields: type[BaseModel], **options: Any) -> Callable[[Callable[..., Any]], Verb]:
    """Return a decorator that makes a function a verb.

    Args:
        route: "METHOD /path".
        role: The one that a caller must have.
        fields: Models with the fields that the function takes as `**options`.
        options: The other fields of `Verb`.
    """
    method, _, path = route.partition(" ")

    def make(function: Callable[..., Any]) -> Verb:
        return Verb(method, path, role, function, fields, **vars(function), **options)

    return make


def command(usage: str, heading: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a verb a command.

    Args:
        usage: The command's name, its arguments, and its options with dashes before them: all of them fields of the verb.
        heading: That under which help lists it.
        options: The other attributes of `VerbCommand`, and by the name of a field, what it means on the command line alone.
    """
    more = {name: options.pop(name) for name, value in list(options.items()) if isinstance(value, Help)}

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        function.shell = VerbCommand(usage, heading, more=more, **options)  # type: ignore[attr-defined]
        return function

    return add


def tool(usage: str, about: str, changes: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a verb a tool.

    Args:
        usage: The tool's name, and the fields that it takes.
        about: What the tool does, for the model that may call it.
        changes: Whether it changes items, and does not only add some.
    """

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        function.tool = VerbTool(usage, about, changes)  # type: ignore[attr-defined]
        return function

    return add
