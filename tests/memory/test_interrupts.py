"""Ctrl-C at any moment of a read or a write: what it leaves open is ended, and everybody goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from benchmarks.nights.disk import Fault
from keepworth.memory.errors import UnknownEpisode
from keepworth.memory.memory import Memory
from keepworth.memory.store import backend, database

FILES = {backend.__file__, database.__file__, threading.__file__}


class Press:
    """Presses Ctrl-C after the `at`-th call, or at the `at`-th entry of a function, in what runs transactions: Python looks for
    signals there. `pressed` says whether it was."""

    def __init__(self, at: int) -> None:
        self.left, self.pressed = at, False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event in ("call", "c_return", "c_exception") and code.co_filename in FILES and code.co_name != "__del__":
            self.left -= 1
            if self.left < 0:
                sys.setprofile(None)
                self.pressed = True
                raise KeyboardInterrupt


def pressed(work: Callable[[], object], at: int) -> bool:
    """Do something while Ctrl-C is pressed, and return whether it was."""
    press = Press(at)
    sys.setprofile(press)
    try:
        work()
    except (KeyboardInterrupt, UnknownEpisode):
        pass
    finally:
        sys.setprofile(None)
    return press.pressed


WORK: dict[str, Callable[[Memory], object]] = {
    "write": lambda m: m.add("a dog"),
    "write that is refused": lambda m: m.rollback(entry=999),
    "read": lambda m: m.get("m1"),
}


@pytest.mark.parametrize("name", WORK)
def test_memory_goes_on_after_an_interrupt_at_any_moment(name: str, path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(backend, "LOOK_AGAIN", 0.05)
    at, notes = 0, 1
    with Memory(path, encoder=None, policy=None) as m, ThreadPoolExecutor(1) as beside:
        m.add("a cat")
        while pressed(lambda: WORK[name](m), at):
            texts = {item.text for item in m.get_all(limit=1000)}
            assert len(m) == len(texts) == notes + ("a dog" in texts)
            for item in m.get_all(limit=1000):
                if item.text == "a dog":
                    m.delete(item.id)
            m.add(f"note {at}")
            beside.submit(m.add, f"note {at} of another thread").result(timeout=60)
            with Memory(path, encoder=None, policy=None) as other:
                other.add(f"note {at} of another process")
            at, notes = at + 1, notes + 3
        assert at > 10


def test_interrupted_rollback_lets_others_write(path: Path):
    with Memory(path, encoder=None, policy=None) as m, Memory(path, encoder=None, policy=None) as other:
        m.add("a cat")
        for at in range(20):
            fault = Fault("interrupt", at)
            fault.interrupt(m.store.database._writer)
            with pytest.raises((KeyboardInterrupt, UnknownEpisode)):
                m.rollback(entry=999)
            m.store.database._writer.exec_trace = None
            other.add(f"note {at}")
            if not fault.fired:
                break
        assert at > 2
        assert len(m) == len(other) == at + 2
