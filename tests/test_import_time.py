"""`import keepworth` and `keepworth --help` are instant, and stay so."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

LIMIT_SECONDS = 0.3
HEAVY = ("torch", "transformers", "numpy", "matplotlib", "onnxruntime", "scipy", "pydantic", "peft")


def best_of_five(*arguments: str) -> float:
    """Seconds of processor time. On an idle machine that is the time one waits; on a busy one it is still the same claim."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    once()  # warms the file cache
    return min(once() for _ in range(5))


@pytest.mark.parametrize(
    "arguments", [("-c", "import keepworth"), ("-m", "keepworth", "--help")], ids=["import", "help"]
)
def test_it_is_instant(arguments: tuple[str, ...]) -> None:
    assert best_of_five(*arguments) < LIMIT_SECONDS


@pytest.mark.parametrize("module", ["keepworth", "keepworth.cli.main"])
def test_nothing_heavy_is_imported(module: str) -> None:
    script = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == []


@pytest.mark.parametrize("recipe", ["arithmetic", "memory_r1", "overwrite_reading", "strings"])
def test_what_a_recipe_can_be_told_is_known_without_torch(recipe: str) -> None:
    script = f"import sys, keepworth.recipes.{recipe} as r; r.Config(); print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["False"]
