"""Every number in the documentation, written anew from the JSON files that the benchmarks' commands left.

    python -m benchmarks.pages [NAME ...] [--check]

The `page.py` of a folder says in `tables` what stands at which marks of which page; NAME is such a folder. --check: says which
pages changed, and fails. The README's picture of the demo is read from a run, and left as it is where there is none.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from benchmarks.record import arguments
from benchmarks.tables import DOCS, ROOT, filled


def pages() -> list[str]:
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/page.py"))


def texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))}


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    before = texts()
    for name in options.names or pages():
        print(name, flush=True)
        for page, mark, content in importlib.import_module(f"benchmarks.{name}.page").tables():
            filled(page, mark, content)
    changed = [str(path.relative_to(ROOT)) for path, text in texts().items() if before.get(path) != text]
    print(f"changed: {', '.join(changed)}" if changed else "every page holds what the files say")
    if changed and options.check:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
