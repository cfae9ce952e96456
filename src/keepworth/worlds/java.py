"""What it takes to play with an engine that runs in Java."""

from __future__ import annotations

import shutil

from keepworth.base.errors import KeepworthError
from keepworth.base.extras import fix_for, missing

LICENCES = {"textworld_express": "Apache-2.0", "scienceworld": "Apache-2.0", "py4j": "BSD-3-Clause"}


def lacks(package: str) -> str:
    """Returns what is missing to play with an engine of this Python package, or "" where nothing is."""
    absent = missing("envs", package, "py4j")
    if absent:
        return f"the Python package {absent[0]}, {LICENCES[absent[0]]} ({fix_for('envs')})"
    return "" if shutil.which("java") else "Java (a runtime of version 8 or newer on the path)"


def require(what: str, package: str) -> None:
    """Raises KeepworthError, with what to install for `what`, such as "the study cues"."""
    if absent := lacks(package):
        raise KeepworthError(f"{what} needs {absent}.", "Install it, or choose a stream or a study that needs none.")
