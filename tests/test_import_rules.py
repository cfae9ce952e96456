"""Who may import whom. The contracts are in pyproject.toml; what they cannot say is here."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import SOURCE, nodes

FORBIDDEN = {
    "environments": {"agents", "memory", "models"},
    "memory": {"models"},
    "evaluation": {"recipes", "cli"},
    "episodes": {path.name for path in SOURCE.iterdir() if path.is_dir()} - {"episodes"},
}


def test_the_contracts_hold() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run([command, "--no-cache"], cwd=SOURCE.parents[1], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("room", sorted(FORBIDDEN))
def test_a_room_keeps_its_own_rule(room: str) -> None:
    """Also for rooms that import-linter cannot be told about before they exist."""
    broken = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in sorted((SOURCE / room).rglob("*.py"))
        for name in imported(path)
        if name.startswith("keepworth.") and name.split(".")[1] in FORBIDDEN[room]
    ]
    assert broken == []


def test_the_check_sees_imports_inside_functions(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("def f():\n    from keepworth.cli import main\n    import keepworth.models.files\n")
    assert set(imported(path)) == {"keepworth.cli", "keepworth.cli.main", "keepworth.models.files"}


def imported(path: Path) -> list[str]:
    names = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names
