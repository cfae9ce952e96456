"""The browser of the slow tests, and of the pictures of the page: a Chromium of this machine, without a head."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

VARIABLE = "KEEPWORTH_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def missing() -> str:
    """Why there is no browser; "" where there is one."""
    for package in ("playwright", "axe_playwright_python"):
        if find_spec(package) is None:
            return f"{package} is not installed: the extra browser has it"
    return "" if program() else f"there is no Chromium here: set {VARIABLE} to the path of one"


def program() -> str:
    named = os.environ.get(VARIABLE, "")
    found = [named] if named else [path for name in NAMES if (path := shutil.which(name))]
    return found[0] if found and Path(found[0]).is_file() else ""


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # A sandbox needs rights that containers lack. Only pages of our own are opened.
        opened = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        try:
            yield opened
        finally:
            opened.close()
