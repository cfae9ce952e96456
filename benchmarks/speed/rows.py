"""Rows of the speed tables: each is measured in rounds, every side once a round, and keeps every round in a file of its own.

A row that is stopped loses the round that was under way, and nothing else. Whoever goes first changes from round to round:
a machine that drifts hits all sides alike.
"""

from __future__ import annotations

import gc
import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.record import save
from benchmarks.speed.setting import HERE, MODEL

FOLDER = HERE / "rows"
Call = Callable[[], Mapping[str, Any]]
"""One measurement of a side: `wall` and `cpu` seconds, and whatever else there is to say about it."""


def of_side(record: Mapping[str, Any], side: str) -> list[dict[str, Any]]:
    """What was measured of a side, by the rounds that have it."""
    return [round_number["sides"][side] for round_number in record["rounds"] if side in round_number["sides"]]


class DoesNotFit(Exception):
    """A side that cannot be measured here, with the reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """open: given the number of threads, prepares all sides, by name and in order. minutes: of one round on two idle cores,
    until one was measured. about: what the page and a reader need to know."""

    table: str
    name: str
    rounds: int
    minutes: float
    open: Callable[[int], AbstractContextManager[Mapping[str, Call]]]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        slug = re.sub(r"[^a-z0-9]+", "_", f"{self.table} {self.name}".lower()).strip("_")
        return FOLDER / f"{slug}.json"

    def record(self) -> dict[str, Any]:
        """What was measured: {"rounds": [{"machine": ..., "seconds": of the round, "sides": {name: measurement}}], ...}."""
        if self.path.exists():
            content: dict[str, Any] = json.loads(self.path.read_text())
            return content
        about = {"table": self.table, "name": self.name, "model": MODEL, "dtype": "bf16", **self.about}
        return {**about, "rounds": [], "does_not_fit": {}}

    def left(self) -> float:
        """Minutes that its missing rounds will take."""
        return (self.rounds - len(self.record()["rounds"])) * self._longest() / 60

    def measure(self, machine: Mapping[str, Any], ends: float) -> bool:
        """Add the rounds that are missing, as long as one more is over at `ends` (of `time.monotonic`).

        Returns whether none is missing. Raises SystemExit where earlier rounds were measured otherwise."""
        record = self.record()
        rounds = record["rounds"]
        for key in ("processor", "threads", "cores"):
            if rounds and rounds[-1]["machine"][key] != machine[key]:
                raise SystemExit(f"{self.path} was measured with another {key}: delete it to measure it again")
        if len(rounds) >= self.rounds or not self._in_time(ends):
            return len(rounds) >= self.rounds
        with self.open(int(machine["threads"])) as sides:
            while len(rounds) < self.rounds and self._in_time(ends):
                begun = time.monotonic()
                made: dict[str, Mapping[str, Any]] = {}
                order = [name for name in sides if name not in record["does_not_fit"]]
                for name in order if len(rounds) % 2 == 0 else order[::-1]:
                    gc.collect()
                    try:
                        made[name] = dict(sides[name]())
                    except DoesNotFit as reason:
                        record["does_not_fit"][name] = str(reason)
                    else:
                        print(f"  {self.table}, {self.name}: {name} {made[name]['wall']:.2f} s", flush=True)
                now = {"machine": dict(machine), "seconds": time.monotonic() - begun, "sides": made}
                rounds.append(now)
                FOLDER.mkdir(exist_ok=True)
                save(self.path, record)
        return len(rounds) >= self.rounds

    def _longest(self) -> float:
        """Seconds of a round."""
        return float(max((r["seconds"] for r in self.record()["rounds"]), default=60 * self.minutes))

    def _in_time(self, ends: float) -> bool:
        return time.monotonic() + self._longest() <= ends
