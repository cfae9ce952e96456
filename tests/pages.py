"""Code on the pages of the documentation."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>(?:runnable|runs in:|fragment:)[^>]*?) -->\n)?"
    r"^```(?P<language>python|sh|bash)\n(?P<code>.*?)^```",
    re.S | re.M,
)
"""A block of code and the mark above it: `runnable` is run here, `runnable: slow` by `make test-all` alone, `runs in: FILE` by
that file. A `fragment: REASON` is not run."""


def blocks(page: Path) -> list[tuple[int, str, str, str]]:
    """(line of the first line of code, mark, language, code) of each block of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = BLOCK.finditer(text)
    return [(text[: at.start("code")].count("\n"), at["mark"] or "", at["language"], at["code"]) for at in found]


def lines_of(code: str) -> list[str]:
    joined = code.replace("\\\n", " ").splitlines()
    return [line.split(" #")[0].strip() for line in joined if line.strip() and not line.strip().startswith("#")]


def lines_that_run_in(page: str, test: str) -> list[list[str]]:
    """Words of each line of the shell blocks of docs/`page` that are marked as run in the file `test`."""
    found = [
        shlex.split(line)
        for _, mark, language, code in blocks(ROOT / "docs" / page)
        if mark == f"runs in: {test}" and language != "python"
        for line in lines_of(code)
    ]
    assert found, f"no block of docs/{page} runs in {test}"
    return found
