"""Workers that hang: one that gives no sign of life for a while counts as dead, and is ended.

A sign comes from a thread of the worker, so that a call may take as long as it likes.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Protocol

BEAT = 5.0
"""Seconds between two signs of life, at most."""
SILENCE = 60.0
"""Seconds without one after which a worker counts as dead. Computing does not hold them up, however long it takes; a swapping
machine does for some seconds, and a library that keeps Python's lock for a minute would stop everything else in its worker."""


class Living(Protocol):
    """A worker, as whoever watches it sees it."""

    @property
    def alive(self) -> bool: ...

    def signs(self) -> int:
        """How many signs of life it has given; asks for another where it does not give them by itself."""
        ...

    def give_up(self, seconds: float) -> None:
        """End it as dead, after so long a silence. Called twice, it does nothing."""
        ...


class Heartbeats:
    """Watches workers in a thread, while there are any. silence: seconds."""

    def __init__(self, silence: float = SILENCE) -> None:
        self.pause = min(BEAT, silence / 4)
        self._silence = silence
        self._lock = threading.Lock()
        # By worker, how many signs it had given when the last one was seen, and seconds since then.
        self._seen: weakref.WeakKeyDictionary[Living, tuple[int, float]] = weakref.WeakKeyDictionary()
        self._watching = False

    def watch(self, worker: Living) -> None:
        with self._lock:
            self._seen[worker] = -1, 0.0
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, daemon=True, name="signs of life").start()

    def _watch(self) -> None:
        while True:
            # Pauses are counted, not a clock: when this process itself was stopped, that is nobody's silence.
            time.sleep(self.pause)
            with self._lock:
                for each in [each for each in self._seen if not each.alive]:
                    del self._seen[each]
                watched = list(self._seen)
                if not watched:
                    self._watching = False
                    return
            for each in watched:
                self._look_at(each)
            del watched, each

    def _look_at(self, worker: Living) -> None:
        before, silent = self._seen[worker]
        signs = worker.signs()
        silent = 0.0 if signs > before else silent + self.pause
        with self._lock:
            self._seen[worker] = signs, silent
        if silent >= self._silence:
            worker.give_up(self._silence)


def silence_of(name: str, host: str, seconds: float) -> str:
    """What is said of a worker that was given up."""
    return f"{name} on {host} gave no sign of life for {seconds:g} s, and was ended."


WHY_SILENT = "It was stopped, its host does not go on or is out of reach, or a library kept Python's lock for as long."
