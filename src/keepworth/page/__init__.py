"""What pages are made of: one style, and the scripts that pages share. Runs' reports and the page over a memory use both."""

from __future__ import annotations

from importlib.resources import files

STYLE, PARTS = "style.css", "parts.js"


def asset(name: str, package: str = __name__, folder: str = "") -> str:
    """The text of a file of a package, such as `STYLE`."""
    return (files(package) / folder / name).read_text(encoding="utf-8")
