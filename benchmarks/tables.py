"""What the benchmarks' pages share: tables, numbers with intervals, and the places in the documentation that they stand in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def read(name: str) -> Any:
    """What a benchmark left in its file, such as "memory/engine"."""
    return json.loads((ROOT / "benchmarks" / f"{name}.json").read_text(encoding="utf-8"))


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]], left: int = 1, align: str = "---:") -> str:
    """A Markdown table. left: how many columns stand to the left; align: how the others do."""
    lines = [head, ["---"] * left + [align] * (len(head) - left), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def spread(row: Mapping[str, float], form: str = ".2f", ends: str = "[{}, {}]") -> str:
    """A mean with its interval. form: of the mean, the ends have its sign and digits, too; ends: how the interval is written."""
    return f"{row['mean']:{form}} " + ends.format(f"{row['low']:{form}}", f"{row['high']:{form}}")


def filled(page: Path, name: str, content: str) -> None:
    """Writes `content` between the marks `<!-- NAME -->` and `<!-- /NAME -->` of a page, or of the page of that name in the
    appendix; without a name it is the whole page. SystemExit where both lack the marks."""
    if not name:
        page.write_text(content, encoding="utf-8")
        return
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    there = [path for path in (page, page.parent / "appendix" / page.name) if path.is_file()]
    holding = [path for path in there if begin in (text := path.read_text()) and end in text]
    if len(holding) != 1:
        raise SystemExit(f"{page} and its appendix have {len(holding)} places for {begin} ... {end}, not one")
    (page,) = holding
    text = page.read_text()
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    page.write_text(re.sub(pattern, lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL))
