"""Pictures of the page, for docs/page.md.

    python -m benchmarks.page.screens

It needs the extra `browser` and a Chromium. The memory in them is made (`world.py`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.page.world import HELPS, fill
from benchmarks.record import arguments
from keepworth import policy
from keepworth.serving.access import Access
from keepworth.serving.memory_server import MemoryServer

IMAGES = Path(__file__).parents[2] / "docs" / "images"
EPISODES = 900
SHOTS = (
    ("page_overview", "overview", 1280, 860, "light"),
    ("page_memory", "memory/{item}?q=the+router+is+stuck", 1280, 800, "light"),
    ("page_memory_narrow", "memory/{item}?q=the+router+is+stuck", 390, 800, "dark"),
)


def main() -> None:
    from tests.serving.chromium import browser, missing

    parser = arguments(__doc__, json=False)
    parser.add_argument("--to", type=Path, default=IMAGES, help="the folder to write to")
    options = parser.parse_args()
    if missing():
        parser.error(missing())
    made = policy("default", withhold=0.3, budget=1.0)
    with (
        tempfile.TemporaryDirectory() as folder,
        browser() as chromium,
        MemoryServer(Path(folder) / "a.mem", encoder="hashing", token="kw_shown", seed=1, policy=made) as server,
    ):
        memory = server.memories.of(Access("fill")).memory
        fill(memory, EPISODES)
        item = next(entry.id for entry in memory.get_all() if entry.text == HELPS)
        for name, view, width, height, scheme in SHOTS:
            size = {"width": width, "height": height}
            context = chromium.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
            page = context.new_page()
            page.goto(f"{server.url}/#token=kw_shown")
            page.press("#token", "Enter")
            page.wait_for_selector("#views a")
            page.goto(f"{server.url}/#/{view.format(item=item)}")
            page.wait_for_selector(".tile, .detail article")
            page.wait_for_load_state("networkidle")
            page.screenshot(path=options.to / f"{name}.png")
            context.close()
            print(options.to / f"{name}.png")


if __name__ == "__main__":
    main()
