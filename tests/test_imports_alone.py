"""Every module can be imported first: what a class is, or what a name is bound to, depends on no order of imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import importlib.util, os, pkgutil, sys, traceback

# What others wrote is loaded once and shared; of ours, each child knows only what the module itself imports.
for name in ("numpy", "httpx", "pydantic", "typer", "apsw", "torch", "transformers"):
    if importlib.util.find_spec(name) is not None:
        importlib.import_module(name)
import keepworth
folders = list(keepworth.__path__)
names = ["keepworth", *(found.name for found in pkgutil.walk_packages(folders, "keepworth.", onerror=lambda name: None))]
for name in [each for each in sys.modules if each.split(".")[0] == "keepworth"]:
    del sys.modules[name]
for name in names if len(sys.argv) == 1 else sys.argv[1:]:
    if name.endswith("__main__"):
        continue
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing = type(error).__name__ == "MissingExtra"  # said by a module that needs an extra
            ours = not missing and (error.name or "keepworth").split(".")[0] == "keepworth"
            if ours:
                traceback.print_exc()
            os._exit(1 if ours else 0)  # a library of an extra that is not installed
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name)
print("of", len(names))
"""
FIRST = tuple(
    f"keepworth.{name}"
    for name in (
        *("memory", "memory.async_memory", "memory.memory", "memory.overlay", "memory.choose.slots", "memory.by_name"),
        *("memory.choose.learning", "memory.store.store", "methods.policies.mixture", "training.trainer"),
        *("models.inprocess", "worlds.streams", "worlds.acting", "cli.main"),
    )
)
"""What people import, and where names are looked up late."""


@pytest.mark.parametrize("names", [FIRST, pytest.param((), id="all", marks=pytest.mark.slow)])
def test_every_module_can_be_the_first_that_is_imported(names: tuple[str, ...]) -> None:
    """That no imports go in circles is a contract of `make lint`."""
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, *names]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = ran.stdout.split("\n")
    assert ran.returncode == 0, ran.stderr
    assert int(lines[-2].removeprefix("of ")) > 100
    assert lines[:-2] == [], ran.stderr
