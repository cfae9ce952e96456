"""What `make install` takes: packages by their hashes, from one lock file that fits pyproject.toml; what an audit says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^(?=[a-z0-9])(.*(?:\n +.*)*)", LOCK, re.MULTILINE)


def locked() -> dict[str, list[Requirement]]:
    """name -> what is pinned of it, once per Python or system that takes another version."""
    found: dict[str, list[Requirement]] = {}
    for block in BLOCKS:
        requirement = Requirement(block.split(" \\\n", 1)[0])
        found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def asked() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"]]
    for name in ("llm", "train", "serve", "docs", "dev"):
        lines += project["optional-dependencies"][name]
    pins = (ROOT / "requirements" / "pins.in").read_text(encoding="utf-8").splitlines()
    every = [Requirement(line) for line in [*lines, *(line for line in pins if line and line[0] != "#")]]
    return [each for each in every if each.name != project["name"]]


def test_every_package_is_pinned_and_has_its_hashes() -> None:
    assert len(BLOCKS) > 80
    for block in BLOCKS:
        assert re.match(r"\S+==\S+", block), block
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block


@pytest.mark.parametrize("requirement", asked(), ids=str)
def test_lock_satisfies_the_project_requirements(requirement: Requirement) -> None:
    pinned = locked()[canonicalize_name(requirement.name)]
    for each in pinned:
        (version,) = [specifier.version for specifier in each.specifier]
        other = requirement.marker is not None and requirement.marker != each.marker and len(pinned) > 1
        assert other or requirement.specifier.contains(version, prereleases=True), f"{requirement}: run make lock"


def test_no_address_is_written_down_and_no_second_index_is_asked() -> None:
    """An index belongs into pip's settings; with two of them the higher version wins, whoever offers it."""
    assert not re.search(r"https?://|file:|--index|--find-links|-e ", LOCK)
    script = (ROOT / "requirements" / "install.sh").read_text(encoding="utf-8")
    assert "extra-index" not in script
    installs = [line.strip() for line in script.splitlines() if "pip install" in line and "apt" not in line]
    assert installs
    assert all("--no-deps" in line for line in installs), "only what the lock names is installed"
    by_hash = [line for line in installs if "--require-hashes" in line]
    others = [line for line in installs if "--require-hashes" not in line]
    assert len(by_hash) == 1
    assert all(line.endswith(('"torch==$torch"', "-e .")) for line in others)


def audited(tmp_path: Path, script: str) -> tuple[int, str]:
    asking = tmp_path / "pip-audit"
    asking.write_text(script, encoding="utf-8")
    command = [sys.executable, str(ROOT / "requirements" / "audit.py"), sys.executable, str(asking)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def answer(*dependencies: dict[str, object]) -> str:
    return f"print({json.dumps(json.dumps({'dependencies': dependencies}))})"


def test_a_known_vulnerability_fails_the_audit(tmp_path: Path) -> None:
    known = {"id": "PYSEC-1", "fix_versions": ["2.0"]}
    bad = {"name": "a", "version": "1.0", "vulns": [known]}
    good = {"name": "b", "version": "1.0", "vulns": []}
    assert audited(tmp_path, answer(good)) == (0, "Audited 1 of 1 packages; 0 are known to be vulnerable.\n")
    code, said = audited(tmp_path, answer(bad, good))
    assert code == 1
    assert "VULNERABLE: a 1.0: PYSEC-1, fixed in 2.0" in said


def test_unaudited_packages_are_reported_without_failing(tmp_path: Path) -> None:
    unknown = {"name": "a", "skip_reason": "Dependency not found on PyPI"}
    code, said = audited(tmp_path, answer(unknown, unknown))
    assert (code, said[:11]) == (0, "NOT AUDITED")
    assert "none of 2 packages" in said
    code, said = audited(tmp_path, "import sys; sys.exit('ConnectionError: no route')")
    assert (code, said[:11]) == (0, "NOT AUDITED")
    assert "no route" in said
