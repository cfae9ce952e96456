"""Threads that search one memory at once, in the process alone and in a file: none waits for another for ever."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from keepworth import Memory


@pytest.mark.parametrize("place", [":memory:", "agent.mem"])
def test_threads_that_search_and_reward_at_once_all_end(tmp_path: Path, place: str) -> None:
    memory = Memory(place if place == ":memory:" else tmp_path / place, encoder="hashing")
    memory.add("Run the tests with: make test", user_id="ana")
    done: list[str] = []

    def work(name: str) -> None:
        for number in range(40):
            with memory.episode(f"run the tests {number}", user_id=name, by=name) as episode:
                episode.search(top_k=5)
                episode.reward(float(number % 2))
        done.append(name)

    threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in ("ana", "bo", "cy")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(done) == ["ana", "bo", "cy"]
