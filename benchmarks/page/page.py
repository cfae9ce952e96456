"""Put the numbers of the page into docs/page.md.

python -m benchmarks.page.page
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.page.paint import SHOWN
from benchmarks.tables import filled, markdown, takes_nothing

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "page.md"


def main() -> None:
    takes_nothing(__doc__)
    found = json.loads((HERE / "paint.json").read_text())
    rows = [
        (text, f"{found['median'][name]:.0f}", ", ".join(f"{each[name]:.0f}" for each in found["rounds"]))
        for name, text in SHOWN.items()
    ]
    about = found["machine"]
    load = about["load_average_at_start"]
    at_work = f"on the machine of the server ({about['cores']} cores; others used it, too: load {load:.1f})"
    command = f"python -m benchmarks.page.paint --items {found['items']}"
    note = (
        f"{found['items']:,} items of 100 people. Medians of {len(found['rounds'])} rounds, each in a browser with an empty "
        f"cache, {at_work}. A round does {found['searches']} searches. Vectors are of hashed words, so encoding the query is not "
        f"in it. "
        f"`{command}`, {about['measured_at'][:10]}, keepworth {about['versions']['keepworth']}."
    )
    filled(PAGE, "paint", f"{markdown(('what', 'ms', 'each round'), rows)}\n\n{note}")


if __name__ == "__main__":
    main()
