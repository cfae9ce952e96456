"""What people see of a memory in a notebook, and in a program that serves others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from keepworth import Memory
from keepworth.memory import event_loop
from keepworth.memory.async_memory import AsyncMemory
from keepworth.memory.errors import UnknownItem


def test_notebook_tables_escape_their_text() -> None:
    with Memory(":memory:", encoder=None) as memory:
        memory.add("To reset the <b>router</b> hold the button.")
        assert "no hits" in memory.search("zebra")._repr_html_()
        for _ in range(3):
            memory.reward(memory.search("reset the router").decision, 1.0)
        hits = memory.search("reset the router")
        assert "&lt;b&gt;router&lt;/b&gt;" in hits._repr_html_()
        assert "right 3 of 3 times" in hits._repr_html_()
        worth = memory.worth("m1", "reset the router")
        assert "right 3 of 3 times" in str(worth)
        assert "right 3 of 3 times" in worth._repr_html_()
        assert "m1" in memory.ledger()._repr_html_()
        with memory.episode("plan <dinner>") as episode:
            assert repr(episode) == f"LiveEpisode({episode.id!r}, task='plan <dinner>', searches=0)"


def test_a_notebook_shows_an_error_without_the_frames_of_this_package() -> None:
    with Memory(":memory:", encoder=None) as memory, pytest.raises(UnknownItem) as caught:
        memory.get("m77")
    shown = caught.value._render_traceback_()
    assert "no item 'm77'" in shown[-1]
    assert "test_people.py" in shown[0]
    assert len(shown) == 2  # one frame of the user's, and the message


def test_sync_memory_in_an_event_loop_warns_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(event_loop, "_warned", False)
    with Memory(tmp_path / "m.mem", encoder=None) as memory:

        async def search(of: Memory | AsyncMemory) -> None:
            found = of.search("tea")
            if isinstance(of, AsyncMemory):
                await found

        memory.search("tea")
        asyncio.run(search(AsyncMemory(memory)))
        assert "AsyncMemory" not in caplog.text
        for _ in range(2):
            asyncio.run(search(memory))
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage().count("use AsyncMemory") for record in warnings] == [1]


WRITES: dict[str, Callable[[Memory], object]] = {
    "a text": lambda memory: memory.add("Ana likes tea."),
    "several texts": lambda memory: memory.add_many(["Bo rows.", "Cy sails."]),
    "a conversation": lambda memory: memory.add([{"role": "user", "content": "I like tea."}], infer=True),
}


@pytest.mark.parametrize("kind", WRITES)
def test_sync_write_in_an_event_loop_warns(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_loop, "_warned", False)
    with Memory(":memory:", encoder=None) as memory:

        async def write() -> None:
            WRITES[kind](memory)

        asyncio.run(write())
    assert "use AsyncMemory" in caplog.text
