"""The style and the scripts that pages share: reports of runs and the page of a memory."""

from __future__ import annotations

from importlib.resources import files

STYLE, PARTS = "style.css", "parts.js"


def asset(name: str, package: str = __name__, folder: str = "") -> str:
    """Returns the text of a file of a package, such as `STYLE`.

    Args:
        name: The name of the file.
        package: The import name of the package that holds the file; this one by default.
        folder: The folder inside the package, "" for the package's own.
    """
    return (files(package) / folder / name).read_text(encoding="utf-8")
