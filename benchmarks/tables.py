"""Tables in pages: what a benchmark's `page.py` writes between the marks `<!-- NAME -->` and `<!-- /NAME -->` of a page."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]], left: int = 1, align: str = "---:") -> str:
    """A Markdown table. left: how many columns stand to the left; align: how the others do."""
    lines = [head, ["---"] * left + [align] * (len(head) - left), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def takes_nothing(about: str | None) -> None:
    """For a command without arguments: --help says what it does, and a word that it would not heed is refused."""
    argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()


def filled(page: Path, name: str, content: str) -> None:
    """Writes `content` between the marks of `name` in `page`. SystemExit where the page lacks them."""
    text = page.read_text()
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if begin not in text or end not in text:
        raise SystemExit(f"{page} has no place for the table: it lacks {begin} ... {end}")
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    page.write_text(re.sub(pattern, lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL))
