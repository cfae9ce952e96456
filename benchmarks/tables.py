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


def with_appendix(page: Path) -> list[Path]:
    """The page, and the page of its measurements where there is one."""
    return [path for path in (page, page.parent / "appendix" / page.name) if path.is_file()]


def filled(page: Path, name: str, content: str) -> None:
    """Writes `content` between the marks of `name` in `page`, or in the page of that name in the appendix. SystemExit where
    both lack them."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    holding = [path for path in with_appendix(page) if begin in (text := path.read_text()) and end in text]
    if len(holding) != 1:
        raise SystemExit(f"{page} and its appendix have {len(holding)} places for {begin} ... {end}, not one")
    (page,) = holding
    text = page.read_text()
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    page.write_text(re.sub(pattern, lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL))
