"""What the documentation's site has beside the pages: files of the repository that a page links to, such as a benchmark's JSON.

A page links to them as a repository page does (`../benchmarks/agents/facts.json`). On the site they lie under `files/`.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]+)(#[^)\s]*)?")
HOLDS = (".json", ".py", ".md")
"""What may be shown: a link to anything else is left as it is, and the strict build refuses it."""


def outside(page: str, link: str) -> str | None:
    """The path in the repository of what `page` (a path in docs) links to; None where that is a page of the site."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return path if not path.startswith(("docs/", "..")) and path.endswith(HOLDS) and (ROOT / path).is_file() else None


def on_files(files: Files, config: Any) -> Files:
    for page in list(files.documentation_pages()):
        for link, _ in LINK.findall(page.content_string):
            path = outside(page.src_uri, link)
            if path and files.get_file_from_path(f"files/{path}.txt") is None:
                content = (ROOT / path).read_text(encoding="utf-8")
                files.append(File.generated(config, f"files/{path}.txt", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    source = page.file.src_uri

    def led(found: re.Match[str]) -> str:
        path = outside(source, found[1])  # a text has no anchors
        return posixpath.relpath(f"files/{path}.txt", posixpath.dirname(source) or ".") if path else found[0]

    return LINK.sub(led, markdown)
