"""What `make` says on a machine that lacks something. (That it works is what continuous integration runs.)"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.memory import on_postgres

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "-C", str(ROOT), *arguments], capture_output=True, text=True)


def test_no_python_and_an_old_one(tmp_path: Path) -> None:
    old = tmp_path / "python2.7"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo "Python 2.7.18" && exit 0\nexit 1\n')
    old.chmod(0o755)
    for python, said in (
        ("no-such-python", "There is no 'no-such-python' here. Install Python 3.11 or later"),
        (old, f"keepworth needs Python 3.11 or later; '{old}' is Python 2.7.18"),
    ):
        ran = make("install", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}")
        assert ran.returncode != 0
        assert said in ran.stderr
        assert not (tmp_path / "venv").exists()


def test_the_demo_is_quick_when_asked() -> None:
    assert "keepworth demo --quick" in make("-n", "demo", "QUICK=1").stdout
    assert "--quick" not in make("-n", "demo").stdout


@pytest.mark.parametrize("failing", ["", "test", "docs", "audit", "demo"])
def test_continuous_integration_ends_with_the_closing_line(tmp_path: Path, failing: str) -> None:
    """Every command is run whatever the others say; the last line is pytest's; any failure is the exit code's."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    fake = tmp_path / "make"
    says = 'test) echo "57 passed, 1 skipped in 8.21s";; demo) echo demonstrating;;'
    fake.write_text(f'#!/bin/sh\necho "$@" >> called\ncase "$1" in {says} esac\n[ "$1" != "{failing}" ] || exit 2\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    ran = subprocess.run([tmp_path / ".ci" / "run"], env=environment, capture_output=True, text=True)
    assert ran.returncode == (1 if failing else 0)
    assert ran.stdout.splitlines()[-1] == "57 passed, 1 skipped in 8.21s"
    assert (tmp_path / "called").read_text().splitlines() == ["test", "docs", "audit", "demo QUICK=1"]


def test_tests_left_out_on_postgres_exist() -> None:
    files = sorted((ROOT / "tests" / "memory").rglob("test_*.py"))
    assert on_postgres.WHOLE.keys() <= {path.name for path in files}
    names = {name for path in files for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))}
    assert on_postgres.SOME.keys() - names == set()
