"""The package's own files as syntax trees, parsed once for all tests that look at them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import keepworth

SOURCE = Path(keepworth.__file__).parent
"""The folder of the package."""


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file, the module first."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))
