"""What a run is doing at the moment, in `status.json`: for whoever looks on from another process.

It is there while the run is worked on, and is left behind where the process was killed: `writer` tells which of the two.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from keepworth.learning.run.disk import disk
from keepworth.learning.watch.plan import Plan
from keepworth.learning.watch.progress import Progress

NAME = "status.json"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """title: of the part of the run under way; done of total: its steps; phase: what is being done; since: when that began,
    ends: when all of it is expected to end, where that was planned; both in seconds since 1970, 0 where nobody knows."""

    title: str = ""
    total: int = 0
    done: int = 0
    phase: str = ""
    since: float = 0.0
    ends: float = 0.0


def read_status(folder: Path) -> RunStatus | None:
    """None where there is none, or none that can be read: it is replaced many times a minute."""
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
        title, phase = str(found["title"]), str(found["phase"])
        times = float(found["since"]), float(found.get("ends", 0.0))
        return RunStatus(title, int(found["total"]), int(found["done"]), phase, *times)
    except (OSError, ValueError, KeyError, TypeError):
        return None


class StatedProgress:
    """Passes everything on to `inner` and keeps the status file of `folder` up to date. Removed when the work ends."""

    def __init__(self, inner: Progress, folder: Path) -> None:
        self._inner = inner
        self._folder = folder
        self._status = RunStatus()
        self._plan: Plan | None = None

    def planned(self, plan: Plan) -> None:
        self._plan = plan
        self._inner.planned(plan)

    def start(self, total_steps: int, title: str) -> None:
        self._state(RunStatus(title, total_steps, 0, "starting", time.time()))
        self._inner.start(total_steps, title)

    def phase(self, name: str) -> None:
        self._state(replace(self._status, phase=name, since=time.time()))
        self._inner.phase(name)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._state(replace(self._status, done=step))
        self._inner.step(step, metrics)

    def note(self, text: str) -> None:
        self._inner.note(text)

    def finish(self) -> None:
        (self._folder / NAME).unlink(missing_ok=True)
        self._inner.finish()

    def _state(self, status: RunStatus) -> None:
        # Not synced: nothing depends on it after the process has ended. Renamed, so that nobody reads half of it.
        if self._plan is not None:
            status = replace(status, ends=time.time() + self._plan.left())
        self._status = status
        path = self._folder / NAME
        temporary = path.with_name(f".{NAME}.part")
        with disk(path):
            temporary.write_text(json.dumps(asdict(status), ensure_ascii=False), encoding="utf-8")
            temporary.replace(path)
