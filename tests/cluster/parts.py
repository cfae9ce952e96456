"""What the tests' workers are made of. No torch, nothing heavy: a process is up in a moment."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.episodes.episode import RewardTerm


class Counter:
    def __init__(self, start: int = 0) -> None:
        if start < 0:
            raise ValueError(f"start = {start} is below 0")
        self.value = start

    def add(self, more: int) -> int:
        self.value += more
        return self.value

    def slowly(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    def fails(self, what: str) -> None:
        raise ValueError(what)

    def array(self, given: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return given * 2

    def closure(self) -> object:
        return lambda: 0

    def pid(self) -> int:
        return os.getpid()

    def says(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stderr.write(f"{text}, as an error\n")

    def leaves(self, code: int) -> None:
        sys.stderr.write("going\n")
        sys.exit(code)

    def begins(self) -> int:
        """A program of its own, which holds everything open that it can."""
        return subprocess.Popen(["sleep", "600"], close_fds=False).pid

    def variable(self, name: str) -> str:
        return os.environ.get(name, "")


class Judge:
    """Stands where a `RewardWorker` does. folder: a file `full` in it leaves no room for another."""

    def __init__(self, folder: str) -> None:
        if (Path(folder) / "full").exists():
            raise ValueError("no room")

    async def terms(self, task: str, answer: str) -> list[RewardTerm]:
        if answer == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if answer == "fail":
            raise ValueError(f"no reward for {task}")
        await asyncio.sleep(0.2)  # others are asked meanwhile
        return [RewardTerm("process", float(os.getpid()))]


class Waits:
    """Calls that go on beside each other."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def until(self) -> str:
        await self._event.wait()
        return "it came"

    def comes(self) -> None:
        self._event.set()

    async def blocks(self, seconds: float) -> float:
        """Holds up all others."""
        time.sleep(seconds)
        return seconds

    async def fails(self) -> None:
        await asyncio.sleep(0)
        raise ValueError("beside")


class Frail:
    """Its process ends as it begins, as often as `deaths` says."""

    def __init__(self, folder: str, deaths: int) -> None:
        died = len([*Path(folder).glob("death-*")])
        if died < deaths:
            (Path(folder) / f"death-{died}").touch()
            sys.stderr.write("no memory\n")
            sys.stderr.flush()
            os._exit(3)

    def stands(self) -> bool:
        return True
