"""How fast the page is over a large memory: from the address to the first paint and to the first rows, and a search.

    python -m benchmarks.page.paint --items 100000 --json benchmarks/page/paint.json

It needs the extra `browser` and a Chromium. The server and the browser run on the same machine. Each round is a browser of its
own, with nothing in its cache. Vectors are of hashed words, so encoding the query is not in it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.memory.engine import machine
from keepworth.serving.access import Access
from keepworth.serving.memory_server import MemoryServer

WORDS = 2_000
PEOPLE = 100
QUERIES = 10
SHOWN = {
    "paint": "first paint",
    "rows": "the newest 50 items are listed",
    "search": "a search, from the key to the list with every score explained",
    "item": "an item with history and worth, from the click",
    "more": "the next 50 items",
}


def main() -> None:
    from tests.serving.chromium import browser, missing

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    arguments = parser.parse_args()
    if missing():
        parser.error(missing())
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), arguments.items) as server,
        browser() as chromium,
    ):
        rounds = [one_round(chromium, server, number) for number in range(arguments.rounds)]
    body = {
        "machine": machine(),
        "items": arguments.items,
        "searches": QUERIES,
        "rounds": rounds,
        "median": {name: round(statistics.median(each[name] for each in rounds)) for name in SHOWN},
    }
    for name, text in SHOWN.items():
        print(f"{text}: {body['median'][name]} ms ({', '.join(str(round(each[name])) for each in rounds)})")
    if arguments.json:
        arguments.json.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def served(folder: Path, items: int) -> MemoryServer:
    server = MemoryServer(folder / "agent.mem", encoder="hashing", token="kw_paint", seed=1)
    memory = server.memories.of(Access("fill")).memory
    draw = random.Random(1)
    words = [f"{draw.choice('bdfgklmnprst')}{draw.choice('aeiou')}{number:x}" for number in range(WORDS)]
    for begin in range(0, items, 1_000):
        texts = [" ".join(draw.choices(words, k=12)) for _ in range(min(1_000, items - begin))]
        memory.add_many(texts, user_id=f"person {begin // 1_000 % PEOPLE}")
    memory.search(" ".join(words[:3]))  # the index is built before the clock starts
    return server


def one_round(chromium: Any, server: MemoryServer, number: int) -> dict[str, float]:
    """Milliseconds."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    begun = time.perf_counter()
    page.goto(f"{server.url}/#token=kw_paint", wait_until="commit")
    page.press("#token", "Enter")
    page.wait_for_selector("#views a")
    paint = page.evaluate(
        "performance.getEntriesByType('paint').find(each => each.name === 'first-contentful-paint').startTime"
    )
    page.click("#views a:has-text('Memory')")
    page.wait_for_selector(".rows-list a >> nth=49")
    rows = 1000 * (time.perf_counter() - begun)
    more = timed(page, lambda: page.click(".rows .more"), ".rows-list a >> nth=99")
    draw = random.Random(number)
    searches = []
    for _ in range(QUERIES):
        shown = page.text_content(".rows-list .question >> nth=0").split()
        page.fill("input[name=q]", " ".join(draw.sample(shown, 3)))
        searches.append(until_listed(page))
    item = timed(page, lambda: page.click(".rows-list a >> nth=0"), ".detail article")
    context.close()
    return {"paint": paint, "rows": rows, "more": more, "search": statistics.median(searches), "item": item}


def timed(page: Any, act: Any, until: str) -> float:
    begun = time.perf_counter()
    act()
    page.wait_for_selector(until)
    return 1000 * (time.perf_counter() - begun)


def until_listed(page: Any) -> float:
    """A search is over when the list has other rows."""
    page.evaluate("document.querySelectorAll('.rows-list a').forEach(each => { each.dataset.old = ''; })")
    return timed(page, lambda: page.press("input[name=q]", "Enter"), ".rows-list a:not([data-old])")


if __name__ == "__main__":
    main()
