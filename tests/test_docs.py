"""The documentation's examples work: marked Python blocks are run, every command line names what exists."""

from __future__ import annotations

import functools
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

import keepworth
from keepworth.cli.main import app
from keepworth.serving.hook import parser as hook_parser
from tests.evaluation.sample_run import sample_run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNNABLE = re.compile(r"<!-- runnable -->\n```python\n(.*?)```", re.S)
COMMANDS = [
    (page.name, line.split(" #")[0].strip())
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    for line in block.splitlines()
    if line.startswith("keepworth ")
]


@pytest.mark.parametrize("page", [page for page in PAGES if RUNNABLE.search(page.read_text(encoding="utf-8"))], ids=str)
def test_examples_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All marked blocks of a page, in order, in one namespace, in a folder that holds a run called demo. What a line prints is
    what its comment says: up to a colon, with anything in the place of three dots."""
    sample_run(tmp_path / "runs" / "demo", steps=3)
    monkeypatch.chdir(tmp_path)
    printed: dict[int, str] = {}

    def noted(*values: object, **options: Any) -> None:
        print(*values, **options)  # noqa: T201
        printed[sys._getframe(1).f_lineno] = " ".join(map(str, values))

    namespace: dict[str, Any] = {"__name__": "__main__", "print": noted}
    text = page.read_text(encoding="utf-8")
    for block in RUNNABLE.finditer(text):
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block.group(1), str(page), "exec"), namespace)
    assert capsys.readouterr().out
    lines = text.splitlines()
    for number, output in printed.items():
        _, _, comment = lines[number - 1].partition("  # ")
        expected = ".*".join(map(re.escape, comment.split(": ")[0].split("...")))
        assert not comment or re.fullmatch(expected, output), f"{page.name}:{number} prints {output}"


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")], ids=str)
def test_examples_use_only_what_their_page_has_made(page: Path) -> None:
    """Those that are not run, too: every name is imported or assigned in a block above."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", "--output-format=concise", "-"]
    done = subprocess.run(command, input="\n".join(blocks), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[line for _, line in COMMANDS])
def test_commands_name_what_exists(page: str, line: str) -> None:
    """Every command and option of a documented line is one that the program has."""
    command: Any = typer.main.get_command(app)
    words = shlex.split(line.split(">")[0])[1:]
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            break
        assert words[0] in command.commands, f"{page}: {line}"
        command = command.commands[words.pop(0)]
    if words[:1] == ["--install"]:  # `hook` reads its words itself: hosts wait for it to start
        known = hook_parser()._option_string_actions
        assert [word for word in words if word.startswith("--") and word not in known] == []
        return
    options = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}
    assert [word for word in words if word.startswith("--") and word not in options] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.S)
    broken = [
        target
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text)
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []
    named = re.findall(r"\b(?:src|tests|benchmarks|docs)/[\w/]+\.\w+", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def slug(heading: str) -> str:
    """The anchor that a repository page, and the site, give a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "").strip().lower()
    return "".join(letter for letter in text if letter.isalnum() or letter in "-_ ").replace(" ", "-")


@functools.cache
def anchors(page: Path) -> set[str]:
    found: set[str] = set()
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for name in map(slug, re.findall(r"^#+ (.*)", text, re.M)):
        again = sum(each == name or (each.startswith(f"{name}-") and each[len(name) + 1 :].isdigit()) for each in found)
        found.add(f"{name}-{again}" if again else name)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_anchors_are_headings(page: Path) -> None:
    links = re.findall(r"\]\(([^):\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8"))
    targets = [((page.parent / name).resolve() if name else page, anchor) for name, anchor in links]
    assert [(target.name, anchor) for target, anchor in targets if anchor not in anchors(target)] == []


def test_every_page_stands_in_the_site_once_and_every_public_name_in_the_reference() -> None:
    placed = re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    assert sorted(placed) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:])
    reference = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    written = re.findall(r"^::: (keepworth\.[\w.]+)$", reference, re.M)
    names = {name.rpartition(".")[2] for name in written}
    assert set(keepworth.__all__) - {"__version__"} <= names
    assert [name for name in keepworth.__all__ if f"`{name}`" not in reference and name != "__version__"] == []
    for name in written:
        found = importlib.import_module(name) if name.endswith(".errors") else resolve(name)
        assert found.__doc__, name


def resolve(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def test_the_page_on_upgrading_leads_to_what_is_there() -> None:
    """Files that its table of modules leads to exist, those of before do not; names that it leads to are defined, those that are
    gone are not."""
    text = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
    modules, names = text.split("## Modules are joined by subject")[1].split("\n## ")[0].split("| before | now |")
    source = ROOT / "src" / "keepworth"
    quoted = re.compile(r"`([\w.]+)")
    for room, before, now in re.findall(r"^\| `(.+)` \| (.+) \| (.+) \|$", modules, re.M):
        folder = source / room.replace(".", "/")
        assert (folder / f"{quoted.findall(now)[0].replace('.', '/')}.py").is_file(), now
        assert [each for each in quoted.findall(before) if (folder / f"{each.replace('.', '/')}.py").exists()] == []
    table, gone_text = names.split("Gone, because")
    files = {
        path.relative_to(source).with_suffix("").as_posix().replace("/", "."): path for path in source.rglob("*.py")
    }

    def defined(name: str, inside: str) -> bool:
        return bool(
            re.search(rf"^(class |def |async def ){name}\b|^{name}\b.*=", files[inside].read_text("utf-8"), re.M)
        )

    for before, now in re.findall(r"^\| (`.+) \| (.+) \|$", table, re.M):
        inside = quoted.findall(before)[0].rpartition(".")[0]
        for each in re.findall(r"`([\w.]+)", now):
            inside, name = each.rpartition(".")[0] or inside, each.rpartition(".")[2]
            assert inside in files, each
            assert defined(name, inside), f"{each} of {before}"
    for each in re.findall(r"`(\w+\.[\w.]+)`", gone_text):
        inside, _, name = each.rpartition(".")
        assert inside not in files or not defined(name, inside), each


def test_nobody_is_told_to_install_what_is_somebody_elses() -> None:
    """Until it is released, this package is installed from its own folder. Messages name extras of what is installed already,
    which pip takes from there."""
    first = re.compile(r"pip install (?:-U )?['\"]?keepworth\b(?!\[)")
    own = re.compile(r"pip install (?:-U )?['\"]?recollect\b")
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.md")]
    texts = {path.name: path.read_text(encoding="utf-8") for path in [*PAGES, *sources]}
    assert [name for name, text in texts.items() if own.search(text)] == []
    assert [path.name for path in PAGES if first.search(texts[path.name])] == []


def test_the_readme_gives_two_commands() -> None:
    first = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    assert first is not None
    assert [line.split(" #")[0].strip() for line in first.group(1).splitlines()] == ["make demo", "make test"]
