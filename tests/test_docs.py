"""The documentation's examples work: marked Python blocks are run, every command line names what exists."""

from __future__ import annotations

import functools
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from examples.stand_in import endpoint

import keepworth
from benchmarks.agents.quickstarts import BLOCKS as QUICKSTARTS
from keepworth.cli.main import app, main
from keepworth.serving.hook import parser as hook_parser
from tests.evaluation.sample_run import sample_run
from tests.pages import ROOT, blocks, lines_of

SITE = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")), *SITE]
FILE = re.compile(r"# (\w+\.py)\n")
"""The first line of a block that is a file: it is written, so that what comes after it can use it."""
REASONS = {
    "needs a key": 4,
    "needs a server": 2,
    "needs an endpoint": 2,
    "needs an engine": 3,
    "needs another trainer": 8,
    "needs another package": 1,
    "trains for minutes": 8,
}
"""Why a Python block may be a fragment, and how many blocks may be one for that."""
LINES = {
    "installs packages": r"pip install |python -m venv ",
    "goes on until it is stopped": r"keepworth serve\b|vllm serve ",
    "computes for minutes": r"make |\.venv/bin/pytest |python -m benchmarks\."
    r"|keepworth (demo|train|control|models make|methods run|eval (run|stream|answerer))\b",
    "needs a run, or another file of yours": r"open runs/"
    r"|keepworth ((show|report) (my-run|demo demo-quick)|export|learn|eval (compare|board)|models fetch)\b"
    r"|keepworth memory (import|export|erase|rollback|quarantine --release|token remove|experiment)\b",
    "needs another program": r"(claude|codex|gemini) mcp |vf-eval |npx |docker ",
    "is for your shell, or for a server": r"export |curl |TOKEN=|ask\b|echo ",
}
"""Why a line of a shell block that is not marked may be left out: what it begins with."""
FRAGMENTS = 190
"""Lines of shell blocks that are not run, at most: all have options that are checked, where they are ours."""
COMMANDS = [
    (page.name, line.split(" #")[0].strip())
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    for line in block.splitlines()
    if line.startswith("keepworth ")
]


def marked(*marks: str) -> list[Path]:
    return [page for page in PAGES if any(mark in marks for _, mark, _, _ in blocks(page))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that holds a run called demo, and a model behind the address that OpenAI's SDK takes by default."""
    sample_run(tmp_path / "runs" / "demo", steps=3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with endpoint() as (url, key, _):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", key)
        yield tmp_path


def run_in_order(page: Path, folder: Path, marks: tuple[str, ...]) -> int:
    """Runs the blocks of a page that have one of the marks, in order, in one namespace; how many. What a line prints is what its
    comment says: up to a colon, with anything in the place of three dots."""
    printed: dict[int, str] = {}

    def noted(*values: object, **options: Any) -> None:
        print(*values, **options)  # noqa: T201
        printed[sys._getframe(1).f_lineno] = " ".join(map(str, values))

    namespace: dict[str, Any] = {"__name__": "__main__", "print": noted}
    count = 0
    for line, mark, language, code in blocks(page):
        if mark not in marks:
            continue
        count += 1
        file = FILE.match(code)
        if file is not None:
            (folder / file[1]).write_text(code, encoding="utf-8")
        elif language == "python":
            exec(compile("\n" * line + code, str(page), "exec", dont_inherit=True), namespace)
        else:
            path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
            environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}
            done = subprocess.run(["sh", "-ec", code], env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{page.name}:{line}\n{code}\n{done.stdout}\n{done.stderr}"
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, output in printed.items():
        _, _, comment = lines[number - 1].partition("  # ")
        expected = ".*".join(map(re.escape, comment.split(": ")[0].split("...")))
        assert not comment or re.fullmatch(expected, output), f"{page.name}:{number} prints {output}"
    return count


@pytest.mark.parametrize("page", marked("runnable"), ids=name_of)
def test_examples_run(page: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_in_order(page, elsewhere, ("runnable",))


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("page", marked("runnable: slow"), ids=name_of)
def test_examples_that_need_a_model_run(page: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_in_order(page, elsewhere, ("runnable", "runnable: slow"))


def unmarked_lines() -> list[tuple[str, str]]:
    """(place, line) of the shell blocks that have no mark, but for those of the quick starts."""
    found = []
    for page in PAGES:
        timed = {block for match in QUICKSTARTS.findall(page.read_text(encoding="utf-8")) for block in match[1:]}
        for number, mark, language, code in blocks(page):
            if language != "python" and not mark and code not in timed:
                found += [(f"{name_of(page)}:{number}", line) for line in lines_of(code)]
    return found


LEFT_OUT = [(place, line) for place, line in unmarked_lines() if any(re.match(rule, line) for rule in LINES.values())]
QUICK = sorted({line for place, line in unmarked_lines() if (place, line) not in LEFT_OUT})


@pytest.mark.parametrize("line", QUICK)
def test_documented_commands_run(line: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder with a memory of one item, with snapshots, and an episode under way."""
    with keepworth.Memory("agent.mem", encoder="hashing") as memory:
        memory.add("Ana likes tofu", user_id="ana")
        while memory.snapshot() != "s2":
            memory.add("Bo likes rice")
        episode = memory.episode("plan dinner")
        episode.search("what does Ana like", top_k=1)
        episode.act("tofu curry")
        episode.search("what else does Ana like", top_k=1)
    shutil.copy("agent.mem", "keepworth.mem")
    name, *words = shlex.split(line.replace("EPISODE", episode.id))
    assert name == "keepworth", f"{line}: why is it not run? LINES has reasons"
    assert main(words) == 0, capsys.readouterr()


def test_readme_inline_code_runs_after_its_first_block(elsewhere: Path, capsys: Any) -> None:
    """In a folder that holds what these lines made, and no other memory."""
    page = ROOT / "README.md"
    first = next(code for _, mark, _, code in blocks(page) if mark == "runnable")
    namespace: dict[str, Any] = {}
    exec(first, namespace)
    namespace["memory"].close()
    said = re.findall(r"`(keepworth memory [^`]+)`", page.read_text(encoding="utf-8"))
    assert len(said) > 1
    for line in said:
        assert main(shlex.split(line)[1:]) == 0, (line, capsys.readouterr())


def test_code_blocks_that_do_not_run_have_a_reason() -> None:
    """Every block of Python is run, here or by the file that is named, or is one of few fragments with a reason."""
    fragments: Counter[str] = Counter()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        timed = {block for found in QUICKSTARTS.findall(text) for block in found[1:]}
        for line, mark, language, code in blocks(page):
            place = f"{name_of(page)}:{line}"
            kind, _, said = mark.partition(": ")
            if kind == "runs in":
                assert page.name in (ROOT / said).read_text(encoding="utf-8"), place
            elif kind == "fragment":
                fragments[said] += 1
            elif language == "python":
                assert mark in ("runnable", "runnable: slow") or code in timed, f"{place} is not marked"
    assert set(fragments) <= set(REASONS)
    assert {reason: count for reason, count in fragments.items() if count > REASONS[reason]} == {}
    assert len(LEFT_OUT) <= FRAGMENTS


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")], ids=str)
def test_examples_use_only_names_made_on_their_page(page: Path) -> None:
    """Those that are not run, too: every name is imported or assigned in a block above."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", "--output-format=concise", "-"]
    done = subprocess.run(command, input="\n".join(blocks), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[line for _, line in COMMANDS])
def test_documented_commands_and_options_exist(page: str, line: str) -> None:
    """Every command and option of a documented line is one that the program has."""
    command: Any = typer.main.get_command(app)
    words = shlex.split(line.split(">")[0])[1:]
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            break
        assert words[0] in command.commands, f"{page}: {line}"
        command = command.commands[words.pop(0)]
    if words[:1] in (["--install"], ["--uninstall"]):  # `hook` reads its words itself: hosts wait for it to start
        known = hook_parser()._option_string_actions
        assert [word for word in words if word.startswith("--") and word not in known] == []
        return
    options = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}
    options.add("--help")
    assert [word for word in words if word.startswith("--") and word not in options] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.S)
    targets = [target for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []
    named = re.findall(r"\b(?:src|tests|benchmarks|docs)/[\w/]+\.\w+", text)
    assert [name for name in named if "/NAME" not in name and not (ROOT / name).exists()] == []


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


def test_tests_that_a_page_names_are_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", "".join(page.read_text(encoding="utf-8") for page in PAGES))
    assert named
    assert [name for file, name in named if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_anchors_are_headings(page: Path) -> None:
    links = re.findall(r"\]\(([^):\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8"))
    targets = [((page.parent / name).resolve() if name else page, anchor) for name, anchor in links]
    assert [(target.name, anchor) for target, anchor in targets if anchor not in anchors(target)] == []


def test_every_page_stands_in_the_site_once_and_every_public_name_in_the_reference() -> None:
    placed = re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    assert sorted(placed) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in SITE)
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


def test_pages_do_not_install_the_package_from_an_index() -> None:
    """Until it is released, this package is installed from its own folder. Messages name extras of what is installed already,
    which pip takes from there."""
    first = re.compile(r"pip install (?:-U )?['\"]?keepworth\b(?!\[)")
    assert [path.name for path in PAGES if first.search(path.read_text(encoding="utf-8"))] == []
