"""`import keepworth` and `keepworth --help` load little."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    *("torch", "transformers", "numpy", "matplotlib", "onnxruntime", "scipy", "pydantic", "peft"),
    *("asyncio", "sqlite3", "apsw", "importlib.metadata", "multiprocessing"),
)
MODULES = {"keepworth": 45, "keepworth.cli.main": 200}
"""How many more than Python itself loads."""


def printed(script: str) -> str:
    """What a fresh process prints."""
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("module", ["keepworth", "keepworth.cli.main"])
def test_light_modules_import_no_heavy_packages(module: str) -> None:
    assert printed(f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))") == ""


@pytest.mark.parametrize("module", MODULES)
def test_few_modules_are_loaded(module: str) -> None:
    script = f"import sys; before = len(sys.modules); import {module}; print(len(sys.modules) - before)"
    assert int(printed(script)) < MODULES[module], "load what a command needs when it runs"


@pytest.mark.parametrize("recipe", ["arithmetic", "memory_r1", "overwrite_reading", "strings"])
def test_recipe_settings_are_known_without_torch(recipe: str) -> None:
    made = f"import sys, keepworth.methods.recipes.{recipe} as r; r.METHOD.make.Config()"
    assert printed(f"{made}; print('torch' in sys.modules)") == "False"


USED = """
import sys
from keepworth import Memory
memory = Memory(":memory:", encoder="hashing")
memory.add_many(["Anna likes oranges", "Compramos dos bicicletas rojas ayer"])
print([hit.text for hit in memory.search("bicicleta", mode="lexical")], "py3langid" in sys.modules)
"""


def test_no_model_is_unpacked_to_tell_the_language_of_a_text() -> None:
    assert printed(USED) == "['Compramos dos bicicletas rojas ayer'] False"
