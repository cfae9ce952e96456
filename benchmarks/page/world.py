"""A small memory with something of everything that the page shows: for its pictures, and for the tests in a browser."""

from __future__ import annotations

import random

from keepworth import Memory

HELPS = "To reset the router, pull the plug for ten seconds"
SEED = 7


def fill(memory: Memory, episodes: int = 400) -> None:
    """Facts of two people, one that changed, two that contradict each other; a manual whose second entry helps, in episodes
    with rewards."""
    memory.add("Ana is allergic to peanuts", user_id="ana", source="chat", event_time="2026-02-11", trust=0.9)
    old = memory.add("Ana lives in Rome", user_id="ana", source="chat", event_time="2025-06-01")
    memory.supersede(old.id, "Ana lives in Oslo now", event_time="2026-03-04", source="chat")
    memory.add("Ana's desk is on the second floor", user_id="ana", event_time="2025-01-10", metadata={"room": 214})
    memory.add("Ana's desk is on the fourth floor", user_id="ana", event_time="2026-04-02", metadata={"room": 402})
    note = memory.add("Bo prefers tea", user_id="bo", source="import:notes")
    memory.update(note.id, "Bo prefers green tea")
    memory.add_many(
        ["To reset the router, hold the button", HELPS, "The router stands in the hall", "The router is black"],
        source="manual",
    )
    draw = random.Random(SEED)
    for number in range(episodes):
        whose = {} if number % 5 else {"user_id": "ana"}
        with memory.episode(f"help caller {number} with the router", **whose) as episode:
            hits = episode.search(f"the router of caller {number} is stuck, model {draw.randrange(10_000)}", top_k=3)
            right = any(hit.text == HELPS for hit in hits)
            episode.reward(float(draw.random() < (0.85 if right else 0.35)))
