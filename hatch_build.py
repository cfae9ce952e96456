"""What the metadata says that pyproject.toml cannot: addresses, and the README as an index page shows it.

A repository shows README.md with links relative to itself, which lead nowhere on an index page. Here they become absolute, in the
repository that `[tool.keepworth]` names; as long as it names none, their texts stay and the links go."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FENCED = re.compile(r"(^```.*?^```\n)", re.S | re.M)
PICTURE = re.compile(r'<picture>.*?<img src="([^"]+)" alt="([^"]*)">\s*</picture>\n', re.S)
RELATIVE = re.compile(r"\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")
WITHOUT_LINKS = (
    "\nThe pages and examples that this page names are in the source distribution, in `docs` and `examples`.\n"
)


def index_page(readme: str, repository: str, version: str) -> str:
    """Returns README.md in the form for an index page.

    Args:
        readme: The text of the file. Code in fences stays as it is.
        repository: The address of the repository, without a slash at its end; "" as long as there is none: pictures and links
            to files are then left out, and the text of each link stays.
        version: The version whose tag, `v` before it, the links lead to.
    """
    files, pictures = f"{repository}/blob/v{version}", f"{repository}/raw/v{version}"
    link, image = (rf"[\1]({files}/\2)", rf'<img src="{pictures}/\1" alt="\2">\n') if repository else (r"\1", "")
    pieces = FENCED.split(readme)  # every second one is code
    pieces[::2] = [RELATIVE.sub(link, PICTURE.sub(image, prose)) for prose in pieces[::2]]
    return "".join(pieces) + ("" if repository else WITHOUT_LINKS)


def addresses(repository: str, version: str) -> dict[str, str]:
    """Returns the addresses of the project, by their labels; none as long as there is no `repository`."""
    pages = {
        "Repository": "",
        "Documentation": f"/tree/v{version}/docs",
        "Changelog": "/blob/main/CHANGELOG.md",
        "Issues": "/issues",
    }
    return {label: repository + path for label, path in pages.items()} if repository else {}


class ReleaseMetadata(MetadataHookInterface):
    """Adds the addresses and the long description."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        repository = self.config["repository"].rstrip("/")
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = index_page(readme, repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = addresses(repository, metadata["version"])
