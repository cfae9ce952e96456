"""The style, the scripts and the templates that pages share: reports of runs and the page of a memory."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

STYLE, PARTS = "style.css", "parts.js"


def asset(name: str, package: str = __name__, folder: str = "") -> str:
    """Returns the text of a file of a package, such as `STYLE`.

    Args:
        name: The name of the file.
        package: The import name of the package that holds the file; this one by default.
        folder: The folder inside the package, "" for the package's own.
    """
    return (files(package) / folder / name).read_text(encoding="utf-8")


def render(template: str, /, **values: Any) -> str:
    """Returns the HTML of a template in `templates/`. `values` are text, which is escaped, unless the template says `safe`."""
    return _templates().get_template(f"{template}.html").render(values)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    templates = Environment(
        loader=FunctionLoader(lambda name: asset(name, folder="templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["embed_json"] = _embed
    return templates


def _embed(data: object) -> str:
    from markupsafe import Markup

    return Markup(embed_json(data))  # without "<"


def embed_json(data: object) -> str:
    """Returns JSON that is safe inside a script element: without `<`, and with numbers that are not finite as texts."""
    return json.dumps(finite(data), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def finite(data: Any) -> Any:
    """Replaces numbers that are not finite by texts, because JSON has no NaN and a browser would read none of the page's
    numbers."""
    if isinstance(data, float):
        return data if math.isfinite(data) else str(data)
    if isinstance(data, Mapping):
        return {key: finite(value) for key, value in data.items()}
    return [finite(value) for value in data] if isinstance(data, list | tuple) else data
