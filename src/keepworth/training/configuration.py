"""Configurations from files and options. Later ones override earlier ones: the defaults, `--config`, `--set` and the short
options."""

from __future__ import annotations

import tomllib
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from keepworth.base.errors import KeepworthError, UnknownName, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


class BadSetting(KeepworthError):
    """A configuration value does not fit its key."""


SHORT = {"objective": "preset"}
"""Sections that may be given as a single word, with the key that the word sets: `--set objective=grpo`."""


def resolve(
    model: type[BaseModel],
    *,
    base: Mapping[str, Any] | None = None,
    file: Path | None = None,
    assignments: Sequence[str] = (),
    short: Mapping[str, object] | None = None,
) -> BaseModel:
    """Returns a validated configuration.

    Args:
        model: The class of the configuration.
        base: Values that override the defaults.
        file: A TOML file, whose values override those of `base`; None for none.
        assignments: Texts of the form `a.b=c`.
        short: Options with a name of their own (`seed`, `steps`, ...); None means not given.

    Raises:
        UnknownName: A key does not exist; the message has the nearest.
        BadSetting: A value does not fit; the message has the key, the value and what was expected.
    """
    from pydantic import ValidationError

    fields = model.model_fields
    tree: dict[str, Any] = {**(base or {}), **(load_toml(file) if file else {})}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key = key.strip()
        if not equals or not key:
            raise BadSetting(f"--set takes key=value, not {assignment!r}.", "For example --set seed=3.")
        _put(tree, key, _parse(text.strip(), fields[key].annotation if key in fields else None))
    for name, value in (short or {}).items():
        if value is not None:
            if name not in fields:
                raise BadSetting(
                    f"--{name} has no effect here: this recipe has no such setting.", "See --print-config."
                )
            tree[name] = value
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise _explained(error, fields) from error


MATTER = (
    "model",
    "seed",
    "steps",
    "tasks_per_step",
    "group_size",
    "learning_rate",
    "temperature",
    "train",
    "objective",
)
"""The settings shared by recipes that help shows first. Those of the recipe itself follow, up to `SHOWN` in all."""
ALSO = ("evaluate_every", "questions", "checkpoint_every", "sampling", "entropy", "passes")
SHOWN = 15


def describe_settings(model: type[BaseModel], base: Mapping[str, Any], every: bool = False) -> list[tuple[str, str]]:
    """Returns (`key = default`, description) of settings. A configuration names its most important settings in `matters`;
    without it, they are the first that it declares.

    Args:
        model: The class of the configuration.
        base: Values that take the place of defaults.
        every: Whether all settings are described, or the most important ones.
    """
    from keepworth.training.settings import Settings

    fields, values = model.model_fields, resolve(model, base=base)
    shown = [*getattr(model, "matters", ()), *(key for key in fields if key not in Settings.model_fields)]
    order = [key for key in MATTER if key in fields]
    order += [key for key in dict.fromkeys(shown) if key in fields][: SHOWN - len(order)]
    order += [key for key in ALSO if key in fields][: SHOWN - len(order)]
    rows = []
    for key in fields if every else order:
        value = getattr(values, key)
        # A recipe that changes the default of a shared setting does not repeat its description.
        kinds = (getattr(kind, "model_fields", {}) for kind in model.__mro__)
        descriptions = (kind[key].description for kind in kinds if key in kind)
        rows.append(
            (f"{key} = {_value(value) if isinstance(value, str) else value}", next(filter(None, descriptions), ""))
        )
    return rows


def load_toml(path: Path) -> dict[str, Any]:
    """Reads a TOML file. Raises BadSetting where it is missing or is not TOML, with the line."""
    try:
        text = path.read_text(encoding="utf-8")
        return dict(tomllib.loads(text))
    except FileNotFoundError as error:
        near = nearest(path.stem, [file.stem for file in path.parent.glob("*.toml")])  # they all end alike
        hint = f"Did you mean {path.with_name(f'{near}.toml')}?" if near else ""
        raise BadSetting(f"There is no configuration file {path}.", hint) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"{path} cannot be read as TOML: {error}.") from error


def as_toml(config: BaseModel) -> str:
    """Returns the configuration as a TOML file that `--config` reads back to the same values."""
    # TOML has no null: a key left out reads back as its default.
    lines = (
        f"# {key} is not set" if value is None else f"{key} = {_value(value)}"
        for key, value in config.model_dump(mode="json").items()
    )
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    """Formats a value on one line of TOML. Tables stand in braces, without their null entries."""
    import json

    if isinstance(value, Mapping):
        inside = (f"{json.dumps(key)} = {_value(cell)}" for key, cell in value.items() if cell is not None)
        return f"{{{', '.join(inside)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _put(tree: dict[str, Any], key: str, value: object) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        below = tree.setdefault(parent, {})
        if parent in SHORT and isinstance(below, str):
            below = tree[parent] = {SHORT[parent]: below}
        if not isinstance(below, dict):
            raise BadSetting(f"{key}: {parent} is a value, not a section.")
        tree = below
    tree[last] = value


def _parse(text: str, annotation: Any) -> object:
    """Parses lists, tables and quoted strings as TOML, and `none` as None where the key is optional. pydantic parses other
    texts."""
    optional = get_origin(annotation) in (Union, types.UnionType) and type(None) in get_args(annotation)
    if text.lower() in ("none", "null") and optional:
        return None
    if text[:1] in ("[", "{", '"', "'"):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise BadSetting(f"{text!r} is not a TOML value: {error}.") from error
    return text


def _explained(error: ValidationError, keys: Iterable[str]) -> KeepworthError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return UnknownName("setting", key, keys)
    problems = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        raised = problem.get("ctx", {}).get("error")
        message = raised.message if isinstance(raised, KeepworthError) else problem["msg"].removeprefix("Value error, ")
        problems.append(f"{name} = {problem['input']!r}: {message[:1].lower()}{message[1:]}" if name else message)
    return BadSetting(f"The settings do not fit this recipe: {'; '.join(problems).rstrip('.')}.", _fix(first, key))


def _fix(wrong: Any, key: str) -> str:
    """Returns advice on what to write instead of the first value that does not fit."""
    about = wrong.get("ctx", {})
    if isinstance(raised := about.get("error"), KeepworthError) and raised.fix:
        return raised.fix
    choices = str(about.get("expected", "")).split("'")[1::2]  # the names in "'answerer' or 'manager'"
    if meant := nearest(str(wrong["input"]), choices):
        return f"Did you mean {meant!r}?"
    for bound, direction in (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than")):
        if bound in about:
            return f"Set {key} to {direction} {about[bound]:g}."
    # The message for an objective's options already lists the choices.
    return "" if "did you mean" in wrong["msg"] else "--print-config shows what there is."
