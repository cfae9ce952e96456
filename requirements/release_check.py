"""`make release-check`: builds the source distribution and the wheel into dist/ and checks what a stranger would get.

    python requirements/release_check.py [--tag v1.2.3]

It runs in an environment with requirements/release.txt. With --tag, it also refuses what a release has to fill in before."""

from __future__ import annotations

import argparse
import email
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email.message import Message
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 6_100_000
"""The most bytes of a wheel. It has the data sets, the measurements of the methods and the model of languages."""
FIRST_PROGRAM = """
from keepworth import Memory

with Memory("router.mem", encoder="hashing") as memory:
    memory.add("To reset the router hold the button.")
    memory.add("To reset the router pull the plug.")
    for _ in range(10):
        hits = memory.search("how do I reset the router", top_k=1)
        memory.reward(hits.decision, float("button" in hits[0].text))
    assert "button" in memory.search("how do I reset the router", top_k=2)[0].text
"""


class Links(HTMLParser):
    """Collects where the links and pictures of a page lead, in `targets`."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value or "" for name, value in attrs if name in ("href", "src", "srcset")]


def dead_links(page: str) -> list[str]:
    """Returns the links of a page of HTML that lead nowhere on another host: all but absolute ones and anchors."""
    return [target for target in Links(page).targets if not target.startswith(("https://", "#"))]


def metadata_of(wheel: Path) -> Message:
    """Returns the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_string(packed.read(name).decode())


def mistakes_in(wheel: Path) -> Iterator[str]:
    """Yields what is wrong with a wheel: its size, its licences, or the page that an index makes of it."""
    from readme_renderer import markdown

    size = wheel.stat().st_size
    if size > LARGEST:
        yield f"{wheel.name} has {size:,} bytes, and {LARGEST:,} are the most (LARGEST in {Path(__file__).name})."
    metadata = metadata_of(wheel)
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    for name in metadata.get_all("License-File", []):
        if not any(inside.endswith(f".dist-info/licenses/{name}") for inside in names):
            yield f"The licence {name} is named in the metadata and not in the wheel."
    page = markdown.render(str(metadata.get_payload()))
    if page is None:
        yield "README.md cannot be shown by an index."
    else:
        yield from (f"README.md on an index page has a link that leads nowhere: {link}" for link in dead_links(page))


def unfilled(root: Path, tag: str) -> Iterator[str]:
    """Yields what a release with this tag has to fill in before.

    Args:
        root: The folder of the repository.
        tag: The name of the tag, such as "v1.2.3".
    """
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    version = re.findall(
        r'^__version__ = "(.+)"', (root / "src/keepworth/__init__.py").read_text(encoding="utf-8"), re.M
    )
    if [tag] != [f"v{number}" for number in version]:
        yield f"The tag is {tag}, and src/keepworth/__init__.py has version {', '.join(version)}."
    if not settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]:
        yield "pyproject.toml names no repository: fill in `repository` of [tool.hatch.metadata.hooks.custom]."
    if "(unreleased)" in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield "CHANGELOG.md says (unreleased): write the date."
    if "pip install ." in (root / "README.md").read_text(encoding="utf-8"):
        yield "README.md installs from its own folder: write pip install keepworth."
    for path in sorted((root / "src/keepworth/methods").rglob("*.py")):
        if re.search(r'label="unmeasured"', path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(root)} is unmeasured: measure it, or leave it out."


def run(*command: str | Path, folder: Path = ROOT) -> str:
    """Runs a command and returns what it prints. Raises SystemExit with its output if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def try_alone(wheel: Path) -> None:
    """Installs a wheel in an environment of its own, with an empty folder to work in, and runs the README's first program."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True, symlinks=True)
        programs = folder / "venv" / "bin"
        run(programs / "python", "-m", "pip", "install", "--quiet", wheel.resolve(), folder=folder)
        run(programs / "python", "-c", FIRST_PROGRAM, folder=folder)
        said = run(programs / "keepworth", "--version", folder=folder).split()
        if said != ["keepworth", metadata_of(wheel)["Version"]]:
            raise SystemExit(f"keepworth --version says {' '.join(said)}")


def main() -> None:
    """Checks, and exits with 1 and a line for each mistake."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tag", default="", help="also refuse what a release with this tag has to fill in")
    tag = parser.parse_args().tag
    mistakes = list(unfilled(ROOT, tag)) if tag else []
    if mistakes:
        raise SystemExit("\n".join(mistakes))
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", dist)
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir())
    run(Path(sys.executable).with_name("cffconvert"), "--validate")
    (wheel,) = dist.glob("*.whl")
    mistakes = list(mistakes_in(wheel))
    if mistakes:
        raise SystemExit("\n".join(mistakes))
    try_alone(wheel)
    sizes = {path.name: path.stat().st_size for path in sorted(dist.iterdir())}
    print(json.dumps(sizes, indent=1))


if __name__ == "__main__":
    main()
